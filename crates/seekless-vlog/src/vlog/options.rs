//! Options of a virtual log disk, and what opening one reports.

use super::layout::PlanError;
use crate::device::DeviceError;
use crate::units::{MIB, Nanos, Sector};

/// When writes become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommitUse {
    /// With each request where that needs no flush or there is a head; otherwise with each flush.
    #[default]
    Auto,
    /// With each request, before it is acknowledged, as in \[wa99\].
    Each,
    /// With each flush.
    Flush,
}

/// Options of a virtual log disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub commit: CommitUse,
    /// Share of a track that is left free when it is filled, in hundredths of a per cent.
    pub track_fill_reserve: u32,
    /// Limit of the bytes that the next start searches for the tail after a power cut.
    pub window: u64,
    /// Empty tracks, and put blocks in order, while idle.
    pub compact: bool,
    /// Put blocks in order, too, when there is nothing left to empty.
    pub order: bool,
    /// How long the device must be without a request before that begins.
    pub quiet: Nanos,
    /// Tracks kept in memory for sequential readers.
    pub tracks: usize,
    /// Time that the drive's electronics take for each request, where the device below does not model it: a virtual log
    /// disk inside the drive pays it once, however often the arm moves.
    pub command: Nanos,
    /// Discard long runs of freed blocks on the device below.
    pub discard: bool,
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            commit: CommitUse::Auto,
            track_fill_reserve: 2500,
            window: 64 * MIB,
            compact: true,
            order: true,
            quiet: Nanos::from_millis(10),
            tracks: 4,
            command: Nanos::ZERO,
            discard: true,
            read_only: false,
        }
    }
}

/// Why the virtual log disk cannot be opened or created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum VldError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("there is no virtual log disk here")]
    Nothing,
    #[error("the {what} at sector {at} is damaged: {why}")]
    Corrupt { what: &'static str, at: Sector, why: String },
}

/// Work done by the last start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// The tail was where the last park recorded it.
    pub was_parked: bool,
    /// Blocks that were searched for the tail.
    pub blocks_scanned: u64,
    pub pieces_read: u64,
    /// Unreadable sectors where the tail may have been: a read-only view may be of an earlier moment.
    pub sectors_lost: u64,
    pub mapped_blocks: u64,
    pub time: Nanos,
}
