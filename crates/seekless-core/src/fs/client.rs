//! Path names over a [`FileSystem`]: for programs in the same process, what the kernel is for a mount's programs.
//!
//! The client walks paths, keeps lookup counts balanced and opens and releases handles, so that a test or a workload
//! reads like a program. It caches nothing: every call goes to the file system. It does not check permissions, and does
//! not follow symbolic links.

use super::*;
use crate::device::Data;
use crate::units::Ino;

/// A program's view of a file system. Paths are `/`-separated bytes from the root; empty parts are skipped.
#[derive(Clone)]
pub struct Client {
    fs: Fs,
}

/// An inode in use by a program: close it with [`Client::close`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenFile {
    pub ino: Ino,
    pub handle: Option<Handle>,
}

/// A listing in memory.
#[derive(Default)]
struct Listing {
    entries: Vec<ListedEntry>,
    room: usize,
}

/// One name of a directory, as [`Client::read_dir`] returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedEntry {
    pub name: Vec<u8>,
    pub ino: Ino,
    pub kind: FileKind,
    pub cookie: u64,
}

impl DirSink for Listing {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        let (ino, kind, cookie) = (entry.ino, entry.kind, entry.cookie);
        self.entries.push(ListedEntry { name: entry.name.to_vec(), ino, kind, cookie });
        true
    }
}

impl Client {
    pub fn new(fs: Fs) -> Client {
        Client { fs }
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    fn new_node(permissions: u16) -> NewNode {
        NewNode { permissions, umask: 0, uid: 0, gid: 0 }
    }

    /// The inode at `path`, with one lookup counted unless it is the root; give it back with [`Client::forget`].
    pub async fn resolve(&self, path: &[u8]) -> FsResult<Ino> {
        let mut ino = Ino::ROOT;
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            let found = self.fs.lookup(ino, part).await;
            self.forget(ino).await;
            ino = found?.attr.ino;
        }
        Ok(ino)
    }

    /// The directory that holds the last name of `path`, as [`Client::resolve`] gives it, and that name.
    pub async fn resolve_parent<'a>(&self, path: &'a [u8]) -> FsResult<(Ino, &'a [u8])> {
        let (parent, name) = Self::split(path)?;
        Ok((self.resolve(parent).await?, name))
    }

    /// Gives back one lookup of `ino`.
    pub async fn forget(&self, ino: Ino) {
        if ino != Ino::ROOT {
            self.fs.forget(ino, 1).await;
        }
    }

    /// Splits the last name off `path`.
    fn split(path: &[u8]) -> FsResult<(&[u8], &[u8])> {
        let trimmed = path.iter().rposition(|&byte| byte != b'/').map_or(&path[..0], |last| &path[..=last]);
        match trimmed.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => Ok((&trimmed[..slash], &trimmed[slash + 1..])),
            None if trimmed.is_empty() => Err(FsError::Invalid("the root has no name")),
            None => Ok((&[], trimmed)),
        }
    }

    /// Attributes of what is at `path`.
    pub async fn stat(&self, path: &[u8]) -> FsResult<Attr> {
        let ino = self.resolve(path).await?;
        let attr = self.fs.getattr(ino, None).await;
        self.forget(ino).await;
        attr
    }

    /// Opens what is at `path`.
    pub async fn open(&self, path: &[u8], flags: OpenFlags) -> FsResult<OpenFile> {
        let ino = self.resolve(path).await?;
        if self.fs.traits().open_protocol == OpenProtocol::ZeroMessage {
            if flags.truncate {
                let cut = self.fs.setattr(ino, None, SetAttr { size: Some(0), ..SetAttr::default() }).await;
                if let Err(error) = cut {
                    self.forget(ino).await;
                    return Err(error);
                }
            }
            return Ok(OpenFile { ino, handle: None });
        }
        match self.fs.open(ino, flags).await {
            Ok(opened) => Ok(OpenFile { ino, handle: opened.handle }),
            Err(error) => {
                self.forget(ino).await;
                Err(error)
            }
        }
    }

    /// Creates a regular file and opens it.
    pub async fn create(&self, path: &[u8]) -> FsResult<OpenFile> {
        let (parent, name) = Self::split(path)?;
        let parent = self.resolve(parent).await?;
        let created = self.fs.create(parent, name, Self::new_node(0o644), OpenFlags::READ_WRITE).await;
        self.forget(parent).await;
        let (entry, opened) = created?;
        Ok(OpenFile { ino: entry.attr.ino, handle: opened.handle })
    }

    /// Opens `path`, creating it when it is not there.
    pub async fn open_or_create(&self, path: &[u8]) -> FsResult<OpenFile> {
        match self.open(path, OpenFlags::READ_WRITE).await {
            Err(FsError::NotFound) => self.create(path).await,
            other => other,
        }
    }

    pub async fn close(&self, file: OpenFile) -> FsResult<()> {
        let released = match file.handle {
            Some(handle) => self.fs.release(file.ino, handle).await,
            None => Ok(()),
        };
        self.forget(file.ino).await;
        released
    }

    pub async fn write(&self, file: OpenFile, offset: u64, bytes: &[u8]) -> FsResult<()> {
        self.fs.write(file.ino, file.handle, offset, Data::from_slice(bytes), WriteMode::default()).await
    }

    /// Up to `bytes` bytes from `offset`; fewer at the end of the file.
    pub async fn read(&self, file: OpenFile, offset: u64, bytes: u32) -> FsResult<Vec<u8>> {
        let pieces = self.fs.read(file.ino, file.handle, offset, bytes).await?;
        let mut all = Vec::with_capacity(pieces.iter().map(|piece| piece.len()).sum());
        pieces.iter().for_each(|piece| all.extend_from_slice(piece));
        Ok(all)
    }

    pub async fn fsync(&self, file: OpenFile) -> FsResult<()> {
        self.fs.fsync(file.ino, file.handle, false).await
    }

    /// Makes the content of `path` exactly `bytes`, creating it when it is not there.
    pub async fn write_file(&self, path: &[u8], bytes: &[u8]) -> FsResult<()> {
        let file = self.open_or_create(path).await?;
        let mut result = self.truncate_open(file, 0).await;
        if result.is_ok() && !bytes.is_empty() {
            result = self.write(file, 0, bytes).await;
        }
        self.close(file).await.and(result)
    }

    /// Whole content of `path`.
    pub async fn read_file(&self, path: &[u8]) -> FsResult<Vec<u8>> {
        const PIECE_BYTES: u32 = 1 << 20;
        let file = self.open(path, OpenFlags::READ).await?;
        let mut all = Vec::new();
        let result = loop {
            match self.read(file, all.len() as u64, PIECE_BYTES).await {
                Ok(piece) if piece.is_empty() => break Ok(()),
                Ok(piece) => all.extend_from_slice(&piece),
                Err(error) => break Err(error),
            }
        };
        self.close(file).await.and(result)?;
        Ok(all)
    }

    async fn truncate_open(&self, file: OpenFile, size: u64) -> FsResult<()> {
        let changes = SetAttr { size: Some(size), ..SetAttr::default() };
        self.fs.setattr(file.ino, file.handle, changes).await.map(drop)
    }

    pub async fn truncate(&self, path: &[u8], size: u64) -> FsResult<()> {
        self.setattr(path, SetAttr { size: Some(size), ..SetAttr::default() }).await.map(drop)
    }

    pub async fn setattr(&self, path: &[u8], changes: SetAttr) -> FsResult<Attr> {
        let ino = self.resolve(path).await?;
        let attr = self.fs.setattr(ino, None, changes).await;
        self.forget(ino).await;
        attr
    }

    /// Makes the file at `path` durable.
    pub async fn fsync_path(&self, path: &[u8]) -> FsResult<()> {
        let file = self.open(path, OpenFlags::READ_WRITE).await?;
        let synced = self.fsync(file).await;
        self.close(file).await.and(synced)
    }

    /// Makes the names in the directory at `path` durable.
    pub async fn fsync_dir(&self, path: &[u8]) -> FsResult<()> {
        let directory = self.open(path, OpenFlags::READ).await?;
        let synced = self.fs.fsyncdir(directory.ino, directory.handle).await;
        self.close(directory).await.and(synced)
    }

    pub async fn mkdir(&self, path: &[u8]) -> FsResult<()> {
        let (parent, name) = Self::split(path)?;
        let parent = self.resolve(parent).await?;
        let made = self.fs.mkdir(parent, name, Self::new_node(0o755)).await;
        self.forget(parent).await;
        self.forget(made?.attr.ino).await;
        Ok(())
    }

    pub async fn symlink(&self, target: &[u8], path: &[u8]) -> FsResult<()> {
        let (parent, name) = Self::split(path)?;
        let parent = self.resolve(parent).await?;
        let made = self.fs.symlink(parent, name, target, Self::new_node(0o777)).await;
        self.forget(parent).await;
        self.forget(made?.attr.ino).await;
        Ok(())
    }

    pub async fn read_link(&self, path: &[u8]) -> FsResult<Vec<u8>> {
        let ino = self.resolve(path).await?;
        let target = self.fs.readlink(ino).await;
        self.forget(ino).await;
        target
    }

    /// Gives the file at `existing` the additional name `path`.
    pub async fn link(&self, existing: &[u8], path: &[u8]) -> FsResult<()> {
        let (parent, name) = Self::split(path)?;
        let ino = self.resolve(existing).await?;
        let linked = match self.resolve(parent).await {
            Ok(parent) => {
                let linked = self.fs.link(ino, parent, name).await;
                self.forget(parent).await;
                linked
            }
            Err(error) => Err(error),
        };
        self.forget(ino).await;
        self.forget(linked?.attr.ino).await;
        Ok(())
    }

    pub async fn unlink(&self, path: &[u8]) -> FsResult<()> {
        let (parent, name) = Self::split(path)?;
        let parent = self.resolve(parent).await?;
        let result = self.fs.unlink(parent, name).await;
        self.forget(parent).await;
        result
    }

    pub async fn rmdir(&self, path: &[u8]) -> FsResult<()> {
        let (parent, name) = Self::split(path)?;
        let parent = self.resolve(parent).await?;
        let result = self.fs.rmdir(parent, name).await;
        self.forget(parent).await;
        result
    }

    pub async fn rename(&self, from: &[u8], to: &[u8], mode: RenameMode) -> FsResult<()> {
        let ((from_parent, from_name), (to_parent, to_name)) = (Self::split(from)?, Self::split(to)?);
        let from_ino = self.resolve(from_parent).await?;
        let to_ino = match self.resolve(to_parent).await {
            Ok(ino) => ino,
            Err(error) => {
                self.forget(from_ino).await;
                return Err(error);
            }
        };
        let from = EntryName { parent: from_ino, name: from_name };
        let to = EntryName { parent: to_ino, name: to_name };
        let result = self.fs.rename(from, to, mode).await;
        self.forget(from_ino).await;
        self.forget(to_ino).await;
        result
    }

    /// All entries of the directory at `path` but `.` and `..`, in its own order.
    pub async fn read_dir(&self, path: &[u8]) -> FsResult<Vec<ListedEntry>> {
        const ENTRIES_PER_CALL: usize = 256;
        let directory = self.open(path, OpenFlags::READ).await?;
        let mut all: Vec<ListedEntry> = Vec::new();
        let mut cookie = 0;
        let result = loop {
            let mut listing = Listing { entries: Vec::new(), room: ENTRIES_PER_CALL };
            let listed = self.fs.readdir(directory.ino, directory.handle, cookie, false, &mut listing).await;
            if let Err(error) = listed {
                break Err(error);
            }
            match listing.entries.last() {
                Some(last) => cookie = last.cookie,
                None => break Ok(()),
            }
            all.extend(listing.entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b".."));
        };
        self.close(directory).await.and(result)?;
        Ok(all)
    }

    pub async fn set_xattr(&self, path: &[u8], name: &[u8], value: &[u8]) -> FsResult<()> {
        let ino = self.resolve(path).await?;
        let result = self.fs.setxattr(ino, name, value, XattrMode::Set).await;
        self.forget(ino).await;
        result
    }

    pub async fn get_xattr(&self, path: &[u8], name: &[u8]) -> FsResult<Vec<u8>> {
        let ino = self.resolve(path).await?;
        let result = self.fs.getxattr(ino, name).await;
        self.forget(ino).await;
        result
    }

    pub async fn list_xattr(&self, path: &[u8]) -> FsResult<Vec<Vec<u8>>> {
        let ino = self.resolve(path).await?;
        let result = self.fs.listxattr(ino).await;
        self.forget(ino).await;
        result
    }

    pub async fn remove_xattr(&self, path: &[u8], name: &[u8]) -> FsResult<()> {
        let ino = self.resolve(path).await?;
        let result = self.fs.removexattr(ino, name).await;
        self.forget(ino).await;
        result
    }

    pub async fn fallocate(&self, path: &[u8], range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let file = self.open(path, OpenFlags::READ_WRITE).await?;
        let result = self.fs.fallocate(file.ino, file.handle, range, mode).await;
        self.close(file).await.and(result)
    }

    /// Makes everything durable.
    pub async fn sync(&self) -> FsResult<()> {
        self.fs.syncfs().await
    }
}
