//! Builds a new index for a file whose slots or index are damaged.
//!
//! Three things say which record of a chunk counts, each only where the ones before it are missing:
//! 1. The entries of a valid slot and the nodes below it. Chunks without an entry are holes.
//! 2. The generation in the heads of records: the newest intact record of a chunk counts.
//! 3. Among records of one generation, as of a chunk that is written twice before a commit, the one that an entry refers to, be it in a
//!    damaged slot or in any node that is left: an entry contains the checksum of its record, so that it proves itself. Where there is none,
//!    the one at the highest offset.
//!
//! By 2 and 3, chunks that have been punched out since may come back, which the finding reports.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::ChunkedLayer;
use super::file::{File, Form, Mark, Tail};
use super::format::{
    Commit, Entry, FileRecord, Head, RECORD_ALIGN, RECORDS_START, SLOT_BYTES, Slot, SlotState, entries_from_bytes,
    kinds,
};
use super::index::{Index, Step};
use super::load::{PIECE_BYTES, read_record};
use super::node::Node;
use super::space::{Extent, Space};
use crate::codec::is_zero;
use crate::fs::{Attr, Fs, FsError, FsResult, SeekTo};
use crate::layer::read_lower;
use crate::units::Ino;

/// A record that was found by its head.
#[derive(Clone, Copy)]
struct FoundRecord {
    head: Head,
    entry: Entry,
}

/// Whether an entry for a record was found, and where. Of two records, the greater one counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Named {
    Nowhere,
    InNode,
    InSlot,
}

/// The entries that were found, by what is in them: offset and checksum.
#[derive(Default)]
struct Names(BTreeMap<(u64, u32), Named>);

impl Names {
    fn add(&mut self, entries: &[Entry], place: Named) {
        for entry in entries {
            let known = self.0.entry((entry.offset, entry.crc)).or_insert(place);
            *known = place.max(*known);
        }
    }

    fn place_of(&self, entry: Entry) -> Named {
        self.0.get(&(entry.offset, entry.crc)).copied().unwrap_or(Named::Nowhere)
    }
}

/// What is left of a file without its index.
struct Remains {
    /// Its records, in the order of their offsets.
    records: Vec<FoundRecord>,
    /// The commit of a good slot, if none of the records can be newer.
    commit: Option<Commit>,
    /// What is known of the file as a whole.
    newest: Head,
}

impl Remains {
    /// Searches a file, which has `commit` if its slots are good. `None` when there are no records.
    async fn find(lower: &Fs, attr: &Attr, commit: Option<&Commit>) -> FsResult<Option<Remains>> {
        let found = |(offset, head): (u64, Head)| {
            let entry = Entry { offset, bytes: head.record_bytes() as u32, crc: head.head_crc };
            FoundRecord { head, entry }
        };
        let mut records: Vec<FoundRecord> = heads(lower, attr.ino, usize::MAX).await?.into_iter().map(found).collect();
        // What looks like heads in data may be those of another file, which was copied into this one.
        records.retain(|record| commit.is_none_or(|commit| commit.file_id == record.head.file_id));
        // Which of one generation is the last is unknown: a larger size loses nothing.
        let newest = records.iter().map(|record| record.head).max_by_key(|head| (head.generation, head.size));
        let Some(mut newest) = newest else { return Ok(None) };
        records.retain(|record| record.head.file_id == newest.file_id);
        let commit = match commit {
            Some(commit) => Some(commit.clone()),
            None => {
                let slots = slots(lower, attr.ino).await?;
                slots.iter().enumerate().find_map(|(number, slot)| match Commit::decode(slot) {
                    SlotState::Good(commit) => Some(commit).filter(|commit| {
                        commit.slot_offset() == number as u64 * SLOT_BYTES && is_newest(commit, &newest, attr)
                    }),
                    _ => None,
                })
            }
        };
        // Heads have the size at the time of their record, and a later change of it alone writes none.
        if let Some(commit) = &commit {
            newest.size = commit.size;
            newest.generation = newest.generation.max(commit.generation);
        }
        Ok(Some(Remains { records, commit, newest }))
    }

    /// Reads every entry that is left.
    async fn names(&self, lower: &Fs, ino: Ino) -> FsResult<Names> {
        let mut names = Names::default();
        for slot in slots(lower, ino).await? {
            if let Some(slot) = Slot::decode(&slot) {
                names.add(&entries_from_bytes(&[&slot.tail[..], &slot.root[..]].concat()), Named::InSlot);
            }
        }
        let mut nodes: Vec<&FoundRecord> =
            self.records.iter().filter(|record| record.head.kind == kinds::NODE).collect();
        // Those that a slot refers to hand that down. Of a node, this is the level.
        nodes.sort_by_key(|node| std::cmp::Reverse(node.head.codec));
        for node in nodes {
            if let Some(record) = intact(lower, ino, node.entry).await? {
                let place = names.place_of(node.entry).max(Named::InNode);
                names.add(&entries_from_bytes(&record.body), place);
            }
        }
        Ok(names)
    }
}

/// Whether `commit` tells more of the file than its records do: there is none of a later generation.
fn is_newest(commit: &Commit, newest: &Head, attr: &Attr) -> bool {
    // A provisional one does not count if a record of it is torn, and a file that was cut off has lost some.
    let is_complete = !commit.is_provisional && commit.end <= attr.size;
    is_complete && commit.file_id == newest.file_id && commit.generation >= newest.generation
}

impl ChunkedLayer {
    /// Builds a new index for a file, which has `commit` if its slots are good. Returns the parts of the file that a
    /// damaged record may have held, as text, or `None` when a new index is not possible.
    pub(super) async fn rebuild(
        &self,
        lower: &Fs,
        attr: &Attr,
        commit: Option<&Commit>,
    ) -> FsResult<Option<Vec<String>>> {
        let Some(remains) = Remains::find(lower, attr, commit).await? else { return Ok(None) };
        let newest = remains.newest;
        let (mut chunks, unknown) = self.known(lower, attr, remains.commit.as_ref()).await?;
        let (tail, lost) = remains.add_records(lower, attr.ino, &mut chunks, &unknown).await?;
        let mut index = Index::default();
        let mut used: Vec<Extent> = Vec::new();
        for (chunk, entry) in &chunks {
            match index.set(*chunk, *entry) {
                Step::Done(_) => used.push((*entry).into()),
                Step::Load(_) => unreachable!("all of a new index is in memory"),
            }
        }
        used.extend(tail.iter().map(|tail| Extent::from(tail.entry)));
        let live_bytes = used.iter().map(|extent| extent.bytes).sum();
        // Overlapping records: it is unknown which one is right.
        if Space::around(used).is_err() {
            return Ok(None);
        }
        let file = File {
            form: Form::Log,
            chunk_shift: newest.chunk_shift,
            generation: newest.generation,
            durable_generation: newest.generation,
            size: newest.size,
            index,
            tail,
            // Behind everything: existing records are kept until both slots are good.
            space: Space::full(attr.size.max(RECORDS_START).next_multiple_of(RECORD_ALIGN)),
            live_bytes,
            mark: Mark::Clean,
            ..File::empty(newest.chunk_shift, newest.file_id)
        };
        let node = Rc::new(Node::regular(attr.ino, 0, file));
        let Some(file) = node.open(lower) else { return Ok(None) };
        for _slot in 0..2 {
            file.borrow_mut().changed = true;
            self.settle_file(file).await?;
        }
        Ok(Some(lost))
    }

    /// The records of chunks that `commit` leads to, and the chunks of which nothing is known.
    async fn known(
        &self,
        lower: &Fs,
        attr: &Attr,
        commit: Option<&Commit>,
    ) -> FsResult<(BTreeMap<u64, Entry>, Vec<Range<u64>>)> {
        let nothing = (BTreeMap::new(), std::iter::once(0..u64::MAX).collect());
        let Some(commit) = commit else { return Ok(nothing) };
        let node = Rc::new(Node::regular(attr.ino, 0, File::unread(0, commit.chunk_shift)));
        let Some(file) = node.open(lower) else { return Ok(nothing) };
        file.borrow_mut().load(commit, None, attr.size);
        let listed = self.list(file).await?;
        Ok((listed.chunks.into_iter().collect(), listed.unknown.into_iter().map(|(chunks, _)| chunks).collect()))
    }
}

impl Remains {
    /// Completes `chunks` with records of those that are `unknown`. Returns the tail, and what may be lost.
    async fn add_records(
        &self,
        lower: &Fs,
        ino: Ino,
        chunks: &mut BTreeMap<u64, Entry>,
        unknown: &[Range<u64>],
    ) -> FsResult<(Option<Tail>, Vec<String>)> {
        let Some(last_chunk) = self.newest.size.checked_sub(1).map(|last| last >> self.newest.chunk_shift) else {
            return Ok((None, Vec::new()));
        };
        let names = self.names(lower, ino).await?;
        let tail_of_commit = self.commit.as_ref().map(|commit| commit.tail);
        let is_of_commit = |record: &FoundRecord| tail_of_commit == Some(record.entry);
        let mut records: Vec<&FoundRecord> = self
            .records
            .iter()
            .filter(|FoundRecord { head, .. }| head.chunk_shift == self.newest.chunk_shift && head.number <= last_chunk)
            .filter(|FoundRecord { head, .. }| match head.kind {
                kinds::CHUNK => {
                    let after = unknown.partition_point(|chunks| chunks.start <= head.number);
                    after > 0 && unknown[after - 1].contains(&head.number)
                }
                kinds::TAIL => head.number == last_chunk && tail_of_commit != Some(Entry::HOLE),
                _ => false,
            })
            .collect();
        records.sort_by_key(|record| {
            let FoundRecord { head, entry } = record;
            std::cmp::Reverse((is_of_commit(record), head.generation, names.place_of(*entry), entry.offset))
        });
        let mut tail: Option<&FoundRecord> = None;
        // Of each chunk the newest record that counts no more because it is damaged, and of the tail.
        let mut damaged: BTreeMap<(u64, u8), &FoundRecord> = BTreeMap::new();
        for record in records {
            let is_chunk = record.head.kind == kinds::CHUNK;
            let is_older = if is_chunk { chunks.contains_key(&record.head.number) } else { tail.is_some() };
            if is_older {
                continue;
            }
            if intact(lower, ino, record.entry).await?.is_none() {
                // The check has reported the tail of the commit.
                if !is_of_commit(record) {
                    damaged.entry((record.head.number, record.head.kind)).or_insert(record);
                }
                continue;
            }
            match is_chunk {
                true => drop(chunks.insert(record.head.number, record.entry)),
                false => tail = Some(record),
            }
        }
        let base = chunks.get(&last_chunk).and_then(|entry| self.records.iter().find(|base| base.entry == *entry));
        let fits = |tail: &&FoundRecord| {
            let is_later = |base: &FoundRecord| {
                let is_named = names.place_of(tail.entry) > Named::Nowhere;
                base.head.generation < tail.head.generation || base.head.generation == tail.head.generation && is_named
            };
            let continues = |base: &FoundRecord| base.head.raw_bytes == tail.head.raw_bytes && is_later(base);
            is_of_commit(tail) || base.is_some_and(continues)
        };
        let tail = tail.filter(fits);
        let of_tail = tail.map(|tail| tail.entry);
        let mut ends: BTreeMap<u64, u64> =
            chunks.values().copied().chain(of_tail).map(|entry| (entry.offset, entry.end())).collect();
        let mut lost = Vec::new();
        for record in damaged.into_values() {
            let has_older = match record.head.kind {
                kinds::CHUNK => chunks.contains_key(&record.head.number),
                _ => tail.is_some(),
            };
            lost.push(self.lost_with(record, has_older));
            // Reading what is lost remains an error. What a later record has overwritten in part cannot be kept beside it.
            let before = ends.range(..record.entry.end()).next_back();
            if !has_older && before.is_none_or(|(_, end)| *end <= record.entry.offset) {
                ends.insert(record.entry.offset, record.entry.end());
                chunks.entry(record.head.number).or_insert(record.entry);
            }
        }
        lost.extend(self.lost_without_heads(lower, ino, chunks, unknown, tail.map(|tail| tail.head.number)).await?);
        Ok((
            tail.map(|FoundRecord { head, entry }| Tail { entry: *entry, chunk: head.number, start: head.raw_bytes }),
            lost,
        ))
    }

    /// What the file may have lost with records whose heads are gone: chunks that are `unknown` and not among those that were found, if
    /// there is data in the lower file that belongs to no record. They may as well be holes, and read as zeroes.
    async fn lost_without_heads(
        &self,
        lower: &Fs,
        ino: Ino,
        chunks: &BTreeMap<u64, Entry>,
        unknown: &[Range<u64>],
        chunk_of_tail: Option<u64>,
    ) -> FsResult<Vec<String>> {
        let end = self.newest.size.div_ceil(1 << self.newest.chunk_shift);
        let mut missing: Vec<Range<u64>> = Vec::new();
        for range in unknown {
            let mut at = range.start;
            let range_end = range.end.min(end);
            let found = chunks.range(range.start..range_end.max(range.start)).map(|(chunk, _)| *chunk);
            let found: BTreeSet<u64> = found.chain(chunk_of_tail.filter(|chunk| range.contains(chunk))).collect();
            for chunk in found.into_iter().chain([range_end]) {
                if at < chunk {
                    missing.push(at..chunk);
                }
                at = at.max(chunk.saturating_add(1));
            }
        }
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let Some(at) = self.first_of_no_record(lower, ino).await? else { return Ok(Vec::new()) };
        let start_of = |chunk: u64| chunk.saturating_mul(1 << self.newest.chunk_shift);
        let lost = missing.into_iter().map(|chunks| {
            let (start, end) = (start_of(chunks.start), start_of(chunks.end).min(self.newest.size));
            format!(
                "bytes {start} to {end} may be lost: they read as zeroes, as no record of them is left, but what is at byte {at} of the \
                 lower file belongs to no record"
            )
        });
        Ok(lost.collect())
    }

    /// The offset of the first data in the lower file that belongs to no record, in units of `RECORD_ALIGN`.
    async fn first_of_no_record(&self, lower: &Fs, ino: Ino) -> FsResult<Option<u64>> {
        let mut records = self.records.iter().map(|record| record.entry).peekable();
        let mut at = RECORDS_START;
        loop {
            while records.next_if(|record| record.end() <= at).is_some() {}
            // Up to the next record.
            let end = match records.peek() {
                Some(record) if record.offset <= at => {
                    at = record.end();
                    continue;
                }
                Some(record) => record.offset,
                None => u64::MAX,
            };
            match lower.lseek(ino, None, at, SeekTo::Data).await {
                Ok(data) => at = at.max(data / RECORD_ALIGN * RECORD_ALIGN),
                Err(FsError::NoSuchOffset) => return Ok(None),
                Err(FsError::Unsupported) => {}
                Err(error) => return Err(error),
            }
            if at >= end {
                continue;
            }
            let piece =
                read_lower(lower, ino, None, at, PIECE_BYTES.min((end - at).min(u64::from(u32::MAX)) as u32)).await?;
            if piece.is_empty() {
                return Ok(None);
            }
            if let Some(unit) = piece.chunks(RECORD_ALIGN as usize).position(|unit| !is_zero(unit)) {
                return Ok(Some(at + unit as u64 * RECORD_ALIGN));
            }
            at += (piece.len() as u64).next_multiple_of(RECORD_ALIGN);
        }
    }

    /// What the file may have lost with a damaged record, in whose place there is an older one or nothing.
    fn lost_with(&self, FoundRecord { head, entry }: &FoundRecord, has_older: bool) -> String {
        let chunk_start = head.number << head.chunk_shift;
        let start = if head.kind == kinds::TAIL { chunk_start + u64::from(head.raw_bytes) } else { chunk_start };
        let end = (chunk_start + (1 << head.chunk_shift)).min(self.newest.size);
        let instead = if has_older { "an older record has taken its place" } else { "there is no older one" };
        format!(
            "bytes {start} to {end} may be lost: their newest record, at byte {} of the lower file, is damaged, and {instead}",
            entry.offset
        )
    }
}

/// The record of `entry`, if it is intact.
///
/// # Errors
/// When it cannot be read: it may be intact.
async fn intact(lower: &Fs, ino: Ino, entry: Entry) -> FsResult<Option<FileRecord>> {
    match read_record(lower, ino, None, "record", entry).await {
        Ok(record) => Ok(Some(record)),
        Err(FsError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Both slots, whatever is in them.
async fn slots(lower: &Fs, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
    let start = read_lower(lower, ino, None, 0, RECORDS_START as u32).await?;
    Ok(start.chunks(SLOT_BYTES as usize).map(<[u8]>::to_vec).collect())
}

/// The heads of records in a lower file, up to `max` of them, with their offsets. Walks from record to record, and where
/// there is none, from one possible offset to the next. Holes are not read: any user may make one of 8 EiB.
pub(super) async fn heads(lower: &Fs, ino: Ino, max: usize) -> FsResult<Vec<(u64, Head)>> {
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
