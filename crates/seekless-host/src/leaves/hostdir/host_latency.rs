//! Measured properties of the host, and counts of where calls were made.

use std::cell::Cell;
use std::mem::MaybeUninit;

use seekless::device::Counter;
use seekless::rt::Rt;
use seekless::units::Nanos;

/// Observations about the calls of a host directory, and their counts.
#[derive(Default)]
pub(super) struct HostLatency {
    /// The host does not offer `RWF_NOWAIT` for reads.
    pub(super) no_nowait_reads: Cell<bool>,
    /// The host does not offer it for writes either.
    pub(super) no_nowait_writes: Cell<bool>,
    pub(super) writing: Backoff,
    pub(super) freeing: Backoff,
    pub(super) reads_here: Cell<u64>,
    pub(super) reads_handed_over: Cell<u64>,
    pub(super) writes_here: Cell<u64>,
    pub(super) writes_handed_over: Cell<u64>,
}

/// Calls of one kind usually take microseconds, and are then made on the engine thread. When one has had to wait, those
/// that follow within [`BACKOFF`] are handed over.
#[derive(Default)]
pub(super) struct Backoff {
    until: Cell<Nanos>,
    waited: Cell<u64>,
}

/// A longer call may have waited. The largest call made on the engine thread takes a fiftieth of this.
const LONG: Nanos = Nanos::from_millis(1);

/// How long calls are handed over after one has waited. The host makes writers wait for at most 200 ms at a time
/// (`MAX_PAUSE` of `mm/page-writeback.c`), so this bounds the delay of other requests to a fifth.
const BACKOFF: Nanos = Nanos::from_secs(1);

pub(super) fn add_one(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

impl Backoff {
    /// True when a call should be handed over.
    pub(super) fn is_advised(&self, rt: &Rt) -> bool {
        rt.now() < self.until.get()
    }

    /// Makes `call` and records whether it had to wait.
    pub(super) fn watch<T>(&self, rt: &Rt, call: impl FnOnce() -> T) -> T {
        let (start, waits) = (rt.now(), waits());
        let result = call();
        let end = rt.now();
        // A thread that was preempted did not wait for the host.
        if end.saturating_sub(start) > LONG && self::waits() != waits {
            add_one(&self.waited);
            self.until.set(end + BACKOFF);
        }
        result
    }
}

/// Voluntary context switches of this thread: how often it has waited for something.
fn waits() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the structure or leaves the zeroes, which are a valid value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw
}

impl HostLatency {
    pub(super) fn counters(&self) -> Vec<Counter> {
        vec![
            ("reads_here", self.reads_here.get()),
            ("reads_handed_over", self.reads_handed_over.get()),
            ("writes_here", self.writes_here.get()),
            ("writes_handed_over", self.writes_handed_over.get()),
            ("writes_waited", self.writing.waited.get()),
            ("frees_waited", self.freeing.waited.get()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use seekless::rt::Executor;

    use super::*;
    use crate::reactor::{Reactor, ReactorOptions};

    /// Waits are remembered for a while, and computing does not count as waiting.
    #[test]
    fn waiting_is_distinguished_from_computing() {
        let reactor = Reactor::new(ReactorOptions::default()).unwrap();
        let executor: Executor = reactor.executor();
        let rt = executor.rt();
        let backoff = Backoff::default();
        let start = std::time::Instant::now();
        backoff.watch(rt, || while start.elapsed().as_millis() < 3 {});
        assert!(!backoff.is_advised(rt));
        backoff.watch(rt, || std::thread::sleep(std::time::Duration::from_millis(3)));
        assert!(backoff.is_advised(rt));
        assert_eq!(backoff.waited.get(), 1);
    }
}
