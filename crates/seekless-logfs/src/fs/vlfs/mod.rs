//! VLFS: a log-structured file system on the virtual log, as proposed in [wa99 §3.3], whose authors did not build it.
//!
//! Nothing is written in place. Data, indirect blocks and inodes go to free blocks near the head, or to the next free
//! ones where the device does not tell its head's position. Pieces of the inode map are the entries of a virtual log,
//! which says where the inodes are. An fsync writes the data, the inode, and a piece of the map: the last of these
//! commits. There are no segments and no checkpoints, and no cleaner is needed: the old versions that an fsync replaces
//! are free when it returns.
//!
//! On the volume: `FORMAT.md`. The layer above the log is `fs/logfs`, shared with `fs/lfs`; the virtual log is in
//! `vlog`, shared with the virtual log disk. `state` is the part of the volume in memory that belongs to the log, and
//! `ops` is the interface to `fs/logfs`. `assemble` turns dirty data into a batch, `log` writes it to the device,
//! `recovery` reads it back, `compact` empties tracks in idle time, and `books` recounts everything, for tests.
//!
//! Differences from the paper, whose full section on this is not available: see `FORMAT.md`, "Where the paper is
//! silent".

mod assemble;
mod books;
mod compact;
mod dump;
pub mod format;
mod fsck;
mod log;
mod mkfs;
mod ops;
mod owners;
mod recovery;
mod state;
mod storage;
#[cfg(test)]
mod tests;

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

pub use dump::{Dump, dump};
pub use fsck::{Fsck, FsckOptions, fsck};
pub use mkfs::{MkfsOptions, mkfs};
pub use recovery::{VolumeInfo, info};

use super::logfs::LogFs;
use super::{Fs, FsResult};
use crate::device::Device;
use crate::rt::Rt;
use crate::units::{MIB, Nanos};
use state::{BackgroundWork, Virtual};

/// A mounted volume. See [`mount`].
type Vlfs = LogFs<Virtual>;

/// Options of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub read_only: bool,
    /// Longest time that a change waits in memory.
    pub write_back_interval: Nanos,
    /// Clean blocks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Blocks waiting to be written, in bytes, before writers have to wait.
    pub dirty_bytes_max: u64,
    /// Share of a track that is left free when it is filled, in hundredths of a per cent.
    pub track_fill_reserve: u32,
    /// Most bytes in which the next start searches for the tail after a power failure.
    pub window: u64,
    /// Discard long runs of freed blocks, so that the storage below can reuse them.
    pub discard: bool,
    /// Where tracks are emptied in idle time.
    pub compact: CompactUse,
    /// Keep file data that is read in memory. Not worthwhile below a kernel, which caches it too.
    pub cache_data: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            write_back_interval: Nanos::from_secs(5),
            cache_bytes: 32 * MIB,
            dirty_bytes_max: 16 * MIB,
            track_fill_reserve: 2500,
            window: 64 * MIB,
            discard: true,
            compact: CompactUse::WithHead,
            cache_data: true,
        }
    }
}

/// Where idle time is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompactUse {
    Never,
    /// On devices that report the head's position, where an empty track saves time.
    #[default]
    WithHead,
    Always,
}

/// Counters since the mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counters {
    pub batches: u64,
    pub data_blocks: u64,
    pub indirect_blocks: u64,
    pub inodes: u64,
    pub inode_cells: u64,
    pub device_writes: u64,
    pub blocks_moved: u64,
    pub recovery_inodes: u64,
    pub recovery_indirect_blocks: u64,
    pub recovery_ns: u64,
}

/// Mounts the volume on `device`: finds the inode map, derives the free space by walking the inodes, and starts writing
/// back. Mounted read-only, damaged parts are left out; [`crate::fs::FileSystem::warnings`] reports them.
///
/// # Errors
/// `Corrupt` when the device holds no volume or a damaged one; `Device` when it cannot be read.
pub async fn mount(rt: Rt, device: Device, options: Options) -> FsResult<Fs> {
    Ok(open(rt, device, options).await?)
}

/// See [`mount`].
fn open(rt: Rt, device: Device, options: Options) -> LocalBoxFuture<'static, FsResult<Rc<Vlfs>>> {
    Box::pin(async move {
        let (_, found) = recovery::find_volume(&device).await?;
        let fs = recovery::recover(rt, device, options).await?;
        recovery::check_root(&fs)?;
        if options.read_only {
            found.damaged.into_iter().for_each(|damaged| fs.warn(damaged));
            return Ok(fs);
        }
        // The first flush makes this durable; until then the good copy is unchanged.
        for (said, is_mended) in recovery::mend_superblocks(&fs.device, found.damaged).await? {
            fs.warn(if is_mended { format!("{said}; the damaged one has been rewritten") } else { said });
        }
        fs.begin_writing().await?;
        Ok(fs)
    })
}
