//! Checks all files below a layer, and repairs what can be repaired.
//!
//! A file is checked independently of the layer's state in memory: slots, index, records and their decoded content,
//! overlaps, sums, and the mark with its size. When the slots or the index of a file are damaged, a repair builds a new
//! index from the heads of records alone: the newest intact record of each chunk counts. Chunks that have been punched
//! out since may come back, which the finding reports.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::file::{File, Form, Tail};
use super::format::{Commit, Entry, Head, RECORD_ALIGN, RECORDS_START, SizeMark, kinds};
use super::index::{Index, Step};
use super::load::{Content, PIECE_BYTES, is_of_one_file, look, read_record};
use super::node::{Node, OpenFile};
use super::space::{Extent, Space};
use super::{ChunkedLayer, Options, Plain, mark};
use crate::fs::client::Client;
use crate::fs::{Attr, FileKind, Fs, FsError, FsResult, SeekTo, XattrMode};
use crate::layer::codecs::Position;
use crate::layer::read_lower;
pub use crate::layer::{Finding, Report};
use crate::rt::Rt;
use crate::units::Ino;

/// Checks every file of `lower`, which no other task may use until this returns. With `repair`, repairs what can be
/// repaired.
///
/// # Errors
/// When the check itself fails. Damage is in the report.
pub async fn check(rt: &Rt, lower: Fs, options: Options, repair: bool) -> FsResult<Report> {
    let log = ChunkedLayer::new(rt, &lower, Options { plain: Plain::Pass, ..options });
    log.claim().make(&lower, true).await?;
    let client = Client::new(lower.clone());
    let mut report = Report::default();
    let mut seen: BTreeMap<Ino, ()> = BTreeMap::new();
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        for entry in client.read_dir(&path).await? {
            let path = [&path[..], b"/", &entry.name].concat();
            match entry.kind {
                FileKind::Directory => open.push(path),
                FileKind::Regular if seen.insert(entry.ino, ()).is_none() => {
                    let ino = client.resolve(&path).await?;
                    let checked = log.check_file(&lower, ino, repair, &mut report).await;
                    client.forget(ino).await;
                    let checked = match checked {
                        // One unreadable file is no reason to skip the others.
                        Err(error) if is_of_one_file(&error) => vec![(error.to_string(), false)],
                        other => other?,
                    };
                    for (problem, repaired) in checked {
                        report.findings.push(Finding { path: path.clone(), problem, repaired });
                    }
                }
                _ => {}
            }
        }
    }
    Ok(report)
}

/// A problem as text, and whether it was repaired.
type Problems = Vec<(String, bool)>;

impl ChunkedLayer {
    async fn check_file(&self, lower: &Fs, ino: Ino, repair: bool, report: &mut Report) -> FsResult<Problems> {
        let attr = lower.getattr(ino, None).await?;
        report.files += 1;
        report.bytes_below += attr.sectors * 512;
        let commit = match look(lower, ino, None, attr.size).await? {
            Content::Empty => return self.check_mark(lower, &attr, (0, 0), repair, report).await,
            Content::Plain(_) => {
                report.plain_files += 1;
                report.bytes_above += attr.size;
                return Ok(Vec::new());
            }
            Content::Damaged(problem) => {
                report.repairable |= !heads(lower, ino, 1).await?.is_empty();
                let repaired = repair && self.rebuild(lower, &attr, None).await?;
                return Ok(vec![(problem, repaired)]);
            }
            Content::Log(commit) => commit,
        };
        report.bytes_above += commit.size;
        let mut problems = Vec::new();
        let mut is_index_damaged = false;
        match self.check_records(lower, ino, &commit, report, &mut problems).await {
            Ok(()) => {}
            Err(error @ FsError::Corrupt { .. }) => {
                is_index_damaged = true;
                report.repairable |= !heads(lower, ino, 1).await?.is_empty();
                problems.push((error.to_string(), false));
            }
            Err(error) => return Err(error),
        }
        if is_index_damaged && repair && self.rebuild(lower, &attr, Some(&commit)).await? {
            problems.iter_mut().for_each(|(_, repaired)| *repaired = true);
            return Ok(problems);
        }
        problems.extend(self.check_mark(lower, &attr, (commit.size, commit.generation), repair, report).await?);
        Ok(problems)
    }

    /// Reads everything that `commit` refers to. Damaged chunks are problems of their own; a damaged index is an error.
    async fn check_records(
        &self,
        lower: &Fs,
        ino: Ino,
        commit: &Commit,
        report: &mut Report,
        problems: &mut Problems,
    ) -> FsResult<()> {
        let node = Rc::new(Node::regular(ino, 0, File::unread(0, commit.chunk_shift)));
        let Some(file) = node.open(lower) else { return Ok(()) };
        self.ensure_loaded(file).await?;
        if let Form::Broken(error) = &file.borrow().form {
            return Err(error.clone());
        }
        let mut used = Vec::new();
        let mut from = 0;
        let mut last_bytes: Option<(u64, u64)> = None;
        // Numbers in a damaged file need not make sense.
        let start_of = |chunk: u64| chunk.saturating_mul(1 << commit.chunk_shift);
        while let Some((chunk, entry)) = self.with_index(file, |file| file.index.next(from)).await? {
            from = chunk + 1;
            used.push(Extent::from(entry));
            report.records += 1;
            match self.check_chunk(file, chunk, entry).await {
                Ok(raw_bytes) => last_bytes = Some((chunk, raw_bytes.into())),
                Err(error @ FsError::Corrupt { .. }) => {
                    let start = start_of(chunk);
                    let end = start_of(chunk + 1).min(commit.size);
                    problems.push((format!("bytes {start} to {end} are lost: {error}"), false));
                }
                Err(error) => return Err(error),
            }
        }
        let tail = file.borrow().tail;
        if let Some(tail) = tail {
            used.push(tail.entry.into());
            report.records += 1;
            let record = file.read_record("tail", tail.entry).await?;
            last_bytes = Some((tail.chunk, u64::from(tail.start) + record.body.len() as u64));
        }
        if let Some((chunk, bytes)) = last_bytes
            && start_of(chunk).saturating_add(bytes) > commit.size
        {
            problems.push((format!("there are bytes behind its end at {}", commit.size), false));
        }
        used.extend(file.borrow().index.node_entries().into_iter().map(|(_, _, entry)| Extent::from(entry)));
        let sum: u64 = used.iter().map(|extent| extent.bytes).sum();
        if sum != commit.live_bytes {
            problems.push((format!("{sum} bytes are in use, and the slot says {}", commit.live_bytes), false));
        }
        if let Err((one, two)) = Space::around(used) {
            problems.push((format!("the records at {} and {} overlap", one.offset, two.offset), false));
        }
        Ok(())
    }

    async fn check_chunk(&self, file: OpenFile<'_>, chunk: u64, entry: Entry) -> FsResult<u32> {
        let record = file.read_record("chunk", entry).await?;
        let wrong = |problem: String| super::load::damaged("chunk", file.ino(), entry, problem);
        file.borrow().check_record(&record, kinds::CHUNK, chunk).map_err(wrong)?;
        let position = Position { file_id: record.file_id, chunk, generation: record.generation };
        let codec = self.codec_of(record.codec).map_err(wrong)?;
        codec.decode(&record.body, record.raw_bytes as usize, &position).map_err(wrong)?;
        Ok(record.raw_bytes)
    }

    /// A mark that would be trusted must be true; `truth` are size and generation.
    async fn check_mark(
        &self,
        lower: &Fs,
        attr: &Attr,
        truth: (u64, u64),
        repair: bool,
        report: &mut Report,
    ) -> FsResult<Problems> {
        let (Some(found), _) = self.marked(lower, attr).await else { return Ok(Vec::new()) };
        if (found.size, found.generation) == truth {
            return Ok(Vec::new());
        }
        let problem = format!("its attribute says that it has {} bytes, and it has {}", found.size, truth.0);
        report.repairable = true;
        if repair {
            let unclean = SizeMark::new(false, 0, 0, 0).to_bytes();
            lower.setxattr(attr.ino, mark::NAME, &unclean, XattrMode::Set).await?;
        }
        Ok(vec![(problem, repair)])
    }

    /// Builds a new index for a file from the heads of its records, and with the size of `commit` if there is a good
    /// slot: heads have that at the time of their record, and a later change of it alone writes none. Returns false when
    /// there are none.
    async fn rebuild(&self, lower: &Fs, attr: &Attr, commit: Option<&Commit>) -> FsResult<bool> {
        let mut heads = heads(lower, attr.ino, usize::MAX).await?;
        // What looks like heads in data may be those of another file, which was copied into this one.
        heads.retain(|(_, head)| commit.is_none_or(|commit| commit.file_id == head.file_id));
        // Which of one generation is the last is unknown: a larger size loses nothing.
        let newest = heads.iter().map(|(_, head)| *head).max_by_key(|head| (head.generation, head.size));
        let Some(mut newest) = newest else { return Ok(false) };
        if let Some(commit) = commit {
            newest.size = commit.size;
            newest.generation = newest.generation.max(commit.generation);
        }
        let mut chunks: BTreeMap<u64, (Head, Entry)> = BTreeMap::new();
        let mut tail: Option<(Head, Entry)> = None;
        let mut heads: Vec<(u64, Head)> =
            heads.into_iter().filter(|(_, head)| head.file_id == newest.file_id).collect();
        heads.sort_by_key(|(offset, head)| (head.generation, *offset));
        for (offset, head) in heads {
            let entry = Entry { offset, bytes: head.record_bytes() as u32, crc: head.head_crc };
            let is_inside = head.chunk_shift == newest.chunk_shift
                && newest.size > 0
                && head.number <= (newest.size - 1) >> newest.chunk_shift;
            if !is_inside {
                continue;
            }
            match read_record(lower, attr.ino, None, "record", entry).await {
                Ok(_) => {}
                Err(FsError::Corrupt { .. }) => continue,
                // The record may be intact.
                Err(error) => return Err(error),
            }
            match head.kind {
                kinds::CHUNK => drop(chunks.insert(head.number, (head, entry))),
                kinds::TAIL => tail = Some((head, entry)),
                _ => {}
            }
        }
        let is_last = |head: &Head| {
            let base = chunks.get(&head.number).map(|(base, _)| (base.generation, base.raw_bytes));
            head.number == newest.size.saturating_sub(1) >> newest.chunk_shift
                && base.is_some_and(|(generation, bytes)| generation < head.generation && bytes == head.raw_bytes)
        };
        let tail = tail.filter(|(head, _)| is_last(head));
        let mut index = Index::default();
        let mut used: Vec<Extent> = Vec::new();
        for (chunk, (_, entry)) in &chunks {
            match index.set(*chunk, *entry) {
                Step::Done(_) => used.push((*entry).into()),
                Step::Load(_) => unreachable!("all of a new index is in memory"),
            }
        }
        used.extend(tail.iter().map(|(_, entry)| Extent::from(*entry)));
        let live_bytes = used.iter().map(|extent| extent.bytes).sum();
        // Overlapping records: it is unknown which one is right.
        if Space::around(used).is_err() {
            return Ok(false);
        }
        let file = File {
            form: Form::Log,
            chunk_shift: newest.chunk_shift,
            generation: newest.generation,
            durable_generation: newest.generation,
            size: newest.size,
            index,
            tail: tail.map(|(head, entry)| Tail { entry, chunk: head.number, start: head.raw_bytes }),
            // Behind everything: existing records are kept until both slots are good.
            space: Space::full(attr.size.max(RECORDS_START).next_multiple_of(RECORD_ALIGN)),
            live_bytes,
            mark: super::file::Mark::Clean,
            ..File::empty(newest.chunk_shift, newest.file_id)
        };
        let node = Rc::new(Node::regular(attr.ino, 0, file));
        let Some(file) = node.open(lower) else { return Ok(false) };
        for _slot in 0..2 {
            file.borrow_mut().changed = true;
            self.settle_file(file).await?;
        }
        Ok(true)
    }
}

/// Recounts the layer's state in memory: each file with [`File::check_books`], and the changed bytes of all files. No
/// operation may be in progress.
///
/// # Errors
/// What is wrong, as text.
#[cfg(test)]
pub(super) async fn books(stacked: &crate::layer::Stacked<ChunkedLayer>) -> Result<(), String> {
    let (log, lower) = (stacked.layer(), stacked.lower());
    let mut dirty_bytes = 0;
    for (ino, node) in stacked.nodes().all() {
        let Some(file) = node.open(lower) else { continue };
        dirty_bytes += file.borrow().dirty_bytes();
        if file.borrow().form != Form::Log {
            continue;
        }
        let (mut entries, mut from) = (Vec::new(), 0);
        loop {
            let next = log.with_index(file, |file| file.index.next(from)).await;
            let Some((chunk, entry)) = next.map_err(|error| error.to_string())? else { break };
            entries.push(entry);
            from = chunk + 1;
        }
        file.borrow().check_books(&entries).map_err(|problem| format!("inode {ino}: {problem}"))?;
    }
    match dirty_bytes == log.dirty_bytes.get() {
        true => Ok(()),
        false => Err(format!("{dirty_bytes} changed bytes, and {} are noted", log.dirty_bytes.get())),
    }
}

/// The heads of records in a lower file, up to `max` of them, with their offsets. Walks from record to record, and where
/// there is none, from one possible offset to the next. Holes are not read: any user may make one of 8 EiB.
async fn heads(lower: &Fs, ino: Ino, max: usize) -> FsResult<Vec<(u64, Head)>> {
    let mut found = Vec::new();
    let mut at = RECORDS_START;
    let (mut piece, mut piece_start) = (Vec::new(), 0);
    while found.len() < max {
        let within = (at - piece_start) as usize;
        if piece.len() < within + Head::BYTES {
            at = match lower.lseek(ino, None, at, SeekTo::Data).await {
                Ok(data) => at.max(data / RECORD_ALIGN * RECORD_ALIGN),
                Err(FsError::NoSuchOffset) => break,
                Err(FsError::Unsupported) => at,
                Err(error) => return Err(error),
            };
            piece = read_lower(lower, ino, None, at, PIECE_BYTES).await?;
            piece_start = at;
            if piece.len() < Head::BYTES {
                break;
            }
            continue;
        }
        match Head::checked(&piece[within..]) {
            Ok(head) => {
                found.push((at, head));
                at += head.record_bytes();
            }
            Err(_) => at += RECORD_ALIGN,
        }
        if at < piece_start || at - piece_start > piece.len() as u64 {
            (piece, piece_start) = (Vec::new(), at);
        }
    }
    Ok(found)
}

/// For tests and tools: the records of a file, one line each.
pub async fn dump(lower: &Fs, ino: Ino) -> FsResult<String> {
    let mut text = String::new();
    for (offset, head) in heads(lower, ino, usize::MAX).await? {
        let kind = match head.kind {
            kinds::CHUNK => "chunk",
            kinds::TAIL => "tail",
            kinds::NODE => "node",
            _ => "unknown",
        };
        text += &format!(
            "{offset}: {kind} {} of generation {}, {} bytes for {}, codec {}\n",
            head.number, head.generation, head.body_bytes, head.raw_bytes, head.codec
        );
    }
    Ok(text)
}
