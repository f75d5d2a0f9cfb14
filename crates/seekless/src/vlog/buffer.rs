//! Whole tracks that were read: what makes reads bearable where neighbours by address are none on the platters.
//!
//! A drive's own cache holds what lies behind a request, which after eager writing is not what will be asked for. So
//! who reads in order gets whole tracks read, and their blocks stay until other tracks take their place [wa99 §4.2].
//!
//! Invariants
//!   B1  What is here is what is on the device: a track on which something was written since its read began is left out.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::device::Data;

#[derive(Default)]
pub(super) struct TrackBuffer {
    /// Tracks, each with its blocks, their bytes and the time of its last use.
    tracks: BTreeMap<u32, (Range<u32>, Data, u64)>,
    /// Writes to each track that was written while one was being read.
    stamps: BTreeMap<u32, u64>,
    /// Reads under way.
    reading: u32,
    clock: u64,
    tracks_max: usize,
}

impl TrackBuffer {
    pub(super) fn new(tracks_max: usize) -> TrackBuffer {
        TrackBuffer { tracks_max, ..TrackBuffer::default() }
    }

    pub(super) fn is_on(&self) -> bool {
        self.tracks_max > 0
    }

    /// The bytes of a block, if its track is here.
    pub(super) fn get(&mut self, track: u32, block: u32, block_bytes: usize) -> Option<Data> {
        self.clock += 1;
        let (blocks, data, used) = self.tracks.get_mut(&track)?;
        *used = self.clock;
        let at = block.checked_sub(blocks.start).filter(|_| block < blocks.end)? as usize * block_bytes;
        Some(data.slice(at..at + block_bytes))
    }

    /// Begins to read a track; what to show at its end.
    pub(super) fn begin(&mut self, track: u32) -> u64 {
        self.reading += 1;
        self.stamps.get(&track).copied().unwrap_or(0)
    }

    /// Ends reading a track, with what was read, if it was.
    pub(super) fn end(&mut self, track: u32, stamp: u64, read: Option<(Range<u32>, Data)>) {
        let is_current = self.stamps.get(&track).copied().unwrap_or(0) == stamp; // B1
        self.reading -= 1;
        if self.reading == 0 {
            self.stamps.clear();
        }
        let Some((blocks, data)) = read.filter(|_| is_current) else { return };
        self.clock += 1;
        self.tracks.insert(track, (blocks, data, self.clock));
        while self.tracks.len() > self.tracks_max {
            let oldest = self.tracks.iter().min_by_key(|(_, (_, _, used))| *used).map(|(&track, _)| track);
            oldest.and_then(|track| self.tracks.remove(&track));
        }
    }

    /// Something is about to be written to a track, or has been.
    pub(super) fn forget(&mut self, track: u32) {
        self.tracks.remove(&track);
        if self.reading > 0 {
            *self.stamps.entry(track).or_insert(0) += 1;
        }
    }
}
