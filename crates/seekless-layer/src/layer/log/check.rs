//! Checks all files below a layer, and repairs what can be repaired.
//!
//! A file is checked independently of the layer's state in memory: slots, index, records and their decoded content,
//! overlaps, sums, and the mark with its size. What is damaged or cannot be read is one finding, and the check continues
//! behind it. When the slots or the index of a file are damaged, a repair [builds](super::rebuild) a new index.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use super::file::File;
use super::format::{Commit, Entry, Head, SizeMark, kinds};
use super::load::{Content, damaged, is_of_one_file, look};
use super::node::{Node, OpenFile};
use super::rebuild::heads;
use super::space::{Extent, Space};
use super::{ChunkedLayer, Options, Plain, mark};
use crate::fs::client::Client;
use crate::fs::{Attr, FileKind, Fs, FsResult, XattrMode};
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
    // Files with several names. Their lookups last until the end, and so do their numbers.
    let mut seen: BTreeSet<Ino> = BTreeSet::new();
    let mut open = vec![Vec::new()];
    while let Some(path) = open.pop() {
        for entry in client.read_dir(&path).await? {
            let path = [&path[..], b"/", &entry.name].concat();
            match entry.kind {
                FileKind::Directory => open.push(path),
                FileKind::Regular => {
                    // A host may list the same number for all files, as sshfs does.
                    let ino = client.resolve(&path).await?;
                    if seen.contains(&ino) {
                        client.forget(ino).await;
                        continue;
                    }
                    let attr = lower.getattr(ino, None).await;
                    let has_names = attr.as_ref().is_ok_and(|attr| attr.links > 1);
                    let checked = match attr {
                        Ok(attr) => log.check_file(&lower, attr, repair, &mut report).await,
                        Err(error) => Err(error),
                    };
                    match has_names {
                        true => _ = seen.insert(ino),
                        false => client.forget(ino).await,
                    }
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
    for ino in seen {
        client.forget(ino).await;
    }
    Ok(report)
}

/// A problem as text, and whether it was repaired.
type Problems = Vec<(String, bool)>;

/// What is wrong with a file that has a good slot.
#[derive(Default)]
struct Damage {
    /// With its index, which a repair builds again.
    index: Vec<String>,
    /// With its tail: a repair makes the rest of the file readable.
    tail: Option<String>,
    /// With anything else.
    rest: Vec<String>,
}

impl ChunkedLayer {
    async fn check_file(&self, lower: &Fs, attr: Attr, repair: bool, report: &mut Report) -> FsResult<Problems> {
        let ino = attr.ino;
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
                let mut problems = vec![(problem, false)];
                self.mend(lower, &attr, None, repair, report, &mut problems).await?;
                return Ok(problems);
            }
            Content::Log(commit) => commit,
        };
        report.encoded_files += 1;
        report.bytes_above += commit.size;
        let damage = self.check_records(lower, &attr, &commit, report).await?;
        let mut problems: Problems = damage.index.into_iter().map(|problem| (problem, false)).collect();
        let is_mended = (!problems.is_empty() || damage.tail.is_some())
            && self.mend(lower, &attr, Some(&commit), repair, report, &mut problems).await?;
        problems.extend(damage.tail.into_iter().chain(damage.rest).map(|problem| (problem, false)));
        if !is_mended {
            problems.extend(self.check_mark(lower, &attr, (commit.size, commit.generation), repair, report).await?);
        }
        Ok(problems)
    }

    /// With `repair`, builds a new index. Returns whether it did, and then `problems` are repaired; why it could not, and
    /// what may be lost nevertheless, are more of them.
    async fn mend(
        &self,
        lower: &Fs,
        attr: &Attr,
        commit: Option<&Commit>,
        repair: bool,
        report: &mut Report,
        problems: &mut Problems,
    ) -> FsResult<bool> {
        let mended = match heads(lower, attr.ino, 1).await {
            Ok(found) => {
                report.repairable |= !found.is_empty();
                if repair { self.rebuild(lower, attr, commit).await } else { Ok(None) }
            }
            Err(error) => Err(error),
        };
        match mended {
            Err(error) if is_of_one_file(&error) => {
                problems.push((format!("it cannot be repaired as long as this is so: {error}"), false));
                Ok(false)
            }
            Err(error) => Err(error),
            Ok(None) => Ok(false),
            Ok(Some(lost)) => {
                problems.iter_mut().for_each(|(_, repaired)| *repaired = true);
                problems.extend(lost.into_iter().map(|lost| (lost, false)));
                Ok(true)
            }
        }
    }

    /// Reads everything that `commit` refers to, also behind what is damaged or cannot be read.
    async fn check_records(&self, lower: &Fs, attr: &Attr, commit: &Commit, report: &mut Report) -> FsResult<Damage> {
        let mut damage = Damage::default();
        let node = Rc::new(Node::regular(attr.ino, 0, File::unread(0, commit.chunk_shift)));
        let Some(file) = node.open(lower) else { return Ok(damage) };
        file.borrow_mut().load(commit, None, attr.size);
        // Numbers in a damaged file need not make sense.
        let start_of = |chunk: u64| chunk.saturating_mul(1 << commit.chunk_shift);
        let bytes_of = |chunks: Range<u64>| {
            format!("bytes {} to {}", start_of(chunks.start), start_of(chunks.end).min(commit.size))
        };
        let listed = self.list(file).await?;
        for (chunks, error) in listed.unknown {
            damage.index.push(format!("the part of its index for {} is lost: {error}", bytes_of(chunks)));
        }
        let mut used = Vec::new();
        let mut last_bytes: Option<(u64, u64)> = None;
        for (chunk, entry) in listed.chunks {
            used.push(Extent::from(entry));
            report.records += 1;
            match self.check_chunk(file, chunk, entry).await {
                Ok(raw_bytes) => last_bytes = Some((chunk, raw_bytes.into())),
                Err(error) if is_of_one_file(&error) => {
                    damage.rest.push(format!("{} are lost: {error}", bytes_of(chunk..chunk + 1)));
                }
                Err(error) => return Err(error),
            }
        }
        if !commit.tail.is_hole() {
            used.push(commit.tail.into());
            report.records += 1;
            match self.check_tail(file, commit).await {
                Ok(end) => last_bytes = Some(end),
                Err(error) if is_of_one_file(&error) => {
                    let last_chunk = commit.chunks().saturating_sub(1);
                    let before = match tail_start(file, commit).await {
                        Some(before) => before,
                        // It begins where the record of its chunk ends.
                        None => last_bytes.filter(|(chunk, _)| *chunk == last_chunk).map_or(0, |(_, bytes)| bytes),
                    };
                    let start = start_of(last_chunk).saturating_add(before).min(commit.size);
                    match start < commit.size {
                        true => damage.tail = Some(format!("bytes {start} to {} are lost: {error}", commit.size)),
                        false => damage.index.push(error.to_string()),
                    }
                }
                Err(error) => return Err(error),
            }
        }
        if let Some((chunk, bytes)) = last_bytes
            && start_of(chunk).saturating_add(bytes) > commit.size
        {
            damage.rest.push(format!("there are bytes behind its end at {}", commit.size));
        }
        used.extend(file.borrow().index.node_entries().into_iter().map(|(_, _, entry)| Extent::from(entry)));
        let sum: u64 = used.iter().map(|extent| extent.bytes).sum();
        // What a node that cannot be read refers to is in use, too.
        if sum != commit.live_bytes && damage.index.is_empty() && damage.tail.is_none() {
            damage.rest.push(format!("{sum} bytes are in use, and the slot says {}", commit.live_bytes));
        }
        if let Err((one, two)) = Space::around(used) {
            damage.rest.push(format!("the records at {} and {} overlap", one.offset, two.offset));
        }
        Ok(damage)
    }

    async fn check_chunk(&self, file: OpenFile<'_>, chunk: u64, entry: Entry) -> FsResult<u32> {
        let record = file.read_record("chunk", entry).await?;
        let wrong = |problem: String| damaged("chunk", file.ino(), entry, problem);
        file.borrow().check_record(&record, kinds::CHUNK, chunk).map_err(wrong)?;
        let position = Position { file_id: record.file_id, chunk, generation: record.generation };
        let codec = self.codec_of(record.codec).map_err(wrong)?;
        codec.decode(&record.body, record.raw_bytes as usize, &position).map_err(wrong)?;
        Ok(record.raw_bytes)
    }

    /// Reads the tail of `commit`. Returns its chunk, and where it ends in that.
    async fn check_tail(&self, file: OpenFile<'_>, commit: &Commit) -> FsResult<(u64, u64)> {
        let record = file.read_record("tail", commit.tail).await?;
        let wrong = |problem: String| damaged("tail", file.ino(), commit.tail, problem);
        file.borrow().check_record(&record, kinds::TAIL, record.number).map_err(wrong)?;
        let end = u64::from(record.raw_bytes) + record.body.len() as u64;
        if record.number >= commit.chunks() {
            return Err(wrong("it is of a chunk that the file does not have".to_string()));
        }
        if end > 1 << commit.chunk_shift {
            return Err(wrong(format!("{} bytes at {} of the chunk", record.body.len(), record.raw_bytes)));
        }
        Ok((record.number, end))
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
}

/// Where the tail of `commit` begins in its chunk, if the head of its record is intact.
async fn tail_start(file: OpenFile<'_>, commit: &Commit) -> Option<u64> {
    let bytes = read_lower(file.lower, file.ino(), file.handle, commit.tail.offset, Head::BYTES as u32).await.ok()?;
    let head = Head::checked(&bytes).ok().filter(|head| head.head_crc == commit.tail.crc)?;
    Some(head.raw_bytes.into())
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
        if file.borrow().form != super::file::Form::Log {
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
