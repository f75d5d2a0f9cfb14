//! Row locks, shared or exclusive, and sets of rows.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use crate::device::DeviceError;
use crate::rt::Event;
use crate::units::FixedMap;

#[derive(Default)]
struct RowLock {
    shared: Cell<u64>,
    alone: Cell<bool>,
    /// A task waits for exclusive access; later tasks wait behind it.
    wanted: Cell<u64>,
    /// Guards and waiters.
    users: Cell<u64>,
    freed: Event,
}

/// The locks of rows in use. A task that takes several takes them in rising order, which excludes deadlock.
#[derive(Default)]
pub(super) struct RowLocks {
    locks: RefCell<FixedMap<u64, Rc<RowLock>>>,
}

/// A lock on a row, released when dropped.
pub(super) struct RowGuard<'a> {
    locks: &'a RowLocks,
    row: u64,
    lock: Rc<RowLock>,
    held: Held,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    /// The task waits, for shared or exclusive access.
    No {
        alone: bool,
    },
    Shared,
    Alone,
}

impl RowLocks {
    /// Rows that are locked, or waited for.
    pub(super) fn in_use(&self) -> usize {
        self.locks.borrow().len()
    }

    /// True when a task holds `row` alone. For assertions: the lock does not know which task.
    pub(super) fn is_held(&self, row: u64) -> bool {
        self.locks.borrow().get(&row).is_some_and(|lock| lock.alone.get())
    }

    /// True when a task holds or shares `row`. For assertions.
    pub(super) fn is_locked(&self, row: u64) -> bool {
        self.locks.borrow().get(&row).is_some_and(|lock| lock.alone.get() || lock.shared.get() > 0)
    }

    pub(super) async fn share(&self, row: u64) -> RowGuard<'_> {
        let mut guard = self.enter(row, false);
        while guard.lock.alone.get() || guard.lock.wanted.get() > 0 {
            let lock = guard.lock.clone();
            lock.freed.wait().await;
        }
        guard.lock.shared.set(guard.lock.shared.get() + 1);
        guard.held = Held::Shared;
        guard
    }

    pub(super) async fn hold(&self, row: u64) -> RowGuard<'_> {
        let mut guard = self.enter(row, true);
        while guard.lock.alone.get() || guard.lock.shared.get() > 0 {
            let lock = guard.lock.clone();
            lock.freed.wait().await;
        }
        debug_assert!(guard.lock.wanted.get() > 0, "each task that waits for a row alone is counted until it has it");
        guard.lock.wanted.set(guard.lock.wanted.get() - 1);
        guard.lock.alone.set(true);
        guard.held = Held::Alone;
        guard
    }

    pub(super) async fn share_all(&self, rows: Range<u64>) -> Vec<RowGuard<'_>> {
        let mut guards = Vec::new();
        for row in rows {
            guards.push(self.share(row).await);
        }
        guards
    }

    pub(super) async fn hold_all(&self, rows: Range<u64>) -> Vec<RowGuard<'_>> {
        let mut guards = Vec::new();
        for row in rows {
            guards.push(self.hold(row).await);
        }
        guards
    }

    fn enter(&self, row: u64, alone: bool) -> RowGuard<'_> {
        let lock = self.locks.borrow_mut().entry(row).or_default().clone();
        lock.users.set(lock.users.get() + 1);
        lock.wanted.set(lock.wanted.get() + u64::from(alone));
        RowGuard { locks: self, row, lock, held: Held::No { alone } }
    }
}

impl Drop for RowGuard<'_> {
    fn drop(&mut self) {
        let lock = &self.lock;
        debug_assert!(
            self.held != Held::Alone || lock.alone.get() && lock.shared.get() == 0,
            "a row with an exclusive holder has no other"
        );
        debug_assert!(
            self.held != Held::Shared || !lock.alone.get() && lock.shared.get() > 0,
            "a shared row has no exclusive holder"
        );
        debug_assert!(
            self.held != (Held::No { alone: true }) || lock.wanted.get() > 0,
            "each task that waits for a row alone is counted until it gives up"
        );
        debug_assert!(lock.users.get() > 0, "each task at a row is counted until it leaves");
        match self.held {
            Held::No { alone } => lock.wanted.set(lock.wanted.get() - u64::from(alone)),
            Held::Shared => lock.shared.set(lock.shared.get() - 1),
            Held::Alone => lock.alone.set(false),
        }
        lock.users.set(lock.users.get() - 1);
        if lock.users.get() == 0 {
            debug_assert!(
                !lock.alone.get() && lock.shared.get() == 0 && lock.wanted.get() == 0,
                "a lock without holders and waiters is removed"
            );
            self.locks.locks.borrow_mut().remove(&self.row);
        } else {
            lock.freed.notify();
        }
    }
}

/// A set of rows: one bit each.
#[derive(Clone, Default)]
pub(super) struct RowSet {
    words: Vec<u64>,
    count: u64,
}

impl RowSet {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn len(&self) -> u64 {
        self.count
    }

    pub(super) fn contains(&self, row: u64) -> bool {
        self.count > 0 && self.words.get((row / 64) as usize).is_some_and(|word| word & (1 << (row % 64)) != 0)
    }

    pub(super) fn contains_any(&self, rows: Range<u64>) -> bool {
        self.count > 0 && self.next_from(rows.start).is_some_and(|row| row < rows.end)
    }

    pub(super) fn insert(&mut self, row: u64) {
        let word = (row / 64) as usize;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.count += u64::from(self.words[word] & (1 << (row % 64)) == 0);
        self.words[word] |= 1 << (row % 64);
    }

    pub(super) fn remove(&mut self, row: u64) {
        if self.contains(row) {
            self.words[(row / 64) as usize] &= !(1 << (row % 64));
            debug_assert!(self.count > 0, "the count is that of the bits");
            self.count -= 1;
        }
    }

    /// The first row of the set that is not before `row`.
    pub(super) fn next_from(&self, row: u64) -> Option<u64> {
        let first = (row / 64) as usize;
        let mut word = self.words.get(first)? & (u64::MAX << (row % 64));
        let mut index = first;
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(index as u64 * 64 + u64::from(word.trailing_zeros()))
    }
}

/// Rows that a rebuild has left out.
#[derive(Default)]
pub(super) struct LeftOut {
    pub(super) rows: RowSet,
    /// Those of them that are to be tried again.
    pub(super) to_retry: BTreeSet<u64>,
    /// Why the last one was left out.
    pub(super) error: Option<DeviceError>,
}

/// Disjoint ranges of sectors.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Ranges {
    /// The end of each range, by its start.
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    pub(super) fn contains(&self, range: Range<u64>) -> bool {
        range.is_empty() || self.ends.range(..=range.start).next_back().is_some_and(|(_, &end)| end >= range.end)
    }

    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back().filter(|(_, end)| **end >= start) {
            start = start.min(other);
            end = end.max(other_end);
            self.ends.remove(&other);
        }
        debug_assert!(
            self.ends.range(..=end).next_back().is_none_or(|(_, &other)| other < start),
            "A4: ranges neither overlap nor touch"
        );
        self.ends.insert(start, end);
    }

    pub(super) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ends.range(..range.end).next_back().filter(|(_, end)| **end > range.start)
        {
            self.ends.remove(&start);
            if start < range.start {
                self.ends.insert(start, range.start);
            }
            if end > range.end {
                self.ends.insert(range.end, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::rt::{Executor, HostProfile};
    use crate::units::Nanos;

    /// Aim: exclusive access is exclusive, and every task gets its turn. Method: many tasks that count who is inside.
    #[test]
    fn rows_are_held_alone_or_shared() {
        for seed in 0..20 {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let locks = Rc::new(RowLocks::default());
            let inside: Rc<[Cell<i64>; 3]> = Rc::default();
            let turns = Rc::new(Cell::new(0));
            let tasks: Vec<_> = (0..40)
                .map(|task| {
                    let (rt, locks, inside, turns) = (rt.clone(), locks.clone(), inside.clone(), turns.clone());
                    executor.rt().spawn(async move {
                        let mut rng = Rng::new(seed * 100 + task);
                        for _ in 0..10 {
                            let first = rng.below(3);
                            let rows = first..rng.between(first + 1, 3);
                            let alone = rng.chance(1, 3);
                            let change = if alone { -1000 } else { 1 };
                            let guards = match alone {
                                true => locks.hold_all(rows.clone()).await,
                                false => locks.share_all(rows.clone()).await,
                            };
                            let add = |by: i64| {
                                rows.clone().for_each(|row| {
                                    let cell = &inside[row as usize];
                                    cell.set(cell.get() + by);
                                    assert!(cell.get() == -1000 || cell.get() >= 0, "{}", cell.get());
                                })
                            };
                            add(change);
                            rt.sleep(Nanos(rng.below(5))).await;
                            add(-change);
                            drop(guards);
                            turns.set(turns.get() + 1);
                        }
                    })
                })
                .collect();
            executor.block_on(futures_util::future::join_all(tasks)).unwrap();
            assert_eq!((turns.get(), locks.locks.borrow().len()), (400, 0));
        }
    }

    /// Ranges hold the sectors that were added and not removed, in as few ranges as possible. Method: against one flag
    /// for each sector.
    #[test]
    fn ranges_hold_sectors() {
        let mut rng = Rng::new(1);
        for _ in 0..50 {
            let (mut ranges, mut flags) = (Ranges::default(), [false; 64]);
            for _ in 0..60 {
                let start = rng.below(64);
                let range = start..start + rng.below(65 - start).min(12);
                let is_in = rng.chance(2, 3);
                flags[range.start as usize..range.end as usize].fill(is_in);
                if is_in {
                    ranges.insert(range)
                } else {
                    ranges.remove(range)
                }
                let starts = (0..64).filter(|&at| flags[at] && (at == 0 || !flags[at - 1])).count();
                assert_eq!(ranges.len(), starts);
                let start = rng.below(64);
                let asked = start..start + rng.below(65 - start).min(6);
                let all = flags[asked.start as usize..asked.end as usize].iter().all(|flag| *flag);
                assert_eq!(ranges.contains(asked), all);
            }
            let found: Vec<u64> = ranges.iter().flatten().collect();
            assert_eq!(found, (0..64).filter(|&at| flags[at as usize]).collect::<Vec<u64>>());
        }
    }

    /// A set of rows holds its rows.
    #[test]
    fn row_sets_hold_rows() {
        let mut set = RowSet::default();
        for row in [3, 64, 200, 200] {
            set.insert(row);
        }
        assert_eq!((set.len(), set.next_from(0), set.next_from(4), set.next_from(201)), (3, Some(3), Some(64), None));
        assert!(set.contains_any(60..65) && !set.contains_any(65..200) && !set.contains(199));
        [3, 64, 200, 5].into_iter().for_each(|row| set.remove(row));
        assert!(set.is_empty() && !set.contains_any(0..1000));
    }
}
