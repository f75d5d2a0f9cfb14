//! Byte-range locks: readers share, a writer is exclusive.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use seekless::rt::Event;

/// Requests under way and waiting, in the order of arrival.
#[derive(Default)]
pub(super) struct Locks {
    requests: RefCell<BTreeMap<u64, Request>>,
    next: Cell<u64>,
}

struct Request {
    bytes: Range<u64>,
    writes: bool,
    /// Earlier requests that it waits for. The end of each counts down, so that the end of one wakes only those that can begin.
    waits_for: usize,
    can_begin: Rc<Event>,
}

impl Request {
    fn conflicts(&self, bytes: &Range<u64>, writes: bool) -> bool {
        (writes || self.writes) && self.bytes.start < bytes.end && bytes.start < self.bytes.end
    }
}

/// A locked byte range, released when dropped.
pub(super) struct Lock {
    locks: Rc<Locks>,
    number: u64,
}

impl Locks {
    /// Waits until no earlier request overlaps these bytes, or all that do are reads, as is this one.
    pub(super) async fn lock(self: &Rc<Self>, bytes: Range<u64>, writes: bool) -> Lock {
        let number = self.next.get();
        self.next.set(number + 1);
        let can_begin = Rc::new(Event::new());
        let waits_for = self.requests.borrow().values().filter(|other| other.conflicts(&bytes, writes)).count();
        let request = Request { bytes, writes, waits_for, can_begin: can_begin.clone() };
        self.requests.borrow_mut().insert(number, request);
        let lock = Lock { locks: self.clone(), number };
        loop {
            let begins = can_begin.wait();
            if self.requests.borrow().get(&number).is_none_or(|request| request.waits_for == 0) {
                return lock;
            }
            begins.await;
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut requests = self.locks.requests.borrow_mut();
        let Some(ended) = requests.remove(&self.number) else { return };
        for (_, later) in requests.range_mut(self.number..) {
            if later.conflicts(&ended.bytes, ended.writes) {
                later.waits_for -= 1;
                if later.waits_for == 0 {
                    later.can_begin.notify();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use seekless::rng::Rng;
    use seekless::rt::{Executor, HostProfile};
    use seekless::units::Nanos;

    use super::*;

    /// A writer is alone in its bytes, and all requests get their turn, also when callers give up. Method: many tasks that count
    /// the readers and writers of each byte.
    #[test]
    fn writers_are_alone() {
        for seed in 0..20 {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let locks: Rc<Locks> = Rc::default();
            let inside: Rc<[Cell<i64>; 16]> = Rc::default();
            let tasks: Vec<_> = (0..200)
                .map(|task| {
                    let (rt, locks, inside) = (rt.clone(), locks.clone(), inside.clone());
                    executor.rt().spawn(async move {
                        let mut rng = Rng::new(seed * 1000 + task);
                        rt.sleep(Nanos(rng.below(40))).await;
                        let start = rng.below(16);
                        let bytes = start..rng.between(start + 1, 16);
                        let writes = rng.chance(1, 3);
                        if rng.chance(1, 8) {
                            let gives_up = locks.lock(bytes, writes);
                            let patience = rt.sleep(Nanos(rng.below(20)));
                            futures_util::future::select(Box::pin(gives_up), Box::pin(patience)).await;
                            return;
                        }
                        let _lock = locks.lock(bytes.clone(), writes).await;
                        let change = if writes { -1000 } else { 1 };
                        let add = |by: i64| {
                            for cell in bytes.clone().map(|byte| &inside[byte as usize]) {
                                cell.set(cell.get() + by);
                                assert!(cell.get() == -1000 || cell.get() >= 0, "seed {seed}: {}", cell.get());
                            }
                        };
                        add(change);
                        rt.sleep(Nanos(rng.below(5))).await;
                        add(-change);
                    })
                })
                .collect();
            executor.block_on(futures_util::future::join_all(tasks)).unwrap();
            assert!(locks.requests.borrow().is_empty(), "seed {seed}");
        }
    }
}
