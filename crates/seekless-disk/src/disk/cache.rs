//! The drive's cache: a few segments, each holding consecutive sectors.

use super::drive::Cache;

/// Consecutive sectors in the drive's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Segment {
    pub(super) start: u64,
    /// First sector that is not in the segment.
    pub(super) end: u64,
    /// First sector that read-ahead will not fetch.
    pub(super) read_limit: u64,
    /// Larger for more recently used segments.
    used: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Segments {
    segments: Box<[Segment]>,
    /// Sectors per segment.
    capacity: u64,
    /// Segment 0 is for writes, the others for reads.
    write_apart: bool,
    uses: u64,
}

impl Segments {
    pub(super) fn new(cache: &Cache) -> Segments {
        Segments {
            segments: vec![Segment::default(); cache.segments as usize].into(),
            capacity: u64::from(cache.segment_sectors),
            write_apart: cache.write_segment_apart,
            uses: 0,
        }
    }

    pub(super) fn get(&self, slot: usize) -> &Segment {
        &self.segments[slot]
    }

    pub(super) fn get_mut(&mut self, slot: usize) -> &mut Segment {
        &mut self.segments[slot]
    }

    /// The segment that holds the most sectors from `lbn` on, of the `count` requested. A segment that holds none of
    /// them, but is being read up to just before `lbn`, counts as well (`reading`).
    pub(super) fn find(&self, lbn: u64, count: u64, reading: Option<usize>) -> Option<(usize, u64)> {
        let mut best: Option<(usize, u64)> = None;
        for (slot, segment) in self.segments.iter().enumerate() {
            let inside = lbn >= segment.start && lbn < segment.end;
            let next = reading == Some(slot) && lbn == segment.end && lbn < segment.read_limit;
            if inside || next {
                let there = (segment.end - lbn).min(count);
                let better = best.is_none_or(|(other, others)| {
                    there > others || (there == others && segment.used > self.segments[other].used)
                });
                if better {
                    best = Some((slot, there));
                }
            }
        }
        best
    }

    /// An empty segment, or the least recently used one, for a read or write that finds no segment of its own. `busy`
    /// is taken only if there is no other.
    pub(super) fn victim(&self, write: bool, busy: Option<usize>) -> usize {
        if self.write_apart && write {
            return 0;
        }
        let slots = usize::from(self.write_apart)..self.segments.len();
        let rank = |slot: &usize| {
            let segment = &self.segments[*slot];
            // One number is compared faster than three. Uses are fewer than 2⁶².
            u64::from(busy == Some(*slot)) << 63 | u64::from(segment.start < segment.end) << 62 | segment.used
        };
        slots.min_by_key(rank).unwrap_or(0)
    }

    /// Empties a segment and gives it to the sectors from `lbn`.
    pub(super) fn take(&mut self, slot: usize, lbn: u64) {
        self.segments[slot] = Segment { start: lbn, end: lbn, read_limit: lbn, used: 0 };
        self.touch(slot);
    }

    pub(super) fn touch(&mut self, slot: usize) {
        self.uses += 1;
        self.segments[slot].used = self.uses;
    }

    /// Records that the sectors up to `end` are there; they replace the oldest.
    pub(super) fn extend(&mut self, slot: usize, end: u64) {
        let segment = &mut self.segments[slot];
        segment.end = segment.end.max(end);
        segment.start = segment.start.max(segment.end.saturating_sub(self.capacity));
    }

    /// Empties every segment but `except` that holds one of the `count` sectors from `lbn`.
    pub(super) fn discard(&mut self, lbn: u64, count: u64, except: Option<usize>) {
        for (slot, segment) in self.segments.iter_mut().enumerate() {
            if except != Some(slot) && lbn < segment.end && segment.start < lbn + count {
                segment.end = segment.start;
                segment.read_limit = segment.start;
            }
        }
    }
}
