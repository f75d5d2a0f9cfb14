//! The system-call layer of a kernel, over a file system of the engine.
//!
//! It does what a kernel does between a program and a file system: walks paths, caches the inode of each name (the
//! dentry cache) and holds a lookup count for each, opens and releases files as the file system's protocol requires,
//! and charges the modelled processor for each call and for each byte that it copies. It does not cache file data: on
//! the bench the file system does that.

use std::cell::RefCell;
use std::collections::BTreeMap;

use async_trait::async_trait;
use seekless::device::Data;
use seekless::fs::{
    DirEntry, DirSink, EntryName, FileKind, Fs, FsError, FsResult, Handle, NewNode, OpenFlags, OpenProtocol,
    RenameMode, WriteMode,
};
use seekless::rt::{Rt, Work};
use seekless::stack::{Mounted, Part};
use seekless::units::{Ino, Nanos};

use super::{Coldness, Listed, LogBytes, Space, Target, Usage};
use crate::LabError;

/// A program's view of a mounted stack.
pub struct Vfs {
    rt: Rt,
    fs: Fs,
    parts: Vec<Part>,
    /// Directory of the root for the workload's files.
    home: &'static str,
    dentries: RefCell<BTreeMap<(Ino, Vec<u8>), Ino>>,
    /// Inodes kept in use by open files, even without a name.
    open: RefCell<BTreeMap<Ino, OpenCount>>,
    kernel: Kernel,
    beside: Option<Box<Vfs>>,
}

/// The kernel that copies the bytes and does the work.
enum Kernel {
    /// The executor's, in virtual time. It copies block by block, and copied blocks go to the disk concurrently.
    Modelled,
    /// The host's.
    Host {
        /// Drops the host's caches of the stack's leaves; returns what it could not drop.
        drop_caches: Box<dyn Fn() -> Option<String>>,
    },
}

/// Bytes of a call that a modelled kernel copies before it hands them over [se95 §2].
const PIECE_BYTES: usize = 64 << 10;

#[derive(Default)]
struct OpenCount {
    files: u64,
    /// Lookups to give back when the last one is closed.
    owed: u64,
}

/// An open file of a [`Vfs`].
pub struct OpenFile {
    path: String,
    ino: Ino,
    handle: Option<Handle>,
}

impl Vfs {
    /// Bytes of a call of `bytes` that are copied at a time.
    fn piece_bytes(&self, bytes: usize) -> usize {
        match self.kernel {
            Kernel::Modelled => PIECE_BYTES,
            Kernel::Host { .. } => bytes.max(1),
        }
    }

    /// The root of `mounted`, in virtual time.
    pub fn new(rt: Rt, mounted: Mounted) -> Vfs {
        Vfs {
            rt,
            fs: mounted.fs,
            parts: mounted.parts,
            home: "",
            dentries: RefCell::default(),
            open: RefCell::default(),
            kernel: Kernel::Modelled,
            beside: None,
        }
    }

    /// The same, in the directory `home` of the root.
    pub fn at(self, home: &'static str) -> Vfs {
        Vfs { home, ..self }
    }

    /// On the host's clock and processor, with leaves in the host's files. `drop_caches` drops the host's caches of
    /// them, and returns what it could not drop.
    pub fn over_host(self, drop_caches: impl Fn() -> Option<String> + 'static) -> Vfs {
        Vfs { kernel: Kernel::Host { drop_caches: Box::new(drop_caches) }, ..self }
    }

    /// With another mounted stack beside it.
    pub fn with_beside(self, beside: Vfs) -> Vfs {
        Vfs { beside: Some(Box::new(beside)), ..self }
    }

    /// What a log-structured file system of the stack wrote and cleaned, where there is one with a cleaner.
    fn log_bytes(&self) -> Option<LogBytes> {
        let file_systems = self.parts.iter().filter(|part| matches!(part, Part::FileSystem(_))).map(Part::counters);
        file_systems.into_iter().find_map(|counters| {
            let count = |wanted: &str| counters.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
            Some(LogBytes {
                new: count("log_data_bytes")? + count("log_metadata_bytes")?,
                cleaned: count("cleaner_read_bytes")?,
                moved: count("log_cleaned_bytes")?,
            })
        })
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// A system call begins. A workload makes as many as its numbers say, so that each one is progress: on a device that
    /// answers at once, none of them waits.
    async fn call(&self, work: Work) {
        self.rt.made_progress();
        self.rt.charge(work).await;
    }

    /// The inode of `name` in `parent`: known, or looked up.
    async fn component(&self, parent: Ino, name: &[u8]) -> FsResult<Ino> {
        let known = self.dentries.borrow().get(&(parent, name.to_vec())).copied();
        match known {
            Some(ino) => Ok(ino),
            None => {
                let ino = self.fs.lookup(parent, name).await?.attr.ino;
                self.remember(parent, name, ino).await;
                Ok(ino)
            }
        }
    }

    /// Caches a name with its counted lookup. If it was already cached, its own lookup is given back.
    async fn remember(&self, parent: Ino, name: &[u8], ino: Ino) {
        let before = self.dentries.borrow_mut().insert((parent, name.to_vec()), ino);
        if let Some(before) = before {
            self.forget(before).await;
        }
    }

    /// Gives a lookup back, at once or when the inode is no longer open.
    async fn forget(&self, ino: Ino) {
        if let Some(open) = self.open.borrow_mut().get_mut(&ino) {
            open.owed += 1;
            return;
        }
        self.fs.forget(ino, 1).await;
    }

    fn opened(&self, path: &str, ino: Ino, handle: Option<Handle>) -> OpenFile {
        self.open.borrow_mut().entry(ino).or_default().files += 1;
        OpenFile { path: path.to_owned(), ino, handle }
    }

    async fn closed(&self, ino: Ino) {
        let owed = {
            let mut open = self.open.borrow_mut();
            let Some(count) = open.get_mut(&ino) else { return };
            count.files -= 1;
            if count.files > 0 {
                return;
            }
            let owed = count.owed;
            open.remove(&ino);
            owed
        };
        if owed > 0 {
            self.fs.forget(ino, owed).await;
        }
    }

    async fn forget_name(&self, parent: Ino, name: &[u8]) {
        let gone = self.dentries.borrow_mut().remove(&(parent, name.to_vec()));
        if let Some(ino) = gone {
            self.forget(ino).await;
        }
    }

    /// The directory that holds the last part of `path`, and that part.
    async fn parent<'a>(&self, path: &'a str) -> FsResult<(Ino, &'a [u8])> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut ino = Ino::ROOT;
        for part in self.home.split('/').chain(directory.split('/')).filter(|part| !part.is_empty()) {
            ino = self.component(ino, part.as_bytes()).await?;
        }
        Ok((ino, name.as_bytes()))
    }

    /// The inode at `path`; an empty path is the workload's own directory.
    async fn node(&self, path: &str) -> FsResult<Ino> {
        let mut ino = Ino::ROOT;
        for part in self.home.split('/').chain(path.split('/')).filter(|part| !part.is_empty()) {
            ino = self.component(ino, part.as_bytes()).await?;
        }
        Ok(ino)
    }

    async fn open_node(&self, path: &str, flags: OpenFlags) -> FsResult<OpenFile> {
        let ino = self.node(path).await?;
        let handle = match self.fs.traits().open_protocol {
            OpenProtocol::ZeroMessage => None,
            OpenProtocol::Handles => self.fs.open(ino, flags).await?.handle,
        };
        Ok(self.opened(path, ino, handle))
    }

    async fn list_node(&self, path: &str) -> FsResult<Vec<Listed>> {
        let directory = self.open_node(path, OpenFlags::READ).await?;
        let mut names = Names::default();
        loop {
            let before = names.cookie;
            let listed = self.fs.readdir(directory.ino, directory.handle, before, false, &mut names).await;
            if listed.is_err() || names.cookie == before {
                let released = match directory.handle {
                    Some(handle) => self.fs.release(directory.ino, handle).await,
                    None => Ok(()),
                };
                self.closed(directory.ino).await;
                released?;
                return listed.map(|()| names.listed);
            }
        }
    }

    async fn create_node(&self, path: &str) -> FsResult<OpenFile> {
        let (parent, name) = self.parent(path).await?;
        let (entry, opened) = self.fs.create(parent, name, new_node(0o644), OpenFlags::READ_WRITE).await?;
        self.remember(parent, name, entry.attr.ino).await;
        Ok(self.opened(path, entry.attr.ino, opened.handle))
    }

    async fn make_directory(&self, path: &str) -> FsResult<()> {
        let (parent, name) = self.parent(path).await?;
        let entry = self.fs.mkdir(parent, name, new_node(0o755)).await?;
        self.remember(parent, name, entry.attr.ino).await;
        Ok(())
    }

    async fn remove(&self, path: &str, directory: bool) -> FsResult<()> {
        let (parent, name) = self.parent(path).await?;
        match directory {
            true => self.fs.rmdir(parent, name).await?,
            false => self.fs.unlink(parent, name).await?,
        }
        self.forget_name(parent, name).await;
        Ok(())
    }

    async fn move_name(&self, from: &str, to: &str) -> FsResult<()> {
        let ((old_parent, old), (new_parent, new)) = (self.parent(from).await?, self.parent(to).await?);
        let place = |parent, name| EntryName { parent, name };
        self.fs.rename(place(old_parent, old), place(new_parent, new), RenameMode::Replace).await?;
        if (old_parent, old) == (new_parent, new) {
            return Ok(());
        }
        let moved = self.dentries.borrow_mut().remove(&(old_parent, old.to_vec()));
        match moved {
            Some(ino) => self.remember(new_parent, new, ino).await,
            None => self.forget_name(new_parent, new).await,
        }
        Ok(())
    }

    async fn sync_names(&self, path: &str) -> FsResult<()> {
        let directory = self.open_node(path, OpenFlags::READ).await?;
        let synced = self.fs.fsyncdir(directory.ino, directory.handle).await;
        let released = match directory.handle {
            Some(handle) => self.fs.release(directory.ino, handle).await,
            None => Ok(()),
        };
        self.closed(directory.ino).await;
        synced.and(released)
    }
}

/// Takes all entries of a directory.
#[derive(Default)]
struct Names {
    listed: Vec<Listed>,
    cookie: u64,
}

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.cookie = entry.cookie;
        if entry.name != b"." && entry.name != b".." {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            self.listed.push(Listed { name, is_directory: entry.kind == FileKind::Directory });
        }
        true
    }
}

/// Files belong to the owner of a new file system's root directory.
fn new_node(permissions: u16) -> NewNode {
    NewNode { permissions, umask: 0, uid: 0, gid: 0 }
}

fn failed(action: &'static str, path: &str) -> impl FnOnce(FsError) -> LabError {
    move |cause| LabError::FileSystem { action, path: path.to_owned(), cause }
}

#[async_trait(?Send)]
impl Target for Vfs {
    type File = OpenFile;

    async fn mkdir(&self, path: &str) -> Result<(), LabError> {
        self.call(Work::NamespaceCall).await;
        self.make_directory(path).await.map_err(failed("make the directory", path))
    }

    async fn rmdir(&self, path: &str) -> Result<(), LabError> {
        self.call(Work::NamespaceCall).await;
        self.remove(path, true).await.map_err(failed("remove the directory", path))
    }

    async fn create(&self, path: &str) -> Result<OpenFile, LabError> {
        self.call(Work::NamespaceCall).await;
        self.create_node(path).await.map_err(failed("create", path))
    }

    async fn open(&self, path: &str) -> Result<OpenFile, LabError> {
        self.call(Work::Call).await;
        self.open_node(path, OpenFlags::READ).await.map_err(failed("open", path))
    }

    async fn open_to_write(&self, path: &str) -> Result<OpenFile, LabError> {
        self.call(Work::Call).await;
        self.open_node(path, OpenFlags::READ_WRITE).await.map_err(failed("open", path))
    }

    async fn stat(&self, path: &str) -> Result<u64, LabError> {
        self.call(Work::Call).await;
        let ino = self.node(path).await.map_err(failed("look at", path))?;
        Ok(self.fs.getattr(ino, None).await.map_err(failed("look at", path))?.size)
    }

    async fn list(&self, path: &str) -> Result<Vec<Listed>, LabError> {
        self.call(Work::Call).await;
        self.list_node(path).await.map_err(failed("list", path))
    }

    async fn fsync(&self, file: &mut OpenFile) -> Result<(), LabError> {
        self.call(Work::Call).await;
        self.fs.fsync(file.ino, file.handle, false).await.map_err(failed("sync", &file.path))
    }

    async fn fsync_directory(&self, path: &str) -> Result<(), LabError> {
        // Open, fsync, close.
        for _ in 0..3 {
            self.rt.charge(Work::Call).await;
        }
        self.sync_names(path).await.map_err(failed("sync the directory", path))
    }

    fn beside(&self) -> Option<&Vfs> {
        self.beside.as_deref()
    }

    async fn compute(&self, work: Work) {
        self.rt.charge(work).await;
    }

    async fn write(&self, file: &mut OpenFile, offset: u64, bytes: &[u8]) -> Result<(), LabError> {
        self.call(Work::Call).await;
        let mut at = offset;
        for piece in bytes.chunks(self.piece_bytes(bytes.len())) {
            self.rt.charge(Work::Copy { bytes: piece.len() as u64 }).await;
            let data = Data::from_slice(piece);
            let written = self.fs.write(file.ino, file.handle, at, data, WriteMode::default()).await;
            written.map_err(failed("write", &file.path))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    async fn read(&self, file: &mut OpenFile, offset: u64, bytes: &mut [u8]) -> Result<usize, LabError> {
        self.call(Work::Call).await;
        let mut filled = 0;
        for part in bytes.chunks_mut(self.piece_bytes(bytes.len())) {
            let wanted = u32::try_from(part.len()).unwrap_or(u32::MAX);
            let read = self.fs.read(file.ino, file.handle, offset + filled as u64, wanted).await;
            let mut in_part = 0;
            for piece in read.map_err(failed("read", &file.path))? {
                let take = piece.len().min(part.len() - in_part);
                part[in_part..in_part + take].copy_from_slice(&piece[..take]);
                in_part += take;
            }
            self.rt.charge(Work::Copy { bytes: in_part as u64 }).await;
            filled += in_part;
            if in_part < part.len() {
                break; // The file ends here.
            }
        }
        Ok(filled)
    }

    async fn close(&self, file: OpenFile) -> Result<(), LabError> {
        self.call(Work::Call).await;
        let released = match file.handle {
            Some(handle) => self.fs.release(file.ino, handle).await,
            None => Ok(()),
        };
        self.closed(file.ino).await;
        released.map_err(failed("close", &file.path))
    }

    async fn unlink(&self, path: &str) -> Result<(), LabError> {
        self.call(Work::NamespaceCall).await;
        self.remove(path, false).await.map_err(failed("delete", path))
    }

    async fn rename(&self, from: &str, to: &str) -> Result<(), LabError> {
        self.rt.charge(Work::NamespaceCall).await;
        self.move_name(from, to).await.map_err(failed("rename", from))
    }

    async fn sync(&self) -> Result<(), LabError> {
        self.call(Work::Call).await;
        self.fs.syncfs().await.map_err(failed("sync", "the file system"))
    }

    async fn drop_caches(&self) -> Result<Coldness, LabError> {
        let dropped = std::mem::take(&mut *self.dentries.borrow_mut());
        for ino in dropped.into_values() {
            self.forget(ino).await;
        }
        self.fs.drop_caches().await.map_err(failed("drop the caches of", "the file system"))?;
        let left = match &self.kernel {
            Kernel::Modelled => None,
            Kernel::Host { drop_caches } => drop_caches(),
        };
        Ok(left.map_or(Coldness::Cold, Coldness::Partly))
    }

    async fn space(&self) -> Result<Space, LabError> {
        self.call(Work::Call).await;
        let found = self.fs.statfs().await.map_err(failed("look at the space of", "the file system"))?;
        let bytes = |blocks: u64| blocks * u64::from(found.block_bytes);
        let used = bytes(found.blocks.saturating_sub(found.blocks_free));
        Ok(Space { used, available: bytes(found.blocks_available) })
    }

    /// The workload goes on with something else, which may take no time: nothing was written, or cycles cost nothing.
    fn now(&self) -> Nanos {
        self.rt.made_progress();
        self.rt.now()
    }

    fn usage(&self) -> Usage {
        // Only models count their time and requests under these names.
        let count = |wanted: &str| {
            let devices = self.parts.iter().rev().filter_map(|part| match part {
                Part::Device(_) | Part::Devices(_) => Some(part.counters()),
                Part::FileSystem(_) => None,
            });
            devices.flatten().find(|(name, _)| *name == wanted).map(|(_, value)| value)
        };
        // For several disks, the average of their busy time.
        let disks = match self.parts.iter().rev().find(|part| !matches!(part, Part::FileSystem(_))) {
            Some(Part::Devices(devices)) => devices.len() as u64,
            _ => 1,
        };
        let disk = count("busy_ns").map(|busy| Nanos(busy / disks));
        let processor = match self.kernel {
            Kernel::Modelled => Some(self.rt.cpu_busy()),
            Kernel::Host { .. } => super::directory::process_time(),
        };
        let of_disk = |name: &str| disk.and_then(|_| count(name));
        let mean = |name: &str| of_disk(name).map(|all| Nanos(all / disks));
        Usage {
            processor,
            disk,
            disk_requests: of_disk("requests"),
            disk_writes: of_disk("writes"),
            disk_seek: mean("seek_ns"),
            disk_rotation: mean("rotation_ns"),
            disks_rotation: of_disk("rotation_ns").map(Nanos),
            log: self.log_bytes(),
        }
    }
}
