//! Replays a block trace on storage, in virtual time: the same requests, served by another disk, array or volume.
//!
//! The times in a trace can be used in four ways, because recorded arrivals belong to the recorded machine:
//!
//! | timing | a request is made |
//! |---|---|
//! | `window:N` | as soon as fewer than N are under way, in the order of the trace: how fast can it be? \[st05\] |
//! | `closed` | as soon as the one before is done: `window:1` |
//! | `open` | when it was recorded, whatever happened to earlier ones: how long would users have waited? |
//! | `think` | after the completion of those that had completed before it, and the recorded pause: a program |
//! |  | that waits for its disk waits less on a faster one |
//!
//! Where requests arrive faster than they are answered, that is the answer: an open replay goes on to the end of the trace,
//! with the requests that a device cannot hold waiting in front of it, and says how far behind the storage is.
//!
//! No data is stored: only the times matter. The same arguments give the same nanoseconds.
//!
//! Invariants
//!   P1  Requests are made in the order of the trace.
//!   P2  Every request of the trace is made once, in as many pieces as the device needs, or the replay fails.

mod answers;
mod bars;
mod blocks;
mod compare;
mod error;
mod feed;
mod load;
mod many;
mod over_time;
mod place;
mod run;
mod stats;
#[cfg(test)]
mod tests;
mod timing;
mod unwritten;

pub use answers::{Answered, HEADER, Listener};
pub use blocks::Blocks;
pub use compare::{COLUMNS, Comparison, compare, table};
pub use error::ReplayError;
pub use load::{DriveLoad, describe_loads};
pub use many::{Watch, needs_survey, simulate_all, simulate_all_watched};
pub use over_time::{Interval, OverTime};
pub use place::{Devices, Map, TraceLayout};
pub use run::{Arrivals, Each, Outcome, Spec, check_stack, replay, simulate, simulate_heard, timing_only};
pub use stats::OpStats;
pub(crate) use stats::new_histogram;
pub use timing::Timing;
pub use unwritten::unwritten_reads;
