//! Waiting requests on either side of a place, the next one of each side at hand.
//!
//! A search tree finds the request at or after a place, too, and C-LOOK and SSTF ask for nothing else: but between two choices the
//! place hardly passes a request. So each side is a heap, and a request that was passed changes sides; it does so at most once
//! before it, or all that lie between it and the heads, are served. A tree took five times the instructions.
//!
//! Of many requests at one address, a sweep of C-LOOK serves one and passes the others, again and again. So those that it passes become a
//! *chain*, which has one entry in a heap, that of its oldest request: each request is moved alone at most once.
//!
//! A request that waits no longer is dropped when it comes up.
//!
//! Invariants
//!   H1  Requests of one key are all on the same side of the place.
//!   H2  A chain is never empty, its requests are in the order of their arrival, and others of its key arrived later.

use std::collections::VecDeque;

use super::heap::Heap;

/// Which request of those below the place is the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Below {
    /// The lowest, once nothing is above: a sweep begins again.
    Lowest,
    /// The highest, which is nearest.
    Highest,
}

/// A waiting request: its key, which is an address or a cylinder, and the number of its arrival. Of equal keys the older one is
/// first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) arrival: u64,
    /// That of a request; within a heap, with [`CHAIN`] the number of a chain.
    pub(super) slot: u32,
}

/// A bit that no slot has: two billion requests do not wait.
const CHAIN: u32 = 1 << 31;

impl Entry {
    fn chain(self) -> Option<usize> {
        (self.slot & CHAIN != 0).then_some((self.slot & !CHAIN) as usize)
    }

    /// One number to compare, of half the size: the key, the arrival, the slot. A layout has less than 2⁴⁰ sectors (256 zones of 2³²),
    /// and 2⁴⁸ requests are those of years.
    fn pack(self) -> u128 {
        debug_assert!(self.key <= KEY_MAX && self.arrival >> 48 == 0);
        u128::from(self.key) << 80 | u128::from(self.arrival) << 32 | u128::from(self.slot)
    }

    fn unpack(packed: u128) -> Entry {
        Entry { key: (packed >> 80) as u64, arrival: (packed >> 32) as u64 & ARRIVAL_MAX, slot: packed as u32 }
    }
}

const KEY_MAX: u64 = (1 << 48) - 1;
const ARRIVAL_MAX: u64 = (1 << 48) - 1;

#[derive(Debug)]
pub(super) struct Halves {
    kind: Below,
    /// Requests whose keys are not below `place`, the lowest first.
    above: Heap,
    /// The others, the lowest or the highest first; see [`Halves::turned`].
    below: Heap,
    place: u64,
    /// Requests of one key: arrival and slot of each. Those that are free are empty.
    chains: Vec<VecDeque<(u64, u32)>>,
    free_chains: Vec<usize>,
    /// Requests in chains that have no entry of their own.
    chained: usize,
    /// Entries of requests that wait no longer.
    gone: usize,
}

/// One of the two halves.
#[derive(Clone, Copy)]
enum Side {
    Above,
    Below,
}

/// Fewer requests that wait no longer are not looked for.
const GONE_MIN: usize = 64;

impl Halves {
    pub(super) fn new(kind: Below) -> Halves {
        let (above, below, chains, free_chains) = (Heap::new(), Heap::new(), Vec::new(), Vec::new());
        Halves { kind, above, below, place: 0, chains, free_chains, chained: 0, gone: 0 }
    }

    pub(super) fn push(&mut self, entry: Entry) {
        if self.above.is_empty() && self.below.is_empty() {
            // The heads have been anywhere since. What is above of nothing is soon put right.
            self.place = 0;
        }
        debug_assert!(entry.chain().is_none());
        self.put(entry);
    }

    /// Notes that a request waits no longer. `waits` says which do, by slot and arrival.
    pub(super) fn forget(&mut self, waits: impl Fn(u32, u64) -> bool) {
        self.gone += 1;
        if self.gone > GONE_MIN.max((self.above.len() + self.below.len() + self.chained) / 2) {
            for side in [Side::Above, Side::Below] {
                for packed in std::mem::replace(self.half(side), Heap::new()).iter() {
                    let entry = Entry::unpack(packed);
                    match entry.chain() {
                        None if waits(entry.slot, entry.arrival) => self.half(side).push(packed),
                        None => {}
                        Some(chain) => {
                            let requests = &mut self.chains[chain];
                            self.chained -= requests.len() - 1;
                            requests.retain(|&(arrival, slot)| waits(slot, arrival));
                            match requests.front() {
                                Some(&(arrival, _)) => {
                                    self.chained += requests.len() - 1;
                                    self.half(side).push(Entry { arrival, ..entry }.pack());
                                }
                                None => self.free_chains.push(chain),
                            }
                        }
                    }
                }
            }
            self.gone = 0;
        }
    }

    fn half(&mut self, side: Side) -> &mut Heap {
        match side {
            Side::Above => &mut self.above,
            Side::Below => &mut self.below,
        }
    }

    /// Takes out the first request of a half.
    fn pop(&mut self, side: Side) -> Option<Entry> {
        let entry = Entry::unpack(self.half(side).pop()?);
        let Some(chain) = entry.chain() else { return Some(entry) };
        let Some((arrival, slot)) = self.chains[chain].pop_front() else { unreachable!("H2: a chain is never empty") };
        debug_assert_eq!(arrival, entry.arrival, "H2");
        match self.chains[chain].front() {
            Some(&(next, _)) => {
                self.chained -= 1;
                self.half(side).push(Entry { arrival: next, ..entry }.pack());
            }
            None => self.free_chains.push(chain),
        }
        Some(Entry { arrival, slot, ..entry })
    }

    /// Removes the next request for heads at `place`.
    ///
    /// Of many requests the slots are in no cache. So this also looks at those that are first now: the processor fetches
    /// them while it does the rest, and they are at hand when they are asked for.
    pub(super) fn next(&mut self, place: u64, waits: impl Fn(u32, u64) -> bool) -> Option<Entry> {
        self.turn_to(place);
        self.drop_gone(&waits);
        let next = match self.kind {
            Below::Lowest => self.next_of_sweep(),
            Below::Highest => self.nearest(),
        };
        self.drop_gone(&waits);
        next
    }

    /// Slots of requests that have just come near the top of a half, with their level below it, 0 to 2: the lower, the sooner they will
    /// probably be chosen.
    pub(super) fn take_coming(&mut self) -> impl Iterator<Item = (usize, u32)> {
        let risen = [self.above.take_risen(), self.below.take_risen()];
        let coming = |(level, packed): (usize, Option<u128>)| Some((level, Entry::unpack(packed?)));
        let entries = risen.into_iter().flat_map(move |risen| risen.into_iter().enumerate().filter_map(coming));
        entries.filter(|(_, entry)| entry.chain().is_none()).map(|(level, entry)| (level, entry.slot))
    }

    /// Drops what comes up and waits no longer.
    fn drop_gone(&mut self, waits: impl Fn(u32, u64) -> bool) {
        for side in [Side::Above, Side::Below] {
            while let Some(first) = self.half(side).peek().map(Entry::unpack) {
                let slot = match first.chain() {
                    Some(chain) => self.chains[chain].front().map_or(first.slot, |&(_, slot)| slot),
                    None => first.slot,
                };
                if waits(slot, first.arrival) {
                    break;
                }
                self.pop(side);
                self.gone -= 1;
            }
        }
    }

    /// The next request at or after the place, and if there is none the lowest.
    fn next_of_sweep(&mut self) -> Option<Entry> {
        if self.above.is_empty() {
            std::mem::swap(&mut self.above, &mut self.below);
        }
        let entry = self.pop(Side::Above)?;
        // What comes from now on and is below this one belongs to the next sweep.
        self.place = entry.key;
        Some(entry)
    }

    /// The request nearest to the place; of equally near ones the oldest.
    fn nearest(&mut self) -> Option<Entry> {
        let above = self.above.peek().map(Entry::unpack);
        let below = self.below.peek().map(|packed| self.turned(Entry::unpack(packed)));
        let rank = |entry: &Entry| (entry.key.abs_diff(self.place), entry.arrival);
        match (above, below) {
            (Some(above), Some(below)) if rank(&above) < rank(&below) => self.above.pop().map(|_| above),
            (above, None) => self.above.pop().and(above),
            (_, below) => self.below.pop().and(below),
        }
    }

    /// Moves to the other side what is on the wrong one of `place`.
    fn turn_to(&mut self, place: u64) {
        let back = std::mem::replace(&mut self.place, place) > place;
        while let Some(lowest) = self.above.peek().map(Entry::unpack)
            && lowest.key < place
        {
            self.above.pop();
            match self.kind {
                Below::Highest => self.put(lowest),
                Below::Lowest => self.pass(lowest),
            }
        }
        match self.kind {
            Below::Highest => {
                while let Some(highest) = self.below.peek().map(|packed| self.turned(Entry::unpack(packed)))
                    && highest.key >= place
                {
                    self.below.pop();
                    self.put(highest);
                }
            }
            // A sweep goes up only; a request behind the head pays for the way back.
            Below::Lowest if back => {
                for packed in std::mem::replace(&mut self.below, Heap::new()).iter() {
                    self.put(Entry::unpack(packed));
                }
            }
            Below::Lowest => {}
        }
    }

    /// Moves below what the heads have passed: `first`, which was just taken out, and all others of its key (H1), as a chain.
    fn pass(&mut self, first: Entry) {
        let mut first = first;
        while let Some(same) = self.above.peek().map(Entry::unpack)
            && same.key == first.key
        {
            self.above.pop();
            let chain = match first.chain() {
                Some(chain) => chain,
                None => {
                    let chain = self.free_chains.pop().unwrap_or_else(|| {
                        self.chains.push(VecDeque::new());
                        self.chains.len() - 1
                    });
                    self.chains[chain].push_back((first.arrival, first.slot));
                    first.slot = CHAIN | chain as u32;
                    chain
                }
            };
            debug_assert!(same.chain().is_none(), "H2: a chain is the oldest of its key");
            debug_assert!(self.chains[chain].back().is_some_and(|&(arrival, _)| arrival < same.arrival), "H2");
            self.chains[chain].push_back((same.arrival, same.slot));
            self.chained += 1;
        }
        self.put(first);
    }

    /// On its side of the place.
    fn put(&mut self, entry: Entry) {
        match entry.key >= self.place {
            true => self.above.push(entry.pack()),
            false => self.below.push(self.turned(entry).pack()),
        }
    }

    /// An entry as the half below has it, and back.
    fn turned(&self, entry: Entry) -> Entry {
        match self.kind {
            Below::Lowest => entry,
            Below::Highest => Entry { key: KEY_MAX - entry.key, ..entry },
        }
    }

    /// Those that wait, and as many that are gone as were counted.
    #[cfg(test)]
    pub(super) fn check(&self, waits: impl Fn(u32, u64) -> bool, waiting: usize) {
        let above: Vec<Entry> = self.above.iter().map(Entry::unpack).collect();
        let below: Vec<Entry> = self.below.iter().map(|packed| self.turned(Entry::unpack(packed))).collect();
        assert!(
            above.iter().all(|entry| entry.key >= self.place) && below.iter().all(|entry| entry.key < self.place),
            "H1"
        );
        let entries = above.len() + below.len();
        let requests = above.into_iter().chain(below).flat_map(|entry| match entry.chain() {
            None => vec![entry],
            Some(chain) => {
                let all = &self.chains[chain];
                assert!(all[0].0 == entry.arrival && all.iter().is_sorted(), "H2");
                all.iter().map(|&(arrival, slot)| Entry { arrival, slot, ..entry }).collect()
            }
        });
        let (here, gone): (Vec<Entry>, Vec<Entry>) = requests.partition(|entry| waits(entry.slot, entry.arrival));
        assert!(here.len() == waiting && gone.len() == self.gone, "{} of {waiting}, {}", here.len(), gone.len());
        assert_eq!(here.len() + gone.len(), entries + self.chained);
        assert!(self.free_chains.iter().all(|&chain| self.chains[chain].is_empty()));
        assert!(self.gone <= GONE_MIN.max((here.len() + gone.len()) / 2));
    }
}
