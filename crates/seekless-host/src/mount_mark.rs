//! How a daemon names its mount to other processes.

use std::fmt;
use std::hash::Hasher;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use crate::mount_table::{DeviceNumber, MountInfo};

/// Identifies a mount in the mount table. The device number alone would not suffice: the next mount reuses it as soon
/// as it is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MountMark {
    pub(crate) number: DeviceNumber,
    /// Hash of its mount point.
    pub(crate) hash: u32,
}

impl MountMark {
    pub(crate) fn new(number: DeviceNumber, mount_point: &Path) -> MountMark {
        let mut hasher = rustc_hash::FxHasher::default();
        hasher.write(mount_point.as_os_str().as_bytes());
        MountMark { number, hash: (hasher.finish() >> 32) as u32 & 0xff_ffff }
    }

    pub(crate) fn is(self, mount: &MountInfo) -> bool {
        mount.is_ours() && MountMark::new(mount.number, &mount.mount_point) == self
    }
}

impl fmt::Display for MountMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MountMark { number: DeviceNumber { major, minor }, hash } = self;
        write!(f, "{major}:{minor}:{hash:06x}")
    }
}

impl FromStr for MountMark {
    type Err = ();

    fn from_str(text: &str) -> Result<MountMark, ()> {
        let mut parts = text.split(':');
        let mut number = |radix| u32::from_str_radix(parts.next().ok_or(())?, radix).map_err(drop);
        Ok(MountMark { number: DeviceNumber { major: number(10)?, minor: number(10)? }, hash: number(16)? })
    }
}
