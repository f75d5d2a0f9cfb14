//! Workloads, experiments and reports over the Seekless engine.
//!
//! A [`workload`] is a program that uses files. It runs on a [`target`]: a stack of the engine, in virtual time on
//! modelled disks or in real time in this process, or any directory of the host, with the same calls at the same
//! points. [`run`] puts the two together and [`report`] says what came out, next to what was published.
//!
//! An [`experiment`] says all of this in a file, sweeps what it varies, and puts what was published beside it.
//!
//! A [`trace`] is what a machine asked of its disks, whoever recorded it; [`replay`] asks the same of other storage.
//!
//! Nothing in here knows FUSE.

pub mod arithmetic;
mod error;
pub mod experiment;
mod measured;
// Real files are what it is about.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
pub mod output;
pub mod published;
pub mod replay;
pub mod report;
pub mod run;
pub mod target;
pub mod trace;
pub mod workload;

pub use error::LabError;
