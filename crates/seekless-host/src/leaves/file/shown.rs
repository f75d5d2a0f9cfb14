//! Files that have no bytes of their own: those of a mount of ours over a directory, and those of an overlay.
//!
//! Such a file is another inode than the file that stores its bytes, so that locks of the one are not seen through the other.
//!
//! | where the file is | what says which file stores it |
//! |---|---|
//! | a mount of ours | its daemon, in [`BELOW_ATTRIBUTE`] |
//! | an overlay | the directories in the mount table: the file in the upper one or, for a file that is only read, in a lower one |
//!
//! Of other file systems it is not known: FUSE of others, NFS.
//!
//! Invariant
//!   S1  No look waits for daemons longer than [`PATIENCE`]: one that opens a store may itself be asked at that moment, even by the daemon that
//!       it asks. (That the file could be opened at all has shown that its daemon answers, and is another one than this process.)

use std::ffi::{CStr, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;
use seekless::stack::quoted_path;

use super::found::{Below, Deadline, Hidden, Identity, PATIENCE, identity, in_time};
use crate::fuse::BELOW_ATTRIBUTE;
use crate::mount_table::{self, MountInfo};

/// Of `statfs`.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;
const OVERLAY_MAGIC: rustix::fs::FsWord = 0x794c_7630;

/// The file that has the bytes of `file`, a regular file.
pub(super) fn behind_mount(file: &OwnedFd, deadline: Deadline) -> Below {
    match rustix::fs::fstatfs(file).map(|host| host.f_type) {
        Ok(FUSE_MAGIC) => behind_our_mount(file, deadline),
        Ok(OVERLAY_MAGIC) => behind_overlay(file, deadline),
        _ => Below::Nothing,
    }
}

/// Whether a file at `path` may have its bytes in another one, according to the mount table.
pub(super) fn is_stored_elsewhere(path: &Path) -> bool {
    mount_at(path).is_some_and(|mount| mount.is_ours() || mount.kind == "overlay")
}

/// The mount in which `path` is.
fn mount_at(path: &Path) -> Option<MountInfo> {
    let table = mount_table::read();
    path.ancestors().find_map(|place| table.iter().rfind(|mount| mount.mount_point == place)).cloned()
}

/// What is said of a file at `path` whose mount does not answer.
pub(super) fn silent(path: &Path, identity: Option<Identity>) -> Hidden {
    let mount = mount_at(path);
    let asking = if mount.as_ref().is_some_and(MountInfo::is_ours) { "seekless stat" } else { "df" };
    let place = mount.map_or_else(|| PathBuf::from("/"), |mount| mount.mount_point);
    Hidden {
        what: format!("the mount on {} has not answered within {} s", place.display(), PATIENCE.as_secs()),
        hint: format!("see whether that mount works: {asking} {}", quoted_path(&place)),
        identity,
        is_silent: true,
    }
}

/// The mount through which `file` was opened.
fn mount_of(file: &OwnedFd) -> Option<MountInfo> {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let table = mount_table::read();
    if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID) {
        return table.into_iter().find(|mount| mount.id == stat.stx_mnt_id);
    }
    // Before Linux 5.8.
    let path = path_of(file)?;
    path.ancestors().find_map(mount_table::find)
}

/// Where the kernel has the open `file`.
fn path_of(file: &OwnedFd) -> Option<PathBuf> {
    let path = rustix::fs::readlink(format!("/proc/self/fd/{}", file.as_raw_fd()), Vec::new()).ok()?;
    Some(PathBuf::from(OsString::from_vec(path.into_bytes())))
}

/// Opens `path` for a lock if it is a regular file that `is_it`: the path of another one may be anything.
fn opened_if(path: &Path, is_it: impl Fn(&OwnedFd) -> bool) -> rustix::io::Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(path, flags, Mode::empty())?;
    let mode = rustix::fs::fstat(&place)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile || !is_it(&place) {
        return Ok(None);
    }
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    rustix::fs::open(again, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).map(Some)
}

/// What the daemon of a mount says of a file.
struct Told {
    identity: Identity,
    /// For its own user and root.
    path: Option<PathBuf>,
}

impl Told {
    fn parse(value: &[u8]) -> Option<Told> {
        let mut words = value.splitn(3, |&byte| byte == b' ');
        let mut number = || std::str::from_utf8(words.next()?).ok()?.parse().ok();
        let identity = (number()?, number()?);
        Some(Told { identity, path: words.next().map(|path| PathBuf::from(OsStr::from_bytes(path))) })
    }
}

/// The file that has the bytes of one in a mount of ours.
fn behind_our_mount(file: &OwnedFd, deadline: Deadline) -> Below {
    let Some(mount) = mount_of(file).filter(MountInfo::is_ours) else { return Below::Nothing };
    let place = mount.mount_point;
    let hidden = |what, hint, identity| Below::Hidden(Hidden { what, hint, identity, is_silent: false });
    let unknown = |why: &str| {
        let (shown, quoted) = (place.display(), quoted_path(&place));
        let what = format!("which file it is stored in is not known, since the daemon of {shown} {why}");
        hidden(what, format!("see whether that mount works: seekless stat {quoted}"), None)
    };
    let Ok(asked) = file.try_clone() else { return unknown("cannot be asked") };
    let told = match in_time(deadline, move || attribute(&asked)) {
        Some(Ok(value)) => Told::parse(&value),
        // One that is stored in no file, or in one that cannot be named; or a daemon of an earlier version.
        Some(Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS)) => None,
        Some(Err(cause)) => return unknown(&format!("answers: {cause}")),
        None => return Below::Hidden(silent(&place, None)),
    };
    let Some(Told { identity: wanted, path }) = told else { return Below::Nothing };
    let Some(path) = path else { return Below::Elsewhere(wanted) };
    let asked = path.clone();
    let opened = in_time(deadline, move || opened_if(&asked, |found| identity(found) == Some(wanted)));
    let why = match opened {
        Some(Ok(Some(below))) => return Below::File(below),
        Some(Ok(None)) => "is another file here".to_owned(),
        Some(Err(cause)) => format!("cannot be opened: {cause}"),
        None => return Below::Hidden(silent(&path, Some(wanted))),
    };
    hidden(
        format!("the file that stores it, {} for the daemon of {}, {why}", path.display(), place.display()),
        format!("use that file itself, which has the inode number {}; or only read this one", wanted.1),
        Some(wanted),
    )
}

/// The value of the attribute.
fn attribute(file: &OwnedFd) -> rustix::io::Result<Vec<u8>> {
    // Two numbers and a path.
    let mut value = vec![0; 2 * 21 + libc::PATH_MAX as usize];
    let length = rustix::fs::fgetxattr(file, BELOW_ATTRIBUTE, &mut value)?;
    value.truncate(length);
    Ok(value)
}

/// The file that has the bytes of one on an overlay. Opening a file for writing copies it to the upper directory, so that a lower file is
/// found for readers only. Directories that are in another mount namespace, as those of a container are, cannot be found.
fn behind_overlay(file: &OwnedFd, deadline: Deadline) -> Below {
    let parts = mount_of(file).filter(|mount| mount.kind == "overlay").and_then(|overlay| {
        let path = path_of(file)?;
        Some((inside(&overlay, &path)?, path, overlay, file.try_clone().ok()?))
    });
    let Some((relative, path, overlay, file)) = parts else { return Below::Nothing };
    // Opening a file may wait for a daemon, too.
    let found = in_time(deadline, move || {
        let directories = directories(&overlay.options);
        let places = directories.iter().filter_map(|given| overlay.directory_below(given));
        let is_it = |found: &OwnedFd| have_same_bytes(&file, found);
        places.into_iter().find_map(|directory| opened_if(&directory.join(&relative), is_it).ok()?)
    });
    match found {
        Some(Some(below)) => Below::File(below),
        Some(None) => Below::Nothing,
        None => Below::Hidden(silent(&path, None)),
    }
}

/// The path below the root of the file system of what is at `path` in `mount`.
fn inside(mount: &MountInfo, path: &Path) -> Option<PathBuf> {
    let below = path.strip_prefix(&mount.mount_point).ok()?;
    let root = mount.root.strip_prefix("/").ok()?;
    // Joining nothing would add a slash.
    Some(if below.as_os_str().is_empty() { root.to_owned() } else { root.join(below) })
}

/// The directories of an overlay, the upper one first, each as it may have been meant: overlays have escapes of their own.
fn directories(options: &str) -> Vec<PathBuf> {
    let values = |name: &'static str| {
        options
            .split(',')
            .filter_map(move |option| option.strip_prefix(name))
            .map(|value| mount_table::unescape(value.as_bytes()))
    };
    let lower = values("lowerdir=").chain(values("lowerdir+=")).flat_map(|list| split_at_colons(&list));
    let given = values("upperdir=").chain(lower).filter(|path| !path.is_empty());
    let meanings = given.flat_map(|path| {
        let meant = without_escapes(&path);
        let other = (meant != path).then_some(meant);
        [Some(path), other].into_iter().flatten()
    });
    meanings.map(|path| PathBuf::from(OsString::from_vec(path))).collect()
}

/// A backslash protects a colon.
fn split_at_colons(list: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut protected = false;
    for &byte in list {
        match (byte, parts.last_mut()) {
            (b':', _) if !protected => parts.push(Vec::new()),
            (byte, Some(last)) => last.push(byte),
            (_, None) => {}
        }
        protected = byte == b'\\' && !protected;
    }
    parts
}

fn without_escapes(path: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => rest.next().copied().unwrap_or(b'\\'),
            byte => byte,
        });
    }
    bytes
}

/// Whether a file of an overlay, which may have another inode number, is stored in the other one, which has its name in one of the directories.
fn have_same_bytes(of_overlay: &OwnedFd, stored: &OwnedFd) -> bool {
    /// Other times than that of birth differ when another process writes in between.
    const TRIES: usize = 5;
    const EMPTY: &CStr = c"";
    let look = |file: &OwnedFd| {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        rustix::fs::statx(file.as_fd(), EMPTY, AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, wanted).ok()
    };
    let birth = |stat: &Statx| {
        let has_one = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        has_one.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
    };
    let others = |stat: &Statx| {
        let times = [stat.stx_mtime, stat.stx_ctime].map(|time| (time.tv_sec, time.tv_nsec));
        (stat.stx_size, stat.stx_mode, times)
    };
    (0..TRIES).any(|_| match (look(of_overlay), look(stored)) {
        (Some(one), Some(other)) => match (birth(&one), birth(&other)) {
            (Some(one), Some(other)) => one == other,
            _ => others(&one) == others(&other),
        },
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_table::DeviceNumber;

    /// What a daemon says is parsed, whatever bytes are in the path; anything else says nothing.
    #[test]
    fn what_a_daemon_says() {
        let told = Told::parse(b"2049 17 /my disks/a \xff.img").unwrap();
        assert_eq!(told.identity, (2049, 17));
        assert_eq!(told.path, Some(PathBuf::from(OsStr::from_bytes(b"/my disks/a \xff.img"))));
        assert_eq!(Told::parse(b"2049 17").map(|told| (told.identity, told.path)), Some(((2049, 17), None)));
        for nonsense in [&b""[..], b"1", b"a 17 /d", b"1  /d", b"-1 2 /d"] {
            assert!(Told::parse(nonsense).is_none());
        }
    }

    /// The directories of overlays as the kernel lists them, with commas, blanks, backslashes and colons in names.
    #[test]
    fn directories_of_overlays() {
        let paths = |options| directories(options).into_iter().map(|path| path.into_os_string().into_string().unwrap());
        let found = |options| paths(options).collect::<Vec<_>>();
        assert_eq!(found("rw,lowerdir=/l1:/l2,upperdir=/u,workdir=/w"), ["/u", "/l1", "/l2"]);
        assert_eq!(found("ro,lowerdir=/l1::/data"), ["/l1", "/data"]);
        assert_eq!(found(r"rw,lowerdir+=/l\0541,lowerdir+=/l 2,upperdir=/u\040v"), ["/u v", "/l,1", "/l 2"]);
        assert_eq!(found(r"rw,lowerdir=/a\134:b:/c,upperdir=/u"), ["/u", r"/a\:b", "/a:b", "/c"]);
        assert_eq!(found("rw,relatime"), [""; 0]);
        let overlay = |root: &str, place: &str| MountInfo {
            id: 1,
            number: DeviceNumber { major: 0, minor: 1 },
            root: root.into(),
            mount_point: place.into(),
            kind: "overlay".into(),
            options: String::new(),
        };
        let at = |root, place, path| inside(&overlay(root, place), Path::new(path));
        assert_eq!(at("/", "/m", "/m/a/b"), Some("a/b".into()));
        assert_eq!(at("/a", "/m", "/m/b"), Some("a/b".into()));
        assert_eq!(at("/a/b", "/m/f", "/m/f").map(PathBuf::into_os_string), Some("a/b".into()));
        assert_eq!(at("/", "/m", "/n/b"), None);
    }
}
