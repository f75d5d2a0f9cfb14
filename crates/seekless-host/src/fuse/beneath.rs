//! Mounting below a mount that already exists, so that the directory shows the one or the other and never what lies below both.
//!
//! A mount of the new kind is made without a place, then moved beneath the one at the mount point (Linux 6.5), which is taken away.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

/// A parameter of `fuse`, with its value if it has one.
pub(super) type Parameter = (&'static str, Option<String>);

/// `MOVE_MOUNT_BENEATH`
const BENEATH: MoveMountFlags = MoveMountFlags::from_bits_retain(0x200);

/// Mounts `fuse` beneath the topmost mount at `path`.
///
/// # Errors
/// Where the kernel cannot do that; then nothing has changed.
pub(super) fn mount_beneath(
    path: &Path,
    source: &str,
    subtype: &str,
    parameters: &[Parameter],
    flags: MountFlags,
) -> Result<(), Errno> {
    let detached = detached(source, subtype, parameters, flags)?;
    move_mount(&detached, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | BENEATH)
}

fn detached(source: &str, subtype: &str, parameters: &[Parameter], flags: MountFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", source)?;
    fsconfig_set_string(&context, "subtype", subtype)?;
    for (key, value) in parameters {
        match value {
            Some(value) => fsconfig_set_string(&context, *key, value.as_str())?,
            None => fsconfig_set_flag(&context, *key)?,
        }
    }
    // Those that a file system has, and below those that each of its mounts has.
    for (flag, key) in [
        (MountFlags::RDONLY, "ro"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::DIRSYNC, "dirsync"),
        (MountFlags::LAZYTIME, "lazytime"),
    ] {
        if flags.contains(flag) {
            fsconfig_set_flag(&context, key)?;
        }
    }
    fsconfig_create(&context)?;
    let mut attributes = MountAttrFlags::empty();
    for (flag, attribute) in [
        (MountFlags::RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (MountFlags::NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
        (MountFlags::STRICTATIME, MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        (MountFlags::NOSYMFOLLOW, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
    ] {
        attributes.set(attribute, flags.contains(flag));
    }
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
