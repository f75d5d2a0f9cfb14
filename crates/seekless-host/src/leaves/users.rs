//! What the users of a store or a directory publish through locks.
//!
//! `flock(2)` shows that something is in use. *Marks* show how: shared locks on single bytes far behind the end of any
//! file (fcntl(2), "open file description locks"). They exclude no other user, work on directories too, and every
//! process can query them. As with `flock`, nothing is written, and they vanish with the process.
//!
//! Users of parts of a file share its `flock`, and meet in locks of the same kind, one byte for each byte of the file, before the marks.
//!
//! Where the file system below has no such locks, there are no marks, and their information is missing.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use seekless::stack::quoted_path;

use crate::fuse::is_moved;
use crate::mount_mark::MountMark;
use crate::mount_table::{self, DeviceNumber, Elsewhere};

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

/// All bytes of any file.
pub(super) const WHOLE: Range<u64> = 0..1 << 59;
/// Offset of the lock on the first byte of a file: locks on bytes themselves are left to other programs.
const BYTES: u64 = 1 << 59;
const _: () = assert!(BYTES + WHOLE.end == FIRST.cast_unsigned());

/// Which bytes are locked for `part` of a file.
pub(super) fn place_of(part: &Range<u64>) -> Range<u64> {
    BYTES + part.start.min(WHOLE.end)..BYTES + part.end.min(WHOLE.end)
}

/// Locks `part` of `file` for as long as it is open: exclusive, which needs a file that is open for writing, or shared.
///
/// # Errors
/// `WOULDBLOCK` when another user has some of it in a way that excludes this one; others where the file system has no such locks.
pub(super) fn lock_part(file: &OwnedFd, part: &Range<u64>, exclusive: bool) -> Result<(), Errno> {
    let place = place_of(part);
    // A length of 0 would have no end.
    if place.is_empty() {
        return Ok(());
    }
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    let lock = lock(kind, place.start.cast_signed(), (place.end - place.start).cast_signed());
    // SAFETY: the call reads one structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(match last_errno() {
            Errno::ACCESS => Errno::WOULDBLOCK,
            error => error,
        }),
        _ => Ok(()),
    }
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

/// True when other processes have set `mark` on the inode of `file`, or when a lock of another program hides whether they have.
pub(super) fn may_be_marked(file: &OwnedFd, mark: Mark) -> bool {
    a_lock_in(file, mark.offset(), mark.offset() + 1).is_some()
}

/// True when other processes have set `mark` on the inode of `file`.
fn is_marked(file: &OwnedFd, mark: Mark) -> bool {
    // The kernel joins marks of one user that are side by side.
    const BYTES_MAX: i64 = 3;
    let found = a_lock_in(file, mark.offset(), mark.offset() + 1);
    found.is_some_and(|found| found.start >= FIRST && found.end - found.start <= BYTES_MAX)
}

/// A lock of another user, from `start` up to `end`.
struct Lock {
    start: i64,
    end: i64,
}

/// A lock of others in the range: of several, any. It may begin before the range and end behind it.
fn a_lock_in(file: &OwnedFd, start: i64, end: i64) -> Option<Lock> {
    // A write lock would conflict with any mark.
    let mut lock = lock(libc::F_WRLCK, start, end - start);
    // SAFETY: the call reads and writes one structure.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    let found = asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK;
    // A length of 0 has no end.
    let end = if lock.l_len > 0 { lock.l_start.saturating_add(lock.l_len) } else { i64::MAX };
    found.then_some(Lock { start: lock.l_start, end })
}

/// The marks of mounts that others have set on the inode of `file`, each when it is found.
fn marks_of_mounts(file: &OwnedFd) -> impl Iterator<Item = MountMark> {
    /// So many questions find all marks of any real number of users.
    const QUESTIONS_MAX: usize = 1000;
    // The kernel names any lock of a range, so that both sides of it are left to be asked about.
    let mut ranges = vec![(MOUNTS, MOUNTS + MOUNT_COUNT)];
    (0..QUESTIONS_MAX)
        .map_while(move |_| {
            let (start, end) = ranges.pop()?;
            let Some(found) = a_lock_in(file, start, end) else { return Some(None) };
            let sides = [(found.end, end), (start, found.start)];
            ranges.extend(sides.into_iter().filter(|(start, end)| start < end));
            // Any other length is a lock of another program, which may cover all of the file.
            let is_mark = found.start >= start && found.end == found.start + 1;
            let bits = found.start - MOUNTS;
            Some(is_mark.then_some(MountMark {
                number: DeviceNumber { major: (bits >> 44) as u32, minor: (bits >> 24) as u32 & 0xf_ffff },
                hash: bits as u32 & 0xff_ffff,
            }))
        })
        .flatten()
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
        let mut table = None;
        for mark in marks_of_mounts(file) {
            let table = table.get_or_insert_with(mount_table::read);
            if let Some(mount) = table.iter().find(|mount| mark.is(mount)) {
                return Users::Mounted(mount.mount_point.clone());
            }
            if let Some(Elsewhere { pid, command, mount_point }) = mount_table::find_elsewhere(|mount| mark.is(mount)) {
                let place = mount_point.display();
                return Users::Elsewhere(format!("on {place} in the mount namespace of process {pid} ({command})"));
            }
            if let Some(mount) = is_moved(mark, table) {
                return Users::Mounted(mount.mount_point.clone());
            }
            users = Users::Ending;
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
            Users::Ending => Some("it was unmounted, but its daemon is still writing or serving programs".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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

    /// A lock of another program is no mark, and does not keep this process busy: NFS shows a `flock` as a lock of the whole file.
    #[test]
    fn locks_of_others_are_no_marks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "").unwrap();
        let (one, two, other) = (opened(&path), opened(&path), opened(&path));
        rustix::fs::flock(&one, rustix::fs::FlockOperation::LockExclusive).unwrap();
        for (start, length) in [(0, 0), (0, FIRST + 1), (MOUNTS - 1, MOUNT_COUNT), (MOUNTS, 0), (1 << 62, 1 << 40)] {
            let whole = lock(libc::F_RDLCK, start, length);
            // SAFETY: the call reads one structure.
            assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) }, 0);
            let (sender, receiver) = std::sync::mpsc::channel();
            let asked = two.try_clone().unwrap();
            std::thread::spawn(move || sender.send(Users::of(&asked)));
            let users = receiver.recv_timeout(std::time::Duration::from_secs(20));
            assert_eq!(users, Ok(Users::Unknown), "{length} from {start}");
            let whole = lock(libc::F_UNLCK, 0, 0);
            // SAFETY: as above.
            assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &raw const whole) }, 0);
        }
    }

    /// All marks are found, whichever of them the kernel names first, and whatever lies between them.
    #[test]
    fn all_marks_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let asking = opened(directory.path());
        let marks = [5, 3, 4, 1, 9, 7].map(|minor| MountMark { number: DeviceNumber { major: 0, minor }, hash: minor });
        let users = marks.map(|marked| {
            let user = opened(directory.path());
            mark(&user, Mark::Mounted(marked)).unwrap();
            user
        });
        let between = lock(libc::F_RDLCK, Mark::Mounted(marks[0]).offset() + 1, 10);
        // SAFETY: the call reads one structure.
        assert_eq!(unsafe { libc::fcntl(users[1].as_raw_fd(), libc::F_OFD_SETLK, &raw const between) }, 0);
        let mut found: Vec<u32> = marks_of_mounts(&asking).map(|found| found.hash).collect();
        found.sort_unstable();
        assert_eq!(found, [1, 3, 4, 5, 7, 9]);
    }
}
