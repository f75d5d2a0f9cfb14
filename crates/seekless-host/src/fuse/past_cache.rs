//! Open files whose data does not go through the kernel's page cache (`FOPEN_DIRECT_IO`). After a write with `O_SYNC`, `O_DSYNC` or
//! `RWF_DSYNC` to any other file, the kernel sends an FSYNC; after one to these it does not (`fuse_direct_write_iter`), and leaves
//! it to the server.

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

/// How a file is open.
#[derive(Clone, Copy)]
struct Way {
    past_cache: bool,
    /// It can be written to past the cache, if only by requests with `O_DIRECT`.
    may_be_cut: bool,
}

#[derive(Default)]
pub(super) struct PastCache {
    handles: RefCell<BTreeMap<Handle, Way>>,
}

impl PastCache {
    /// Notes how an open is answered.
    pub(super) fn open(&self, handle: Option<Handle>, flags: OpenFlags, out: &abi::OpenOut) {
        let past_cache = out.open_flags & abi::FOPEN_DIRECT_IO != 0;
        let is_passed = out.open_flags & abi::FOPEN_PASSTHROUGH != 0;
        let may_be_cut = flags.write && (past_cache || flags.direct) && !is_passed;
        if let Some(handle) = handle.filter(|_| past_cache || may_be_cut) {
            self.handles.borrow_mut().insert(handle, Way { past_cache, may_be_cut });
        }
    }

    pub(super) fn release(&self, handle: Handle) {
        self.handles.borrow_mut().remove(&handle);
    }

    fn way(&self, handle: Option<Handle>) -> Option<Way> {
        self.handles.borrow().get(&handle?).copied()
    }

    /// Whether no data of this open file goes through the cache.
    pub(super) fn has(&self, handle: Option<Handle>) -> bool {
        self.way(handle).is_some_and(|way| way.past_cache)
    }

    /// Whether the kernel cuts the file back after a write that fails.
    pub(super) fn may_be_cut(&self, handle: Option<Handle>) -> bool {
        self.way(handle).is_some_and(|way| way.may_be_cut)
    }
}
