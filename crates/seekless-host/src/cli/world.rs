//! The real world of one command: clock, leaves and randomness.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use seekless::fs::FsError;
use seekless::rt::{Executor, Rt};
use seekless::stack::{Cause, Identity, Stack, StackError};

use super::{Failure, info, output};
use crate::leaves::{HostLeaves, signature};
use crate::random;
use crate::reactor::{Reactor, ReactorOptions, Watchdog};

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
        HostLeaves::new(&self.reactor).telling(output::note)
    }

    /// Watches over the engine until it is dropped: for what serves others.
    pub(super) fn watchdog(&self) -> Option<Watchdog> {
        self.executor.pulse().map(Watchdog::start)
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
pub(super) fn explain(stack: &Stack, leaves: &HostLeaves, error: StackError) -> Failure {
    match &error.cause {
        Some(Cause::FileSystem(FsError::Corrupt { what: "volume", .. })) => {}
        Some(Cause::FileSystem(FsError::Corrupt { .. })) => {
            return Failure::new(&error).hint(
                "`seekless fsck` says what else is damaged; mounted with -o ro, what can still be shown can be copied",
            );
        }
        _ => return Failure::new(&error),
    }
    let own = match stack.file_system().map(|word| word.name()) {
        Some("ffs") => signature::UFS,
        Some("vlfs") => signature::VLFS,
        _ => signature::LFS,
    };
    match &contents(leaves)[..] {
        [content] if content.as_deref() != Some(own) => info::something_else(stack, leaves),
        _ => Failure::new(&error),
    }
}

/// How long to look for content where that only makes a message better.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the files and block devices that were opened hold; `None` for a blank one. Empty where that cannot be found out.
pub(super) fn contents(leaves: &HostLeaves) -> Vec<Option<String>> {
    let content = |path: &Path| -> Option<Option<String>> {
        let file = std::fs::File::open(path).ok()?;
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).ok()?;
        let content = signature::content(&file, size, PATIENCE).ok()?;
        Some(content.text().map(str::to_owned))
    };
    leaves.files().iter().map(|file| content(file.path())).collect::<Option<_>>().unwrap_or_default()
}

/// What a stack is called in a sentence: the path of its image, or else its line.
pub(super) fn place_of(stack: &Stack) -> String {
    let leaf = stack.words().last().filter(|leaf| leaf.name() == "file");
    leaf.and_then(|leaf| leaf.text("path")).map_or_else(|| stack.to_string(), str::to_owned)
}
