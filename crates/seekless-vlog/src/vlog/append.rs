//! The baseline: the map in an append-only log at a fixed place, with incremental checkpoints, as the successor of the
//! virtual log chose to have it [zh02 §3.4]. There, changes gather in non-volatile memory; here there is none, so every
//! transaction costs a seek to the log.
//!
//! The region has two slots for the checkpoint of each piece of the map, and a ring of records. Record `s` is in cell
//! `s % ring` of the ring.
//!
//! Invariants
//!   A1  Records of one transaction have consecutive numbers; the last one completes it and is written once all others
//!       are durable. Transactions are sequential.
//!   A2  A record is overwritten only when a later checkpoint of each piece that it changes is durable.
//!   A3  A checkpoint holds the result of all transactions up to its number, and nothing later. The other slot of its
//!       piece is unchanged.

use std::collections::BTreeMap;

use super::format::changes_per_record;
use super::layout::{Layout, ring_cells};

#[derive(Default)]
pub(super) struct AppendLog {
    /// Number of the last record that is part of a durable transaction.
    pub(super) sequence: u64,
    /// For each piece with changes since its checkpoint, the first record of the oldest transaction with such a change.
    pub(super) since: BTreeMap<u32, u64>,
    /// The slot of each piece's newest checkpoint, for pieces that have one.
    pub(super) slots: BTreeMap<u32, u8>,
}

impl AppendLog {
    /// Limit of the changes in a transaction, so that its records fit into a quarter of the ring.
    pub(super) fn pending_max(layout: &Layout) -> usize {
        ring_cells(layout.pieces) as usize / 4 * changes_per_record(layout.cell_bytes())
    }

    pub(super) fn slot_cell(layout: &Layout, piece: u32, slot: u8) -> u64 {
        debug_assert!(piece < layout.pieces && slot < 2, "A3: each piece of the map has two slots");
        layout.superblock.region_start + 2 * u64::from(piece) + u64::from(slot)
    }

    pub(super) fn ring_cell(layout: &Layout, sequence: u64) -> u64 {
        let ring = ring_cells(layout.pieces);
        layout.superblock.region_start + 2 * u64::from(layout.pieces) + sequence % ring
    }

    /// A piece with the oldest change since its checkpoint, and the first record of that change's transaction.
    pub(super) fn oldest(&self) -> Option<(u32, u64)> {
        self.since.iter().map(|(&piece, &since)| (piece, since)).min_by_key(|&(piece, since)| (since, piece))
    }
}
