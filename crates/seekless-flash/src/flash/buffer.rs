//! The write buffer in the drive's memory: which units wait in it, and when their space is free again.
//!
//! Units leave in the order in which they came, a whole stripe at a time. A stripe leaves when a unit beyond it arrives, so that
//! small sequential writes complete their unit first. A unit's space is free when the stripe is programmed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::space::Space;
use crate::units::Nanos;

#[derive(Clone, Debug)]
pub(super) struct Buffer {
    space: Space,
    /// Units whose stripe is not complete, oldest first.
    waiting: VecDeque<Waiting>,
    /// Units of stripes that are being programmed, and until when they are here.
    leaving: BTreeMap<u32, Nanos>,
    ends: BinaryHeap<Reverse<(Nanos, u32)>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) unit: u32,
    /// When its data is here.
    pub(super) ready: Nanos,
    /// A bit for each of its sectors that is here.
    pub(super) sectors: u8,
    /// The garbage collection brought it; it takes no space of the host's.
    pub(super) moved: bool,
}

/// All sectors of a unit.
pub(super) const WHOLE: u8 = 0xff;

impl Buffer {
    /// Room for `capacity` units.
    pub(super) fn new(capacity: u64) -> Buffer {
        Buffer {
            space: Space::new(capacity),
            waiting: VecDeque::new(),
            leaving: BTreeMap::new(),
            ends: BinaryHeap::new(),
        }
    }

    /// When a unit that the host sends at `at` is in the buffer.
    pub(super) fn admit(&mut self, at: Nanos, unit: u32, sectors: u8) -> Nanos {
        if let Some(same) = self.waiting.iter_mut().find(|waiting| waiting.unit == unit) {
            same.sectors |= sectors;
            same.ready = same.ready.max(at);
            if !same.moved {
                return at;
            }
            // A newer version of what the garbage collection moves: it needs space as any other.
            same.moved = false;
            let ready = self.space.take(at);
            self.waiting.iter_mut().filter(|waiting| waiting.unit == unit).for_each(|same| same.ready = ready);
            return ready;
        }
        let ready = self.space.take(at);
        self.waiting.push_back(Waiting { unit, ready, sectors, moved: false });
        ready
    }

    /// Adds a unit that the garbage collection moves, and that is not here yet.
    pub(super) fn push_moved(&mut self, unit: u32, ready: Nanos) {
        self.waiting.push_back(Waiting { unit, ready, sectors: WHOLE, moved: true });
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has(&self, unit: u32) -> bool {
        self.waiting.iter().any(|waiting| waiting.unit == unit)
    }

    /// The oldest units, of one stripe; their space is free at the time that [`Buffer::programmed`] will say.
    pub(super) fn take(&mut self, units: usize) -> Vec<Waiting> {
        let units = units.min(self.waiting.len());
        self.waiting.drain(..units).collect()
    }

    /// The stripe with these units will be programmed at `end`.
    pub(super) fn programmed(&mut self, stripe: &[Waiting], end: Nanos) {
        let space = stripe.iter().filter(|waiting| !waiting.moved).count() as u32;
        self.space.release(end, space);
        for waiting in stripe {
            self.leaving.insert(waiting.unit, end);
            self.ends.push(Reverse((end, waiting.unit)));
        }
    }

    /// Whether all of a unit's newest data is here at `at`.
    pub(super) fn serves(&self, at: Nanos, unit: u32) -> bool {
        match self.waiting.iter().find(|waiting| waiting.unit == unit) {
            Some(waiting) => waiting.sectors == WHOLE,
            None => self.leaving.get(&unit).is_some_and(|end| *end > at),
        }
    }

    /// Drops units that hold nothing any more. The space of those that wait is free at `now`.
    pub(super) fn discard(&mut self, now: Nanos, units: std::ops::Range<u32>) {
        let mut dropped = 0;
        self.waiting.retain(|waiting| {
            let keep = !units.contains(&waiting.unit);
            dropped += u32::from(!keep && !waiting.moved);
            keep
        });
        self.space.release(now, dropped);
        let gone: Vec<u32> = self.leaving.range(units).map(|(unit, _)| *unit).collect();
        for unit in gone {
            self.leaving.remove(&unit);
        }
    }

    /// Forgets what was programmed before `now`.
    pub(super) fn expire(&mut self, now: Nanos) {
        while let Some(Reverse((end, unit))) = self.ends.peek().copied().filter(|Reverse((end, _))| *end <= now) {
            self.ends.pop();
            if self.leaving.get(&unit) == Some(&end) {
                self.leaving.remove(&unit);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let waiting = self.waiting.iter().filter(|waiting| !waiting.moved).count() as u64;
        self.space.check(waiting);
    }
}
