//! The emptiest of `d` segments, each drawn from all: nearly greedy, without an index (Van Houdt 2013).

use super::{Made, Options};
use crate::cleaning::index::Set;
use crate::cleaning::policy::{Destination, Fresh, Moved, Policy, Segment, SegmentNo, Shape, Ticks};
use crate::cleaning::words::Key;
use crate::rng::Rng;

pub(super) const KEYS: &[Key] = &[Key::new("d", "10", "how many segments are drawn")];

pub(super) struct Choices {
    set: Set,
    draws: u32,
    rng: Rng,
}

impl Made for Choices {
    fn make(options: &Options, shape: &Shape) -> Result<Choices, String> {
        let draws = options.number("d", 1, 1000)?;
        Ok(Choices { set: Set::new(shape.segments), draws, rng: Rng::new(shape.seed) })
    }
}

impl Policy for Choices {
    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(0)
    }

    fn choose(&mut self, _: Ticks) -> Option<SegmentNo> {
        self.set.emptiest_of(self.draws, &mut self.rng)
    }

    fn closed(&mut self, segment: &Segment) {
        self.set.insert(segment.number, segment.live);
    }

    #[inline]
    fn died(&mut self, segment: SegmentNo, live: u32) {
        self.set.died(segment, live);
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.set.remove(segment.number);
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.set.known()
    }
}
