//! How policies with several heads choose a victim, whichever head wrote it.

use crate::cleaning::index::{Ages, Buckets};
use crate::cleaning::policy::{Segment, SegmentNo, Shape, Ticks};
use crate::cleaning::words::{Key, Options};

pub(super) const SELECT: Key =
    Key::new("select", "cost-benefit", "which segment: greedy, or cost-benefit with the root of the segment's age");

/// The victims of a policy that separates blocks.
pub(super) enum Select {
    Greedy(Buckets),
    /// `(1 - u) / u * sqrt(age)`, with the age of the segment, as SepBIT's simulator has it.
    CostBenefit(Ages, u32),
}

impl Select {
    pub(super) fn parse(options: &Options, shape: &Shape) -> Result<Select, String> {
        let is_greedy = options.choice("select", &[("greedy", true), ("cost-benefit", false)])?;
        Ok(match is_greedy {
            true => Select::Greedy(Buckets::new(shape.segments, shape.segment_blocks)),
            false => Select::CostBenefit(Ages::new(shape.segments), shape.segment_blocks),
        })
    }

    pub(super) fn choose(&mut self, now: Ticks) -> Option<SegmentNo> {
        match self {
            Select::Greedy(buckets) => buckets.emptiest(),
            Select::CostBenefit(ages, blocks) => {
                let blocks = f64::from(*blocks);
                ages.best(now, |live, age| gain_by_moved(live, blocks) * (age as f64 + 1.0).sqrt())
            }
        }
    }

    pub(super) fn closed(&mut self, segment: &Segment) {
        match self {
            Select::Greedy(buckets) => buckets.insert(segment.number, segment.live),
            Select::CostBenefit(ages, _) => ages.insert(segment.number, segment.live, segment.closed),
        }
    }

    #[inline]
    pub(super) fn died(&mut self, segment: SegmentNo, live: u32) {
        match self {
            Select::Greedy(buckets) => buckets.died(segment, live),
            Select::CostBenefit(ages, _) => ages.died(segment, live),
        }
    }

    pub(super) fn cleaned(&mut self, segment: &Segment) {
        match self {
            Select::Greedy(buckets) => buckets.remove(segment.number),
            Select::CostBenefit(ages, _) => ages.remove(segment.number),
        }
    }

    pub(super) fn known(&self) -> Vec<(SegmentNo, u32)> {
        match self {
            Select::Greedy(buckets) => buckets.known(),
            Select::CostBenefit(ages, _) => ages.known(),
        }
    }
}

/// Space gained for each block moved; an empty segment is better than all others.
#[inline]
pub(super) fn gain_by_moved(live: u32, blocks: f64) -> f64 {
    match live {
        0 => 1e12,
        live => (blocks - f64::from(live)) / f64::from(live),
    }
}

/// The methods of [`Policy`](crate::cleaning::Policy) that pass to a [`Select`].
macro_rules! passes_to {
    ($field:tt) => {
        fn choose(&mut self, now: $crate::cleaning::policy::Ticks) -> Option<$crate::cleaning::policy::SegmentNo> {
            self.$field.choose(now)
        }

        fn closed(&mut self, segment: &$crate::cleaning::policy::Segment) {
            self.$field.closed(segment);
        }

        #[inline]
        fn died(&mut self, segment: $crate::cleaning::policy::SegmentNo, live: u32) {
            self.$field.died(segment, live);
        }

        fn known(&self) -> Vec<($crate::cleaning::policy::SegmentNo, u32)> {
            self.$field.known()
        }
    };
}
pub(super) use passes_to;
