//! Workloads, experiments and reports over the Seekless engine.

pub mod replay;
pub mod trace;
