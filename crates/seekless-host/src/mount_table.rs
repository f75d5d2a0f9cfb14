//! The kernel's mount table, `/proc/*/mountinfo` of proc_pid_mountinfo(5): what is mounted where, and for whom.
//!
//! Reading it touches no mounted file system, so a dead mount or a hanging daemon does not block it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

/// Name by which `mount` shows our mounts: `fuse.seekless`, `fuseblk.seekless`.
pub(crate) const SUBTYPE: &str = "seekless";

/// Major and minor number of a mounted file system.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// Identifies a mount until the next boot, wherever it is moved; the numbers in the table are given again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UniqueId(pub(crate) u64);

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountInfo {
    /// Of the mount, as `statx` has it.
    pub(crate) id: u64,
    pub(crate) number: DeviceNumber,
    /// The mounted directory of the file system: `/`, or for a bind mount one below it.
    pub(crate) root: PathBuf,
    pub(crate) mount_point: PathBuf,
    /// For example `fuse.seekless`.
    pub(crate) kind: String,
    /// As mount(8) lists them: those of the mount and those of the file system. Of `ro` and `rw`, the last one holds.
    pub(crate) options: String,
}

impl MountInfo {
    /// Served by a daemon of this program.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind.split_once('.').is_some_and(|(kind, subtype)| kind.starts_with("fuse") && subtype == SUBTYPE)
    }

    /// Whether `file` was opened through this mount. Its daemon is not asked, and no attribute: those of another user's mount are
    /// denied to root as well, where `allow_other` is missing.
    ///
    /// # Errors
    /// Those of the file system, such as of a mount whose daemon has died.
    pub(crate) fn holds(&self, file: &OwnedFd) -> Result<bool, Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(file, c"", flags, StatxFlags::empty())?;
        let number = DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
        // Before Linux 5.8, the number of the file system has to do.
        let has_id = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
        Ok(number == self.number && (!has_id || stat.stx_mnt_id == self.id))
    }

    /// Its identifier, if it is the topmost mount at its place. Its daemon is not asked.
    pub(crate) fn unique_id(&self) -> Option<UniqueId> {
        unique_id(self.number, &self.mount_point)
    }

    /// The value of an option that is a path, as it was given.
    pub(crate) fn option(&self, name: &str) -> Option<PathBuf> {
        let value = self.options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='))?;
        Some(PathBuf::from(OsStr::from_bytes(&unescape(value.as_bytes()))))
    }

    /// A directory that an option names, if it is there. Where it is relative, as overlays have them, the table does not say to what: it is
    /// looked for here and beside the mount.
    pub(crate) fn directory_below(&self, given: &Path) -> Option<PathBuf> {
        let beside = self.mount_point.parent().unwrap_or(Path::new("/")).join(given);
        [given.to_owned(), beside].iter().find_map(|path| fs::canonicalize(path).ok().filter(|path| path.is_dir()))
    }
}

/// The identifier of the topmost mount at `path`, if its file system has this `number`. `None` before Linux 6.8. The mount is not asked.
pub(crate) fn unique_id(number: DeviceNumber, path: &Path) -> Option<UniqueId> {
    /// `STATX_MNT_ID_UNIQUE`.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, path, flags, UNIQUE).ok()?;
    let found = DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
    let has_it = StatxFlags::from_bits_retain(stat.stx_mask).contains(UNIQUE);
    (found == number && has_it).then_some(UniqueId(stat.stx_mnt_id))
}

/// The table of this process; empty where there is no `/proc`.
pub(crate) fn read() -> Vec<MountInfo> {
    try_read().unwrap_or_default()
}

/// The table of this process.
///
/// # Errors
/// Where there is no `/proc`, or no further file can be opened.
pub(crate) fn try_read() -> io::Result<Vec<MountInfo>> {
    fs::read("/proc/self/mountinfo").map(|table| parse(&table))
}

/// The topmost mount on `path`, which is absolute and without links.
pub(crate) fn find(path: &Path) -> Option<MountInfo> {
    topmost(read(), path)
}

/// The topmost mount on `path`, which is absolute and without links, in a table.
pub(crate) fn topmost(table: Vec<MountInfo>, path: &Path) -> Option<MountInfo> {
    table.into_iter().rfind(|info| info.mount_point == path)
}

/// A process with one of our mounts in another mount namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) pid: u32,
    /// Its name.
    pub(crate) command: String,
    /// Where it is mounted there.
    pub(crate) mount_point: PathBuf,
}

/// A process in another mount namespace with the `wanted` mount in its table. Of several, the one with the smallest number.
pub(crate) fn find_elsewhere(wanted: impl Fn(&MountInfo) -> bool) -> Option<Elsewhere> {
    let numbers = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let numbers: BTreeSet<u32> = numbers.collect();
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen: BTreeSet<PathBuf> = namespace("self").into_iter().collect();
    numbers.into_iter().find_map(|pid| {
        // The table may be readable even if the namespace is not.
        if namespace(&pid.to_string()).is_some_and(|namespace| !seen.insert(namespace)) {
            return None;
        }
        let table = fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
        let found = parse(&table).into_iter().find(&wanted)?;
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
        Some(Elsewhere { pid, command, mount_point: found.mount_point })
    })
}

fn parse(table: &[u8]) -> Vec<MountInfo> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<MountInfo> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let number = std::str::from_utf8(words.nth(1)?).ok()?;
    let (major, minor) = number.split_once(':')?;
    let path = |word: &[u8]| PathBuf::from(OsStr::from_bytes(&unescape(word)));
    let root = path(words.next()?);
    let mount_point = path(words.next()?);
    let of_mount = words.next()?;
    // Optional fields end with a dash.
    words.find(|word| word == b"-")?;
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    let of_file_system = words.nth(1).unwrap_or_default();
    let mut options = String::from_utf8_lossy(&[of_mount, b",", of_file_system].concat()).into_owned();
    // A bind mount may be read-only although its file system is not.
    if [of_mount, of_file_system].iter().any(|half| half.split(|&byte| byte == b',').any(|word| word == b"ro")) {
        options.push_str(",ro");
    }
    Some(MountInfo {
        id,
        number: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        root,
        mount_point,
        kind,
        options,
    })
}

/// Undoes the kernel's `\ooo` for blanks and the like.
pub(crate) fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', more @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = more;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of the mount table are parsed, with blanks in paths and optional fields.
    #[test]
    fn lines_parse() {
        let line = br"59 25 0:50 /a /mnt/my\040disk rw,nosuid shared:31 master:2 - fuse.seekless a.img rw,user_id=0";
        let info = parse_line(line).unwrap();
        assert_eq!((info.id, info.number), (59, DeviceNumber { major: 0, minor: 50 }));
        assert_eq!((&*info.root, &*info.mount_point), (Path::new("/a"), Path::new("/mnt/my disk")));
        assert!(info.is_ours());
        assert_eq!(info.options, "rw,nosuid,rw,user_id=0");
        // Read-only is what one half or the other says.
        for (of_mount, of_file_system) in [("ro,relatime", "rw,user_id=0"), ("rw,relatime", "ro,user_id=0")] {
            let line = format!("59 25 0:50 / /mnt {of_mount} - fuse.seekless a.img {of_file_system}");
            let options = parse_line(line.as_bytes()).unwrap().options;
            let last = options.split(',').rfind(|word| ["ro", "rw"].contains(word));
            assert_eq!(last, Some("ro"), "{options}");
        }
        let overlay = br"44 27 0:39 / /ov rw - overlay o rw,lowerdir=/l,upperdir=/a\054b\040c,workdir=/w";
        let overlay = parse_line(overlay).unwrap();
        assert_eq!(overlay.option("upperdir"), Some("/a,b c".into()));
        assert_eq!((overlay.option("upper"), overlay.option("uuid")), (None, None));
        assert_eq!(parse_line(b"59 25 0:50 / /mnt"), None);
        assert_eq!(parse_line(b""), None);
    }

    /// The table of this process is read, and nothing in it is taken for one of our mounts elsewhere.
    #[test]
    fn the_own_table_is_read() {
        let table = read();
        assert!(table.iter().any(|info| info.mount_point == Path::new("/")));
        let open = |path| OwnedFd::from(fs::File::open(path).unwrap());
        let holders = |file| {
            table.iter().filter(|info| info.holds(file) == Ok(true)).map(|info| &*info.mount_point).collect::<Vec<_>>()
        };
        assert_eq!(holders(&open("/proc")), [Path::new("/proc")]);
        assert_eq!(find_elsewhere(|info| info.kind == "no such kind"), None);
    }
}
