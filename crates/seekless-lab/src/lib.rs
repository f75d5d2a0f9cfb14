//! Workloads, experiments and reports over the Seekless engine.
