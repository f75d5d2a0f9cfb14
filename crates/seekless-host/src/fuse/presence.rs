//! Which process serves which mount, without asking the mount: its daemon may be stopped, or may be ending.
//!
//! A daemon holds a socket whose name in the abstract name space says both; `/proc/net/unix` lists such names. Any process
//! can take one, so that they serve to explain and to wait, and never to say that something is durable.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::names::{daemon_identity, start_time, state};
use crate::mount_mark::MountMark;
use crate::mount_table::{self, MountInfo, UniqueId};

const PREFIX: &str = "seekless mount ";

/// This process serves a mount, for as long as this lives.
#[derive(Debug)]
pub struct Presence {
    _socket: OwnedFd,
}

impl Presence {
    /// `None` where that cannot be said; others then know less.
    pub(super) fn of(mark: MountMark, mount: Option<UniqueId>) -> Option<Presence> {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).ok()?;
        let mount = mount.map(|UniqueId(id)| format!(" {id}")).unwrap_or_default();
        let name = format!("{PREFIX}{mark} {}{mount}", daemon_identity());
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
        Some(Presence { _socket: socket })
    }
}

/// What a daemon that still runs has said.
struct Said {
    mark: MountMark,
    pid: u32,
    started: u64,
    /// Of its mount. Missing from earlier versions of the program, and where the kernel has none.
    mount: Option<UniqueId>,
}

fn all() -> Vec<Said> {
    let table = std::fs::read("/proc/net/unix").unwrap_or_default();
    let said = String::from_utf8_lossy(&table).lines().filter_map(parse).collect::<Vec<Said>>();
    said.into_iter().filter(|said| start_time(said.pid) == Some(said.started)).collect()
}

/// `...: ... @seekless mount MARK PID START [ID]`
fn parse(line: &str) -> Option<Said> {
    let (_, name) = line.split_once(" @")?;
    let mut words = name.strip_prefix(PREFIX)?.split(' ');
    let mark = words.next()?.parse().ok()?;
    let mut number = || words.next()?.trim_end_matches('@').parse().ok();
    let (pid, started): (u64, u64) = (number()?, number()?);
    Some(Said { mark, pid: u32::try_from(pid).ok()?, started, mount: number().map(UniqueId) })
}

/// The process that serves `mount`, if that is known: the youngest, as one that is ending may have had the same number.
pub(super) fn server_of(mount: &MountInfo) -> Option<u32> {
    let serving = serving();
    let named = serving.iter().filter(|said| said.mark.is(mount)).max_by_key(|said| said.started);
    named.or_else(|| serving.iter().find(|said| said.is_moved_to(mount))).map(|said| said.pid)
}

/// What those have said that can serve: a process that has ended and was not waited for serves nothing.
fn serving() -> Vec<Said> {
    all().into_iter().filter(|said| !matches!(state(said.pid), None | Some('Z'))).collect()
}

impl Said {
    /// Whether `mount` is the one that this process has made, at another place by now: a move keeps its identifier.
    fn is_moved_to(&self, mount: &MountInfo) -> bool {
        mount.is_ours()
            && mount.number == self.mark.number
            && !self.mark.is(mount)
            && self.mount.is_some_and(|id| mount.unique_id() == Some(id))
    }
}

/// Where the mount is now that a daemon names `mark`, if it was moved.
pub(crate) fn is_moved(mark: MountMark, table: &[MountInfo]) -> Option<&MountInfo> {
    let serving: Vec<Said> = serving().into_iter().filter(|said| said.mark == mark).collect();
    table.iter().find(|mount| serving.iter().any(|said| said.is_moved_to(mount)))
}

/// Where the mount is now that was made at `path` and was moved.
pub(crate) fn moved_from(path: &Path) -> Option<PathBuf> {
    let path = without_asking_the_mount(path).ok()?;
    let (serving, table) = (serving(), mount_table::read());
    let was_here = |said: &&Said| said.mark == MountMark::new(said.mark.number, &path);
    let moved = serving.iter().filter(was_here).find_map(|said| table.iter().find(|mount| said.is_moved_to(mount)));
    moved.map(|mount| mount.mount_point.clone())
}

/// True when a mount of this program is at `path` that a process serves, which may be stopped: it is not asked.
pub(super) fn is_served(path: &Path) -> bool {
    holder_of(path).is_some_and(|(holder, is_root)| is_root && server_of(&holder).is_some())
}

/// The path as the mount table has it. Only the directory above is accessed: a dead mount gives only errors, and one
/// whose daemon hangs never answers.
pub(super) fn without_asking_the_mount(path: &Path) -> std::io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(std::fs::canonicalize(parent)?.join(name)),
        _ => std::fs::canonicalize(path),
    }
}

/// The mount of ours that holds `path`, and whether `path` is its root, found without asking it.
pub(super) fn holder_of(path: &Path) -> Option<(MountInfo, bool)> {
    let table = mount_table::read();
    let absolute = std::path::absolute(path).ok()?;
    let mut rest: Vec<OsString> = absolute.iter().rev().filter(|part| *part != "/").map(OsStr::to_owned).collect();
    let (mut at, mut links) = (PathBuf::from("/"), 0);
    while let Some(part) = rest.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        let next = at.join(part);
        if let Some(outer) = table.iter().rposition(|info| info.mount_point == next && info.is_ours()) {
            // Links in it cannot be followed without asking it, but a mount on one of its directories is in the table.
            let mut inside = next.clone();
            inside.extend(rest.iter().rev().take_while(|part| *part != ".."));
            let is_all = !rest.iter().any(|part| part == "..");
            return innermost(&table[outer..], &inside)
                .map(|found| (found.clone(), is_all && found.mount_point == inside));
        }
        // The kernel follows as many.
        match std::fs::read_link(&next) {
            Ok(target) if links < 40 => {
                links += 1;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                rest.extend(target.iter().rev().filter(|part| *part != "/" && *part != ".").map(OsStr::to_owned));
            }
            _ => at = next,
        }
    }
    None
}

/// The mount that holds `path`, if it is ours, of those that the `table` lists from one of ours on. Earlier ones are hidden by that.
fn innermost<'a>(table: &'a [MountInfo], path: &Path) -> Option<&'a MountInfo> {
    let holders = table.iter().filter(|info| path.starts_with(&info.mount_point));
    // Of several on one directory, the last.
    holders.max_by_key(|info| info.mount_point.iter().count()).filter(|info| info.is_ours())
}

/// Where the mount of ours that holds `path` is.
pub(crate) fn mount_point_of(path: &Path) -> Option<PathBuf> {
    holder_of(path).map(|(holder, _)| holder.mount_point)
}

/// What to name in a hint to unmount the mount of ours that holds `path`: its mount point, or `path` as it was given where it is that.
pub(crate) fn to_unmount(path: &Path) -> PathBuf {
    match holder_of(path) {
        Some((holder, false)) => holder.mount_point,
        _ => path.to_owned(),
    }
}

/// What a process does for mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DaemonState {
    /// It serves a mount that is in the table of this process.
    Serving,
    /// Its mount is gone: it writes what it holds, and then ends.
    Ending,
    /// None is known, or only in another mount namespace. This may be so for a moment only: the kernel lists sockets in pieces,
    /// and a new namespace begins with all mounts.
    Unknown,
}

impl DaemonState {
    pub(crate) fn of(pid: u32) -> DaemonState {
        let marks: Vec<MountMark> = all().into_iter().filter(|said| said.pid == pid).map(|said| said.mark).collect();
        let is_one = |mount: &MountInfo| marks.iter().any(|mark| mark.is(mount));
        let table = mount_table::read();
        if table.iter().any(is_one) || marks.iter().any(|&mark| is_moved(mark, &table).is_some()) {
            return DaemonState::Serving;
        }
        match marks.is_empty() || mount_table::find_elsewhere(is_one).is_some() {
            true => DaemonState::Unknown,
            false => DaemonState::Ending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mount_table::DeviceNumber;

    /// A daemon is known for as long as it lives; as its mount is in no table, it is ending.
    #[test]
    fn a_daemon_is_known_without_its_mount() {
        let number = DeviceNumber { major: 0xfff, minor: 0xf_ffff };
        let mark = MountMark::new(number, Path::new("/nowhere"));
        let me = std::process::id();
        let is_known =
            || all().iter().any(|said| said.mark == mark && said.pid == me && said.mount == Some(UniqueId(7)));
        assert!(!is_known() && DaemonState::of(1) == DaemonState::Unknown);
        let presence = Presence::of(mark, Some(UniqueId(7)));
        assert!(presence.is_some() && is_known() && DaemonState::of(me) == DaemonState::Ending);
        drop(presence);
        assert!(!is_known());
    }

    /// The mount that holds a path is the innermost, and those that another one hides hold nothing.
    #[test]
    fn mounts_in_mounts_hold_what_is_in_them() {
        let mount = |id: u64, place: &str, kind: &str| MountInfo {
            id,
            number: DeviceNumber { major: 0, minor: 1 },
            root: "/".into(),
            mount_point: place.into(),
            kind: kind.into(),
            options: String::new(),
        };
        const OURS: &str = "fuse.seekless";
        let table = [
            mount(1, "/m", OURS),
            mount(2, "/m/in", OURS),
            mount(3, "/m/tmp", "tmpfs"),
            mount(4, "/m/tmp/in", OURS),
            mount(5, "/m/in", OURS),
        ];
        let holder = |path: &str| innermost(&table, Path::new(path)).map(|found| found.id);
        let all = ["/m", "/m/other/in", "/m/in", "/m/in/d/e", "/m/tmp/d", "/m/tmp/in/d"].map(holder);
        assert_eq!(all, [Some(1), Some(1), Some(5), Some(5), None, Some(4)]);
    }

    /// Names of other sockets are none of ours.
    #[test]
    fn other_names_are_skipped() {
        let line = "0000000000000000: 00000002 00000000 00000000 0001 01 15133 @seekless mount 0:57:00abcd 12 3456";
        let said = parse(line).unwrap();
        assert_eq!((said.mark.to_string().as_str(), said.pid, said.started), ("0:57:00abcd", 12, 3456));
        assert_eq!(said.mount, None);
        assert_eq!(parse(&format!("{line} 2147483999")).unwrap().mount, Some(UniqueId(2_147_483_999)));
        for other in [
            "",
            "x: 1 /run/x",
            "x: 1 @seekless 12 3456",
            "x: 1 @seekless mount 0:57:00abcd 12",
            "x: 1 @seekless mount a b c",
        ] {
            assert!(parse(other).is_none(), "{other}");
        }
    }
}
