//! Transactions of the virtual log.
//!
//! The pieces of a transaction are written, the last one with the mark that completes it; until that one is durable, the
//! older tail is the truth.
//!
//! Invariants
//!   C1  Whatever a piece maps is durable before the tail of its transaction is written; so are the other pieces of
//!       the transaction.
//!   C2  A block or cell of the durable map or the durable log is freed only when a transaction without it is durable.
//!   C3  A tail lies in the window of the durable anchor, also one that may be on the device or not (C6): so a start finds
//!       the youngest tail of the device.
//!   C4  No two pieces that a tail leads to have the same sequence number, except copies of one tail. A transaction that is
//!       taken back gives its numbers back: nothing leads to its pieces, and none completes a transaction. So an interrupted
//!       one used at most as many numbers as there are pieces, and after a start, numbers continue beyond these.
//!   C5  The transaction that a start continues from is durable before anything is written: what it freed is free (C2),
//!       and a flush that finds nothing to commit writes nothing.
//!   C6  A tail that found no space may be on the device nevertheless: then either map may be the durable one. So its
//!       transaction is neither applied nor taken back; the targets of both maps are kept, as during any transaction,
//!       until its tail has been rewritten, before anything newer is written. Only the cell of the tail that found no
//!       space is free: overwriting it removes that tail. An anchor that found no space is followed by another one. The log
//!       is not parked before that.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use futures_util::future::join_all;

use super::super::core::{CommitScope, Core, State, count};
use super::super::format::{ANCHOR_MAGIC, Anchor, FIXED_BYTES, OPEN, PARKED, Piece, RawPointer};
use super::super::map_state::TreeLog;
use super::super::tracks::Tracks;
use super::super::transaction::{Garbage, Transaction, Undecided};
use super::super::tree::Planned;
use super::{PIECES_AT_ONCE, replaced};
use crate::device::{Data, DeviceError, worse};
use crate::units::Sector;

/// Limit of the pieces with moved blocks that one transaction of idle work writes: a request that arrives during it
/// waits for them.
const MOVED_PIECES: usize = 2;

/// A virtual log, and the core that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct TreeCommit<'a> {
    pub(super) core: &'a Core,
    pub(super) log: &'a RefCell<TreeLog>,
}

impl TreeCommit<'_> {
    /// Makes durable what `scope` says, and rewrites the pieces `moving`.
    ///
    /// # Errors
    /// Device errors. After any error but `NoSpace`, writing stops.
    pub(super) async fn commit(self, scope: CommitScope, moving: &BTreeSet<u32>) -> Result<(), DeviceError> {
        let undecided = self.log.borrow_mut().undecided.take();
        let is_repeated = undecided.is_some();
        if let Some(Undecided { transaction, cells, tails }) = undecided {
            self.complete(transaction, cells, Some(tails)).await?;
        }
        let Some(transaction) = self.begin(scope, moving) else {
            if is_repeated {
                let garbage = std::mem::take(&mut self.core.state.borrow_mut().garbage);
                self.core.free_garbage(garbage).await;
            }
            return Ok(());
        };
        match self.write_early_pieces(&transaction).await {
            Ok(cells) => self.complete(transaction, cells, None).await,
            Err(Failed { error, cells, is_known: true }) => {
                self.take_back(transaction, cells);
                Err(error)
            }
            Err(Failed { error, .. }) => {
                self.core.stop(&error);
                Err(error)
            }
        }
    }

    /// Writes the tail of a transaction whose other pieces are durable, in `cells`, and applies it. It may be on the device
    /// already, in some of the blocks of `tails` (C6).
    async fn complete(
        &self,
        transaction: Transaction,
        mut cells: Vec<u64>,
        tails: Option<Range<u32>>,
    ) -> Result<(), DeviceError> {
        let failed = match self.write_tail(&transaction, &cells, tails.as_ref()).await {
            Ok(cell) => {
                cells.push(cell);
                count(&self.core.counts.transactions, 1);
                count(&self.core.counts.pieces_written, cells.len() as u64);
                let garbage = self.settle(transaction, cells);
                self.leave_wide_window();
                match tails.is_some() && self.core.layout.superblock.is_above() {
                    // The owner learns of a transaction by the one that follows, which frees this with its own garbage.
                    true => self.core.state.borrow_mut().garbage.append(garbage),
                    false => self.core.free_garbage(garbage).await,
                }
                return Ok(());
            }
            Err(failed) => failed,
        };
        let DeviceError::NoSpace { .. } = failed.error else {
            self.core.stop(&failed.error);
            return Err(failed.error);
        };
        let written = failed.written.map(|cell| self.core.layout.block_of(cell)).map(|block| block..block + 1);
        match tails.into_iter().chain(written).reduce(hull) {
            Some(tails) => self.log.borrow_mut().undecided = Some(Undecided { transaction, cells, tails }),
            None => self.take_back(transaction, cells),
        }
        Err(failed.error)
    }

    /// Undoes the bookkeeping of a transaction whose tail is certainly not on the device.
    fn take_back(&self, transaction: Transaction, cells: Vec<u64>) {
        debug_assert!(self.core.commit_gate.is_held(), "C4: no later transaction has taken numbers");
        self.log.borrow_mut().sequence = transaction.first_sequence - 1; // C4
        let mut state = self.core.state.borrow_mut();
        cells.into_iter().for_each(|cell| state.space.give_cell(cell));
        state.restore(transaction.pending, self.core.layout.superblock.is_above());
        state.garbage.append(transaction.garbage);
    }

    /// V2 of the core: the current pending changes of every piece that is written.
    fn begin(&self, scope: CommitScope, moving: &BTreeSet<u32>) -> Option<Transaction> {
        let mut guard = self.core.state.borrow_mut();
        let state = &mut *guard;
        let mut log = self.log.borrow_mut();
        let TreeLog { tree, sequence, .. } = &mut *log;
        let piece_of = |logical: &u32| self.core.layout.piece_of(*logical).0;
        let promised =
            state.pending.keys().filter(|logical| scope == CommitScope::All || !state.moved.contains(logical));
        let mut wanted = BTreeSet::new();
        for piece in promised.map(piece_of) {
            // In order: most pieces come many times in a row.
            if wanted.last() != Some(&piece) {
                wanted.insert(piece);
            }
        }
        if scope == CommitScope::Few {
            let others: BTreeSet<u32> =
                state.moved.iter().map(piece_of).filter(|piece| !wanted.contains(piece)).collect();
            wanted.extend(others.into_iter().take(MOVED_PIECES));
        }
        wanted.extend(moving);
        if wanted.is_empty() {
            return None;
        }
        let State { map, pending, moved, garbage, .. } = state;
        let planned = tree.plan(&wanted);
        count(&self.core.counts.pieces_rewritten, (planned.len() - wanted.len()) as u64);
        let written: BTreeSet<u32> = planned.iter().map(|piece| piece.index).collect();
        debug_assert!(wanted.is_subset(&written), "C1: what a caller waits for is in the transaction");
        debug_assert!(
            moved.iter().all(|logical| pending.contains_key(logical)),
            "V2: what idle work has moved is pending"
        );
        let taken = match scope {
            CommitScope::All => std::mem::take(pending),
            _ => pending.extract_if(.., |logical, _| written.contains(&piece_of(logical))).collect(),
        };
        moved.retain(|logical| !written.contains(&piece_of(logical)));
        debug_assert!(
            pending.keys().all(|logical| moved.contains(logical)),
            "V2: only what idle work has moved waits for a later transaction"
        );
        debug_assert!(scope != CommitScope::All || pending.is_empty(), "V2: nothing is left out that all waits for");
        let garbage = std::mem::take(garbage);
        let entries = |piece: &Planned| {
            let range = self.core.layout.blocks_of_piece(piece.index);
            map[range.start as usize..range.end as usize].to_vec()
        };
        let entries = planned.iter().map(entries).collect();
        let first_sequence = *sequence + 1;
        debug_assert!(
            tree.tail().and_then(|tail| tree.node(tail)).is_none_or(|tail| tail.sequence < first_sequence),
            "C4: numbers go on behind the tail"
        );
        *sequence += planned.len() as u64; // C4
        let new = planned.iter().filter(|piece| tree.node(piece.index).is_none()).count() as u32;
        let live = tree.live() + new;
        debug_assert!(live <= self.core.layout.pieces, "L1: there are no more pieces than the layout has room for");
        Some(Transaction { pending: taken, garbage, planned, entries, first_sequence, live })
    }

    /// Writes all pieces of a transaction but the tail, and makes them durable; returns their cells.
    async fn write_early_pieces(&self, transaction: &Transaction) -> Result<Vec<u64>, Failed> {
        debug_assert!(self.core.commit_gate.is_held(), "V2: one transaction is written after the other");
        let early = transaction.planned.len() - 1;
        let mut cells = Vec::with_capacity(early);
        let mut waiting = Vec::new();
        for number in 0..early {
            let (cell, arm) = match self.core.choose_cell().await {
                Ok(Some(chosen)) => chosen,
                Ok(None) => return Err(Failed::no_space(cells)),
                Err(error) => return Err(Failed::early(error, cells)),
            };
            cells.push(cell);
            match arm {
                Some(_) => match self.write_early_piece(transaction, number, &cells).await {
                    Ok(()) => {}
                    Err(error) => return Err(Failed::early(error, cells)),
                },
                None => waiting.push(number),
            }
        }
        // Pieces that can be written at the same time. All have their cells by now: nothing else takes these in between.
        for group in waiting.chunks(PIECES_AT_ONCE) {
            let writes = group.iter().map(|&number| self.write_early_piece(transaction, number, &cells));
            if let Err(error) = join_all(writes).await.into_iter().fold(Ok(()), worse) {
                return Err(Failed::early(error, cells));
            }
        }
        if !self.core.commit_each_write && !self.core.durable_on_completion {
            // C1. After an error it is unknown what is durable, and a retry would not tell.
            self.core.below.flush().await.map_err(Failed::unknown)?;
        }
        Ok(cells)
    }

    /// Writes one piece of a transaction to its cell.
    async fn write_early_piece(
        &self,
        transaction: &Transaction,
        number: usize,
        cells: &[u64],
    ) -> Result<(), DeviceError> {
        let bytes = self.encode(transaction, number, cells[number], &cells[..number]);
        self.core.write_early(cells[number], bytes).await
    }

    /// Writes the piece that completes a transaction, to any free cell; returns it. It may also be in the blocks of `tails`.
    async fn write_tail(
        &self,
        transaction: &Transaction,
        early: &[u64],
        tails: Option<&Range<u32>>,
    ) -> Result<u64, FailedTail> {
        debug_assert!(self.core.commit_gate.is_held(), "V2: one transaction is written after the other");
        debug_assert_eq!(transaction.planned.len(), early.len() + 1, "C1: the other pieces have been written");
        let chosen = self.core.choose_cell().await;
        let chosen = chosen.and_then(|found| found.ok_or(DeviceError::NoSpace { at: Sector::ZERO, bytes: 0 }));
        let (cell, arm) = chosen.map_err(|error| FailedTail { error, written: None })?;
        let bytes = self.encode(transaction, early.len(), cell, early);
        let written = match self.aim(cell, tails).await {
            Ok(()) => {
                debug_assert!(self.is_in_window(cell), "C3: a tail lies in the window of the durable anchor");
                // Commit point: until now the older tail is the truth. After `NoSpace`, it may be either (C6).
                let written = self.core.write_cell(cell, bytes, self.core.durable_flags()).await;
                written.map_err(|error| FailedTail { error, written: Some(cell) })
            }
            Err(error) => Err(FailedTail { error, written: None }),
        };
        drop(arm);
        if let Err(FailedTail { error: DeviceError::NoSpace { .. }, .. }) = written {
            self.core.state.borrow_mut().space.give_cell(cell); // C6
        }
        written.map(|()| cell)
    }

    /// The bytes of a piece in `cell`; the earlier ones of its transaction are in `cells`.
    fn encode(&self, transaction: &Transaction, number: usize, cell: u64, cells: &[u64]) -> Vec<u8> {
        let piece = &transaction.planned[number];
        let tree = &self.log.borrow().tree;
        let point = |&child: &u32| match number_of(&transaction.planned[..number], child) {
            Some(earlier) => {
                RawPointer { index: child, cell: cells[earlier], sequence: transaction.first_sequence + earlier as u64 }
            }
            None => match tree.node(child) {
                Some(node) => RawPointer { index: child, cell: node.cell, sequence: node.sequence },
                None => unreachable!("T2: children are written earlier or live"),
            },
        };
        debug_assert!(
            piece.children.iter().all(|&child| number_of(&transaction.planned[number..], child).is_none()),
            "T2: what is rewritten is pointed to at its new place"
        );
        debug_assert_eq!(number, cells.len(), "C1: the pieces to which a piece may point have cells");
        let piece = Piece {
            index: piece.index,
            sequence: transaction.first_sequence + number as u64,
            commits: number + 1 == transaction.planned.len(),
            live_pieces: transaction.live,
            pointers: piece.children.iter().map(point).collect(),
            entries: transaction.entries[number].clone(),
        };
        debug_assert!(
            piece.pointers.iter().all(|pointer| pointer.sequence < piece.sequence),
            "T2: a piece points to older ones only"
        );
        debug_assert_eq!(
            piece.entries.len(),
            self.core.layout.blocks_of_piece(piece.index).len(),
            "C1: a piece has the entries of all its blocks"
        );
        piece.to_cell(&self.core.key, cell, self.core.layout.cell_bytes())
    }

    /// C3: moves the window to where a tail is about to be written. If that tail may also be in the blocks of `tails`, they
    /// stay in the window.
    async fn aim(&self, cell: u64, tails: Option<&Range<u32>>) -> Result<(), DeviceError> {
        let block = self.core.layout.block_of(cell);
        let anchor = {
            let log = self.log.borrow();
            if let Some(window) = log.window.as_ref().filter(|window| window.contains(&block)) {
                debug_assert!(
                    tails.is_none_or(|tails| window.start <= tails.start && tails.end <= window.end),
                    "C3: a tail that may be on the device lies in the window"
                );
                return Ok(());
            }
            let window = self.window_at(&self.core.state.borrow().space.tracks, block);
            self.anchor(&log, OPEN, tails.cloned().into_iter().fold(window, hull))
        };
        self.write_anchor(anchor).await
    }

    /// Once it is decided which tail is the durable one, a window that contained several places is of no more use: a start
    /// would search all of it. The next tail gets another one.
    fn leave_wide_window(&self) {
        let mut log = self.log.borrow_mut();
        if log.window.as_ref().is_some_and(|window| window.len() as u64 > u64::from(self.window_blocks())) {
            self.core.state.borrow_mut().allocator.window = None;
            log.window = None;
            log.park_is_due = true;
        }
    }

    /// The window for a tail: from its cylinder upwards, in the direction of the sweep, so that tails do not alternate
    /// across the window's end; where the cylinder exceeds a window, around the tail.
    fn window_at(&self, tracks: &Tracks, block: u32) -> Range<u32> {
        let (blocks, width) = (self.core.layout.blocks, self.window_blocks());
        let cylinder = tracks.cylinder_of(tracks.track_of(block));
        let first = tracks.blocks(tracks.tracks(cylinder).start).start.min(blocks.saturating_sub(width));
        let start = if block - first < width { first } else { block / width * width };
        let window = start..start.saturating_add(width).min(blocks);
        debug_assert!(window.contains(&block), "C3: the window for a tail has the tail in it");
        window
    }

    /// With several arms, tails alternate between them, and each would need a new anchor: there the window is the whole
    /// device, as in [wa99].
    fn window_blocks(&self) -> u32 {
        if self.core.below.head().is_some_and(|head| head.arms() > 1) {
            return u32::MAX;
        }
        u32::try_from(self.core.options.window / u64::from(self.core.layout.block_bytes())).unwrap_or(u32::MAX).max(1)
    }

    fn is_in_window(&self, cell: u64) -> bool {
        self.log.borrow().window.as_ref().is_some_and(|window| window.contains(&self.core.layout.block_of(cell)))
    }

    fn anchor(&self, log: &TreeLog, state: u32, window: Range<u32>) -> Anchor {
        let tail = log.tree.tail().and_then(|tail| log.tree.node(tail));
        Anchor {
            magic: ANCHOR_MAGIC,
            crc: 0,
            state,
            uuid: self.core.key.uuid,
            generation: log.generation + 1,
            tail_sequence: tail.map_or(0, |tail| tail.sequence),
            tail_cell: tail.map_or(0, |tail| tail.cell),
            window_start: u64::from(window.start),
            window_blocks: window.len() as u64,
        }
    }

    async fn write_anchor(&self, anchor: Anchor) -> Result<(), DeviceError> {
        debug_assert!(self.core.commit_gate.is_held(), "C3: an anchor is written by the transaction that needs it");
        debug_assert!(
            anchor.window_start + anchor.window_blocks <= u64::from(self.core.layout.blocks),
            "C3: a window lies on the device"
        );
        debug_assert_eq!(anchor.state == OPEN, anchor.window_blocks > 0, "C3: an open log has a window");
        let slots = self.core.layout.anchors();
        let (slot, other) = (slots[(anchor.generation % 2) as usize], slots[((anchor.generation + 1) % 2) as usize]);
        let write = async |slot: u64, block: Vec<u8>| {
            self.core.below.write(Sector(slot), Data::from_slice(&block), self.core.durable_flags()).await
        };
        // One that can be read again, and has a higher number, must not count: a start that finds one bad slot searches
        // everywhere.
        let are_anchors_lost = self.log.borrow().are_anchors_lost;
        let written = match are_anchors_lost {
            true => write(other, vec![0; FIXED_BYTES]).await,
            false => Ok(()),
        };
        let written = match written {
            Ok(()) => write(slot, anchor.to_block()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            // C6: it may be there nevertheless, so that a tail in the window of the older one would not be found.
            self.core.state.borrow_mut().allocator.window = None;
            let mut log = self.log.borrow_mut();
            log.window = None;
            log.park_is_due = true;
            return Err(error);
        }
        count(&self.core.counts.anchors_written, 1);
        let start = anchor.window_start as u32;
        let window = (anchor.state == OPEN).then(|| start..start + anchor.window_blocks as u32);
        self.core.state.borrow_mut().allocator.window = window.clone();
        let mut log = self.log.borrow_mut();
        debug_assert_eq!(anchor.generation, log.generation + 1, "C3: anchors are written one after the other");
        log.generation = anchor.generation;
        log.are_anchors_lost = false;
        log.window = window;
        log.park_is_due = false;
        Ok(())
    }

    /// Applies a durable transaction to the state in memory; returns what is to be freed: C2.
    fn settle(&self, transaction: Transaction, cells: Vec<u64>) -> Garbage {
        let places: Vec<(u64, u64)> = cells
            .iter()
            .enumerate()
            .map(|(number, &cell)| (transaction.first_sequence + number as u64, cell))
            .collect();
        {
            let mut state = self.core.state.borrow_mut();
            let mut log = self.log.borrow_mut();
            debug_assert_eq!(places.len(), transaction.planned.len(), "C1: every piece has been written");
            debug_assert!(
                places.last().is_some_and(|(last, _)| *last <= log.sequence),
                "C4: the numbers of a transaction are used up"
            );
            let freed = log.tree.apply(&transaction.planned, &places);
            debug_assert_eq!(log.tree.live(), transaction.live, "T2: as many pieces live as the tail says");
            debug_assert_eq!(
                log.tree.tail(),
                transaction.planned.last().map(|piece| piece.index),
                "C1: the piece that completes a transaction is the tail"
            );
            freed.into_iter().for_each(|cell| state.space.give_cell(cell));
        }
        match self.core.layout.superblock.is_above() {
            false => replaced(transaction.pending),
            true => transaction.garbage,
        }
    }

    /// Writes the record that lets the next start find the tail without a search, unless it is there.
    ///
    /// # Errors
    /// Device errors. After any error but `NoSpace`, writing stops.
    pub(super) async fn park(self) -> Result<(), DeviceError> {
        let anchor = {
            let log = self.log.borrow();
            // The anchor on the device is parked, and the log was not used since.
            if log.window.is_none() && !log.park_is_due {
                return Ok(());
            }
            debug_assert!(log.undecided.is_none(), "C6: a log whose tail is undecided is not parked");
            self.anchor(&log, PARKED, 0..0)
        };
        match self.write_anchor(anchor).await {
            Err(error @ DeviceError::NoSpace { .. }) => Err(error), // C6
            parked => parked.inspect_err(|error| self.core.stop(error)),
        }
    }
}

/// A transaction that failed before its tail.
struct Failed {
    error: DeviceError,
    cells: Vec<u64>,
    /// The next attempt may be trusted.
    is_known: bool,
}

impl Failed {
    fn unknown(error: DeviceError) -> Failed {
        Failed { error, cells: Vec::new(), is_known: false }
    }

    /// For errors while pieces are written. A piece that may or may not be on the device is harmless, as nothing leads to
    /// it; but only after `NoSpace` may the next attempt be trusted.
    fn early(error: DeviceError, cells: Vec<u64>) -> Failed {
        let is_known = matches!(error, DeviceError::NoSpace { .. });
        Failed { error, cells, is_known }
    }

    fn no_space(cells: Vec<u64>) -> Failed {
        Failed { error: DeviceError::NoSpace { at: Sector::ZERO, bytes: 0 }, cells, is_known: true }
    }
}

/// A tail that failed.
struct FailedTail {
    error: DeviceError,
    /// Where it was sent to the device, so that it may be there.
    written: Option<u64>,
}

/// Where in a plan a piece is written, if it is.
fn number_of(planned: &[Planned], index: u32) -> Option<usize> {
    planned.binary_search_by_key(&index, |piece| piece.index).ok()
}

/// The shortest range with both in it.
fn hull(one: Range<u32>, other: Range<u32>) -> Range<u32> {
    one.start.min(other.start)..one.end.max(other.end)
}
