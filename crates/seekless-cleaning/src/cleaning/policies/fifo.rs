//! The oldest segment, however much of it is alive: a circular log.

use super::{Made, Options};
use crate::cleaning::index::Queue;
use crate::cleaning::policy::{Destination, Fresh, Moved, Policy, Segment, SegmentNo, Shape, Ticks};

pub(super) struct Fifo(Queue);

impl Made for Fifo {
    fn make(_: &Options, shape: &Shape) -> Result<Fifo, String> {
        Ok(Fifo(Queue::new(shape.segments)))
    }
}

impl Policy for Fifo {
    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(0)
    }

    fn choose(&mut self, _: Ticks) -> Option<SegmentNo> {
        self.0.oldest()
    }

    fn closed(&mut self, segment: &Segment) {
        self.0.push(segment.number, segment.live);
    }

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
