//! File systems: the upper of the two interfaces of Seekless, at the level of inodes.
//!
//! [`FileSystem`] is what a mount serves, what a layer is built on and what a benchmark drives. It has the operations
//! of a Unix kernel's inode layer, without permission checks (the mount has the kernel do them) and without path names
//! (see [`client::Client`] for those).
//!
//! Lifetime of inodes. Every operation that returns an [`Entry`] adds one to the inode's lookup count;
//! [`FileSystem::forget`] takes it back. An inode whose last name is gone lives on until its lookup count is
//! zero and every handle is released. A crash ends all users at once.
//!
//! Durability. What [`FileSystem::fsync`] of a file and [`FileSystem::fsyncdir`] of its directory have acknowledged
//! survives a power cut. Every other operation is atomic across a cut, except that a prefix of a large write may
//! survive.
//!
//! Access-control lists are extended attributes with names of their own. A file system that has them
//! ([`FsTraits::access_lists`]) keeps them and the permission bits in agreement, as [`acl`] says, each time in one step.

pub mod acl;
pub mod client;
mod error;
pub mod inode_table;
pub mod step;
mod types;
pub mod xattr;

use std::any::Any;
use std::rc::Rc;

use async_trait::async_trait;

pub use error::{FsError, FsResult};
pub use types::*;

use crate::device::{Counter, Data};
use crate::units::Ino;

/// A shared file system.
pub type Fs = Rc<dyn FileSystem>;

/// Inode-level operations. All of them may be outstanding at the same time; each takes effect at one moment
/// between its call and its return.
///
/// Names are bytes without `/` and NUL; `.` and `..` are never passed. A name longer than
/// [`FsTraits::name_bytes_max`] gives `NameTooLong`, an inode number that is not in use gives `Stale`, and an
/// operation on the wrong kind of inode gives `NotDirectory`, `IsDirectory` or `Invalid`.
#[async_trait(?Send)]
pub trait FileSystem {
    fn traits(&self) -> FsTraits;

    /// Finds `name` in `parent` and counts one lookup.
    ///
    /// # Errors
    /// `NotFound`, and those of every operation.
    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry>;

    /// Takes back `lookups` lookups of `ino`. It may come while other operations on the inode are under way.
    async fn forget(&self, ino: Ino, lookups: u64);

    async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr>;

    /// Changes what `changes` names, in one step, and returns the result. A changed size truncates or extends. New
    /// permissions change the access list, if there is one ([`acl::chmod`]).
    async fn setattr(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr>;

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Creates a regular file and opens it. Like every new inode, it inherits from its directory ([`acl::inherit`]).
    ///
    /// # Errors
    /// `Exists` when there is anything of that name.
    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, flags: OpenFlags) -> FsResult<(Entry, Opened)>;

    /// Creates a regular file that has no name and opens it, as `O_TMPFILE` does. It inherits from `parent` as a named
    /// file would, and is freed with its last user unless [`FileSystem::link`] gives it a name. Without `linkable`, the
    /// link is refused, as for any file that has lost its last name. It does not survive a crash.
    ///
    /// # Errors
    /// `Unsupported` where the file system has no such files.
    async fn tmpfile(
        &self,
        _parent: Ino,
        _new: NewNode,
        _flags: OpenFlags,
        _linkable: bool,
    ) -> FsResult<(Entry, Opened)> {
        Err(FsError::Unsupported)
    }

    /// Creates a file of any kind except directory and symbolic link.
    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry>;

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry>;

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry>;

    /// Gives `ino` one more name, or its first one after [`FileSystem::tmpfile`]. The kernel never asks for it on a
    /// directory; a caller that does gets `NotPermitted`.
    ///
    /// # Errors
    /// `NotFound` for a file that has lost its last name.
    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry>;

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()>;

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()>;

    /// Moves a name. The target name's file is replaced in the same step, or swapped.
    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()>;

    /// Opens a file or directory. Never called on a mount of a file system with [`OpenProtocol::ZeroMessage`].
    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened>;

    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()>;

    /// The file outside of Seekless that holds exactly the bytes of an open one, where there is such a file: for a
    /// caller that can read and write it there, unnoticed here. Only its opener knows the type.
    fn outside_file(&self, _ino: Ino, _handle: Handle) -> Option<Box<dyn Any>> {
        None
    }

    /// The file outside of Seekless whose bytes are those of the file `ino`, each at the same offset, if there is one: two users of these
    /// bytes can meet there although they have come by different paths.
    async fn shown_file(&self, _ino: Ino) -> FsResult<Option<OutsideName>> {
        Ok(None)
    }

    /// Whether an open file can be written to past this interface: a program has it open or mapped for writing, or a
    /// device is on it. `handle` only reads. After [`Writers::None`], a writer that begins makes a later answer for the
    /// same handle [`Writers::Some`], even if it has ended by then.
    async fn other_writers(&self, _ino: Ino, _handle: Option<Handle>) -> FsResult<Writers> {
        Ok(if self.traits().exclusive { Writers::None } else { Writers::Unknown })
    }

    /// The bytes from `offset`, fewer than `bytes` only at the end of the file. Returned in pieces, so that they go
    /// from a cache to a reply without a copy.
    async fn read(&self, ino: Ino, handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>>;

    /// Stores all of `data` at `offset`.
    async fn write(&self, ino: Ino, handle: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()>;

    async fn fallocate(&self, ino: Ino, handle: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()>;

    /// The first offset, at or after `offset`, of data or of a hole. The end of the file counts as a hole.
    ///
    /// # Errors
    /// `NoSuchOffset` when there is none, or `offset` is not before the end.
    async fn lseek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64>;

    /// Passes entries to `sink` until it is full or the directory ends, starting after the entry whose cookie is
    /// `cookie`, or at the start with 0. `.` and `..` come first. Cookies stay valid however the directory changes: an
    /// entry that exists throughout is passed exactly once.
    ///
    /// With `attributes`, each entry that the sink took comes with its [`Entry`] and counts one lookup, except
    /// `.` and `..`.
    async fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()>;

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;

    /// Setting an access list changes the permissions, and may leave no attribute behind ([`acl::set`]).
    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;

    /// Names of all extended attributes, in a fixed order.
    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>>;

    /// Permissions stay as they are, even when an access list is removed. Removing a list that is absent is not an
    /// error, as on Linux.
    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()>;

    /// Makes the file's data and attributes durable; with `data_only`, attributes that are not needed to read the data
    /// may be omitted.
    async fn fsync(&self, ino: Ino, handle: Option<Handle>, data_only: bool) -> FsResult<()>;

    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()>;

    /// Makes everything durable.
    async fn syncfs(&self) -> FsResult<()>;

    async fn statfs(&self) -> FsResult<StatFs>;

    /// Called while no request is pending: the file system may do background work such as cleaning. Returns true when
    /// there is more to do. It stops soon after `until`, and can be dropped at any await.
    async fn idle(&self, _until: crate::units::Nanos) -> FsResult<bool> {
        Ok(false)
    }

    /// Drops clean cached data and attributes, so that a benchmark can read cold. No operation's result depends on it.
    async fn drop_caches(&self) -> FsResult<()> {
        Ok(())
    }

    /// Recounts the file system's internal counts from scratch and compares: for tests, while it is mounted. Returns
    /// one line for each difference.
    async fn check(&self) -> FsResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Ends the use of the file system: everything is durable and marked clean when this returns. No operation
    /// follows.
    async fn close(&self) -> FsResult<()>;

    /// What the user should know at mount, a line each: damage, and what is missing because of it.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Counts of what has happened, in an order suitable for printing.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// How full the segments of its log are, where it has one.
    fn log_usage(&self) -> Option<LogUsage> {
        None
    }

    /// One line for people, for example `lfs (segment 512 KiB)`.
    fn describe(&self) -> String;
}
