//! The small-file benchmark: many small files are created, read back in the order of their creation, and deleted.
//!
//! Paper: [ro92 Fig. 8] and [se95 §2] use 10,000 files of 1 KB. At most 100 files are in a directory, as in [se95 §3]: §2 does
//! not say how many there were.
//!
//! Each file is created, written and closed; then everything is made durable and caches are dropped; each file is
//! opened, read and closed; each is deleted; then everything is made durable again. Making durable belongs to the phase
//! before it; otherwise a file system that delays everything would look infinitely fast. Directories are made before
//! their first file and removed after their last one, inside the phases.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::meter::{Durable, Meter, Unit};
pub use super::phases::{CREATE, DELETE, READ};
use super::{
    Comparison, Form, Key, Outcome, Watch, Workload, WorkloadSpec, begins_directory, ends_directory,
    numbered_directory, size,
};
use crate::LabError;
use crate::measured::Run;
use crate::target::Target;

/// Parameters. The defaults are those of the papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SmallFile {
    pub files: u64,
    /// Size of each file.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    pub files_per_directory: u64,
    /// Seed of the contents of files.
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for SmallFile {
    fn default() -> SmallFile {
        SmallFile { files: 10_000, bytes: 1024, files_per_directory: 100, seed: 1 }
    }
}

/// Larger files are another benchmark, and each file is held in memory.
const BYTES_MAX: u64 = 64 << 20;

impl SmallFile {
    fn directory(&self, file: u64) -> String {
        numbered_directory(file, self.files_per_directory)
    }

    fn path(&self, file: u64) -> String {
        format!("{}/f{file:07}", self.directory(file))
    }
}

#[async_trait(?Send)]
impl Workload for SmallFile {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<SmallFile>(
        "smallfile",
        "Create, read and delete many small files [ro92 Fig. 8] [se95 §2]",
        &[
            Key::new("files", Form::Count, "Number of files"),
            Key::new("bytes", Form::Bytes, "Size of each file"),
            Key::new("files_per_directory", Form::Count, "Most files in a directory"),
        ],
    )
    .about(
        "Each file is created, written and closed; then everything is made durable and caches are dropped; each file is opened, read \
         and closed, in the order of creation; each is deleted; everything is made durable. Making durable counts into the phase \
         before it. What is read is compared with what was written.",
    )
    .examples(&[
        "--on 'lfs / disk:dec-rz26' --profile sparcstation2",
        "--on 'lfs / file:a.img' --on /mnt --on /tmp --files 2000",
        "--on 'lfs / disk:cheetah9lp' --json > result.json",
    ]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            SmallFile { files: 0, .. } => "there must be at least one file",
            SmallFile { files: 1_000_000_001.., .. } => "there can be at most 1,000,000,000 files",
            SmallFile { files_per_directory: 0, .. } => "a directory must hold at least one file",
            SmallFile { bytes, .. } if *bytes > BYTES_MAX => "a small file has at most 64 MiB",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        format!(
            "small files: {} x {} bytes, {} in a directory, seed {}",
            self.files, self.bytes, self.files_per_directory, self.seed
        )
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> SmallFile {
        SmallFile { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let contents = Contents::new(self.seed, self.bytes);
        let mut meter = Meter::start(target, watch).await?;

        let mut create = meter.begin(CREATE, Unit::Files, self.files);
        for file in 0..self.files {
            if begins_directory(file, self.files_per_directory) {
                target.mkdir(&self.directory(file)).await?;
            }
            let mut open = target.create(&self.path(file)).await?;
            target.write(&mut open, 0, &contents.piece(file, self.bytes)).await?;
            target.close(open).await?;
            meter.step(&mut create, 1, self.bytes)?;
        }
        meter.end(create, Durable::Yes).await?;

        meter.drop_caches().await?;
        let mut read = meter.begin(READ, Unit::Files, self.files);
        let mut buffer = vec![0; self.bytes as usize];
        for file in 0..self.files {
            let path = self.path(file);
            let mut open = target.open(&path).await?;
            let bytes = target.read(&mut open, 0, &mut buffer).await?;
            target.close(open).await?;
            contents.check(file, self.bytes, &path, &buffer[..bytes])?;
            meter.step(&mut read, 1, self.bytes)?;
        }
        meter.end(read, Durable::No).await?;

        let mut delete = meter.begin(DELETE, Unit::Files, self.files);
        for file in 0..self.files {
            target.unlink(&self.path(file)).await?;
            if ends_directory(file, self.files, self.files_per_directory) {
                target.rmdir(&self.directory(file)).await?;
            }
            meter.step(&mut delete, 1, 0)?;
        }
        meter.end(delete, Durable::Yes).await?;
        Ok(meter.outcome())
    }

    fn published(&self, runs: &[Run]) -> Vec<Comparison> {
        let papers = SmallFile { seed: self.seed, ..SmallFile::default() };
        match *self == papers {
            true => runs.iter().flat_map(crate::published::small_files).collect(),
            false => Vec::new(),
        }
    }
}
