//! Waiting requests on either side of a place, the next one of each side at hand.
//!
//! A search tree finds the request at or after a place, too, and C-LOOK and SSTF ask for nothing else: but between two choices the
//! place hardly passes a request. So each side is a heap, and a request that was passed changes sides; it does so at most once
//! before it, or all that lie between it and the heads, are served. A tree took five times the instructions.
//!
//! A request that waits no longer is dropped when it comes up.

use std::collections::BinaryHeap;

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

/// A heap has the greatest first.
type Heap = BinaryHeap<(u64, u64, u32)>;

#[derive(Debug)]
pub(super) struct Halves {
    kind: Below,
    /// Requests whose keys are not below `place`, the lowest first.
    above: Heap,
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
            self.above.retain(|&(_, arrival, slot)| waits(slot, !arrival));
            self.below.retain(|&(_, arrival, slot)| waits(slot, !arrival));
            self.gone = 0;
        }
    }

    /// Removes the next request for heads at `place`.
    pub(super) fn next(&mut self, place: u64, waits: impl Fn(u32, u64) -> bool) -> Option<Entry> {
        self.turn_to(place);
        match self.kind {
            Below::Lowest => self.next_of_sweep(waits),
            Below::Highest => self.nearest(waits),
        }
    }

    /// The next request at or after the place, and if there is none the lowest.
    fn next_of_sweep(&mut self, waits: impl Fn(u32, u64) -> bool) -> Option<Entry> {
        loop {
            if self.above.is_empty() {
                std::mem::swap(&mut self.above, &mut self.below);
            }
            let entry = up(self.above.pop()?);
            // What comes from now on and is below this one belongs to the next sweep.
            self.place = entry.key;
            if waits(entry.slot, entry.arrival) {
                return Some(entry);
            }
            self.gone -= 1;
        }
    }

    /// The request nearest to the place; of equally near ones the oldest.
    fn nearest(&mut self, waits: impl Fn(u32, u64) -> bool) -> Option<Entry> {
        for half in [&mut self.above, &mut self.below] {
            while half.peek().is_some_and(|&(_, arrival, slot)| !waits(slot, !arrival)) {
                half.pop();
                self.gone -= 1;
            }
        }
        let (above, below) = (self.above.peek().map(|&top| up(top)), self.below.peek().map(|&top| self.down(top)));
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
        while let Some(&top) = self.above.peek()
            && up(top).key < place
        {
            self.above.pop();
            self.put(up(top));
        }
        match self.kind {
            Below::Highest => {
                while let Some(&top) = self.below.peek()
                    && self.down(top).key >= place
                {
                    self.below.pop();
                    self.put(self.down(top));
                }
            }
            // A sweep goes up only; who goes back pays for it.
            Below::Lowest if back => {
                for entry in std::mem::take(&mut self.below) {
                    self.put(up(entry));
                }
            }
            Below::Lowest => {}
        }
    }

    /// On its side of the place.
    fn put(&mut self, entry: Entry) {
        let Entry { key, arrival, slot } = entry;
        match (key >= self.place, self.kind) {
            (true, _) => self.above.push((!key, !arrival, slot)),
            (false, Below::Lowest) => self.below.push((!key, !arrival, slot)),
            (false, Below::Highest) => self.below.push((key, !arrival, slot)),
        }
    }

    /// An entry of the half below.
    fn down(&self, (key, arrival, slot): (u64, u64, u32)) -> Entry {
        match self.kind {
            Below::Lowest => up((key, arrival, slot)),
            Below::Highest => Entry { key, arrival: !arrival, slot },
        }
    }

    /// Those that wait, and as many that are gone as were counted.
    #[cfg(test)]
    pub(super) fn check(&self, waits: impl Fn(u32, u64) -> bool, waiting: usize) {
        let entries = self.above.iter().map(|&top| up(top)).chain(self.below.iter().map(|&top| self.down(top)));
        let (here, gone): (Vec<Entry>, Vec<Entry>) = entries.partition(|entry| waits(entry.slot, entry.arrival));
        assert!(here.len() == waiting && gone.len() == self.gone, "{} of {waiting}, {}", here.len(), gone.len());
        assert!(self.gone <= GONE_MIN.max((here.len() + gone.len()) / 2));
        assert!(self.above.iter().all(|&top| up(top).key >= self.place));
        assert!(self.below.iter().all(|&top| self.down(top).key < self.place));
    }
}

/// An entry that has the lowest key first.
fn up((key, arrival, slot): (u64, u64, u32)) -> Entry {
    Entry { key: !key, arrival: !arrival, slot }
}
