//! Runs operations on a file system, and converts the answers into a comparable form.

use std::collections::BTreeMap;

use super::ops::{Op, Path, Target};
use crate::device::Data;
use crate::fs::client::{Client, OpenFile};
use crate::fs::*;
use crate::rt::Rt;
use crate::units::{Ino, Nanos, WallTime};

/// The answer of an operation, without what may differ between correct file systems: inode numbers, times, storage in
/// use, the size of a directory, the order of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Bytes(Vec<u8>),
    Attr(AttrView),
    Names(Vec<(Vec<u8>, FileKind)>),
    Offset(u64),
    XattrNames(Vec<Vec<u8>>),
    Failed(FsError),
}

impl Outcome {
    /// True when both are equal; of errors, only the variant counts.
    pub fn agrees(&self, other: &Outcome) -> bool {
        match (self, other) {
            (Outcome::Failed(one), Outcome::Failed(two)) => std::mem::discriminant(one) == std::mem::discriminant(two),
            _ => self == other,
        }
    }

    pub fn error(&self) -> Option<&FsError> {
        match self {
            Outcome::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// True when the operation succeeded, or found that it had been done before, or that a directory is not a whiteout yet.
    pub fn tolerable(&self) -> bool {
        use FsError::{Exists, IsDirectory, NoAttribute, NotFound};
        self.error().is_none_or(|error| matches!(error, Exists | NotFound | NoAttribute | IsDirectory))
    }
}

/// Long contents are cut.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN_BYTES: usize = 24;
        match self {
            Outcome::Bytes(bytes) => {
                let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
                let more = if bytes.len() > SHOWN_BYTES { "..." } else { "" };
                write!(f, "{} bytes {:?}{more}", bytes.len(), String::from_utf8_lossy(shown))
            }
            Outcome::Failed(error) => write!(f, "error: {error}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Attributes that are the same on every correct file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttrView {
    pub kind: FileKind,
    pub permissions: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    /// 0 for a directory.
    pub size: u64,
}

impl From<&Attr> for AttrView {
    fn from(attr: &Attr) -> AttrView {
        let Attr { kind, permissions, links, uid, gid, device, .. } = *attr;
        let size = if kind == FileKind::Directory { 0 } else { attr.size };
        AttrView { kind, permissions, links, uid, gid, device, size }
    }
}

/// The umask of all programs.
const UMASK: u16 = 0o022;

/// Limit of `idle` calls in one operation.
const IDLE_ROUNDS_MAX: u32 = 1_000;

/// A program that runs operations one after another, holding files open in slots.
pub struct Runner {
    rt: Rt,
    client: Client,
    slots: BTreeMap<u8, OpenFile>,
}

/// Target of an operation, and whether it must be given back.
struct Used {
    file: OpenFile,
    borrowed: bool,
}

impl Runner {
    pub fn new(rt: &Rt, fs: Fs) -> Runner {
        Runner { rt: rt.clone(), client: Client::new(fs), slots: BTreeMap::new() }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The inode of `target` now.
    pub async fn ino(&self, target: &Target) -> FsResult<Ino> {
        match target {
            Target::Path(path) => Ok(self.client.stat(&path.0).await?.ino),
            Target::Slot(slot) => self.slots.get(slot).map(|file| file.ino).ok_or(FsError::BadHandle),
        }
    }

    /// All attributes of `target`, if it exists.
    pub async fn stat(&self, target: &Target) -> Option<Attr> {
        let used = self.look(target).await.ok()?;
        let attr = self.client.fs().getattr(used.file.ino, used.file.handle).await;
        self.done(used, attr).await.ok()
    }

    /// Runs `op`.
    pub async fn apply(&mut self, op: &Op) -> Outcome {
        self.try_apply(op).await.unwrap_or_else(Outcome::Failed)
    }

    /// Closes all slots.
    pub async fn close(&mut self) -> FsResult<()> {
        let mut result = Ok(());
        for (_, file) in std::mem::take(&mut self.slots) {
            result = self.client.close(file).await.and(result);
        }
        result
    }

    /// Opens the target of data operations. Only regular files are opened: the kernel passes no other kind here, and on
    /// a host directory opening a pipe would wait for its other end.
    async fn open(&self, target: &Target, flags: OpenFlags) -> FsResult<Used> {
        if let Target::Slot(slot) = target {
            let file = *self.slots.get(slot).ok_or(FsError::BadHandle)?;
            return Ok(Used { file, borrowed: true });
        }
        let used = self.look(target).await?;
        if self.client.fs().traits().open_protocol == OpenProtocol::ZeroMessage {
            return Ok(used);
        }
        let opened = match self.client.fs().getattr(used.file.ino, None).await.map(|attr| attr.kind) {
            Ok(FileKind::Regular) => self.client.fs().open(used.file.ino, flags).await,
            Ok(FileKind::Directory) => Err(FsError::IsDirectory),
            Ok(_) => Err(FsError::Invalid("not a regular file")),
            Err(error) => Err(error),
        };
        match opened {
            Ok(opened) => Ok(Used { file: OpenFile { handle: opened.handle, ..used.file }, ..used }),
            Err(error) => {
                self.done(used, Ok(())).await?;
                Err(error)
            }
        }
    }

    /// Opens a regular file or a directory to hold.
    async fn open_slot(&self, path: &Path) -> FsResult<OpenFile> {
        let kind = self.client.stat(&path.0).await?.kind;
        match kind {
            FileKind::Regular => self.client.open(&path.0, OpenFlags::READ_WRITE).await,
            FileKind::Directory => self.client.open(&path.0, OpenFlags::READ).await,
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// Finds the target of attribute operations, without opening it.
    async fn look(&self, target: &Target) -> FsResult<Used> {
        match target {
            Target::Path(path) => {
                let ino = self.client.resolve(&path.0).await?;
                Ok(Used { file: OpenFile { ino, handle: None }, borrowed: false })
            }
            Target::Slot(slot) => {
                let file = *self.slots.get(slot).ok_or(FsError::BadHandle)?;
                Ok(Used { file, borrowed: true })
            }
        }
    }

    /// Gives the target back.
    async fn done<T>(&self, used: Used, result: FsResult<T>) -> FsResult<T> {
        if used.borrowed {
            return result;
        }
        let closed = self.client.close(used.file).await;
        result.and_then(|value| closed.map(|()| value))
    }

    async fn setattr(&self, target: &Target, changes: SetAttr) -> FsResult<Outcome> {
        let used = self.look(target).await?;
        let handle = used.file.handle;
        let changed = self.client.fs().setattr(used.file.ino, handle, changes).await;
        self.done(used, changed).await.map(|_| Outcome::Done)
    }

    async fn write(&self, target: &Target, offset: Option<u64>, content: &[u8]) -> FsResult<Outcome> {
        let used = self.open(target, OpenFlags::READ_WRITE).await?;
        let OpenFile { ino, handle } = used.file;
        let offset = match offset {
            Some(offset) => Ok(offset),
            None => self.client.fs().getattr(ino, handle).await.map(|attr| attr.size),
        };
        let written = match offset {
            Ok(offset) => {
                let data = Data::from_slice(content);
                self.client.fs().write(ino, handle, offset, data, WriteMode::default()).await
            }
            Err(error) => Err(error),
        };
        self.done(used, written).await.map(|()| Outcome::Done)
    }

    /// Makes a new inode, through whichever call makes its kind.
    async fn make(&self, op: &Op) -> FsResult<Outcome> {
        let (Op::Create { path, .. }
        | Op::Mkdir { path, .. }
        | Op::Mknod { path, .. }
        | Op::Symlink { path, .. }
        | Op::Link { path, .. }) = op
        else {
            return Err(FsError::Invalid("not an operation that makes a name"));
        };
        let existing = match op {
            Op::Link { existing, .. } => Some(self.look(existing).await?),
            _ => None,
        };
        let made = match self.client.resolve_parent(&path.0).await {
            Ok((parent, name)) => {
                let made = self.make_in(op, parent, name, existing.as_ref()).await;
                self.client.forget(parent).await;
                made
            }
            Err(error) => Err(error),
        };
        let made = match existing {
            Some(existing) => self.done(existing, made).await?,
            None => made?,
        };
        self.client.close(made).await?;
        Ok(Outcome::Done)
    }

    async fn make_in(&self, op: &Op, parent: Ino, name: &[u8], existing: Option<&Used>) -> FsResult<OpenFile> {
        let fs = self.client.fs();
        let new = |permissions: u16| NewNode { permissions, umask: UMASK, uid: 0, gid: 0 };
        let entry = match op {
            Op::Create { permissions, .. } => {
                let (entry, opened) = fs.create(parent, name, new(*permissions), OpenFlags::READ_WRITE).await?;
                return Ok(OpenFile { ino: entry.attr.ino, handle: opened.handle });
            }
            Op::Mkdir { permissions, .. } => fs.mkdir(parent, name, new(*permissions)).await?,
            Op::Mknod { kind, permissions, .. } => fs.mknod(parent, name, *kind, new(*permissions)).await?,
            Op::Symlink { to, .. } => fs.symlink(parent, name, &to.0, new(0o777)).await?,
            _ => match existing {
                Some(existing) => fs.link(existing.file.ino, parent, name).await?,
                None => return Err(FsError::Invalid("not an operation that makes a name")),
            },
        };
        Ok(OpenFile { ino: entry.attr.ino, handle: None })
    }

    async fn fsync(&self, target: &Target, data_only: bool) -> FsResult<Outcome> {
        let used = self.look(target).await?;
        let kind = self.client.fs().getattr(used.file.ino, None).await.map(|attr| attr.kind);
        let kind = self.done(used, kind).await?;
        match (kind, target) {
            (FileKind::Directory, Target::Path(path)) => self.client.fsync_dir(&path.0).await?,
            _ => {
                let used = self.open(target, OpenFlags::READ).await?;
                let OpenFile { ino, handle } = used.file;
                let synced = match kind {
                    FileKind::Directory => self.client.fs().fsyncdir(ino, handle).await,
                    _ => self.client.fs().fsync(ino, handle, data_only).await,
                };
                self.done(used, synced).await?;
            }
        }
        Ok(Outcome::Done)
    }

    async fn try_apply(&mut self, op: &Op) -> FsResult<Outcome> {
        let fs = self.client.fs().clone();
        match op {
            Op::Create { .. } | Op::Mkdir { .. } | Op::Mknod { .. } | Op::Symlink { .. } | Op::Link { .. } => {
                return self.make(op).await;
            }
            Op::Unlink { path } => self.client.unlink(&path.0).await?,
            Op::Rmdir { path } => self.client.rmdir(&path.0).await?,
            Op::Rename { from, to, mode } => self.client.rename(&from.0, &to.0, *mode).await?,
            Op::Write { target, offset, filling } => {
                return self.write(target, Some(*offset), &filling.content()).await;
            }
            Op::Append { target, filling } => return self.write(target, None, &filling.content()).await,
            Op::Truncate { target, size } => {
                return self.setattr(target, SetAttr { size: Some(*size), ..SetAttr::default() }).await;
            }
            Op::Allocate { target, range, mode } => {
                let used = self.open(target, OpenFlags::READ_WRITE).await?;
                let OpenFile { ino, handle } = used.file;
                let allocated = fs.fallocate(ino, handle, *range, *mode).await;
                self.done(used, allocated).await?;
            }
            Op::Chmod { target, permissions } => {
                return self.setattr(target, SetAttr { permissions: Some(*permissions), ..SetAttr::default() }).await;
            }
            Op::Chown { target, uid, gid } => {
                return self.setattr(target, SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() }).await;
            }
            Op::Touch { target, seconds } => {
                let time = SetTime::At(WallTime { seconds: *seconds, nanos: 0 });
                return self.setattr(target, SetAttr { mtime: Some(time), ..SetAttr::default() }).await;
            }
            Op::SetXattr { target, name, filling, mode } => {
                let used = self.look(target).await?;
                let set = fs.setxattr(used.file.ino, name.as_bytes(), &filling.content(), *mode).await;
                self.done(used, set).await?;
            }
            Op::RemoveXattr { target, name } => {
                let used = self.look(target).await?;
                let removed = fs.removexattr(used.file.ino, name.as_bytes()).await;
                self.done(used, removed).await?;
            }
            Op::SetAcl { target, kind, acl } => {
                let used = self.look(target).await?;
                let set = fs.setxattr(used.file.ino, kind.xattr(), &acl.to_xattr(), XattrMode::Set).await;
                self.done(used, set).await?;
            }
            Op::Read { target, range } => {
                let used = self.open(target, OpenFlags::READ).await?;
                let bytes = u32::try_from(range.bytes).unwrap_or(u32::MAX);
                let read = self.client.read(used.file, range.offset, bytes).await;
                return self.done(used, read).await.map(Outcome::Bytes);
            }
            Op::Stat { target } => {
                let used = self.look(target).await?;
                let attr = fs.getattr(used.file.ino, used.file.handle).await;
                return self.done(used, attr).await.map(|attr| Outcome::Attr(AttrView::from(&attr)));
            }
            Op::ReadLink { path } => return self.client.read_link(&path.0).await.map(Outcome::Bytes),
            Op::ReadDir { path } => {
                let listed = self.client.read_dir(&path.0).await?;
                let mut names: Vec<_> = listed.into_iter().map(|entry| (entry.name, entry.kind)).collect();
                names.sort();
                return Ok(Outcome::Names(names));
            }
            Op::Seek { target, offset, seek } => {
                let used = self.open(target, OpenFlags::READ).await?;
                let OpenFile { ino, handle } = used.file;
                let found = fs.lseek(ino, handle, *offset, *seek).await;
                return self.done(used, found).await.map(Outcome::Offset);
            }
            Op::GetXattr { target, name } => {
                let used = self.look(target).await?;
                let value = fs.getxattr(used.file.ino, name.as_bytes()).await;
                return self.done(used, value).await.map(Outcome::Bytes);
            }
            Op::ListXattr { target } => {
                let used = self.look(target).await?;
                let names = fs.listxattr(used.file.ino).await;
                let mut names = self.done(used, names).await?;
                names.sort();
                return Ok(Outcome::XattrNames(names));
            }
            Op::Open { slot, path } => {
                let file = self.open_slot(path).await?;
                if let Some(before) = self.slots.insert(*slot, file) {
                    self.client.close(before).await?;
                }
            }
            Op::TmpFile { slot, directory, permissions, linkable } => {
                let parent = self.client.resolve(&directory.0).await?;
                let new = NewNode { permissions: *permissions, umask: UMASK, uid: 0, gid: 0 };
                let made = fs.tmpfile(parent, new, OpenFlags::READ_WRITE, *linkable).await;
                self.client.forget(parent).await;
                let (entry, opened) = made?;
                let file = OpenFile { ino: entry.attr.ino, handle: opened.handle };
                if let Some(before) = self.slots.insert(*slot, file) {
                    self.client.close(before).await?;
                }
            }
            Op::Close { slot } => {
                let file = self.slots.remove(slot).ok_or(FsError::BadHandle)?;
                self.client.close(file).await?;
            }
            Op::Fsync { target, data_only } => return self.fsync(target, *data_only).await,
            Op::FsyncDir { path } => {
                let attr = self.client.stat(&path.0).await?;
                if attr.kind != FileKind::Directory {
                    return Err(FsError::NotDirectory);
                }
                self.client.fsync_dir(&path.0).await?;
            }
            Op::Sync => fs.syncfs().await?,
            Op::DropCaches => fs.drop_caches().await?,
            Op::Idle { millis } => {
                let until = self.rt.now() + Nanos::from_millis(u64::from(*millis));
                // On a device without latency, work takes no time, so the rounds are bounded too.
                for _ in 0..IDLE_ROUNDS_MAX {
                    if self.rt.now() >= until || !fs.idle(until).await? {
                        break;
                    }
                }
                self.rt.sleep_until(until).await;
            }
        }
        Ok(Outcome::Done)
    }
}
