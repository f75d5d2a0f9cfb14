//! Which arms are in use, and which writer is next.
//!
//! The head position decides where a block goes, and it is known only while the arm is idle. So a writer holds the arm
//! from the choice of the place until the block is written. Several arms move independently of each other.
//!
//! Waiting writers are served in the order of their addresses, upwards from the last one to the highest and then again
//! from the lowest (C-SCAN). Blocks go where the heads are, in the order in which they are written, so this is also
//! their order on the platters. A host's driver sorts its queue for a drive in the same way; here the drive receives
//! all requests.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::task::{Poll, Waker};

use crate::rt::Event;

pub(super) struct Arms {
    busy: RefCell<Vec<bool>>,
    freed: Event,
    /// Waiting writers, by address and by order of arrival.
    queue: RefCell<BTreeMap<Ticket, Option<Waker>>>,
    arrivals: Cell<u64>,
    /// Address behind the last write.
    position: Cell<u32>,
}

type Ticket = (u32, u64);

impl Arms {
    pub(super) fn new(count: u32) -> Arms {
        Arms {
            busy: vec![false; count as usize].into(),
            freed: Event::new(),
            queue: RefCell::default(),
            arrivals: Cell::new(0),
            position: Cell::new(0),
        }
    }

    /// Which arms are in use.
    pub(super) fn busy(&self) -> Vec<bool> {
        self.busy.borrow().clone()
    }

    /// Completes when an arm becomes free after this call.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.freed.wait()
    }

    /// Takes a free arm.
    pub(super) fn hold(&self, arm: u32) -> HeldArm<'_> {
        let was_busy = std::mem::replace(&mut self.busy.borrow_mut()[arm as usize], true);
        assert!(!was_busy, "arm {arm} is held twice");
        HeldArm { arms: self, arm }
    }

    /// Waits until `arm` is free, and takes it.
    pub(super) async fn enter(&self, arm: u32) -> HeldArm<'_> {
        loop {
            let freed = self.freed();
            if !self.busy.borrow()[arm as usize] {
                return self.hold(arm);
            }
            freed.await;
        }
    }

    /// Queues up to write to `address`.
    pub(super) fn queue(&self, address: u32) -> QueuePosition<'_> {
        self.arrivals.set(self.arrivals.get() + 1);
        let ticket = (address, self.arrivals.get());
        self.queue.borrow_mut().insert(ticket, None);
        QueuePosition { arms: self, ticket }
    }

    fn next(&self) -> Option<Ticket> {
        let queue = self.queue.borrow();
        let upwards = queue.range((self.position.get(), 0)..).next();
        upwards.or_else(|| queue.iter().next()).map(|(&ticket, _)| ticket)
    }

    /// Wakes the next writer, which then looks for a free arm.
    fn wake_next(&self) {
        let next = self.next();
        let waker = next.and_then(|ticket| self.queue.borrow_mut().get_mut(&ticket)?.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place in the queue, until it is dropped.
pub(super) struct QueuePosition<'a> {
    arms: &'a Arms,
    ticket: Ticket,
}

impl QueuePosition<'_> {
    /// Completes when an arm is free and no other writer is ahead of this one; returns which arms are in use.
    pub(super) async fn turn(&self) -> Vec<bool> {
        poll_fn(|context| {
            let busy = self.arms.busy();
            if busy.contains(&false) && self.arms.next() == Some(self.ticket) {
                return Poll::Ready(busy);
            }
            self.wait(context.waker())
        })
        .await
    }

    /// Completes when an arm that is now in use becomes free.
    pub(super) async fn another(&self) {
        let mut is_later = false;
        poll_fn(|context| match std::mem::replace(&mut is_later, true) {
            true => Poll::Ready(()),
            false => self.wait(context.waker()),
        })
        .await;
    }

    fn wait<T>(&self, waker: &Waker) -> Poll<T> {
        let mut queue = self.arms.queue.borrow_mut();
        debug_assert!(queue.contains_key(&self.ticket), "a task that waits for an arm is in the queue, and is woken");
        if let Some(place) = queue.get_mut(&self.ticket) {
            *place = Some(waker.clone());
        }
        Poll::Pending
    }

    /// Leaves the queue after a write up to `end`, or before it starts.
    pub(super) fn leave(self, end: u32) {
        self.arms.position.set(end);
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let place = self.arms.queue.borrow_mut().remove(&self.ticket);
        debug_assert!(place.is_some(), "a writer leaves the queue once");
        // Another arm may be free for the next one.
        if self.arms.busy.borrow().contains(&false) {
            self.arms.wake_next();
        }
    }
}

/// An arm in use, until it is dropped.
pub(super) struct HeldArm<'a> {
    arms: &'a Arms,
    arm: u32,
}

impl Drop for HeldArm<'_> {
    fn drop(&mut self) {
        let was_busy = std::mem::replace(&mut self.arms.busy.borrow_mut()[self.arm as usize], false);
        debug_assert!(was_busy, "an arm that is given back was held");
        self.arms.freed.notify();
        self.arms.wake_next();
    }
}
