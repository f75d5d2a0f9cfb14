//! What the users of a store or a directory publish through locks.
//!
//! `flock(2)` shows that something is in use. *Marks* show how: shared locks on single bytes far behind the end of any
//! file (fcntl(2), "open file description locks"). They exclude no other user, work on directories too, and every
//! process can query them. As with `flock`, nothing is written, and they vanish with the process.
//!
//! Where the file system below has no such locks, there are no marks, and their information is missing.

use std::fmt;
use std::hash::Hasher;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;
use seekless::stack::quoted_path;

use crate::mount_table::{self, DeviceNumber, Elsewhere, MountInfo};

/// A statement about a file or directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// The directory is used, together with all that is in it, by a sharing user.
    SharedHere,
    /// A directory inside this one is used exclusively.
    AloneBelow,
    /// It belongs to a mount that is gone, whose daemon will end.
    Ending,
    /// It belongs to this mount.
    Mounted(MountMark),
}

/// Identifies a mount in the mount table. The device number alone would not suffice: the next mount reuses it as soon
/// as it is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MountMark {
    number: DeviceNumber,
    /// Hash of its mount point.
    hash: u32,
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

/// Offset of the first mark, beyond every file.
const FIRST: i64 = 1 << 60;
/// Offset of the first mark of a mount.
const MOUNTS: i64 = FIRST + (1 << 58);
/// A device number has 12 bits for the major one and 20 for the minor one; the hash has 24.
const MOUNT_COUNT: i64 = 1 << 56;

impl Mark {
    fn offset(self) -> i64 {
        match self {
            Mark::SharedHere => FIRST,
            Mark::AloneBelow => FIRST + 1,
            Mark::Ending => FIRST + 2,
            Mark::Mounted(MountMark { number: DeviceNumber { major, minor }, hash }) => {
                MOUNTS + (i64::from(major & 0xfff) << 44 | i64::from(minor & 0xf_ffff) << 24 | i64::from(hash))
            }
        }
    }
}

fn lock(kind: libc::c_int, start: i64, length: i64) -> libc::flock {
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start;
    lock.l_len = length;
    lock
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Sets `mark` on the inode of `file`, for as long as it is open.
///
/// # Errors
/// When the file system has no such locks.
pub(super) fn mark(file: &OwnedFd, mark: Mark) -> Result<(), Errno> {
    set(file, libc::F_RDLCK, mark)
}

/// Takes the mark back.
///
/// # Errors
/// As [`mark`].
pub(super) fn unmark(file: &OwnedFd, mark: Mark) -> Result<(), Errno> {
    set(file, libc::F_UNLCK, mark)
}

fn set(file: &OwnedFd, kind: libc::c_int, mark: Mark) -> Result<(), Errno> {
    let lock = lock(kind, mark.offset(), 1);
    // SAFETY: the call reads one structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(last_errno()),
        _ => Ok(()),
    }
}

/// Marks all `files` as used by this mount or, when `ending`, as used until now.
pub(super) fn say_mounted<'a>(files: impl IntoIterator<Item = &'a OwnedFd>, mount: MountMark, ending: bool) {
    for file in files {
        // If that fails, other processes get less information.
        let _ = match ending {
            false => mark(file, Mark::Mounted(mount)),
            // In this order, so that there is always a mark.
            true => mark(file, Mark::Ending).and_then(|()| unmark(file, Mark::Mounted(mount))),
        };
    }
}

/// True when other processes have set `mark` on the inode of `file`.
pub(super) fn is_marked(file: &OwnedFd, mark: Mark) -> bool {
    next_mark(file, mark.offset(), 1).is_some()
}

/// The first place of `count` from `start` on that others have marked.
fn next_mark(file: &OwnedFd, start: i64, count: i64) -> Option<i64> {
    // A write lock would conflict with any mark.
    let mut lock = lock(libc::F_WRLCK, start, count);
    // SAFETY: the call reads and writes one structure.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    (asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_start.max(start))
}

/// What is known of the users of a file or directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Users {
    #[default]
    Unknown,
    /// A mount on this directory or file.
    Mounted(PathBuf),
    /// A mount outside this process's namespace, in words.
    Elsewhere(String),
    /// All of them are daemons whose mounts are gone: they write their data, and then end.
    Ending,
}

impl Users {
    /// Finds the users of the inode of `file`.
    pub(super) fn of(file: &OwnedFd) -> Users {
        let mut users = if is_marked(file, Mark::Ending) { Users::Ending } else { Users::Unknown };
        let mut start = MOUNTS;
        let mut table = None;
        while let Some(found) = next_mark(file, start, MOUNTS + MOUNT_COUNT - start) {
            let bits = found - MOUNTS;
            let number = DeviceNumber { major: (bits >> 44) as u32, minor: (bits >> 24) as u32 & 0xf_ffff };
            let mark = MountMark { number, hash: bits as u32 & 0xff_ffff };
            let table = table.get_or_insert_with(mount_table::read);
            if let Some(mount) = table.iter().find(|mount| mark.is(mount)) {
                return Users::Mounted(mount.mount_point.clone());
            }
            if let Some(Elsewhere { pid, command, mount_point }) = mount_table::find_elsewhere(|mount| mark.is(mount)) {
                let place = mount_point.display();
                return Users::Elsewhere(format!("on {place} in the mount namespace of process {pid} ({command})"));
            }
            users = Users::Ending;
            start = found + 1;
        }
        users
    }

    /// The user, for messages, as far as it is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Users::Unknown => None,
            Users::Mounted(place) => {
                Some(format!("it is mounted on {}: seekless umount {}", place.display(), quoted_path(place)))
            }
            Users::Elsewhere(place) => Some(format!("it is mounted {place}")),
            Users::Ending => Some(
                "it was unmounted, and its daemon still writes what it holds, or answers programs that use it".into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &Path) -> OwnedFd {
        std::fs::File::open(path).unwrap().into()
    }

    /// Marks of others are visible, on files and directories; one's own are not; and they vanish with the file.
    #[test]
    fn marks_are_seen_by_others() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let number = DeviceNumber { major: 0xfff, minor: 0xf_ffff };
        let mount = MountMark::new(number, Path::new("/nowhere"));
        for path in [directory.path(), &path] {
            let (one, two) = (opened(path), opened(path));
            for said in [Mark::SharedHere, Mark::AloneBelow, Mark::Mounted(mount)] {
                assert!(!is_marked(&two, said));
                mark(&one, said).unwrap();
                mark(&two, said).unwrap();
                assert!(is_marked(&two, said) && is_marked(&one, said), "{said:?}");
            }
            // No such mount: it has been unmounted.
            assert_eq!(Users::of(&two), Users::Ending);
            say_mounted([&one], mount, true);
            assert!(!is_marked(&two, Mark::Mounted(mount)));
            assert_eq!(Users::of(&two), Users::Ending);
            drop(one);
            assert!(!is_marked(&two, Mark::SharedHere));
            assert_eq!(Users::of(&two), Users::default());
        }
    }
}
