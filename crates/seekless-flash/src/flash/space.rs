//! Space in the write buffer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::units::Nanos;

#[derive(Clone, Debug)]
pub(super) struct Space {
    capacity: u64,
    used: u64,
    /// When space becomes free, and how much.
    releases: BinaryHeap<Reverse<(Nanos, u32)>>,
}

impl Space {
    /// Room for `capacity` units.
    pub(super) fn new(capacity: u64) -> Space {
        Space { capacity, used: 0, releases: BinaryHeap::new() }
    }

    /// Takes the space of a unit from `at` on; returns when there is some. What waits for a whole stripe never takes all of it,
    /// so that there will be some.
    pub(super) fn take(&mut self, mut at: Nanos) -> Nanos {
        while let Some(Reverse((free, count))) = self.releases.peek().copied() {
            if free > at && self.used < self.capacity {
                break;
            }
            at = at.max(free);
            self.used -= u64::from(count);
            self.releases.pop();
        }
        self.used += 1;
        at
    }

    /// `units` become free at `at`.
    pub(super) fn release(&mut self, at: Nanos, units: u32) {
        if units > 0 {
            self.releases.push(Reverse((at, units)));
        }
    }

    /// Recounts: what is used either waits or leaves.
    #[cfg(test)]
    pub(super) fn check(&self, waiting: u64) {
        let leaving: u64 = self.releases.iter().map(|Reverse((_, count))| u64::from(*count)).sum();
        assert_eq!(self.used, leaving + waiting, "space of units that wait and that leave");
        assert!(self.used <= self.capacity);
    }
}
