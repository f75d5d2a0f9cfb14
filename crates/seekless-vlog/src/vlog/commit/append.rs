//! Transactions and checkpoints of the append-only log.

use std::cell::RefCell;
use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::super::append::AppendLog;
use super::super::core::{Core, count};
use super::super::format::{Piece, Record, changes_per_record};
use super::super::layout::ring_cells;
use crate::device::DeviceError;

/// An append-only log, and the core that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct AppendCommit<'a> {
    pub(super) core: &'a Core,
    pub(super) log: &'a RefCell<AppendLog>,
}

impl AppendCommit<'_> {
    /// Makes every mapping durable.
    ///
    /// # Errors
    /// Device errors, after which writing stops.
    pub(super) async fn commit(self) -> Result<(), DeviceError> {
        let (pending, changes) = {
            let mut state = self.core.state.borrow_mut();
            let pending = std::mem::take(&mut state.pending);
            state.moved.clear();
            let changes: Vec<(u32, u32)> =
                pending.keys().map(|&logical| (logical, state.map[logical as usize])).collect();
            (pending, changes)
        };
        if changes.is_empty() {
            return Ok(());
        }
        let per_record = changes_per_record(self.core.layout.cell_bytes());
        let ring = ring_cells(self.core.layout.pieces);
        let mut before = pending.clone();
        // A transaction that outgrew the ring, because writers were fast, is split. Each part is a moment of the past.
        // Only a single request that spans two parts could be cut in half, and no request is that long.
        let step = (ring / 2) as usize * per_record;
        for part in changes.chunks(step) {
            let records = part.len().div_ceil(per_record) as u64;
            debug_assert!(
                records <= ring / 2,
                "A2: the records of a transaction leave room for those that it replaces"
            );
            let written = async {
                self.make_room(records, &before).await?;
                self.append(part).await
            };
            if let Err(error) = written.await {
                self.core.stop(&error);
                return Err(error);
            }
            for (logical, _) in part {
                before.remove(logical); // A3
            }
        }
        debug_assert!(before.is_empty(), "A3: every change is in a transaction");
        self.core.free(pending).await;
        Ok(())
    }

    /// Writes the records of one transaction.
    async fn append(&self, changes: &[(u32, u32)]) -> Result<(), DeviceError> {
        debug_assert!(self.core.commit_gate.is_held(), "A1: one transaction is written after the other");
        let per_record = changes_per_record(self.core.layout.cell_bytes());
        let first = self.log.borrow().sequence + 1;
        let last = first + changes.len().div_ceil(per_record) as u64 - 1;
        let record = |(number, changes): (usize, &[(u32, u32)])| {
            let sequence = first + number as u64;
            let cell = AppendLog::ring_cell(&self.core.layout, sequence);
            let record = Record { sequence, transaction: first, commits: sequence == last, changes: changes.to_vec() };
            (cell, record.to_cell(&self.core.key, cell, self.core.layout.cell_bytes()))
        };
        let mut records: Vec<(u64, Vec<u8>)> = changes.chunks(per_record).enumerate().map(record).collect();
        let ring = ring_cells(self.core.layout.pieces);
        debug_assert!(
            self.log.borrow().oldest().is_none_or(|(_, since)| since + ring > last),
            "A2: no record is written over that a piece still needs"
        );
        let Some((cell, bytes)) = records.pop() else { return Ok(()) };
        let early = records.into_iter().map(|(cell, bytes)| self.core.write_early(cell, bytes));
        for written in join_all(early).await {
            written?;
        }
        if !self.core.commit_each_write && !self.core.durable_on_completion {
            self.core.below.flush().await?; // A1
        }
        self.core.write_cell(cell, bytes, self.core.durable_flags()).await?; // Commit point.
        count(&self.core.counts.transactions, 1);
        count(&self.core.counts.records_written, last - first + 1);
        let mut log = self.log.borrow_mut();
        debug_assert_eq!(log.sequence + 1, first, "A1: transactions follow each other");
        log.sequence = last;
        for &(logical, _) in changes {
            log.since.entry(self.core.layout.piece_of(logical).0).or_insert(first);
        }
        Ok(())
    }

    /// `before` has the mappings that are not yet durable, with their previous values.
    ///
    /// Checkpoints as many pieces as A2 requires and, once half of the ring is in use, one more for each record: this
    /// spreads the work, so that no transaction waits for all of it.
    async fn make_room(&self, records: u64, before: &BTreeMap<u32, u32>) -> Result<(), DeviceError> {
        let ring = ring_cells(self.core.layout.pieces);
        let next = self.log.borrow().sequence + records;
        let mut extra = records;
        loop {
            let oldest = self.log.borrow().oldest();
            let Some((piece, since)) = oldest else { break };
            let must = since + ring <= next;
            let should = since + ring / 2 <= next && extra > 0;
            if !must && !should {
                break;
            }
            extra = extra.saturating_sub(1);
            self.checkpoint(piece, before).await?;
        }
        Ok(())
    }

    /// Writes the checkpoint of a piece: A3.
    async fn checkpoint(&self, piece: u32, before: &BTreeMap<u32, u32>) -> Result<(), DeviceError> {
        let (cell, slot, bytes) = {
            let (state, log) = (self.core.state.borrow(), self.log.borrow());
            let slot = log.slots.get(&piece).map_or(0, |slot| 1 - slot);
            let cell = AppendLog::slot_cell(&self.core.layout, piece, slot);
            let entry = |logical: u32| {
                // Neither the rest of this transaction nor the changes since it began are durable.
                let durable = before.get(&logical).or_else(|| state.pending.get(&logical));
                durable.copied().unwrap_or(state.map[logical as usize])
            };
            debug_assert!(
                log.since.get(&piece).is_none_or(|since| *since <= log.sequence),
                "A3: a checkpoint covers the oldest change of its piece"
            );
            let entries = self.core.layout.blocks_of_piece(piece).map(entry).collect();
            let content = Piece {
                index: piece,
                sequence: log.sequence,
                commits: false,
                live_pieces: 0,
                pointers: Vec::new(),
                entries,
            };
            (cell, slot, content.to_cell(&self.core.key, cell, self.core.layout.cell_bytes()))
        };
        self.core.write_cell(cell, bytes, self.core.durable_flags()).await?;
        count(&self.core.counts.checkpoints_written, 1);
        let mut log = self.log.borrow_mut();
        debug_assert_ne!(log.slots.get(&piece), Some(&slot), "A3: the other slot stays as it was");
        log.slots.insert(piece, slot);
        log.since.remove(&piece);
        Ok(())
    }
}
