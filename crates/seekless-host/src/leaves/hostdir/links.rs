//! Files whose identity depends on their name: where hard links are not what they seem.
//!
//! * An overlay shows two names of a file in its lower directory as one inode, until one of them is changed: then that name gets a copy
//!   of its own, with another number. So before the first change through a place, the place is opened for writing, which makes that
//!   copy, and the number is compared. If it changed and the inode was found under several names, it is unknown which of them the caller
//!   means: the inode is `Stale`, and the kernel looks the name up again. A rename copies, too, and so does a change of attributes; a name
//!   that is gone cannot be copied. Readers keep the inode, by a name that is still the lower file.
//! * libfuse gives each name of a file an inode of the kernel, with attributes that are kept for a while: they are asked for again.
//! * sshfs, and libfuse without `use_ino`, also give each name a number of its own. A link there would be two files here, with one
//!   content below, so it is refused.
//!
//! None of this concerns file systems that the kernel syncs as a whole: they have one inode for a file, with one number.

use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use seekless::fs::{Entry, FileKind, FsError, FsResult};
use seekless::units::Ino;

use super::changed::is_synced_as_a_whole;
use super::{HostDir, sys};

impl HostDir {
    /// Before a change of `ino` through its place: makes sure that the place is what `ino` denotes, and remains so.
    pub(super) fn settle(&self, ino: Ino) -> FsResult<()> {
        if !self.names_may_part() {
            return Ok(());
        }
        let place = self.inodes.file(ino)?;
        let stat = sys::stat(&*place).map_err(sys::error)?;
        let is_regular = sys::kind(&stat)? == FileKind::Regular;
        if !is_regular || stat.stx_nlink < 2 && !self.is_overlay(&place) || is_synced_as_a_whole(&place) {
            return Ok(());
        }
        match self.open_place_of(ino, OFlags::WRONLY) {
            Ok(opened) => self.settled(ino, &opened),
            // The change itself may be permitted; it has no data.
            Err(Errno::ACCESS | Errno::PERM | Errno::TXTBSY) if !self.inodes.has_names(ino) => Ok(()),
            Err(Errno::ACCESS | Errno::PERM) => {
                self.inodes.lose(ino);
                Err(FsError::Stale)
            }
            Err(errno) => Err(sys::error(errno)),
        }
    }

    /// Opens the place of `ino`, or that of another of its names if that one is gone: an overlay does not copy what has no name.
    pub(super) fn open_place_of(&self, ino: Ino, flags: OFlags) -> Result<OwnedFd, Errno> {
        if flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC) {
            self.end_leases(ino);
        }
        let open = || {
            let place = self.inodes.file(ino).map_err(|error| match error {
                FsError::Host(code) => Errno::from_raw_os_error(code),
                _ => Errno::STALE,
            })?;
            self.inodes.with_room(|| self.inodes.host_root().reopen(&place, flags))
        };
        match open() {
            Err(Errno::EXIST | Errno::NOENT) if self.names_may_part() => {
                self.inodes.part(ino);
                open()
            }
            opened => opened,
        }
    }

    /// `ino` was renamed, or changed by its place.
    pub(super) fn settle_after(&self, ino: Ino) {
        if self.names_may_part()
            && let Ok(place) = self.inodes.file(ino)
            && self.is_overlay(&place)
            && let Ok(stat) = sys::stat(&*place)
        {
            // What is stale then is looked up again.
            let _ = self.inodes.take_identity(ino, &stat);
        }
    }

    /// `ino` has been opened for writing as `opened`.
    pub(super) fn settled(&self, ino: Ino, opened: &OwnedFd) -> FsResult<()> {
        match self.names_may_part() {
            true => self.inodes.take_identity(ino, &sys::stat(opened).map_err(sys::error)?),
            false => Ok(()),
        }
    }

    /// The attributes of `place`, which are `stat` as far as the kernel knows.
    pub(super) fn fresh(&self, place: &OwnedFd, stat: Statx) -> FsResult<Statx> {
        if !self.names_may_part() || stat.stx_nlink < 2 || sys::kind(&stat)? != FileKind::Regular {
            return Ok(stat);
        }
        sys::stat_again(place).map_err(sys::error)
    }

    /// A new link of `ino` was found as `entry`, by `name`: fails when it is not the same file. Where names part, it is removed then;
    /// elsewhere another program has moved a file of its own there.
    pub(super) fn check_link(&self, ino: Ino, entry: Entry, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        if entry.attr.ino == ino {
            return Ok(entry);
        }
        let is_ours = self.names_may_part() && self.inodes.find(parent, name) == Some(entry.attr.ino);
        self.forget_lookups(entry.attr.ino, 1);
        if !is_ours {
            return Err(FsError::Stale);
        }
        let directory = self.inodes.file(parent)?;
        rustix::fs::unlinkat(&*directory, name, rustix::fs::AtFlags::empty()).map_err(sys::error)?;
        Err(FsError::NotPermitted)
    }
}
