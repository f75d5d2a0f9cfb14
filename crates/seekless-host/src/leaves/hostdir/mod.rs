//! A directory of the host as a file system.
//!
//! Everything is done on open inodes, by single names in open directories, so that no path is ever walked: neither a
//! symbolic link nor a rename at the wrong moment leads out of the directory. (A directory that another process moves
//! out of it remains usable.) See [`inodes`] for how inodes are kept, [`owner`] for the owner of new files.
//!
//! Latency. Calls that change or look up names and attributes are made on the engine thread: they take a few
//! microseconds, less than handing them to another thread, which costs 10 to 40. File data goes through the reactor,
//! unless it is in the page cache: `RWF_NOWAIT` finds out in 0.6 us. Writes are described in [`data`].
//!
//! Other file systems. File systems mounted inside the directory are not entered (as in other stackable file systems,
//! such as overlayfs) unless an option says so; a rename or link between two file systems answers `EXDEV`.
//!
//! [`claim`] keeps other users of the directory away.
//!
//! Permission checks are made above, by the kernel that sends the requests, from permission bits and access-control
//! lists. See [`attributes`] for those.
//!
//! Invariants
//!   D1  Every file that is opened is reached from an inode in use, by one name or by its own number.
//!   D2  No descriptor of ours is inherited by another program.

mod append;
mod attributes;
mod changed;
mod claim;
mod data;
mod error;
mod host_latency;
mod inodes;
mod late_errors;
mod lease;
mod links;
mod listing;
mod open;
mod owner;
mod proc_fd_alias;
mod sys;
#[cfg(test)]
mod tests;
mod turns;
mod writes;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Statx, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use seekless::device::{Counter, Data};
use seekless::fs::{
    AllocateMode, Attr, DirSink, Entry, EntryName, FileKind, FileRange, FileSystem, FsError, FsResult, FsTraits,
    Handle, NewNode, NodeKind, OpenFlags, OpenProtocol, Opened, OutsideName, PERMISSIONS, RenameMode, SeekTo, SetAttr,
    SetTime, StatFs, WriteMode, Writers, XattrMode, without_privileges,
};
use seekless::rt::Rt;
use seekless::units::{FixedMap, Ino, Nanos, WallTime};

use changed::Changed;
use data::OpenFile;
pub use error::HostDirError;
use host_latency::HostLatency;
use inodes::Inodes;
use late_errors::LateErrors;
pub use open::HostDirOptions;
use open::HostRoot;
use owner::Owner;
use sys::Key;

use crate::reactor::{File, Reactor};

/// A host directory. See the head of the file.
pub struct HostDir {
    rt: Rt,
    reactor: Reactor,
    path: PathBuf,
    inodes: Inodes,
    owner: Owner,
    handles: RefCell<FixedMap<Handle, Rc<OpenFile>>>,
    next_handle: Cell<u64>,
    /// Number of open files with a lease.
    leased: Cell<usize>,
    latency: HostLatency,
    name_bytes_max: u32,
    read_only: bool,
    access_lists: bool,
    /// Limit of the process, less what is for the inodes.
    open_files_max: usize,
    /// Where the kernel does not sync all of the host as a whole.
    changed: Option<Changed>,
    /// There, what it tells late.
    late: Option<Rc<LateErrors>>,
    /// A sync of all has failed. The kernel tells that once and then forgets what it could not write.
    sync_failed: Cell<Option<Errno>>,
}

/// A directory in which only removed files are left is tried again: after this time, then after twice that, and so on.
const REMOVAL_PAUSE: Nanos = Nanos::from_millis(2);
const REMOVAL_PAUSE_MAX: Nanos = Nanos::from_millis(256);

/// Storage that takes long to free: a large file's last close or truncation goes to another thread.
const SLOW_TO_FREE_BYTES: u64 = 64 << 20;

impl HostDir {
    /// Opens the directory at `path`, on the engine thread, after the process has gone into the background: its locks
    /// belong to the process that opened it.
    ///
    /// # Errors
    /// When there is no such directory, or it may not be used.
    pub fn open(rt: &Rt, reactor: &Reactor, path: &Path, options: HostDirOptions) -> Result<HostDir, HostDirError> {
        let host_root = HostRoot::open(path, options)?;
        let os = |cause| HostDirError::Os { action: "examine", path: path.to_owned(), cause };
        let stat = rustix::fs::fstatvfs(&*host_root.mount).map_err(os)?;
        let limit = open::open_files_limit();
        let room = open::room_for_inodes(limit, options.open_inodes_max);
        let owner = Owner::find_out();
        let access_lists = owner.can_act_for_others() && attributes::has_access_lists(&host_root);
        let changed = Changed::of(&host_root.mount, host_root.submounts, room);
        Ok(HostDir {
            sync_failed: Cell::new(None),
            rt: rt.clone(),
            reactor: reactor.clone(),
            path: path.to_owned(),
            inodes: Inodes::new(host_root, room, changed.is_some()),
            late: changed.as_ref().map(|_| Rc::default()),
            changed,
            owner,
            handles: RefCell::default(),
            next_handle: Cell::new(1),
            leased: Cell::new(0),
            latency: HostLatency::default(),
            name_bytes_max: u32::try_from(stat.f_namemax).unwrap_or(u32::MAX),
            read_only: options.read_only || stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
            access_lists,
            open_files_max: limit.saturating_sub(room),
        })
    }

    /// Remembers why a sync of all failed.
    fn sync_has_failed(&self, cause: Errno) -> FsError {
        self.sync_failed.set(Some(cause));
        sys::error(cause)
    }

    /// Where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The descriptors whose locks keep other users away, and through which those learn who holds them.
    pub(super) fn claimed(&self) -> impl Iterator<Item = &OwnedFd> {
        self.inodes.host_root().claim.directories()
    }

    /// Fails where nothing may change. A mount that began read-only can be remounted for writing, but its claim was for
    /// reading.
    fn may_change(&self) -> FsResult<()> {
        if self.read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// True when new files belong to their creator; otherwise they belong to the user of this process.
    pub fn keeps_owners(&self) -> bool {
        self.owner.can_act_for_others()
    }

    /// Finds `name` in `directory`.
    fn find(&self, parent: Ino, directory: &OwnedFd, name: &[u8]) -> FsResult<Entry> {
        let file = self.inodes.with_room(|| self.inodes.host_root().open_place(directory, name)).map_err(sys::error)?;
        let stat = self.fresh(&file, sys::stat(&file).map_err(sys::error)?)?;
        self.inodes.enter(file, &stat, Some((parent, name)))
    }

    /// The open file of `handle`.
    fn opened(&self, ino: Ino, handle: Handle) -> FsResult<Rc<OpenFile>> {
        let opened = self.handles.borrow().get(&handle).cloned();
        opened.filter(|opened| opened.ino == ino).ok_or(FsError::BadHandle)
    }

    /// Any file open on `ino`: that of the handle, or the `O_PATH` one.
    fn any(&self, ino: Ino, handle: Option<Handle>) -> FsResult<File> {
        match handle {
            Some(handle) => Ok(self.opened(ino, handle)?.file.clone()),
            None => self.inodes.file(ino),
        }
    }

    fn add_handle(&self, opened: OpenFile) -> Handle {
        let handle = Handle(self.next_handle.get());
        self.next_handle.set(handle.0 + 1);
        if let Some(late) = &self.late {
            late.opened(&opened);
        }
        self.handles.borrow_mut().insert(handle, Rc::new(opened));
        handle
    }

    fn kind_of(&self, file: &OwnedFd) -> FsResult<FileKind> {
        sys::kind(&sys::stat(file).map_err(sys::error)?)
    }

    /// Closes a file. If it is the last reference to a file without a name, the host frees its storage now. That takes
    /// a while when there is much of it, or when it is being written.
    fn let_go(&self, file: File) {
        let last = Arc::strong_count(&file) == 1;
        let stat = if last { sys::stat(&*file).ok() } else { None };
        let Some(stat) = stat.filter(|stat| stat.stx_nlink == 0) else { return };
        if stat.stx_blocks >= SLOW_TO_FREE_BYTES / 512 || self.latency.freeing.is_advised(&self.rt) {
            let reactor = self.reactor.clone();
            drop(self.rt.spawn(async move { reactor.blocking(move || drop(file)).await }));
        } else {
            self.latency.freeing.watch(&self.rt, || drop(file));
        }
    }

    fn forget_lookups(&self, ino: Ino, lookups: u64) {
        if let Some(file) = self.inodes.forget(ino, lookups) {
            self.let_go(file);
        }
    }

    fn chmod(&self, file: &OwnedFd, permissions: u16) -> FsResult<()> {
        let mode = Mode::from_raw_mode(u32::from(permissions));
        let alias = &self.inodes.host_root().alias;
        let changed = alias.with(file, |folder, name| rustix::fs::chmodat(folder, name, mode, AtFlags::empty()));
        changed.map_err(sys::error)
    }

    /// Clears set-user-id and the like, before an unprivileged user changes the file.
    fn kill_privileges(&self, file: &OwnedFd) -> FsResult<()> {
        let permissions = sys::stat(file).map_err(sys::error)?.stx_mode & PERMISSIONS;
        match without_privileges(permissions) {
            same if same == permissions => Ok(()),
            less => self.chmod(file, less),
        }
    }

    /// Changes attributes with one host call each, those that are likely to fail first: the host has no call that
    /// changes all of them in one step.
    async fn change(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        let file = self.any(ino, handle)?;
        let before = sys::stat(&*file).map_err(sys::error)?;
        let kind = sys::kind(&before)?;
        let permissions_before = before.stx_mode & PERMISSIONS;
        let kill = changes.kill_privileges && kind != FileKind::Directory;
        if let Some(size) = changes.size {
            if kill {
                self.kill_privileges(&file)?;
            }
            self.set_size(ino, handle, size, &before).await?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            rustix::fs::chownat(&*file, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(sys::error)?;
            // The host clears set-user-id with every change of owner, by any user. Here the caller decides.
            if changes.permissions.is_none() && permissions_before & 0o6000 != 0 && kind != FileKind::Symlink {
                let left = if kill { without_privileges(permissions_before) } else { permissions_before };
                self.chmod(&file, left)?;
            }
        }
        if let Some(permissions) = changes.permissions {
            self.chmod(&file, permissions & PERMISSIONS)?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times = Timestamps { last_access: timespec(changes.atime), last_modification: timespec(changes.mtime) };
            // Older kernels need a path here.
            let alias = &self.inodes.host_root().alias;
            let set = alias.with(&file, |folder, name| rustix::fs::utimensat(folder, name, &times, AtFlags::empty()));
            set.map_err(sys::error)?;
        }
        sys::attr(ino, &sys::stat(&*file).map_err(sys::error)?)
    }

    /// Makes a new inode called `name` with `make`, on behalf of its future owner, and finds it.
    fn make(
        &self,
        parent: Ino,
        name: &[u8],
        new: NewNode,
        make: impl FnOnce(&OwnedFd) -> Result<(), Errno>,
    ) -> FsResult<Entry> {
        check_name(name)?;
        let directory = self.inodes.file(parent)?;
        let spare = self.spare(&directory)?;
        {
            let _acting = self.owner.act_for(new)?;
            make(&directory).map_err(sys::error)?;
        }
        drop(spare);
        let entry = self.find(parent, &directory, name)?;
        self.note_made(entry.attr.ino);
        Ok(entry)
    }

    /// A descriptor that is closed again before another one is needed: what has been made must be opened, too, and could not be taken
    /// back by name alone.
    fn spare(&self, file: &OwnedFd) -> FsResult<OwnedFd> {
        self.inodes.with_room(|| rustix::io::fcntl_dupfd_cloexec(file, 0)).map_err(sys::error)
    }

    /// Takes a file into use that was just created as `name`, and is open as `file`.
    fn enter_created(&self, file: &OwnedFd, (parent, name): (Ino, &[u8])) -> FsResult<(Entry, Statx)> {
        // By the file itself: its name may already belong to another one.
        let place = self.inodes.with_room(|| self.inodes.host_root().reopen(file, OFlags::PATH)).map_err(sys::error)?;
        let stat = sys::stat(&place).map_err(sys::error)?;
        Ok((self.inodes.enter(place, &stat, Some((parent, name)))?, stat))
    }
}

/// Removes `name` if it is still that of `file`.
fn take_back(directory: &OwnedFd, name: &[u8], file: &OwnedFd) {
    let is_same = match (sys::stat(file), sys::stat_at(directory, name)) {
        (Ok(made), Ok(found)) => Key::of(&made) == Key::of(&found),
        _ => false,
    };
    if is_same {
        // If that fails, too, there is an empty file.
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::empty());
    }
}

/// `None` leaves a time unchanged.
fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(SetTime::At(WallTime { seconds, nanos })) => Timespec { tv_sec: seconds, tv_nsec: i64::from(nanos) },
    }
}

/// A name is a single step into a directory (D1).
fn check_name(name: &[u8]) -> FsResult<()> {
    match name {
        b"" | b"." | b".." => Err(FsError::Invalid("not a name")),
        name if name.iter().any(|&byte| byte == b'/' || byte == 0) => Err(FsError::Invalid("not a name")),
        _ => Ok(()),
    }
}

/// The thread's umask applies during the call.
fn mode(new: NewNode) -> Mode {
    Mode::from_raw_mode(u32::from(new.permissions & PERMISSIONS))
}

#[async_trait(?Send)]
impl FileSystem for HostDir {
    fn traits(&self) -> FsTraits {
        FsTraits {
            name: "hostdir",
            open_protocol: OpenProtocol::Handles,
            exclusive: false,
            name_bytes_max: self.name_bytes_max,
            read_only: self.read_only,
            access_lists: self.access_lists,
            outside_files: true,
            appends_at_end: true,
            open_files_max: Some(self.open_files_max),
        }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        check_name(name)?;
        let directory = self.inodes.file(parent)?;
        self.find(parent, &directory, name)
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        self.forget_lookups(ino, lookups);
    }

    async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        let file = self.any(ino, handle)?;
        sys::attr(ino, &sys::stat(&*file).map_err(sys::error)?)
    }

    async fn setattr(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        let _changing = self.changing(ino, ino)?;
        if handle.is_some() {
            return self.change(ino, handle, changes).await;
        }
        self.settle(ino)?;
        let changed = self.change(ino, None, changes).await;
        self.settle_after(ino);
        changed
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let file = self.inodes.file(ino)?;
        match rustix::fs::readlinkat(&*file, c"", Vec::new()) {
            Ok(target) => Ok(target.into_bytes()),
            // For a file that is not a link, the kernel reports that the empty name does not exist.
            Err(Errno::NOENT | Errno::INVAL) => Err(FsError::Invalid("not a symbolic link")),
            Err(errno) => Err(sys::error(errno)),
        }
    }

    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        let _changing = self.changing(parent, parent)?;
        check_name(name)?;
        let directory = self.inodes.file(parent)?;
        let how = data::open_flags(flags) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let spare = self.spare(&directory)?;
        let file = {
            let _acting = self.owner.act_for(new)?;
            self.inodes.with_room(|| rustix::fs::openat(&*directory, name, how, mode(new))).map_err(sys::error)?
        };
        drop(spare);
        let entered = self.enter_created(&file, (parent, name));
        let (entry, stat) = entered.inspect_err(|_| take_back(&directory, name, &file))?;
        self.note_made(entry.attr.ino);
        // Without it, requests go through the host's page cache.
        let direct = self.direct(&stat, flags, entry.attr.ino).unwrap_or_default();
        let opened = OpenFile::new(entry.attr.ino, FileKind::Regular, file, direct);
        Ok((entry, Opened { handle: Some(self.add_handle(opened)), keep_cache: false }))
    }

    async fn tmpfile(&self, parent: Ino, new: NewNode, flags: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        self.may_change()?;
        let directory = self.inodes.file(parent)?;
        // It needs a writable file.
        let flags = OpenFlags { write: true, ..flags };
        let exclusive = if linkable { OFlags::empty() } else { OFlags::EXCL };
        let how = data::open_flags(flags) | OFlags::TMPFILE | exclusive | OFlags::CLOEXEC;
        let file = {
            let _acting = self.owner.act_for(new)?;
            self.inodes.with_room(|| rustix::fs::openat(&*directory, c".", how, mode(new))).map_err(sys::error)?
        };
        let place =
            self.inodes.with_room(|| self.inodes.host_root().reopen(&file, OFlags::PATH)).map_err(sys::error)?;
        let stat = sys::stat(&place).map_err(sys::error)?;
        let entry = self.inodes.enter(place, &stat, None)?;
        self.note_made(entry.attr.ino);
        let opened = OpenFile::new(entry.attr.ino, FileKind::Regular, file, self.direct(&stat, flags, entry.attr.ino)?);
        Ok((entry, Opened { handle: Some(self.add_handle(opened)), keep_cache: false }))
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        let _changing = self.changing(parent, parent)?;
        let file_type = match kind {
            NodeKind::Regular => FileType::RegularFile,
            NodeKind::Fifo => FileType::Fifo,
            NodeKind::Socket => FileType::Socket,
            NodeKind::CharDevice { .. } => FileType::CharacterDevice,
            NodeKind::BlockDevice { .. } => FileType::BlockDevice,
        };
        let device = sys::decode_device(kind.device());
        self.make(parent, name, new, |directory| rustix::fs::mknodat(directory, name, file_type, mode(new), device))
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        let _changing = self.changing(parent, parent)?;
        let entry = self.make(parent, name, new, |directory| rustix::fs::mkdirat(directory, name, mode(new)))?;
        // The host makes no directory with set-user-id or set-group-id bits, unless it inherits them.
        match entry.attr.permissions | new.permissions & 0o6000 {
            same if same == entry.attr.permissions => Ok(entry),
            wanted => {
                self.chmod(&*self.inodes.file(entry.attr.ino)?, wanted)?;
                Ok(Entry { attr: Attr { permissions: wanted, ..entry.attr }, ..entry })
            }
        }
    }

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        let _changing = self.changing(parent, parent)?;
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid("not the target of a symbolic link"));
        }
        self.make(parent, name, new, |directory| rustix::fs::symlinkat(target, directory, name))
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let _changing = self.changing(ino, parent)?;
        check_name(name)?;
        self.settle(ino)?;
        let (file, directory) = (self.inodes.file(ino)?, self.inodes.file(parent)?);
        let link = |folder: &OwnedFd, place: &CStr| {
            rustix::fs::linkat(folder, place, &*directory, name, AtFlags::SYMLINK_FOLLOW)
        };
        let spare = self.spare(&directory)?;
        self.inodes.host_root().alias.with(&file, link).map_err(sys::error)?;
        drop(spare);
        let entry = self.find(parent, &directory, name)?;
        self.check_link(ino, entry, parent, name)
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let _changing = self.changing(parent, parent)?;
        check_name(name)?;
        let directory = self.inodes.file(parent)?;
        self.inodes.hold(parent, name)?;
        rustix::fs::unlinkat(&*directory, name, AtFlags::empty()).map_err(sys::error)
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        let _changing = self.changing(parent, parent)?;
        check_name(name)?;
        let directory = self.inodes.file(parent)?;
        let mut pause = REMOVAL_PAUSE;
        loop {
            // Each time: while this sleeps, other requests may have closed it.
            self.inodes.hold(parent, name)?;
            let removed = rustix::fs::unlinkat(&*directory, name, AtFlags::REMOVEDIR);
            match removed {
                Err(Errno::NOTEMPTY | Errno::EXIST)
                    if pause <= REMOVAL_PAUSE_MAX && listing::holds_removed_alone(&directory, name) =>
                {
                    self.rt.sleep(pause).await;
                    pause = pause + pause;
                }
                Err(Errno::EXIST) => return Err(FsError::NotEmpty), // POSIX allows both.
                removed => return removed.map_err(sys::error),
            }
        }
    }

    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        let _changing = self.changing(from.parent, to.parent)?;
        check_name(from.name)?;
        check_name(to.name)?;
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
            RenameMode::Whiteout { replace: true, .. } => RenameFlags::WHITEOUT,
            RenameMode::Whiteout { replace: false, .. } => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
        };
        let source = self.inodes.named(from.parent, from.name);
        let target = self.inodes.named(to.parent, to.name);
        let (directory, to_directory) = (self.inodes.file(from.parent)?, self.inodes.file(to.parent)?);
        self.inodes.hold(to.parent, to.name)?;
        let renamed = {
            // The whiteout needs an owner.
            let _acting = mode.whiteout().map(|new| self.owner.act_for(new)).transpose()?;
            rustix::fs::renameat_with(&*directory, from.name, &*to_directory, to.name, flags)
        };
        renamed.map_err(|errno| match errno {
            Errno::INVAL => FsError::Loop,
            Errno::EXIST if !mode.spares_target() => FsError::NotEmpty, // POSIX allows both.
            errno => sys::error(errno),
        })?;
        self.inodes.renamed(source, to.parent, to.name);
        if let Some(ino) = source {
            self.settle_after(ino);
        }
        if mode == RenameMode::Exchange {
            self.inodes.renamed(target, from.parent, from.name);
            if let Some(ino) = target {
                self.settle_after(ino);
            }
        }
        Ok(())
    }

    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        if flags.write {
            self.may_change()?;
        }
        let place = self.inodes.file(ino)?;
        let stat = sys::stat(&*place).map_err(sys::error)?;
        let kind = sys::kind(&stat)?;
        let how = match kind {
            FileKind::Regular => data::open_flags(flags),
            FileKind::Directory if flags.write => return Err(FsError::IsDirectory),
            FileKind::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            _ => return Err(FsError::Invalid("neither a file nor a directory can be opened here")),
        };
        let _changing = if flags.truncate { self.changing(ino, ino)? } else { None };
        if flags.truncate {
            self.settle(ino)?;
            self.kill_privileges(&place)?;
        }
        let truncate = if flags.truncate { OFlags::TRUNC } else { OFlags::empty() };
        let file = self.open_place_of(ino, how | truncate).map_err(sys::error)?;
        if flags.write || flags.truncate {
            self.settled(ino, &file)?;
        }
        // The state before the file was opened: a change in between shows at the next open.
        let keep_cache = self.inodes.unchanged(ino, &stat, self.rt.wall()) && !flags.truncate;
        let opened = OpenFile::new(ino, kind, file, self.direct(&stat, flags, ino)?);
        Ok(Opened { handle: Some(self.add_handle(opened)), keep_cache })
    }

    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        self.opened(ino, handle)?;
        let opened = self.handles.borrow_mut().remove(&handle);
        self.lease_ends(opened.as_ref().map_or(lease::Lease::None, |opened| opened.lease.get()));
        let Some(opened) = opened else { return Ok(()) };
        let ended = self.end_writing(&opened).await;
        if let Some(opened) = Rc::into_inner(opened) {
            self.let_go(opened.file);
        }
        ended
    }

    async fn shown_file(&self, ino: Ino) -> FsResult<Option<OutsideName>> {
        let file = self.inodes.file(ino)?;
        let stat = sys::stat(&file).map_err(sys::error)?;
        let path = self.inodes.host_root().path_of(&file, self.inodes.name_of(ino));
        Ok((sys::kind(&stat)? == FileKind::Regular).then(|| OutsideName {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            inode: stat.stx_ino,
            path: path.into_os_string().into_vec(),
        }))
    }

    fn outside_file(&self, ino: Ino, handle: Handle) -> Option<Box<dyn Any>> {
        let file = self.opened(ino, handle).ok()?.file.clone();
        self.may_pass_through(&file).then(|| Box::new(file) as Box<dyn Any>)
    }

    async fn other_writers(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Writers> {
        self.writers_of(ino, handle)
    }

    async fn read(&self, ino: Ino, handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        self.read_data(ino, handle, offset, bytes).await
    }

    async fn write(&self, ino: Ino, handle: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        let _changing = self.changing(ino, ino)?;
        self.write_data(ino, handle, offset, data, mode).await
    }

    async fn fallocate(&self, ino: Ino, handle: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let _changing = self.changing(ino, ino)?;
        self.allocate(ino, handle, range, mode).await
    }

    async fn lseek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        self.seek(ino, handle, offset, seek)
    }

    async fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        self.list(ino, handle, cookie, attributes, sink)
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.attribute(ino, name)
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let _changing = self.changing(ino, ino)?;
        self.settle(ino)?;
        let set = self.set_attribute(ino, name, value, mode);
        self.settle_after(ino);
        set
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.attributes(ino)
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let _changing = self.changing(ino, ino)?;
        self.settle(ino)?;
        let removed = self.remove_attribute(ino, name);
        self.settle_after(ino);
        removed
    }

    async fn fsync(&self, ino: Ino, handle: Option<Handle>, data_only: bool) -> FsResult<()> {
        self.sync(ino, handle, data_only).await
    }

    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        if self.kind_of(&*self.any(ino, handle)?)? != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        self.sync(ino, handle, false).await
    }

    async fn syncfs(&self) -> FsResult<()> {
        if let Some(cause) = self.sync_failed.get() {
            return Err(FsError::Stopped(sys::error(cause).to_string()));
        }
        let mount = self.inodes.host_root().mount.clone();
        let synced = self.reactor.blocking(move || rustix::fs::syncfs(&*mount)).await;
        synced.map_err(|cause| self.sync_has_failed(cause))?;
        match &self.changed {
            Some(changed) => self.sync_changed(changed).await,
            None => Ok(()),
        }
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let stat = rustix::fs::fstatvfs(&*self.inodes.host_root().mount).map_err(sys::error)?;
        Ok(StatFs {
            block_bytes: u32::try_from(stat.f_frsize).unwrap_or(u32::MAX),
            blocks: stat.f_blocks,
            blocks_free: stat.f_bfree,
            blocks_available: stat.f_bavail,
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
            name_bytes_max: self.name_bytes_max,
        })
    }

    /// Closes inodes. The host's page cache is not dropped: that needs privileges, and affects all users.
    async fn drop_caches(&self) -> FsResult<()> {
        self.inodes.close_all();
        Ok(())
    }

    async fn close(&self) -> FsResult<()> {
        let synced = self.syncfs().await;
        self.handles.borrow_mut().clear();
        synced
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.inodes.counters();
        counters.push(("handles", self.handles.borrow().len() as u64));
        counters.extend(self.latency.counters());
        counters
    }

    fn warnings(&self) -> Vec<String> {
        self.inodes.host_root().claim.warnings()
    }

    fn describe(&self) -> String {
        format!("hostdir:{}", self.path.display())
    }
}
