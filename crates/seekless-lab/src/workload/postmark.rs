//! PostMark: many short-lived small files, as in mail, news and web commerce.
//!
//! Source: J. Katcher, *PostMark: A New File System Benchmark*, 1997, and the behaviour of version 1.5. A pool of files
//! is created; then each transaction reads a file or appends to one, and creates a file or deletes one; at last all
//! files are deleted.
//!
//! The random numbers are ours, so file sizes and the order of transactions match PostMark's only in distribution.
//! Everything is made durable at the end of each phase, which PostMark leaves to the kernel.

use async_trait::async_trait;
use seekless::rng::Rng;
use serde::{Deserialize, Serialize};

use super::contents::Contents;
use super::meter::{Durable, Meter, Running, Unit};
use super::{Form, Key, Outcome, Watch, Workload, WorkloadSpec, size};
use crate::LabError;
use crate::target::Target;

/// Parameters. The defaults are PostMark's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PostMark {
    /// Files in the pool at the start.
    pub files: u64,
    pub transactions: u64,
    /// Smallest and largest size of a new file, in bytes; an append does not grow a file beyond the largest.
    #[serde(deserialize_with = "size")]
    pub smallest: u64,
    #[serde(deserialize_with = "size")]
    pub largest: u64,
    /// Number of directories; with 0, all files are in one directory.
    pub directories: u64,
    /// Bytes of a read.
    #[serde(deserialize_with = "size")]
    pub read_unit: u64,
    /// Bytes of a write.
    #[serde(deserialize_with = "size")]
    pub write_unit: u64,
    /// Of ten transactions, how many read rather than append.
    pub read_bias: u64,
    /// Of ten transactions, how many create rather than delete.
    pub create_bias: u64,
    #[serde(skip_deserializing)]
    pub seed: u64,
}

impl Default for PostMark {
    fn default() -> PostMark {
        PostMark {
            files: 500,
            transactions: 500,
            smallest: 500,
            largest: 10_000,
            directories: 0,
            read_unit: 512,
            write_unit: 512,
            read_bias: 5,
            create_bias: 5,
            seed: 42,
        }
    }
}

/// A file's content is built in memory as one piece.
const BYTES_MAX: u64 = 64 << 20;

pub const CREATE: &str = "create";
pub const TRANSACTIONS: &str = "transactions";
pub const DELETE: &str = "delete";

/// A file of the pool. Its content is a prefix of piece `number`.
#[derive(Clone, Copy)]
struct Pooled {
    number: u64,
    bytes: u64,
}

struct Pool<'a, T> {
    spec: PostMark,
    target: &'a T,
    contents: Contents,
    rng: Rng,
    files: Vec<Pooled>,
    created: u64,
}

impl<T: Target> Pool<'_, T> {
    fn path(&self, number: u64) -> String {
        match self.spec.directories {
            0 => format!("{number}"),
            directories => format!("s{}/{number}", number % directories),
        }
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.files.is_empty()).then(|| self.rng.below(self.files.len() as u64) as usize)
    }

    /// Writes the bytes from `from` to `to` of a file, in units.
    async fn write(&self, open: &mut T::File, file: Pooled, from: u64, to: u64) -> Result<(), LabError> {
        let whole = self.contents.piece(file.number, to);
        let mut at = from;
        while at < to {
            let end = to.min(at + self.spec.write_unit);
            self.target.write(open, at, &whole[at as usize..end as usize]).await?;
            at = end;
        }
        Ok(())
    }

    /// Creates a file. Returns the bytes written.
    async fn create(&mut self) -> Result<u64, LabError> {
        let bytes = self.rng.between(self.spec.smallest, self.spec.largest);
        let file = Pooled { number: self.created, bytes };
        self.created += 1;
        let mut open = self.target.create(&self.path(file.number)).await?;
        self.write(&mut open, file, 0, bytes).await?;
        self.target.close(open).await?;
        self.files.push(file);
        Ok(bytes)
    }

    async fn delete(&mut self, index: usize) -> Result<(), LabError> {
        let file = self.files.swap_remove(index);
        self.target.unlink(&self.path(file.number)).await
    }

    /// Reads a whole file. Returns its bytes.
    async fn read(&mut self, index: usize) -> Result<u64, LabError> {
        let file = self.files[index];
        let path = self.path(file.number);
        let mut open = self.target.open(&path).await?;
        let (mut found, mut buffer) = (Vec::with_capacity(file.bytes as usize), vec![0; self.spec.read_unit as usize]);
        loop {
            let bytes = self.target.read(&mut open, found.len() as u64, &mut buffer).await?;
            found.extend_from_slice(&buffer[..bytes]);
            if bytes < buffer.len() {
                break;
            }
        }
        self.target.close(open).await?;
        self.contents.check(file.number, file.bytes, &path, &found)?;
        Ok(file.bytes)
    }

    /// Appends to a file, up to its maximum size. Returns the bytes written.
    async fn append(&mut self, index: usize) -> Result<u64, LabError> {
        let file = self.files[index];
        if file.bytes >= self.spec.largest {
            return Ok(0);
        }
        let to = self.rng.between(file.bytes + 1, self.spec.largest);
        let mut open = self.target.open_to_write(&self.path(file.number)).await?;
        self.write(&mut open, file, file.bytes, to).await?;
        self.target.close(open).await?;
        self.files[index].bytes = to;
        Ok(to - file.bytes)
    }

    /// One transaction. Returns the bytes read and written.
    async fn transaction(&mut self) -> Result<u64, LabError> {
        let mut bytes = 0;
        let (reads, creates) = (self.rng.below(10) < self.spec.read_bias, self.rng.below(10) < self.spec.create_bias);
        if let Some(index) = self.pick() {
            bytes += match reads {
                true => self.read(index).await?,
                false => self.append(index).await?,
            };
        }
        match (creates, self.pick()) {
            (false, Some(index)) => self.delete(index).await?,
            _ => bytes += self.create().await?,
        }
        Ok(bytes)
    }
}

#[async_trait(?Send)]
impl Workload for PostMark {
    const SPEC: WorkloadSpec = WorkloadSpec::of::<PostMark>(
        "postmark",
        "Many small files that live a short time, as in mail and news (PostMark)",
        &[
            Key::new("files", Form::Count, "Files at the start"),
            Key::new("transactions", Form::Count, "Number of transactions"),
            Key::new("smallest", Form::Bytes, "Smallest size of a new file"),
            Key::new("largest", Form::Bytes, "Largest size of a file"),
            Key::new("directories", Form::Count, "Directories that the files are spread over; 0: all in one"),
            Key::new("read_unit", Form::Bytes, "Size of each read"),
            Key::new("write_unit", Form::Bytes, "Size of each write"),
            Key::new("read_bias", Form::Count, "Of ten transactions, how many read rather than append"),
            Key::new("create_bias", Form::Count, "Of ten transactions, how many create rather than delete"),
        ],
    )
    .about(
        "A pool of files is created; each transaction reads a file or appends to one, and creates or deletes one; all files are \
         deleted.",
    )
    .examples(&[
        "--on 'lfs / disk:cheetah9lp' --files 1000 --transactions 20000",
        "--on /mnt --on /tmp --directories 20",
    ]);

    fn check(&self) -> Result<(), LabError> {
        let fault = match self {
            PostMark { files: 0, .. } => "there must be at least one file",
            PostMark { smallest, largest, .. } if smallest > largest => "the smallest size is larger than the largest",
            PostMark { largest, .. } if *largest > BYTES_MAX => "a file has at most 64 MiB",
            PostMark { read_unit, write_unit, .. } if *read_unit.min(write_unit) == 0 => "a call has at least one byte",
            PostMark { read_unit, write_unit, .. } if *read_unit.max(write_unit) > BYTES_MAX => {
                "a call has at most 64 MiB"
            }
            PostMark { read_bias, create_bias, .. } if *read_bias.max(create_bias) > 10 => "a bias is between 0 and 10",
            PostMark { files, transactions, directories, .. }
                if files.max(transactions).max(directories) > &1_000_000_000 =>
            {
                "there can be at most 1,000,000,000 of anything"
            }
            _ => return Ok(()),
        };
        Err(LabError::Spec(fault.to_owned()))
    }

    fn title(&self) -> String {
        let place = match self.directories {
            0 | 1 => "one directory".to_owned(),
            several => format!("{several} directories"),
        };
        let PostMark { files, smallest, largest, transactions, seed, .. } = self;
        format!(
            "PostMark: {files} files of {smallest} to {largest} bytes in {place}, {transactions} transactions, seed {seed}"
        )
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn with_seed(self, seed: u64) -> PostMark {
        PostMark { seed, ..self }
    }

    async fn run<T: Target>(&self, target: &T, watch: Watch<'_>) -> Result<Outcome, LabError> {
        self.check()?;
        let mut meter = Meter::start(target, watch).await?;
        let contents = Contents::new(self.seed, self.largest);
        let mut pool = Pool { spec: *self, target, contents, rng: Rng::new(self.seed), files: Vec::new(), created: 0 };

        let mut create: Running = meter.begin(CREATE, Unit::Files, self.files);
        for directory in 0..self.directories {
            target.mkdir(&format!("s{directory}")).await?;
        }
        for _ in 0..self.files {
            let bytes = pool.create().await?;
            meter.step(&mut create, 1, bytes)?;
        }
        meter.end(create, Durable::Yes).await?;

        let mut transactions = meter.begin(TRANSACTIONS, Unit::Transactions, self.transactions);
        for _ in 0..self.transactions {
            let bytes = pool.transaction().await?;
            meter.step(&mut transactions, 1, bytes)?;
        }
        meter.end(transactions, Durable::Yes).await?;

        let mut delete = meter.begin(DELETE, Unit::Files, pool.files.len() as u64);
        while !pool.files.is_empty() {
            pool.delete(pool.files.len() - 1).await?;
            meter.step(&mut delete, 1, 0)?;
        }
        for directory in 0..self.directories {
            target.rmdir(&format!("s{directory}")).await?;
        }
        meter.end(delete, Durable::Yes).await?;
        Ok(meter.outcome())
    }
}
