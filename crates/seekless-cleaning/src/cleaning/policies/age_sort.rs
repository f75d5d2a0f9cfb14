//! Live blocks are sorted by age before they are written again, so that blocks of an age share segments [ro92 §3.5].

use super::{
    Made, Options,
    cost_benefit::{self, CostBenefit},
    greedy::Greedy,
};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Order, Policy, Segment, SegmentNo, Shape, Ticks};
use crate::cleaning::words::Key;

pub(super) const KEYS: &[Key] =
    &[Key::new("select", "cost-benefit", "which segment: greedy, or cost-benefit"), cost_benefit::AGE];

pub(super) enum AgeSort {
    Greedy(Greedy),
    CostBenefit(CostBenefit),
}

impl Made for AgeSort {
    fn make(options: &Options, shape: &Shape) -> Result<AgeSort, String> {
        Ok(match options.choice("select", &[("greedy", true), ("cost-benefit", false)])? {
            true => AgeSort::Greedy(Greedy::make(options, shape)?),
            false => AgeSort::CostBenefit(CostBenefit::make(options, shape)?),
        })
    }
}

impl Policy for AgeSort {
    fn needs(&self) -> Needs {
        Needs { times: true, ..Needs::default() }
    }

    fn order(&self) -> Order {
        Order::Age
    }

    fn write(&mut self, _: &Fresh) -> Destination {
        Destination::at(0)
    }

    fn relocate(&mut self, _: &Moved) -> Destination {
        Destination::at(0)
    }

    fn choose(&mut self, now: Ticks) -> Option<SegmentNo> {
        match self {
            AgeSort::Greedy(inner) => inner.choose(now),
            AgeSort::CostBenefit(inner) => inner.choose(now),
        }
    }

    fn closed(&mut self, segment: &Segment) {
        match self {
            AgeSort::Greedy(inner) => inner.closed(segment),
            AgeSort::CostBenefit(inner) => inner.closed(segment),
        }
    }

    #[inline]
    fn died(&mut self, segment: SegmentNo, live: u32) {
        match self {
            AgeSort::Greedy(inner) => inner.died(segment, live),
            AgeSort::CostBenefit(inner) => inner.died(segment, live),
        }
    }

    fn cleaned(&mut self, segment: &Segment) {
        match self {
            AgeSort::Greedy(inner) => inner.cleaned(segment),
            AgeSort::CostBenefit(inner) => inner.cleaned(segment),
        }
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        match self {
            AgeSort::Greedy(inner) => inner.known(),
            AgeSort::CostBenefit(inner) => inner.known(),
        }
    }
}
