//! Ending a mount from outside: its connection, and its place in the tree of directories.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::mount_table::{DeviceNumber, MountInfo};

/// Mounts and unmounts for users who may not.
pub(super) const HELPER: &str = "fusermount3";

/// Detaches the mount at `path`. It waits for the daemon to answer pending requests, so a daemon calls it on a worker
/// thread (U1).
pub(super) fn unmount(path: &Path, by_helper: bool, lazy: bool) -> Result<(), Errno> {
    if !by_helper {
        let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() } | UnmountFlags::NOFOLLOW;
        match rustix::mount::unmount(path, flags) {
            Err(Errno::PERM) => {}
            result => return result,
        }
    }
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command.arg("--").arg(path).stdin(Stdio::null()).output().map_err(|_| Errno::PERM)?;
    match output.status.success() {
        true => Ok(()),
        false if String::from_utf8_lossy(&output.stderr).contains("busy") => Err(Errno::BUSY),
        false => Err(Errno::PERM),
    }
}

/// Detaches `mount` without waiting for its users, and nothing else that may be at its place by now.
///
/// # Errors
/// `INVAL` when it is not there any more.
pub(super) fn detach(mount: &MountInfo) -> Result<(), Errno> {
    let place = &mount.mount_point;
    let Ok(root) = rustix::fs::open(place, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) else {
        return unmount(place, false, true);
    };
    match mount.holds(&root) {
        Ok(true) => {}
        Ok(false) => return Err(Errno::INVAL),
        // A dead mount may give errors.
        Err(_) => return unmount(place, false, true),
    }
    match rustix::mount::unmount(format!("/proc/self/fd/{}", root.as_raw_fd()), UnmountFlags::DETACH) {
        Err(Errno::PERM) => unmount(place, false, true),
        result => result,
    }
}

/// The right to unmount a mount, which one process has at a time. Without a descriptor, which would keep the mount in use, the kernel
/// unmounts what is at a path, and of two processes the second one would unmount what is below.
pub(super) struct Turn {
    _socket: Option<OwnedFd>,
}

impl Turn {
    /// `None` while another process has it. The kernel takes it back from one that ends.
    pub(super) fn take(mount: &MountInfo) -> Option<Turn> {
        let bind = || {
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            let MountInfo { id, number: DeviceNumber { major, minor }, .. } = mount;
            let name = format!("seekless umount {major}:{minor} {id}");
            rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
            Ok(socket)
        };
        match bind() {
            Err(Errno::ADDRINUSE) => None,
            // Where there are no such names, all have it.
            other => Some(Turn { _socket: other.ok() }),
        }
    }
}

/// Ends the connection of a mount, and unmounts it unless it is in use. Only for root.
pub(super) fn force(path: &Path) {
    let _ = rustix::mount::unmount(path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
}

/// Where the kernel shows a connection, if the control file system is mounted.
pub(super) fn control_directory(number: DeviceNumber) -> PathBuf {
    PathBuf::from(format!("/sys/fs/fuse/connections/{}", connection(number)))
}

/// Ends a connection through its control file. False where the control file system is not mounted.
pub(super) fn abort_connection(number: Option<DeviceNumber>) -> bool {
    number.is_some_and(|number| fs::write(control_directory(number).join("abort"), b"1").is_ok())
}

/// The kernel's `new_encode_dev`, which names the directory under `/sys/fs/fuse/connections`.
fn connection(number: DeviceNumber) -> u32 {
    let DeviceNumber { major, minor } = number;
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table;
    use crate::testing::SmallTmpfs;

    /// What is below a mount stays when the mount has been unmounted by another process.
    #[test]
    fn nothing_below_is_detached() {
        let directory = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(directory.path()).unwrap();
        let Some(_below) = SmallTmpfs::mount(&place, 1 << 20) else { return };
        let below = mount_table::find(&place).unwrap();
        let Some(above) = SmallTmpfs::mount(&place, 1 << 20) else { return };
        let mount = mount_table::find(&place).unwrap();
        assert_ne!(mount.id, below.id);
        drop(above);
        assert_eq!(detach(&mount), Err(Errno::INVAL));
        assert_eq!(mount_table::find(&place), Some(below.clone()));
        assert_eq!(detach(&below), Ok(()));
        assert_eq!(mount_table::find(&place), None);
    }

    /// One process at a time has the turn of a mount.
    #[test]
    fn turns_are_taken_and_given_back() {
        let mount = |id| MountInfo {
            id,
            number: DeviceNumber { major: 0xfff, minor: 0xf_fffe },
            root: "/".into(),
            mount_point: "/nowhere".into(),
            kind: "fuse.seekless".into(),
            options: String::new(),
        };
        let turn = Turn::take(&mount(1));
        assert!(turn.is_some() && Turn::take(&mount(1)).is_none() && Turn::take(&mount(2)).is_some());
        drop(turn);
        assert!(Turn::take(&mount(1)).is_some());
    }

    /// Connections are named by device numbers in the kernel's encoding.
    #[test]
    fn connections_are_named_by_device_number() {
        assert_eq!(connection(DeviceNumber { major: 0, minor: 50 }), 50);
        assert_eq!(connection(DeviceNumber { major: 7, minor: 0 }), 1792);
        assert_eq!(connection(DeviceNumber { major: 0, minor: 300 }), 0x2c | 1 << 20);
    }
}
