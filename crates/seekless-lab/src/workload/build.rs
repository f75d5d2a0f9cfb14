//! A build, after the Andrew benchmark: a source tree is made, copied, scanned, read and compiled.
//!
//! Source: Howard et al., *Scale and Performance in a Distributed File System*, TOCS 6 (1), 1988, §4: five phases, called
//! MakeDir, Copy, ScanDir, ReadAll and Make, over about 70 files of 200 KB in all. [ro92 §5.1] reports it for Sprite.
//!
//! The sources are generated: sizes are random, and a compiler is reduced to its requests to the file system and, in
//! virtual time, to the processor: each source file and some headers are read, an object file is written, and finally
//! all objects are read and a program is written. In real time nothing is computed.

use async_trait::async_trait;
use seekless::rng::Rng;
use seekless::rt::Work;
use seekless::units::{Nanos, human_bytes};
use serde::{Deserialize, Serialize};

use super::contents::{Contents, Data};
use super::meter::{Durable, Meter, Unit, look};
use super::{DATA, Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters. The defaults are the size of the Andrew benchmark's tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Build {
    /// Source files; three of ten are headers.
    pub files: u64,
    /// Approximate total bytes.
    #[serde(deserialize_with = "size")]
    pub bytes: u64,
    pub directories: u64,
    /// Microseconds of the processor to compile 1 KiB of input, in virtual time.
    pub compile_us_per_kib: u64,
    pub data: Data,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for Build {
    fn default() -> Build {
        Build { files: 70, bytes: 200 << 10, directories: 5, compile_us_per_kib: 0, data: Data::Noise, seed: 1 }
    }
}

pub const MAKE_DIRECTORIES: &str = "make directories";
pub const COPY: &str = "copy";
pub const SCAN: &str = "scan";
pub const READ: &str = "read all";
pub const COMPILE: &str = "compile";

/// Bytes of a call: the C library's buffers of 4.3BSD on file systems with such blocks.
const UNIT: u64 = 8 << 10;

/// Headers that each source file includes.
const INCLUDED: u64 = 5;

/// All files together are held in memory.
const BYTES_MAX: u64 = 1 << 30;

/// The source tree, and its copy for the build.
const ORIGINAL: &str = "original";
const COPIED: &str = "copy";

struct Source {
    number: u64,
    bytes: u64,
}

struct Tree<'a, T> {
    target: &'a T,
    contents: Contents,
    sources: Vec<Source>,
    directories: u64,
}

impl<T: Target> Tree<'_, T> {
    fn directory(&self, root: &str, number: u64) -> String {
        format!("{root}/d{:02}", number % self.directories)
    }

    fn path(&self, root: &str, source: &Source) -> String {
        let suffix = if is_header(source) { "h" } else { "c" };
        format!("{}/f{:04}.{suffix}", self.directory(root, source.number), source.number)
    }

    async fn make_directories(&self, root: &str) -> Result<(), LabError> {
        self.target.mkdir(root).await?;
        for number in 0..self.directories {
            self.target.mkdir(&self.directory(root, number)).await?;
        }
        Ok(())
    }

    async fn write(&self, path: &str, number: u64, bytes: u64) -> Result<(), LabError> {
        let whole = self.contents.piece(number, bytes);
        let mut open = self.target.create(path).await?;
        for (index, unit) in whole.chunks(UNIT as usize).enumerate() {
            self.target.write(&mut open, index as u64 * UNIT, unit).await?;
        }
        self.target.close(open).await
    }

    /// Reads a whole file, and checks its content.
    async fn read(&self, path: &str, number: u64, bytes: u64) -> Result<(), LabError> {
        let mut open = self.target.open(path).await?;
        let (mut found, mut buffer) = (Vec::with_capacity(bytes as usize), vec![0; UNIT as usize]);
        loop {
            let read = self.target.read(&mut open, found.len() as u64, &mut buffer).await?;
            found.extend_from_slice(&buffer[..read]);
            if read < buffer.len() {
                break;
            }
        }
        self.target.close(open).await?;
        self.contents.check(number, bytes, path, &found)
    }

    async fn read_source(&self, root: &str, source: &Source) -> Result<u64, LabError> {
        self.read(&self.path(root, source), source.number, source.bytes).await?;
        Ok(source.bytes)
    }
}

fn is_header(source: &Source) -> bool {
    source.number % 10 < 3
}

impl Build {
    /// Sizes between zero and twice the mean, so that they add up approximately.
    fn sources(&self) -> Vec<Source> {
        let mut rng = Rng::new(self.seed);
        let mean = self.bytes / self.files;
        (0..self.files).map(|number| Source { number, bytes: rng.between(1, (2 * mean).max(1)) }).collect()
    }
}

#[async_trait(?Send)]
impl Workload for Build {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<Build>(
        "build",
        "Make, copy, look through, read and compile a source tree (after the Andrew benchmark)",
        &[
            Key::new("files", Form::Count, "Source files"),
            Key::new("bytes", Form::Bytes, "Size of all sources together, about"),
            Key::new("directories", Form::Count, "Number of directories"),
            Key::new(
                "compile_us_per_kib",
                Form::Count,
                "Microseconds of the processor to compile 1 KiB, in virtual time",
            ),
            DATA,
        ],
    )
    .about("What a compiler computes takes time in virtual time only: see --compile-us-per-kib.")
    .examples(&[
        "--on 'lfs / disk:wren4' --compile-us-per-kib 20000",
        "--on /mnt --on /tmp --files 2000 --bytes 16MiB --directories 100",
    ]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            Build { files: 0, .. } => "there must be at least one file",
            Build { files: 1_000_001.., .. } => "there can be at most 1,000,000 files",
            Build { directories: 0, .. } => "there must be at least one directory",
            Build { directories: 100_001.., .. } => "there can be at most 100,000 directories",
            Build { bytes, files, .. } if bytes < files => "there must be a byte for each file",
            Build { compile_us_per_kib: 1_000_001.., .. } => "1 KiB is compiled in at most a second",
            Build { bytes, .. } if *bytes > BYTES_MAX => "the sources have at most 1 GiB",
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        format!(
            "a build: {} source files of {} in {} directories, seed {}",
            self.files,
            human_bytes(self.bytes),
            self.directories,
            self.seed
        )
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> Build {
        Build { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let sources = self.sources();
        let total: u64 = sources.iter().map(|source| source.bytes).sum();
        let contents = Contents::of(self.data, self.seed, total);
        let tree = Tree { target, contents, sources, directories: self.directories };
        tree.make_directories(ORIGINAL).await?;
        for source in &tree.sources {
            look(watch)?;
            tree.write(&tree.path(ORIGINAL, source), source.number, source.bytes).await?;
        }
        let mut meter = Meter::start(target, watch).await?;
        meter.drop_caches().await?;

        let mut make = meter.begin(MAKE_DIRECTORIES, Unit::Files, self.directories + 1);
        tree.make_directories(COPIED).await?;
        meter.step(&mut make, self.directories + 1, 0)?;
        meter.end(make, Durable::Yes).await?;

        let mut copy = meter.begin(COPY, Unit::Files, self.files);
        for source in &tree.sources {
            let bytes = tree.read_source(ORIGINAL, source).await?;
            tree.write(&tree.path(COPIED, source), source.number, source.bytes).await?;
            meter.step(&mut copy, 1, 2 * bytes)?;
        }
        meter.end(copy, Durable::Yes).await?;

        let mut scan = meter.begin(SCAN, Unit::Files, self.files);
        for number in 0..self.directories {
            let directory = tree.directory(COPIED, number);
            for listed in target.list(&directory).await? {
                target.stat(&format!("{directory}/{}", listed.name)).await?;
                meter.step(&mut scan, 1, 0)?;
            }
        }
        meter.end(scan, Durable::No).await?;

        let mut read = meter.begin(READ, Unit::Files, self.files);
        for source in &tree.sources {
            let bytes = tree.read_source(COPIED, source).await?;
            meter.step(&mut read, 1, bytes)?;
        }
        meter.end(read, Durable::No).await?;

        let (headers, compiled): (Vec<&Source>, Vec<&Source>) =
            tree.sources.iter().partition(|source| is_header(source));
        let mut compile = meter.begin(COMPILE, Unit::Files, compiled.len() as u64 + 1);
        let object = |source: &Source| format!("{}/f{:04}.o", tree.directory(COPIED, source.number), source.number);
        for source in &compiled {
            let mut bytes = tree.read_source(COPIED, source).await?;
            for included in 0..INCLUDED.min(headers.len() as u64) {
                let header = headers[((source.number + included) % headers.len() as u64) as usize];
                bytes += tree.read_source(COPIED, header).await?;
            }
            let time = Nanos::from_micros(self.compile_us_per_kib.saturating_mul(bytes) / 1024);
            target.compute(Work::Compute { time }).await;
            tree.write(&object(source), source.number, source.bytes).await?;
            meter.step(&mut compile, 1, bytes + source.bytes)?;
        }
        let mut program = 0;
        for source in &compiled {
            tree.read(&object(source), source.number, source.bytes).await?;
            program += source.bytes;
        }
        tree.write(&format!("{COPIED}/program"), self.files, program).await?;
        meter.step(&mut compile, 1, 2 * program)?;
        meter.end(compile, Durable::Yes).await?;

        super::remove_all(target, "").await;
        target.sync().await?;
        Ok(meter.outcome())
    }
}
