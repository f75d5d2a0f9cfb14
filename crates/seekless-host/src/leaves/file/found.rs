//! What is found when the file below a store is looked for.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The device and inode of a file, as stat(2) has them.
pub(super) type Identity = (u64, u64);

/// What is below a file or a block device.
pub(super) enum Below {
    /// Nothing that others could reach by another name, as far as is known.
    Nothing,
    File(OwnedFd),
    /// A file that cannot be opened from here.
    Hidden(Hidden),
}

/// Of a file that cannot be opened.
#[derive(Debug)]
pub(super) struct Hidden {
    pub(super) what: String,
    pub(super) hint: String,
    pub(super) identity: Option<Identity>,
}

/// Which file it is.
pub(super) fn identity(file: &OwnedFd) -> Option<Identity> {
    rustix::fs::fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// Opens `path` for a lock.
pub(super) fn opened(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
}
