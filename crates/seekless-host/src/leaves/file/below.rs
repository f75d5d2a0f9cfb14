//! The file behind a loop device, which has two names for the same bytes.
//!
//! A volume in an image is reached by the image's names and by every loop device over it, and `flock` and `O_EXCL` on one of them are not
//! seen through the others. So the opener of a loop device also locks the file behind it (F2), and the opener of a file looks
//! whether a loop device over it is in use, for example by a file system of the kernel.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::leaves::users::Users;

/// Loop devices over each other.
const DEPTH_MAX: usize = 16;

/// The device and inode of a file, as stat(2) has them.
type Identity = (u64, u64);

/// What a loop device shows.
struct Backing {
    identity: Identity,
    /// A piece of the file, as with an offset or as a partition: others may use the rest.
    is_part: bool,
}

/// Locks the files below the block device `device`, shared or exclusive. A file that cannot be found or locked is
/// left out: it has been deleted, or is in another mount namespace.
///
/// # Errors
/// When another process has one of them: its users.
pub(super) fn lock_below(device: &OwnedFd, shared: bool) -> Result<Vec<OwnedFd>, Users> {
    let mut held: Vec<OwnedFd> = Vec::new();
    for _ in 0..DEPTH_MAX {
        let last = held.last().unwrap_or(device);
        let Some(backing) = backing(last) else { break };
        let Some(file) = opened(last, &backing) else { break };
        let operation = match shared || backing.is_part {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        if let Err(Errno::WOULDBLOCK) = rustix::fs::flock(&file, operation) {
            return Err(Users::of(&file));
        }
        held.push(file);
    }
    Ok(held)
}

/// Whether a loop device over the file is open for a sole user.
pub(super) fn is_used_above(file: &OwnedFd) -> bool {
    let Some(identity) = identity(file) else { return false };
    loop_devices().any(|path| {
        let over = |device: &OwnedFd| backing(device).is_some_and(|backing| backing.identity == identity);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        rustix::fs::open(&path, flags, Mode::empty()).is_ok_and(|device| over(&device))
            && matches!(rustix::fs::open(&path, flags | OFlags::EXCL, Mode::empty()), Err(Errno::BUSY))
    })
}

/// Those that show something.
fn loop_devices() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().join("loop").exists()).map(|entry| Path::new("/dev").join(entry.file_name()))
}

fn identity(file: &OwnedFd) -> Option<Identity> {
    rustix::fs::fstat(file).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// The directory of a block device in sysfs where its kernel driver says what it shows, and whether the device is a partition.
fn sysfs(device: &OwnedFd) -> Option<(PathBuf, bool)> {
    let number = rustix::fs::fstat(device).ok()?.st_rdev;
    let of_device =
        PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    [("loop", false), ("../loop", true)].into_iter().find_map(|(name, is_partition)| {
        let found = of_device.join(name);
        found.exists().then_some((found, is_partition))
    })
}

/// What the loop device `device` shows; `None` for every other file.
fn backing(device: &OwnedFd) -> Option<Backing> {
    let (_, is_partition) = sysfs(device)?;
    /// `struct loop_info64` of `linux/loop.h`, of which the first numbers are wanted.
    #[repr(C)]
    struct LoopInfo {
        device: u64,
        inode: u64,
        shown_device: u64,
        offset: u64,
        size_limit: u64,
        rest: [u64; 24],
    }
    const GET_STATUS: libc::Ioctl = 0x4C05 as libc::Ioctl;
    const _: () = assert!(size_of::<LoopInfo>() == 232);
    let mut info = LoopInfo { device: 0, inode: 0, shown_device: 0, offset: 0, size_limit: 0, rest: [0; 24] };
    // SAFETY: the kernel writes at most the 232 bytes of the structure that the request is defined with.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS, &raw mut info) };
    let is_part = is_partition || info.offset != 0 || info.size_limit != 0;
    (answer == 0).then_some(Backing { identity: (info.device, info.inode), is_part })
}

/// Opens the file behind `device`, if it still has its name.
fn opened(device: &OwnedFd, backing: &Backing) -> Option<OwnedFd> {
    let (directory, _) = sysfs(device)?;
    let name = fs::read_to_string(directory.join("backing_file")).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(name.strip_suffix('\n')?, flags, Mode::empty()).ok()?;
    (identity(&file) == Some(backing.identity)).then_some(file)
}
