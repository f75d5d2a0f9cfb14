//! A heap of numbers, the least first, with four children to a node, which share a cache line.
//!
//! Of 65,536 entries a pop looks at eight lines, the last two of which are in no near cache; the standard library's, which has two
//! children to a node, at sixteen.

use std::hint::{black_box, select_unpredictable};

/// The children of a node. Places without an entry are `EMPTY`.
#[repr(align(64))]
#[derive(Clone, Debug)]
struct Line([u128; 4]);

/// No entry: greater than all.
const EMPTY: u128 = u128::MAX;

/// Line 0 has the root in place 3, so that the children of place `p` are line `p - 2`.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    lines: Vec<Line>,
    len: usize,
    /// What the last pop has moved up to the root, to its children, and to theirs; `EMPTY` where it has moved nothing.
    risen: [u128; RISEN],
}

/// So many levels below the top are watched.
const RISEN: usize = 3;

/// Entries before this place, 32 KiB, are in a near cache.
const NEAR: usize = (32 << 10) / size_of::<u128>() / 4;

/// Place of the root.
const ROOT: usize = 3;

impl Heap {
    pub(super) const fn new() -> Heap {
        Heap { lines: Vec::new(), len: 0, risen: [EMPTY; RISEN] }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u128> {
        self.lines.iter().flat_map(|line| line.0).filter(|&entry| entry != EMPTY)
    }

    /// The least entry.
    pub(super) fn peek(&self) -> Option<u128> {
        self.lines.first().map(|line| line.0[ROOT]).filter(|&root| root != EMPTY)
    }

    /// What the last pop has moved up to the root, to its children and to theirs, once. Those entries will be popped soon, the first the
    /// next time if nothing less is added.
    pub(super) fn take_risen(&mut self) -> [Option<u128>; RISEN] {
        std::mem::replace(&mut self.risen, [EMPTY; RISEN]).map(|entry| Some(entry).filter(|&entry| entry != EMPTY))
    }

    /// Adds an entry below `u128::MAX`.
    pub(super) fn push(&mut self, entry: u128) {
        debug_assert!(entry != EMPTY);
        let mut place = ROOT + self.len;
        self.len += 1;
        if place / 4 == self.lines.len() {
            self.lines.push(Line([EMPTY; 4]));
        }
        while place > ROOT {
            let parent = place / 4 + 2;
            let above = *self.at(parent);
            if above <= entry {
                break;
            }
            *self.at(place) = above;
            place = parent;
        }
        *self.at(place) = entry;
    }

    /// Removes the least entry.
    pub(super) fn pop(&mut self) -> Option<u128> {
        let least = self.peek()?;
        self.len -= 1;
        let last = std::mem::replace(self.at(ROOT + self.len), EMPTY);
        if self.len > 0 {
            self.sink(last);
        }
        Some(least)
    }

    /// Puts an entry where the root was, and moves up what is less.
    fn sink(&mut self, entry: u128) {
        let mut place = ROOT;
        let mut level = 0;
        self.risen = [EMPTY; RISEN];
        while let Some(Line(line)) = self.lines.get(place - 2) {
            // One of the next four lines comes next. Those that no near cache has are fetched while these entries are compared.
            if place > NEAR {
                for ahead in 0..4 {
                    black_box(self.lines.get(4 * (place - 2) - 2 + ahead).map(|line| line.0[0] as u64));
                }
            }
            let left = select_unpredictable(line[1] < line[0], 1, 0);
            let right = select_unpredictable(line[3] < line[2], 3, 2);
            let child = select_unpredictable(line[right] < line[left], right, left);
            let least = line[child];
            if entry <= least {
                break;
            }
            if let Some(risen) = self.risen.get_mut(level) {
                *risen = least;
            }
            level += 1;
            *self.at(place) = least;
            place = 4 * (place - 2) + child;
        }
        *self.at(place) = entry;
    }

    fn at(&mut self, place: usize) -> &mut u128 {
        &mut self.lines[place / 4].0[place % 4]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// As a sorted list, through growing and shrinking, with entries that are equal.
    #[test]
    fn the_least_comes_first() {
        let mut rng = Rng::new(1);
        let (mut heap, mut sorted) = (Heap::new(), Vec::new());
        for step in 0..20_000 {
            let is_growing = step / 1000 % 3 != 2;
            if rng.chance(if is_growing { 3 } else { 1 }, 4) {
                let entry = u128::from(rng.below(3000)) << 64;
                heap.push(entry);
                sorted.insert(sorted.partition_point(|&other| other < entry), entry);
            } else {
                let least = (!sorted.is_empty()).then(|| sorted.remove(0));
                assert_eq!((heap.peek(), heap.pop()), (least, least));
                let risen = heap.take_risen();
                assert!(risen[0].is_none_or(|first| heap.peek() == Some(first)));
                assert!(risen.into_iter().flatten().all(|entry| sorted.contains(&entry)));
                assert_eq!(heap.take_risen(), [None; RISEN]);
            }
            assert_eq!((heap.len(), heap.is_empty()), (sorted.len(), sorted.is_empty()));
        }
        let mut rest: Vec<u128> = heap.iter().collect();
        rest.sort();
        assert_eq!(rest, sorted);
    }
}
