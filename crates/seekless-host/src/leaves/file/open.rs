//! Opening and creating stores, with exclusive use and the properties of the storage below.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use seekless::device::{ALIGN_BYTES, Discard, Geometry};
use seekless::rt::Rt;
use seekless::units::{SECTOR_BYTES, counted};

use super::below::{NotLocked, lock_below, look_above};
use super::claim::open_exclusively;
use super::direct::Direct;
use super::found::Hidden;
use super::{FileDevice, Shared};
use crate::leaves::users::{Users, WHOLE, lock_part};
use crate::reactor::Reactor;

/// Which requests by-pass the host's page cache (`O_DIRECT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DirectIo {
    #[default]
    Off,
    /// All of them.
    On,
    /// Writes for which that is faster, in a file on ext4.
    Auto,
}

/// How to open a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileOptions {
    pub direct: DirectIo,
    /// Read only; other readers are allowed.
    pub read_only: bool,
}

/// Why a store could not be opened or created.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot {action} {}: {cause}", path.display())]
    Os { action: &'static str, path: PathBuf, cause: Errno },
    #[error("{} is in use by another mount or process; unmount it or end that process first", path.display())]
    InUse { path: PathBuf, users: Users },
    #[error("{} may be in use by another name: {what}", path.display())]
    MayBeInUse { path: PathBuf, what: String, hint: String },
    #[error("{} is {kind}; a store is a regular file or a block device{hint}", path.display())]
    NotAStore { path: PathBuf, kind: &'static str, hint: &'static str },
    #[error("{} has {}, less than one block of {block_bytes}", path.display(), counted(*bytes, "byte"))]
    TooSmall { path: PathBuf, bytes: u64, block_bytes: u32 },
}

/// Largest request in one piece: the largest buffer that is pooled. Longer ones would gain nothing.
const REQUEST_BYTES_MAX: u32 = 4 << 20;

impl FileDevice {
    /// Opens the store at `path` for exclusive use, or for shared reading.
    ///
    /// # Errors
    /// `InUse` when another process or mount has it, `MayBeInUse` where that cannot be known, `NotAStore` for directories and the like,
    /// `TooSmall`, `Os`.
    pub fn open(rt: &Rt, reactor: &Reactor, path: &Path, options: FileOptions) -> Result<FileDevice, FileError> {
        let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let file = open_file(path, access | direct_flag(options), "open")?;
        FileDevice::from_open(rt, reactor, path, options, file, false)
    }

    /// As [`FileDevice::create`], but the file has no name until [`FileDevice::appear`]: if the process ends before, nothing is left.
    /// Where the file system below has no files without names, it has its name at once.
    ///
    /// # Errors
    /// As for [`FileDevice::create`].
    pub fn create_unnamed(
        rt: &Rt,
        reactor: &Reactor,
        path: &Path,
        bytes: u64,
        options: FileOptions,
    ) -> Result<FileDevice, FileError> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | direct_flag(options);
        let unnamed = || -> Option<FileDevice> {
            if path.symlink_metadata().is_ok() {
                return None; // Not even a link that leads nowhere.
            }
            let file = open_file(parent_of(path), flags, "create").ok()?;
            rustix::fs::ftruncate(&file, bytes).ok()?;
            FileDevice::from_open(rt, reactor, path, options, file, true).ok()
        };
        match unnamed() {
            Some(device) => Ok(device),
            None => FileDevice::create(rt, reactor, path, bytes, options),
        }
    }

    /// Gives the name to a file that was created without one. When this returns, a power cut does not undo it (F3).
    ///
    /// # Errors
    /// `Os` with `EXIST` when something else has got that name in between.
    pub fn appear(&self) -> Result<(), FileError> {
        if !self.shared.is_unnamed.get() {
            return Ok(());
        }
        let path = &self.shared.path;
        let error = |action| move |cause| FileError::Os { action, path: path.clone(), cause };
        let cwd = rustix::fs::CWD;
        rustix::fs::linkat(cwd, of_descriptor(&self.shared.file), cwd, path, AtFlags::SYMLINK_FOLLOW)
            .map_err(error("create"))?;
        self.shared.is_unnamed.set(false);
        rustix::fs::fsync(&*self.shared.file).map_err(error("sync"))?;
        sync_parent(path).map_err(error("sync the directory of"))
    }

    /// Creates an image file of `bytes` that takes no space yet and reads as zeroes. When this returns, a power
    /// cut does not undo it (F3).
    ///
    /// # Errors
    /// As for [`FileDevice::open`]; `Os` with `EXIST` when `path` exists.
    pub fn create(
        rt: &Rt,
        reactor: &Reactor,
        path: &Path,
        bytes: u64,
        options: FileOptions,
    ) -> Result<FileDevice, FileError> {
        let file = open_file(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | direct_flag(options), "create")?;
        FileDevice::create_in(rt, reactor, path, bytes, options, file)
    }

    /// The same in a new file, which other processes see from its opening on: it is theirs if they lock it first.
    pub(super) fn create_in(
        rt: &Rt,
        reactor: &Reactor,
        path: &Path,
        bytes: u64,
        options: FileOptions,
        file: OwnedFd,
    ) -> Result<FileDevice, FileError> {
        let error = |action| move |cause| FileError::Os { action, path: path.to_owned(), cause };
        lock(&file, path, options.read_only, false)?;
        let stat = rustix::fs::fstat(&file).map_err(error("examine"))?;
        if stat.st_size != 0 || stat.st_nlink == 0 {
            // Another process has had it in between.
            return Err(FileError::InUse { path: path.to_owned(), users: Users::default() });
        }
        // Keeps the lock until a partial image has no name any more.
        let held = file.try_clone();
        let made = (|| {
            rustix::fs::ftruncate(&file, bytes).map_err(error("set the size of"))?;
            rustix::fs::fsync(&file).map_err(error("sync"))?;
            sync_parent(path).map_err(error("sync the directory of"))?;
            FileDevice::from_open(rt, reactor, path, options, file, false)
        })();
        if made.is_err() {
            // A partial image is useless; the first error is the one to report.
            let _ = rustix::fs::unlink(path);
        }
        drop(held);
        made
    }

    fn from_open(
        rt: &Rt,
        reactor: &Reactor,
        path: &Path,
        options: FileOptions,
        file: OwnedFd,
        is_unnamed: bool,
    ) -> Result<FileDevice, FileError> {
        let error = |action| move |cause| FileError::Os { action, path: path.to_owned(), cause };
        let stat = rustix::fs::fstat(&file).map_err(error("examine"))?;
        let block_device = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::BlockDevice => true,
            other => return Err(not_a_store(path, other)),
        };
        lock(&file, path, options.read_only, block_device)?;
        let refused = |not_locked| match not_locked {
            NotLocked::InUse(users) => FileError::InUse { path: path.to_owned(), users },
            NotLocked::Hidden(Hidden { what, hint, .. }) => FileError::MayBeInUse { path: path.to_owned(), what, hint },
        };
        // One without a name is not reached by another.
        let below = match is_unnamed {
            true => Vec::new(),
            false => lock_below(&file, options.read_only).map_err(refused)?,
        };
        let not_known = if options.read_only || is_unnamed {
            Vec::new()
        } else {
            // This device itself is claimed below.
            let all = std::iter::once((&file, &WHOLE)).chain(below.iter().map(|locked| (&locked.file, &locked.part)));
            look_above(&all.collect::<Vec<_>>()).map_err(refused)?
        };
        let below: Vec<OwnedFd> = below.into_iter().map(|locked| locked.file).collect();
        forget_what_was_read(std::iter::once(&file).chain(&below)); // F5
        let claim = if options.read_only { None } else { claim(path, block_device)? };

        let bytes = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(error("find the size of"))?;
        let (block_bytes, memory_align) =
            alignment(&file, block_device, options.direct == DirectIo::On).map_err(error("examine"))?;
        let blocks = bytes / u64::from(block_bytes);
        if blocks == 0 {
            return Err(FileError::TooSmall { path: path.to_owned(), bytes, block_bytes });
        }
        let sectors = blocks * (u64::from(block_bytes) / SECTOR_BYTES);
        let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let reach = if is_unnamed { of_descriptor(&file) } else { path.to_owned() };
        let again = open_file(&reach, access | direct_flag(options), "open")?;
        let stat_again = rustix::fs::fstat(&again).map_err(error("examine"))?;
        if (stat.st_dev, stat.st_ino) != (stat_again.st_dev, stat_again.st_ino) {
            // Another process replaced it in between.
            return Err(FileError::InUse { path: path.to_owned(), users: Users::default() });
        }
        let direct = match options.direct {
            DirectIo::Auto if !block_device => beside(&reach, access, &file)?,
            DirectIo::Auto | DirectIo::On | DirectIo::Off => None,
        };
        let discard = match (options.read_only, block_device) {
            (true, _) => Discard::Ignored,
            (false, true) => block_device_discard(stat.st_rdev),
            (false, false) => file_discard(&file, bytes),
        };
        Ok(FileDevice {
            shared: Rc::new(Shared {
                rt: rt.clone(),
                reactor: reactor.clone(),
                // Absolute, because a daemon changes its directory.
                path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
                file: Arc::new(file),
                durable_file: Arc::new(again),
                direct,
                geometry: Geometry { sectors, block_bytes, request_bytes_max: REQUEST_BYTES_MAX, zones: None },
                left_over: bytes % u64::from(block_bytes),
                discard,
                block_device,
                read_only: options.read_only,
                memory_align,
                below,
                not_known,
                claim: claim.into(),
                syncs: Default::default(),
                durable_write_busy: false.into(),
                is_nameless: false.into(),
                is_unnamed: is_unnamed.into(),
                failed: Default::default(),
                fullness: Default::default(),
                counts: Default::default(),
            }),
        })
    }
}

/// Of `statfs`, also of ext2 and ext3.
const EXT4_MAGIC: rustix::fs::FsWord = 0xEF53;

fn direct_flag(options: FileOptions) -> OFlags {
    if options.direct == DirectIo::On { OFlags::DIRECT } else { OFlags::empty() }
}

/// Opens the store `file` once more for direct I/O; `None` where the host does not say which alignment it needs, or has another file
/// system than ext4. XFS turns a direct write to blocks that files share into a cached one, of which F4 then knows nothing; of
/// others it is not known what they do.
fn beside(path: &Path, access: OFlags, file: &OwnedFd) -> Result<Option<Direct>, FileError> {
    let is_ext4 = rustix::fs::fstatfs(file).is_ok_and(|host| host.f_type == EXT4_MAGIC);
    let Some(direct) = is_ext4.then(|| open_file(path, access | OFlags::DIRECT, "open").ok()).flatten() else {
        return Ok(None);
    };
    let error = |cause| FileError::Os { action: "examine", path: path.to_owned(), cause };
    let (stat, other) = (rustix::fs::fstat(file).map_err(error)?, rustix::fs::fstat(&direct).map_err(error)?);
    if (stat.st_dev, stat.st_ino) != (other.st_dev, other.st_ino) {
        return Err(FileError::InUse { path: path.to_owned(), users: Users::default() });
    }
    let Ok(Some((offset_align, memory_align))) = stated_alignment(&direct) else { return Ok(None) };
    Ok(Some(Direct::new(Arc::new(direct), offset_align, memory_align)))
}

fn open_file(path: &Path, flags: OFlags, action: &'static str) -> Result<OwnedFd, FileError> {
    // Without NONBLOCK, opening a FIFO by mistake would block. But io_uring takes it for a promise that reading never waits, and would
    // read in the engine's thread where a file system below has to wait.
    let opened = rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::from_raw_mode(0o644))
        .and_then(|file| without_nonblock(&file).map(|()| file));
    opened.map_err(|cause| match cause {
        Errno::ISDIR => not_a_store(path, FileType::Directory),
        cause => FileError::Os { action, path: path.to_owned(), cause },
    })
}

fn without_nonblock(file: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags - OFlags::NONBLOCK)
}

fn not_a_store(path: &Path, found: FileType) -> FileError {
    let (kind, hint) = match found {
        FileType::Directory => ("a directory", "; for a directory use hostdir:PATH"),
        FileType::CharacterDevice => ("a character device", ""),
        FileType::Fifo => ("a pipe", ""),
        FileType::Socket => ("a socket", ""),
        _ => ("of an unknown kind", ""),
    };
    FileError::NotAStore { path: path.to_owned(), kind, hint }
}

/// Has the kernel forget what it has of a store, and of the files below it, where that need not be what is stored: F5, and while any program has
/// a loop device open, the kernel keeps what it has read of it, although its file may have been written since, by its name.
fn forget_what_was_read<'a>(files: impl Iterator<Item = &'a OwnedFd>) {
    for file in files {
        // A hint, which the kernel follows for all that is not being changed. An error of what is being written comes with the next sync.
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

/// F2, for every kind of store that is locked.
fn lock(file: &OwnedFd, path: &Path, shared: bool, block_device: bool) -> Result<(), FileError> {
    let operation =
        if shared { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    // udev briefly holds a shared lock on a block device while it examines it.
    let mut tries_left = if block_device { 20 } else { 0 };
    loop {
        match rustix::fs::flock(file, operation) {
            // Users of a part share the lock, too.
            Ok(()) if shared && lock_part(file, &WHOLE, false) == Err(Errno::WOULDBLOCK) => {
                return Err(FileError::InUse { path: path.to_owned(), users: Users::of(file) });
            }
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if tries_left > 0 => {
                tries_left -= 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(FileError::InUse { path: path.to_owned(), users: Users::of(file) });
            }
            Err(cause) => return Err(FileError::Os { action: "lock", path: path.to_owned(), cause }),
        }
    }
}

/// F2, for block devices: an exclusive open, which a mounted device refuses.
pub(super) fn claim(path: &Path, block_device: bool) -> Result<Option<OwnedFd>, FileError> {
    if !block_device {
        return Ok(None);
    }
    match open_exclusively(path) {
        Ok(claim) => Ok(Some(claim)),
        Err(Errno::BUSY) => Err(FileError::InUse { path: path.to_owned(), users: Users::default() }),
        Err(cause) => Err(FileError::Os { action: "claim", path: path.to_owned(), cause }),
    }
}

/// Smallest write in bytes, and alignment in memory.
fn alignment(file: &OwnedFd, block_device: bool, direct: bool) -> Result<(u32, usize), Errno> {
    let sector = SECTOR_BYTES as u32;
    let logical = if block_device { rustix::fs::ioctl_blksszget(file)?.max(sector) } else { sector };
    if !direct {
        return Ok((logical, 1));
    }
    Ok(match stated_alignment(file)? {
        Some((offset_align, memory_align)) => (logical.max(offset_align), memory_align),
        // A page satisfies every drive.
        None => (logical.max(ALIGN_BYTES as u32), ALIGN_BYTES),
    })
}

/// Alignment on the storage and in memory of direct I/O; `None` before Linux 6.1, which does not report it.
///
/// # Errors
/// `INVAL` where the file system has no direct I/O.
fn stated_alignment(file: &OwnedFd) -> Result<Option<(u32, usize)>, Errno> {
    let statx = rustix::fs::statx(file.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if statx.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(None);
    }
    if statx.stx_dio_offset_align == 0 {
        return Err(Errno::INVAL);
    }
    Ok(Some((statx.stx_dio_offset_align, (statx.stx_dio_mem_align as usize).max(1))))
}

/// Tests whether holes can be punched, behind the end where nothing can be lost.
fn file_discard(file: &OwnedFd, bytes: u64) -> Discard {
    const PROBE_BYTES: u64 = 4096;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, mode, bytes.next_multiple_of(PROBE_BYTES), PROBE_BYTES) {
        Ok(()) => Discard::Zeroes,
        Err(_) => Discard::Ignored,
    }
}

/// Discard support of a block device, according to sysfs.
fn block_device_discard(device: u64) -> Discard {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // A partition shares the queue of its disk.
    let found = ["queue", "../queue"].iter().find_map(|queue| {
        std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/{queue}/discard_max_bytes")).ok()
    });
    match found.and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(1..) => Discard::Undefined,
        _ => Discard::Ignored,
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A path that leads to an open file, whether it has a name or not.
fn of_descriptor(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Makes the name of a new file durable.
fn sync_parent(path: &Path) -> Result<(), Errno> {
    let directory =
        rustix::fs::open(parent_of(path), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::fsync(&directory)
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileDevice({})", self.shared.path.display())
    }
}
