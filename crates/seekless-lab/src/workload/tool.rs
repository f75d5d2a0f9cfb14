//! Files that are stored encoded: by the file system, or by a program that writes the encoded bytes to a plain one.
//!
//! Paper: [za01 §7.5, Fig. 10]: files of each size and of four kinds are copied into `Gzipfs`, and encoded by gzip(1)
//! on Ext2. The program encodes a whole file, the file system page by page.
//!
//! The data is in memory before. The paper's programs read it from another disk, which costs both the same.

use async_trait::async_trait;
use seekless::layer::codecs::{Codec, Deflate, Position};
use seekless::rt::Work;
use seekless::units::human_bytes;
use serde::{Deserialize, Serialize};

use super::contents::{Contents, Data};
use super::meter::{Durable, Meter, Unit};
use super::{DATA, Form, Key, Outcome, Watch, Workload, WorkloadSpec, remove_all, size};
use crate::LabError;
use crate::target::Target;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tool {
    /// Deflate level of the program; 0 leaves encoding to the file system.
    pub level: u32,
    /// The first size; each is four times the previous one.
    #[serde(deserialize_with = "size")]
    pub smallest: u64,
    /// The largest size.
    #[serde(deserialize_with = "size")]
    pub largest: u64,
    /// Total data of the files of one size.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    pub data: Data,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for Tool {
    fn default() -> Tool {
        Tool { level: 0, smallest: 1 << 10, largest: 4 << 20, bytes: 1 << 20, data: Data::Text, seed: 1 }
    }
}

pub const STORE: &str = "store";
pub const FETCH: &str = "fetch";

/// Bytes of a call: the blocks of Ext2, which cp(1) uses.
const UNIT: usize = 4 << 10;

/// A file is held in memory as a whole.
const BYTES_MAX: u64 = 1 << 30;

/// A program that encodes, or one that does not.
struct Program<'a, T> {
    target: &'a T,
    codec: Option<Deflate>,
}

impl<T: Target> Program<'_, T> {
    async fn store(&self, path: &str, raw: Vec<u8>) -> Result<(), LabError> {
        let stored = match &self.codec {
            None => raw,
            Some(codec) => {
                let cycles = codec.cost().encode_cycles_per_kib * raw.len() as u64 / 1024;
                self.target.compute(Work::Cycles(cycles)).await;
                codec.encode(&raw, &Position::NONE).unwrap_or(raw)
            }
        };
        let mut open = self.target.create(path).await?;
        for (number, unit) in stored.chunks(UNIT).enumerate() {
            self.target.write(&mut open, (number * UNIT) as u64, unit).await?;
        }
        self.target.close(open).await
    }

    async fn fetch(&self, path: &str, bytes: u64) -> Result<Vec<u8>, LabError> {
        let mut open = self.target.open(path).await?;
        let (mut stored, mut unit) = (Vec::new(), vec![0; UNIT]);
        loop {
            let read = self.target.read(&mut open, stored.len() as u64, &mut unit).await?;
            stored.extend_from_slice(&unit[..read]);
            if read < UNIT {
                break;
            }
        }
        self.target.close(open).await?;
        match &self.codec {
            // Data that does not get shorter is stored unencoded.
            Some(codec) if (stored.len() as u64) < bytes => {
                self.target.compute(Work::Cycles(codec.cost().decode_cycles_per_kib * bytes / 1024)).await;
                let wrong = |detail| LabError::Content { path: path.to_owned(), detail };
                codec.decode(&stored, bytes as usize, &Position::NONE).map_err(wrong)
            }
            _ => Ok(stored),
        }
    }
}

#[async_trait(?Send)]
impl Workload for Tool {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<Tool>(
        "tool",
        "Store files encoded, by the file system or by a program [za01 §7]",
        &[
            Key::new(
                "level",
                Form::Count,
                "Level of Deflate at which the program encodes; 0: it leaves that to the file system",
            ),
            Key::new("smallest", Form::Bytes, "The first size; each is four times the one before"),
            Key::new("largest", Form::Bytes, "No size is larger"),
            Key::new("bytes", Form::Bytes, "Data in the files of one size together"),
            DATA,
        ],
    )
    .examples(&["--on 'gzip:level=9 / lfs / disk:cheetah9lp'", "--on 'lfs / disk:cheetah9lp' --level 9"])
    .by_size();

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            Tool { level: 10.., .. } => "levels are 1 to 9, and 0 for none",
            Tool { smallest: 0, .. } => "a file must have at least one byte",
            Tool { smallest, largest, .. } if smallest > largest => "the smallest size is larger than the largest",
            Tool { largest, .. } if *largest > BYTES_MAX => "a file has at most 1 GiB",
            Tool { bytes, smallest, .. } if bytes / smallest > 1_000_000 => "there can be at most 1,000,000 files",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        let encoded = match self.level {
            0 => "by the file system".to_owned(),
            level => format!("by a program at level {level}"),
        };
        let (smallest, largest) = (human_bytes(self.smallest), human_bytes(self.largest));
        format!("files of {smallest} to {largest} encoded {encoded}, seed {}", self.seed)
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Tool {
        Tool { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let contents = Contents::of(self.data, self.seed, self.largest);
        let codec = (self.level > 0).then_some(Deflate { level: self.level });
        let program = Program { target, codec };
        let mut meter = Meter::start(target, watch).await?;
        let mut bytes = self.smallest;
        while bytes <= self.largest {
            let files = (self.bytes / bytes).max(1);
            let path = |file: u64| format!("f{file:07}");
            let mut store = meter.begin(STORE, Unit::Files, files).with_files_of(bytes);
            for file in 0..files {
                program.store(&path(file), contents.piece(file, bytes)).await?;
                meter.step(&mut store, 1, bytes)?;
            }
            meter.end(store, Durable::Yes).await?;
            meter.drop_caches().await?;
            let mut fetch = meter.begin(FETCH, Unit::Files, files).with_files_of(bytes);
            for file in 0..files {
                let found = program.fetch(&path(file), bytes).await?;
                contents.check(file, bytes, &path(file), &found)?;
                meter.step(&mut fetch, 1, bytes)?;
            }
            meter.end(fetch, Durable::No).await?;
            remove_all(target, "").await;
            target.sync().await?;
            bytes *= 4;
        }
        Ok(meter.outcome())
    }
}
