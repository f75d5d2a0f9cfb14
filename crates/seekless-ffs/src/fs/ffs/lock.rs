//! Locks that tasks hold while they wait for the device: of an inode, and of the tree of names as a whole.
//!
//! Any number of tasks may share a lock, or one holds it exclusively. A task that waits to hold it exclusively is
//! served before tasks that come later to share it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::numbers::InodeNo;
use crate::rt::Event;

#[derive(Default)]
struct Held {
    sharers: u32,
    alone: bool,
    waiting: u32,
}

/// One lock for each number, made when first needed.
#[derive(Default)]
pub(super) struct Locks {
    held: RefCell<BTreeMap<InodeNo, (Held, Rc<Event>)>>,
}

impl Locks {
    pub(super) async fn share(&self, number: InodeNo) -> Pass<'_> {
        loop {
            let freed = {
                let mut held = self.held.borrow_mut();
                let (lock, freed) = held.entry(number).or_default();
                if !lock.alone && lock.waiting == 0 {
                    lock.sharers += 1;
                    return Pass { locks: self, number, alone: false };
                }
                freed.clone()
            };
            freed.wait().await;
        }
    }

    pub(super) async fn alone(&self, number: InodeNo) -> Pass<'_> {
        let mut place: Option<Waiting<'_>> = None;
        loop {
            let freed = {
                let mut held = self.held.borrow_mut();
                let (lock, freed) = held.entry(number).or_default();
                if !lock.alone && lock.sharers == 0 {
                    lock.alone = true;
                    drop(held);
                    drop(place);
                    return Pass { locks: self, number, alone: true };
                }
                if place.is_none() {
                    lock.waiting += 1;
                }
                freed.clone()
            };
            place.get_or_insert_with(|| Waiting { locks: self, number });
            freed.wait().await;
        }
    }

    /// True when a task holds the lock exclusively. For assertions: the lock does not know which task.
    pub(super) fn is_alone(&self, number: InodeNo) -> bool {
        self.held.borrow().get(&number).is_some_and(|(lock, _)| lock.alone)
    }

    /// A lock that a task holds exclusively, if there is any.
    pub(super) fn held_alone(&self) -> Option<InodeNo> {
        self.held.borrow().iter().find(|(_, (lock, _))| lock.alone).map(|(&number, _)| number)
    }

    fn change(&self, number: InodeNo, change: impl FnOnce(&mut Held)) {
        let mut held = self.held.borrow_mut();
        let Some((lock, freed)) = held.get_mut(&number) else { return };
        change(lock);
        debug_assert!(!lock.alone || lock.sharers == 0, "an exclusive lock has no other holder");
        let freed = freed.clone();
        if lock.sharers == 0 && !lock.alone && lock.waiting == 0 {
            held.remove(&number);
        }
        drop(held);
        freed.notify();
    }
}

/// A place in the queue, which a cancelled task gives up too.
struct Waiting<'a> {
    locks: &'a Locks,
    number: InodeNo,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.locks.change(self.number, |held| {
            debug_assert!(held.waiting > 0, "each task that waits for a lock is counted until it has it");
            held.waiting -= 1;
        });
    }
}

/// Holds a lock.
pub(super) struct Pass<'a> {
    locks: &'a Locks,
    number: InodeNo,
    alone: bool,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let alone = self.alone;
        debug_assert_eq!(self.locks.is_alone(self.number), alone, "a lock is left as it was taken");
        self.locks.change(self.number, |held| match alone {
            true => held.alone = false,
            false => {
                debug_assert!(held.sharers > 0, "each task that shares a lock is counted until it leaves it");
                held.sharers -= 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::rt::{Executor, HostProfile};
    use crate::units::Nanos;

    /// Many tasks acquire a lock, shared or exclusively, again and again: never two exclusively, never one exclusively
    /// among sharers, and at the end nothing is left of the lock. Method: tasks in an order drawn from seeds.
    #[test]
    fn one_alone_or_several_sharing() {
        for seed in 0..20 {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let locks = Rc::new(Locks::default());
            let inside = Rc::new((Cell::new(0), Cell::new(0)));
            let ran = executor.block_on(async {
                let tasks: Vec<_> = (0..12_u64)
                    .map(|task| {
                        let (rt, locks, inside) = (rt.clone(), locks.clone(), inside.clone());
                        let own = rt.clone();
                        own.spawn(async move {
                            for round in 0..20 {
                                let alone = (task + round) % 3 == 0;
                                let pass =
                                    if alone { locks.alone(InodeNo(7)).await } else { locks.share(InodeNo(7)).await };
                                let count = if alone { &inside.0 } else { &inside.1 };
                                count.set(count.get() + 1);
                                assert!(
                                    inside.0.get() == 0 || inside.0.get() == 1 && inside.1.get() == 0,
                                    "seed {seed}"
                                );
                                rt.sleep(Nanos(1 + (task * 7 + round) % 5)).await;
                                count.set(count.get() - 1);
                                drop(pass);
                            }
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await;
                }
            });
            assert!(ran.is_ok(), "seed {seed}: a task never gets its lock");
            assert!(locks.held.borrow().is_empty(), "seed {seed}");
        }
    }
}
