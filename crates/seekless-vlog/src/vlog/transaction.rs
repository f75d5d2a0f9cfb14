//! What a transaction of the map consists of, while it is under way or undecided.

use std::collections::BTreeMap;
use std::ops::Range;

use super::tree::Planned;

/// Blocks and cells to be freed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Garbage {
    pub blocks: Vec<u32>,
    pub cells: Vec<u64>,
}

impl Garbage {
    pub fn append(&mut self, mut more: Garbage) {
        self.blocks.append(&mut more.blocks);
        self.cells.append(&mut more.cells);
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.cells.is_empty()
    }
}

/// Contents of a transaction.
pub(super) struct Transaction {
    /// V2 of the core: logical blocks, and their previous places.
    pub(super) pending: BTreeMap<u32, u32>,
    pub(super) garbage: Garbage,
    pub(super) planned: Vec<Planned>,
    /// Entries of each planned piece.
    pub(super) entries: Vec<Vec<u32>>,
    pub(super) first_sequence: u64,
    /// Live pieces after the transaction.
    pub(super) live: u32,
}

/// A transaction whose tail may be on the device or not (C6), and the cells of its other pieces, which are durable.
pub(super) struct Undecided {
    pub(super) transaction: Transaction,
    pub(super) cells: Vec<u64>,
    /// The tail may be in some of these blocks.
    pub(super) tails: Range<u32>,
}

impl Undecided {
    /// Pieces on the device that the map in memory does not have yet, with their cells.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u32, u64)> {
        self.transaction.planned.iter().map(|piece| piece.index).zip(self.cells.iter().copied())
    }
}
