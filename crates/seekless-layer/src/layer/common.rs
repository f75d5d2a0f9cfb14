//! What the layers that encode files share.

use crate::device::Data;
use crate::fs::{Fs, FsResult, Handle};
use crate::rt::{Rt, Work};
use crate::units::Ino;

/// Treatment of lower files that the layer has not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Plain {
    /// They are shown and changed as they are.
    #[default]
    Pass,
    /// They are listed, but cannot be read or changed.
    Error,
}

/// Result of a check of all files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    pub findings: Vec<Finding>,
    /// There is a finding for which there may be a repair.
    pub repairable: bool,
    pub files: u64,
    /// Files that the layer has not written.
    pub plain_files: u64,
    /// Files that the layer has encoded, or that have an index. An empty file need not be one.
    pub encoded_files: u64,
    /// Records or units.
    pub records: u64,
    /// Sizes of files as seen above, and as stored below.
    pub bytes_above: u64,
    pub bytes_below: u64,
}

/// One problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub path: Vec<u8>,
    pub problem: String,
    pub repaired: bool,
}

/// Jobs with no more cycles run at once: handing one to another thread costs 10 to 40 us. To decode 32 KiB of `zstd`, a chunk by default, takes
/// 115,000.
const CYCLES_HERE_MAX: u64 = 130_000;

/// Runs `job`, which takes `cycles`, here or on another core, and charges it.
pub(super) async fn work<T: Send + 'static>(rt: &Rt, cycles: u64, job: impl FnOnce() -> T + Send + 'static) -> T {
    rt.charge(Work::Cycles(cycles)).await;
    match cycles <= CYCLES_HERE_MAX {
        true => job(),
        false => rt.compute(job).await,
    }
}

/// Up to `bytes` bytes of a lower file, in one piece.
pub(super) async fn read_lower(
    lower: &Fs,
    ino: Ino,
    handle: Option<Handle>,
    offset: u64,
    bytes: u32,
) -> FsResult<Vec<u8>> {
    let pieces: Vec<Data> = lower.read(ino, handle, offset, bytes).await?;
    let mut all = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    Ok(all)
}
