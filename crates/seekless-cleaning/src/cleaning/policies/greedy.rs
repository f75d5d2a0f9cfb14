//! The segment with the fewest live blocks [ro92 §3.4].

use super::{Made, Options};
use crate::cleaning::index::Buckets;
use crate::cleaning::policy::{Destination, Fresh, Moved, Policy, Segment, SegmentNo, Shape, Ticks};

pub(super) struct Greedy(Buckets);

impl Made for Greedy {
    fn make(_: &Options, shape: &Shape) -> Result<Greedy, String> {
        Ok(Greedy(Buckets::new(shape.segments, shape.segment_blocks)))
    }
}

impl Policy for Greedy {
    #[inline]
    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    #[inline]
    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(0)
    }

    fn choose(&mut self, _: Ticks) -> Option<SegmentNo> {
        self.0.emptiest()
    }

    fn closed(&mut self, segment: &Segment) {
        self.0.insert(segment.number, segment.live);
    }

    #[inline]
    fn died(&mut self, segment: SegmentNo, live: u32) {
        self.0.died(segment, live);
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.0.remove(segment.number);
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.0.known()
    }
}
