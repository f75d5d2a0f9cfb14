//! Replaying a block trace on storage, in virtual time: the same requests, answered by another disk, array or volume.
//!
//! What a trace says about time can be taken in four ways, because recorded arrivals belong to the machine that made
//! them:
//!
//! | timing | a request is made |
//! |---|---|
//! | `window:N` | as soon as fewer than N are under way, in the order of the trace: how fast can it be? \[st05\] |
//! | `closed` | as soon as the one before is done: `window:1` |
//! | `open` | when it was recorded, whatever became of those before: what would users have waited for? |
//! | `think` | when those that had been done before it are done again, after the pause that was recorded: a program |
//! |  | that waits for its disk waits less on a faster one |
//!
//! Nothing is stored: what counts is how long it takes. The same arguments give the same nanoseconds.
//!
//! Invariants
//!   P1  Requests are made in the order of the trace.
//!   P2  Every request of the trace is made once, in as many pieces as the device needs, or the replay fails.

mod blocks;
mod compare;
mod error;
mod place;
mod run;
mod stats;
#[cfg(test)]
mod tests;
mod timing;

pub use blocks::Blocks;
pub use compare::{COLUMNS, Comparison, compare, table};
pub use error::ReplayError;
pub use place::{Devices, Map, Place};
pub use run::{Each, Outcome, Spec, check_stack, replay, simulate, timing_only};
pub use stats::OpStats;
pub(crate) use stats::new_histogram;
pub use timing::Timing;
