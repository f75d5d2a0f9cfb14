//! Requests that wait for the drive, and the choice of the next one.

use super::mechanism::{Mechanism, Request};
use crate::units::Nanos;

/// In which order waiting requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduler {
    /// First come, first served.
    Fcfs,
    /// One-way elevator by address, as in the BSD kernels' `disksort`: upwards to the last waiting request, then
    /// again from the lowest.
    #[default]
    CLook,
    /// The nearest cylinder first; equal ones in the order of arrival.
    Sstf,
    /// The shortest command overhead, seek and rotation first. For each millisecond that it has waited, a request
    /// counts as `age_micros` microseconds nearer than it is, so that none starves (\[wo94\], ASPTF); 0 is pure SPTF.
    Sptf { age_micros: u32 },
}

/// A waiting request.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) arrived: Nanos,
    pub(super) request: Request,
    pub(super) who: T,
}

/// Waiting requests, in the order of their arrival.
#[derive(Debug)]
pub(super) struct Queue<T> {
    scheduler: Scheduler,
    waiting: Vec<Waiting<T>>,
}

impl<T> Queue<T> {
    pub(super) fn new(scheduler: Scheduler) -> Queue<T> {
        Queue { scheduler, waiting: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, waiting: Waiting<T>) {
        self.waiting.push(waiting);
    }

    /// Removes the requests for which `is_it` holds.
    pub(super) fn remove(&mut self, is_it: impl Fn(&T) -> bool) {
        self.waiting.retain(|waiting| !is_it(&waiting.who));
    }

    /// Removes and returns the request to serve at `now`, by a drive that is then idle and ended its last request
    /// before sector `position`.
    pub(super) fn next(&mut self, now: Nanos, position: u64, mechanism: &Mechanism) -> Option<Waiting<T>> {
        let best = match self.scheduler {
            Scheduler::Fcfs => self.smallest(|_| 0),
            Scheduler::CLook => self.smallest(|waiting| {
                let at = waiting.request.sector.0;
                (at < position, at)
            }),
            Scheduler::Sstf => self.smallest(|waiting| mechanism.seek_distance(waiting.request.sector)),
            Scheduler::Sptf { age_micros } => self.smallest(|waiting| {
                let time = mechanism.access_time(now, &waiting.request);
                let age = u128::from(now.saturating_sub(waiting.arrived).0) * u128::from(age_micros) / 1000;
                i128::from(time.0) - age as i128
            }),
        }?;
        // Keeps the order of arrival, by which ties are broken.
        Some(self.waiting.remove(best))
    }

    /// Index of the first request with the smallest key.
    fn smallest<K: Ord>(&self, key: impl Fn(&Waiting<T>) -> K) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|&index| key(&self.waiting[index]))
    }
}
