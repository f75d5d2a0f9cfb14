//! The small-file benchmark: many small files are created, read back in the order of their creation, and deleted.
//!
//! Paper: [ro92 Fig. 8] uses 10,000 files of 1 KB, [se95 §3] the same with at most 100 files in a directory.
//!
//! Each file is created, written and closed; then everything is made durable and caches are dropped; each file is
//! opened, read and closed; each is deleted; then everything is made durable again. Making durable belongs to the
//! phase before it, for otherwise a file system that puts everything off would look infinitely fast. Directories
//! are made before their first file and removed after their last one, inside the phases.
//!
//! What is read is compared with what was written: a benchmark of wrong answers is worth nothing.

use std::ops::ControlFlow;

use seekless::rng::Rng;
use seekless::units::Nanos;
use serde::Serialize;

use crate::LabError;
use crate::target::{Coldness, Target, Usage};

/// How much to do. The defaults are those of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct SmallFile {
    pub files: u64,
    /// Size of each file.
    pub bytes: u64,
    pub files_per_directory: u64,
    /// Decides what is in the files.
    pub seed: u64,
}

impl Default for SmallFile {
    fn default() -> SmallFile {
        SmallFile { files: 10_000, bytes: 1024, files_per_directory: 100, seed: 1 }
    }
}

/// Larger files are another benchmark, and each is held in memory.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Create,
    Read,
    Delete,
}

impl Phase {
    pub const ALL: [Phase; 3] = [Phase::Create, Phase::Read, Phase::Delete];

    pub fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Read => "read",
            Phase::Delete => "delete",
        }
    }
}

/// Hears the phase and how many of its files are done, and says whether to go on.
pub type Progress<'a> = &'a dyn Fn(Phase, u64) -> ControlFlow<()>;

/// What one phase took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    pub phase: Phase,
    pub files: u64,
    /// From the first call to the end of making durable.
    pub elapsed: Nanos,
    /// Of this: making durable, once the last call had returned.
    pub sync: Nanos,
    pub usage: Usage,
}

/// What a run took.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub phases: Vec<Measured>,
    /// How cold the caches were before the files were read.
    pub coldness: Coldness,
}

impl SmallFile {
    /// # Errors
    /// `Spec`, when there is nothing to do, or too much.
    pub fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            SmallFile { files: 0, .. } => "there must be at least one file",
            SmallFile { files: 1_000_000_001.., .. } => "there can be at most 1,000,000,000 files",
            SmallFile { files_per_directory: 0, .. } => "a directory must hold at least one file",
            SmallFile { bytes, .. } if *bytes > BYTES_MAX => "a small file has at most 64 MiB",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn directory(&self, file: u64) -> String {
        format!("d{:05}", file / self.files_per_directory)
    }

    fn path(&self, file: u64) -> String {
        format!("{}/f{file:07}", self.directory(file))
    }

    /// First file of its directory.
    fn begins_directory(&self, file: u64) -> bool {
        file.is_multiple_of(self.files_per_directory)
    }

    fn ends_directory(&self, file: u64) -> bool {
        (file + 1).is_multiple_of(self.files_per_directory) || file + 1 == self.files
    }

    /// Runs all phases on `target`. After an error, files of the run may be left: see [`SmallFile::tidy`].
    ///
    /// # Errors
    /// What the target answers, `Content` when it reads something else than was written, and `Interrupted`.
    pub async fn run<T: Target>(&self, target: &T, progress: Progress<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let progress = |phase, done| match progress(phase, done) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(LabError::Interrupted),
        };
        let contents = Contents::new(self);
        // What came before is not to be paid for here.
        target.sync().await?;
        let mut phases = Vec::new();

        let stopwatch = Stopwatch::start(target);
        for file in 0..self.files {
            if self.begins_directory(file) {
                target.mkdir(&self.directory(file)).await?;
            }
            let mut open = target.create(&self.path(file)).await?;
            target.write(&mut open, 0, &contents.of(file)).await?;
            target.close(open).await?;
            progress(Phase::Create, file + 1)?;
        }
        phases.push(stopwatch.stop(target, Phase::Create, self.files, true).await?);

        let coldness = target.drop_caches().await?;
        let stopwatch = Stopwatch::start(target);
        let mut buffer = vec![0; self.bytes as usize];
        for file in 0..self.files {
            let path = self.path(file);
            let mut open = target.open(&path).await?;
            let read = target.read(&mut open, 0, &mut buffer).await?;
            target.close(open).await?;
            contents.check(file, &path, &buffer[..read])?;
            progress(Phase::Read, file + 1)?;
        }
        phases.push(stopwatch.stop(target, Phase::Read, self.files, false).await?);

        let stopwatch = Stopwatch::start(target);
        for file in 0..self.files {
            target.unlink(&self.path(file)).await?;
            if self.ends_directory(file) {
                target.rmdir(&self.directory(file)).await?;
            }
            progress(Phase::Delete, file + 1)?;
        }
        phases.push(stopwatch.stop(target, Phase::Delete, self.files, true).await?);
        Ok(Outcome { phases, coldness })
    }

    /// Deletes what a run that has failed left behind, as far as that is possible. `made` is how many files its progress
    /// said were created.
    pub async fn tidy<T: Target>(&self, target: &T, made: u64) {
        // One more may have been created and not written.
        let last = made.min(self.files - 1);
        for file in 0..=last {
            // Some are deleted already.
            let _ = target.unlink(&self.path(file)).await;
            if self.ends_directory(file) || file == last {
                let _ = target.rmdir(&self.directory(file)).await;
            }
        }
    }
}

struct Stopwatch {
    began: Nanos,
    usage: Usage,
}

impl Stopwatch {
    fn start<T: Target>(target: &T) -> Stopwatch {
        Stopwatch { began: target.now(), usage: target.usage() }
    }

    async fn stop<T: Target>(self, target: &T, phase: Phase, files: u64, sync: bool) -> Result<Measured, LabError> {
        let calls_ended = target.now();
        if sync {
            target.sync().await?;
        }
        let ended = target.now();
        Ok(Measured {
            phase,
            files,
            elapsed: ended.saturating_sub(self.began),
            sync: ended.saturating_sub(calls_ended),
            usage: target.usage().since(self.usage),
        })
    }
}

/// What is in the files: bytes that cannot be compressed, and begin with the number of the file.
struct Contents {
    common: Vec<u8>,
}

impl Contents {
    fn new(spec: &SmallFile) -> Contents {
        let mut common = vec![0; spec.bytes as usize];
        Rng::new(spec.seed).fill(&mut common);
        Contents { common }
    }

    fn of(&self, file: u64) -> Vec<u8> {
        let mut bytes = self.common.clone();
        for (byte, number) in bytes.iter_mut().zip(file.to_le_bytes()) {
            *byte = number;
        }
        bytes
    }

    fn check(&self, file: u64, path: &str, found: &[u8]) -> Result<(), LabError> {
        let expected = self.of(file);
        if found == expected {
            return Ok(());
        }
        let detail = match found.len() == expected.len() {
            false => format!("{} bytes instead of {}", found.len(), expected.len()),
            true => {
                let at = found.iter().zip(&expected).take_while(|(one, other)| one == other).count();
                format!("byte {at} differs")
            }
        };
        Err(LabError::Content { path: path.to_owned(), detail })
    }
}
