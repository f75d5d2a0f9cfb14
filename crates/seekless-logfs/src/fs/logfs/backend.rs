//! What a log provides to the code that file systems on a log share, as four traits: where an inode is ([`InodeMap`]),
//! whether there is space ([`SpaceAccounts`]), figures about the log ([`Figures`]), and how dirty data becomes durable
//! ([`LogBackend`]).
//!
//! Steps call the synchronous functions, which may only look things up and record; the asynchronous ones do the work.

use std::ops::Range;
use std::rc::Rc;

use async_trait::async_trait;

use super::LogFs;
use super::demand::{Demand, Hole, ReserveAccess};
use super::format::Pointer;
use super::state::{InodeMem, LogTypes, State, Step, Wait};
use super::tree::{BlockId, InodeSlot};
use crate::device::{Buf, Counter};
use crate::fs::{FsResult, LogUsage};
use crate::units::{Ino, Nanos, Sector};

/// Where inodes are, and which of them have to be freed after a crash.
pub(in crate::fs) trait InodeMap: LogTypes {
    /// The entry of the inode map; none where the number is free. Any other entry is an address that
    /// [`SpaceAccounts::holds`] accepts.
    fn imap_entry(state: &mut State<Self>, ino: Ino) -> Step<InodeSlot>;

    /// The inode numbers whose entries are in this block of the map, or below it.
    fn numbers_in(_: BlockId) -> Range<u64> {
        0..0
    }

    /// The addresses of these inodes, as far as the map is in memory. None where inodes are not written beside each
    /// other.
    fn known_slots(_: &State<Self>, _: Range<u64>) -> Vec<(Ino, InodeSlot)> {
        Vec::new()
    }

    /// Changes the map's entry of an inode that has been touched.
    fn set_imap_entry(state: &mut State<Self>, ino: Ino, slot: InodeSlot);

    /// The block of the inode map that is written with this inode (S1). None where the map is not in blocks of a file.
    fn imap_block(ino: Ino) -> Option<BlockId>;

    /// An inode no longer exists. It is still in the map.
    fn inode_freed(state: &mut State<Self>, ino: Ino, known: InodeMem<Self>);

    /// Adds an inode to the list of those that are freed or truncated after a crash, or removes it.
    fn set_orphan(state: &mut State<Self>, ino: Ino, is_orphan: bool);

    fn is_orphan(state: &State<Self>, ino: Ino) -> bool;

    fn orphans(state: &State<Self>) -> Vec<Ino>;
}

/// What is in use, and whether a change fits.
pub(in crate::fs) trait SpaceAccounts: LogTypes {
    /// True if these sectors can hold data.
    fn holds(state: &State<Self>, at: Sector, sectors: u64) -> bool;

    /// Bytes that count against the capacity: live, reserved, and about to be written.
    fn used_bytes(state: &State<Self>) -> u64;

    /// Whether a change fits.
    ///
    /// # Errors
    /// `Fail(NoSpace)`, or a wait after which to try again.
    fn check_room(state: &State<Self>, demand: &Demand, access: ReserveAccess) -> Step<()>;

    /// Whether all places of the attributes that `pointer` leads to are known, so that they can be freed unread.
    fn knows_attribute_places(_: &State<Self>, _: Pointer) -> bool {
        true
    }

    /// The next version of an inode no longer needs the addresses `freed`, and has these holes.
    fn defer_free(state: &mut State<Self>, ino: Ino, freed: Vec<Pointer>, holes: Vec<Hole>);

    /// True for internal files whose blocks stay in memory.
    fn keeps_blocks(ino: Ino) -> bool;

    /// Number of dirty bytes that is worth a transaction.
    fn batch_bytes(state: &State<Self>) -> u64;

    /// Number of dirty bytes above which tasks that make more wait.
    fn dirty_bytes_max(state: &State<Self>) -> u64;

    /// Number of sectors just before a group of inodes, which begins at `start`, that may hold their attributes; none
    /// when the log does not put them there.
    fn attribute_sectors_before(state: &State<Self>, start: Sector) -> u64;
}

/// What users see of a log.
pub(in crate::fs) trait Figures: LogTypes {
    fn describe(state: &State<Self>) -> String;

    fn counters(state: &State<Self>) -> Vec<Counter>;

    /// See [`FileSystem::log_usage`](crate::fs::FileSystem::log_usage).
    fn log_usage(_: &State<Self>) -> Option<LogUsage> {
        None
    }
}

/// The part of a file system that knows the device, and how dirty data gets there.
#[async_trait(?Send)]
pub(in crate::fs) trait LogBackend: InodeMap + SpaceAccounts + Figures {
    /// Reads the extended attributes that an inode points to; `None` when their checksum does not match.
    async fn read_xattr(fs: &LogFs<Self>, ino: Ino, pointer: Pointer) -> FsResult<Option<Buf>>;

    /// Does what a step waits for.
    async fn wait(fs: &LogFs<Self>, wait: Wait) -> FsResult<()>;

    /// Makes one file durable, or everything, with every change of the name space.
    async fn sync(fs: &Rc<LogFs<Self>>, file: Option<Ino>) -> FsResult<()>;

    /// See [`crate::fs::FileSystem::idle`].
    async fn idle(fs: &Rc<LogFs<Self>>, until: Nanos) -> FsResult<bool>;

    /// See [`crate::fs::FileSystem::check`].
    async fn check(_fs: &Rc<LogFs<Self>>) -> FsResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// See [`crate::fs::FileSystem::close`].
    async fn close(fs: &Rc<LogFs<Self>>) -> FsResult<()>;
}
