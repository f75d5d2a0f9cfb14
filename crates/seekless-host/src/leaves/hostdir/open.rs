//! Opens the directory that becomes the root, and finds out what can be done with it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use rustix::process::Resource;

use super::claim::Claim;
use super::error::HostDirError;
use super::proc_fd_alias::ProcFdAlias;
use super::sys::{self, Key};
use crate::reactor::File;

/// Options for a host directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostDirOptions {
    /// Enter file systems mounted inside the directory. Otherwise they are hidden: the covered directories are visible
    /// instead or, where the process may not do that, their mount points answer `EXDEV`.
    pub submounts: bool,
    /// Limit of open inodes, as far as possible; others are reopened when they are used.
    pub open_inodes_max: usize,
    /// Reopen inodes by file handle where that is allowed; otherwise by name.
    pub file_handles: bool,
    /// Use the directory exclusively, because files are stored in it in a special form; otherwise others may use it in
    /// the same way.
    pub alone: bool,
    /// Change nothing.
    pub read_only: bool,
}

/// An open inode keeps about a kilobyte in the kernel, so this costs some 16 MiB.
const OPEN_INODES_MAX: usize = 16 << 10;

impl Default for HostDirOptions {
    fn default() -> HostDirOptions {
        HostDirOptions {
            submounts: false,
            open_inodes_max: OPEN_INODES_MAX,
            file_handles: true,
            alone: false,
            read_only: false,
        }
    }
}

/// The root and its properties.
pub(super) struct HostRoot {
    /// The root, as a place to start from.
    pub(super) root: File,
    /// The root, opened for reading: for file handles, `statfs` and `syncfs`.
    pub(super) mount: File,
    pub(super) key: Key,
    /// For reopening an inode with other rights, and for calls that need a path.
    pub(super) alias: ProcFdAlias,
    /// The mount whose inodes can be opened by file handle.
    pub(super) handle_mount: Option<i32>,
    pub(super) submounts: bool,
    /// Mount points answer `EXDEV`, because they could not be hidden.
    refuse_crossing: bool,
    /// Keeps others away.
    pub(super) claim: Claim,
    /// The directory where it was found. Keeps its file system busy, so that it cannot be unmounted.
    original: OwnedFd,
}

impl HostRoot {
    pub(super) fn open(path: &Path, options: HostDirOptions) -> Result<HostRoot, HostDirError> {
        let error = |action: &'static str| {
            move |cause| match cause {
                Errno::NOENT => HostDirError::Missing { path: path.to_owned() },
                Errno::NOTDIR => HostDirError::NotADirectory { path: path.to_owned() },
                Errno::ACCESS => HostDirError::NotAllowed { path: path.to_owned() },
                cause => HostDirError::Os { action, path: path.to_owned(), cause },
            }
        };
        let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let original = rustix::fs::open(path, directory, Mode::empty()).map_err(error("open"))?;
        // Before anything in it is examined.
        let claim = Claim::take(&original, path, options.alone, options.submounts)?;
        // A private copy of the mount, without mounts inside. It needs CAP_SYS_ADMIN.
        let private = match options.submounts {
            true => None,
            false => {
                let flags =
                    OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
                rustix::mount::open_tree(&original, c"", flags).ok()
            }
        };
        let refuse_crossing = !options.submounts && private.is_none();
        let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match private {
            Some(private) => private,
            None => rustix::fs::openat(&original, c".", place, Mode::empty()).map_err(error("enter"))?,
        };
        let mount = rustix::fs::openat(&root, c".", directory, Mode::empty()).map_err(error("read"))?;
        let stat = sys::stat(&root).map_err(error("examine"))?;
        let root = Arc::new(root);
        let host_root = HostRoot {
            key: Key::of(&stat),
            handle_mount: options.file_handles.then(|| usable_handles(&root, &mount)).flatten(),
            alias: ProcFdAlias::new(&root).map_err(HostDirError::NoProc)?,
            root,
            mount: Arc::new(mount),
            submounts: options.submounts,
            refuse_crossing,
            claim,
            original,
        };
        // /proc must be that of this process: the root must be found there under its own number.
        let again = host_root.reopen(&host_root.root, place).and_then(sys::stat).map_err(HostDirError::NoProc)?;
        match Key::of(&again) == host_root.key {
            true => Ok(host_root),
            false => Err(HostDirError::NoProc(Errno::BADF)),
        }
    }

    /// Where the file is now, which is open as `file` and, if its name is known, was found at `name` below the root.
    pub(super) fn path_of(&self, file: &OwnedFd, name: Option<PathBuf>) -> PathBuf {
        let key = sys::stat(file).ok().map(|stat| Key::of(&stat));
        let is_it = |relative: &Path| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = rustix::fs::openat(&self.root, relative, flags, Mode::empty()).and_then(sys::stat);
            key.is_some() && found.ok().map(|found| Key::of(&found)) == key
        };
        // In the private copy of the mount the root has another path than outside. A file that was opened by its number may have none.
        let by_kernel =
            sys::path(file).ok().and_then(|path| Some(path.strip_prefix(sys::path(&self.root).ok()?).ok()?.to_owned()));
        let mut known = [&by_kernel, &name].into_iter().flatten();
        let relative = known.clone().find(|relative| is_it(relative)).or_else(|| known.next());
        let directory = sys::path(&self.original).unwrap_or_default();
        relative.map(|relative| directory.join(relative)).unwrap_or(directory)
    }

    /// Opens `name` in `directory` with `O_PATH`, whatever it is.
    pub(super) fn open_place(&self, directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.refuse_crossing {
            true => rustix::fs::openat2(directory, name, flags, Mode::empty(), ResolveFlags::NO_XDEV),
            false => rustix::fs::openat(directory, name, flags, Mode::empty()),
        }
    }

    /// Reopens the inode of `file` with `flags`.
    pub(super) fn reopen(&self, file: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        // The name is a magic link of the kernel to this inode: it cannot lead anywhere else.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        self.alias.with(file, |folder, name| rustix::fs::openat(folder, name, flags, Mode::empty()))
    }
}

/// The number of the mount, when its inodes can be opened by file handle.
fn usable_handles(root: &OwnedFd, mount: &OwnedFd) -> Option<i32> {
    let (handle, number) = sys::name_to_handle(root).ok()?;
    let again = sys::open_by_handle(mount, &handle, OFlags::PATH).ok()?;
    let same = Key::of(&sys::stat(&again).ok()?) == Key::of(&sys::stat(root).ok()?);
    same.then_some(number)
}

/// Raises the process's limit of open files to the maximum, and returns it.
pub(super) fn open_files_limit() -> usize {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        // If refused, the old limit holds, which is read below.
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    }
    let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// How many inodes, of at most `wanted`, may be held open: half of `limit`, since open files of programs need the other half.
pub(super) fn room_for_inodes(limit: usize, wanted: usize) -> usize {
    /// Enough for everything that one operation needs at once.
    const LEAST: usize = 16;
    wanted.min(limit / 2).max(LEAST)
}
