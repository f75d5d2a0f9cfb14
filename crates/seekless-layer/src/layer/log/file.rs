//! One file in memory: its lower file as far as it is known, its changes, and the content of the next commit.
//!
//! Everything here is synchronous: each function takes the state from one consistent moment to the next. Reading and
//! writing are in the files that call these functions.
//!
//! Invariants
//!   L1  Space that a good slot refers to is never overwritten, nor is space that the previous slot refers to while the
//!       newer one may not be durable.
//!   L2  A chunk in `dirty` is newer than its record, and is complete.
//!   L3  From before the layer's first write, `times` are those that the file must have; a commit restores them below.
//!       They stay as long as the node does: attributes that were read below during the write may be shown later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::evidence::Evidence;
use super::format::{Commit, Entry, FileRecord, RECORD_ALIGN, RECORDS_START, UNCOMMITTED_GENERATION_MAX, kinds};
use super::index::Index;
use super::space::{Extent, Space};
use crate::fs::{Attr, FsError, FsResult, Handle};
use crate::units::{SECTOR_BYTES, WallTime};

/// What a lower file was found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Not read yet; the size is known nevertheless.
    Unread,
    /// Not written by this layer, and shown as it is.
    Plain(Evidence),
    /// One of ours.
    Log,
    /// One of ours that cannot be read, or a foreign one that is refused.
    Broken(FsError),
}

/// The record of the tail, and the position of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tail {
    pub(super) entry: Entry,
    pub(super) chunk: u64,
    /// First byte within the chunk.
    pub(super) start: u32,
}

/// A chunk that has changed.
#[derive(Clone, Debug)]
pub(super) struct Dirty {
    /// Its bytes; those behind them, up to the end of the chunk, are zero.
    pub(super) bytes: Arc<Vec<u8>>,
    /// Length of the bytes in the record of the chunk; `None` when there is none.
    pub(super) base: Option<u32>,
    /// The first byte that has changed since that record.
    pub(super) changed_from: u32,
    /// `File::version` when it changed last.
    pub(super) version: u64,
}

/// The file's times as shown above, while those below are of other moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    pub(super) mtime: WallTime,
    pub(super) ctime: WallTime,
}

/// State of the attribute with the size below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// None that would be trusted, durably.
    None,
    /// None that would be trusted; the earlier one may come back after a power cut.
    Unclean,
    /// A true one, or one that was true when the file was last closed.
    Clean,
}

/// State of a file when its changes were staged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) size: u64,
    pub(super) times: Option<Times>,
    pub(super) version: u64,
}

/// A prepared commit whose slot is not written yet.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) commit: Commit,
    /// Extents that only the previous commit refers to.
    pub(super) dropped: Vec<Extent>,
    pub(super) times: Option<Times>,
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) form: Form,
    pub(super) chunk_shift: u8,
    pub(super) file_id: u64,
    /// Generation of the last commit whose slot is written; 0 before the first.
    pub(super) generation: u64,
    /// Generation of the last commit that is known to be durable.
    pub(super) durable_generation: u64,
    /// End of the lower file in the last commit whose slot is written.
    pub(super) committed_end: u64,
    pub(super) size: u64,
    pub(super) index: Index,
    pub(super) tail: Option<Tail>,
    pub(super) dirty: BTreeMap<u64, Dirty>,
    /// The file has changed since the last commit.
    pub(super) changed: bool,
    /// Counts changes.
    pub(super) version: u64,
    pub(super) space: Space,
    /// `space` contains only what is behind the lower file's end. Another layer may have written the last commit just
    /// before this one was mounted, without making it durable. Then L1 protects the previous commit as well, of which
    /// nothing is known; the first sync ends that.
    pub(super) is_space_partial: bool,
    /// The lower file has been synced since it was loaded and since a record in it was moved, or its mark shows that it was.
    pub(super) is_synced: bool,
    pub(super) live_bytes: u64,
    /// The last commit is provisional: it was written without a sync before it, and a write-back confirms it. Once it is
    /// durable a provisional one can follow it.
    pub(super) is_provisional: bool,
    /// The file was truncated to nothing: the new content replaces the old as a whole. These handles have truncated or
    /// written it since; the close of the last of them ends that.
    pub(super) rewriters: Option<BTreeSet<Handle>>,
    /// New records are placed behind this end of the lower file, if it is set.
    pub(super) behind: Option<u64>,
    /// Extents that the next commit no longer refers to.
    pub(super) dropped: Vec<Extent>,
    /// Extents that the last commit does not refer to, but the previous one does.
    pub(super) waiting: Vec<Extent>,
    pub(super) prepared: Option<Prepared>,
    pub(super) times: Option<Times>,
    pub(super) mark: Mark,
    /// Generation in the clean mark when the file was opened. That commit is durable.
    pub(super) marked_generation: Option<u64>,
    /// Whether the layer has changed the lower file since it was opened.
    pub(super) is_touched: bool,
    /// The lower file has what a power cut left of a first commit.
    pub(super) has_remains: bool,
    /// The file system below does not count links: the file had a name, and a count of 0.
    pub(super) has_no_link_count: bool,
    /// An error of unknown effect.
    pub(super) stopped: Option<FsError>,
}

impl File {
    /// A file of which only the size is known.
    pub(super) fn unread(size: u64, chunk_shift: u8) -> File {
        File {
            form: Form::Unread,
            chunk_shift,
            file_id: 0,
            generation: 0,
            durable_generation: 0,
            committed_end: RECORDS_START,
            size,
            index: Index::default(),
            tail: None,
            dirty: BTreeMap::new(),
            changed: false,
            version: 0,
            space: Space::empty(),
            is_space_partial: false,
            is_synced: false,
            live_bytes: 0,
            is_provisional: false,
            rewriters: None,
            behind: None,
            dropped: Vec::new(),
            waiting: Vec::new(),
            prepared: None,
            times: None,
            mark: Mark::None,
            marked_generation: None,
            is_touched: false,
            has_remains: false,
            has_no_link_count: false,
            stopped: None,
        }
    }

    /// A file without content, whose lower file is empty or has never been committed.
    pub(super) fn empty(chunk_shift: u8, file_id: u64) -> File {
        // Nothing below needs a sync for its protection.
        File { form: Form::Log, file_id, is_synced: true, ..File::unread(0, chunk_shift) }
    }

    /// Takes over the state of the lower file, of `lower_size` bytes.
    pub(super) fn load(&mut self, commit: &Commit, tail: Option<Tail>, lower_size: u64) {
        self.form = Form::Log;
        self.chunk_shift = commit.chunk_shift;
        self.file_id = commit.file_id;
        self.generation = commit.generation;
        self.is_synced |= self.marked_generation == Some(commit.generation);
        // No commit of this layer is in progress, and what has been read can be read again: L1 concerns the layer's own
        // writes.
        self.durable_generation = commit.generation;
        if commit.is_provisional {
            // It may not be durable; the previous one is.
            self.is_provisional = true;
            self.durable_generation -= 1;
        }
        self.committed_end = commit.end;
        self.size = commit.size;
        self.index = Index::new(commit.depth, commit.root.clone());
        self.tail = tail;
        self.live_bytes = commit.live_bytes;
        let lower_end = lower_size.max(commit.end).next_multiple_of(RECORD_ALIGN);
        self.space = Space::full(lower_end);
        self.is_space_partial = lower_end - RECORDS_START != commit.live_bytes;
    }

    /// Changed bytes in memory.
    pub(super) fn dirty_bytes(&self) -> u64 {
        self.dirty.values().map(|dirty| dirty.bytes.len() as u64).sum()
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    pub(super) fn has_changes(&self) -> bool {
        self.changed || !self.dirty.is_empty() || self.prepared.is_some()
    }

    /// Fails when the file has been stopped or cannot be read.
    pub(super) fn check(&self) -> FsResult<()> {
        match (&self.form, &self.stopped) {
            (Form::Broken(error), _) => Err(error.clone()),
            (_, Some(error)) => Err(FsError::Stopped(error.to_string())),
            _ => Ok(()),
        }
    }

    /// Records a change at `now`.
    pub(super) fn touch(&mut self, now: WallTime) {
        self.version += 1;
        self.changed = true;
        self.times = Some(Times { mtime: now, ctime: now });
    }

    /// Attributes as shown above, from those below.
    pub(super) fn show(&self, lower: Attr) -> Attr {
        if matches!(self.form, Form::Plain(_) | Form::Broken(_)) {
            return lower;
        }
        let times = self.times.unwrap_or(Times { mtime: lower.mtime, ctime: lower.ctime });
        Attr {
            size: self.size,
            // Waiting data counts: programs take a file without storage to be one large hole.
            sectors: lower.sectors + self.dirty_bytes().div_ceil(SECTOR_BYTES),
            sectors_will_change: self.dirty_bytes() > 0 || lower.sectors_will_change,
            mtime: times.mtime,
            // Other changes, such as renames, are made below at once.
            ctime: times.ctime.max(lower.ctime),
            ..lower
        }
    }

    /// The generation of records that are written now.
    pub(super) fn next_generation(&self) -> u64 {
        // The initial commit is separate; see `stage`.
        self.generation.max(1) + 1 + u64::from(self.prepared.is_some())
    }

    /// A record of this file with `body`.
    pub(super) fn record(&self, kind: u8, codec: u8, number: u64, raw_bytes: u32, body: Vec<u8>) -> FileRecord {
        debug_assert!(self.form == Form::Log, "records are written to files of this layer only");
        debug_assert!(
            self.durable_generation > 0 || self.next_generation() <= UNCOMMITTED_GENERATION_MAX,
            "what a cut leaves of a first commit is recognised by its generations"
        );
        FileRecord {
            kind,
            codec,
            chunk_shift: self.chunk_shift,
            raw_bytes,
            number,
            file_id: self.file_id,
            generation: self.next_generation(),
            size: self.size,
            body,
        }
    }

    /// Removes a record from the next commit.
    pub(super) fn drop_record(&mut self, entry: Entry) {
        if !entry.is_hole() {
            match self.live_bytes.checked_sub(entry.bytes.into()) {
                Some(live_bytes) => self.live_bytes = live_bytes,
                // A slot can contain any number. Nothing more is written to such a file.
                None => self.stop(&"its slot says that fewer bytes are in use than it refers to"),
            }
            self.dropped.push(entry.into());
        }
    }

    /// The state contradicts itself: nothing more is written to the file.
    fn stop(&mut self, problem: &dyn std::fmt::Display) {
        let error = FsError::corrupt("compressed file", format_args!("file {:#x}", self.file_id), problem.to_string());
        self.stopped.get_or_insert(error);
    }

    /// Adds a record to the next commit.
    pub(super) fn add_record(&mut self, entry: Entry) {
        self.live_bytes += u64::from(entry.bytes);
    }

    /// Removes the tail from the file.
    pub(super) fn drop_tail(&mut self) {
        if let Some(tail) = self.tail.take() {
            self.drop_record(tail.entry);
        }
    }

    /// The bytes of a changed chunk, to be changed further from `from` on; their version is the next one.
    pub(super) fn change_chunk(&mut self, chunk: u64, from: u32) -> Option<&mut Vec<u8>> {
        let version = self.version;
        let dirty = self.dirty.get_mut(&chunk)?;
        debug_assert!(u64::from(from) < 1 << self.chunk_shift, "L2: a change lies in its chunk");
        dirty.changed_from = dirty.changed_from.min(from);
        dirty.version = version;
        Some(Arc::make_mut(&mut dirty.bytes))
    }

    /// End of the lower file in a commit made now: behind it is only what that commit drops.
    pub(super) fn live_end(&self) -> u64 {
        if self.dropped.is_empty() && self.waiting.is_empty() {
            return self.space.end();
        }
        let mut after = self.space.clone();
        let prepared = self.prepared.iter().flat_map(|prepared| &prepared.dropped);
        for extent in self.dropped.iter().chain(&self.waiting).chain(prepared) {
            after.free(*extent);
        }
        after.end()
    }

    /// Whether a commit without a sync leaves a commit to fall back to: the last one is durable, or is provisional
    /// itself and is replaced by this one.
    pub(super) fn may_be_provisional(&self) -> bool {
        self.is_synced && (self.is_provisional || self.durable_generation == self.generation)
    }

    /// Recounts everything in memory: the space in use, free and waiting to be free, and their sums. `entries` are
    /// those of all chunks, whose nodes are all in memory.
    ///
    /// # Errors
    /// What is wrong, as text.
    #[cfg(test)]
    pub(super) fn check_books(&self, entries: &[Entry]) -> Result<(), String> {
        let nodes = self.index.node_entries().into_iter().map(|(_, _, entry)| entry);
        let live: Vec<Extent> =
            entries.iter().copied().chain(nodes).chain(self.tail.map(|tail| tail.entry)).map(Extent::from).collect();
        let live_bytes: u64 = live.iter().map(|extent| extent.bytes).sum();
        if live_bytes != self.live_bytes {
            return Err(format!("{live_bytes} bytes are in use, and {} are noted", self.live_bytes));
        }
        let prepared = self.prepared.iter().flat_map(|prepared| &prepared.dropped);
        let waiting = self.dropped.iter().chain(&self.waiting).chain(prepared).copied();
        let used: Vec<Extent> = live.into_iter().chain(waiting).collect();
        if self.durable_generation == self.generation && !self.waiting.is_empty() {
            return Err(format!("{:?} wait for a commit that is durable", self.waiting));
        }
        match self.is_space_partial {
            // Then only the space in use is known, and that it is not allocated again.
            true => match Space::around(used) {
                Ok(space) if space.end() <= self.space.end() => Ok(()),
                Ok(space) => Err(format!("records up to {}, and space from {} on", space.end(), self.space.end())),
                Err((one, two)) => Err(format!("{one:?} and {two:?} overlap")),
            },
            false => self.space.check(used),
        }
    }

    /// Prepares a commit of what was staged at `moment`. A provisional commit takes the slot of the last one if that is
    /// provisional too and not durable: the other slot has the commit to fall back to (L1).
    pub(super) fn prepare(&mut self, moment: &Moment, is_provisional: bool) {
        assert!(self.prepared.is_none(), "one commit at a time");
        let &Moment { size, times, version } = moment;
        if version == self.version {
            self.changed = false; // What changed later is for the next commit.
        }
        debug_assert!(self.prepared.is_none(), "P1: one commit is prepared at a time");
        debug_assert!(
            !is_provisional || self.may_be_provisional(),
            "P1: a provisional commit leaves a durable one to fall back to"
        );
        let commit = Commit {
            chunk_shift: self.chunk_shift,
            depth: self.index.depth(),
            file_id: self.file_id,
            generation: match is_provisional && self.durable_generation < self.generation {
                true => self.generation,
                false => self.next_generation(),
            },
            size,
            end: self.live_end(),
            live_bytes: self.live_bytes,
            tail: self.tail.map_or(Entry::HOLE, |tail| tail.entry),
            is_provisional,
            root: self.index.root().to_vec(),
        };
        debug_assert!(
            commit.generation > self.durable_generation,
            "P1: a commit does not take the place of the durable one"
        );
        debug_assert!(
            !is_provisional || commit.generation == self.durable_generation + 1,
            "P1: the other slot of a provisional commit has the durable one"
        );
        let dropped = std::mem::take(&mut self.dropped);
        self.prepared = Some(Prepared { commit, dropped, times });
    }

    /// The commit failed without any effect: it becomes part of the next one.
    pub(super) fn unprepare(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.dropped.extend(prepared.dropped);
            self.changed = true;
        }
    }

    /// The slot of the prepared commit has been written. Returns the times to restore below.
    pub(super) fn written(&mut self) -> Option<Times> {
        let prepared = self.prepared.take()?;
        debug_assert!(self.durable_generation <= self.generation, "L1: what is durable has been written");
        debug_assert!(
            prepared.commit.generation > self.generation || self.is_provisional && prepared.commit.is_provisional,
            "P1: only a provisional commit is written over, by another one"
        );
        self.generation = prepared.commit.generation;
        self.is_provisional = prepared.commit.is_provisional;
        self.is_touched = true;
        self.committed_end = prepared.commit.end;
        self.waiting.extend(prepared.dropped);
        prepared.times
    }

    /// The commit of `generation` is known to be durable.
    pub(super) fn commit_durable(&mut self, generation: u64) {
        if generation != self.generation || self.durable_generation == generation {
            // A later one is in progress, whose extents wait together with those of this one.
            return;
        }
        debug_assert!(self.durable_generation < generation, "L1: what is durable stays durable");
        self.durable_generation = generation;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|extent| self.space.free(extent));
    }

    /// Checks that `record` is the one that the index has for chunk or node `number`.
    pub(super) fn check_record(&self, record: &FileRecord, kind: u8, number: u64) -> Result<(), String> {
        let kind_name = |kind| match kind {
            kinds::CHUNK => "chunk",
            kinds::TAIL => "tail",
            kinds::NODE => "node",
            _ => "something",
        };
        if (record.kind, record.number) != (kind, number) {
            let (found, expected) = (kind_name(record.kind), kind_name(kind));
            return Err(format!("it holds {found} {} instead of {expected} {number}", record.number));
        }
        if record.file_id != self.file_id || record.chunk_shift != self.chunk_shift {
            return Err(format!("it is of file {:#x} instead of {:#x}", record.file_id, self.file_id));
        }
        Ok(())
    }
}
