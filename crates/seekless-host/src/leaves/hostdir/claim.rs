//! Exclusive use of a directory: two layers that store files in one directory, or in one inside the other, would
//! destroy each other's files.
//!
//! `flock(2)` on the directory itself, exclusive for a sole user, shared otherwise, and shared on each directory above
//! it. Then two users meet in the directory of the upper one, whichever came first:
//!
//! | first | second | meet in | because |
//! |---|---|---|---|
//! | alone in `a` | any in `a` | `a` | exclusive |
//! | alone in `a` | any in `a/b` | `a` | exclusive against shared, as it is above |
//! | any in `a/b` | alone in `a` | `a` | the same the other way round |
//! | shared in `a` | alone in `a/b` | `a` | both locks are shared: marks decide (see [`users`](super::super::users)) |
//!
//! Siblings share the directories above them. Locks are tried and never waited for, and all are released when one is
//! refused, so that two concurrent starts cannot deadlock: at most one of them continues.
//!
//! Directories are identified by their inodes, so symbolic links and bind mounts lead to the same lock. *Above* a
//! directory are those of its own file system: a file system mounted inside a directory is not part of it, unless
//! `submounts` says so, and then its root is claimed as well. Where the directory was reached through a mount of a part
//! of its file system, the rest is searched among all mounts.
//!
//! Not detected: directories that may not be read (reported), directories in another container's file system, and later
//! moves of a directory.
//!
//! Invariants
//!   H1  A mark is set before the other side's mark is looked up, so that of two concurrent starts one sees the other.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::error::HostDirError;
use super::sys::Key;
use crate::leaves::users::{self, Mark, Users};
use crate::mount_table::{self, MountInfo};

/// Keeps other users away for as long as it lives.
#[derive(Debug)]
pub(super) struct Claim {
    /// The directory itself and, with `submounts`, the roots of file systems mounted inside.
    own: Vec<OwnedFd>,
    above: Vec<OwnedFd>,
    /// What could not be claimed, and why.
    skipped: Vec<String>,
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const PLACE: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A directory, and the mount in which it was reached.
struct FoundDirectory {
    key: Key,
    mount: u64,
}

fn look(directory: &OwnedFd) -> Result<FoundDirectory, Errno> {
    // Before Linux 5.8 there is no number, and the file system is used in place of the mount.
    let asked = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(directory, c"", AtFlags::EMPTY_PATH, asked)?;
    let key = Key::of(&stat);
    let has_id = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    Ok(FoundDirectory { key, mount: if has_id { stat.stx_mnt_id } else { key.device } })
}

impl Claim {
    /// Claims `directory`, which is open and was named `path`.
    ///
    /// # Errors
    /// `InUse`.
    pub(super) fn take(directory: &OwnedFd, path: &Path, alone: bool, submounts: bool) -> Result<Claim, HostDirError> {
        let mut claim = Claim { own: Vec::new(), above: Vec::new(), skipped: Vec::new() };
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match rustix::fs::openat(directory, c".", DIRECTORY, Mode::empty()) {
            Ok(own) => claim.add_own(own, path, &place, alone)?,
            Err(error) => claim.skip(&place, error),
        }
        if submounts {
            for mount in mount_table::read() {
                let is_inside = mount.mount_point != place && mount.mount_point.starts_with(&place);
                if is_inside && mount.kind != "autofs" {
                    match open_apart(&mount.mount_point) {
                        Ok(root) => claim.add_own(root, path, &mount.mount_point, alone)?,
                        // Covered by another mount, or gone.
                        Err(Errno::NOENT | Errno::NOTDIR) => {}
                        Err(error) => claim.skip(&mount.mount_point, error),
                    }
                }
            }
        }
        claim.add_above(directory, path, &place, alone)?;
        Ok(claim)
    }

    /// Directories that could not be claimed, for messages.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.skipped.clone()
    }

    /// All locked directories.
    pub(super) fn directories(&self) -> impl Iterator<Item = &OwnedFd> {
        self.own.iter().chain(&self.above)
    }

    fn add_own(&mut self, own: OwnedFd, path: &Path, place: &Path, alone: bool) -> Result<(), HostDirError> {
        let operation =
            if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        let in_use = |own: &OwnedFd| HostDirError::in_use(path, None, Users::of(own));
        match flock(&own, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(in_use(&own)),
            Err(error) => {
                self.skip(place, error);
                return Ok(());
            }
        }
        // H1. `alone` needs no mark: its lock excludes all users here and below.
        if !alone {
            if let Err(error) = users::mark(&own, Mark::SharedHere) {
                self.skip(place, error);
            }
            if stays_marked(&own, Mark::AloneBelow) {
                return Err(in_use(&own));
            }
        }
        self.own.push(own);
        Ok(())
    }

    /// Claims the directories above, within the same file system.
    fn add_above(&mut self, directory: &OwnedFd, path: &Path, place: &Path, alone: bool) -> Result<(), HostDirError> {
        let os = |cause| HostDirError::Os { action: "examine", path: path.to_owned(), cause };
        let mut seen = BTreeSet::from([look(directory).map_err(os)?.key]);
        let root = self.climb(directory, path, place, alone, &mut seen)?;
        // A bind mount, or the like, of a part of its file system: the rest may be mounted elsewhere.
        let table = mount_table::read();
        let Some(mount) = table.iter().find(|mount| mount.id == root) else { return Ok(()) };
        if let Some((rest, rest_place)) = rest_of(mount, &table) {
            self.climb_from(rest, path, &rest_place, alone, &mut seen)?;
        }
        Ok(())
    }

    /// Claims the directories above `directory`, which is at `place`, and returns the mount in which that ended.
    fn climb(
        &mut self,
        directory: &OwnedFd,
        path: &Path,
        place: &Path,
        alone: bool,
        seen: &mut BTreeSet<Key>,
    ) -> Result<u64, HostDirError> {
        let os = |cause| HostDirError::Os { action: "examine", path: path.to_owned(), cause };
        let mount = look(directory).map_err(os)?.mount;
        let Ok(parent) = rustix::fs::openat(directory, c"..", PLACE, Mode::empty()) else {
            self.skip(place.parent().unwrap_or(place), Errno::ACCESS);
            return Ok(mount);
        };
        let found = look(&parent).map_err(os)?;
        // The root of a mount leads to its mount point; that of `/`, to itself.
        if found.mount != mount || seen.contains(&found.key) {
            return Ok(mount);
        }
        let parent_place = place.parent().unwrap_or(Path::new("/"));
        self.climb_from(parent, path, parent_place, alone, seen)?;
        Ok(mount)
    }

    /// Claims `above`, a directory above the requested one, and all above it.
    fn climb_from(
        &mut self,
        above: OwnedFd,
        path: &Path,
        place: &Path,
        alone: bool,
        seen: &mut BTreeSet<Key>,
    ) -> Result<(), HostDirError> {
        let os = |cause| HostDirError::Os { action: "examine", path: path.to_owned(), cause };
        if !seen.insert(look(&above).map_err(os)?.key) {
            return Ok(());
        }
        match rustix::fs::openat(&above, c".", DIRECTORY, Mode::empty()) {
            Ok(opened) => match flock(&opened, FlockOperation::NonBlockingLockShared) {
                Ok(()) => {
                    // H1.
                    if alone {
                        if let Err(error) = users::mark(&opened, Mark::AloneBelow) {
                            self.skip(place, error);
                        }
                        if stays_marked(&opened, Mark::SharedHere) {
                            return Err(HostDirError::in_use(path, Some(place), Users::of(&opened)));
                        }
                    }
                    self.above.push(opened);
                }
                Err(Errno::WOULDBLOCK) => return Err(HostDirError::in_use(path, Some(place), Users::of(&opened))),
                Err(error) => self.skip(place, error),
            },
            Err(error) => self.skip(place, error),
        }
        self.climb(&above, path, place, alone, seen).map(drop)
    }

    fn skip(&mut self, place: &Path, cause: Errno) {
        let place = place.display();
        self.skipped.push(format!("{place} cannot be locked ({cause}): another use of it may go unnoticed"));
    }
}

/// Cleanup programs, such as systemd-tmpfiles, lock a directory briefly, and so does a Seekless process that is about
/// to be refused for another reason.
fn flock(directory: &OwnedFd, operation: FlockOperation) -> Result<(), Errno> {
    let mut pauses = pauses();
    loop {
        match rustix::fs::flock(directory, operation) {
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if pauses.next().is_some() => {}
            done => return done,
        }
    }
}

/// As [`flock`], for a mark of other users.
fn stays_marked(directory: &OwnedFd, mark: Mark) -> bool {
    let mut pauses = pauses();
    while users::may_be_marked(directory, mark) {
        if pauses.next().is_none() {
            return true;
        }
    }
    false
}

/// A few short pauses.
fn pauses() -> impl Iterator<Item = ()> {
    (0..5).map(|_| std::thread::sleep(std::time::Duration::from_millis(20)))
}

/// Opens a directory in a private copy of its mount, where allowed, so that the mount is not kept busy.
fn open_apart(path: &Path) -> Result<OwnedFd, Errno> {
    let place = rustix::fs::open(path, PLACE, Mode::empty())?;
    rustix::fs::openat(apart(&place).as_ref().unwrap_or(&place), c".", DIRECTORY, Mode::empty())
}

fn apart(place: &OwnedFd) -> Option<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(place, c"", flags).ok()
}

/// The directory above the root of `mount`, which is not the root of its file system, found in another mount of that
/// file system that shows the most of it; and its path there.
fn rest_of(mount: &MountInfo, table: &[MountInfo]) -> Option<(OwnedFd, PathBuf)> {
    let shows_more = |other: &&MountInfo| {
        other.number == mount.number && other.root != mount.root && mount.root.starts_with(&other.root)
    };
    let mut others: Vec<&MountInfo> = table.iter().filter(shows_more).collect();
    others.sort_by_key(|other| other.root.as_os_str().len());
    others.into_iter().find_map(|other| {
        let above = mount.root.parent()?.strip_prefix(&other.root).ok()?;
        let host_root = rustix::fs::open(&other.mount_point, PLACE, Mode::empty()).ok()?;
        if look(&host_root).ok()?.mount != other.id {
            return None; // Another mount covers it.
        }
        let host_root = apart(&host_root).unwrap_or(host_root);
        let inside = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let directory = rustix::fs::openat2(&host_root, inside, PLACE, Mode::empty(), resolve).ok()?;
        Some((directory, other.mount_point.join(above)))
    })
}
