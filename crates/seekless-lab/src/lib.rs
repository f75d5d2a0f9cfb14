//! Workloads, experiments and reports over the Seekless engine.
//!
//! A [`workload`] is a program that uses files. It runs on a [`target`]: a stack of the engine, in virtual time on
//! modelled disks or in real time in this process, or any directory of the host, with the same calls at the same
//! points. [`run`] puts the two together and [`report`] says what came out, next to what was published.
//!
//! An [`experiment`] describes all of this in a file, varies its parameters, and compares the results with published
//! figures.
//!
//! A [`trace`] is the recorded requests of a machine to its disks, by any recorder; [`replay`] sends them to other
//! storage.
//!
//! [`cleaning`] simulates how a log is cleaned, without any contents.
//!
//! This crate does not know FUSE.

pub mod arithmetic;
pub mod cleaning;
mod error;
pub mod experiment;
mod measured;
// This module is about real files.
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
