//! What is known in memory about the log that has the map on the device.
//!
//! There are two such logs. Code for one of them has its state as a parameter, so that it cannot be called for the other.

use std::cell::RefCell;
use std::ops::Range;

use super::append::AppendLog;
use super::layout::Layout;
use super::transaction::{Garbage, Undecided};
use super::tree::Tree;

/// Limit of the changes that wait for a transaction: it bounds the pieces of a transaction and the time of a flush.
/// 8192 blocks of 4 KiB are 32 MiB.
const PENDING_MAX: usize = 8192;

/// The log of a map.
pub(super) enum MapState {
    Tree(RefCell<TreeLog>),
    Append(RefCell<AppendLog>),
}

/// The virtual log.
#[derive(Default)]
pub(super) struct TreeLog {
    pub(super) tree: Tree,
    /// The last sequence number assigned.
    pub(super) sequence: u64,
    /// Blocks in which tails may be, according to the anchor. `None`: the anchor must be written first.
    pub(super) window: Option<Range<u32>>,
    /// The log has no window, but the device may have an open anchor: the start has found one, or one whose write failed is
    /// there nevertheless (C6).
    pub(super) park_is_due: bool,
    pub(super) generation: u64,
    /// The start could read no anchor, so that there may be some with a higher generation.
    pub(super) are_anchors_lost: bool,
    /// The last transaction, when its tail found no space (C6).
    pub(super) undecided: Option<Undecided>,
}

impl From<TreeLog> for MapState {
    fn from(log: TreeLog) -> MapState {
        MapState::Tree(log.into())
    }
}

impl From<AppendLog> for MapState {
    fn from(log: AppendLog) -> MapState {
        MapState::Append(log.into())
    }
}

impl MapState {
    /// Limit of the changes that wait for a transaction.
    pub(super) fn pending_max(&self, layout: &Layout) -> usize {
        match self {
            MapState::Tree(_) => PENDING_MAX,
            MapState::Append(_) => AppendLog::pending_max(layout).min(PENDING_MAX),
        }
    }

    /// True when something was written since the start or the last park; otherwise idle work must not write. The append-only
    /// log is not parked.
    pub(super) fn is_in_use(&self) -> bool {
        match self {
            MapState::Tree(log) => log.borrow().window.is_some(),
            MapState::Append(_) => true,
        }
    }

    /// The tail of a transaction may be on the device or not (C6 of the transactions).
    pub(super) fn is_undecided(&self) -> bool {
        match self {
            MapState::Tree(log) => log.borrow().undecided.is_some(),
            MapState::Append(_) => false,
        }
    }

    /// Pieces of an undecided transaction, with their cells, and what it is to free.
    pub(super) fn undecided(&self) -> (Vec<(u32, u64)>, Garbage) {
        match self {
            MapState::Tree(log) => match &log.borrow().undecided {
                Some(undecided) => (undecided.pieces().collect(), undecided.transaction.garbage.clone()),
                None => Default::default(),
            },
            MapState::Append(_) => Default::default(),
        }
    }

    /// Pieces in places of their own, with their cells. Those of the append-only log have fixed places.
    pub(super) fn placed_pieces(&self) -> Vec<(u32, u64)> {
        match self {
            MapState::Tree(log) => log.borrow().tree.nodes().map(|(index, node)| (index, node.cell)).collect(),
            MapState::Append(_) => Vec::new(),
        }
    }

    /// Number of pieces that are on the device.
    pub(super) fn pieces(&self) -> u64 {
        match self {
            MapState::Tree(log) => u64::from(log.borrow().tree.live()),
            MapState::Append(log) => log.borrow().slots.len() as u64,
        }
    }

    /// Checks the invariants of the tree.
    ///
    /// # Errors
    /// The violated invariant.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            MapState::Tree(log) => log.borrow().tree.check(),
            MapState::Append(_) => Ok(()),
        }
    }
}
