//! One file in memory: what is known of its lower file, what has been changed, and what the next commit writes.
//!
//! Everything here is synchronous: each function takes the state from one moment to the next, and none of them is seen
//! half done. Reading and writing are in the files that call these.
//!
//! Invariants
//!   L1  What a good slot refers to is never written over, nor is anything that the slot before it refers to while the
//!       newer one may not be durable.
//!   L2  A chunk in `dirty` is newer than its record, and is all there is of that chunk.
//!   L3  From before the first write of our own on, `times` has those that the file is to have; a commit brings them below. They
//!       stay as long as the node does: attributes that were read below while we wrote may be shown later.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::format::{Commit, Entry, RECORD_ALIGN, RECORDS_START, Record, kinds};
use super::index::Index;
use super::space::{Extent, Space};
use crate::fs::{Attr, FsError, FsResult, Handle};
use crate::rt::{Event, Gate};
use crate::units::{Ino, SECTOR_BYTES, WallTime};

/// What the layer knows about an inode in use.
pub struct Node {
    pub(super) ino: Ino,
    /// Tells it from every other node that this layer has ever had.
    pub(super) serial: u64,
    /// `None` for what is not a regular file.
    pub(super) file: Option<RefCell<File>>,
    /// Held by whoever moves records: staging, cutting, compacting.
    pub(super) shape: Gate,
    pub(super) committing: Turns,
    /// Held from where attributes are read to where they are written back, and from a change of attributes below to where
    /// it is noted: so neither gets lost in the other. Nothing else is awaited with it but the file system below.
    pub(super) attributes: Gate,
    /// A lower handle that can write, for as long as there is something to write.
    pub(super) writer: Cell<Option<Writer>>,
    /// It is known that the file has no capabilities that a change would have to take away.
    pub(super) is_plain_program: Cell<bool>,
}

/// A lower handle that writes may use after its user has released it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Writer {
    pub(super) handle: Handle,
    /// The user has released it: it is ours to release.
    pub(super) is_ours: bool,
}

/// One commit of a file at a time. As a [`Gate`], but a turn can be kept with the node that it is about.
#[derive(Default)]
pub(super) struct Turns {
    taken: Cell<bool>,
    ended: Event,
}

/// Holds [`Turns`] of a node.
pub(super) struct Turn(std::rc::Rc<Node>);

impl Turn {
    pub(super) async fn of(node: &std::rc::Rc<Node>) -> Turn {
        while node.committing.taken.replace(true) {
            node.committing.ended.wait().await;
        }
        Turn(node.clone())
    }

    pub(super) fn node(&self) -> &std::rc::Rc<Node> {
        &self.0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A commit that was given up half-way is part of the next one.
        if let Some(file) = self.0.regular() {
            file.borrow_mut().unprepare();
        }
        self.0.committing.taken.set(false);
        self.0.committing.ended.notify();
    }
}

/// What a lower file turned out to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Nobody has looked yet; the size is known all the same.
    Unread,
    /// Not written by this layer, and shown as it is.
    Plain,
    /// One of ours.
    Log,
    /// One of ours that cannot be read, or something that is refused.
    Broken(FsError),
}

/// The record of the tail, and where its bytes belong.
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
    /// Bytes that the record of the chunk stands for; `None` when there is none.
    pub(super) base: Option<u32>,
    /// The first byte that has changed since that record.
    pub(super) changed_from: u32,
    /// `File::version` when it changed last.
    pub(super) version: u64,
}

/// Times that the file has above while those below are of other moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    pub(super) mtime: WallTime,
    pub(super) ctime: WallTime,
}

/// What the attribute with the size says below.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// Nothing that would be believed, and that is durable.
    None,
    /// Nothing that would be believed; what was there before may come back with a power cut.
    Unclean,
    /// What is true, or was when the file was last closed.
    Clean,
}

/// What a file was when its changes were staged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) size: u64,
    pub(super) times: Option<Times>,
    pub(super) version: u64,
}

/// A commit that has been put together and whose slot is not written yet.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub(super) commit: Commit,
    /// What only the commit before refers to.
    pub(super) dropped: Vec<Extent>,
    pub(super) times: Option<Times>,
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) form: Form,
    pub(super) chunk_shift: u8,
    pub(super) file_id: u64,
    /// Of the last commit whose slot is written; 0 before the first.
    pub(super) generation: u64,
    /// Of the last commit that is known to be durable.
    pub(super) durable_generation: u64,
    /// End of the lower file in the last commit whose slot is written.
    pub(super) committed_end: u64,
    pub(super) size: u64,
    pub(super) index: Index,
    pub(super) tail: Option<Tail>,
    pub(super) dirty: BTreeMap<u64, Dirty>,
    /// There is something that the last commit does not have.
    pub(super) changed: bool,
    /// Counts changes.
    pub(super) version: u64,
    pub(super) space: Space,
    /// `space` is only what lies behind the lower file's end. Somebody may have written the last commit just before this
    /// layer was mounted, without making it durable, and then L1 protects the one before as well, of which nothing is
    /// known; the first sync ends that.
    pub(super) is_space_partial: bool,
    /// The lower file has been synced since it was loaded, or its mark says that it was.
    pub(super) is_synced: bool,
    pub(super) live_bytes: u64,
    /// The last commit is provisional: it was written without a sync before it, and the next one confirms it.
    pub(super) is_provisional: bool,
    /// The file was cut to nothing and has not been closed since: what is written to it is to take the place of what it was.
    pub(super) is_rewritten: bool,
    /// Where records are to be placed, and where: behind this end of the lower file.
    pub(super) behind: Option<u64>,
    /// Extents that the next commit no longer refers to.
    pub(super) dropped: Vec<Extent>,
    /// Extents that the last commit does not refer to, and the one before does.
    pub(super) waiting: Vec<Extent>,
    pub(super) prepared: Option<Prepared>,
    pub(super) times: Option<Times>,
    pub(super) mark: Mark,
    /// The commit that a clean mark was made of when the file was opened. It is durable.
    pub(super) marked_generation: Option<u64>,
    /// Whether the layer has changed the lower file since it was opened.
    pub(super) is_touched: bool,
    /// An error of unknown effect.
    pub(super) stopped: Option<FsError>,
}

impl Node {
    pub(super) fn new(ino: Ino, serial: u64, file: Option<File>) -> Node {
        Node {
            ino,
            serial,
            file: file.map(RefCell::new),
            shape: Gate::new(),
            committing: Turns::default(),
            attributes: Gate::new(),
            writer: Cell::new(None),
            is_plain_program: Cell::new(false),
        }
    }

    /// The file, for operations on data.
    pub(super) fn regular(&self) -> Option<&RefCell<File>> {
        self.file.as_ref()
    }

    /// True when something is only in memory.
    pub(super) fn has_changes(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.borrow().has_changes())
    }

    /// The file is closed: whether it was cut to nothing before, and has something that is only in memory.
    pub(super) fn end_rewriting(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let mut file = file.borrow_mut();
            std::mem::take(&mut file.is_rewritten) && file.has_changes()
        })
    }

    /// True when there is something to write below, now or to confirm it later.
    pub(super) fn wants_writer(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let file = file.borrow();
            file.has_changes() || file.is_provisional
        })
    }

    /// True when there is still something to write or to wait for.
    pub(super) fn is_unsettled(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let file = file.borrow();
            file.stopped.is_none() && (file.has_changes() || file.durable_generation < file.generation)
        })
    }
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
            is_rewritten: false,
            behind: None,
            dropped: Vec::new(),
            waiting: Vec::new(),
            prepared: None,
            times: None,
            mark: Mark::None,
            marked_generation: None,
            is_touched: false,
            stopped: None,
        }
    }

    /// A file without content, whose lower file is empty or has never been committed.
    pub(super) fn empty(chunk_shift: u8, file_id: u64) -> File {
        // There is nothing below that a sync would have to protect.
        File { form: Form::Log, file_id, is_synced: true, ..File::unread(0, chunk_shift) }
    }

    /// Takes over what the lower file, of `lower_size` bytes, says.
    pub(super) fn load(&mut self, commit: &Commit, tail: Option<Tail>, lower_size: u64) {
        self.form = Form::Log;
        self.chunk_shift = commit.chunk_shift;
        self.file_id = commit.file_id;
        self.generation = commit.generation;
        self.is_synced |= self.marked_generation == Some(commit.generation);
        // Nothing of ours is under way, and what has been read can be read again: L1 is about what we write.
        self.durable_generation = commit.generation;
        if commit.is_provisional {
            // It is to be confirmed, and until then the commit before it is the one that is durable.
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

    /// Something has changed at `now`.
    pub(super) fn touch(&mut self, now: WallTime) {
        self.version += 1;
        self.changed = true;
        self.times = Some(Times { mtime: now, ctime: now });
    }

    /// Attributes below as they are seen above.
    pub(super) fn show(&self, lower: Attr) -> Attr {
        if matches!(self.form, Form::Plain | Form::Broken(_)) {
            return lower;
        }
        let waiting: u64 = self.dirty.values().map(|dirty| dirty.bytes.len() as u64).sum();
        let times = self.times.unwrap_or(Times { mtime: lower.mtime, ctime: lower.ctime });
        Attr {
            size: self.size,
            // What waits in memory counts: programs take a file without storage for one that is all hole.
            sectors: lower.sectors + waiting.div_ceil(SECTOR_BYTES),
            mtime: times.mtime,
            // Other changes, of names for one, are made below at once.
            ctime: times.ctime.max(lower.ctime),
            ..lower
        }
    }

    /// The generation of records that are written now.
    pub(super) fn next_generation(&self) -> u64 {
        // Birth is a commit of its own; see `stage`.
        self.generation.max(1) + 1 + u64::from(self.prepared.is_some())
    }

    /// A record of this file with `body`.
    pub(super) fn record(&self, kind: u8, codec: u8, number: u64, raw_bytes: u32, body: Vec<u8>) -> Record {
        Record {
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

    /// A record is no longer part of what the next commit has.
    pub(super) fn drop_record(&mut self, entry: Entry) {
        if !entry.is_hole() {
            match self.live_bytes.checked_sub(entry.bytes.into()) {
                Some(live_bytes) => self.live_bytes = live_bytes,
                // A slot can say anything. Nothing more is written to such a file.
                None => self.stop(&"its slot says that fewer bytes are in use than it refers to"),
            }
            self.dropped.push(entry.into());
        }
    }

    /// The file contradicts itself: nothing more is written to it.
    fn stop(&mut self, problem: &dyn std::fmt::Display) {
        let error = FsError::corrupt("compressed file", format_args!("file {:#x}", self.file_id), problem.to_string());
        self.stopped.get_or_insert(error);
    }

    /// A record has become part of it.
    pub(super) fn add_record(&mut self, entry: Entry) {
        self.live_bytes += u64::from(entry.bytes);
    }

    /// The tail is no longer part of the file.
    pub(super) fn drop_tail(&mut self) {
        if let Some(tail) = self.tail.take() {
            self.drop_record(tail.entry);
        }
    }

    /// The bytes of a changed chunk, to change them further from `from` on, as of the next version.
    pub(super) fn change_chunk(&mut self, chunk: u64, from: u32) -> Option<&mut Vec<u8>> {
        let version = self.version;
        let dirty = self.dirty.get_mut(&chunk)?;
        dirty.changed_from = dirty.changed_from.min(from);
        dirty.version = version;
        Some(Arc::make_mut(&mut dirty.bytes))
    }

    /// End of the lower file in a commit made now: behind it is nothing but what that commit drops.
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

    /// Whether a commit that is made without a sync leaves a commit to go back to: the last one is durable, or is such a one
    /// itself, which this one then replaces.
    pub(super) fn may_be_provisional(&self) -> bool {
        self.is_synced && (self.is_provisional || self.durable_generation == self.generation)
    }

    /// Recounts everything in memory: what is in use, what is free and what waits to be, and their sums. `entries` are those
    /// of all chunks, whose nodes are all in memory.
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
            // Then all that is known is what is in use, and that it is not handed out.
            true => match Space::around(used) {
                Ok(space) if space.end() <= self.space.end() => Ok(()),
                Ok(space) => Err(format!("records up to {}, and space from {} on", space.end(), self.space.end())),
                Err((one, two)) => Err(format!("{one:?} and {two:?} overlap")),
            },
            false => self.space.check(used),
        }
    }

    /// Puts a commit together from what was staged at `moment`. One that is provisional takes the slot of the last if that is
    /// provisional, too: the other slot has what to go back to (L1).
    pub(super) fn prepare(&mut self, moment: &Moment, is_provisional: bool) {
        assert!(self.prepared.is_none(), "one commit at a time");
        let &Moment { size, times, version } = moment;
        if version == self.version {
            self.changed = false; // What changed later is for the next commit.
        }
        let commit = Commit {
            chunk_shift: self.chunk_shift,
            depth: self.index.depth(),
            file_id: self.file_id,
            generation: if is_provisional && self.is_provisional { self.generation } else { self.next_generation() },
            size,
            end: self.live_end(),
            live_bytes: self.live_bytes,
            tail: self.tail.map_or(Entry::HOLE, |tail| tail.entry),
            is_provisional,
            root: self.index.root().to_vec(),
        };
        let dropped = std::mem::take(&mut self.dropped);
        self.prepared = Some(Prepared { commit, dropped, times });
    }

    /// The commit could not be written, without any effect: it is part of the next one.
    pub(super) fn unprepare(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.dropped.extend(prepared.dropped);
            self.changed = true;
        }
    }

    /// The slot of the prepared commit has been written. Returns the times that the file is to have below.
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
    pub(super) fn settle(&mut self, generation: u64) {
        if generation != self.generation || self.durable_generation == generation {
            // A later one is under way, whose own extents wait with those of this one.
            return;
        }
        debug_assert!(self.durable_generation < generation, "L1: what is durable stays durable");
        self.durable_generation = generation;
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().for_each(|extent| self.space.free(extent));
    }

    /// Whether `record` is what the index says is in chunk or node `number`.
    pub(super) fn check_record(&self, record: &Record, kind: u8, number: u64) -> Result<(), String> {
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
