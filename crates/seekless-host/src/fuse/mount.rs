//! The kernel's mount table: mounting, finding and unmounting.
//!
//! Root mounts with `mount(2)`; other users through `fusermount3`, which is set-user-id root and does it for them. Root
//! mounts a block device as `fuseblk`: only then do `sync`, `syncfs` and `umount` reach the file system and wait for
//! it.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use seekless::stack::quoted_path;
use seekless::units::Nanos;

use super::beneath::{Parameter, mount_beneath};
use super::detach::{HELPER, abort_connection, control_directory, force, unmount};
use super::options::{InitError, TransportChoice};
use super::presence::{is_served, to_unmount, without_asking_the_mount};
use super::reply::CacheTimes;
use super::write_back::{PATIENCE_AT_LAST, write_back};
use crate::leaves::{FileDevice, FileError};
use crate::mount_table::{self, DeviceNumber, MountInfo, SUBTYPE};
use crate::reactor::ShareWhen;

/// What becomes of a mount of this program that is still at the mount point, although its daemon is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DeadMount {
    /// It is an error.
    #[default]
    Refused,
    /// It is removed in the moment of mounting.
    Replaced,
    /// The same; where none is there any more, it is an error: a user has unmounted it.
    Required,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    pub mount_point: PathBuf,
    /// What `mount` and `df` show as the source.
    pub source: String,
    pub read_only: bool,
    /// Users other than the mounting one may enter.
    pub allow_other: bool,
    /// Mount over a directory, or a file, that is not empty.
    pub over_content: bool,
    pub dead: DeadMount,
    /// The root of the file system is a file: the mount point is one, too, and the kernel caches none of its data.
    pub as_file: bool,
    /// Further flags, such as `NOATIME`; with `RDONLY` it can be made writable later. A mount by an ordinary user always has `NOSUID` and `NODEV`.
    pub flags: MountFlags,
    /// The store below. If it is a block device, root mounts as `fuseblk`, and the mount takes over the claim that
    /// keeps others away from it.
    pub store: Option<Rc<FileDevice>>,
    pub transport: TransportChoice,
    /// Look for the next request for a moment before sleeping, while that is mostly successful; with `/dev/fuse`.
    pub busy_poll: bool,
    /// Run the engine on the processor of a program that makes one request after another, if at all; with `/dev/fuse` and
    /// `busy_poll`.
    pub share_processor: Option<ShareWhen>,
    /// Requests under way at once for each processor, with the uring transport.
    pub uring_depth: usize,
    /// Let the kernel collect small writes before it sends them.
    pub writeback_cache: bool,
    /// The kernel reads and writes files itself that are stored as they are in files of the host, where it can: not
    /// together with `writeback_cache`, and not where changes are durable before they are answered.
    pub passthrough: bool,
    /// No message at open and close, where the file system allows it.
    pub zero_message_open: bool,
    /// Overrides what follows from the file system's traits.
    pub cache_times: Option<CacheTimes>,
    /// How often everything is made durable while there are changes; `sync(1)` does not reach a plain FUSE mount.
    pub commit_interval: Option<Nanos>,
}

impl MountOptions {
    pub fn new(mount_point: impl Into<PathBuf>, source: impl Into<String>) -> MountOptions {
        MountOptions {
            mount_point: mount_point.into(),
            source: source.into(),
            read_only: false,
            allow_other: false,
            over_content: false,
            dead: DeadMount::default(),
            as_file: false,
            flags: MountFlags::empty(),
            store: None,
            transport: TransportChoice::Auto,
            busy_poll: true,
            share_processor: None,
            uring_depth: 8,
            writeback_cache: false,
            passthrough: true,
            zero_message_open: true,
            cache_times: None,
            // The default of ext4's `commit=`.
            commit_interval: Some(Nanos::from_secs(5)),
        }
    }

    /// Examines the mount point without touching it, so that errors are reported before anything else is done.
    ///
    /// # Errors
    /// `NoMountPoint`, `MountPoint`, `NotADirectory`, `NotAFile`, `NotEmpty`, `Dead`, `Mounted`.
    pub fn check_mount_point(&self) -> Result<(), MountError> {
        match self.dead {
            DeadMount::Replaced | DeadMount::Required if super::is_dead(&self.mount_point) => return Ok(()),
            DeadMount::Required => return Err(MountError::NotDead { path: self.mount_point.clone() }),
            DeadMount::Refused | DeadMount::Replaced => {}
        }
        check_mount_point(&self.mount_point, self.over_content, self.as_file).map(drop)
    }
}

/// Parameters for a worker thread that mounts.
#[derive(Clone, Debug)]
pub(super) struct Call {
    mount_point: PathBuf,
    source: String,
    flags: MountFlags,
    allow_other: bool,
    over_content: bool,
    dead: DeadMount,
    as_file: bool,
    block_device: Option<PathBuf>,
}

impl Call {
    pub(super) fn new(options: &MountOptions, read_only: bool) -> Call {
        let mut flags = options.flags;
        if read_only || options.read_only {
            flags.insert(MountFlags::RDONLY);
        }
        Call {
            mount_point: options.mount_point.clone(),
            source: options.source.clone(),
            flags,
            allow_other: options.allow_other,
            over_content: options.over_content,
            dead: options.dead,
            as_file: options.as_file,
            block_device: options
                .store
                .as_ref()
                .filter(|store| store.is_block_device())
                .map(|store| store.path().into()),
        }
    }
}

/// Why mounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("there is no directory {}; make it first: mkdir -p {}", path.display(), quoted_path(path))]
    NoMountPoint { path: PathBuf },
    #[error("mount point {}: {cause}", path.display())]
    MountPoint { path: PathBuf, cause: io::Error },
    #[error("mount point {} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("mount point {} is not a regular file; name an empty file, or one that is not there", path.display())]
    NotAFile { path: PathBuf },
    #[error("mount point {} is not empty; choose an empty {kind}", path.display())]
    NotEmpty { path: PathBuf, kind: &'static str },
    #[error("{} is already a Seekless mount; unmount it first: seekless umount {}", path.display(), quoted_path(path))]
    Mounted { path: PathBuf },
    #[error("mount point {} belongs to a mount whose daemon is gone; unmount it first: seekless umount --lazy {}",
        path.display(), quoted_path(&to_unmount(path)))]
    Dead { path: PathBuf },
    #[error("the dead mount on {} is gone: it was unmounted", path.display())]
    NotDead { path: PathBuf },
    #[error("cannot open /dev/fuse: {0}; is the fuse module loaded, and the device passed into this container?")]
    Device(Errno),
    #[error("cannot mount on {}: {cause}", path.display())]
    Refused { path: PathBuf, cause: Errno },
    #[error("cannot run fusermount3: {0}; install the fuse3 package, or mount as root")]
    NoHelper(io::Error),
    #[error("fusermount3 refused: {0}")]
    Helper(String),
    #[error("the kernel unmounted before it had started")]
    EndedEarly,
    #[error(transparent)]
    Init(#[from] InitError),
    #[error("cannot talk to the kernel: {0}")]
    Talk(Errno),
    #[error(transparent)]
    Store(#[from] FileError),
}

/// A mount made by this process.
#[derive(Debug)]
pub(super) struct Mounted {
    pub device: OwnedFd,
    /// Absolute and without links.
    pub mount_point: PathBuf,
    /// Device number of the mount, by which the kernel names the connection.
    pub number: Option<DeviceNumber>,
    /// Number of the mount in the mount table.
    id: Option<u64>,
    by_helper: bool,
    /// Mounted as `fuseblk`.
    pub as_block: bool,
}

/// Mounts, and returns the device on which the kernel sends requests. The connection is not initialised: the first
/// process that touches the mount point waits until INIT has been answered (U1).
pub(super) fn mount(options: &Call) -> Result<Mounted, MountError> {
    let is_dead = options.dead != DeadMount::Refused && super::is_dead(&options.mount_point);
    let (path, (device, by_helper, as_block)) = match is_dead {
        true => in_place_of_dead(options)?,
        false if options.dead == DeadMount::Required => {
            return Err(MountError::NotDead { path: options.mount_point.clone() });
        }
        false => {
            let path = check_mount_point(&options.mount_point, options.over_content, options.as_file)?;
            let made = mount_at(&path, options)?;
            (path, made)
        }
    };
    let set =
        rustix::fs::fcntl_getfl(&device).and_then(|flags| rustix::fs::fcntl_setfl(&device, flags | OFlags::NONBLOCK));
    set.map_err(MountError::Device)?;
    let found = mount_table::find(&path);
    let (id, number) = (found.as_ref().map(|found| found.id), found.map(|found| found.number));
    Ok(Mounted { device, mount_point: path, number, id, by_helper, as_block })
}

/// The device of a mount, whether the helper has made it, and whether it is a block device's.
type Made = (OwnedFd, bool, bool);

fn mount_at(path: &Path, options: &Call) -> Result<Made, MountError> {
    if !rustix::process::geteuid().is_root() {
        return Ok((mount_by_helper(path, options)?, true, false));
    }
    match mount_as_root(path, options) {
        // Root without the right to mount, as in a container: the helper may have it.
        Err(MountError::Refused { cause: Errno::PERM, .. }) => Ok((mount_by_helper(path, options)?, true, false)),
        other => other.map(|(device, as_block)| (device, false, as_block)),
    }
}

/// Mounts where a dead mount is, and takes that away. Programs that write at the mount point all the time get an error or the new
/// mount; where the kernel cannot do that, they may come to the directory below for a moment, and so it counts as empty.
fn in_place_of_dead(options: &Call) -> Result<(PathBuf, Made), MountError> {
    let path = &options.mount_point;
    let whole = without_asking_the_mount(path).map_err(|cause| MountError::MountPoint { path: path.clone(), cause })?;
    let remove = || unmount(&whole, false, true).map_err(|cause| MountError::Refused { path: path.clone(), cause });
    // A block device belongs to the dead mount until that is gone.
    let is_plain = options.block_device.is_none() && rustix::process::geteuid().is_root();
    if is_plain && let Some(device) = beneath(&whole, options) {
        remove()?;
        return Ok((whole, (device, false, false)));
    }
    remove()?;
    let path = check_mount_point(path, true, options.as_file)?;
    let is_empty = options.as_file || fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
    if !is_empty && !options.over_content {
        log::warn!("the directory {} below the mount is not empty: programs may have written to it", path.display());
    }
    let made = mount_at(&path, options)?;
    Ok((path, made))
}

/// The device of a new mount beneath the one at `path`, where the kernel can do that.
fn beneath(path: &Path, options: &Call) -> Option<OwnedFd> {
    let device = open_device().ok()?;
    let source = if options.source.is_empty() { SUBTYPE } else { &options.source };
    let made = mount_beneath(path, source, SUBTYPE, &parameters(&device, options), options.flags);
    if let Err(cause) = made {
        log::debug!("not mounted beneath the dead one: {cause}");
    }
    made.is_ok().then_some(device)
}

fn check_mount_point(path: &Path, over_content: bool, as_file: bool) -> Result<PathBuf, MountError> {
    let error = |cause: io::Error| match cause.raw_os_error() {
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountError::Dead { path: path.to_owned() },
        Some(libc::ENOENT) => MountError::NoMountPoint { path: path.to_owned() },
        _ => MountError::MountPoint { path: path.to_owned(), cause },
    };
    // A daemon that is stopped would not answer what follows.
    if !over_content && is_served(path) {
        return Err(MountError::Mounted { path: path.to_owned() });
    }
    let metadata = fs::metadata(path).map_err(error)?;
    if !as_file && !metadata.is_dir() {
        return Err(MountError::NotADirectory { path: path.to_owned() });
    }
    if as_file && !metadata.is_file() {
        return Err(MountError::NotAFile { path: path.to_owned() });
    }
    let absolute = fs::canonicalize(path).map_err(error)?;
    if !over_content {
        if mount_table::find(&absolute).is_some_and(|found| found.is_ours()) {
            return Err(match super::is_dead(path) {
                true => MountError::Dead { path: path.to_owned() },
                false => MountError::Mounted { path: path.to_owned() },
            });
        }
        let (is_empty, kind) = match as_file {
            true => (metadata.len() == 0, "file"),
            false => (fs::read_dir(path).map_err(error)?.next().is_none(), "directory"),
        };
        if !is_empty {
            return Err(MountError::NotEmpty { path: path.to_owned(), kind });
        }
    }
    Ok(absolute)
}

fn open_device() -> Result<OwnedFd, MountError> {
    rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(MountError::Device)
}

/// What the kernel has to know of a mount.
fn parameters(device: &OwnedFd, options: &Call) -> Vec<Parameter> {
    let mut parameters = vec![
        ("fd", Some(device.as_raw_fd().to_string())),
        ("rootmode", Some(if options.as_file { "100000" } else { "40000" }.to_owned())),
        ("user_id", Some(rustix::process::getuid().as_raw().to_string())),
        ("group_id", Some(rustix::process::getgid().as_raw().to_string())),
        ("default_permissions", None),
    ];
    if options.allow_other {
        parameters.push(("allow_other", None));
    }
    parameters
}

fn mount_as_root(path: &Path, options: &Call) -> Result<(OwnedFd, bool), MountError> {
    let refused = |cause| MountError::Refused { path: path.to_owned(), cause };
    let attempt = |source: &Path, kind: String, more: &str| -> Result<OwnedFd, MountError> {
        let device = open_device()?;
        let word = |(key, value): Parameter| value.map_or(key.to_owned(), |value| format!("{key}={value}"));
        let words: Vec<String> = parameters(&device, options).into_iter().map(word).collect();
        let data = CString::new(words.join(",") + more).map_err(|_| refused(Errno::INVAL))?;
        rustix::mount::mount(source, path, kind, options.flags, &*data).map_err(refused)?;
        Ok(device)
    };
    if let Some(block_device) = &options.block_device {
        // The block size only affects the page cache of the device.
        match attempt(block_device, format!("fuseblk.{SUBTYPE}"), ",blksize=4096") {
            Ok(device) => return Ok((device, true)),
            // A kernel without fuseblk, or one that refuses to mount devices that are open for writing.
            Err(error) => log::warn!("not mounted as a block device, so sync(1) will not reach it: {error}"),
        }
    }
    let source = if options.source.is_empty() { SUBTYPE } else { &options.source };
    Ok((attempt(Path::new(source), format!("fuse.{SUBTYPE}"), "")?, false))
}

/// The words of `fusermount3` for `flags`. Those that it does not know make it fail: a mount without what was asked for could be less
/// safe. `relatime` is the kernel's default.
fn words_of(flags: MountFlags) -> String {
    let mut words = String::from(if flags.contains(MountFlags::RDONLY) { "ro" } else { "rw" });
    for (flag, word) in [
        (MountFlags::NOSUID, "nosuid"),
        (MountFlags::NODEV, "nodev"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::NOATIME, "noatime"),
        (MountFlags::NODIRATIME, "nodiratime"),
        (MountFlags::STRICTATIME, "strictatime"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::DIRSYNC, "dirsync"),
        (MountFlags::LAZYTIME, "lazytime"),
        (MountFlags::NOSYMFOLLOW, "nosymfollow"),
    ] {
        if flags.contains(flag) {
            let _ = write!(words, ",{word}");
        }
    }
    words
}

/// The protocol of `fusermount3`: it mounts, and sends the open device over the socket that `_FUSE_COMMFD` names.
fn mount_by_helper(path: &Path, options: &Call) -> Result<OwnedFd, MountError> {
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|cause| MountError::NoHelper(cause.into()))?;
    let mut words = words_of(options.flags);
    words.push_str(",default_permissions");
    if options.allow_other {
        words.push_str(",allow_other");
    }
    let _ = write!(words, ",subtype={SUBTYPE},fsname={}", escape_option(&options.source));
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(words).arg("--").arg(path);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let inherited = theirs.as_raw_fd();
    // SAFETY: the closure runs in the child between fork and exec and only makes one system call, on a
    // descriptor that the parent keeps open until the child has started.
    unsafe {
        command.pre_exec(move || match libc::fcntl(inherited, libc::F_SETFD, 0) {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
    let mut child = command.spawn().map_err(MountError::NoHelper)?;
    drop(theirs);
    let device = receive_device(&ours);
    let mut complaint = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = stderr.read_to_string(&mut complaint);
    }
    let status = child.wait().map_err(MountError::NoHelper)?;
    match device {
        Some(device) if status.success() => Ok(device),
        _ => Err(MountError::Helper(explain_helper(complaint.trim(), &status.to_string()))),
    }
}

fn explain_helper(complaint: &str, status: &str) -> String {
    match complaint {
        "" => status.to_owned(),
        _ => complaint.trim_start_matches("fusermount3: ").to_owned(),
    }
}

/// Unescaped commas and backslashes would end the value.
fn escape_option(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn receive_device(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let mut iov = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut iov, &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    })
}

impl Mounted {
    /// What the kernel shows of the connection, where the control file system is mounted.
    pub(super) fn control_directory(&self) -> Option<PathBuf> {
        self.number.map(control_directory)
    }

    /// The parameters of an unmount, for a worker thread.
    pub(super) fn unmounter(&self) -> Unmounter {
        let Mounted { number, id, by_helper, .. } = *self;
        Unmounter { mount_point: self.mount_point.clone(), by_helper, number, id }
    }

    /// Ends the connection with errors for all users and detaches the mount, without waiting. For a daemon that cannot
    /// continue. Where this is not possible, the connection ends when its device is closed.
    pub(super) fn abort(&self) {
        let aborted = abort_connection(self.number);
        let unmounter = self.unmounter();
        let Some(place) = unmounter.place() else { return };
        if !aborted && !self.by_helper {
            force(&place);
        }
        if let Some(place) = unmounter.place() {
            let _ = unmount(&place, self.by_helper, true);
        }
    }

    /// Ends the connection with errors for all users, and leaves the mount, which gives errors from then on. Where this is not possible,
    /// the connection ends when its device is closed.
    pub(super) fn disconnect(&self) {
        abort_connection(self.number);
    }

    /// Sets the read-ahead of this mount, in `sysfs`.
    pub(super) fn set_read_ahead(&self, bytes: u32) {
        let Some(DeviceNumber { major, minor }) = self.number else { return };
        let kind = if self.as_block { "-fuseblk" } else { "" };
        // Only root may; otherwise the kernel's default of 128 KiB stays.
        let _ = fs::write(format!("/sys/class/bdi/{major}:{minor}{kind}/read_ahead_kb"), (bytes / 1024).to_string());
    }

    pub(super) fn device(&self) -> impl AsFd {
        self.device.as_fd()
    }
}

/// How a mount came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unmounted {
    /// Another process had unmounted it, perhaps lazily, so that it still has users.
    Before,
    /// It had no users here.
    Now,
    /// It had users, whose files give errors now.
    InUse,
}

/// Unmounts from a worker thread.
#[derive(Clone, Debug)]
pub(super) struct Unmounter {
    mount_point: PathBuf,
    by_helper: bool,
    number: Option<DeviceNumber>,
    id: Option<u64>,
}

impl Unmounter {
    /// Where our mount is, as long as it is there and no other one on it: in another place than before when a directory above has been renamed.
    /// The place where it was where that cannot be read, because no further file can be opened: a mount that is left behind without a
    /// daemon is worse than one of another program that goes.
    fn place(&self) -> Option<PathBuf> {
        let table = match mount_table::try_read() {
            Ok(table) => table,
            Err(error) => {
                let is_lack =
                    [Errno::MFILE, Errno::NFILE].iter().any(|it| error.raw_os_error() == Some(it.raw_os_error()));
                return is_lack.then(|| self.mount_point.clone());
            }
        };
        let has_number = |found: &MountInfo| self.number.is_none_or(|number| number == found.number);
        let renamed = table.iter().find(|found| self.id == Some(found.id) && has_number(found));
        let place = renamed.map_or(&self.mount_point, |found| &found.mount_point).clone();
        mount_table::topmost(table, &place).filter(has_number).map(|found| found.mount_point)
    }

    /// Unmounts, unless that has been done already. What the kernel holds of closed and mapped files is written back first: it would
    /// be dropped where the mount lives on elsewhere, and is then ended by force. A mount that is in use here is written back again and
    /// ended by force at once: it vanishes, and its files give errors.
    pub(super) fn unmount(&self) -> Result<Unmounted, Errno> {
        let write_back_all = |place: &Path| {
            if let Ok(root) = rustix::fs::open(place, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                let written = write_back(&root, self.number.map(control_directory).as_deref(), PATIENCE_AT_LAST);
                let _ = written.inspect_err(|error| {
                    log::warn!("the kernel's dirty pages may not have been written: {error}");
                });
            }
        };
        let Some(place) = self.place() else { return Ok(Unmounted::Before) };
        write_back_all(&place);
        // That can take a while, and what is there now may be what was below.
        let Some(place) = self.place() else { return Ok(Unmounted::Before) };
        match unmount(&place, self.by_helper, false) {
            Err(Errno::BUSY) => {}
            Err(_) if self.place().is_none() => return Ok(Unmounted::Before),
            result => return result.map(|()| Unmounted::Now),
        }
        write_back_all(&place);
        if !abort_connection(self.number) && !self.by_helper {
            force(&place);
        }
        if let Some(place) = self.place() {
            unmount(&place, self.by_helper, true)?;
        }
        Ok(Unmounted::InUse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each flag that changes what a mount does reaches the helper.
    #[test]
    fn the_helper_gets_every_flag() {
        assert_eq!(words_of(MountFlags::empty()), "rw");
        let all = MountFlags::RDONLY
            | MountFlags::NOSUID
            | MountFlags::NODEV
            | MountFlags::NOEXEC
            | MountFlags::NODIRATIME
            | MountFlags::STRICTATIME
            | MountFlags::LAZYTIME
            | MountFlags::NOSYMFOLLOW;
        assert_eq!(words_of(all), "ro,nosuid,nodev,noexec,nodiratime,strictatime,lazytime,nosymfollow");
        let others = MountFlags::NOATIME | MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC | MountFlags::RELATIME;
        assert_eq!(words_of(others), "rw,noatime,sync,dirsync");
    }

    /// A source with commas stays one option.
    #[test]
    fn sources_are_escaped() {
        assert_eq!(escape_option(r"lfs:a=1,b=2 / file:x\y"), r"lfs:a=1\,b=2 / file:x\\y");
    }

    /// Invalid mount points are refused before anything happens.
    #[test]
    fn bad_mount_points_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        let check = |path: &Path| check_mount_point(path, false, false).unwrap_err().to_string();
        assert!(check(&file).contains("is not a directory"));
        assert!(check(directory.path()).contains("is not empty"));
        assert!(check(Path::new("/nowhere/at/all")).contains("make it first"));
        check_mount_point(&file, false, true).unwrap();
        std::fs::write(&file, "something").unwrap();
        let check = |path: &Path| check_mount_point(path, false, true).unwrap_err().to_string();
        assert!(check(directory.path()).contains("is not a regular file"));
        assert!(check(&file).contains("choose an empty file"));
    }
}
