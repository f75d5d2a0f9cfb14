//! Who uses which arm.
//!
//! Where a block goes is chosen by where the heads are, and that is known of an arm only while nobody uses it. So who
//! writes holds the arm from the choice on until the block is written. Several arms move independently of each other.

use std::cell::RefCell;
use std::future::Future;

use crate::rt::Event;

pub(super) struct Arms {
    busy: RefCell<Vec<bool>>,
    freed: Event,
}

impl Arms {
    pub(super) fn new(count: u32) -> Arms {
        Arms { busy: vec![false; count as usize].into(), freed: Event::new() }
    }

    /// Which of them are in use.
    pub(super) fn busy(&self) -> Vec<bool> {
        self.busy.borrow().clone()
    }

    /// Completes when one becomes free after this call.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.freed.wait()
    }

    /// Takes one that is free.
    pub(super) fn hold(&self, arm: u32) -> HeldArm<'_> {
        let was_busy = std::mem::replace(&mut self.busy.borrow_mut()[arm as usize], true);
        assert!(!was_busy, "arm {arm} is held twice");
        HeldArm { arms: self, arm }
    }

    /// Waits until one is free, and takes it.
    pub(super) async fn enter(&self, arm: u32) -> HeldArm<'_> {
        loop {
            let freed = self.freed();
            if !self.busy.borrow()[arm as usize] {
                return self.hold(arm);
            }
            freed.await;
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
        self.arms.busy.borrow_mut()[self.arm as usize] = false;
        self.arms.freed.notify();
    }
}
