//! Makes new files belong to whoever asked for them.
//!
//! A file that is created and then given away belongs to the wrong user in between, with set-user-id if that was
//! asked for; after a crash it stays so; and what is given away by name may not be what was created. So the engine
//! thread takes on the user's file-system uid and gid for the one call that creates, and keeps its capabilities:
//! permission has been checked above, with the user's supplementary groups, which are not known here.
//!
//! The uid and gid are those of the thread alone (setfsuid(2)), so is the umask, which becomes the user's as well, and
//! nothing is awaited in between. A side effect of the kernel: a process that does this is not dumped when it crashes.

use std::marker::PhantomData;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::CapabilitySets;
use seekless::fs::{FsError, FsResult, NewNode};

/// Who the process is, and whether it can act for others.
pub(super) struct Owner {
    uid: u32,
    gid: u32,
    /// `None` where the process may not act for others, and new files belong to itself.
    capabilities: Option<CapabilitySets>,
}

/// While it lives, what the thread creates belongs to somebody, and the umask is somebody's.
pub(super) struct Acting<'a> {
    /// `None` when nothing had to change.
    back_to: Option<&'a Owner>,
    umask: Mode,
    /// It must end on the thread that it began on.
    _thread: PhantomData<*const ()>,
}

/// A uid that no user has: setting it fails, and tells the present one.
const NOBODY_AT_ALL: u32 = u32::MAX;

fn set_uid(uid: u32) {
    // SAFETY: the call changes one number of the calling thread.
    unsafe { libc::setfsuid(uid) };
}

fn set_gid(gid: u32) {
    // SAFETY: as above.
    unsafe { libc::setfsgid(gid) };
}

/// The present file-system uid and gid of the thread.
fn present() -> (u32, u32) {
    // SAFETY: as above; with an invalid id the calls change nothing.
    unsafe { (libc::setfsuid(NOBODY_AT_ALL) as u32, libc::setfsgid(NOBODY_AT_ALL) as u32) }
}

impl Owner {
    /// To be called on the thread that will act.
    pub(super) fn find_out() -> Owner {
        // Threads of a process share the umask, and a file that another one creates while this one acts would be
        // open to everybody. Where it is not allowed (some containers), that is as it is.
        // SAFETY: the call gives the thread its own umask, working directory and root, equal to what they were.
        let _ = unsafe { libc::unshare(libc::CLONE_FS) };
        let (uid, gid) = present();
        // Somebody else's id, tried and given back.
        let other = uid ^ 1;
        set_gid(other);
        set_uid(other);
        let able = present() == (other, other);
        set_uid(uid);
        set_gid(gid);
        let capabilities = if able { rustix::thread::capabilities(None).ok() } else { None };
        Owner { uid, gid, capabilities }
    }

    pub(super) fn can_act_for_others(&self) -> bool {
        self.capabilities.is_some()
    }

    /// Acts for who makes `new` until the result is dropped. A umask that the kernel above has applied already changes
    /// nothing; otherwise it is for the host to say whether a default access list takes its place.
    ///
    /// # Errors
    /// `Host(EINVAL)` for ids that do not exist in the process's user namespace.
    pub(super) fn act_for(&self, new: NewNode) -> FsResult<Acting<'_>> {
        let NewNode { uid, gid, .. } = new;
        let umask = rustix::process::umask(Mode::from_raw_mode(u32::from(new.umask & 0o777)));
        let mut acting = Acting { back_to: None, umask, _thread: PhantomData };
        let Some(capabilities) = self.capabilities.filter(|_| (uid, gid) != (self.uid, self.gid)) else {
            return Ok(acting);
        };
        acting.back_to = Some(self);
        set_gid(gid);
        set_uid(uid);
        if present() != (uid, gid) {
            return Err(FsError::Host(Errno::INVAL.raw_os_error()));
        }
        // Another uid than root's costs the capabilities over files; they are still permitted, and come back.
        rustix::thread::set_capabilities(None, capabilities).map_err(super::sys::error)?;
        Ok(acting)
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        rustix::process::umask(self.umask);
        if let Some(owner) = self.back_to {
            set_uid(owner.uid);
            set_gid(owner.gid);
            // Files of somebody else's from here on would be worse than an end.
            assert_eq!(present(), (owner.uid, owner.gid), "the thread is itself again");
        }
    }
}
