//! What was changed since the last sync, on host file systems that cannot be synced as a whole.
//!
//! The kernel passes `syncfs` on to the file systems that it has itself, but not to one that is mounted as plain `fuse`: the call
//! succeeds, and nothing is durable. There each file and directory is synced by itself.
//!
//! Invariant
//!   C1  Whatever was changed before a sync begins is listed, with an open place so that it can be found, until a sync of it that began
//!       later has succeeded.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use seekless::fs::FsResult;
use seekless::units::Ino;

use super::{HostDir, sys};
use crate::reactor::File;

/// Of `statfs`.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// Open places that are kept; with more, the oldest is synced at once.
const LISTED_MAX: usize = 1024;

/// See the head of the file.
#[derive(Default)]
pub(super) struct Changed {
    entries: RefCell<BTreeMap<Ino, (u64, File)>>,
    next: Cell<u64>,
    /// A sync has failed that no caller waited for.
    failed: Cell<Option<Errno>>,
}

impl Changed {
    /// For the host file system of `directory`; `None` where the kernel syncs it as a whole.
    pub(super) fn of(directory: &File) -> Option<Changed> {
        let is_fuse = rustix::fs::fstatfs(&**directory).is_ok_and(|host| host.f_type == FUSE_MAGIC);
        is_fuse.then(Changed::default)
    }
}

/// A change under way: what it changes is listed before it begins, and once more when it ends, so that a sync in between does not
/// count.
pub(super) struct Changing<'a> {
    host: &'a HostDir,
    inos: [Ino; 2],
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.inos.iter().for_each(|&ino| self.host.note_changed(ino));
    }
}

impl HostDir {
    /// Fails where nothing may change.
    pub(super) fn changing(&self, one: Ino, other: Ino) -> FsResult<Option<Changing<'_>>> {
        self.may_change()?;
        if self.changed.is_none() {
            return Ok(None);
        }
        let inos = [one, other];
        inos.iter().for_each(|&ino| self.note_changed(ino));
        Ok(Some(Changing { host: self, inos }))
    }

    /// Lists `ino`, if that is necessary here.
    pub(super) fn note_changed(&self, ino: Ino) {
        let Some(changed) = &self.changed else { return };
        // What cannot be found was not changed.
        let Ok(place) = self.inodes.file(ino) else { return };
        let stamp = changed.next.get();
        changed.next.set(stamp + 1);
        let oldest = {
            let mut entries = changed.entries.borrow_mut();
            entries.insert(ino, (stamp, place));
            let oldest = match entries.len() > LISTED_MAX {
                true => entries.iter().min_by_key(|(_, (stamp, _))| *stamp).map(|(&ino, _)| ino),
                false => None,
            };
            oldest.and_then(|ino| entries.remove(&ino))
        };
        if let Some((_, place)) = oldest {
            let synced = self.open_if_there(&place).and_then(|file| file.map_or(Ok(()), rustix::fs::fsync));
            if let Err(cause) = synced {
                changed.failed.set(Some(cause));
            }
        }
    }

    /// Makes everything durable that was changed, one by one.
    pub(super) async fn sync_changed(&self, changed: &Changed) -> FsResult<()> {
        let listed: Vec<(Ino, u64, File)> = {
            let entries = changed.entries.borrow();
            entries.iter().map(|(&ino, (stamp, place))| (ino, *stamp, place.clone())).collect()
        };
        for (ino, stamp, place) in listed {
            if let Some(file) = self.open_if_there(&place).map_err(sys::error)? {
                self.reactor.sync(&file.into(), true).await.map_err(sys::error)?;
            }
            let mut entries = changed.entries.borrow_mut();
            if entries.get(&ino).is_some_and(|(listed, _)| *listed == stamp) {
                entries.remove(&ino);
            }
        }
        changed.failed.take().map_or(Ok(()), |cause| Err(sys::error(cause)))
    }

    /// As [`HostDir::open_to_sync`], also `None` for what is gone.
    fn open_if_there(&self, place: &File) -> Result<Option<OwnedFd>, Errno> {
        match self.open_to_sync(place) {
            Err(Errno::NOENT | Errno::STALE) => Ok(None),
            result => result,
        }
    }

    /// A descriptor that `fsync` takes; `None` for what has no data, whose name is synced with its directory.
    pub(super) fn open_to_sync(&self, place: &File) -> Result<Option<OwnedFd>, Errno> {
        let flags = match FileType::from_raw_mode(sys::stat(&**place)?.stx_mode.into()) {
            FileType::RegularFile => OFlags::RDONLY,
            FileType::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            _ => return Ok(None),
        };
        let open = |flags| self.inodes.with_room(|| self.inodes.host_root().reopen(place, flags));
        match open(flags) {
            // A file that this user may write but not read.
            Err(Errno::ACCESS) => open(OFlags::WRONLY),
            result => result,
        }
        .map(Some)
    }
}
