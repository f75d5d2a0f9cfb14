//! The real world of one command: clock, leaves and randomness.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use seekless::rt::{Executor, Rt};
use seekless::stack::Identity;

use super::{Failure, output};
use crate::leaves::HostLeaves;
use crate::random;
use crate::reactor::{Reactor, ReactorOptions, Signals, Watchdog};

/// An executor in real time, for the calling thread.
pub(super) struct World {
    pub(super) reactor: Reactor,
    pub(super) rt: Rt,
    executor: Executor,
}

impl World {
    /// Starts threads: signals must be blocked, and the process must have forked, before.
    pub(super) fn new() -> Result<World, Failure> {
        let reactor = Reactor::new(ReactorOptions::default())?;
        let executor = reactor.executor();
        let rt = executor.rt().clone();
        Ok(World { reactor, rt, executor })
    }

    pub(super) fn leaves(&self) -> HostLeaves {
        HostLeaves::new(&self.reactor).telling(output::note)
    }

    /// Watches the engine until it is dropped: for daemons.
    pub(super) fn watchdog(&self) -> Option<Watchdog> {
        self.executor.pulse().map(Watchdog::start)
    }

    /// What `opening` opens, unless a signal asks for the end before: then that is given up, and `ended_by` has its number. Nothing was
    /// acknowledged by then.
    pub(super) async fn opened<T, E: Into<Failure>>(
        &self,
        signals: &Signals,
        ended_by: &Cell<Option<i32>>,
        opening: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        let end = signals.next_but(libc::SIGUSR1, &self.reactor);
        match select(pin!(opening), pin!(end)).await {
            Either::Left((opened, _)) => opened.map_err(E::into),
            Either::Right((signal, _)) => {
                ended_by.set(Some(signal));
                Err(Failure::new(format!("ended by signal {signal} while it opened")))
            }
        }
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.executor.block_on(future)?
    }
}

/// A new file system's identity: random, and owned by its constructor.
pub(super) fn identity() -> Result<Identity, Failure> {
    let random =
        random::numbers().map_err(|error| Failure::new(format!("the system has no random numbers: {error}")))?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(Identity { uid, gid, ..Identity::new(random) })
}
