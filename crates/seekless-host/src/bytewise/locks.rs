//! Byte-range locks: readers share, a writer is exclusive.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use seekless::rt::Event;

/// Requests under way and waiting, in the order of arrival.
#[derive(Default)]
pub(super) struct Locks {
    held: RefCell<BTreeMap<u64, (Range<u64>, bool)>>,
    next: std::cell::Cell<u64>,
    changed: Event,
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
        self.held.borrow_mut().insert(number, (bytes.clone(), writes));
        let lock = Lock { locks: self.clone(), number };
        loop {
            let changed = self.changed.wait();
            let waits = self.held.borrow().range(..number).any(|(_, (other, other_writes))| {
                (writes || *other_writes) && other.start < bytes.end && bytes.start < other.end
            });
            if !waits {
                return lock;
            }
            changed.await;
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.locks.held.borrow_mut().remove(&self.number);
        self.locks.changed.notify();
    }
}
