//! Aim: the harnesses find what is wrong and say nothing of what is right. Method: a toy file system that is right, and
//! the same toy with one bug after another; then the real file systems.

mod access_lists;
mod arrays;
mod compare;
mod crash;
mod damage;
mod faults;
mod silent;
mod toy;
mod vld;
pub(crate) mod volumes;

use super::{CrashReport, Replay};

/// The replay that the environment asks for, for a test of this crate.
pub(crate) fn replay(test: &str) -> Replay {
    #[allow(clippy::disallowed_methods)]
    let lookup = |name: &str| std::env::var(name).ok();
    match Replay::read("seekless", test, lookup) {
        Ok(replay) => replay,
        Err(error) => panic!("{error}"),
    }
}

/// What an exploration did; what it found is a failure.
pub(crate) fn or_panic(result: Result<CrashReport, String>) -> CrashReport {
    result.unwrap_or_else(|report| panic!("{report}"))
}
