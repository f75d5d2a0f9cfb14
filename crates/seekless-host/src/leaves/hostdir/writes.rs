//! What an open file has written, for [`late_errors`](super::late_errors).

use std::cell::{Cell, OnceCell};

#[cfg(test)]
use rustix::io::Errno;
use seekless::rt::Gate;

/// What an open file has written.
#[derive(Default)]
pub(super) struct Writes {
    /// Number of its last write, among those of all files; 0 before the first.
    pub(super) last: Cell<u64>,
    /// Whether the host may tell it an error that no other open file gets; found out at its first write.
    pub(super) gets_errors_alone: OnceCell<bool>,
    /// One sync or close at a time: its error is recorded before the next one begins.
    pub(super) syncing: Gate,
    /// Number of the last error that a sync through it has returned.
    pub(super) told: Cell<u64>,
    /// A double of a host: the error that it tells this open file next, once.
    #[cfg(test)]
    pub(super) refused: Cell<Option<Errno>>,
}
