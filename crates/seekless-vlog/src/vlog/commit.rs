//! Transactions: how the map on the device catches up with the one in memory.
//!
//! A transaction contains every change since the previous one, as of one moment, and becomes durable as a whole.
//! [`tree`] writes those of the virtual log, [`append`] those of the append-only log.

mod append;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use self::append::AppendCommit;
use self::tree::TreeCommit;
use super::backing::Refusals;
use super::core::{CommitScope, Core, State};
use super::map_state::MapState;
use super::transaction::Garbage;
use crate::device::{DeviceError, Discard};

/// Runs of freed blocks are discarded below from this length on: shorter ones are soon reused.
pub(super) const DISCARD_BLOCKS_MIN: u32 = 16;

/// Limit of the pieces that a transaction writes at once. Each takes 6 KB until it is written, and a snapshot of 1 TiB in blocks
/// of 4 KiB has 2.7 million. On a file, 32 at once took as long as 1024, and as all 40,000.
pub(super) const PIECES_AT_ONCE: usize = 1024;

impl Core {
    /// Makes every mapping durable that was set before this call.
    ///
    /// # Errors
    /// Device errors. After any error but `NoSpace`, writing stops.
    pub(super) async fn commit(self: &Rc<Self>) -> Result<(), DeviceError> {
        self.commit_with(CommitScope::All, &BTreeSet::new()).await
    }

    /// Makes durable what `scope` says, and rewrites the pieces `moving`.
    ///
    /// # Errors
    /// As those of [`Core::commit`].
    pub(super) async fn commit_with(
        self: &Rc<Self>,
        scope: CommitScope,
        moving: &BTreeSet<u32>,
    ) -> Result<(), DeviceError> {
        let pass = self.commit_gate.enter().await;
        self.check_writable()?;
        let mut refusals = Refusals::default();
        let result = loop {
            let result = match &self.log {
                MapState::Tree(log) => TreeCommit { core: self, log }.commit(scope, moving).await,
                MapState::Append(log) => AppendCommit { core: self, log }.commit().await,
            };
            if !(matches!(result, Err(DeviceError::NoSpace { .. })) && self.leave_holes()) {
                break result;
            }
            match self.may_find_room(&mut refusals, false).await {
                Ok(true) => {}
                Ok(false) => break result,
                Err(error) => {
                    self.stop(&error);
                    break Err(error);
                }
            }
        };
        drop(pass);
        self.changed.notify();
        result
    }

    /// Writes the record that lets the next start find the tail without a search.
    ///
    /// # Errors
    /// Device errors. After any error but `NoSpace`, writing stops.
    pub(super) async fn park(self: &Rc<Self>) -> Result<(), DeviceError> {
        self.commit().await?;
        // No other transaction comes between: the gate is free, so entering it does not wait.
        let _pass = self.commit_gate.enter().await;
        match &self.log {
            MapState::Tree(log) => TreeCommit { core: self, log }.park().await,
            MapState::Append(_) => Ok(()),
        }
    }

    /// No longer takes blocks for ready in which a piece has found no room. True if there were some, and the storage below was
    /// known to be full: it has answered that everything ready has room.
    fn leave_holes(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let holes = std::mem::take(&mut state.below.holes);
        // The owner above has its own rules, and a drive has all of its storage.
        if self.layout.superblock.is_above() || !state.space.is_managed() {
            return false;
        }
        let was_full = state.below.is_full;
        let ready: Vec<u32> = holes.into_iter().filter(|&block| state.space.is_ready(block)).collect();
        ready.iter().for_each(|&block| state.space.set_backed(block, false));
        if !ready.is_empty() {
            state.found_full();
        }
        was_full && !ready.is_empty()
    }

    /// Frees blocks that the durable map no longer has.
    pub(super) async fn free(&self, pending: BTreeMap<u32, u32>) {
        self.free_garbage(replaced(pending)).await;
    }

    /// Frees blocks and cells; long runs only after they are discarded below. Enough are kept ready.
    async fn free_garbage(&self, garbage: Garbage) {
        let Garbage { mut blocks, cells } = garbage;
        blocks.sort_unstable();
        let mut discarded = Vec::new();
        let mut missing = {
            let state = self.state.borrow();
            self.kept_blocks(&state).saturating_sub(state.space.ready_blocks())
        };
        if self.options.discard && self.below.guarantees().discard != Discard::Ignored {
            let unused: Vec<u32> = {
                let state = self.state.borrow();
                blocks.iter().copied().filter(|&block| state.is_last_use(block)).collect()
            };
            for run in unused.chunk_by(|one, two| one + 1 == *two) {
                let kept = missing.min(run.len() as u64);
                missing -= kept;
                let run = &run[kept as usize..];
                if run.len() as u32 >= DISCARD_BLOCKS_MIN {
                    let sectors = run.len() as u64 * self.layout.block_sectors;
                    // A failed discard leaks space below, not here; the next discard may work.
                    let _ = self.below.discard(self.layout.sector_of(run[0]), sectors).await;
                    discarded.extend(run);
                }
            }
        }
        let mut state = self.state.borrow_mut();
        blocks.into_iter().for_each(|block| state.release(block));
        for block in discarded {
            // A reader that still holds it would give it back as one with storage.
            assert!(state.space.is_free(block), "V1: nothing begins to use what no entry leads to");
            state.space.set_backed(block, false);
        }
        cells.into_iter().for_each(|cell| state.space.give_cell(cell));
    }
}

/// The previous places of blocks.
fn replaced(pending: BTreeMap<u32, u32>) -> Garbage {
    Garbage { blocks: pending.into_values().filter(|&block| block != 0).collect(), cells: Vec::new() }
}

impl State {
    /// Undoes the bookkeeping of a transaction that failed.
    pub(super) fn restore(&mut self, pending: BTreeMap<u32, u32>, is_above: bool) {
        for (logical, old) in pending {
            // A request waits for it, also if idle work has moved it since.
            self.moved.remove(&logical);
            // It has changed again since, away from a block that only the transaction had.
            if let Some(between) = self.pending.insert(logical, old)
                && !is_above
            {
                self.release(between);
            }
        }
    }
}
