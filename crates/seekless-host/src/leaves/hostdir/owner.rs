//! Makes new files belong to the user who asked for them.
//!
//! A file that is created and then given away belongs to the wrong user in between, with set-user-id if requested; a
//! crash makes that permanent; and a file given away by name may not be the one created. So the engine thread takes on
//! the user's file-system uid and gid for the one call that creates, and keeps its capabilities: permission has been
//! checked above, with the user's supplementary groups, which are unknown here.
//!
//! The uid and gid are those of the thread alone (setfsuid(2)), and so is the umask, which becomes the user's as well;
//! nothing is awaited in between. A side effect in the kernel: a process that does this does not dump core.

use std::marker::PhantomData;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::CapabilitySets;
use seekless::fs::{FsError, FsResult, NewNode};

/// The process's own credentials, and whether it can act for other users.
pub(super) struct Owner {
    uid: u32,
    gid: u32,
    /// `None` where the process may not act for other users; new files then belong to its own user.
    capabilities: Option<CapabilitySets>,
}

/// While it lives, files created by the thread belong to the given user, and the umask is that user's.
pub(super) struct ScopedCredentials<'a> {
    /// `None` when nothing had to change.
    back_to: Option<&'a Owner>,
    umask: Mode,
    /// It must be dropped on the thread that made it.
    _thread: PhantomData<*const ()>,
}

/// A uid that no user has: setting it fails, and returns the current one.
const NOBODY_AT_ALL: u32 = u32::MAX;

fn set_uid(uid: u32) {
    // SAFETY: the call changes one number of the calling thread.
    unsafe { libc::setfsuid(uid) };
}

fn set_gid(gid: u32) {
    // SAFETY: as above.
    unsafe { libc::setfsgid(gid) };
}

/// The current file-system uid and gid of the thread.
fn present() -> (u32, u32) {
    // SAFETY: as above; with an invalid id the calls change nothing.
    unsafe { (libc::setfsuid(NOBODY_AT_ALL) as u32, libc::setfsgid(NOBODY_AT_ALL) as u32) }
}

impl Owner {
    /// Must be called on the thread that will act.
    pub(super) fn find_out() -> Owner {
        // Threads of a process share the umask, and a file that another thread creates while this one acts would be
        // open to all users. Where unsharing is not allowed (some containers), that risk remains. SAFETY: the call
        // gives the thread its own umask, working directory and root, equal to the old ones.
        let _ = unsafe { libc::unshare(libc::CLONE_FS) };
        let (uid, gid) = present();
        // Another user's id, tried and given back.
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

    /// Acts for the creator of `new` until the result is dropped. A umask that the kernel above has already applied has
    /// no further effect; otherwise the host decides whether a default access list replaces it.
    ///
    /// # Errors
    /// `Host(EINVAL)` for ids that do not exist in the process's user namespace.
    pub(super) fn act_for(&self, new: NewNode) -> FsResult<ScopedCredentials<'_>> {
        let NewNode { uid, gid, .. } = new;
        let umask = rustix::process::umask(Mode::from_raw_mode(u32::from(new.umask & 0o777)));
        let mut credentials = ScopedCredentials { back_to: None, umask, _thread: PhantomData };
        let Some(capabilities) = self.capabilities.filter(|_| (uid, gid) != (self.uid, self.gid)) else {
            return Ok(credentials);
        };
        credentials.back_to = Some(self);
        set_gid(gid);
        set_uid(uid);
        if present() != (uid, gid) {
            return Err(FsError::Host(Errno::INVAL.raw_os_error()));
        }
        // A uid other than root's drops the capabilities over files; they are still permitted, and are restored.
        rustix::thread::set_capabilities(None, capabilities).map_err(super::sys::error)?;
        Ok(credentials)
    }
}

impl Drop for ScopedCredentials<'_> {
    fn drop(&mut self) {
        rustix::process::umask(self.umask);
        if let Some(owner) = self.back_to {
            set_uid(owner.uid);
            set_gid(owner.gid);
            // Creating files as the wrong user from here on would be worse than a panic.
            assert_eq!(present(), (owner.uid, owner.gid), "the thread is itself again");
        }
    }
}
