//! Programs that use files, as data and as calls on a [`Target`].
//!
//! A workload is a value with its parameters. It runs in phases, each measured from its first call until everything
//! that it wrote is durable. Data read is compared with data written: a benchmark of wrong answers is worthless.

pub mod aged;
pub mod append;
pub mod attributes;
pub mod bonnie;
pub mod build;
mod contents;
pub mod largefile;
pub mod log_append;
mod meter;
pub mod phases;
pub mod postmark;
pub mod script;
pub mod sizes;
pub mod smallfile;
mod spec;
pub mod tool;
pub mod tpcb;

use std::ops::ControlFlow;

use async_trait::async_trait;
pub use contents::Data;
use seekless::units::Nanos;
use serde::Serialize;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error as _};
pub use spec::{DATA, Form, Key, WorkloadSpec};

use crate::LabError;
use crate::measured::Run;
pub use crate::measured::{Comparison, Measured, Unit};
use crate::target::{Coldness, Directory, Target, Vfs};

/// Every program that uses files, in one table. `seekless bench`, experiments, help, completion and the documentation all
/// come from it. A new one is a file here and one more row.
pub const WORKLOADS: &[&WorkloadSpec] = &[
    &smallfile::SmallFile::SPEC,
    &largefile::LargeFile::SPEC,
    &sizes::Sizes::SPEC,
    &aged::Aged::SPEC,
    &postmark::PostMark::SPEC,
    &tpcb::TpcB::SPEC,
    &build::Build::SPEC,
    &append::Append::SPEC,
    &log_append::LogAppend::SPEC,
    &attributes::Attributes::SPEC,
    &bonnie::Bonnie::SPEC,
    &tool::Tool::SPEC,
];

/// A program that uses files. Its value holds its parameters.
#[async_trait(?Send)]
pub trait Workload: Serialize + DeserializeOwned + Default + Send + Sync + 'static {
    /// Its row in the table.
    const SPEC: WorkloadSpec;

    /// # Errors
    /// `Spec`, when there is nothing to do, or too much.
    fn check(&self) -> Result<(), LabError>;

    /// A one-line description of the work.
    fn title(&self) -> String;

    /// Seed of every random choice of a run.
    fn seed(&self) -> u64;

    /// The same with another seed.
    #[must_use]
    fn with_seed(self, seed: u64) -> Self;

    /// Runs all phases on `target`. After an error, files of the run may be left.
    ///
    /// # Errors
    /// Those of the target, `Content` when it returns wrong data, and `Interrupted`.
    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError>;

    /// True of a program that fills the file system to a share, however large that is.
    fn fills(&self) -> bool {
        false
    }

    /// Published statements about the phases of `runs`, if the runs are comparable.
    fn published(&self, _runs: &[Run]) -> Vec<Comparison> {
        Vec::new()
    }
}

/// A [`Workload`] of any kind.
#[async_trait(?Send)]
pub trait Program: Send + Sync {
    /// Its word, where it is one of [`WORKLOADS`].
    fn name(&self) -> &str;

    /// See [`Workload::check`].
    ///
    /// # Errors
    /// As there.
    fn check(&self) -> Result<(), LabError>;

    /// See [`Workload::title`].
    fn title(&self) -> String;

    /// See [`Workload::seed`].
    fn seed(&self) -> u64;

    /// See [`Workload::fills`].
    fn fills(&self) -> bool {
        false
    }

    /// Its numbers.
    fn to_json(&self) -> serde_json::Value;

    /// See [`Workload::published`].
    fn published(&self, runs: &[Run]) -> Vec<Comparison>;

    /// See [`Workload::run`].
    ///
    /// # Errors
    /// As there.
    async fn run_on(&self, target: ProgramTarget<'_>, watch: Watch<'_>) -> Result<Outcome, LabError>;
}

/// Where a [`Program`] runs.
#[derive(Clone, Copy)]
pub enum ProgramTarget<'a> {
    Stack(&'a Vfs),
    Directory(&'a Directory),
}

#[async_trait(?Send)]
impl<W: Workload> Program for W {
    fn name(&self) -> &str {
        W::SPEC.name
    }

    fn check(&self) -> Result<(), LabError> {
        Workload::check(self)
    }

    fn title(&self) -> String {
        Workload::title(self)
    }

    fn seed(&self) -> u64 {
        Workload::seed(self)
    }

    fn fills(&self) -> bool {
        Workload::fills(self)
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::json!(self)
    }

    fn published(&self, runs: &[Run]) -> Vec<Comparison> {
        Workload::published(self, runs)
    }

    async fn run_on(&self, target: ProgramTarget<'_>, watch: Watch<'_>) -> Result<Outcome, LabError> {
        match target {
            ProgramTarget::Stack(target) => self.run(target, watch).await,
            ProgramTarget::Directory(target) => self.run(target, watch).await,
        }
    }
}

/// How far a phase has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PhaseProgress<'a> {
    pub phase: &'a str,
    pub unit: Unit,
    pub done: u64,
    /// 0 where it is not known.
    pub total: u64,
    /// Time since the phase began, by the clock of the run.
    pub elapsed: Nanos,
}

/// Receives the progress of a run, and decides whether to continue.
pub type Watch<'a> = &'a dyn Fn(PhaseProgress<'_>) -> ControlFlow<()>;

/// Measurements of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub phases: Vec<Measured>,
    /// How cold the caches were for reads.
    pub coldness: Coldness,
}

/// Parses a size in bytes, a number or text in stack-line syntax: `"100MiB"`.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Number(bytes) => Ok(bytes),
        Size::Text(text) => seekless::stack::read_bytes(&text).map_err(D::Error::custom),
    }
}

/// The directory of file number `file`, when each holds `files_per_directory` of them.
fn numbered_directory(file: u64, files_per_directory: u64) -> String {
    format!("d{:05}", file / files_per_directory)
}

/// Whether file number `file` is the first in its directory.
fn begins_directory(file: u64, files_per_directory: u64) -> bool {
    file.is_multiple_of(files_per_directory)
}

/// Whether file number `file` of `files` is the last in its directory.
fn ends_directory(file: u64, files: u64, files_per_directory: u64) -> bool {
    (file + 1).is_multiple_of(files_per_directory) || file + 1 == files
}

/// Deletes everything below the directory `path`, as far as possible: what a failed run left behind.
pub async fn remove_all<T: Target>(target: &T, path: &str) {
    for listed in target.list(path).await.unwrap_or_default() {
        let below = if path.is_empty() { listed.name } else { format!("{path}/{}", listed.name) };
        match listed.is_directory {
            true => {
                Box::pin(remove_all(target, &below)).await;
                let _ = target.rmdir(&below).await;
            }
            false => {
                let _ = target.unlink(&below).await;
            }
        }
    }
}
