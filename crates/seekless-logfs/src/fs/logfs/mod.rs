//! What file systems that never write in place share, above their logs.
//!
//! Names, directories, files and attributes are synchronous steps on the volume in memory ([`state`]): `namespace`,
//! `file`, `xattr`, `dir`, through `change`. [`run`] repeats a step until everything it needs is in memory, and `ops`
//! implements [`crate::fs::FileSystem`] with such steps. The log knows how dirty data gets to the device, where the
//! inode map is, and which space is free; [`backend`] is this part's interface to it. `fs/lfs` has a log of
//! segments, `fs/vlfs` the virtual log.

pub(in crate::fs) mod backend;
mod block_map;
pub(in crate::fs) mod books;
pub(in crate::fs) mod cache;
pub(in crate::fs) mod change;
pub(in crate::fs) mod check;
pub(in crate::fs) mod demand;
pub mod dir;
pub(in crate::fs) mod dump_text;
mod enospc_retry;
pub(in crate::fs) mod file;
pub(in crate::fs) mod format;
pub(in crate::fs) mod group_commit;
mod in_memory;
mod leaf;
mod metadata_ahead;
mod namespace;
mod ops;
pub(in crate::fs) mod read_ahead;
pub(in crate::fs) mod run;
mod shared_buffers;
mod sorted_vec;
pub(in crate::fs) mod state;
#[cfg(test)]
pub(in crate::fs) mod tests;
pub(in crate::fs) mod tree;
pub(in crate::fs) mod volume_name;
mod windows;
pub mod xattr;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

pub(in crate::fs) use backend::LogBackend;
pub(in crate::fs) use state::LogTypes;
use state::State;

use crate::device::Device;
use crate::rt::{Event, Rt};

/// A mounted volume.
pub(in crate::fs) struct LogFs<L: LogBackend> {
    /// The handle that background tasks hold while they work.
    me: Weak<LogFs<L>>,
    pub rt: Rt,
    pub device: Device,
    pub state: RefCell<State<L>>,
    pub work: L::BackgroundWork,
    pub enospc_retry: enospc_retry::EnospcRetry,
    pub group_commit: group_commit::GroupCommit,
    /// Signalled when something has reached the device, or when the volume has stopped.
    pub log_progress: Event,
    /// Signalled when a task that reads ahead has ended.
    read_ahead_ended: Event,
    /// Signalled when there is enough to write back.
    pub write_back_wanted: Rc<Event>,
    pub closed: Cell<bool>,
    /// Counts users' requests: idle work checks whether there are new ones.
    pub operations: Cell<u64>,
    /// Warnings for the user about the volume, one line each.
    pub warnings: RefCell<Vec<String>>,
}

impl<L: LogBackend> LogFs<L> {
    pub(in crate::fs) fn new(rt: Rt, device: Device, state: State<L>, work: L::BackgroundWork) -> Rc<LogFs<L>> {
        Rc::new_cyclic(|me| LogFs {
            me: me.clone(),
            operations: Cell::new(0),
            rt,
            device,
            state: RefCell::new(state),
            work,
            enospc_retry: enospc_retry::EnospcRetry::default(),
            group_commit: group_commit::GroupCommit::default(),
            log_progress: Event::new(),
            read_ahead_ended: Event::new(),
            write_back_wanted: Rc::default(),
            closed: Cell::new(false),
            warnings: RefCell::default(),
        })
    }

    /// The shared handle, for tasks.
    pub(in crate::fs) fn this(&self) -> Rc<LogFs<L>> {
        match self.me.upgrade() {
            Some(me) => me,
            None => unreachable!("a volume lives in the handle that mount returned"),
        }
    }

    pub(in crate::fs) fn warn(&self, text: String) {
        self.warnings.borrow_mut().push(text);
    }
}
