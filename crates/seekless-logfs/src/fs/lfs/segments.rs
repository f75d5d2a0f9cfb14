//! The segment usage table: how many bytes of each segment are live, and which segments the log may write next.
//!
//! Paper: [ro92 §3.6, "segment usage table"]. Format: FORMAT.md, "Segment usage table".
//!
//! Life of a segment: *clean* (nothing in it is needed) → *ready* (clean, with storage below it) → written → empty
//! (nothing alive) → clean.
//!
//! Invariants
//!   G1  An empty segment becomes clean only once neither checkpoint slot needs it, neither for its contents nor for
//!       rolling forward. So either slot alone is enough to recover from. A slot needs every segment that was not empty
//!       in its checkpoint, and every segment that the log has passed through since. So it releases a segment that was
//!       empty in it and that the log has not taken since.
//!   G2  The live bytes of a segment are exact: the sum of what pointers reach in it.
//!   G3  A segment is in at most one of `clean`, `ready` and `empty`, and in none while something in it is alive or the
//!       log continues in it.

use std::collections::{BTreeMap, BTreeSet};

use super::format::{BLOCK_BYTES, USAGES_PER_BLOCK, Usage};
use super::layout::{Layout, SegmentNo};
use crate::rt::cover;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub live_bytes: u64,
    /// Modification time of its youngest block, nanoseconds since 1970.
    pub youngest: i64,
    /// Serial of the first checkpoint in which it was empty; 0 while it is not empty, and when it was never used.
    pub empty_since: u64,
}

pub(super) struct Segments {
    segments: Vec<Segment>,
    /// Not needed, but storage below them is not certain.
    pub clean: BTreeSet<SegmentNo>,
    /// The log may write them.
    pub ready: BTreeSet<SegmentNo>,
    /// Empty, but a checkpoint slot may still need them; with the serial of the first checkpoint that does not count
    /// them. Segments that became empty since the last checkpoint, by roll-forward too, are not here yet.
    pub empty: BTreeMap<SegmentNo, u64>,
    /// Blocks of the table that differ from those in the log.
    pub dirty_blocks: BTreeSet<u64>,
    pub live_bytes: u64,
    segment_bytes: u64,
}

impl Segments {
    pub(super) fn new(layout: &Layout) -> Segments {
        Segments {
            segments: vec![Segment::default(); layout.segment_count() as usize],
            clean: BTreeSet::new(),
            ready: BTreeSet::new(),
            empty: BTreeMap::new(),
            dirty_blocks: BTreeSet::new(),
            live_bytes: 0,
            segment_bytes: layout.segment_bytes(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Blocks of the table.
    pub(super) fn table_blocks(&self) -> u64 {
        self.count().div_ceil(USAGES_PER_BLOCK)
    }

    pub(super) fn get(&self, segment: SegmentNo) -> Segment {
        self.segments[segment as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentNo, &Segment)> {
        self.segments.iter().enumerate().map(|(number, segment)| (number as u64, segment))
    }

    /// Fills in one block of the table. The caller takes the segments that the log continues in.
    ///
    /// # Errors
    /// The number of a segment with more live bytes than fit.
    pub(super) fn load_block(&mut self, block: u64, bytes: &[u8]) -> Result<(), SegmentNo> {
        let first = block * USAGES_PER_BLOCK;
        for (within, raw) in bytes.chunks_exact(Usage::BYTES).enumerate() {
            let number = first + within as u64;
            let Some(segment) = self.segments.get_mut(number as usize) else { break };
            let Some(usage) = Usage::decode(raw) else { break };
            if u64::from(usage.live_bytes) > self.segment_bytes {
                return Err(number);
            }
            self.live_bytes -= segment.live_bytes;
            *segment = Segment {
                live_bytes: usage.live_bytes.into(),
                youngest: usage.youngest,
                empty_since: usage.empty_since.into(),
            };
            self.live_bytes += segment.live_bytes;
        }
        Ok(())
    }

    /// Called after all blocks of the table but `unread` are filled in: segments empty in it wait for the slots to
    /// release them (G1). For unread blocks it is unknown since when segments are empty; the next checkpoint will
    /// record that.
    pub(super) fn loaded(&mut self, unread: &[u64]) {
        let empty = |(number, segment): (SegmentNo, &Segment)| {
            let is_empty = segment.live_bytes == 0 && !unread.contains(&(number / USAGES_PER_BLOCK));
            is_empty.then_some((number, segment.empty_since))
        };
        self.empty = self.iter().filter_map(empty).collect();
        unread.iter().for_each(|&block| self.touch(block * USAGES_PER_BLOCK));
    }

    /// Sets the recounted live bytes.
    pub(super) fn set_live(&mut self, segment: SegmentNo, bytes: u64) {
        assert!(bytes <= self.segment_bytes, "G2: a segment holds no more than its size");
        let entry = &mut self.segments[segment as usize];
        if entry.live_bytes == bytes {
            return;
        }
        self.live_bytes = self.live_bytes - entry.live_bytes + bytes;
        entry.live_bytes = bytes;
        // Whatever the table said: a slot may need it.
        entry.empty_since = 0;
        self.empty.remove(&segment);
        self.clean.remove(&segment);
        self.ready.remove(&segment);
        self.touch(segment);
    }

    /// One block of the table as it is stored.
    pub(super) fn store_block(&self, block: u64, bytes: &mut [u8]) {
        bytes[..BLOCK_BYTES].fill(0);
        let first = (block * USAGES_PER_BLOCK) as usize;
        for (segment, raw) in self.segments[first..].iter().zip(bytes.chunks_exact_mut(Usage::BYTES)) {
            let usage = Usage {
                live_bytes: segment.live_bytes as u32,
                // Serials are compared only while they are young; 32 bits count checkpoints for centuries.
                empty_since: segment.empty_since as u32,
                youngest: segment.youngest,
            };
            usage.encode(raw);
        }
    }

    /// Has the next checkpoint update and write the entry of `segment`.
    pub(super) fn touch(&mut self, segment: SegmentNo) {
        self.dirty_blocks.insert(segment / USAGES_PER_BLOCK);
    }

    /// `bytes` of live data have been written to `segment`.
    pub(super) fn add_live(&mut self, segment: SegmentNo, bytes: u64, youngest: i64) {
        self.touch(segment);
        debug_assert!(!self.clean.contains(&segment), "G3: what is written to has been taken");
        debug_assert!(!self.ready.contains(&segment), "G3: what is written to has been taken");
        let entry = &mut self.segments[segment as usize];
        entry.youngest = if entry.live_bytes == 0 { youngest } else { entry.youngest.max(youngest) };
        entry.live_bytes += bytes;
        entry.empty_since = 0;
        self.live_bytes += bytes;
        assert!(entry.live_bytes <= self.segment_bytes, "G2: a segment holds no more than its size");
        self.empty.remove(&segment);
    }

    /// `bytes` of `segment` are no longer alive. Returns false when it does not hold as much, which only damage can
    /// cause.
    #[must_use]
    pub(super) fn remove_live(&mut self, segment: SegmentNo, bytes: u64) -> bool {
        self.touch(segment);
        let entry = &mut self.segments[segment as usize];
        let Some(rest) = entry.live_bytes.checked_sub(bytes) else { return false }; // G2
        entry.live_bytes = rest;
        debug_assert!(self.live_bytes >= bytes, "G2: the sum is that of all segments");
        self.live_bytes -= bytes;
        debug_assert!(bytes == 0 || !self.clean.contains(&segment), "G3: what is clean holds nothing");
        debug_assert!(bytes == 0 || !self.ready.contains(&segment), "G3: what is ready holds nothing");
        true
    }

    /// The log begins to write `segment`: it is no longer clean, whatever happens to the write.
    pub(super) fn take(&mut self, segment: SegmentNo) {
        if self.segments[segment as usize].empty_since > 0 {
            cover("lfs: the log reuses a segment");
        }
        self.touch(segment);
        self.clean.remove(&segment);
        self.ready.remove(&segment);
        self.empty.remove(&segment);
        self.segments[segment as usize].empty_since = 0;
    }

    /// The first ready segment after `after` on the device, or the first one of all.
    pub(super) fn next_ready(&self, after: SegmentNo, taken: &[SegmentNo]) -> Option<SegmentNo> {
        let following = self.ready.range(after + 1..).chain(self.ready.range(..=after));
        let found = following.copied().find(|segment| !taken.contains(segment));
        if found.is_some_and(|found| found < after) {
            cover("lfs: the log goes on at the start of the volume");
        }
        debug_assert!(found.is_none_or(|segment| self.get(segment).live_bytes == 0), "G3: what is ready holds nothing");
        debug_assert!(found.is_none_or(|segment| !self.clean.contains(&segment)), "G3: a segment is in one set");
        debug_assert!(found.is_none_or(|segment| !self.empty.contains_key(&segment)), "G3: a segment is in one set");
        found
    }

    /// True when one or two checkpoints would make a segment clean. The log continues in the segments `kept`.
    pub(super) fn any_empty(&self, kept: &[SegmentNo]) -> bool {
        let is_free = |segment: &SegmentNo| self.clean.contains(segment) || self.ready.contains(segment);
        let is_empty = |(number, segment): (SegmentNo, &Segment)| {
            segment.live_bytes == 0 && !is_free(&number) && !kept.contains(&number)
        };
        self.iter().any(is_empty)
    }

    /// Records, for the checkpoint `serial` that is being assembled, which segments are empty now. The log continues in
    /// the segments `kept`.
    pub(super) fn note_empty(&mut self, serial: u64, kept: &[SegmentNo]) {
        let blocks: Vec<u64> = self.dirty_blocks.iter().copied().collect();
        for block in blocks {
            let first = block * USAGES_PER_BLOCK;
            for number in first..(first + USAGES_PER_BLOCK).min(self.count()) {
                let is_free = self.clean.contains(&number) || self.ready.contains(&number) || kept.contains(&number);
                let entry = &mut self.segments[number as usize];
                if entry.live_bytes == 0 && entry.empty_since == 0 && !is_free {
                    entry.empty_since = serial;
                    self.empty.insert(number, serial);
                }
            }
        }
    }

    /// Removes from `empty` the segments that neither slot needs any more; `older` is the older of the two checkpoints
    /// (G1).
    #[must_use]
    pub(super) fn let_go(&mut self, older: u64) -> Vec<SegmentNo> {
        let released: Vec<SegmentNo> =
            self.empty.iter().filter(|&(_, &since)| since <= older).map(|(&segment, _)| segment).collect();
        for segment in &released {
            self.empty.remove(segment);
            assert_eq!(self.get(*segment).live_bytes, 0, "G3: what is empty holds nothing");
            debug_assert!(!self.clean.contains(segment), "G3: a segment is in one set");
            debug_assert!(!self.ready.contains(segment), "G3: a segment is in one set");
        }
        released
    }
}
