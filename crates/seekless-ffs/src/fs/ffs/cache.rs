//! The buffer cache: blocks of the volume in memory, by address.
//!
//! A buffer is clean, dirty (a delayed write), or in flight to the device, or both of the last two: the version in
//! flight is a copy that shares memory until the buffer is changed.
//!
//! Invariants
//!   B1  Buffers never overlap; each covers whole fragments of one block.
//!   B2  A buffer that is dirty or in flight stays in memory.
//!   B3  No two writes that overlap are in flight at the same time.
//!   B4  Blocks of a pinned directory that are used or written while it is pinned stay in memory until it no longer is.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::{Rc, Weak};

use super::numbers::{FragNo, GroupNo, InodeNo};
use crate::device::Data;
use crate::fs::step::Changes;

/// Content of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BufferKind {
    /// The block of a cylinder group.
    Group(GroupNo),
    Inodes,
    Indirect {
        ino: InodeNo,
    },
    Directory {
        ino: InodeNo,
        lbn: u64,
    },
    File {
        ino: InodeNo,
        lbn: u64,
    },
}

impl BufferKind {
    /// The file to which the buffer belongs; 0 for the volume's own.
    pub(super) fn owner(self) -> InodeNo {
        match self {
            BufferKind::Group(_) | BufferKind::Inodes => InodeNo::NONE,
            BufferKind::Indirect { ino } | BufferKind::Directory { ino, .. } | BufferKind::File { ino, .. } => ino,
        }
    }

    pub(super) fn is_file_data(self) -> bool {
        matches!(self, BufferKind::File { .. })
    }
}

pub(super) struct Buffer {
    pub data: Data,
    pub kind: BufferKind,
    /// When it became dirty, in the order of events.
    pub dirty: Option<u64>,
    pub in_flight: bool,
    /// Written, but perhaps only to a cache that a power cut empties.
    pub volatile: bool,
    /// When its last write had begun, if that has failed; 0 if it has not.
    pub failed: u64,
    rank: Rank,
}

/// A write in flight.
#[derive(Clone, Copy)]
struct Flight {
    end: FragNo,
    begun: u64,
    /// When the buffer had become dirty, and is again if the write fails: a caller that writes everything as old as that
    /// must not miss it.
    since: u64,
}

/// Order in which clean buffers are evicted: first those that were read or written to their end, then the least
/// recently used.
type Rank = (bool, u64);

pub(super) struct Cache {
    buffers: BTreeMap<FragNo, Buffer>,
    frag_bytes: usize,
    frag: u32,
    clean: BTreeMap<Rank, FragNo>,
    dirty: BTreeMap<u64, FragNo>,
    dirty_of: BTreeMap<InodeNo, BTreeSet<FragNo>>,
    /// Writes in flight, by their start.
    in_flight: BTreeMap<FragNo, Flight>,
    /// Blocks being read, each with the number of the read that may deliver it.
    loading: BTreeMap<FragNo, u64>,
    clock: u64,
    clean_bytes: u64,
    clean_bytes_max: u64,
    pub dirty_bytes: u64,
    pub in_flight_bytes: u64,
    watches: Vec<Weak<Watch>>,
    /// Inodes that operations need to the end, and how many operations do.
    pinned_inodes: BTreeMap<InodeNo, u32>,
    /// Buffers that stay in memory for that (B4).
    pinned: BTreeSet<FragNo>,
    pub changes: Changes,
}

/// Fragments written to the device, for a recount of the books that reads beside the cache.
pub(super) type Watch = RefCell<Vec<Range<FragNo>>>;

/// Number of clean buffers kept whatever the options say, so that one step finds everything that it needs at once.
const CLEAN_BUFFERS_MIN: u64 = 48;

impl Cache {
    pub(super) fn new(frag_bytes: u32, frag: u32, bytes_max: u64) -> Cache {
        let least = CLEAN_BUFFERS_MIN * u64::from(frag_bytes * frag);
        Cache {
            buffers: BTreeMap::new(),
            frag_bytes: frag_bytes as usize,
            frag,
            clean: BTreeMap::new(),
            dirty: BTreeMap::new(),
            dirty_of: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            loading: BTreeMap::new(),
            clock: 0,
            clean_bytes: 0,
            clean_bytes_max: bytes_max.max(least),
            dirty_bytes: 0,
            in_flight_bytes: 0,
            watches: Vec::new(),
            pinned_inodes: BTreeMap::new(),
            pinned: BTreeSet::new(),
            changes: Changes::default(),
        }
    }

    /// Everything in memory, written or not.
    pub(super) fn bytes(&self) -> u64 {
        self.clean_bytes + self.dirty_bytes
    }

    pub(super) fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(super) fn peek(&self, at: FragNo) -> Option<&Buffer> {
        self.buffers.get(&at)
    }

    /// The bytes at `at`, marked as used.
    pub(super) fn get(&mut self, at: FragNo) -> Option<&Data> {
        self.rank(at, true);
        if !self.pinned_inodes.is_empty() {
            self.settle(at);
        }
        self.buffers.get(&at).map(|buffer| &buffer.data)
    }

    /// Marks a buffer as used up: it will be among the first to be evicted.
    pub(super) fn age(&mut self, at: FragNo) {
        self.rank(at, false);
    }

    fn rank(&mut self, at: FragNo, recent: bool) {
        let clock = self.tick();
        if let Some(buffer) = self.buffers.get_mut(&at) {
            if self.clean.remove(&buffer.rank).is_some() {
                self.clean.insert((recent, clock), at);
            }
            buffer.rank = (recent, clock);
        }
    }

    fn is_evictable(&self, at: FragNo, buffer: &Buffer) -> bool {
        buffer.dirty.is_none() && !buffer.in_flight && !self.pinned.contains(&at)
    }

    /// Updates the lists after the buffer was used, or may have become clean or dirty.
    fn settle(&mut self, at: FragNo) {
        let Some(buffer) = self.buffers.get(&at) else { return };
        if let BufferKind::Directory { ino, .. } | BufferKind::Indirect { ino } = buffer.kind
            && self.pinned_inodes.contains_key(&ino)
        {
            self.pinned.insert(at);
        }
        let (rank, bytes) = (buffer.rank, buffer.data.len() as u64);
        let listed = self.clean.contains_key(&rank);
        match (self.is_evictable(at, buffer), listed) {
            (true, false) => {
                self.clean.insert(rank, at);
                self.clean_bytes += bytes;
            }
            (false, true) => {
                self.clean.remove(&rank);
                debug_assert!(bytes <= self.clean_bytes, "the sum is that of all clean buffers");
                self.clean_bytes -= bytes;
            }
            _ => {}
        }
    }

    /// Makes room for clean buffers.
    pub(super) fn evict(&mut self) {
        while self.clean_bytes > self.clean_bytes_max {
            let Some((_, at)) = self.clean.pop_first() else { return };
            if let Some(buffer) = self.buffers.remove(&at) {
                debug_assert!(self.is_evictable(at, &buffer), "B2: what is dirty or in flight stays in memory");
                let bytes = buffer.data.len() as u64;
                debug_assert!(bytes <= self.clean_bytes, "the sum is that of all clean buffers");
                self.clean_bytes -= bytes;
            }
        }
    }

    pub(super) fn drop_clean(&mut self) {
        for at in std::mem::take(&mut self.clean).into_values() {
            let dropped = self.buffers.remove(&at);
            debug_assert!(
                dropped.is_none_or(|buffer| self.is_evictable(at, &buffer)),
                "B2: what is dirty or in flight stays in memory"
            );
        }
        self.clean_bytes = 0;
    }

    /// Adds what was read from the device. A buffer that is already there is newer, and stays. Returns false when that
    /// is another block, which overlaps this one (B1): two files claim the same fragments.
    pub(super) fn insert_clean(&mut self, at: FragNo, data: Data, kind: BufferKind) -> bool {
        debug_assert!(
            !data.is_empty() && data.len() <= self.frag_bytes * self.frag as usize,
            "B1: what is read is no more than a block"
        );
        if self.overlaps_buffer(at, data.len()) {
            return self.buffers.contains_key(&at);
        }
        let rank = (true, self.tick());
        self.buffers.insert(at, Buffer { data, kind, dirty: None, in_flight: false, volatile: false, failed: 0, rank });
        self.settle(at);
        self.evict();
        true
    }

    fn overlaps_buffer(&self, at: FragNo, bytes: usize) -> bool {
        let end = at + bytes.div_ceil(self.frag_bytes) as u32;
        let before = self.buffers.range(at.saturating_sub(self.frag)..end);
        before.into_iter().any(|(&start, buffer)| start + buffer.data.len().div_ceil(self.frag_bytes) as u32 > at)
    }

    /// Adds a dirty buffer at `at`, where there must be none; a read in progress from the device is discarded.
    pub(super) fn create(&mut self, at: FragNo, data: Data, kind: BufferKind) {
        let frags = (data.len() / self.frag_bytes) as u32;
        debug_assert!(
            (1..=self.frag).contains(&frags) && data.len().is_multiple_of(self.frag_bytes),
            "B1: a buffer has whole fragments, no more than a block"
        );
        self.forget(at, frags);
        debug_assert!(!self.overlaps_buffer(at, data.len()), "B1: buffers never overlap");
        debug_assert!(!self.is_loading(at), "B1: what is read now is older than what is created");
        let rank = (true, self.tick());
        self.buffers.insert(at, Buffer { data, kind, dirty: None, in_flight: false, volatile: false, failed: 0, rank });
        self.mark_dirty(at);
    }

    pub(super) fn mark_dirty(&mut self, at: FragNo) {
        let clock = self.tick();
        self.mark_dirty_since(at, clock);
    }

    fn mark_dirty_since(&mut self, at: FragNo, clock: u64) {
        let Some(buffer) = self.buffers.get_mut(&at) else { return };
        self.changes.note(); // It may have been dirty before, and changes again.
        if buffer.dirty.is_none() {
            buffer.dirty = Some(clock);
            let (bytes, owner) = (buffer.data.len() as u64, buffer.kind.owner());
            let other = self.dirty.insert(clock, at);
            debug_assert!(other.is_none(), "no two buffers became dirty at one moment");
            let is_new = self.dirty_of.entry(owner).or_default().insert(at);
            debug_assert!(is_new, "a buffer becomes dirty once before it is written");
            self.dirty_bytes += bytes;
            self.settle(at);
        }
    }

    fn mark_clean(&mut self, at: FragNo) {
        let Some(buffer) = self.buffers.get_mut(&at) else { return };
        if let Some(since) = buffer.dirty.take() {
            let (bytes, owner) = (buffer.data.len() as u64, buffer.kind.owner());
            let listed = self.dirty.remove(&since);
            debug_assert_eq!(listed, Some(at), "a dirty buffer is listed by when it became dirty");
            self.dirty_bytes -= bytes;
            if let Some(set) = self.dirty_of.get_mut(&owner) {
                let was_listed = set.remove(&at);
                debug_assert!(was_listed, "a dirty buffer is listed with its file");
                if set.is_empty() {
                    self.dirty_of.remove(&owner);
                }
            }
            self.settle(at);
        }
    }

    /// The bytes, to be changed; the buffer becomes dirty.
    pub(super) fn bytes_mut(&mut self, at: FragNo) -> Option<&mut [u8]> {
        self.mark_dirty(at);
        self.buffers.get_mut(&at).map(|buffer| buffer.data.make_mut())
    }

    /// As [`Cache::bytes_mut`], without making the buffer dirty: for a change that may turn out to be none.
    pub(super) fn bytes_quietly(&mut self, at: FragNo) -> Option<&mut [u8]> {
        self.buffers.get_mut(&at).map(|buffer| buffer.data.make_mut())
    }

    /// The buffer at `to`, a copy, takes the place of the one at `from`, which is forgotten. A caller that writes everything as
    /// old as that must not miss it.
    pub(super) fn take_over(&mut self, from: FragNo, to: FragNo) {
        let Some(buffer) = self.buffers.get(&from) else { return };
        let (since, frags) = (buffer.dirty, (buffer.data.len() / self.frag_bytes) as u32);
        self.forget(from, frags);
        if let Some(since) = since
            && self.buffers.get(&to).is_some_and(|copy| copy.dirty.is_some())
        {
            self.mark_clean(to);
            self.mark_dirty_since(to, since);
        }
    }

    /// Replaces the bytes of a buffer, possibly by more or fewer, and makes it dirty.
    pub(super) fn replace(&mut self, at: FragNo, data: Data) {
        let Some(buffer) = self.buffers.get(&at) else { return };
        let kind = buffer.kind;
        self.remove_buffer(at);
        self.create(at, data, kind);
    }

    /// Forgets the fragments: they have no owner any more. A write in flight continues, and the next write to the same
    /// place waits for it.
    pub(super) fn forget(&mut self, at: FragNo, frags: u32) {
        let end = at + frags;
        let found: Vec<FragNo> = self
            .buffers
            .range(at.saturating_sub(self.frag)..end)
            .filter(|(start, buffer)| **start + (buffer.data.len() / self.frag_bytes) as u32 > at)
            .map(|(&start, _)| start)
            .collect();
        for start in found {
            self.changes.note();
            self.remove_buffer(start);
        }
        let loads: Vec<FragNo> =
            self.loading.range(at.saturating_sub(self.frag - 1)..end).map(|(&start, _)| start).collect();
        for load in loads {
            self.loading.remove(&load);
        }
    }

    fn remove_buffer(&mut self, at: FragNo) {
        self.mark_clean(at);
        self.pinned.remove(&at);
        if let Some(buffer) = self.buffers.remove(&at)
            && self.clean.remove(&buffer.rank).is_some()
        {
            let bytes = buffer.data.len() as u64;
            debug_assert!(bytes <= self.clean_bytes, "the sum is that of all clean buffers");
            self.clean_bytes -= bytes;
        }
    }

    /// Drops file data that is no longer needed.
    pub(super) fn drop_if_clean_data(&mut self, at: FragNo) {
        let Some(buffer) = self.buffers.get(&at) else { return };
        if buffer.kind.is_file_data() && self.is_evictable(at, buffer) {
            self.remove_buffer(at);
        }
    }

    // ---- Pins ----

    /// Keeps in memory what is used or written of the blocks of these directories from now on (B4).
    pub(super) fn pin(&mut self, inodes: &[InodeNo]) {
        for ino in inodes {
            *self.pinned_inodes.entry(*ino).or_default() += 1;
        }
    }

    /// Ends what [`Cache::pin`] began.
    pub(super) fn unpin(&mut self, inodes: &[InodeNo]) {
        for ino in inodes {
            let count = self.pinned_inodes.get_mut(ino);
            debug_assert!(count.is_some(), "B4: what is no longer pinned was pinned");
            let Some(count) = count else { continue };
            *count -= 1;
            if *count == 0 {
                self.pinned_inodes.remove(ino);
            }
        }
        let is_free = |at: &FragNo| match self.buffers.get(at) {
            Some(buffer) => !self.pinned_inodes.contains_key(&buffer.kind.owner()),
            None => true,
        };
        let free: Vec<FragNo> = self.pinned.iter().copied().filter(is_free).collect();
        for at in free {
            self.pinned.remove(&at);
            self.settle(at);
        }
        self.evict();
    }

    pub(super) fn is_pinned(&self, ino: InodeNo) -> bool {
        self.pinned_inodes.contains_key(&ino)
    }

    // ---- Reading ----

    pub(super) fn is_loading(&self, at: FragNo) -> bool {
        self.loading.contains_key(&at)
    }

    /// Begins a read. Its result counts only if [`Cache::end_load`] finds the same number.
    pub(super) fn begin_load(&mut self, at: FragNo) -> u64 {
        let number = self.tick();
        let other = self.loading.insert(at, number);
        debug_assert!(other.is_none(), "a block is read once at a time");
        number
    }

    /// Ends a read. Returns whether its result is still needed.
    pub(super) fn end_load(&mut self, at: FragNo, number: u64) -> bool {
        let wanted = self.loading.get(&at) == Some(&number);
        if wanted {
            self.loading.remove(&at);
        }
        wanted
    }

    // ---- Writing ----

    /// Whether a write to any of these fragments is in flight.
    pub(super) fn is_in_flight(&self, at: FragNo, frags: u32) -> bool {
        self.in_flight.range(..at + frags).next_back().is_some_and(|(_, flight)| flight.end > at)
        // Writes do not overlap each other, so the last one to begin before the end decides.
    }

    /// Whether a write that began at `until` or before is still in flight.
    pub(super) fn is_in_flight_since(&self, until: u64) -> bool {
        self.in_flight.values().any(|flight| flight.begun <= until)
    }

    /// When the buffer's write in flight began.
    pub(super) fn begun(&self, at: FragNo) -> u64 {
        self.in_flight.get(&at).map_or(0, |flight| flight.begun)
    }

    /// Whether a write of one of these buffers has failed that began later than `start`.
    pub(super) fn has_failed_since(&self, places: &[FragNo], start: u64) -> bool {
        places.iter().any(|at| self.buffers.get(at).is_some_and(|buffer| buffer.failed > start))
    }

    pub(super) fn any_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Records from now on what is written to the device, as long as `watch` exists.
    pub(super) fn watch(&mut self, watch: &Rc<Watch>) {
        self.watches.push(Rc::downgrade(watch));
    }

    /// Takes the buffer's bytes for a write: it is clean from now on, and in flight.
    pub(super) fn begin_write(&mut self, at: FragNo) -> Option<Data> {
        let since = self.buffers.get(&at)?.dirty;
        self.mark_clean(at);
        let begun = self.tick();
        let since = since.unwrap_or(begun);
        let buffer = self.buffers.get_mut(&at)?;
        buffer.in_flight = true;
        let data = buffer.data.clone();
        self.settle(at);
        let end = at + (data.len() / self.frag_bytes) as u32;
        debug_assert!(
            !self.is_in_flight(at, (data.len() / self.frag_bytes) as u32),
            "B3: no two writes that overlap are in flight"
        );
        self.in_flight.insert(at, Flight { end, begun, since }); // B3
        self.watches.retain(|watch| watch.upgrade().map(|watch| watch.borrow_mut().push(at..end)).is_some());
        self.in_flight_bytes += data.len() as u64;
        Some(data)
    }

    /// Ends the write of what was `bytes` long at `at`. Returns when it had begun.
    pub(super) fn end_write(&mut self, at: FragNo, bytes: usize, outcome: Written) -> u64 {
        let flight = self.in_flight.remove(&at);
        debug_assert!(
            flight.is_some_and(|flight| flight.end == at + (bytes / self.frag_bytes) as u32),
            "B3: a write that ends has been in flight, as long as it is"
        );
        let (begun, since) = flight.map_or((0, 0), |flight| (flight.begun, flight.since));
        debug_assert!(bytes as u64 <= self.in_flight_bytes, "B3: what is written was in flight");
        self.in_flight_bytes -= bytes as u64;
        let Some(buffer) = self.buffers.get_mut(&at) else { return begun };
        // A buffer created after the one that was written has not been in flight.
        if !buffer.in_flight {
            return begun;
        }
        buffer.in_flight = false;
        buffer.failed = if outcome == Written::Failed { begun } else { 0 };
        match outcome {
            Written::Durable => buffer.volatile = false,
            Written::Volatile => buffer.volatile = true,
            Written::Failed => {
                self.mark_clean(at); // It may have become dirty in the time.
                self.mark_dirty_since(at, since);
            }
        }
        self.settle(at);
        begun
    }

    /// Addresses of dirty buffers of a file, or of the volume's own with 0.
    pub(super) fn dirty_of(&self, owner: InodeNo) -> Vec<FragNo> {
        self.dirty_of.get(&owner).map(|set| set.iter().copied().collect()).unwrap_or_default()
    }

    /// Buffers that became dirty at `until` or before, oldest first.
    pub(super) fn dirty_until(&self, until: u64) -> Vec<FragNo> {
        self.dirty.range(..=until).map(|(_, &at)| at).collect()
    }

    /// The buffer of a file's data that has been dirty for the longest time, of those whose write can begin now; one whose
    /// write has failed comes after all others. A write to the same place may be in flight although the buffer is not: of an
    /// earlier buffer, whose file gave the place up.
    pub(super) fn oldest_dirty_data(&self) -> Option<FragNo> {
        let can_begin = |at: &FragNo| {
            let Some(buffer) = self.buffers.get(at).filter(|buffer| buffer.kind.is_file_data()) else { return false };
            !self.is_in_flight(*at, (buffer.data.len() / self.frag_bytes) as u32)
        };
        let has_failed = |at: &FragNo| self.buffers.get(at).is_some_and(|buffer| buffer.failed > 0);
        let untried = self.dirty.values().copied().find(|at| can_begin(at) && !has_failed(at));
        untried.or_else(|| self.dirty.values().copied().find(can_begin))
    }
}

/// Result of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Written {
    Durable,
    Volatile,
    /// It has to be tried again.
    Failed,
}
