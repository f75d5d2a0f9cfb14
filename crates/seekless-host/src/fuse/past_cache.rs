//! Open files whose data does not go through the kernel's page cache (`FOPEN_DIRECT_IO`). After a write with `O_SYNC`, `O_DSYNC` or
//! `RWF_DSYNC` to any other file, the kernel sends an FSYNC; after one to these it does not (`fuse_direct_write_iter`), and leaves
//! it to the server.

use std::cell::RefCell;
use std::collections::BTreeSet;

use seekless::fs::Handle;

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

#[derive(Default)]
pub(super) struct PastCache {
    handles: RefCell<BTreeSet<Handle>>,
}

impl PastCache {
    /// Notes how an open is answered.
    pub(super) fn open(&self, handle: Option<Handle>, out: &abi::OpenOut) {
        if let Some(handle) = handle.filter(|_| out.open_flags & abi::FOPEN_DIRECT_IO != 0) {
            self.handles.borrow_mut().insert(handle);
        }
    }

    pub(super) fn release(&self, handle: Handle) {
        self.handles.borrow_mut().remove(&handle);
    }

    pub(super) fn has(&self, handle: Option<Handle>) -> bool {
        handle.is_some_and(|handle| self.handles.borrow().contains(&handle))
    }
}
