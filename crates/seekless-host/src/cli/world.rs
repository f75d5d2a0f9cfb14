//! The real world of one command: clock, leaves and randomness.

use std::future::Future;

use seekless::fs::FsError;
use seekless::rt::{Executor, Rt};
use seekless::stack::{Cause, Identity, Stack, StackError};

use super::{Failure, info};
use crate::leaves::{HostLeaves, signature};
use crate::random;
use crate::reactor::{Reactor, ReactorOptions};

/// An executor in real time, for the calling thread.
pub(super) struct World {
    pub(super) reactor: Reactor,
    pub(super) rt: Rt,
    executor: Executor,
}

impl World {
    /// Starts threads: signals must be taken, and the process must have forked, before.
    pub(super) fn new() -> Result<World, Failure> {
        let reactor = Reactor::new(ReactorOptions::default())?;
        let executor = reactor.executor();
        let rt = executor.rt().clone();
        Ok(World { reactor, rt, executor })
    }

    pub(super) fn leaves(&self) -> HostLeaves {
        HostLeaves::new(&self.reactor)
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.executor.block_on(future)?
    }
}

/// A new file system's identity: random, and owned by who makes it.
pub(super) fn identity() -> Result<Identity, Failure> {
    let random =
        random::numbers().map_err(|error| Failure::new(format!("the system has no random numbers: {error}")))?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(Identity { uid, gid, ..Identity::new(random) })
}

/// An error of a stack on files, with what the file holds where that explains it.
pub(super) fn explain(stack: &Stack, error: StackError) -> Failure {
    let damaged = matches!(&error.cause, Some(Cause::FileSystem(FsError::Corrupt { what: "volume", .. })));
    match content_of(stack).filter(|_| damaged) {
        Some((_, content)) if content != signature::LFS => info::something_else(stack),
        _ => Failure::new(&error),
    }
}

/// The path of a stack's image, and what is on it.
pub(super) fn content_of(stack: &Stack) -> Option<(String, String)> {
    let path = stack.words().last().filter(|leaf| leaf.name() == "file")?.text("path")?;
    let file = std::fs::File::open(path).ok()?;
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).ok()?;
    let content = signature::content(&file, size).ok()?;
    Some((path.to_owned(), content.unwrap_or_else(|| "nothing that is known".to_owned())))
}
