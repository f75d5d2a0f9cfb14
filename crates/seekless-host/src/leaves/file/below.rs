//! The files below a store: other names for the same bytes, on which locks of the store are not seen.
//!
//! A volume in an image is reached by the image's names, by every loop device over it, and through mounts of ours and overlays over its
//! directory; `flock` and `O_EXCL` on one of them are not seen through the others. So the opener of one also locks what is below it (F2), and
//! the opener of a file looks whether a loop device over it is in use, for example by a file system of the kernel.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use seekless::stack::quoted_path;
use seekless::units::SECTOR_BYTES;

use super::claim::{is_free, is_held};
use super::found::{Below, Deadline, Hidden, Identity, identity, in_time, opened};
use super::shown::{behind_mount, is_stored_elsewhere, silent};
use crate::leaves::users::{Users, WHOLE, lock_part, place_of};

/// Loop devices and mounts over each other.
const DEPTH_MAX: usize = 16;

/// Why the files below a store are not locked.
pub(super) enum NotLocked {
    /// By these.
    InUse(Users),
    /// They cannot be.
    Hidden(Hidden),
}

/// A file below a store, and what of it the store is in.
pub(super) struct Locked {
    pub(super) file: OwnedFd,
    pub(super) part: Range<u64>,
}

/// What a loop device shows.
struct Backing {
    identity: Identity,
    /// Of the file; all of it, or what an offset, a limit or a partition leaves of it, so that others may use the rest.
    part: Range<u64>,
    /// The file is a block device.
    is_over_device: bool,
}

/// What of a file is `part` of a device that shows `shown` of it.
fn part_of(shown: &Range<u64>, part: &Range<u64>) -> Range<u64> {
    if *part == WHOLE {
        return shown.clone();
    }
    let at = |offset: u64| shown.start.saturating_add(offset).min(shown.end);
    at(part.start)..at(part.end)
}

/// Locks the files below the store `file`, shared or exclusive: all of each, or the part that the store is in. One that cannot be opened is left out where the lock is shared: for a reader
/// it is enough that the kernel shows no writer.
///
/// # Errors
/// When another process has one of them: its users. When one cannot be opened, and the lock is to be exclusive.
pub(super) fn lock_below(file: &OwnedFd, shared: bool) -> Result<Vec<Locked>, NotLocked> {
    let mut held: Vec<Locked> = Vec::new();
    let mut part = WHOLE;
    let deadline = Deadline::of_look();
    for _ in 0..DEPTH_MAX {
        let last = held.last().map_or(file, |locked| &locked.file);
        let found = match FileType::from_raw_mode(rustix::fs::fstat(last).map_or(0, |stat| stat.st_mode)) {
            FileType::BlockDevice => match backing_in_time(last, deadline) {
                Ok(None) => Below::Nothing,
                Ok(Some(backing)) => {
                    part = part_of(&backing.part, &part);
                    behind_loop_device(last, &backing, deadline)
                }
                Err(hidden) => Below::Hidden(hidden),
            },
            FileType::RegularFile => behind_mount(last, deadline),
            _ => Below::Nothing,
        };
        let below = match found {
            Below::Elsewhere(identity) if is_locked(identity, shared, &part) => {
                return Err(NotLocked::InUse(Users::default()));
            }
            // A file whose users this process cannot keep away: those that came first are all it can see.
            Below::Nothing | Below::Elsewhere(_) => break,
            Below::File(below) => below,
            Below::Hidden(hidden) => match hidden.identity {
                Some(identity) if is_locked(identity, shared, &part) => {
                    return Err(NotLocked::InUse(Users::default()));
                }
                _ if shared => break,
                _ => return Err(NotLocked::Hidden(hidden)),
            },
        };
        held.push(Locked { file: lock_file(below, &part, shared)?, part: part.clone() });
    }
    Ok(held)
}

/// Locks `part` of `file`. Users of parts share a `flock`, which keeps those away who use all of it for writing.
fn lock_file(file: OwnedFd, part: &Range<u64>, shared: bool) -> Result<OwnedFd, NotLocked> {
    let is_part = *part != WHOLE;
    let operation = match shared || is_part {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    // An exclusive lock on a part needs a file that is open for writing. A process that may not do that gets at least the shared one.
    let writes = !shared && is_part;
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let writable = writes.then(|| rustix::fs::open(again, flags, Mode::empty()).ok()).flatten();
    let exclusive = writable.is_some();
    let file = writable.unwrap_or(file);
    let locked = match rustix::fs::flock(&file, operation) {
        Err(Errno::WOULDBLOCK) => Err(Errno::WOULDBLOCK),
        _ if shared || is_part => lock_part(&file, part, exclusive),
        _ => Ok(()),
    };
    match locked {
        Err(Errno::WOULDBLOCK) => Err(NotLocked::InUse(Users::of(&file))),
        _ => Ok(file),
    }
}

/// How often the table of locks is read, at most, when it is longer than a page. The kernel hands it out by the page and counts where it is:
/// a lock that another process drops in between hides one that is held. Two readings that agree prove nothing, as the same locks may have
/// been taken again.
const TABLE_READS_MAX: u32 = 32;
const PAGE_BYTES_MIN: usize = 4096;

/// Whether the kernel lists a lock on `part` of the file that keeps away a shared one, or any. It does not list those of processes that this
/// one cannot see, and names the file system rather than the device that stat(2) names where those differ.
pub(super) fn is_locked((device, inode): Identity, shared: bool, part: &Range<u64>) -> bool {
    let file = format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device));
    let lists = |table: &str| {
        table.lines().any(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            // One that waits has an arrow before its kind.
            [_, "FLOCK", _, mode, _, of, ..] => of == file && (mode == "WRITE" || !shared && *part == WHOLE),
            [_, "OFDLCK", _, mode, _, of, start, last] if of == file && (mode == "WRITE" || !shared) => {
                let start = start.parse().unwrap_or(0);
                let end = last.parse().map_or(u64::MAX, |last: u64| last.saturating_add(1));
                overlap(&(start..end), &place_of(part))
            }
            _ => false,
        })
    };
    for _ in 0..TABLE_READS_MAX {
        let table = read_by_pages("/proc/locks").unwrap_or_default();
        if lists(&String::from_utf8_lossy(&table)) {
            return true;
        }
        if table.len() < PAGE_BYTES_MIN / 2 {
            break; // It came in one piece, which ended because there were no more.
        }
    }
    false
}

/// A file of the kernel, in pieces as large as it gives.
fn read_by_pages(path: &str) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(all),
            bytes => all.extend_from_slice(&piece[..bytes]),
        }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// Looks whether a loop device over one of `files`, however many others or mounts are between them, is open for a sole user. All loop devices
/// are looked at side by side, so that those over mounts that do not answer cost one wait together. Returns what could not be looked at: a
/// daemon that does not answer is no reason to refuse files that have nothing to do with it.
///
/// # Errors
/// When there is such a user.
pub(super) fn look_above(files: &[(&OwnedFd, &Range<u64>)]) -> Result<Vec<String>, NotLocked> {
    let wanted: Vec<Piece> = files
        .iter()
        .filter_map(|&(file, part)| Some(Piece { identity: identity(file)?, part: part.clone() }))
        .collect();
    let deadline = Deadline::of_look();
    let looks: Vec<(Look, LoopDevice)> =
        loop_devices().map(|device| (Look::at(&device.path, deadline), device)).collect();
    let mut not_known: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (look, device) in looks {
        let Shown { pieces, unknown } = look.end();
        if device.is_used(&pieces, &wanted) {
            return Err(NotLocked::InUse(Users::default()));
        }
        if let Some(why) = unknown {
            not_known.entry(why.what).or_default().push(device.path.display().to_string());
        }
    }
    let said =
        |(why, devices): (String, Vec<String>)| format!("which files are shown by {}: {why}", devices.join(", "));
    Ok(not_known.into_iter().map(said).collect())
}

/// A part of a file.
struct Piece {
    identity: Identity,
    part: Range<u64>,
}

/// What a loop device shows, from itself down.
#[derive(Default)]
struct Shown {
    pieces: Vec<Piece>,
    /// What is below these, of which a daemon has not answered.
    unknown: Option<Hidden>,
}

/// A look at what a loop device shows.
enum Look {
    Ended(Shown),
    /// In a thread of its own, as it may wait. It ends by the deadline.
    Running(JoinHandle<Shown>),
}

impl Look {
    fn at(path: &Path, deadline: Deadline) -> Look {
        let looked_at = path.to_owned();
        match std::thread::Builder::new().spawn(move || shown_by(&looked_at, deadline)) {
            Ok(thread) => Look::Running(thread),
            Err(_) => Look::Ended(shown_by(path, deadline)),
        }
    }

    fn end(self) -> Shown {
        match self {
            Look::Ended(shown) => shown,
            Look::Running(thread) => thread.join().unwrap_or_default(),
        }
    }
}

/// What the loop device at `path` shows; nothing if it cannot be opened.
fn shown_by(path: &Path, deadline: Deadline) -> Shown {
    let mut shown = Shown::default();
    let Ok(device) = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return shown };
    let (mut last, mut part) = (device, WHOLE);
    for _ in 0..DEPTH_MAX {
        let below = match backing_in_time(&last, deadline) {
            Ok(Some(backing)) => {
                part = part_of(&backing.part, &part);
                shown.pieces.push(Piece { identity: backing.identity, part: part.clone() });
                // Most are on a file system that stores its files itself, and some on one that does not answer.
                let may_be_shown = || backing_path(&last).is_some_and(|path| is_stored_elsewhere(&path));
                match backing.is_over_device || may_be_shown() {
                    true => behind_loop_device(&last, &backing, deadline),
                    false => Below::Nothing,
                }
            }
            Ok(None) => behind_mount(&last, deadline),
            Err(hidden) => Below::Hidden(hidden),
        };
        let (identity, next) = match below {
            Below::File(below) => (identity(&below), Some(below)),
            Below::Elsewhere(found) => (Some(found), None),
            Below::Hidden(hidden) => {
                let identity = hidden.identity;
                shown.unknown = hidden.is_silent.then_some(hidden);
                (identity, None)
            }
            Below::Nothing => (None, None),
        };
        shown.pieces.extend(identity.map(|identity| Piece { identity, part: part.clone() }));
        match next {
            Some(next) => last = next,
            None => break,
        }
    }
    shown
}

/// One that shows something.
struct LoopDevice {
    path: PathBuf,
    partitions: Vec<Partition>,
}

struct Partition {
    path: PathBuf,
    /// On its device.
    place: Range<u64>,
}

impl LoopDevice {
    /// Whether one of the `wanted` pieces is used through this device, which shows the `pieces`, or through a partition of it.
    ///
    /// The kernel refuses a claim on a device while one of its partitions is claimed, and on a partition while the device is.
    fn is_used(&self, pieces: &[Piece], wanted: &[Piece]) -> bool {
        let is_wanted = |piece: &Piece, part: &Range<u64>| {
            wanted.iter().any(|wanted| wanted.identity == piece.identity && overlap(part, &wanted.part))
        };
        // A device that shows other bytes is not even tried: that alone would keep others from it for a moment.
        if !pieces.iter().any(|piece| is_wanted(piece, &piece.part)) {
            return false;
        }
        let (inside, beside): (Vec<_>, Vec<_>) = self.partitions.iter().partition(|partition| {
            pieces.iter().any(|piece| is_wanted(piece, &part_of(&piece.part, &partition.place)))
        });
        match inside[..] {
            // The device has a user of its own unless one of its partitions can be claimed.
            [] => is_held(&self.path) && !beside.into_iter().any(|partition| is_free(&partition.path)),
            // One that has no node in /dev cannot be tried. Its user is one of the device, though others may be that, too.
            _ => is_held(&self.path) && !inside.into_iter().all(|partition| is_free(&partition.path)),
        }
    }
}

fn loop_devices() -> impl Iterator<Item = LoopDevice> {
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    let device = |entry: &fs::DirEntry| Path::new("/dev").join(entry.file_name());
    entries(Path::new("/sys/block")).filter(|entry| entry.path().join("loop").exists()).map(move |entry| {
        let inside = entries(&entry.path()).filter(|inside| inside.path().join("partition").exists());
        let partitions = inside
            .filter_map(|inside| Some(Partition { path: device(&inside), place: place_of_partition(&inside.path())? }));
        LoopDevice { path: device(&entry), partitions: partitions.collect() }
    })
}

/// Where a partition is on its device, according to its directory in sysfs.
fn place_of_partition(directory: &Path) -> Option<Range<u64>> {
    let sectors = |name: &str| fs::read_to_string(directory.join(name)).ok()?.trim().parse::<u64>().ok();
    let start = sectors("start")?.saturating_mul(SECTOR_BYTES);
    Some(start..start.saturating_add(sectors("size")?.saturating_mul(SECTOR_BYTES)))
}

/// The directory of a block device in sysfs where its kernel driver says what it shows, and of a partition its place on the whole device.
fn sysfs(device: &OwnedFd) -> Option<(PathBuf, Option<Range<u64>>)> {
    let number = rustix::fs::fstat(device).ok()?.st_rdev;
    let of_device =
        PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)));
    let of_driver = of_device.join("loop");
    if of_driver.exists() {
        return Some((of_driver, None));
    }
    let of_driver = of_device.join("../loop");
    let place = place_of_partition(&of_device)?;
    of_driver.exists().then_some((of_driver, Some(place)))
}

/// What the loop device `device` shows; `None` for every other file. The kernel asks the file system of the file for its attributes, and waits
/// for it.
///
/// # Errors
/// When that does not answer.
fn backing_in_time(device: &OwnedFd, deadline: Deadline) -> Result<Option<Backing>, Hidden> {
    if sysfs(device).is_none() {
        return Ok(None);
    }
    let Ok(asked) = device.try_clone() else { return Ok(None) };
    in_time(deadline, move || backing(&asked)).ok_or_else(|| silent(&backing_path(device).unwrap_or_default(), None))
}

/// The same without a limit.
fn backing(device: &OwnedFd) -> Option<Backing> {
    let (_, partition) = sysfs(device)?;
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
    if answer != 0 {
        return None;
    }
    let end = match info.size_limit {
        0 => WHOLE.end,
        limit => info.offset.saturating_add(limit),
    };
    let shown = info.offset..end;
    let part = partition.map_or(shown.clone(), |partition| part_of(&shown, &partition));
    // Of a regular file it is the device that has it.
    let is_over_device = info.shown_device != info.device;
    Some(Backing { identity: (info.device, info.inode), part, is_over_device })
}

/// The name that the file behind the loop device `device` had when it was attached.
fn backing_path(device: &OwnedFd) -> Option<PathBuf> {
    let (directory, _) = sysfs(device)?;
    let name = fs::read(directory.join("backing_file")).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(name.strip_suffix(b"\n").unwrap_or(&name))))
}

/// The file behind the loop device `device`, by the name that it had when it was attached.
fn behind_loop_device(device: &OwnedFd, backing: &Backing, deadline: Deadline) -> Below {
    let directory = sysfs(device).map(|(directory, _)| directory).unwrap_or_default();
    let path = backing_path(device).unwrap_or_default();
    let asked = path.clone();
    let why = match in_time(deadline, move || opened(&asked)) {
        Some(Ok(file)) if identity(&file) == Some(backing.identity) => return Below::File(file),
        Some(Ok(_)) => "is another file now".to_owned(),
        Some(Err(cause)) => format!("cannot be opened: {cause}"),
        None => return Below::Hidden(silent(&path, Some(backing.identity))),
    };
    let directory = fs::canonicalize(&directory).unwrap_or(directory);
    let number = directory.parent().and_then(Path::file_name).unwrap_or_default().display();
    let device = quoted_path(&Path::new("/dev").join(number.to_string()));
    let hint = match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        // Detaching the device may give back the last name, and so all space, of the file.
        Some(_) => format!(
            "do not detach {device}, which may delete the volume: copy it first, and use the copy: cp --sparse=always {device} NEW.img"
        ),
        None => format!(
            "use the file by its present name, which has the inode number {}; or only read {device}",
            backing.identity.1
        ),
    };
    Below::Hidden(Hidden {
        what: format!("the file behind /dev/{number}, {}, {why}", path.display()),
        hint,
        identity: Some(backing.identity),
        is_silent: false,
    })
}
