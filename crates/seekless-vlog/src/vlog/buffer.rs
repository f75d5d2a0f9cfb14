//! The track buffer: keeps read times acceptable where blocks that are neighbours by address are not neighbours on the
//! platters.
//!
//! A drive's own cache holds the sectors behind a request, which after eager writing are not those that the reader will
//! ask for next. So for a sequential reader the rest of the track is read as well, and its blocks stay buffered until
//! other tracks replace them [wa99 §4.2]. No request waits for the whole track: the arm reads on a few blocks at a
//! time, until a request needs another track.
//!
//! Invariants
//!   B1  The buffer equals the device: blocks of a track that was written since their read began are left out.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::device::Data;

/// Number of concurrent sequential readers that are detected.
const STREAMS_MAX: usize = 4;

/// Largest gap between two reads of a sequential reader: as large as a file system's own blocks between those of small
/// files.
const LEAP_MAX: u32 = 8;

#[derive(Default)]
pub(super) struct TrackBuffer {
    tracks: BTreeMap<u32, Held>,
    /// Number of writes to each track that was written while a track was being read.
    stamps: BTreeMap<u32, u64>,
    /// Reads under way.
    reading: u32,
    clock: u64,
    tracks_max: usize,
    /// The track being read ahead.
    pub(super) aim: Option<Aim>,
    /// True while a task reads ahead.
    pub(super) is_reading_on: bool,
    /// The address behind each of the last reads, the latest first.
    streams: Vec<u32>,
}

/// A track to be read to its end, and the block to read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Aim {
    pub(super) track: u32,
    pub(super) next: u32,
}

struct Held {
    first: u32,
    blocks: Vec<Option<Data>>,
    /// Time of the last use.
    used: u64,
}

impl TrackBuffer {
    pub(super) fn new(tracks_max: usize) -> TrackBuffer {
        TrackBuffer { tracks_max, ..TrackBuffer::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.tracks_max > 0
    }

    /// Records a read; true when it continues one of the last few.
    pub(super) fn goes_on(&mut self, logical: u32, blocks: u32) -> bool {
        let stream = self.streams.iter().position(|&next| (next..next.saturating_add(LEAP_MAX)).contains(&logical));
        match stream {
            Some(stream) => drop(self.streams.remove(stream)),
            None => self.streams.truncate(STREAMS_MAX - 1),
        }
        self.streams.insert(0, logical + blocks);
        stream.is_some()
    }

    /// The bytes of a block, if they are buffered.
    pub(super) fn get(&mut self, track: u32, block: u32) -> Option<Data> {
        self.clock += 1;
        let held = self.tracks.get_mut(&track)?;
        let found = held.blocks.get(block.checked_sub(held.first)? as usize)?.clone();
        held.used = self.clock;
        found
    }

    /// Up to `blocks_max` consecutive blocks of a track that are not buffered, the first at or after `next`, wrapping
    /// at the track's end.
    pub(super) fn missing(&self, aim: Aim, blocks: &Range<u32>, blocks_max: u32) -> Option<Range<u32>> {
        let is_here = |block: u32| {
            let held = self.tracks.get(&aim.track);
            held.is_some_and(|held| held.blocks[(block - blocks.start) as usize].is_some())
        };
        let next = aim.next.clamp(blocks.start, blocks.end);
        let first = (next..blocks.end).chain(blocks.start..next).find(|&block| !is_here(block))?;
        let end = (first..blocks.end).take(blocks_max.max(1) as usize).take_while(|&block| !is_here(block)).count();
        Some(first..first + end as u32)
    }

    /// Begins a read of blocks of a track; pass the result to [`Self::end`].
    pub(super) fn begin(&mut self, track: u32) -> u64 {
        self.reading += 1;
        self.stamps.get(&track).copied().unwrap_or(0)
    }

    /// Ends a read of blocks of the track that consists of `blocks`. On success, the first block that was read and the
    /// bytes.
    pub(super) fn end(&mut self, track: u32, blocks: &Range<u32>, stamp: u64, read: Option<(u32, Data)>, bytes: usize) {
        let is_current = self.stamps.get(&track).copied().unwrap_or(0) == stamp; // B1
        debug_assert!(self.reading > 0, "B1: a read of a track ends once");
        self.reading -= 1;
        if self.reading == 0 {
            self.stamps.clear();
        }
        let Some((first, data)) = read.filter(|_| is_current) else { return };
        self.clock += 1;
        let empty = || Held { first: blocks.start, blocks: vec![None; blocks.len()], used: 0 };
        debug_assert!(
            blocks.contains(&first) && first + (data.len() / bytes) as u32 <= blocks.end,
            "B1: what is buffered lies on its track"
        );
        let held = self.tracks.entry(track).or_insert_with(empty);
        debug_assert_eq!(
            (held.first, held.blocks.len()),
            (blocks.start, blocks.len()),
            "B1: a track that is buffered has a place for each of its blocks"
        );
        held.used = self.clock;
        for index in 0..data.len() / bytes {
            held.blocks[(first - blocks.start) as usize + index] = Some(data.slice(index * bytes..(index + 1) * bytes));
        }
        while self.tracks.len() > self.tracks_max {
            let oldest = self.tracks.iter().min_by_key(|(_, held)| held.used).map(|(&track, _)| track);
            oldest.and_then(|track| self.tracks.remove(&track));
        }
    }

    /// Invalidates blocks of a track before and after a write to them.
    pub(super) fn forget(&mut self, track: u32, blocks: Range<u32>) {
        if let Some(held) = self.tracks.get_mut(&track) {
            debug_assert!(
                held.first <= blocks.start && (blocks.end - held.first) as usize <= held.blocks.len(),
                "B1: what is written lies on the track that is forgotten"
            );
            for block in blocks {
                held.blocks[(block - held.first) as usize] = None;
            }
        }
        if self.reading > 0 {
            *self.stamps.entry(track).or_insert(0) += 1;
        }
    }
}
