//! LFS: a log-structured file system \[ro92\], \[se93\].
//!
//! Every change is appended to a log, which is all there is on the volume besides superblocks and two checkpoint slots.
//! An fsync is one sequential write, which concurrent fsyncs share. After a crash, recovery loads the newest checkpoint
//! and replays the log behind it. A cleaner copies live data out of segments that hold little of it, so that the log
//! always has clean segments to write.
//!
//! On the volume: `FORMAT.md`. The layer above the log, with the volume in memory, is `fs/logfs`. `state` is the part
//! of the volume in memory that belongs to this log, and `ops` is the interface to `fs/logfs`. `assemble` turns dirty
//! data into a transaction (`plan`, then `lay_down`), `log` writes it to the device, `find` and `recovery` read it back,
//! `cleaner` and `segments` make room, and `moving` moves what is alive, in `slices`.
//!
//! Differences from the paper
//!   1. Between checkpoints, the summaries say where file blocks are, so indirect blocks and the inode map are
//!      written at checkpoints only. `indirect=log` writes indirect blocks with every transaction, as the paper.
//!   2. Transactions take the place of the directory-operation log: they hold every change of the name space.
//!   3. The segment usage table is exact, not an estimate.
//!   4. Every pointer carries a checksum of what it points to.

mod assemble;
mod books;
mod cleaner;
mod dump;
mod durability_evidence;
mod find;
pub mod format;
mod fsck;
mod lay_down;
pub mod layout;
mod log;
mod mkfs;
mod moving;
mod ops;
mod order;
mod partials;
mod payload_sum;
mod plan;
mod recovery;
mod salvage;
mod segment_reader;
mod segments;
mod slices;
mod state;
mod storage;
mod tables;
#[cfg(test)]
mod tests;
mod victims;

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

pub use dump::{Dump, dump};
pub use find::{VolumeInfo, info};
pub use fsck::{Fsck, FsckOptions, fsck};
pub use mkfs::{MkfsOptions, mkfs, reserve_segments};
pub use victims::{CLEANER_NAMES, CLEANERS, CleanerPolicy, CleaningPace};

use super::logfs::LogFs;
pub use super::logfs::{dir, xattr};
use super::{Fs, FsResult};
use crate::device::Device;
use crate::rt::Rt;
use crate::units::{GIB, KIB, MIB, Nanos};
use state::{BackgroundWork, Segmented};

/// A mounted volume. See [`mount`].
type Lfs = LogFs<Segmented>;

/// Options of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub read_only: bool,
    pub cleaner: CleanerPolicy,
    /// Longest time between checkpoints. [ro92 §4.1]: 30 s.
    pub checkpoint_interval: Nanos,
    /// Longest time that a change waits in memory.
    pub write_back_interval: Nanos,
    /// Clean blocks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Blocks waiting to be written, in bytes, before writers have to wait.
    pub dirty_bytes_max: u64,
    /// Discard cleaned segments, so that the storage below can reuse them.
    pub discard: bool,
    /// How long an emptied segment that is not needed soon keeps its storage, for the log to write it again. A host's file system
    /// writes to storage that it has written before in less time than to new storage.
    pub discard_after: Nanos,
    /// Write indirect blocks with every transaction, as \[ro92\] does, instead of at checkpoints.
    pub indirect_in_log: bool,
    /// Accept changes while earlier ones are being written. Otherwise a caller that makes one waits for the log, as in
    /// the arithmetic of \[se95 §4\].
    pub overlap: bool,
    /// Read ahead of callers that read files in order.
    pub read_ahead: bool,
    /// Keep file data that is read in memory. Not worthwhile below a kernel, which caches it too.
    pub cache_data: bool,
    /// Most bytes that are read for a missing inode; the inodes in them come with it, and are written beside each other. 0: a
    /// group of inodes, which is written behind the data of its files.
    pub read_around_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            cleaner: CleanerPolicy::default(),
            checkpoint_interval: Nanos::from_secs(30),
            write_back_interval: Nanos::from_secs(5),
            cache_bytes: 32 * MIB,
            dirty_bytes_max: 16 * MIB,
            discard: true,
            discard_after: Nanos::ZERO,
            indirect_in_log: false,
            overlap: true,
            read_ahead: true,
            cache_data: true,
            read_around_bytes: 0,
        }
    }
}

/// Default segment size for a volume: small enough for hundreds of segments, large enough that a disk writes one at
/// full speed ([ro92 §3.2] used 512 KB and 1 MB). On very large volumes, large enough to limit their number.
pub fn default_segment_bytes(volume_bytes: u64) -> u64 {
    match volume_bytes {
        bytes if bytes < 256 * MIB => 128 * KIB,
        bytes if bytes < 64 * GIB => 512 * KIB,
        bytes if bytes < 1024 * GIB => 2 * MIB,
        bytes if bytes <= 32 * 1024 * GIB => 8 * MIB,
        bytes if bytes <= 64 * 1024 * GIB => 16 * MIB,
        _ => 32 * MIB,
    }
}

/// Counters since the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counters {
    pub transactions: u64,
    pub partial_segments: u64,
    pub checkpoints: u64,
    pub flushes: u64,
    /// All bytes appended to the log.
    pub log_bytes: u64,
    /// Of these: file data that users wrote.
    pub log_data_bytes: u64,
    /// Of these: metadata that users' changes made.
    pub log_metadata_bytes: u64,
    /// Of these: data that the cleaner moved.
    pub log_cleaned_bytes: u64,
    /// Of these: summaries, and what rounds partial segments up.
    pub log_summary_bytes: u64,
    /// Not of these: ends of segments that the log left because the next block did not fit.
    pub log_unfilled_bytes: u64,
    pub cleaner_passes: u64,
    pub cleaner_segments_read: u64,
    /// Segments that became clean without waiting for a checkpoint.
    pub cleaner_segments_early: u64,
    pub cleaner_read_bytes: u64,
    pub discarded_segments: u64,
    pub replayed_transactions: u64,
}

/// Mounts the volume on `device`: loads the newest checkpoint, rolls forward, and starts writing back. Mounted
/// read-only, a damaged volume is shown in its latest verifiable state; [`crate::fs::FileSystem::warnings`] reports
/// that.
///
/// # Errors
/// `Corrupt` when the device holds no volume or a damaged one; `Device` when it cannot be read.
pub async fn mount(rt: Rt, device: Device, options: Options) -> FsResult<Fs> {
    Ok(open(rt, device, options).await?)
}

/// See [`mount`].
fn open(rt: Rt, device: Device, options: Options) -> LocalBoxFuture<'static, FsResult<Rc<Lfs>>> {
    Box::pin(async move {
        let found = find::find_volume(&device).await?;
        if options.read_only {
            let lfs =
                Lfs::salvaged(rt, device, options, &found, durability_evidence::SEGMENT_STARTS_PROBED_AT_MOUNT).await?;
            found.damaged.iter().for_each(|bad| lfs.warn(bad.to_string()));
            return Ok(lfs);
        }
        let lfs = recovered(rt, device, options, &found).await?;
        let is_elsewhere = lfs.check_arrangement(&found).await?;
        lfs.count_if_doubtful().await?;
        // The checkpoint that begins writing makes this durable, too.
        for (said, is_mended) in find::mend_superblocks(&lfs.device, &found).await {
            lfs.warn(if is_mended { format!("{said}; it has been rewritten from a good one") } else { said });
        }
        if is_elsewhere {
            find::note_arrangement(&lfs.device, &found.layout).await?;
        }
        lfs.begin_writing().await?;
        Ok(lfs)
    })
}

/// The volume, recovered in memory for writing.
async fn recovered(rt: Rt, device: Device, options: Options, found: &find::FoundVolume) -> FsResult<Rc<Lfs>> {
    let lfs = Lfs::at(rt, device, options, found, &found.checkpoint)?;
    lfs.recover(
        found,
        &found.checkpoint,
        recovery::Follow::ToTheEnd,
        durability_evidence::SEGMENT_STARTS_PROBED_AT_MOUNT,
    )
    .await?;
    Ok(lfs)
}

impl Lfs {
    /// The volume at `checkpoint`, with nothing loaded yet.
    fn at(
        rt: Rt,
        device: Device,
        options: Options,
        found: &find::FoundVolume,
        checkpoint: &format::Checkpoint,
    ) -> FsResult<Rc<Lfs>> {
        let state = recovery::state_at(found.layout, checkpoint, options)?;
        Ok(LogFs::new(rt, device, state, BackgroundWork::default()))
    }
}
