//! Open files whose data does not go through the kernel's page cache: with `FOPEN_DIRECT_IO`, or opened with `O_DIRECT`.
//!
//! * After a write with `O_SYNC`, `O_DSYNC` or `RWF_DSYNC` the kernel sends an FSYNC, but not to files with `FOPEN_DIRECT_IO`
//!   (`fuse_direct_write_iter`): that is left to the server.
//! * After an asynchronous write (libaio, io_uring) that fails, the kernel cuts the file to the size that it knows
//!   (`fuse_direct_IO`, `fuse_do_truncate`). Where others change files too, it may have learned that size before they
//!   appended. It does not look at the answer, so the cut is refused. The request looks like that of an `ftruncate`: a program that
//!   makes one just after a failed write gets `EINTR`, and succeeds the second time.

use std::cell::RefCell;
use std::collections::BTreeMap;

use seekless::fs::{Handle, OpenFlags};

use super::abi;

/// What a program demands of a write before it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Durable {
    Later,
    /// The data, as after `fdatasync`.
    Data,
    /// And all attributes, as after `fsync`.
    Everything,
}

impl Durable {
    /// Of a WRITE with these flags of open(2); those of the call itself, such as `RWF_DSYNC`, are among them.
    pub(super) fn of(flags: u32) -> Durable {
        let flags = flags as i32;
        match flags {
            _ if flags & libc::O_SYNC == libc::O_SYNC => Durable::Everything,
            _ if flags & libc::O_DSYNC != 0 => Durable::Data,
            _ => Durable::Later,
        }
    }
}

/// An open file that can be written to past the cache.
#[derive(Clone, Copy)]
struct Open {
    /// All data of this handle goes past the cache, and not only that of writes with `O_DIRECT`.
    always: bool,
    /// A write has failed since, and the kernel may cut the file.
    has_failed: bool,
}

#[derive(Default)]
pub(super) struct PastCache {
    handles: RefCell<BTreeMap<Handle, Open>>,
}

impl PastCache {
    /// Notes how an open is answered.
    pub(super) fn open(&self, handle: Option<Handle>, flags: OpenFlags, out: &abi::OpenOut) {
        let Some(handle) = handle else { return };
        let always = out.open_flags & abi::FOPEN_DIRECT_IO != 0;
        let is_passed = out.open_flags & abi::FOPEN_PASSTHROUGH != 0;
        if (always || flags.direct) && !is_passed {
            self.handles.borrow_mut().insert(handle, Open { always, has_failed: false });
        }
    }

    pub(super) fn release(&self, handle: Handle) {
        self.handles.borrow_mut().remove(&handle);
    }

    /// Whether the kernel sends no FSYNC after synchronous writes.
    pub(super) fn has(&self, handle: Option<Handle>) -> bool {
        handle.is_some_and(|handle| self.handles.borrow().get(&handle).is_some_and(|open| open.always))
    }

    /// A write through this handle has failed.
    pub(super) fn failed(&self, handle: Option<Handle>) {
        let mut handles = self.handles.borrow_mut();
        if let Some(open) = handle.and_then(|handle| handles.get_mut(&handle)) {
            open.has_failed = true;
        }
    }

    /// Whether a change of size through this handle, for which the thread `pid` waits, may be the kernel's cut: true once after
    /// a write has failed, and where the thread is in a call that sets no size.
    pub(super) fn may_be_cut(&self, handle: Option<Handle>, pid: u32) -> bool {
        let mut handles = self.handles.borrow_mut();
        let Some(open) = handle.and_then(|handle| handles.get_mut(&handle)) else { return false };
        std::mem::take(&mut open.has_failed) || is_in_io_submit(pid)
    }
}

/// Whether a thread is seen to be in `io_submit`, which writes and sets no size. A write whose data cannot be read from the program's
/// memory fails there before there is a request for it. The system may not show this of another user's threads.
fn is_in_io_submit(pid: u32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    text.split_whitespace().next().and_then(|number| number.parse().ok()) == Some(libc::SYS_io_submit)
}
