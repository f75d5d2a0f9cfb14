//! A faulty file system: certain names make it slow, panic or fail, and closing it takes a while and leaves a mark.
//! Everything else goes to the file system below.

use std::cell::Cell;
use std::path::PathBuf;

use async_trait::async_trait;
use seekless::device::{Data, DeviceError};
use seekless::fs::*;
use seekless::rt::Rt;
use seekless::units::{Ino, Nanos, Sector};

/// Looking these up does what they say.
pub(crate) const SLOW: &str = "slow";
pub(crate) const SLOWEST: &str = "slowest";
pub(crate) const PANIC: &str = "panic";
pub(crate) const BROKEN: &str = "broken";

/// How long `SLOW` takes.
pub(crate) const SLOW_FOR: Nanos = Nanos::from_millis(300);

/// How long `SLOWEST` takes.
pub(crate) const SLOWEST_FOR: Nanos = Nanos::from_secs(30);

pub(crate) struct Troubled {
    pub(crate) fs: Fs,
    pub(crate) rt: Rt,
    /// Overrides that of the file system below.
    pub(crate) exclusive: bool,
    /// Written when the file system is closed, after `close_takes`.
    pub(crate) closed_mark: PathBuf,
    pub(crate) close_takes: Nanos,
    /// Whether it is being closed.
    pub(crate) closes: Cell<bool>,
    /// Touched by every `syncfs`.
    pub(crate) synced_mark: PathBuf,
    /// Touched by a `syncfs` that comes while it is being closed.
    pub(crate) synced_late_mark: PathBuf,
    /// Touched by `idle`.
    pub(crate) idle_mark: PathBuf,
}

#[async_trait(?Send)]
impl FileSystem for Troubled {
    fn traits(&self) -> FsTraits {
        FsTraits { exclusive: self.exclusive, ..self.fs.traits() }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        match std::str::from_utf8(name) {
            Ok(SLOW) => self.rt.sleep(SLOW_FOR).await,
            Ok(SLOWEST) => self.rt.sleep(SLOWEST_FOR).await,
            Ok(PANIC) => panic!("a bug, for the test"),
            Ok(BROKEN) => {
                let cause = "a broken disk, for the test".to_owned();
                return Err(DeviceError::Io { operation: "read", at: Sector(8), bytes: 512, cause }.into());
            }
            _ => {}
        }
        self.fs.lookup(parent, name).await
    }

    async fn close(&self) -> FsResult<()> {
        self.closes.set(true);
        self.rt.sleep(self.close_takes).await;
        let closed = self.fs.close().await;
        std::fs::write(&self.closed_mark, "closed").unwrap();
        closed
    }

    async fn syncfs(&self) -> FsResult<()> {
        let mark = if self.closes.get() { &self.synced_late_mark } else { &self.synced_mark };
        std::fs::write(mark, "synced").unwrap();
        self.fs.syncfs().await
    }

    async fn idle(&self, until: Nanos) -> FsResult<bool> {
        std::fs::write(&self.idle_mark, "idle").unwrap();
        self.fs.idle(until).await
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        self.fs.forget(ino, lookups).await
    }
    async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        self.fs.getattr(ino, handle).await
    }
    async fn setattr(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        self.fs.setattr(ino, handle, changes).await
    }
    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.fs.readlink(ino).await
    }
    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        self.fs.create(parent, name, new, flags).await
    }
    async fn tmpfile(&self, parent: Ino, new: NewNode, flags: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        self.fs.tmpfile(parent, new, flags, linkable).await
    }
    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        self.fs.mknod(parent, name, kind, new).await
    }
    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        self.fs.mkdir(parent, name, new).await
    }
    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        self.fs.symlink(parent, name, target, new).await
    }
    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        self.fs.link(ino, parent, name).await
    }
    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.fs.unlink(parent, name).await
    }
    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.fs.rmdir(parent, name).await
    }
    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        self.fs.rename(from, to, mode).await
    }
    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        self.fs.open(ino, flags).await
    }
    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.fs.release(ino, handle).await
    }
    async fn read(&self, ino: Ino, handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        self.fs.read(ino, handle, offset, bytes).await
    }
    async fn write(&self, ino: Ino, handle: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.fs.write(ino, handle, offset, data, mode).await
    }
    async fn fallocate(&self, ino: Ino, handle: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        self.fs.fallocate(ino, handle, range, mode).await
    }
    async fn lseek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        self.fs.lseek(ino, handle, offset, seek).await
    }
    async fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        self.fs.readdir(ino, handle, cookie, attributes, sink).await
    }
    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.fs.getxattr(ino, name).await
    }
    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.fs.setxattr(ino, name, value, mode).await
    }
    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.fs.listxattr(ino).await
    }
    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.fs.removexattr(ino, name).await
    }
    async fn fsync(&self, ino: Ino, handle: Option<Handle>, data_only: bool) -> FsResult<()> {
        self.fs.fsync(ino, handle, data_only).await
    }
    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        self.fs.fsyncdir(ino, handle).await
    }
    async fn statfs(&self) -> FsResult<StatFs> {
        self.fs.statfs().await
    }
    fn describe(&self) -> String {
        self.fs.describe()
    }
}
