//! The only place where the engine thread waits, in its two forms.

use std::time::Duration;

use seekless::device::Counter;

use super::poller::Poller;
use super::ring::Ring;

pub(super) enum Driver {
    Ring(Box<Ring>),
    Poll(Poller),
}

impl Driver {
    /// Waits for completions, readable files, notifications, or until `timeout` has passed, and wakes tasks.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        match self {
            Driver::Ring(ring) => ring.wait(timeout),
            Driver::Poll(poller) => poller.wait(timeout),
        }
    }

    /// Submits what is queued and takes what has completed, without waiting.
    pub(super) fn poll(&self) {
        match self {
            Driver::Ring(ring) => ring.poll(),
            Driver::Poll(poller) => poller.poll(),
        }
    }

    /// Operations that will wake a task.
    pub(super) fn in_flight(&self) -> usize {
        match self {
            Driver::Ring(ring) => ring.in_flight(),
            Driver::Poll(poller) => poller.in_flight(),
        }
    }

    pub(super) fn counters(&self) -> Vec<Counter> {
        match self {
            Driver::Ring(ring) => ring.counters(),
            Driver::Poll(poller) => poller.counters(),
        }
    }
}
