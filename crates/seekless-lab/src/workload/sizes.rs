//! The sweep over file sizes: the same amount of data in files of each size is created, read, overwritten and deleted.
//!
//! Paper: [se95 §3]: 32 MB of data in files of 1 KB, 2 KB ... 64 MB, at most 100 files in a directory, calls of at most
//! 4 MB.
//!
//! Everything is made durable at the end of each phase that changes something, and caches are dropped before files are
//! read. The paper has ten files of the sizes of which 32 MB are fewer, and a new volume for each size of LFS: see
//! `experiments/se95-sizes`.

use async_trait::async_trait;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::{Contents, Data};
use super::meter::{Durable, Meter, Unit};
use super::{
    DATA, Form, Key, Outcome, Watch, Workload, WorkloadSpec, begins_directory, ends_directory, numbered_directory, size,
};
use crate::LabError;
use crate::target::Target;

/// Parameters. The defaults are those of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sizes {
    /// The first size; each is twice the previous one.
    #[serde(deserialize_with = "size")]
    pub smallest: u64,
    /// The largest size.
    #[serde(deserialize_with = "size")]
    pub largest: u64,
    /// Total data of the files of one size.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    /// Largest size of a call.
    #[serde(deserialize_with = "size")]
    pub unit: u64,
    /// Fewest files of one size, also where these are more data than `bytes`.
    pub files: u64,
    pub files_per_directory: u64,
    pub data: Data,
    /// Seed of the contents of files.
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes {
            smallest: 1 << 10,
            largest: 64 << 20,
            bytes: 32 << 20,
            unit: 4 << 20,
            files: 1,
            files_per_directory: 100,
            data: Data::Noise,
            seed: 1,
        }
    }
}

/// Each call's bytes are held in memory.
const UNIT_MAX: u64 = 64 << 20;

pub const CREATE: &str = "create";
pub const READ: &str = "read";
pub const OVERWRITE: &str = "overwrite";
pub const DELETE: &str = "delete";

/// The files of one size.
struct Files {
    spec: Sizes,
    bytes: u64,
    count: u64,
}

impl Files {
    fn path(&self, file: u64) -> String {
        format!("{}/f{file:07}", numbered_directory(file, self.spec.files_per_directory))
    }

    /// Offset and length of each call on a file.
    fn calls(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (unit, bytes) = (self.spec.unit, self.bytes);
        (0..bytes.div_ceil(unit)).map(move |call| (call * unit, unit.min(bytes - call * unit)))
    }

    /// The number of the piece at `offset` of `file`: all are distinct.
    fn number(&self, file: u64, offset: u64, version: u64) -> u64 {
        (version * self.count + file) * self.bytes.div_ceil(self.spec.unit) + offset / self.spec.unit
    }
}

impl Sizes {
    /// Every size of the sweep.
    pub fn sizes(&self) -> impl Iterator<Item = u64> + use<> {
        let largest = self.largest;
        std::iter::successors(Some(self.smallest), |size| size.checked_mul(2)).take_while(move |size| *size <= largest)
    }

    /// One size after another.
    pub(super) async fn run_all<T: Target>(&self, target: &T, meter: &mut Meter<'_, T>) -> Result<(), LabError> {
        let contents = Contents::of(self.data, self.seed, self.unit.min(self.largest));
        for bytes in self.sizes() {
            let files = Files { spec: *self, bytes, count: (self.bytes / bytes).max(self.files) };
            self.run_size(target, meter, &contents, &files).await?;
        }
        Ok(())
    }

    async fn run_size<T: Target>(
        &self,
        target: &T,
        meter: &mut Meter<'_, T>,
        contents: &Contents,
        files: &Files,
    ) -> Result<(), LabError> {
        let per_directory = self.files_per_directory;
        let mut create = meter.begin(CREATE, Unit::Files, files.count).with_files_of(files.bytes);
        for file in 0..files.count {
            if begins_directory(file, per_directory) {
                target.mkdir(&numbered_directory(file, per_directory)).await?;
            }
            let mut open = target.create(&files.path(file)).await?;
            for (offset, bytes) in files.calls() {
                target.write(&mut open, offset, &contents.piece(files.number(file, offset, 0), bytes)).await?;
            }
            target.close(open).await?;
            meter.step(&mut create, 1, files.bytes)?;
        }
        meter.end(create, Durable::Yes).await?;

        meter.drop_caches().await?;
        let mut buffer = vec![0; self.unit.min(files.bytes) as usize];
        let mut read = meter.begin(READ, Unit::Files, files.count).with_files_of(files.bytes);
        for file in 0..files.count {
            let path = files.path(file);
            let mut open = target.open(&path).await?;
            for (offset, bytes) in files.calls() {
                let found = target.read(&mut open, offset, &mut buffer[..bytes as usize]).await?;
                contents.check(files.number(file, offset, 0), bytes, &path, &buffer[..found])?;
            }
            target.close(open).await?;
            meter.step(&mut read, 1, files.bytes)?;
        }
        meter.end(read, Durable::No).await?;

        let mut overwrite = meter.begin(OVERWRITE, Unit::Files, files.count).with_files_of(files.bytes);
        for file in 0..files.count {
            let mut open = target.open_to_write(&files.path(file)).await?;
            for (offset, bytes) in files.calls() {
                target.write(&mut open, offset, &contents.piece(files.number(file, offset, 1), bytes)).await?;
            }
            target.close(open).await?;
            meter.step(&mut overwrite, 1, files.bytes)?;
        }
        meter.end(overwrite, Durable::Yes).await?;

        let mut delete = meter.begin(DELETE, Unit::Files, files.count).with_files_of(files.bytes);
        for file in 0..files.count {
            target.unlink(&files.path(file)).await?;
            if ends_directory(file, files.count, per_directory) {
                target.rmdir(&numbered_directory(file, per_directory)).await?;
            }
            meter.step(&mut delete, 1, 0)?;
        }
        meter.end(delete, Durable::Yes).await
    }
}

#[async_trait(?Send)]
impl Workload for Sizes {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<Sizes>(
        "sizes",
        "Create, read, overwrite and delete the same data in files of each size [se95 §3]",
        &[
            Key::new("smallest", Form::Bytes, "The first size; each is twice the one before"),
            Key::new("largest", Form::Bytes, "No size is larger"),
            Key::new("bytes", Form::Bytes, "Data in the files of one size together"),
            Key::new("unit", Form::Bytes, "Size of each read and write, at most"),
            Key::new("files", Form::Count, "Fewest files of one size, also where these are more data"),
            Key::new("files_per_directory", Form::Count, "Most files in a directory"),
            DATA,
        ],
    )
    .examples(&[
        "--on 'lfs / disk:dec-rz26' --profile sparcstation2",
        "--on /mnt --smallest 4KiB --largest 1MiB --bytes 8MiB",
    ])
    .by_size();

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            Sizes { smallest: 0, .. } => "a file must have at least one byte",
            Sizes { smallest, largest, .. } if smallest > largest => "the smallest size is larger than the largest",
            Sizes { unit, .. } if *unit == 0 || *unit > UNIT_MAX => "a call has between one byte and 64 MiB",
            Sizes { files: 0, .. } => "there must be at least one file of each size",
            Sizes { files_per_directory: 0, .. } => "a directory must hold at least one file",
            Sizes { bytes, smallest, files, .. } if (bytes / smallest).max(*files) > 1_000_000_000 => {
                "there can be at most 1,000,000,000 files"
            }
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        format!(
            "file sizes: {} in files of {} to {}, {} in a directory, seed {}",
            human_bytes(self.bytes),
            human_bytes(self.smallest),
            human_bytes(self.sizes().last().unwrap_or(self.smallest)),
            self.files_per_directory,
            self.seed
        )
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Sizes {
        Sizes { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let mut meter = Meter::start(target, watch).await?;
        self.run_all(target, &mut meter).await?;
        Ok(meter.outcome())
    }
}
