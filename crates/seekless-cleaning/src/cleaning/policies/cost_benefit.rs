//! Cost-benefit [ro92 §3.5]: free space gained times the time for which it stays free, by the cost: `(1-u) age / (1+u)`.
//!
//! The paper takes the time since the youngest block of the segment was modified as the age. With live blocks sorted by
//! age this does not give the published curve: the segments of the oldest blocks get scores so high that they are cleaned
//! again and again. The root of that age gives it, and so does the time since the segment was written.

use super::{Made, Options};
use crate::cleaning::index::Ages;
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Policy, Segment, SegmentNo, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const AGE: Key = Key::new(
    "age",
    "segment",
    "youngest: since the user wrote a block of the segment; root: the root of that; segment: since it was written",
);

pub(super) const KEYS: &[Key] = &[AGE];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Age {
    Youngest,
    Root,
    Segment,
}

pub(super) struct CostBenefit {
    ages: Ages,
    age: Age,
    blocks: f64,
}

impl Made for CostBenefit {
    fn make(options: &Options, shape: &Shape) -> Result<CostBenefit, String> {
        let words = [("youngest", Age::Youngest), ("root", Age::Root), ("segment", Age::Segment)];
        let age = options.choice("age", &words)?;
        Ok(CostBenefit { ages: Ages::new(shape.segments), age, blocks: shape.segment_blocks.into() })
    }
}

impl Policy for CostBenefit {
    fn needs(&self) -> Needs {
        Needs { times: self.age != Age::Segment, ..Needs::default() }
    }

    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(0)
    }

    fn choose(&mut self, now: Ticks) -> Option<SegmentNo> {
        let blocks = self.blocks;
        // An empty segment costs nothing, because it is not read.
        let gain = |live: u32| match live {
            0 => 1e12,
            live => (blocks - f64::from(live)) / (blocks + f64::from(live)),
        };
        match self.age {
            Age::Root => self.ages.best(now, |live, age| gain(live) * (age as f64 + 1.0).sqrt()),
            Age::Youngest | Age::Segment => self.ages.best(now, |live, age| gain(live) * (age as f64 + 1.0)),
        }
    }

    fn closed(&mut self, segment: &Segment) {
        let stamp = match self.age {
            Age::Segment => segment.closed,
            Age::Youngest | Age::Root => segment.youngest,
        };
        self.ages.insert(segment.number, segment.live, stamp);
    }

    #[inline]
    fn died(&mut self, segment: SegmentNo, live: u32) {
        self.ages.died(segment, live);
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.ages.remove(segment.number);
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.ages.known()
    }
}
