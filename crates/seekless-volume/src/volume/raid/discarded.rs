//! Parts of rows that have been discarded. A discard of a part of a row writes zeroes, as the parity changes with it. Its storage can be
//! given back once all of the row has been discarded, as happens where a file system's segments are not rows. What is remembered
//! is lost when the array is closed; then such a row keeps its storage until it is discarded again.
//!
//! Invariants
//!   D1  A range that is remembered has been discarded, and neither written nor provisioned since: no caller relies on its storage.
//!   D2  A discard that overlaps a use of the same sectors in time is not remembered: either may have been the last.
//!   D3  A row is not given back after the first use of it has begun.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use super::rows::Ranges;
use crate::rt::Event;

/// Limit of ranges that are remembered; beyond it, those of the lowest rows are forgotten. They take some 2 MiB.
const RANGES_MAX: usize = 1 << 16;

/// See the head of the file. Ranges are of sectors of the array.
#[derive(Default)]
pub(super) struct DiscardedParts {
    state: RefCell<State>,
    ended: Event,
}

#[derive(Default)]
struct State {
    remembered: Ranges,
    next: u64,
    uses: BTreeMap<u64, Range<u64>>,
    discards: BTreeMap<u64, UnderWay>,
}

/// A discard under way.
struct UnderWay {
    range: Range<u64>,
    /// The range has been used since it began.
    is_used: bool,
    /// It can no longer be given up.
    is_certain: bool,
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl DiscardedParts {
    /// A write or provision of `range` begins, which lasts until the result is dropped.
    pub(super) fn use_of(&self, range: Range<u64>) -> Use<'_> {
        let mut state = self.state.borrow_mut();
        state.remembered.remove(range.clone());
        state
            .discards
            .values_mut()
            .filter(|other| overlap(&other.range, &range))
            .for_each(|other| other.is_used = true);
        let number = state.next;
        state.next += 1;
        state.uses.insert(number, range);
        Use { parts: self, number }
    }

    /// Waits until no row in `range` is being given back. A write waits for the row itself.
    pub(super) async fn settled(&self, range: Range<u64>) {
        let is_under_way = || {
            let state = self.state.borrow();
            state.discards.values().any(|other| other.is_certain && overlap(&other.range, &range))
        };
        while is_under_way() {
            self.ended.wait().await;
        }
    }

    /// A discard of `range` begins, which lasts until the result is dropped.
    pub(super) fn discard_of(&self, range: Range<u64>) -> Discarding<'_> {
        let mut state = self.state.borrow_mut();
        let is_used = state.uses.values().any(|other| overlap(other, &range));
        let number = state.next;
        state.next += 1;
        state.discards.insert(number, UnderWay { range, is_used, is_certain: false });
        Discarding { parts: self, number }
    }

    /// Begins to give back all of a row, the sectors `row`, if each of them has been discarded.
    pub(super) fn take(&self, row: Range<u64>) -> Option<Discarding<'_>> {
        {
            let mut state = self.state.borrow_mut();
            if !state.remembered.contains(row.clone()) {
                return None;
            }
            state.remembered.remove(row.clone());
        }
        Some(self.discard_of(row))
    }
}

/// A write or provision under way.
pub(super) struct Use<'a> {
    parts: &'a DiscardedParts,
    number: u64,
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        let ended = self.parts.state.borrow_mut().uses.remove(&self.number);
        debug_assert!(ended.is_some(), "D2: each use is known until it ends");
    }
}

/// A discard under way.
pub(super) struct Discarding<'a> {
    parts: &'a DiscardedParts,
    number: u64,
}

impl Discarding<'_> {
    /// Remembers it, now that it has taken effect (D2).
    pub(super) fn remember(self) {
        let mut state = self.parts.state.borrow_mut();
        let Some(UnderWay { range, is_used: false, .. }) = state.discards.get(&self.number) else { return };
        let range = range.clone();
        debug_assert!(!state.uses.values().any(|other| overlap(other, &range)), "D1: nothing uses it");
        state.remembered.insert(range);
        while state.remembered.len() > RANGES_MAX {
            let Some(first) = state.remembered.iter().next() else { return };
            state.remembered.remove(first);
        }
    }

    /// Whether nothing has used it since it began. If so, it will take effect: what begins from now on waits for it.
    pub(super) fn is_still_unused(&self) -> bool {
        let mut state = self.parts.state.borrow_mut();
        let Some(under_way) = state.discards.get_mut(&self.number) else { return false };
        under_way.is_certain = !under_way.is_used; // D3
        under_way.is_certain
    }
}

impl Drop for Discarding<'_> {
    fn drop(&mut self) {
        let ended = self.parts.state.borrow_mut().discards.remove(&self.number);
        debug_assert!(ended.is_some(), "D3: each discard is known until it ends");
        self.parts.ended.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::rt::{Executor, HostProfile};

    const ROW: Range<u64> = 0..64;

    /// Discards the parts, one after the other, and says whether all of the row may be given back.
    fn discard(parts: &DiscardedParts, ranges: &[Range<u64>]) -> bool {
        ranges.iter().for_each(|range| parts.discard_of(range.clone()).remember());
        parts.take(ROW).is_some_and(|whole| whole.is_still_unused())
    }

    /// A row is given back when each of its sectors has been discarded after its last use, and once.
    #[test]
    fn a_row_is_given_back_when_all_of_it_is_discarded() {
        let parts = DiscardedParts::default();
        assert!(!discard(&parts, &[0..20, 40..64]));
        drop(parts.use_of(10..12));
        assert!(!discard(&parts, &[20..40, 60..70]));
        assert!(discard(&parts, std::slice::from_ref(&(10..12))));
        assert!(!discard(&parts, std::slice::from_ref(&(10..12))), "it is remembered once");
    }

    /// A discard that overlaps a use in time is not remembered, whichever began first and whichever ends first.
    #[test]
    fn what_is_used_at_the_same_time_is_not_remembered() {
        for (use_first, use_ends_first) in [(true, true), (true, false), (false, true), (false, false)] {
            for used in [30..31, 64..65] {
                let parts = DiscardedParts::default();
                let earlier = use_first.then(|| parts.use_of(used.clone()));
                let discarding = parts.discard_of(ROW);
                let in_use = earlier.unwrap_or_else(|| parts.use_of(used.clone()));
                if use_ends_first {
                    drop(in_use);
                    discarding.remember();
                } else {
                    discarding.remember();
                    drop(in_use);
                }
                assert_eq!(parts.take(ROW).is_some(), used.start == 64, "{use_first} {use_ends_first} {used:?}");
            }
        }
    }

    /// A row that is used before it is held is not given back. One that is being given back keeps a provision waiting.
    #[test]
    fn a_use_and_a_row_that_is_given_back_exclude_each_other() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt();
        let parts = Rc::new(DiscardedParts::default());
        let run = async {
            parts.discard_of(ROW).remember();
            let whole = parts.take(ROW).unwrap();
            drop(parts.use_of(5..6));
            assert!(!whole.is_still_unused());
            parts.settled(ROW).await;
            drop(whole);

            parts.discard_of(ROW).remember();
            let whole = parts.take(ROW).unwrap();
            assert!(whole.is_still_unused());
            let ended = Rc::new(Cell::new(false));
            let (waiting, seen) = (parts.clone(), ended.clone());
            let provision = rt.spawn(async move {
                let _use = waiting.use_of(5..6);
                waiting.settled(ROW).await;
                assert!(seen.get(), "it waits for the row");
            });
            parts.settled(64..65).await;
            rt.yield_now().await;
            ended.set(true);
            drop(whole);
            provision.await;
        };
        executor.block_on(run).unwrap();
    }

    /// What is remembered is bounded.
    #[test]
    fn memory_is_bounded() {
        let parts = DiscardedParts::default();
        for part in 0..RANGES_MAX as u64 + 100 {
            parts.discard_of(part * 2..part * 2 + 1).remember();
        }
        assert_eq!(parts.state.borrow().remembered.len(), RANGES_MAX);
    }
}
