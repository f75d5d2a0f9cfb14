//! Waiting requests on either side of a place, the next one of each side at hand.
//!
//! A search tree finds the request at or after a place, too, and C-LOOK and SSTF ask for nothing else: but between two choices the
//! place hardly passes a request. So each side is a heap, and a request that was passed changes sides; it does so at most once
//! before it, or all that lie between it and the heads, are served. A tree took five times the instructions.
//!
//! A request that waits no longer is dropped when it comes up.

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
    pub(super) slot: u32,
}

impl Entry {
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
    /// Entries of requests that wait no longer.
    gone: usize,
}

/// Fewer requests that wait no longer are not looked for.
const GONE_MIN: usize = 64;

impl Halves {
    pub(super) fn new(kind: Below) -> Halves {
        Halves { kind, above: Heap::new(), below: Heap::new(), place: 0, gone: 0 }
    }

    pub(super) fn push(&mut self, entry: Entry) {
        if self.above.is_empty() && self.below.is_empty() {
            // The heads have been anywhere since. What is above of nothing is soon put right.
            self.place = 0;
        }
        self.put(entry);
    }

    /// Notes that a request waits no longer. `waits` says which do, by slot and arrival.
    pub(super) fn forget(&mut self, waits: impl Fn(u32, u64) -> bool) {
        self.gone += 1;
        if self.gone > GONE_MIN.max((self.above.len() + self.below.len()) / 2) {
            for half in [&mut self.above, &mut self.below] {
                half.retain(|packed| is_waiting(packed, &waits));
            }
            self.gone = 0;
        }
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

    /// Drops what comes up and waits no longer.
    fn drop_gone(&mut self, waits: impl Fn(u32, u64) -> bool) {
        for half in [&mut self.above, &mut self.below] {
            while half.peek().is_some_and(|packed| !is_waiting(packed, &waits)) {
                half.pop();
                self.gone -= 1;
            }
        }
    }

    /// The next request at or after the place, and if there is none the lowest.
    fn next_of_sweep(&mut self) -> Option<Entry> {
        if self.above.is_empty() {
            std::mem::swap(&mut self.above, &mut self.below);
        }
        let entry = Entry::unpack(self.above.pop()?);
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
            self.put(lowest);
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
        assert!(above.iter().all(|entry| entry.key >= self.place) && below.iter().all(|entry| entry.key < self.place));
        let entries = above.into_iter().chain(below);
        let (here, gone): (Vec<Entry>, Vec<Entry>) = entries.partition(|entry| waits(entry.slot, entry.arrival));
        assert!(here.len() == waiting && gone.len() == self.gone, "{} of {waiting}, {}", here.len(), gone.len());
        assert!(self.gone <= GONE_MIN.max((here.len() + gone.len()) / 2));
    }
}

fn is_waiting(packed: u128, waits: &impl Fn(u32, u64) -> bool) -> bool {
    let entry = Entry::unpack(packed);
    waits(entry.slot, entry.arrival)
}
