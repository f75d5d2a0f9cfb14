//! Whether other programs can write to a file, found out with a lease.
//!
//! `F_SETLEASE` with `F_RDLCK` (`fcntl(2)`) is refused with `EAGAIN` as long as the kernel counts a writer: a file description that is open for
//! writing, a shared mapping of one, closed or not, and so the image of a writable loop device, mounted or not. While the lease is held, an
//! `open` for writing waits until it is given up, and shows as a lease that is being broken.
//!
//! Leases need the owner of the file or `CAP_LEASE`, and a file system that has them: NFS and many FUSE file systems do not.

use rustix::io::Errno;
use seekless::fs::{FsError, FsResult, Handle, Writers};
use seekless::units::Ino;

use super::{HostDir, sys};

/// The lease on an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Lease {
    #[default]
    None,
    Held,
    /// It was held, and a writer came.
    Broken,
}

impl HostDir {
    /// See [`FileSystem::other_writers`](seekless::fs::FileSystem::other_writers).
    pub(super) fn writers_of(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Writers> {
        // A lease ends with the file that is open.
        let opened = self.opened(ino, handle.ok_or(FsError::BadHandle)?)?;
        match opened.lease.get() {
            Lease::Broken => return Ok(Writers::Some),
            Lease::Held if sys::has_read_lease(&*opened.file) => return Ok(Writers::None),
            Lease::Held => {
                opened.lease.set(Lease::Broken);
                self.leased.set(self.leased.get() - 1);
                return Ok(Writers::Some);
            }
            Lease::None => {}
        }
        match sys::take_read_lease(&*opened.file) {
            Ok(()) => {
                opened.lease.set(Lease::Held);
                self.leased.set(self.leased.get() + 1);
                Ok(Writers::None)
            }
            Err(Errno::AGAIN) => Ok(Writers::Some),
            Err(_) => Ok(Writers::Unknown),
        }
    }

    /// This process is about to open `ino` for writing, and must not wait for itself: gives up its leases there.
    pub(super) fn end_leases(&self, ino: Ino) {
        if self.leased.get() == 0 {
            return;
        }
        for opened in self.handles.borrow().values() {
            if opened.ino == ino && opened.lease.get() == Lease::Held {
                opened.lease.set(Lease::Broken);
                self.leased.set(self.leased.get() - 1);
                sys::end_lease(&*opened.file);
            }
        }
    }

    /// `opened` is about to be closed.
    pub(super) fn lease_ends(&self, lease: Lease) {
        if lease == Lease::Held {
            self.leased.set(self.leased.get() - 1);
        }
    }
}
