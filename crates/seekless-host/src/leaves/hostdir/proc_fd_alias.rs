//! The one number under which inodes are found in `/proc/self/fd`.
//!
//! Inodes are kept open with `O_PATH`, and many calls take a path instead of a descriptor, or refuse such descriptors.
//! For those calls an inode is named by its number in `/proc/self/fd`. The kernel keeps an entry for every number that
//! is looked up, and making one takes several times as long as the call itself; with thousands of open inodes, nearly
//! every call would make one. So inodes are put on one number in turn, for the duration of a call.
//!
//! Invariants
//!   N1  Between calls the root is on the number, so that no file is kept open longer than it is used.
//!   N2  The number belongs to the engine thread alone, which uses it within one synchronous call.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{DupFlags, Errno};
use rustix::path::Arg;

use super::sys;
use crate::reactor::File;

/// The directory of a process's open files, by number.
const FOLDER: &CStr = c"/proc/self/fd";

/// See the head of the file.
pub(super) struct ProcFdAlias {
    /// `FOLDER`, opened.
    folder: OwnedFd,
    /// The file on the number.
    standing: RefCell<OwnedFd>,
    root: File,
    /// The number, as a name in `FOLDER`, and as a full path.
    name: CString,
    path: CString,
    /// True until the kernel turns out to lack `getxattrat(2)`.
    has_getxattrat: Cell<bool>,
}

impl ProcFdAlias {
    /// # Errors
    /// When there is no `/proc`, or no number left.
    pub(super) fn new(root: &File) -> Result<ProcFdAlias, Errno> {
        let place = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(FOLDER, place, Mode::empty())?;
        let standing = rustix::io::fcntl_dupfd_cloexec(&**root, 0)?;
        let name = standing.as_raw_fd().to_string();
        let path = format!("{}/{name}", FOLDER.to_string_lossy());
        let text = |text: String| CString::new(text).map_err(|_| Errno::INVAL);
        Ok(ProcFdAlias {
            folder,
            standing: RefCell::new(standing),
            root: root.clone(),
            name: text(name)?,
            path: text(path)?,
            has_getxattrat: Cell::new(true),
        })
    }

    /// Runs `call` with `file` on the number; `call` gets the opened folder and the name in it.
    pub(super) fn with<T>(
        &self,
        file: &OwnedFd,
        call: impl FnOnce(&OwnedFd, &CStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.standing_at(file, || call(&self.folder, &self.name))
    }

    /// As [`ProcFdAlias::with`], for calls that accept only a path.
    pub(super) fn with_path<T>(
        &self,
        file: &OwnedFd,
        call: impl FnOnce(&CStr) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.standing_at(file, || call(&self.path))
    }

    /// Reads the extended attribute `name` of `file` into `buffer`.
    pub(super) fn getxattr(&self, file: &OwnedFd, name: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
        if self.has_getxattrat.get() {
            let read = |key: &CStr| self.with(file, |folder, place| sys::getxattrat(folder, place, key, buffer));
            match name.into_with_c_str(read) {
                // The kernel is too old, or a seccomp filter does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => self.has_getxattrat.set(false),
                read => return read,
            }
        }
        self.with_path(file, |path| rustix::fs::getxattr(path, name, buffer))
    }

    fn standing_at<T>(&self, file: &OwnedFd, call: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let mut standing = self.standing.borrow_mut();
        rustix::io::dup3(file, &mut standing, DupFlags::CLOEXEC)?;
        let outcome = call();
        rustix::io::dup3(&*self.root, &mut standing, DupFlags::CLOEXEC)?;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn open(path: &std::path::Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    /// Each inode gives its own answer, also without `getxattrat(2)`, and none stays open afterwards.
    #[test]
    fn inodes_stand_at_one_number_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let alias = ProcFdAlias::new(&Arc::new(open(folder.path()))).unwrap();
        let attribute = "user.seekless.test";
        let files: Vec<_> = (0..3_u8)
            .map(|number| {
                let path = folder.path().join(number.to_string());
                std::fs::write(&path, [number]).unwrap();
                rustix::fs::setxattr(&path, attribute, &[number], rustix::fs::XattrFlags::CREATE).unwrap();
                open(&path)
            })
            .collect();
        for has_getxattrat in [true, false] {
            alias.has_getxattrat.set(has_getxattrat);
            for (number, file) in files.iter().enumerate() {
                let mut buffer = [0; 8];
                assert_eq!(alias.getxattr(file, attribute.as_bytes(), &mut buffer), Ok(1));
                assert_eq!(usize::from(buffer[0]), number);
                assert_eq!(alias.getxattr(file, b"user.none", &mut buffer), Err(Errno::NODATA));
                assert_eq!(alias.getxattr(file, b"user.\0", &mut buffer), Err(Errno::INVAL));
            }
        }
        let standing = std::fs::read_link(alias.path.to_str().unwrap()).unwrap();
        assert_eq!(standing, folder.path().canonicalize().unwrap());
    }
}
