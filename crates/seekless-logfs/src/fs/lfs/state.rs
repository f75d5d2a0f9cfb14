//! The part of the volume in memory that belongs to the log.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::format::*;
use super::layout::*;
use super::segments::Segments;
use super::{Counters, Options};
use crate::codec;
use crate::fs::logfs::demand::{Hole, add_hole, cut_holes};
pub(super) use crate::fs::logfs::state::*;
use crate::fs::logfs::xattr::BLOB_BYTES_MAX;
use crate::rt::{Event, Gate};
use crate::units::{FixedMap, Ino, Nanos, SECTOR_BYTES};

/// The volume in memory.
pub(super) type State = crate::fs::logfs::state::State<Segmented>;
pub(super) type InodeMem = crate::fs::logfs::state::InodeMem<Segmented>;

/// What the log records with an inode besides its content.
#[derive(Clone, Default)]
pub(super) struct DeferredFree {
    /// Holes among the data blocks made since the inode was last written, for roll-forward. None is older than the
    /// record in `nodes` of an indirect block above it.
    pub holes: Vec<Hole>,
    /// Indirect blocks dropped since then, with everything below them, by their keys. Roll-forward applies these first.
    pub nodes: Vec<Hole>,
    /// Live bytes taken from segments since the inode was last written.
    pub freed: BTreeMap<SegmentNo, u64>,
}

impl DeferredFree {
    /// Records of holes that the log gets with the inode.
    pub(super) fn records(&self) -> u64 {
        (self.holes.len() + self.nodes.len()) as u64
    }

    /// Adds the newest hole, after all others. Blocks below a dropped indirect block need no record of their own.
    pub(super) fn add_hole(&mut self, hole: Hole) {
        let key = BlockKey(hole.first);
        if key.is_data() {
            add_hole(&mut self.holes, hole);
            return;
        }
        let (mut below, mut count) = (key, u64::from(hole.count));
        while !below.is_data() {
            cut_holes(&mut self.nodes, below.0, below.0 + count);
            below = below.child(0);
            count *= POINTERS_PER_BLOCK as u64;
        }
        cut_holes(&mut self.holes, below.0, below.0 + count);
        add_hole(&mut self.nodes, hole);
    }
}

/// Events and gates of the log's tasks.
#[derive(Default)]
pub(super) struct BackgroundWork {
    /// Signalled when there are more clean segments, or when it is known that there will be no more.
    pub space_changed: Event,
    pub flush_gate: Gate,
    pub checkpoint_gate: Gate,
    pub provision_gate: Gate,
    pub cleaner_gate: Gate,
    pub discard_gate: Gate,
    /// How long the last pass took that moved something.
    pub last_pass_took: Cell<Option<Nanos>>,
    /// Clean segments after the background task has cleaned, where they are still too few.
    pub clean_segments_tried: Cell<Option<u64>>,
}

const XATTR_BLOB_BYTES_MAX: u64 = BLOB_BYTES_MAX as u64;

/// Memory for blocks that wait for a checkpoint: so many times as much as for dirty data, 256 MiB by default, and at most
/// this part of the volume. The indirect blocks of a full volume are some 1/341 of it.
const DEFERRED_PER_DIRTY: u64 = 16;
const DEFERRED_SHARE: u64 = 256;

/// A log of segments.
pub(super) struct Segmented {
    pub layout: Layout,
    pub options: Options,
    pub segments: Segments,
    pub orphans: Orphans,
    pub end: LogEnd,
    /// The intact beginning of an unfinished transaction behind `end`: the end of the log after it, and the segments
    /// that it begins (V6).
    pub torn: Option<(LogEnd, Vec<SegmentNo>)>,
    /// Name-space records for the next transaction.
    pub records: Vec<Item>,
    /// Number of holes and dropped indirect blocks of all inodes that wait for the next transaction.
    pub hole_records: u64,
    /// Live bytes that removed inodes took from segments, for the next transaction.
    pub freed: BTreeMap<SegmentNo, u64>,
    /// Reserved bytes according to the log: without files whose changes are not in it yet.
    pub unwritten_logged: u64,
    /// Passes for changes that waited for room, since a user's change had enough.
    pub waits_for_room: Cell<u32>,
    /// The storage below had no room for a segment when one was last provisioned.
    pub is_full_below: bool,
    /// The segment for which it had none.
    pub refused_last: SegmentNo,
    /// When a user wrote the blocks that the cleaner is moving, in nanoseconds since 1970.
    pub moving: BTreeMap<BlockId, i64>,
    /// Blocks that wait for a checkpoint, in bytes, before there is one.
    pub deferred_bytes_max: u64,
    /// Most of them at a checkpoint, lately.
    pub deferred_seen: u64,
    /// Serial number of the newest checkpoint that is durable.
    pub checkpoint_serial: u64,
    /// Serial number of the checkpoint in each slot, 0 where there is none.
    pub slots: [u64; 2],
    /// The usage table is exact (G2). False when a release that counted wrongly wrote the volume, or when the table is
    /// damaged.
    pub exact: bool,
    /// The list of orphans is what was stored. False when part of it could not be read.
    pub orphans_known: bool,
    /// Indirect blocks that replay has visited.
    pub replay_visits: u64,
    pub in_flight_bytes: u64,
    /// Every partial segment before this one has been written to the device.
    pub written_sequence: u64,
    /// Every partial segment before this one is durable.
    pub durable_sequence: u64,
    /// Bytes appended to the log since the last checkpoint.
    pub log_bytes_since_checkpoint: u64,
    pub counters: Counters,
}

impl Segmented {
    /// A volume in memory whose log continues at `end`.
    pub(super) fn state(layout: Layout, options: Options, segments: Segments, end: LogEnd) -> State {
        // At most a third of the reserve is for the cleaner, a quarter for dirty data and data in flight, and a quarter
        // for what waits for a checkpoint, so that all always fit.
        let reserve = u64::from(layout.superblock.reserve_segments);
        let dirty_most = (reserve / 8).max(1) * layout.segment_bytes();
        let deferred_bytes_max = (options.dirty_bytes_max.saturating_mul(DEFERRED_PER_DIRTY))
            .min(layout.superblock.volume_sectors * SECTOR_BYTES / DEFERRED_SHARE)
            .min(reserve / 4 * layout.segment_bytes())
            .max(options.dirty_bytes_max.min(dirty_most));
        let options = Options { dirty_bytes_max: options.dirty_bytes_max.min(dirty_most), ..options };
        let volume = Volume {
            ino_end: layout.ino_end(),
            capacity_bytes: layout.capacity_bytes(),
            hash_key: layout.superblock.hash_key,
            cache_data: options.cache_data,
            cache_bytes: options.cache_bytes,
            read_around_bytes: options.read_around_bytes,
        };
        let log = Segmented {
            layout,
            orphans: Orphans::default(),
            torn: None,
            records: Vec::new(),
            hole_records: 0,
            freed: BTreeMap::new(),
            unwritten_logged: 0,
            is_full_below: false,
            refused_last: 0,
            waits_for_room: Cell::new(0),
            moving: BTreeMap::new(),
            deferred_bytes_max,
            deferred_seen: 0,
            checkpoint_serial: 0,
            slots: [0; 2],
            exact: true,
            orphans_known: true,
            replay_visits: 0,
            in_flight_bytes: 0,
            written_sequence: end.sequence,
            durable_sequence: end.sequence,
            log_bytes_since_checkpoint: 0,
            counters: Counters::default(),
            segments,
            options,
            end,
        };
        let mut state = State::new(log, volume, options.read_only);
        state.read_ahead.off = !options.read_ahead;
        state
    }
}

/// The log now has this change of a file's reserved bytes.
pub(super) fn log_unwritten(state: &mut State, delta: i64) {
    match state.log.unwritten_logged.checked_add_signed(delta) {
        Some(bytes) => state.log.unwritten_logged = bytes,
        None => contradiction(state, "more bytes are given back than are set aside"),
    }
}

/// The books contradict the volume, which only damage can cause. Nothing is written any more.
pub(super) fn contradiction(state: &mut State, what: &str) {
    state.stopped.get_or_insert_with(|| format!("{what}; fsck recounts"));
}

/// Where the log continues.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnd {
    pub segment: SegmentNo,
    /// Sectors of the segment that are taken.
    pub offset: u64,
    pub next_segment: SegmentNo,
    /// Number of the next partial segment.
    pub sequence: u64,
    pub chain: u32,
}

/// The orphans: inodes without a name that are still in use, or being freed.
#[derive(Default)]
pub(super) struct Orphans {
    pub slots: Vec<Ino>,
    index: FixedMap<Ino, usize>,
    /// The lowest is used first.
    free: BinaryHeap<Reverse<usize>>,
    pub dirty_blocks: BTreeSet<u64>,
}

/// Entries in a block of the orphan file.
pub(super) const ORPHANS_PER_BLOCK: usize = BLOCK_BYTES / 8;

impl Orphans {
    pub(super) fn contains(&self, ino: Ino) -> bool {
        self.index.contains_key(&ino)
    }

    pub(super) fn list(&self) -> Vec<Ino> {
        let mut list: Vec<Ino> = self.index.keys().copied().collect();
        list.sort_unstable();
        list
    }

    /// Returns false when it was already there.
    pub(super) fn add(&mut self, ino: Ino) -> bool {
        if self.contains(ino) {
            return false;
        }
        let slot = self.free.pop().map(|Reverse(slot)| slot).unwrap_or_else(|| {
            self.slots.push(Ino(0));
            self.slots.len() - 1
        });
        debug_assert_eq!(self.slots[slot], Ino(0), "a free slot has no orphan");
        debug_assert_ne!(ino, Ino(0), "an orphan has a number, and 0 means a free slot");
        self.slots[slot] = ino;
        self.index.insert(ino, slot);
        self.dirty_blocks.insert((slot / ORPHANS_PER_BLOCK) as u64);
        true
    }

    /// Returns false when it was not there.
    pub(super) fn remove(&mut self, ino: Ino) -> bool {
        let Some(slot) = self.index.remove(&ino) else { return false };
        debug_assert_eq!(self.slots[slot], ino, "an orphan is in its slot");
        self.slots[slot] = Ino(0);
        self.free.push(Reverse(slot));
        self.dirty_blocks.insert((slot / ORPHANS_PER_BLOCK) as u64);
        true
    }

    /// One block of the orphan file as it is stored.
    pub(super) fn store_block(&self, block: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let first = block as usize * ORPHANS_PER_BLOCK;
        debug_assert!(first < self.slots.len(), "a block of the orphan file that is stored has slots");
        for (ino, raw) in self.slots[first..].iter().zip(bytes.chunks_exact_mut(8)) {
            codec::put_at(raw, 0, ino.0);
        }
    }

    /// Rebuilds the table from the blocks of the orphan file. Also returns the inode numbers that occurred more than once;
    /// their first places count.
    pub(super) fn from_slots(slots: Vec<Ino>) -> (Orphans, Vec<Ino>) {
        let (mut orphans, mut repeated) = (Orphans { slots, ..Orphans::default() }, Vec::new());
        for (slot, entry) in orphans.slots.iter_mut().enumerate() {
            if *entry != Ino(0) && orphans.index.contains_key(entry) {
                repeated.push(std::mem::replace(entry, Ino(0)));
                orphans.dirty_blocks.insert((slot / ORPHANS_PER_BLOCK) as u64);
            }
            match *entry {
                Ino(0) => orphans.free.push(Reverse(slot)),
                ino => drop(orphans.index.insert(ino, slot)),
            }
        }
        (orphans, repeated)
    }
}

impl State {
    /// Serial of the older of the checkpoints in the slots.
    pub(super) fn older_slot(&self) -> u64 {
        self.log.slots[0].min(self.log.slots[1])
    }

    /// Most bytes of log that a checkpoint would take now.
    pub(super) fn log_need_bytes(&self) -> u64 {
        self.log_need_bytes_with(DirtyAttributes::default())
    }

    /// As [`State::log_need_bytes`], with `more` attributes.
    pub(super) fn log_need_bytes_with(&self, more: DirtyAttributes) -> u64 {
        const ENTRY_BYTES: usize = SummaryEntry::BYTES;
        const PER_BLOCK: u64 = (BLOCK_BYTES + ENTRY_BYTES) as u64;
        const PER_INODE: u64 = (Inode::BYTES + ENTRY_BYTES) as u64;
        // Every change makes one or two blocks of the usage table dirty, and in the worst case all of them.
        let tables = self.log.segments.table_blocks() + self.log.orphans.dirty_blocks.len() as u64;
        let blocks = self.blocks.dirty_count() + tables + tables / POINTERS_PER_BLOCK as u64 + 2;
        let inodes = self.dirty_inodes.len() as u64 + 1;
        let freed = (self.log.freed.len() as u64 + self.blocks.dirty_count()).min(self.log.segments.count());
        let mut attributes = self.dirty_attributes;
        attributes += more;
        let records = self.log.records.len() as u64 + self.log.hole_records + freed + attributes.files;
        let bytes = blocks * PER_BLOCK + inodes * PER_INODE + records * ENTRY_BYTES as u64 + attributes.bytes;
        // Summaries, rounding, and what is lost at the end of a segment.
        let bytes = bytes + bytes / 16 + 2 * BLOCK_BYTES as u64;
        // Attributes that do not fit at the end of a segment leave less free there than they take themselves.
        let per_segment = self.log.layout.segment_bytes().saturating_sub(XATTR_BLOB_BYTES_MAX).max(BLOCK_BYTES as u64);
        bytes + attributes.bytes.min(bytes.div_ceil(per_segment) * XATTR_BLOB_BYTES_MAX)
    }

    /// Most bytes of log that a checkpoint would take if all indirect blocks and the inode map waited for it.
    pub(super) fn log_need_most_bytes(&self) -> u64 {
        let indirect = self.log.segments.live_bytes / POINTERS_PER_BLOCK as u64;
        let map = self.inode_count.div_ceil(IMAP_ENTRIES_PER_BLOCK) * BLOCK_BYTES as u64;
        let tables = self.log.segments.table_blocks() * BLOCK_BYTES as u64;
        // Small and sparse files have more indirect blocks than that.
        let waits = (indirect + map).max(self.log.deferred_seen);
        let bytes = waits.min(self.log.deferred_bytes_max) + tables;
        bytes + bytes / 16
    }
}
