//! Exclusive opens of block devices (`O_EXCL`), which mounts of the kernel hold for as long as they use one.
//!
//! The kernel tells nowhere whether a device is held: one has to try, and for that moment all other processes find it held. `losetup` does
//! the same. Hence only devices that show the bytes a command is about are tried, and one counts as held only if it stays so.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Together some 130 ms: a process that tries a device may have to wait for a processor before it lets go of it.
pub(super) const WAITS_MS: [u64; 6] = [2, 4, 8, 16, 32, 64];

/// Opens the block device at `path` for a sole user.
///
/// # Errors
/// `BUSY` when another user holds it for longer than a look takes.
pub(super) fn open_exclusively(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut waits = WAITS_MS.into_iter();
    loop {
        match (rustix::fs::open(path, flags, Mode::empty()), waits.next()) {
            (Err(Errno::BUSY), Some(wait)) => std::thread::sleep(Duration::from_millis(wait)),
            (opened, _) => return opened,
        }
    }
}

/// Whether the block device at `path` has a sole user.
pub(super) fn is_held(path: &Path) -> bool {
    open_exclusively(path).is_err_and(|error| error == Errno::BUSY)
}

/// Whether the block device at `path` has no sole user, as far as it can be tried.
pub(super) fn is_free(path: &Path) -> bool {
    open_exclusively(path).is_ok()
}
