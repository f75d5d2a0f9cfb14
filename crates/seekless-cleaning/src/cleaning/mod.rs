//! Cleaning a log: which segment is emptied, when, how many at once, and where its live blocks go.
//!
//! Paper: [ro92 §3.3–§3.6]. A [`Policy`] answers these questions and knows nothing of what the log is part of: a file
//! system tells it what becomes of segments and asks. [`simulate`] is such a log without contents: a map of blocks, and
//! counters. It writes no metadata, and its user neither reads nor waits.
//!
//! [`POLICIES`] and [`PATTERNS`] list all policies, and all orders in which blocks are written. Both are written as a
//! word with options, `cost-benefit:age=root`; [`words`] parses them.
//!
//! Two figures say what cleaning costs, and they differ:
//!
//! * *write amplification*: blocks written to the log for each block of the user. Reads do not count.
//! * *write cost* [ro92 §3.4]: blocks read and written for each block of the user. A victim is read whole, but an empty
//!   one is not read at all.

pub mod index;
pub mod model;
pub mod outcome;
pub mod patterns;
pub mod policies;
pub mod policy;
pub mod simulator;
#[cfg(test)]
mod tests;
pub mod words;

pub use outcome::Outcome;
pub use patterns::{PATTERNS, Pattern, PatternSpec};
pub use policies::{POLICIES, PolicySpec};
pub use policy::{Policy, Shape};
pub use simulator::{Setup, SetupError, simulate};
