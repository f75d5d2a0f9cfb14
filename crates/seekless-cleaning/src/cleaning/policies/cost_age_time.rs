//! Cost-age-times (Chiang and Chang 1999): cost-benefit with the number of times that a segment was cleaned as a further
//! factor, so that wear spreads, and a head of its own for blocks that have been moved.
//!
//! The victim has the least `u / (1 - u) * 1 / age * times`, with the age of the segment. `times` is taken as a multiple
//! of the mean, in classes, because each class can have an index of its own.

use super::select::gain_by_moved;
use super::{Made, Options};
use crate::cleaning::index::Ages;
use crate::cleaning::policy::{Destination, Fresh, Moved, Policy, Segment, SegmentNo, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] = &[];

/// The least multiple of the mean in each class of wear, by which the score of its segments is divided. Less wear than the
/// mean is no advantage.
const CLASSES: [f64; 6] = [1.0, 1.2, 1.5, 2.0, 3.0, 5.0];

pub(super) struct CostAgeTime {
    ages: Vec<Ages>,
    blocks: f64,
    /// Class of each segment, from when it is closed.
    class: Vec<u8>,
    times: Vec<u32>,
    all: u64,
}

impl Made for CostAgeTime {
    fn make(_: &Options, shape: &Shape) -> Result<CostAgeTime, String> {
        Ok(CostAgeTime {
            ages: CLASSES.iter().map(|_| Ages::new(shape.segments)).collect(),
            blocks: shape.segment_blocks.into(),
            class: vec![0; shape.segments as usize],
            times: vec![0; shape.segments as usize],
            all: 0,
        })
    }
}

impl Policy for CostAgeTime {
    fn heads(&self) -> u8 {
        2
    }

    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(1)
    }

    fn choose(&mut self, now: Ticks) -> Option<SegmentNo> {
        let blocks = self.blocks;
        let score = |live, age| gain_by_moved(live, blocks) * (age as f64 + 1.0);
        let scored = self.ages.iter_mut().zip(CLASSES).filter_map(|(ages, wear)| {
            let (score, segment) = ages.best_with_score(now, score)?;
            Some((score / wear, segment))
        });
        scored.reduce(|one, two| if two.0 > one.0 { two } else { one }).map(|(_, segment)| segment)
    }

    fn closed(&mut self, segment: &Segment) {
        let number = segment.number as usize;
        let mean = (self.all as f64 / self.times.len() as f64).max(1.0);
        let wear = f64::from(self.times[number]) / mean;
        let class = CLASSES.partition_point(|least| *least <= wear).max(1) - 1;
        self.class[number] = class as u8;
        self.ages[class].insert(segment.number, segment.live, segment.closed);
    }

    #[inline]
    fn died(&mut self, segment: SegmentNo, live: u32) {
        self.ages[usize::from(self.class[segment as usize])].died(segment, live);
    }

    fn cleaned(&mut self, segment: &Segment) {
        let number = segment.number as usize;
        self.ages[usize::from(self.class[number])].remove(segment.number);
        self.times[number] += 1;
        self.all += 1;
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.ages.iter().flat_map(Ages::known).collect()
    }
}
