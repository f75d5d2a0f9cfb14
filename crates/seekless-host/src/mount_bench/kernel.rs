//! File systems of the kernel: made, mounted, unmounted.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use super::cannot;
use super::process::run;

/// How ext4 is made: nothing is given back to the image, and nothing is left to be written later.
pub(super) const EXT4: &[&str] = &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];

/// Makes an ext4 with room for `names` files; by default it has an inode for each 16 KiB.
///
/// # Errors
/// What mkfs said.
pub(super) fn make_ext4(device: &Path, names: u64) -> Result<(), String> {
    run(Command::new("mkfs.ext4").args(EXT4).args(inodes(names)).arg(device)).map(drop)
}

/// Arguments of mkfs.ext4 for more files than it makes room for by default.
pub(super) fn inodes(names: u64) -> Vec<String> {
    const BY_DEFAULT: u64 = 16_000;
    if names > BY_DEFAULT { vec!["-N".into(), (names + names / 4).to_string()] } else { Vec::new() }
}

pub(super) fn mount(kind: &str, options: &str, device: &Path, directory: &Path) -> Result<(), String> {
    run(Command::new("mount").args(["-t", kind, "-o", options]).arg(device).arg(directory)).map(drop)
}

/// Unmounts. Some daemons hold a file a moment longer than their mount.
///
/// # Errors
/// When it is in use for ten seconds.
pub(super) fn unmount_when_free(path: &Path) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match unmount(path, UnmountFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(cannot("unmount", path, error.into())),
        }
    }
}

/// Bytes in use on the file system that has `path`.
pub(super) fn used_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

/// Empties the kernel's caches of files, names and inodes, after it has written what is in them.
///
/// # Errors
/// Only root may.
pub(super) fn forget() -> Result<(), String> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("cannot drop caches: {error}"))
}
