//! Requests that wait for the drive, and the choice of the next one.
//!
//! Invariants
//!   Q1  Every waiting request has one slot; where its age counts, the list of arrivals goes through all of them, the oldest first.
//!   Q2  Unless they are served in the order of arrival, `order` has each of them once, by what the scheduler goes by (address
//!       or cylinder) and then by arrival, so that of equal requests the one that came first is found first.
//!   Q3  Requests are added in the order of the times at which they arrived.
//!
//! What a choice costs, with `n` waiting requests: FCFS nothing that depends on `n`, C-LOOK and SSTF a few steps down a
//! heap. SPTF looks at requests by distance from the heads and stops where the seek alone takes longer than the best
//! request takes in all: the more wait, the fewer cylinders those are.

use std::collections::BTreeMap;

use super::halves::{Below, Entry, Halves};
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

/// When a request will probably be chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Coming {
    Next,
    /// After a few others.
    Soon,
}

/// Waiting requests, in the order of their arrival and in that of the scheduler.
#[derive(Debug)]
pub(super) struct Queue<T> {
    scheduler: Scheduler,
    slots: Vec<Slot<T>>,
    /// Where the first sector of the request in each slot lies, for SPTF.
    spots: Vec<Spot>,
    /// First of the slots that are free; they are linked by `later`.
    free: u32,
    oldest: u32,
    newest: u32,
    len: usize,
    arrivals: u64,
    order: Order,
}

/// Slots as the scheduler looks for them. A drive has one, so its size does not matter.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)]
enum Order {
    /// In the list of arrivals.
    Arrival,
    /// C-LOOK and SSTF.
    Halves(Halves),
    /// SPTF, which goes through them.
    Tree(BTreeMap<QueueKey, u32>),
}

/// Where the tree has a request: its address or cylinder, above the number of its arrival. One number is compared faster than
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
}

/// In a cache line of its own: of 65,536 requests that wait, the next one is in no cache.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<T> {
    /// `None` in a free slot.
    waiting: Option<Waiting<T>>,
    /// What the scheduler goes by.
    key: u64,
    arrival: u64,
    earlier: u32,
    later: u32,
}

/// No slot.
const NONE: u32 = u32::MAX;

impl<T> Queue<T> {
    pub(super) fn new(scheduler: Scheduler) -> Queue<T> {
        let (free, oldest, newest) = (NONE, NONE, NONE);
        let order = match scheduler {
            Scheduler::Fcfs => Order::Arrival,
            Scheduler::CLook => Order::Halves(Halves::new(Below::Lowest)),
            Scheduler::Sstf => Order::Halves(Halves::new(Below::Highest)),
            Scheduler::Sptf { .. } => Order::Tree(BTreeMap::new()),
        };
        Queue { scheduler, slots: Vec::new(), spots: Vec::new(), free, oldest, newest, len: 0, arrivals: 0, order }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a request for a drive whose mechanism is always the same.
    pub(super) fn push(&mut self, waiting: Waiting<T>, mechanism: &Mechanism) -> Ticket {
        let newest = self.slot(self.newest).and_then(|slot| slot.waiting.as_ref());
        debug_assert!(newest.is_none_or(|newest| newest.arrived <= waiting.arrived)); // Q3
        let sector = waiting.request.sector;
        let slot = if self.free == NONE { self.slots.len() as u32 } else { self.free };
        let key = match self.scheduler {
            Scheduler::Fcfs => 0,
            Scheduler::CLook => sector.0,
            Scheduler::Sstf => u64::from(mechanism.spot(sector).track.cylinder),
            Scheduler::Sptf { .. } => {
                let spot = mechanism.spot(sector);
                self.spots.resize(self.spots.len().max(slot as usize + 1), Spot::default());
                self.spots[slot as usize] = spot;
                u64::from(spot.track.cylinder)
            }
        };
        let arrival = self.arrivals;
        self.arrivals += 1;
        let filled = Slot { waiting: Some(waiting), key, arrival, earlier: self.newest, later: NONE };
        match self.slots.get_mut(slot as usize) {
            Some(empty) => {
                self.free = empty.later;
                *empty = filled;
            }
            None => self.slots.push(filled),
        }
        self.len += 1;
        match &mut self.order {
            Order::Arrival => self.link(slot),
            Order::Halves(halves) => halves.push(Entry { key, arrival, slot }),
            Order::Tree(tree) => {
                tree.insert(QueueKey::new(key, arrival), slot);
                self.link(slot);
            }
        }
        Ticket { slot, arrival }
    }

    /// Removes a request; `None` when it waits no longer.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Waiting<T>> {
        if !waits(&self.slots, ticket.slot, ticket.arrival) {
            return None;
        }
        let taken = self.take(ticket.slot);
        if let Order::Halves(halves) = &mut self.order {
            halves.forget(|slot, arrival| waits(&self.slots, slot, arrival));
        }
        taken
    }

    /// Replaces what is kept with a waiting request; does nothing when that has left the queue.
    pub(super) fn set_who(&mut self, ticket: Ticket, who: T) {
        if let Some(Slot { waiting: Some(waiting), arrival, .. }) = self.slots.get_mut(ticket.slot as usize)
            && *arrival == ticket.arrival
        {
            waiting.who = who;
        }
    }

    /// Removes and returns the request to serve at `now`, by a drive that is then idle and ended its last request
    /// before sector `position`.
    pub(super) fn next(&mut self, now: Nanos, position: u64, mechanism: &Mechanism) -> Option<(Ticket, Waiting<T>)> {
        let best = match &mut self.order {
            Order::Arrival => Some(self.oldest).filter(|&slot| slot != NONE),
            Order::Halves(halves) => {
                let place = match self.scheduler {
                    Scheduler::Sstf => u64::from(mechanism.cylinder()),
                    _ => position,
                };
                halves.next(place, |slot, arrival| waits(&self.slots, slot, arrival)).map(|entry| entry.slot)
            }
            Order::Tree(_) => self.shortest(now, mechanism),
        }?;
        let arrival = self.slot(best)?.arrival;
        Some((Ticket { slot: best, arrival }, self.take(best)?))
    }

    /// Lets the processor fetch what the next choices need: of 65,536 requests that wait, each slot is in no cache, and neither is what it
    /// leads to. `fetch` gets what is kept with a request that will be chosen soon.
    pub(super) fn fetch_coming(&mut self, fetch: impl Fn(Coming, &T)) {
        let Order::Halves(halves) = &mut self.order else { return };
        for (level, slot) in halves.take_coming() {
            match (level, self.slots.get_mut(slot as usize)) {
                // Written and not read, which the processor would wait for. It means nothing: these orders have no links.
                (2, Some(slot)) => slot.earlier = NONE,
                (1, Some(Slot { waiting: Some(waiting), .. })) => fetch(Coming::Soon, &waiting.who),
                (0, Some(Slot { waiting: Some(waiting), .. })) => fetch(Coming::Next, &waiting.who),
                _ => {}
            }
        }
    }

    /// The request with the shortest time to its first sector, less what its age counts; of equal ones the oldest.
    ///
    /// Goes through the requests in two orders at once, by distance from the heads and by age. What neither has reached is at
    /// least as far and at most as old as the next of both, which bounds it from below.
    fn shortest(&self, now: Nanos, mechanism: &Mechanism) -> Option<u32> {
        let (Order::Tree(tree), Scheduler::Sptf { age_micros }) = (&self.order, self.scheduler) else {
            unreachable!("others have no tree")
        };
        let age_micros = u128::from(age_micros);
        let credit = |waiting: &Waiting<T>| {
            (u128::from(now.saturating_sub(waiting.arrived).0) * age_micros / 1000) as i128 // Below 2⁶⁴ · 2³².
        };
        let rank = |slot: u32| {
            let Some(Slot { waiting: Some(waiting), arrival, .. }) = self.slot(slot) else { unreachable!("Q1, Q2") };
            let time = mechanism.access_time(now, &self.spots[slot as usize], waiting.request.write);
            (i128::from(time.0) - credit(waiting), *arrival, slot)
        };
        let here = u64::from(mechanism.cylinder());
        let distance = |(place, _): &(&QueueKey, &u32)| place.key().abs_diff(here);
        let mut above = tree.range(QueueKey::start(here)..).peekable();
        let mut below = tree.range(..QueueKey::start(here)).rev().peekable();
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

    /// Puts a slot at the end of the list of arrivals.
    fn link(&mut self, slot: u32) {
        *self.later_of(self.newest) = slot;
        self.newest = slot;
    }

    /// Empties a slot.
    fn take(&mut self, slot: u32) -> Option<Waiting<T>> {
        let free = self.free;
        let taken = self.slots.get_mut(slot as usize)?;
        let waiting = taken.waiting.take()?;
        let Slot { key, arrival, earlier, later, .. } = *taken;
        taken.later = free;
        self.free = slot;
        self.len -= 1;
        if let Order::Tree(tree) = &mut self.order {
            tree.remove(&QueueKey::new(key, arrival));
        }
        if !matches!(self.order, Order::Halves(_)) {
            *self.later_of(earlier) = later;
            *self.earlier_of(later) = earlier;
        }
        Some(waiting)
    }
}

/// Whether the request that arrived with this number still waits in the slot.
fn waits<T>(slots: &[Slot<T>], slot: u32, arrival: u64) -> bool {
    slots.get(slot as usize).is_some_and(|slot| slot.waiting.is_some() && slot.arrival == arrival)
}

#[cfg(test)]
impl<T> Queue<T> {
    /// Recounts everything.
    pub(super) fn check(&self) {
        let (mut slot, mut earlier, mut count) = (self.oldest, NONE, 0);
        let mut arrivals = Vec::new();
        while let Some(Slot { waiting, key, arrival, earlier: back, later, .. }) = self.slot(slot) {
            assert!(waiting.is_some() && *back == earlier, "Q1");
            if let Order::Tree(tree) = &self.order {
                assert!(tree.get(&QueueKey::new(*key, *arrival)) == Some(&slot), "Q2");
            }
            arrivals.push(*arrival);
            (earlier, slot, count) = (slot, *later, count + 1);
        }
        match &self.order {
            Order::Halves(halves) => halves.check(|slot, arrival| waits(&self.slots, slot, arrival), self.len),
            Order::Tree(tree) => assert!(tree.len() == count, "Q2"),
            Order::Arrival => {}
        }
        let linked = if let Order::Halves(_) = self.order { 0 } else { self.len };
        assert!(count == linked && earlier == self.newest && arrivals.is_sorted(), "Q1");
        let mut free = 0;
        let mut slot = self.free;
        while let Some(Slot { waiting: None, later, .. }) = self.slot(slot) {
            (slot, free) = (*later, free + 1);
        }
        assert!(free + self.len == self.slots.len(), "Q1");
    }
}
