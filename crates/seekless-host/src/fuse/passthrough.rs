//! Files that the kernel reads and writes without us (`FUSE_PASSTHROUGH`, Linux 6.9).
//!
//! Where an open file of a mount is stored as it is in a file of the host, the kernel can read and write that file itself:
//! the reply to OPEN names it, and READ, WRITE and page faults send no messages any more. Everything else still does. It
//! is for daemons with `CAP_SYS_ADMIN`, and not for mounts with a write-back cache.
//!
//! Rules
//!   P1  All users of an inode at one time have it in the same way, past us or through us: the kernel refuses a mixture.
//!       So the first open decides, until the last release.
//!   P2  What is written past us is written with the rights of this daemon, without the one to leave set-user-id and set-group-id
//!       bits as they are (`CAP_FSETID`): the host clears them, also when root writes. A file with privileges is therefore served by
//!       messages, so that it keeps them when root writes; one that the kernel already has may not get
//!       them while a user other than root and its owner can write it, nor be opened for writing by others once it
//!       has them: `ETXTBSY`. An open file may be another user's by then, which nothing tells us.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seekless::fs::without_privileges;
use seekless::units::{FixedMap, Ino};

use crate::reactor::File;

/// Who opens a file, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opener {
    pub(super) uid: u32,
    pub(super) writes: bool,
}

/// Owner and privileges of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Privileges {
    pub(super) owner: u32,
    pub(super) permissions: u16,
    /// It has capabilities (`security.capability`).
    pub(super) capabilities: bool,
}

impl Privileges {
    /// Whether a write by another user would have to take something away.
    fn has_some(&self) -> bool {
        self.capabilities || without_privileges(self.permissions) != self.permissions
    }

    fn may_write(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner || !self.has_some()
    }
}

/// How an inode in use is read and written.
enum Way {
    /// By the kernel, which knows the host's file under this number.
    Kernel {
        backing: i32,
    },
    Messages,
}

struct Used {
    way: Way,
    opens: u64,
    /// Users who have opened it for writing since its first open.
    writers: Vec<u32>,
}

/// Which inodes of a mount the kernel reads and writes itself.
pub(super) struct Passthrough {
    /// `/dev/fuse`, with the mount.
    device: File,
    used: RefCell<FixedMap<Ino, Used>>,
    /// The kernel has refused in a way that will not change.
    refused: Cell<bool>,
}

/// What P2 forbids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refused;

/// The answer to it.
pub(super) const REFUSAL: i32 = libc::ETXTBSY;

impl Passthrough {
    pub(super) fn new(device: File) -> Passthrough {
        Passthrough { device, used: RefCell::default(), refused: Cell::new(false) }
    }

    /// Counts an open of `ino`, and returns the number under which the kernel has the host's `file`, when it is to read
    /// and write that.
    ///
    /// # Errors
    /// [`Refused`]; then nothing is counted.
    pub(super) fn open(
        &self,
        ino: Ino,
        opener: Opener,
        privileges: Privileges,
        file: Option<Box<dyn Any>>,
    ) -> Result<Option<i32>, Refused> {
        let mut all = self.used.borrow_mut();
        let used = all.entry(ino).or_insert_with(|| {
            let file = file.filter(|_| !privileges.has_some()).and_then(|file| file.downcast::<File>().ok());
            let way = match file.and_then(|file| self.register(&file)) {
                Some(backing) => Way::Kernel { backing },
                None => Way::Messages,
            };
            Used { way, opens: 0, writers: Vec::new() }
        });
        let backing = match used.way {
            Way::Kernel { .. } if opener.writes && !privileges.may_write(opener.uid) => return Err(Refused),
            Way::Kernel { backing } => Some(backing),
            Way::Messages => None,
        };
        used.opens += 1;
        if opener.writes && !used.writers.contains(&opener.uid) {
            used.writers.push(opener.uid);
        }
        Ok(backing)
    }

    /// Ends a use that [`Passthrough::open`] has counted.
    pub(super) fn release(&self, ino: Ino) {
        let mut all = self.used.borrow_mut();
        let Some(used) = all.get_mut(&ino) else { return };
        used.opens = used.opens.saturating_sub(1);
        if used.opens == 0
            && let Some(Used { way: Way::Kernel { backing }, .. }) = all.remove(&ino)
        {
            // The kernel keeps the host's file as long as an open file needs it.
            close_backing(&self.device, backing);
        }
    }

    /// Whether a file may get these privileges now (P2).
    pub(super) fn may_get(&self, ino: Ino, privileges: Privileges) -> bool {
        match self.used.borrow().get(&ino) {
            Some(Used { way: Way::Kernel { .. }, writers, .. }) => {
                writers.iter().all(|&writer| privileges.may_write(writer))
            }
            _ => true,
        }
    }

    /// Whether the kernel may be writing files of this mount itself.
    pub(super) fn has_writers(&self) -> bool {
        let used = self.used.borrow();
        used.values().any(|used| matches!(used.way, Way::Kernel { .. }) && !used.writers.is_empty())
    }

    fn register(&self, file: &OwnedFd) -> Option<i32> {
        if self.refused.get() {
            return None;
        }
        match open_backing(&self.device, file) {
            Ok(backing) => Some(backing),
            Err(error) => {
                // Not allowed, or on a file system that is stacked itself: the next file would meet the same.
                let for_good = matches!(error, Errno::PERM | Errno::LOOP | Errno::OPNOTSUPP | Errno::NOTTY);
                if for_good {
                    log::info!("the kernel does not read and write files of this mount itself: {error}");
                }
                self.refused.set(for_good);
                None
            }
        }
    }
}

/// `fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

const _: () = assert!(size_of::<BackingMap>() == 16);

/// `FUSE_DEV_IOC_BACKING_OPEN`: `_IOW(229, 1, struct fuse_backing_map)`.
const BACKING_OPEN: libc::Ioctl = 0x4010_e501;

/// `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW(229, 2, uint32_t)`.
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502;

/// Makes `file` known to the connection. Returns its number, which is positive.
fn open_backing(device: &OwnedFd, file: &OwnedFd) -> Result<i32, Errno> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // The kernel keeps the rights that this thread has now, and uses the file with them.
    let rights = capabilities(None)?;
    set_capabilities(None, CapabilitySets { effective: rights.effective - CapabilitySet::FSETID, ..rights })?;
    // SAFETY: the call reads the structure, whose size its number states, and writes nothing.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_OPEN, &raw const map) };
    let opened = if answer > 0 { Ok(answer) } else { Err(last_error()) };
    if let Err(error) = set_capabilities(None, rights) {
        log::warn!("this daemon can no longer keep set-user-id bits: {error}");
    }
    opened
}

fn close_backing(device: &OwnedFd, backing: i32) {
    // SAFETY: the call reads a 32-bit integer, as its number states, and writes nothing.
    let answer = unsafe { libc::ioctl(device.as_raw_fd(), BACKING_CLOSE, &raw const backing) };
    if answer != 0 {
        log::debug!("the kernel did not release file {backing}: {}", last_error());
    }
}

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Privileges = Privileges { owner: 10, permissions: 0o666, capabilities: false };
    const SET_USER_ID: Privileges = Privileges { permissions: 0o4755, ..PLAIN };
    const FILE: Ino = Ino(7);

    /// A connection in which the kernel has the file already, with these writers.
    fn with_kernel(writers: &[u32]) -> Passthrough {
        let device = std::fs::File::open("/dev/null").expect("it is always there");
        let passthrough = Passthrough::new(std::sync::Arc::new(device.into()));
        let used = Used { way: Way::Kernel { backing: 3 }, opens: 1, writers: writers.to_vec() };
        passthrough.used.borrow_mut().insert(FILE, used);
        passthrough
    }

    /// P1: what cannot be registered is served by messages, and stays so until its last release.
    #[test]
    fn the_first_open_decides() {
        let device: File = std::sync::Arc::new(std::fs::File::open("/dev/null").unwrap().into());
        let passthrough = Passthrough::new(device.clone());
        let reads = Opener { uid: 10, writes: false };
        assert_eq!(passthrough.open(FILE, reads, PLAIN, Some(Box::new(device.clone()))), Ok(None));
        assert!(passthrough.refused.get(), "/dev/null is no connection, and will not become one");
        assert_eq!(passthrough.open(FILE, reads, PLAIN, Some(Box::new(device))), Ok(None));
        passthrough.release(FILE);
        assert_eq!(passthrough.used.borrow().len(), 1);
        passthrough.release(FILE);
        passthrough.release(FILE);
        assert!(passthrough.used.borrow().is_empty());
        assert_eq!(
            with_kernel(&[]).open(FILE, reads, PLAIN, None),
            Ok(Some(3)),
            "a second user has it in the same way"
        );
    }

    /// P2, in both orders: privileges and then a writer, a writer and then privileges.
    #[test]
    fn no_other_process_writes_a_file_with_privileges() {
        let writes = |uid| Opener { uid, writes: true };
        for (uid, allowed) in [(0, true), (10, true), (11, false)] {
            let opened = with_kernel(&[]).open(FILE, writes(uid), SET_USER_ID, None);
            assert_eq!(opened, if allowed { Ok(Some(3)) } else { Err(Refused) }, "{uid}");
            assert_eq!(with_kernel(&[uid]).may_get(FILE, SET_USER_ID), allowed, "{uid}");
            assert!(with_kernel(&[uid]).may_get(FILE, PLAIN), "{uid}");
            let capabilities = Privileges { capabilities: true, ..PLAIN };
            assert_eq!(with_kernel(&[uid]).may_get(FILE, capabilities), allowed, "{uid}");
        }
        assert!(with_kernel(&[11]).may_get(Ino(8), SET_USER_ID), "another file");
        assert_eq!(with_kernel(&[]).open(FILE, Opener { uid: 11, writes: false }, SET_USER_ID, None), Ok(Some(3)));
    }
}
