//! The books on which free blocks have storage below, where it is allocated on demand: S3 of [`super::space`], which keeps
//! them. [`super::provision`] says what they are for.

use std::collections::BTreeSet;

/// See above.
pub(super) struct Backing {
    /// A bit for each block. It counts while the block is free.
    known: Vec<u64>,
    ready_blocks: u64,
    track_ready: Vec<u32>,
    /// Tracks whose usable blocks are all ready.
    empty: BTreeSet<u32>,
    /// Only ready blocks may be taken.
    pub(super) is_strict: bool,
}

impl Backing {
    pub(super) fn new(blocks: usize, tracks: u32) -> Backing {
        let known = vec![0; blocks.div_ceil(64)];
        Backing {
            known,
            ready_blocks: 0,
            track_ready: vec![0; tracks as usize],
            empty: BTreeSet::new(),
            is_strict: true,
        }
    }

    pub(super) fn has(&self, block: u32) -> bool {
        self.known[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// Sets the bit of a block; true if that changes it.
    pub(super) fn set(&mut self, block: u32, is_known: bool) -> bool {
        let changes = self.has(block) != is_known;
        self.known[block as usize / 64] ^= u64::from(changes) << (block % 64);
        changes
    }

    pub(super) fn ready_blocks(&self) -> u64 {
        self.ready_blocks
    }

    pub(super) fn track_ready(&self, track: u32) -> u32 {
        self.track_ready[track as usize]
    }

    pub(super) fn next_empty(&self, track: u32) -> Option<u32> {
        self.empty.range(track..).next().or_else(|| self.empty.first()).copied()
    }

    /// A block of the track has become ready, or is ready no longer.
    pub(super) fn count(&mut self, track: u32, is_ready: bool) {
        let ready = &mut self.track_ready[track as usize];
        match is_ready {
            true => (*ready, self.ready_blocks) = (*ready + 1, self.ready_blocks + 1),
            false => (*ready, self.ready_blocks) = (*ready - 1, self.ready_blocks - 1),
        }
    }

    pub(super) fn sort_in(&mut self, track: u32, usable: u32) {
        match usable > 0 && self.track_ready(track) == usable {
            true => self.empty.insert(track),
            false => self.empty.remove(&track),
        };
    }
}

/// Attempts in a row that found no room where storage was taken for granted.
#[derive(Default)]
pub(super) struct Refusals {
    pub(super) in_a_row: u32,
    /// The storage below has been asked about all places.
    pub(super) has_asked: bool,
}

/// What the storage below has said last.
#[derive(Default)]
pub(super) struct BelowState {
    /// It had no room for some block.
    pub(super) is_full: bool,
    /// Blocks to keep ready when it is full, rather than to discard.
    pub(super) keep: u64,
    /// All places have been asked for room, and no write has found any since: nothing else has changed.
    pub(super) has_none: bool,
    /// The track that found no room last.
    pub(super) refused_last: u32,
    /// Blocks in which a piece of the map has found no room: holes of a sparse copy.
    pub(super) holes: BTreeSet<u32>,
    /// `None` until a disk first needs what earlier lives have left.
    pub(super) search: Option<Search>,
}

impl BelowState {
    /// What earlier lives have left has been looked for everywhere.
    pub(super) fn is_searched(&self) -> bool {
        self.search.as_ref().is_some_and(|search| search.tracks.is_empty() && search.run_blocks_min == 1)
    }
}

/// The search of a disk for storage that earlier lives have left: it visits each track twice, and goes on where it ended.
pub(super) struct Search {
    /// Tracks that this visit has not reached, the next one last.
    pub(super) tracks: Vec<u32>,
    /// Shorter runs without storage as a whole are not halved: first long ones, then 1.
    pub(super) run_blocks_min: u32,
    /// Attempts of this visit that may still fail.
    pub(super) refusals_left: u32,
}
