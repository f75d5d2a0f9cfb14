//! For other processes: unmounting and syncing from outside, so that the caller knows when everything is durable.
//!
//! `umount` of a plain FUSE mount returns before the daemon has written its data. So the daemon publishes its identity
//! in an extended attribute, and the unmounting process waits until that process has ended.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use seekless::stack::quoted_path;

use super::apart::Apart;
use super::detach::{Turn, control_directory, detach, unmount};
use super::farewell::Waiting;
use super::names::{
    DAEMON_ATTRIBUTE, DONE, DROP_CACHES_ATTRIBUTE, OUTCOME_BYTES_MAX, STATISTICS_ATTRIBUTE, STATISTICS_BYTES_MAX,
    SYNC_ATTRIBUTE, start_time, state,
};
use super::presence::{holder_of, moved_from, server_of, to_unmount, without_asking_the_mount};
use super::write_back::{PATIENCE, WriteBackError, write_back};
use crate::mount_table::{self, DeviceNumber, Elsewhere, MountInfo};

/// Why unmounting failed, or may have lost data.
#[derive(Debug, thiserror::Error)]
pub enum UmountError {
    #[error("{}: {cause}", path.display())]
    Path { path: PathBuf, cause: io::Error },
    #[error("{} is not a mount point{}", path.display(), moved_text(path, "umount"))]
    NotAMountPoint { path: PathBuf },
    #[error("{} is a mount of kind {kind}, not of Seekless; use umount(8)", path.display())]
    NotOurs { path: PathBuf, kind: String },
    #[error("{} is in use; find the users with: fuser -vm {}", path.display(), quoted_path(path))]
    Busy { path: PathBuf },
    #[error("cannot unmount {}: {cause}", path.display())]
    Refused { path: PathBuf, cause: Errno },
    #[error("not unmounted: {0}\nto detach it without waiting: seekless umount --lazy {path}", path = quoted_path(&.0.path))]
    NoAnswer(NoAnswer),
    #[error("unmounted, but the daemon (process {pid}) was still working after {} s{}", waited.as_secs(), held_text(held_by))]
    StillWriting { pid: u32, waited: Duration, held_by: Option<String> },
    #[error("unmounted, but not everything is durable: {problem}")]
    NotDurable { problem: String },
    #[error(
        "unmounted, but the daemon (process {pid}) ended with status {status} before everything was durable; see what it \
             logged"
    )]
    DaemonFailed { pid: u32, status: i32 },
    #[error("unmounted, but its daemon had died before: data not synced by then is lost; the next mount has the rest")]
    DaemonDead,
    #[error("unmounted, but whether everything is durable is not known: {why}")]
    Unknown { why: String },
}

/// Where to find the mount that was made at `path` and was moved, with the command to use there.
pub(crate) fn moved_text(path: &Path, command: &str) -> String {
    let hint = |place: PathBuf| {
        format!("; what was mounted there is now on {}: seekless {command} {}", place.display(), quoted_path(&place))
    };
    moved_from(path).map(hint).unwrap_or_default()
}

fn held_text(held_by: &Option<String>) -> String {
    held_by.as_ref().map(|held_by| format!(": {held_by}")).unwrap_or_default()
}

/// The daemon of the mount at `path` has not answered.
#[derive(Debug, thiserror::Error)]
#[error("{} of {} has not answered within {} s{}", self.daemon(), path.display(), waited.as_secs(), self.hint())]
pub struct NoAnswer {
    path: PathBuf,
    waited: Duration,
    /// If it is known.
    pid: Option<u32>,
}

impl NoAnswer {
    fn daemon(&self) -> String {
        self.pid.map_or_else(|| "the daemon".to_owned(), |pid| format!("the daemon (process {pid})"))
    }

    fn hint(&self) -> String {
        self.pid.and_then(stopped).map(|stopped| format!("; {stopped}")).unwrap_or_default()
    }
}

/// What to do about process `pid`, if it is stopped.
fn stopped(pid: u32) -> Option<String> {
    match state(pid)? {
        'T' => Some(format!("it is stopped; resume it with: kill -CONT {pid}")),
        't' => Some("it is stopped by a debugger".to_owned()),
        _ => None,
    }
}

/// The result of `work`, which asks the mount that holds `path`, in a process of its own: the daemon may never answer. `work`
/// must take no lock that another thread may hold. `tell` is called with what it waits for, once that takes longer than a
/// moment.
///
/// # Errors
/// When there is no result after `patience`.
pub fn asked(
    path: &Path,
    patience: Duration,
    tell: impl Fn(&str),
    work: impl FnOnce() -> Vec<u8>,
) -> Result<Vec<u8>, NoAnswer> {
    let mut apart = Apart::begin(work);
    if let Some(result) = apart.result(patience.min(TELL_AFTER)) {
        return Ok(result);
    }
    let pid = holder_of(path).and_then(|(holder, _)| server_of(&holder));
    let no_answer = NoAnswer { path: path.to_owned(), waited: patience, pid };
    let left = patience.saturating_sub(TELL_AFTER);
    if !left.is_zero() {
        let (daemon, hint, seconds) = (no_answer.daemon(), no_answer.hint(), left.as_millis().div_ceil(1000));
        tell(&format!(
            "{daemon} of {} has not answered yet{hint}. Waiting for it, {seconds} s at most",
            path.display()
        ));
    }
    apart.result(left).ok_or(no_answer)
}

/// Unmounts what is mounted at `path` and returns when its daemon has ended, that is, when everything is
/// durable.
///
/// With `lazy` a mount in use is detached, and its daemon continues until the last user has gone; this then returns at
/// once.
///
/// `tell` is called with what it waits for, once that takes longer than a moment.
///
/// # Errors
/// `NoAnswer` when the daemon has not said within `patience` who it is; it is then still mounted. `StillWriting` when the daemon
/// has not ended by then; `NotDurable`, `DaemonFailed`, `DaemonDead` and `Unknown` when it has ended without reporting success.
/// The mount is then gone all the same.
pub fn umount(path: &Path, lazy: bool, patience: Duration, tell: impl Fn(&str)) -> Result<(), UmountError> {
    let deadline = Instant::now() + patience;
    let left = || deadline.saturating_duration_since(Instant::now());
    let error = |cause| UmountError::Path { path: path.to_owned(), cause };
    let ask = |work: &dyn Fn() -> Vec<u8>| {
        let said = asked(path, left(), &tell, work);
        said.map_err(|no_answer| UmountError::NoAnswer(NoAnswer { waited: patience, ..no_answer }))
    };
    let as_given = std::path::absolute(path).map_err(error)?;
    let absolute = match mount_table::find(&as_given) {
        Some(_) => as_given,
        // There is a link in it, or nothing is mounted here. What is above may be a mount, too.
        None => {
            let found = ask(&|| match in_the_mount_table(path) {
                Ok(found) => found.as_os_str().as_bytes().to_vec(),
                Err(error) => failed(error.raw_os_error().unwrap_or(libc::EIO)),
            })?;
            match code_in(&found) {
                Some(code) => return Err(error(io::Error::from_raw_os_error(code))),
                None => PathBuf::from(OsStr::from_bytes(&found)),
            }
        }
    };
    let Some(found) = mount_table::find(&absolute) else {
        return Err(UmountError::NotAMountPoint { path: path.to_owned() });
    };
    if !found.is_ours() {
        return Err(UmountError::NotOurs { path: path.to_owned(), kind: found.kind });
    }
    let server = match lazy {
        true => None,
        false => Some(Server::named(&ask(&|| identity(&absolute))?)),
    };
    let is_gone = || mount_table::find(&absolute).is_none_or(|now| now.id != found.id);
    if matches!(server, Some(Server::Dead | Server::Unseen(_))) && is_gone() {
        // Another process has unmounted it in this moment, and what is below has answered.
        return Err(UmountError::NotAMountPoint { path: path.to_owned() });
    }
    // With a block device, or pages that the kernel still holds, it waits for the daemon.
    let mut unmounting = Apart::begin(|| match unmount_in_a_moment(&found, lazy, is_gone) {
        Ok(()) => Vec::new(),
        Err(cause) => failed(cause.raw_os_error()),
    });
    let refused = loop {
        if let Some(result) = unmounting.result(left().min(PAUSE)) {
            break code_in(&result).map(Errno::from_raw_os_error);
        }
        match is_gone() {
            true if lazy || left().is_zero() => break None,
            false if left().is_zero() => {
                let no_answer = NoAnswer { path: path.to_owned(), waited: patience, pid: server_of(&found) };
                return Err(UmountError::NoAnswer(no_answer));
            }
            _ => {}
        }
    };
    match refused {
        None => {}
        // Another process has unmounted it in this moment. Its daemon is waited for all the same.
        Some(_) if is_gone() => {}
        Some(Errno::BUSY) => return Err(UmountError::Busy { path: path.to_owned() }),
        Some(cause) => return Err(UmountError::Refused { path: path.to_owned(), cause }),
    }
    match server {
        None => Ok(()),
        Some(Server::Dead) => Err(UmountError::DaemonDead),
        Some(Server::Unseen(why)) => Err(UmountError::Unknown { why }),
        Some(Server::Daemon(daemon)) => match sync_through_another_place(found.number, &daemon, left(), &tell) {
            Some(synced) => synced,
            None => daemon.wait(found.number, left(), patience, tell),
        },
    }
}

/// Makes everything durable where the mount has another place in this namespace, as a bind mount has: the daemon goes on then. `None`
/// where there is none.
fn sync_through_another_place(
    number: DeviceNumber,
    daemon: &Daemon,
    patience: Duration,
    tell: impl Fn(&str),
) -> Option<Result<(), UmountError>> {
    let deadline = Instant::now() + patience;
    let mut last = None;
    for other in mount_table::read().into_iter().filter(|info| info.number == number && info.is_ours()) {
        let place = &other.mount_point;
        let problem = if mount_table::find(place).is_some_and(|topmost| topmost.id != other.id) {
            "another mount covers it".to_owned()
        } else {
            let left = deadline.saturating_duration_since(Instant::now());
            let asked = asked(place, left, &tell, || match identity(place) {
                named if named != daemon.identity.as_bytes() => Vec::new(),
                _ => sync(place).map_or_else(|error| error.to_string().into_bytes(), |()| DONE.to_vec()),
            });
            match asked {
                Ok(said) if said == DONE => {
                    tell(&format!("unmounted here; it is also on {}, so its daemon continues", place.display()));
                    return Some(Ok(()));
                }
                // The number belongs to another mount already.
                Ok(said) if said.is_empty() => continue,
                Ok(said) => String::from_utf8_lossy(&said).into_owned(),
                Err(no_answer) => no_answer.to_string(),
            }
        };
        last = Some((other.id, format!("it is also on {}, so its daemon continues, but: {problem}", place.display())));
    }
    // Another process may have unmounted it there in this moment.
    let (_, why) = last.filter(|(id, _)| mount_table::read().iter().any(|info| info.id == *id))?;
    Some(Err(UmountError::Unknown { why }))
}

/// Another process that asks the mount who serves it, as a second `umount` does, uses it for a moment. In that moment it can also be
/// unmounted by the other: then what was below is there.
fn unmount_in_a_moment(mount: &MountInfo, lazy: bool, is_gone: impl Fn() -> bool) -> Result<(), Errno> {
    const MOMENT: Duration = Duration::from_millis(200);
    let begun = Instant::now();
    let mut turn = Turn::take(mount);
    loop {
        if is_gone() {
            return Err(Errno::INVAL);
        }
        // Any process could take the turn and keep it: so it is waited for only as long as an unmount takes.
        if turn.is_none() && begun.elapsed() < MOMENT {
            std::thread::sleep(PAUSE);
            turn = Turn::take(mount);
            continue;
        }
        let unmounted = if lazy { detach(mount) } else { unmount(&mount.mount_point, false, false) };
        match unmounted {
            Err(Errno::BUSY) if begun.elapsed() < MOMENT => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}

/// `path` as the mount table has it, if it is there.
fn in_the_mount_table(path: &Path) -> io::Result<PathBuf> {
    match without_asking_the_mount(path)? {
        absolute if mount_table::find(&absolute).is_some() => Ok(absolute),
        _ => std::fs::canonicalize(path),
    }
}

/// How often a lazy unmount looks whether the mount is gone.
const PAUSE: Duration = Duration::from_millis(50);

/// A number of errno(3) as the result of work apart, where other results begin otherwise.
fn failed(code: i32) -> Vec<u8> {
    format!("!{code}").into_bytes()
}

fn code_in(result: &[u8]) -> Option<i32> {
    let code = result.strip_prefix(b"!")?;
    Some(std::str::from_utf8(code).ok().and_then(|text| text.parse().ok()).unwrap_or(libc::EIO))
}

/// True when a mount of this program is at `path` whose daemon is gone. The kernel may still answer for it from its caches,
/// so this asks for something that it does not cache.
pub fn is_dead(path: &Path) -> bool {
    let Ok(absolute) = without_asking_the_mount(path) else { return false };
    mount_table::find(&absolute).is_some_and(|found| found.is_ours()) && matches!(Server::of(&absolute), Server::Dead)
}

/// Why a mount could not be synced.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("{}: {cause}", path.display())]
    Path { path: PathBuf, cause: io::Error },
    #[error("{} is not inside a Seekless mount; {hint}", path.display())]
    NotOurs { path: PathBuf, hint: String },
    #[error("{} belongs to a mount whose daemon is gone; unmount it first: seekless umount --lazy {}",
        path.display(), quoted_path(&to_unmount(path)))]
    Dead { path: PathBuf },
    #[error("data written to {} may not be durable: {cause}", path.display())]
    Failed { path: PathBuf, cause: String },
    #[error("{}: only root and the user of its daemon can empty the caches of a mount", path.display())]
    NotPermitted { path: PathBuf },
    #[error("the daemon of {} does not report its counters: {cause}; an earlier version of the program cannot",
        path.display())]
    Statistics { path: PathBuf, cause: Errno },
}

/// Makes everything durable in the mount that holds `path`. `sync(1)` and `syncfs(2)` do not reach a file system that
/// is mounted as plain `fuse`.
///
/// # Errors
/// `NotOurs` on other file systems, `Failed` with the daemon's answer.
pub fn sync(path: &Path) -> Result<(), SyncError> {
    tell(path, SYNC_ATTRIBUTE)
}

/// Drops the file system's own caches for the mount that holds `path`. The kernel's caches are not affected.
///
/// # Errors
/// As [`sync`]; `NotPermitted` for users other than root and that of the daemon.
pub fn drop_caches(path: &Path) -> Result<(), SyncError> {
    tell(path, DROP_CACHES_ATTRIBUTE)
}

/// What the parts of the stack that is mounted at `path`, or above it, have counted since they were mounted, as JSON.
/// `None` when `path` is not inside a Seekless mount.
///
/// # Errors
/// `Path` when there is nothing at `path`; `Dead` when the daemon has ended; `Failed` when it cannot answer.
pub fn statistics(path: &Path) -> Result<Option<String>, SyncError> {
    let absolute = std::fs::canonicalize(path).map_err(|cause| match cause.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => SyncError::Dead { path: path.to_owned() },
        _ => SyncError::Path { path: path.to_owned(), cause },
    })?;
    let Some(MountInfo { mount_point, .. }) = mount_of(&absolute) else { return Ok(None) };
    let name = CString::new(STATISTICS_ATTRIBUTE).unwrap_or_default();
    let mut value = vec![0; STATISTICS_BYTES_MAX];
    match rustix::fs::getxattr(&mount_point, &*name, &mut value) {
        Ok(length) => Ok(Some(String::from_utf8_lossy(&value[..length]).into_owned())),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => Err(SyncError::Dead { path: path.to_owned() }),
        Err(cause) => Err(SyncError::Statistics { path: path.to_owned(), cause }),
    }
}

/// Syncs the kernel's data and reads an attribute, which makes the daemon act.
fn tell(path: &Path, attribute: &[u8]) -> Result<(), SyncError> {
    let failed = |cause: Errno| match cause {
        Errno::NOTCONN | Errno::CONNABORTED => SyncError::Dead { path: path.to_owned() },
        cause => SyncError::Failed { path: path.to_owned(), cause: cause.to_string() },
    };
    let absolute = std::fs::canonicalize(path).map_err(|cause| match cause.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => SyncError::Dead { path: path.to_owned() },
        _ => SyncError::Path { path: path.to_owned(), cause },
    })?;
    let not_ours = || {
        let moved = moved_from(&absolute).map(|place| {
            format!("what was mounted there is now on {}: seekless sync {}", place.display(), quoted_path(&place))
        });
        SyncError::NotOurs { path: path.to_owned(), hint: moved.unwrap_or_else(|| elsewhere(&absolute)) }
    };
    let mount = mount_of(&absolute).ok_or_else(not_ours)?;
    // A directory, or the file of a disk.
    let root = rustix::fs::open(&mount.mount_point, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    if mount.holds(&root) == Ok(false) {
        // Unmounted in this moment: this is what is below, which must not get our attributes.
        return Err(not_ours());
    }
    // First the kernel's data, such as pages that programs have changed through mmap.
    let written = write_back(&root, Some(&control_directory(mount.number)), PATIENCE);
    let written = written.map_err(|error| match error {
        WriteBackError::Os(cause) => failed(cause),
        cause => SyncError::Failed { path: path.to_owned(), cause: cause.to_string() },
    });
    // What has arrived is made durable all the same.
    let name = CString::new(attribute).map_err(|_| failed(Errno::INVAL))?;
    let mut outcome = [0; OUTCOME_BYTES_MAX];
    match rustix::fs::fgetxattr(&root, &*name, &mut outcome) {
        Ok(length) if outcome[..length] == *DONE => return written,
        Ok(length) => {
            let cause = String::from_utf8_lossy(&outcome[..length]).into_owned();
            return Err(SyncError::Failed { path: path.to_owned(), cause });
        }
        // A daemon of an earlier version, which reacts to setting the attribute.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
        Err(Errno::PERM) if attribute == DROP_CACHES_ATTRIBUTE => {
            return Err(SyncError::NotPermitted { path: path.to_owned() });
        }
        Err(cause) => return Err(failed(cause)),
    }
    match rustix::fs::fsetxattr(&root, &*name, b"1", XattrFlags::empty()) {
        // A mount that is read-only by request has nothing to sync, unless it shows a part of one that is not. A volume that has stopped
        // gives the same error.
        Err(Errno::ROFS) if is_read_only(&root) && mount.root == Path::new("/") => written,
        told => told.map_err(failed).and(written),
    }
}

fn is_read_only(root: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(root).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// The mount at `path`, or above it, if it is ours.
fn mount_of(path: &Path) -> Option<MountInfo> {
    path.ancestors().find_map(mount_table::find).filter(MountInfo::is_ours)
}

/// Overlays over each other.
const OVERLAYS_MAX: usize = 16;

/// The directory in a mount of ours in which the overlay that holds `path` stores, where it can be found.
pub fn stored_in(path: &Path) -> Option<PathBuf> {
    let mut at = std::fs::canonicalize(path).ok()?;
    for _ in 0..OVERLAYS_MAX {
        let overlay = at.ancestors().find_map(mount_table::find).filter(|holder| holder.kind == "overlay")?;
        at = overlay.directory_below(&overlay.option("upperdir")?)?;
        if mount_of(&at).is_some() {
            return Some(at);
        }
    }
    None
}

/// What to do for `path`, which is in no mount of ours: an overlay stores in its upper directory, which may be in one.
fn elsewhere(path: &Path) -> String {
    const IN_A_CONTAINER: &str = "use sync(1), which does not reach a mount of ours in which this overlay stores: if there is one, run \
        `seekless sync` where that is mounted, or have the program sync its files";
    let mut at = path.to_owned();
    for _ in 0..OVERLAYS_MAX {
        let holder = at.ancestors().find_map(mount_table::find);
        let Some(overlay) = holder.filter(|holder| holder.kind == "overlay") else { break };
        let Some(given) = overlay.option("upperdir") else { break };
        let Some(upper) = overlay.directory_below(&given) else {
            if overlay.mount_point == Path::new("/") {
                return IN_A_CONTAINER.to_owned();
            }
            return format!(
                "it is on an overlay that stores in {}: if that is in a Seekless mount, sync that directory with seekless, \
                 and otherwise use sync(1)",
                given.display()
            );
        };
        if mount_of(&upper).is_some() {
            return match given.is_absolute() {
                true => format!("it is on an overlay that stores in one: seekless sync {}", quoted_path(&upper)),
                false => format!(
                    "it is on an overlay that stores in {}; if that is {}: seekless sync {}",
                    given.display(),
                    upper.display(),
                    quoted_path(&upper)
                ),
            };
        }
        at = upper;
    }
    "use sync(1)".to_owned()
}

/// The server of a mount.
enum Server {
    Daemon(Daemon),
    /// Its daemon has ended without unmounting.
    Dead,
    /// It cannot be waited for, and why.
    Unseen(String),
}

/// The process that serves a mount.
struct Daemon {
    pid: u32,
    /// What the mount says of it.
    identity: String,
    pidfd: OwnedFd,
    /// Connection on which it reports how it ended.
    waiting: Option<Waiting>,
}

/// After this long, report what is being waited for.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// What the mount at `path` says who serves it.
fn identity(path: &Path) -> Vec<u8> {
    let mut value = [0u8; 64];
    let identity = std::str::from_utf8(DAEMON_ATTRIBUTE)
        .map_err(|_| Errno::INVAL)
        .and_then(|name| rustix::fs::getxattr(path, name, &mut value));
    match identity {
        Ok(length) => value[..length].to_vec(),
        Err(cause) => failed(cause.raw_os_error()),
    }
}

impl Server {
    /// Asks the mount at `path`, for as long as it takes.
    fn of(path: &Path) -> Server {
        Server::named(&identity(path))
    }

    /// From the result of [`identity`].
    fn named(identity: &[u8]) -> Server {
        match code_in(identity).map(Errno::from_raw_os_error) {
            None => {}
            Some(Errno::NOTCONN | Errno::CONNABORTED) => return Server::Dead,
            Some(cause) => return Server::Unseen(format!("the mount does not say which process serves it: {cause}")),
        }
        let text = std::str::from_utf8(identity).unwrap_or_default();
        let words = text.split_once(' ').and_then(|(pid, started)| Some((pid.parse().ok()?, started.parse().ok()?)));
        let Some((pid, started)) = words else {
            return Server::Unseen(format!("the mount says that `{text}` serves it"));
        };
        Daemon::find(text, pid, started).map_or_else(
            || Server::Unseen(format!("the daemon, process {pid} for itself, cannot be seen from here")),
            Server::Daemon,
        )
    }
}

impl Daemon {
    fn find(identity: &str, pid: u32, started: u64) -> Option<Daemon> {
        let pidfd = rustix::process::pidfd_open(Pid::from_raw(pid as i32)?, PidfdFlags::empty()).ok()?;
        // Checked after opening: the descriptor now refers to this process for good.
        let is_it = start_time(pid) == Some(started);
        is_it.then(|| Daemon { pid, identity: identity.to_owned(), pidfd, waiting: Waiting::join(identity, pid) })
    }

    /// Waits for its end, for `patience`, which is what is left of all that was `granted`. `number` is that of its mount.
    fn wait(
        &self,
        number: DeviceNumber,
        patience: Duration,
        granted: Duration,
        tell: impl Fn(&str),
    ) -> Result<(), UmountError> {
        if !self.ends_within(patience.min(TELL_AFTER)) {
            let held_by = mount_table::find_elsewhere(|info| info.number == number && info.is_ours()).map(|holder| {
                let Elsewhere { pid, command, mount_point } = holder;
                let (place, quoted) = (mount_point.display(), quoted_path(&mount_point));
                format!(
                    "process {pid} ({command}) has it mounted on {place} in a mount namespace of its own, so it goes on: \
                     nsenter -t {pid} -m umount {quoted}"
                )
            });
            let left = patience.saturating_sub(TELL_AFTER);
            let still = || match stopped(self.pid) {
                Some(stopped) => format!("the daemon (process {}) has not written everything; {stopped}", self.pid),
                None => format!("the daemon (process {}) still writes", self.pid),
            };
            let what = held_by.clone().unwrap_or_else(still);
            tell(&format!("unmounted here; {what}. Waiting for it, {} s at most", left.as_secs()));
            if !self.ends_within(left) {
                let held_by = held_by.or_else(|| stopped(self.pid));
                return Err(UmountError::StillWriting { pid: self.pid, waited: granted, held_by });
            }
        }
        match self.waiting.as_ref().and_then(Waiting::hear) {
            Some(Ok(())) => Ok(()),
            Some(Err(problem)) => Err(UmountError::NotDurable { problem }),
            // A daemon of an earlier version, or one that was killed.
            None => match exit_status(&self.pidfd) {
                Some(0) => Ok(()),
                Some(status) => Err(UmountError::DaemonFailed { pid: self.pid, status }),
                None => {
                    let why = format!("how the daemon (process {}) ended cannot be determined; see its log", self.pid);
                    Err(UmountError::Unknown { why })
                }
            },
        }
    }

    fn ends_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match rustix::event::poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                ended => return ended != Ok(0),
            }
        }
    }
}

/// The exit status of an ended process that is not our child, if the kernel reports it (Linux 6.15).
fn exit_status(pidfd: &OwnedFd) -> Option<i32> {
    use std::os::fd::AsRawFd;
    /// `struct pidfd_info` of Linux 6.15 in 64-bit words: mask, cgroup, 8 and 5 ids, exit code.
    #[repr(C)]
    #[derive(Default)]
    struct PidfdInfo {
        mask: u64,
        cgroup: u64,
        ids: [u32; 11],
        exit_code: i32,
    }
    /// `PIDFD_INFO_EXIT`.
    const INFO_EXIT: u64 = 1 << 3;
    /// `_IOWR(0xFF, 11, struct pidfd_info)` for a structure of this size.
    const GET_INFO: libc::Ioctl = (0xc000_ff0b_u32 | ((size_of::<PidfdInfo>() as u32) << 16)) as libc::Ioctl;
    const _: () = assert!(size_of::<PidfdInfo>() == 64);
    // The code is available once the parent has collected the child, which init and shells do soon; on a busy machine that may take a
    // second.
    let deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline {
        let mut info = PidfdInfo { mask: INFO_EXIT, ..PidfdInfo::default() };
        // SAFETY: the kernel reads and writes at most the 64 bytes that the request number says.
        let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), GET_INFO, &raw mut info) };
        if result != 0 {
            return None; // The kernel does not know, and never will.
        }
        if info.mask & INFO_EXIT != 0 {
            return Some(match libc::WIFEXITED(info.exit_code) {
                true => libc::WEXITSTATUS(info.exit_code),
                false => 128 + libc::WTERMSIG(info.exit_code),
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}
