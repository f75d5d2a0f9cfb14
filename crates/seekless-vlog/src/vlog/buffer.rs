//! Blocks of tracks that were read: what makes reads bearable where neighbours by address are none on the platters.
//!
//! A drive's own cache holds what lies behind a request, which after eager writing is not what will be asked for. So
//! who reads in order gets the rest of the track read behind what he asked for, and its blocks stay until other tracks
//! take their place [wa99 §4.2]. Nobody waits for the whole track: the arm goes on along it, a few blocks at a time,
//! until somebody wants something of another one.
//!
//! Invariants
//!   B1  What is here is what is on the device: blocks of a track on which something was written since their read began
//!       are left out.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::device::Data;

/// Readers in order at the same time that are known as such.
const STREAMS_MAX: usize = 4;

/// How far one that reads in order may leap: as far as a file system's own blocks between those of small files.
const LEAP_MAX: u32 = 8;

#[derive(Default)]
pub(super) struct TrackBuffer {
    tracks: BTreeMap<u32, Held>,
    /// Writes to each track that was written while one was being read.
    stamps: BTreeMap<u32, u64>,
    /// Reads under way.
    reading: u32,
    clock: u64,
    tracks_max: usize,
    /// What is being read behind what was asked for.
    pub(super) aim: Option<Aim>,
    /// Somebody is at that.
    pub(super) is_reading_on: bool,
    /// Blocks behind the last ones that were read, the latest first.
    streams: Vec<u32>,
}

/// A track whose blocks are all wanted, and the one that comes next.
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

    /// Notes a read; true when it goes on where one of the last few ended.
    pub(super) fn goes_on(&mut self, logical: u32, blocks: u32) -> bool {
        let stream = self.streams.iter().position(|&next| (next..next.saturating_add(LEAP_MAX)).contains(&logical));
        match stream {
            Some(stream) => drop(self.streams.remove(stream)),
            None => self.streams.truncate(STREAMS_MAX - 1),
        }
        self.streams.insert(0, logical + blocks);
        stream.is_some()
    }

    /// The bytes of a block, if they are here.
    pub(super) fn get(&mut self, track: u32, block: u32) -> Option<Data> {
        self.clock += 1;
        let held = self.tracks.get_mut(&track)?;
        let found = held.blocks.get(block.checked_sub(held.first)? as usize)?.clone();
        held.used = self.clock;
        found
    }

    /// Up to `blocks_max` blocks of a track that are not here and follow each other, the first from `next` on, round
    /// the end.
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

    /// Begins to read blocks of a track; what to show at its end.
    pub(super) fn begin(&mut self, track: u32) -> u64 {
        self.reading += 1;
        self.stamps.get(&track).copied().unwrap_or(0)
    }

    /// Ends reading blocks of the track that consists of `blocks`, with the first of those that were read and their
    /// bytes, if they were.
    pub(super) fn end(&mut self, track: u32, blocks: &Range<u32>, stamp: u64, read: Option<(u32, Data)>, bytes: usize) {
        let is_current = self.stamps.get(&track).copied().unwrap_or(0) == stamp; // B1
        self.reading -= 1;
        if self.reading == 0 {
            self.stamps.clear();
        }
        let Some((first, data)) = read.filter(|_| is_current) else { return };
        self.clock += 1;
        let empty = || Held { first: blocks.start, blocks: vec![None; blocks.len()], used: 0 };
        let held = self.tracks.entry(track).or_insert_with(empty);
        held.used = self.clock;
        for index in 0..data.len() / bytes {
            held.blocks[(first - blocks.start) as usize + index] = Some(data.slice(index * bytes..(index + 1) * bytes));
        }
        while self.tracks.len() > self.tracks_max {
            let oldest = self.tracks.iter().min_by_key(|(_, held)| held.used).map(|(&track, _)| track);
            oldest.and_then(|track| self.tracks.remove(&track));
        }
    }

    /// Something is about to be written to blocks of a track, or has been.
    pub(super) fn forget(&mut self, track: u32, blocks: Range<u32>) {
        if let Some(held) = self.tracks.get_mut(&track) {
            for block in blocks {
                held.blocks[(block - held.first) as usize] = None;
            }
        }
        if self.reading > 0 {
            *self.stamps.entry(track).or_insert(0) += 1;
        }
    }
}
