//! What was changed since the last sync, where the kernel does not sync the host file system as a whole.
//!
//! The kernel passes `syncfs` on to the file systems that it has itself, but not to one that is mounted as plain `fuse`, nor to one that
//! another file system uses, as an overlay does: the call succeeds, and nothing is durable. There each file and directory is
//! synced by itself, and so it is wherever it is not known that `syncfs` reaches the storage.
//!
//! Invariant
//!   C1  Whatever was changed before a sync begins is listed, with an open place so that it can be found, until a sync of it that began
//!       later has succeeded.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use seekless::fs::{FsError, FsResult};
use seekless::units::Ino;

use super::sys::Key;
use super::{HostDir, sys};
use crate::reactor::File;

/// File systems of which `syncfs` makes everything durable, by their number in `statfs` (`linux/magic.h`): they are in the kernel, have
/// the storage for themselves, and either flush its cache (`sync_fs`) or have none.
const SYNCED_AS_A_WHOLE: [rustix::fs::FsWord; 8] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0x0102_1994, // tmpfs
    0x6969,      // NFS: all that was written is committed by the server
];

/// An overlay, by its number in `statfs`.
const OVERLAY: rustix::fs::FsWord = 0x794c_7630;

/// Whether the kernel syncs the file system of `place` as a whole.
pub(super) fn is_synced_as_a_whole(place: &File) -> bool {
    rustix::fs::fstatfs(&**place).is_ok_and(|host| SYNCED_AS_A_WHOLE.contains(&host.f_type))
}

/// A sync of what is gone since it was opened, or of what cannot be synced, has succeeded.
pub(super) fn unless_gone(synced: Result<(), Errno>) -> Result<(), Errno> {
    match synced {
        Err(Errno::NOENT | Errno::STALE | Errno::INVAL) => Ok(()),
        synced => synced,
    }
}

/// Open places that are kept, where there is room for as many files; with more, the oldest is synced at once.
const LISTED_MAX: usize = 1024;

/// See the head of the file.
#[derive(Default)]
pub(super) struct Changed {
    entries: RefCell<BTreeMap<Ino, (u64, File)>>,
    next: Cell<u64>,
    listed_max: usize,
    /// Places that are no longer listed, one of each device that the kernel syncs as a whole.
    devices: RefCell<BTreeMap<u64, (u64, File)>>,
    /// A sync has failed that no caller waited for.
    failed: Cell<Option<Errno>>,
}

impl Changed {
    /// For what is below `directory`; `None` where the kernel syncs all of it as a whole. With `submounts` that is looked up for each
    /// place when it is synced, as mounts inside come and go. There is room for `room` open files.
    pub(super) fn of(directory: &File, submounts: bool, room: usize) -> Option<Changed> {
        let listed_max = (room / 4).clamp(1, LISTED_MAX);
        (submounts || !is_synced_as_a_whole(directory)).then(|| Changed { listed_max, ..Changed::default() })
    }
}

/// A change under way: what it changes is listed before it begins, and once more when it ends, so that a sync in between does not
/// count.
pub(super) struct Changing<'a> {
    host: &'a HostDir,
    changed: &'a Changed,
    /// Open from the beginning, so that the end needs no more files. `None` for what cannot be found, which does not change.
    places: [(Ino, Option<File>); 2],
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        for (ino, place) in &mut self.places {
            // The change may have moved it to another inode of the host.
            let place = match self.host.inodes.file(*ino) {
                Ok(now) => Some(now),
                Err(FsError::Stale | FsError::NotFound) => None,
                Err(_) => place.take(),
            };
            place.into_iter().for_each(|place| self.host.list_change(self.changed, *ino, place));
        }
    }
}

impl HostDir {
    /// Fails where nothing may change, or where the change could not be listed.
    pub(super) fn changing(&self, one: Ino, other: Ino) -> FsResult<Option<Changing<'_>>> {
        self.may_change()?;
        let Some(changed) = &self.changed else { return Ok(None) };
        let place = |ino| match self.inodes.file(ino) {
            Ok(place) => {
                self.list_change(changed, ino, place.clone());
                Ok((ino, Some(place)))
            }
            Err(FsError::Stale | FsError::NotFound) => Ok((ino, None)),
            Err(error) => Err(error),
        };
        Ok(Some(Changing { host: self, changed, places: [place(one)?, place(other)?] }))
    }

    /// Lists `ino`, which was made just now, if that is necessary here.
    pub(super) fn note_made(&self, ino: Ino) {
        let Some(changed) = &self.changed else { return };
        if let Some(late) = &self.late {
            late.made(ino);
        }
        match self.inodes.file(ino) {
            Ok(place) => self.list_change(changed, ino, place),
            // Another process has removed it.
            Err(FsError::Stale | FsError::NotFound) => {}
            // It is open from its making.
            Err(_) => changed.failed.set(Some(Errno::MFILE)),
        }
    }

    fn list_change(&self, changed: &Changed, ino: Ino, place: File) {
        let stamp = changed.next.get();
        changed.next.set(stamp + 1);
        let oldest = {
            let mut entries = changed.entries.borrow_mut();
            entries.insert(ino, (stamp, place));
            let oldest = match entries.len() > changed.listed_max {
                true => entries.iter().min_by_key(|(_, (stamp, _))| *stamp).map(|(&ino, _)| ino),
                false => None,
            };
            oldest.and_then(|ino| Some((ino, entries.remove(&ino)?)))
        };
        let Some((oldest, (listed, place))) = oldest else { return };
        match self.sync_unlisted(changed, stamp, place.clone()) {
            Ok(()) => {}
            // It stays listed, until there is room to open it.
            Err(Errno::MFILE | Errno::NFILE) => {
                changed.entries.borrow_mut().entry(oldest).or_insert((listed, place));
            }
            Err(cause) => changed.failed.set(Some(cause)),
        }
    }

    fn sync_unlisted(&self, changed: &Changed, stamp: u64, place: File) -> Result<(), Errno> {
        if is_synced_as_a_whole(&place) {
            let device = Key::of(&sys::stat(&*place)?).device;
            changed.devices.borrow_mut().insert(device, (stamp, place));
            return Ok(());
        }
        self.open_if_there(&place)?.map_or(Ok(()), |file| unless_gone(rustix::fs::fsync(file)))
    }

    /// Makes everything durable that was changed and is not on the root's file system, where that one is synced as a whole.
    pub(super) async fn sync_changed(&self, changed: &Changed) -> FsResult<()> {
        let listed: Vec<(Ino, u64, File)> = {
            let entries = changed.entries.borrow();
            entries.iter().map(|(&ino, (stamp, place))| (ino, *stamp, place.clone())).collect()
        };
        // They stay until they are synced: another sync that begins in the meantime has to wait for them, too.
        let unlisted = changed.devices.borrow().clone();
        let mut devices = vec![self.inodes.host_root().key.device];
        let mut result = self.sync_all_writers().await;
        for (ino, stamp, place) in listed {
            if let Err(error) = self.sync_listed(&place, &mut devices).await {
                result = result.and(Err(error));
                continue;
            }
            let mut entries = changed.entries.borrow_mut();
            if entries.get(&ino).is_some_and(|(listed, _)| *listed == stamp) {
                entries.remove(&ino);
            }
        }
        for (device, (stamp, place)) in unlisted {
            if !devices.contains(&device)
                && let Err(error) = self.sync_whole(&place).await
            {
                result = result.and(Err(error));
                continue;
            }
            let mut unlisted = changed.devices.borrow_mut();
            if unlisted.get(&device).is_some_and(|(last, _)| *last == stamp) {
                unlisted.remove(&device);
            }
        }
        result.and(changed.failed.take().map_or(Ok(()), |cause| Err(self.sync_has_failed(cause))))
    }

    /// Syncs `place`, or its device, unless that is one of `devices`, which were synced before.
    async fn sync_listed(&self, place: &File, devices: &mut Vec<u64>) -> FsResult<()> {
        if is_synced_as_a_whole(place) {
            let device = Key::of(&sys::stat(&**place).map_err(sys::error)?).device;
            if !devices.contains(&device) {
                self.sync_whole(place).await?;
                devices.push(device);
            }
        } else if let Some(file) = self.open_if_there(place).map_err(sys::error)? {
            let synced = unless_gone(self.reactor.sync(&file.into(), true).await);
            synced.map_err(|cause| self.sync_has_failed(cause))?;
        }
        Ok(())
    }

    /// Syncs the file system of `place`.
    async fn sync_whole(&self, place: &File) -> FsResult<()> {
        let file = self.open_if_there(place).map_err(sys::error)?;
        let sync = move || match file {
            Some(file) => rustix::fs::syncfs(file),
            None => {
                rustix::fs::sync();
                Ok(())
            }
        };
        self.reactor.blocking(sync).await.map_err(|cause| self.sync_has_failed(cause))
    }

    /// As [`HostDir::open_to_sync`], also `None` for what is gone.
    fn open_if_there(&self, place: &File) -> Result<Option<OwnedFd>, Errno> {
        match self.open_to_sync(place) {
            Err(Errno::NOENT | Errno::STALE) => Ok(None),
            result => result,
        }
    }

    /// Whether something below may be other than a file system of the kernel with storage of its own.
    pub(super) fn names_may_part(&self) -> bool {
        self.changed.is_some()
    }

    /// Whether `place` is on an overlay.
    pub(super) fn is_overlay(&self, place: &File) -> bool {
        rustix::fs::fstatfs(&**place).is_ok_and(|host| host.f_type == OVERLAY)
    }

    /// Whether the kernel may write to `file` without a word to us: a sync of the root's file system includes it.
    pub(super) fn may_pass_through(&self, file: &File) -> bool {
        let is_of_root =
            || sys::stat(&**file).is_ok_and(|stat| Key::of(&stat).device == self.inodes.host_root().key.device);
        self.changed.is_none() || is_synced_as_a_whole(file) && is_of_root()
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
