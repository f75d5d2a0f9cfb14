//! The baseline: the map in an append-only log at a fixed place, with incremental checkpoints, as the successor of the
//! virtual log chose to have it [zh02 §3.4]. There, changes gather in memory that outlives power cuts; here there is
//! none, so every transaction costs the way to the log.
//!
//! The region has two slots for the checkpoint of each piece of the map, and a ring of records. Record `s` is in cell
//! `s % ring` of the ring.
//!
//! Invariants
//!   A1  Records of one transaction have consecutive numbers; the last completes it, and is written when all else is
//!       durable. Transactions follow each other.
//!   A2  A record is overwritten only when of each piece that it changes a later checkpoint is durable.
//!   A3  A checkpoint holds what the transaction with its number and all before have left, and nothing later. The other
//!       slot of its piece stays as it was.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::core::{Core, Log, count};
use super::format::{Piece, Record, changes_per_record};
use super::layout::{Layout, ring_cells};
use crate::device::DeviceError;

#[derive(Default)]
pub(super) struct AppendLog {
    /// Number of the last record that is part of a durable transaction.
    pub(super) sequence: u64,
    /// For each piece with changes since its checkpoint, the first record with one of the oldest such transaction.
    pub(super) since: BTreeMap<u32, u64>,
    /// The slot in which each piece's newest checkpoint is; pieces that have one.
    pub(super) slots: BTreeMap<u32, u8>,
}

impl AppendLog {
    /// Changes that a transaction may have so that its records fit into a quarter of the ring.
    pub(super) fn pending_max(layout: &Layout) -> usize {
        ring_cells(layout.pieces) as usize / 4 * changes_per_record(layout.cell_bytes())
    }

    pub(super) fn slot_cell(layout: &Layout, piece: u32, slot: u8) -> u64 {
        layout.superblock.region_start + 2 * u64::from(piece) + u64::from(slot)
    }

    pub(super) fn ring_cell(layout: &Layout, sequence: u64) -> u64 {
        let ring = ring_cells(layout.pieces);
        layout.superblock.region_start + 2 * u64::from(layout.pieces) + sequence % ring
    }

    fn oldest(&self) -> Option<(u32, u64)> {
        self.since.iter().map(|(&piece, &since)| (piece, since)).min_by_key(|&(piece, since)| (since, piece))
    }
}

impl Core {
    pub(super) async fn commit_append(&self) -> Result<(), DeviceError> {
        let (pending, changes) = {
            let mut state = self.state.borrow_mut();
            let pending = std::mem::take(&mut state.pending);
            state.moved.clear();
            let changes: Vec<(u32, u32)> =
                pending.keys().map(|&logical| (logical, state.map[logical as usize])).collect();
            (pending, changes)
        };
        if changes.is_empty() {
            return Ok(());
        }
        let per_record = changes_per_record(self.layout.cell_bytes());
        let ring = ring_cells(self.layout.pieces);
        let mut before = pending.clone();
        // A transaction that got longer than the ring bears, because writers were quick, becomes several. Each is a
        // moment of the past; only a single request that spans two of them could be cut in half, and none is so long.
        let step = (ring / 2) as usize * per_record;
        for part in changes.chunks(step) {
            let records = part.len().div_ceil(per_record) as u64;
            let written = async {
                self.make_room(records, &before).await?;
                self.append(part).await
            };
            if let Err(error) = written.await {
                self.stop(&error);
                return Err(error);
            }
            for (logical, _) in part {
                before.remove(logical); // A3
            }
        }
        self.free(pending).await;
        Ok(())
    }

    /// Writes the records of one transaction.
    async fn append(&self, changes: &[(u32, u32)]) -> Result<(), DeviceError> {
        let per_record = changes_per_record(self.layout.cell_bytes());
        let first = self.append_log(|log| log.sequence) + 1;
        let last = first + changes.len().div_ceil(per_record) as u64 - 1;
        let record = |(number, changes): (usize, &[(u32, u32)])| {
            let sequence = first + number as u64;
            let cell = AppendLog::ring_cell(&self.layout, sequence);
            let record = Record { sequence, transaction: first, commits: sequence == last, changes: changes.to_vec() };
            (cell, record.to_cell(&self.key, cell, self.layout.cell_bytes()))
        };
        let mut records: Vec<(u64, Vec<u8>)> = changes.chunks(per_record).enumerate().map(record).collect();
        let ring = ring_cells(self.layout.pieces);
        debug_assert!(
            self.append_log(|log| log.oldest()).is_none_or(|(_, since)| since + ring > last),
            "A2: no record is written over that a piece still needs"
        );
        let Some((cell, bytes)) = records.pop() else { return Ok(()) };
        let early = records.into_iter().map(|(cell, bytes)| self.write_early(cell, bytes));
        for written in join_all(early).await {
            written?;
        }
        if !self.each && !self.durable {
            self.below.flush().await?; // A1
        }
        self.write_cell(cell, bytes, self.firm()).await?; // Commit point.
        count(&self.counts.transactions, 1);
        count(&self.counts.records_written, last - first + 1);
        self.append_log(|log| {
            debug_assert_eq!(log.sequence + 1, first, "A1: transactions follow each other");
            log.sequence = last;
            for &(logical, _) in changes {
                log.since.entry(self.layout.piece_of(logical).0).or_insert(first);
            }
        });
        Ok(())
    }

    /// `before` has what is not durable yet, with what was there before it.
    ///
    /// Checkpoints as many pieces as A2 asks for, and, once half of the ring is in use, one more for each record: so the
    /// work is spread, and no transaction waits for all of it.
    async fn make_room(&self, records: u64, before: &BTreeMap<u32, u32>) -> Result<(), DeviceError> {
        let ring = ring_cells(self.layout.pieces);
        let next = self.append_log(|log| log.sequence) + records;
        let mut extra = records;
        while let Some((piece, since)) = self.append_log(|log| log.oldest()) {
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
            let state = self.state.borrow();
            let Log::Append(log) = &state.log else { unreachable!("asked for an append-only log") };
            let slot = log.slots.get(&piece).map_or(0, |slot| 1 - slot);
            let cell = AppendLog::slot_cell(&self.layout, piece, slot);
            let entry = |logical: u32| {
                // What this transaction still has to write is not durable, nor is what has changed since it began.
                let durable = before.get(&logical).or_else(|| state.pending.get(&logical));
                durable.copied().unwrap_or(state.map[logical as usize])
            };
            let entries = self.layout.blocks_of_piece(piece).map(entry).collect();
            let content = Piece {
                index: piece,
                sequence: log.sequence,
                commits: false,
                live_pieces: 0,
                pointers: Vec::new(),
                entries,
            };
            (cell, slot, content.to_cell(&self.key, cell, self.layout.cell_bytes()))
        };
        self.write_cell(cell, bytes, self.firm()).await?;
        count(&self.counts.checkpoints_written, 1);
        self.append_log(|log| {
            debug_assert_ne!(log.slots.get(&piece), Some(&slot), "A3: the other slot stays as it was");
            log.slots.insert(piece, slot);
            log.since.remove(&piece);
        });
        Ok(())
    }

    fn append_log<T>(&self, look: impl FnOnce(&mut AppendLog) -> T) -> T {
        match &mut self.state.borrow_mut().log {
            Log::Append(log) => look(log),
            Log::Tree(_) => unreachable!("asked for an append-only log"),
        }
    }
}
