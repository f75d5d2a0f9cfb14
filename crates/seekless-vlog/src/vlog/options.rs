//! How a virtual log disk is used, and what opening one says.

use super::layout::PlanError;
use crate::device::DeviceError;
use crate::units::{MIB, Nanos, Sector};

/// When what was written becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommitUse {
    /// With each request where that needs no flush or there is a head, otherwise with each flush.
    #[default]
    Auto,
    /// With each request, before it is acknowledged: as \[wa99\] has it.
    Each,
    /// With each flush.
    Flush,
}

/// How a virtual log disk is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub commit: CommitUse,
    /// Share of a track that is left free when it is filled, in hundredths of a per cent.
    pub keep: u32,
    /// Bytes in which the next start searches for the tail, at most, after the power has failed.
    pub window: u64,
    /// Empty tracks, and put blocks in order, while there is nothing else to do.
    pub compact: bool,
    /// Put blocks in order, too, when there is nothing left to empty.
    pub order: bool,
    /// How long there must be no request before that begins.
    pub quiet: Nanos,
    /// Tracks that are kept in memory for who reads in order.
    pub tracks: usize,
    /// Time that the drive's electronics take for each request, where they are not part of the device below: a virtual
    /// log disk inside the drive pays it once, however often the arm moves.
    pub command: Nanos,
    /// Give long stretches that were freed back to the device below.
    pub discard: bool,
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            commit: CommitUse::Auto,
            keep: 2500,
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

/// Why there is no virtual log disk.
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

/// What the last start had to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// The tail was where it had been left.
    pub was_parked: bool,
    /// Blocks that were searched for the tail.
    pub blocks_scanned: u64,
    pub pieces_read: u64,
    /// Sectors that could not be read where the tail may have been: read-only, what is shown may be of an earlier moment.
    pub sectors_lost: u64,
    pub mapped_blocks: u64,
    pub time: Nanos,
}
