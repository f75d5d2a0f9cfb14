//! Ending a mount from outside: its connection, and its place in the tree of directories.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::mount_table::DeviceNumber;

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

    /// Connections are named by device numbers in the kernel's encoding.
    #[test]
    fn connections_are_named_by_device_number() {
        assert_eq!(connection(DeviceNumber { major: 0, minor: 50 }), 50);
        assert_eq!(connection(DeviceNumber { major: 7, minor: 0 }), 1792);
        assert_eq!(connection(DeviceNumber { major: 0, minor: 300 }), 0x2c | 1 << 20);
    }
}
