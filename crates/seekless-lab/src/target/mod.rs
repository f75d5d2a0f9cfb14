//! Storage for a workload: the system calls of a program, and their cost.

// The one part of the lab that measures the real world, with its files and its clock.
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod directory;
mod vfs;

use async_trait::async_trait;
use seekless::rt::Work;
use seekless::units::Nanos;

pub use directory::{Directory, Host, drop_caches_of, own_directory};
pub use vfs::Vfs;

use crate::LabError;

/// Files and directories as a program sees them. Paths are relative to the workload's own directory, and separated by
/// `/`.
#[async_trait(?Send)]
pub trait Target {
    /// An open file.
    type File;

    async fn mkdir(&self, path: &str) -> Result<(), LabError>;

    async fn rmdir(&self, path: &str) -> Result<(), LabError>;

    /// Creates a file and opens it for reading and writing: `open` with `O_CREAT | O_EXCL`.
    async fn create(&self, path: &str) -> Result<Self::File, LabError>;

    /// Opens a file for reading.
    async fn open(&self, path: &str) -> Result<Self::File, LabError>;

    /// Opens a file for reading and writing.
    async fn open_to_write(&self, path: &str) -> Result<Self::File, LabError>;

    /// Size of a file in bytes: `stat`.
    async fn stat(&self, path: &str) -> Result<u64, LabError>;

    /// The content of a directory, without `.` and `..`, in the directory's own order.
    async fn list(&self, path: &str) -> Result<Vec<Listed>, LabError>;

    /// Makes a file durable: `fsync`.
    async fn fsync(&self, file: &mut Self::File) -> Result<(), LabError>;

    /// Makes the names in a directory durable: `open`, `fsync` and `close`.
    async fn fsync_directory(&self, path: &str) -> Result<(), LabError>;

    /// Another place for files, on separate storage, where there is one.
    fn beside(&self) -> Option<&Self> {
        None
    }

    /// Each call blocks until it is done, so that tasks that run at once take turns instead.
    fn takes_turns(&self) -> bool {
        false
    }

    /// The program does `work` of the processor, in virtual time only. In real time it either takes its time itself, or
    /// need not be simulated.
    async fn compute(&self, work: Work);

    /// Writes all of `bytes` at `offset`.
    async fn write(&self, file: &mut Self::File, offset: u64, bytes: &[u8]) -> Result<(), LabError>;

    /// Reads from `offset` and returns the number of bytes.
    async fn read(&self, file: &mut Self::File, offset: u64, bytes: &mut [u8]) -> Result<usize, LabError>;

    async fn close(&self, file: Self::File) -> Result<(), LabError>;

    async fn unlink(&self, path: &str) -> Result<(), LabError>;

    /// Moves a name: `rename`. A file of the new name is replaced.
    async fn rename(&self, from: &str, to: &str) -> Result<(), LabError>;

    /// Makes everything durable: `syncfs`.
    async fn sync(&self) -> Result<(), LabError>;

    /// Makes the next reads come from the device, as far as possible.
    async fn drop_caches(&self) -> Result<Coldness, LabError>;

    /// Room for files, as `df` shows it.
    async fn space(&self) -> Result<Space, LabError>;

    fn now(&self) -> Nanos;

    /// Usage since some moment, which is the same for every call.
    fn usage(&self) -> Usage;
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub name: String,
    pub is_directory: bool,
}

/// Room for files in bytes, without the file system's reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub used: u64,
    pub available: u64,
}

impl Space {
    /// All of it, used or not.
    pub fn total(self) -> u64 {
        self.used + self.available
    }
}

/// How cold caches are after they were dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Coldness {
    Cold,
    /// Not everything was dropped; the text says what is left.
    Partly(String),
}

/// Use of processor and disk; `None` where it is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub processor: Option<Nanos>,
    pub disk: Option<Nanos>,
    pub disk_requests: Option<u64>,
    /// Of these requests, the writes.
    pub disk_writes: Option<u64>,
    /// Of the disk's time, what the arm moved, and what it waited for a sector to come round.
    pub disk_seek: Option<Nanos>,
    pub disk_rotation: Option<Nanos>,
    /// What several disks together waited for sectors, as their requests are those of all.
    pub disks_rotation: Option<Nanos>,
    pub log: Option<LogBytes>,
}

/// Bytes that a log-structured file system wrote and its cleaner read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogBytes {
    /// New data and metadata.
    pub new: u64,
    /// Read by the cleaner, whole segments.
    pub cleaned: u64,
    /// Of these, still in use, and so written again.
    pub moved: u64,
}

impl LogBytes {
    /// Bytes read and written for each new byte [ro92 §3.4]; `None` when nothing was written.
    pub fn write_cost(self) -> Option<f64> {
        (self.new > 0).then(|| (self.new + self.cleaned + self.moved) as f64 / self.new as f64)
    }

    /// How full the cleaned segments were; `None` when there were none.
    pub fn cleaned_utilisation(self) -> Option<f64> {
        (self.cleaned > 0).then(|| self.moved as f64 / self.cleaned as f64)
    }

    /// Bytes of space that cleaning gained for each new byte; `None` when nothing was written.
    pub fn cleaned_for_new(self) -> Option<f64> {
        (self.new > 0).then(|| (self.cleaned as f64 - self.moved as f64) / self.new as f64)
    }

    fn since(self, earlier: LogBytes) -> LogBytes {
        LogBytes {
            new: self.new.saturating_sub(earlier.new),
            cleaned: self.cleaned.saturating_sub(earlier.cleaned),
            moved: self.moved.saturating_sub(earlier.moved),
        }
    }
}

impl Usage {
    /// Usage since `earlier`.
    pub fn since(self, earlier: Usage) -> Usage {
        fn less<T>(now: Option<T>, then: Option<T>, minus: impl Fn(T, T) -> T) -> Option<T> {
            now.zip(then).map(|(now, then)| minus(now, then))
        }
        Usage {
            processor: less(self.processor, earlier.processor, Nanos::saturating_sub),
            disk: less(self.disk, earlier.disk, Nanos::saturating_sub),
            disk_requests: less(self.disk_requests, earlier.disk_requests, u64::saturating_sub),
            disk_writes: less(self.disk_writes, earlier.disk_writes, u64::saturating_sub),
            disk_seek: less(self.disk_seek, earlier.disk_seek, Nanos::saturating_sub),
            disk_rotation: less(self.disk_rotation, earlier.disk_rotation, Nanos::saturating_sub),
            disks_rotation: less(self.disks_rotation, earlier.disks_rotation, Nanos::saturating_sub),
            log: less(self.log, earlier.log, LogBytes::since),
        }
    }
}
