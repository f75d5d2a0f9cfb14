//! Requests that wait for the drive, and the choice of the next one.
//!
//! Invariants
//!   Q1  Every waiting request has one slot; the list of arrivals goes through all of them, the oldest first.
//!   Q2  Unless they are served in the order of arrival, `order` has each of them once, by what the scheduler goes by (address
//!       or cylinder) and then by arrival, so that of equal requests the one that came first is found first.
//!   Q3  Requests are added in the order of the times at which they arrived.
//!
//! What a choice costs, with `n` waiting requests: FCFS nothing that depends on `n`, C-LOOK and SSTF a few steps down a
//! tree. SPTF looks at requests by distance from the heads and stops where the seek alone takes longer than the best
//! request takes in all: the more wait, the fewer cylinders those are.

use std::collections::BTreeMap;

use super::mechanism::{Mechanism, Request, Spot};
use super::scheduler::Scheduler;
use crate::units::Nanos;

/// A waiting request.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) arrived: Nanos,
    /// Lies inside the drive.
    pub(super) request: Request,
    pub(super) who: T,
}

/// Finds a waiting request again, while it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    slot: u32,
    arrival: u64,
}

/// Waiting requests, in the order of their arrival and in that of the scheduler.
#[derive(Debug)]
pub(super) struct Queue<T> {
    scheduler: Scheduler,
    slots: Vec<Slot<T>>,
    /// First of the slots that are free; they are linked by `later`.
    free: u32,
    oldest: u32,
    newest: u32,
    len: usize,
    arrivals: u64,
    /// Slots by their places.
    order: BTreeMap<QueueKey, u32>,
}

/// Where `order` has a request: its address or cylinder, above the number of its arrival. One number is compared faster than
/// two.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct QueueKey(u128);

impl QueueKey {
    fn new(key: u64, arrival: u64) -> QueueKey {
        QueueKey(u128::from(key) << 64 | u128::from(arrival))
    }

    /// Before all requests of `key`.
    fn start(key: u64) -> QueueKey {
        QueueKey::new(key, 0)
    }

    fn key(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn arrival(self) -> u64 {
        self.0 as u64
    }
}

#[derive(Debug)]
struct Slot<T> {
    /// `None` in a free slot.
    waiting: Option<Waiting<T>>,
    /// Where its first sector lies, for schedulers that go by that.
    spot: Spot,
    place: QueueKey,
    earlier: u32,
    later: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;

impl<T> Queue<T> {
    pub(super) fn new(scheduler: Scheduler) -> Queue<T> {
        let (free, oldest, newest) = (NONE, NONE, NONE);
        Queue { scheduler, slots: Vec::new(), free, oldest, newest, len: 0, arrivals: 0, order: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a request for a drive whose mechanism is always the same.
    pub(super) fn push(&mut self, waiting: Waiting<T>, mechanism: &Mechanism) -> Ticket {
        let newest = self.slot(self.newest).and_then(|slot| slot.waiting.as_ref());
        debug_assert!(newest.is_none_or(|newest| newest.arrived <= waiting.arrived)); // Q3
        let sector = waiting.request.sector;
        let (key, spot) = match self.scheduler {
            Scheduler::Fcfs => (0, Spot::default()),
            Scheduler::CLook => (sector.0, Spot::default()),
            Scheduler::Sstf | Scheduler::Sptf { .. } => {
                let spot = mechanism.spot(sector);
                (u64::from(spot.track.cylinder), spot)
            }
        };
        let slot = if self.free == NONE { self.slots.len() as u32 } else { self.free };
        let arrival = self.arrivals;
        self.arrivals += 1;
        let place = QueueKey::new(key, arrival);
        let filled = Slot { waiting: Some(waiting), spot, place, earlier: self.newest, later: NONE };
        match self.slots.get_mut(slot as usize) {
            Some(empty) => {
                self.free = empty.later;
                *empty = filled;
            }
            None => self.slots.push(filled),
        }
        *self.later_of(self.newest) = slot;
        self.newest = slot;
        self.len += 1;
        if self.scheduler != Scheduler::Fcfs {
            self.order.insert(place, slot);
        }
        Ticket { slot, arrival }
    }

    /// Removes a request; `None` when it waits no longer.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiting<T>> {
        let waits = |slot: &&Slot<T>| slot.waiting.is_some() && slot.place.arrival() == ticket.arrival;
        self.slots.get(ticket.slot as usize).filter(waits)?;
        self.take(ticket.slot)
    }

    /// Removes and returns the request to serve at `now`, by a drive that is then idle and ended its last request
    /// before sector `position`.
    pub(super) fn next(&mut self, now: Nanos, position: u64, mechanism: &Mechanism) -> Option<Waiting<T>> {
        let best = match self.scheduler {
            Scheduler::Fcfs => Some(self.oldest).filter(|&slot| slot != NONE),
            Scheduler::CLook => {
                let ahead = self.order.range(QueueKey::start(position)..).next();
                ahead.or_else(|| self.order.first_key_value()).map(|(_, &slot)| slot)
            }
            Scheduler::Sstf => self.nearest(mechanism.cylinder()),
            Scheduler::Sptf { age_micros } => self.shortest(now, u128::from(age_micros), mechanism),
        }?;
        self.take(best)
    }

    /// The request with the nearest cylinder; of equally near ones the oldest.
    fn nearest(&self, cylinder: u32) -> Option<u32> {
        let here = QueueKey::start(cylinder.into());
        let below = self.order.range(..here).next_back();
        let Some(above) = self.order.range(here..).next() else {
            return below.map(|below| self.oldest_beside(below));
        };
        let distance = |(place, _): (&QueueKey, &u32)| place.key().abs_diff(cylinder.into());
        let Some(below) = below.filter(|&below| distance(below) <= distance(above)) else {
            return Some(*above.1);
        };
        let equal = distance(below) == distance(above);
        let below = self.oldest_beside(below);
        let older = |slot: &u32| self.slot(*slot).map(|slot| slot.place.arrival());
        if equal { [*above.1, below].into_iter().min_by_key(older) } else { Some(below) }
    }

    /// The oldest request of a key, of which `youngest` is the youngest.
    fn oldest_beside(&self, (place, youngest): (&QueueKey, &u32)) -> u32 {
        self.order.range(QueueKey::start(place.key())..).next().map_or(*youngest, |(_, &slot)| slot)
    }

    /// The request with the shortest time to its first sector, less what its age counts; of equal ones the oldest.
    ///
    /// Goes through the requests in two orders at once, by distance from the heads and by age. What neither has reached is at
    /// least as far and at most as old as the next of both, which bounds it from below.
    fn shortest(&self, now: Nanos, age_micros: u128, mechanism: &Mechanism) -> Option<u32> {
        let credit = |waiting: &Waiting<T>| {
            (u128::from(now.saturating_sub(waiting.arrived).0) * age_micros / 1000) as i128 // Below 2⁶⁴ · 2³².
        };
        let rank = |slot: u32| {
            let Some(Slot { waiting: Some(waiting), spot, place, .. }) = self.slot(slot) else {
                unreachable!("Q1, Q2")
            };
            let time = mechanism.access_time(now, spot, waiting.request.write);
            (i128::from(time.0) - credit(waiting), place.arrival(), slot)
        };
        let here = u64::from(mechanism.cylinder());
        let distance = |(place, _): &(&QueueKey, &u32)| place.key().abs_diff(here);
        let mut above = self.order.range(QueueKey::start(here)..).peekable();
        let mut below = self.order.range(..QueueKey::start(here)).rev().peekable();
        let mut older = self.oldest;
        let mut best = (i128::MAX, u64::MAX, NONE);
        while let (Some(oldest), up, down) = (self.slot(older), above.peek().map(distance), below.peek().map(distance))
        {
            let Some(nearest) = up.into_iter().chain(down).min() else { break };
            let least = i128::from(mechanism.access_time_min(now, nearest as u32).0);
            if least - oldest.waiting.as_ref().map_or(0, credit) > best.0 {
                break;
            }
            let next = if up == Some(nearest) { above.next() } else { below.next() };
            best = next.map_or(best, |(_, &slot)| best.min(rank(slot)));
            if age_micros > 0 {
                best = best.min(rank(older));
                older = oldest.later;
            }
        }
        Some(best.2).filter(|&slot| slot != NONE)
    }

    fn slot(&self, slot: u32) -> Option<&Slot<T>> {
        self.slots.get(slot as usize)
    }

    /// The link to the slot that arrived after `slot`.
    fn later_of(&mut self, slot: u32) -> &mut u32 {
        match self.slots.get_mut(slot as usize) {
            Some(slot) => &mut slot.later,
            None => &mut self.oldest,
        }
    }

    /// The link to the slot that arrived before `slot`.
    fn earlier_of(&mut self, slot: u32) -> &mut u32 {
        match self.slots.get_mut(slot as usize) {
            Some(slot) => &mut slot.earlier,
            None => &mut self.newest,
        }
    }

    /// Empties a slot.
    fn take(&mut self, slot: u32) -> Option<Waiting<T>> {
        let free = self.free;
        let taken = self.slots.get_mut(slot as usize)?;
        let waiting = taken.waiting.take()?;
        let Slot { place, earlier, later, .. } = *taken;
        taken.later = free;
        self.free = slot;
        *self.later_of(earlier) = later;
        *self.earlier_of(later) = earlier;
        self.len -= 1;
        self.order.remove(&place);
        Some(waiting)
    }
}

#[cfg(test)]
impl<T> Queue<T> {
    /// Recounts everything.
    pub(super) fn check(&self) {
        let (mut slot, mut earlier, mut count) = (self.oldest, NONE, 0);
        let mut arrivals = Vec::new();
        while let Some(Slot { waiting, place, earlier: back, later, .. }) = self.slot(slot) {
            assert!(waiting.is_some() && *back == earlier, "Q1");
            assert!(self.scheduler == Scheduler::Fcfs || self.order.get(place) == Some(&slot), "Q2");
            arrivals.push(place.arrival());
            (earlier, slot, count) = (slot, *later, count + 1);
        }
        assert!(count == self.len && earlier == self.newest && arrivals.is_sorted(), "Q1");
        assert!(self.scheduler == Scheduler::Fcfs || self.order.len() == count, "Q2");
        let mut free = 0;
        let mut slot = self.free;
        while let Some(Slot { waiting: None, later, .. }) = self.slot(slot) {
            (slot, free) = (*later, free + 1);
        }
        assert!(free + count == self.slots.len(), "Q1");
    }
}
