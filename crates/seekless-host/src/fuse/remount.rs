//! For other processes: changing the flags of a mount, such as to read-only.
//!
//! The kernel does that without notifying the daemon, and to whatever is mounted at a path. Another process may unmount ours at any
//! time; what is below must then stay as it is.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use super::control::{SyncError, sync};
use super::names::ACCESS_ATTRIBUTE;
use super::presence::holder_of;
use crate::mount_table::{self, MountInfo};

/// Why a mount was not changed.
#[derive(Debug, thiserror::Error)]
pub enum RemountError {
    #[error("{}: {cause}", path.display())]
    Path { path: PathBuf, cause: io::Error },
    #[error("{} is not a mount point of Seekless", path.display())]
    NotOurs { path: PathBuf },
    #[error("{} was opened for reading only; unmount it and mount it again with -o rw", path.display())]
    OpenedReadOnly { path: PathBuf },
    #[error("`{word}` cannot be changed while it is mounted; unmount {} and mount it again", path.display())]
    Fixed { path: PathBuf, word: &'static str },
    #[error("{} was unmounted in the meantime: there is nothing to remount", path.display())]
    Unmounted { path: PathBuf },
    #[error("cannot remount {}: {cause}", path.display())]
    Refused { path: PathBuf, cause: Errno },
    #[error(transparent)]
    Sync(#[from] SyncError),
}

/// What the kernel lists for the mount that holds `path`. The mount is not asked: its daemon may be stopped.
pub fn listed_options_of(path: &Path) -> Option<String> {
    holder_of(path).map(|(holder, _)| holder.options)
}

/// A mount of this program, to be changed: this one, and no other that is at its path later.
#[derive(Debug)]
pub struct Remount {
    /// As the user calls it.
    path: PathBuf,
    absolute: PathBuf,
    mount: MountInfo,
}

impl Remount {
    /// The mount at `path`.
    ///
    /// # Errors
    /// `NotOurs` for a path that is not a mount point of this program.
    pub fn of(path: &Path) -> Result<Remount, RemountError> {
        let absolute =
            std::fs::canonicalize(path).map_err(|cause| RemountError::Path { path: path.to_owned(), cause })?;
        let found = mount_table::find(&absolute).filter(MountInfo::is_ours);
        let mount = found.ok_or_else(|| RemountError::NotOurs { path: path.to_owned() })?;
        Ok(Remount { path: path.to_owned(), absolute, mount })
    }

    /// The options with which it is mounted, as mount(8) lists them.
    pub fn options(&self) -> &str {
        &self.mount.options
    }

    /// Changes its flags. Before it becomes read-only, everything is made durable, and once more when the kernel accepts no more
    /// changes.
    ///
    /// # Errors
    /// `OpenedReadOnly` where the daemon cannot change anything; `Unmounted` when another process unmounts it at the same time;
    /// `Sync` with `Failed` where the daemon could not make everything durable.
    pub fn set(&self, flags: MountFlags) -> Result<(), RemountError> {
        let table = || mount_table::try_read().ok();
        self.try_to_set(flags).map_err(|error| match error {
            // The daemon has answered.
            RemountError::Sync(SyncError::Failed { .. }) => error,
            // Whatever else went wrong, that is why.
            _ if table().is_some_and(|table| !self.is_in(&table)) => self.unmounted(),
            _ => error,
        })
    }

    fn try_to_set(&self, flags: MountFlags) -> Result<(), RemountError> {
        for (word, flag) in [("sync", MountFlags::SYNCHRONOUS), ("dirsync", MountFlags::DIRSYNC)] {
            if self.options().split(',').any(|option| option == word) != flags.contains(flag) {
                return Err(RemountError::Fixed { path: self.path.clone(), word });
            }
        }
        let becomes_read_only = flags.contains(MountFlags::RDONLY);
        if !becomes_read_only && access(&self.absolute).as_deref() == Some(b"ro") {
            return Err(RemountError::OpenedReadOnly { path: self.path.clone() });
        }
        if becomes_read_only {
            sync(&self.absolute)?;
        }
        self.tell_kernel(flags)?;
        if becomes_read_only {
            // Reading the attribute still reaches the daemon.
            sync(&self.absolute)?;
            if !self.is_in(&mount_table::read()) {
                // That may have been the mount around it.
                return Err(self.unmounted());
            }
        }
        Ok(())
    }

    /// Changes the flags by a descriptor: at the path there may be another mount by now. It is open only for a moment, as it keeps
    /// others from unmounting.
    fn tell_kernel(&self, flags: MountFlags) -> Result<(), RemountError> {
        let refused = |cause| RemountError::Refused { path: self.path.clone(), cause };
        let root = rustix::fs::open(&self.absolute, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(refused)?;
        // In this order: what is open keeps its numbers, and those of a mount that has gone belong to the next one.
        if self.mount.holds(&root) != Ok(true) || !self.is_in(&mount_table::read()) {
            return Err(self.unmounted());
        }
        rustix::mount::mount_remount(format!("/proc/self/fd/{}", root.as_raw_fd()), flags, c"").map_err(refused)
    }

    /// Whether the mount is in `table`. Its options may have changed, and so may its path.
    fn is_in(&self, table: &[MountInfo]) -> bool {
        table.iter().any(|now| (now.id, now.number) == (self.mount.id, self.mount.number) && now.is_ours())
    }

    fn unmounted(&self) -> RemountError {
        RemountError::Unmounted { path: self.path.clone() }
    }
}

/// The daemon's statement about its file system, if any.
fn access(path: &Path) -> Option<Vec<u8>> {
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(path, std::str::from_utf8(ACCESS_ATTRIBUTE).ok()?, &mut value).ok()?;
    value.get(..length).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table::DeviceNumber;
    use crate::testing::SmallTmpfs;

    /// Aim: what is at the path stays as it is if the mount goes from there at the last moment. Method: a tmpfs, for a mount that has gone, for
    /// one whose numbers it has now, and for one of ours that is at another place.
    #[test]
    fn nothing_else_is_remounted() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(directory.path()).unwrap();
        let (place, other) = (root.join("place"), root.join("other"));
        [&place, &other].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let Some(_tmpfs) = SmallTmpfs::mount(&place, 1 << 20) else { return };
        let is_there = mount_table::find(&place).unwrap();
        let gone = MountInfo { number: DeviceNumber { major: 0xfff, minor: 0xf_ffff }, ..is_there.clone() };
        let moved = Unserved::mount(&other);
        for mount in [gone, is_there].into_iter().chain(moved.as_ref().and_then(|_| mount_table::find(&other))) {
            let remount = Remount { path: "given".into(), absolute: place.clone(), mount };
            let refused = remount.tell_kernel(MountFlags::RDONLY).unwrap_err();
            assert!(matches!(&refused, RemountError::Unmounted { path } if path == Path::new("given")), "{refused}");
            std::fs::write(place.join("file"), "it can be written").unwrap();
        }
    }

    /// A mount of ours without a daemon, until it is dropped.
    struct Unserved(PathBuf);

    impl Unserved {
        /// `None` where it cannot be made.
        fn mount(place: &Path) -> Option<Unserved> {
            let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
            let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
            let options = std::ffi::CString::new(options).ok()?;
            rustix::mount::mount("test", place, "fuse.seekless", MountFlags::empty(), &*options).ok()?;
            // Closing the device ends the connection, so that nothing waits for an answer.
            Some(Unserved(place.to_owned()))
        }
    }

    impl Drop for Unserved {
        fn drop(&mut self) {
            // Ignored: a failed test has already reported its error.
            let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
        }
    }
}
