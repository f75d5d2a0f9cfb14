//! Which changes of a virtual log disk there is room for, on the disk itself and in the storage below.
//!
//! Storage below that is allocated on demand can run out at any moment ([`super::provision`]), while the device above relies
//! on three things: it can write over what it has written, it can discard, and it can write what it has provisioned. All
//! three need free blocks with storage, if only until a transaction is durable. So some of the ready blocks are *committed*,
//! and a change that makes the disk hold more leaves them alone.
//!
//! Invariants
//!   R1  Committed are: as many blocks as the longest transaction writes, the blocks for the pieces of the largest
//!       transaction, and one for each promise, with its piece. What is ready is never less after a change that makes the disk
//!       hold more; all other changes take ready blocks only until the next transaction, but for those of promises, which end then,
//!       and those with pieces, whose free cells count from then on.
//!   R2  While the storage below has room, places are chosen as if all free blocks were ready, and those that are not are
//!       provisioned before they are written. So the order of places does not depend on what is ready.
//!
//! A block that a snapshot has, too, is not freed when it is written over: such a write makes the disk hold more.

use std::rc::Rc;

use super::backing::Refusals;
use super::claim::Claim;
use super::core::{Core, State};
use super::eager::Run;
use super::layout::MapLog;
use crate::device::DeviceError;
use crate::units::Sector;

/// Blocks that are provisioned beyond those that are needed, so that few writes wait for that: 1 MiB with blocks of 4 KiB.
const AHEAD_BLOCKS: u64 = 256;

/// Attempts to find storage when there is no new one, besides the search of a life for what earlier ones have left; and writes
/// in a row that may find no room in ready places.
const REFUSED_MAX: u32 = 8;

/// Cells that a transaction writes at most beyond those of two pieces for each that has changed: it displaces no more.
const CELLS_SPARE: u64 = 8;

/// What a change needs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Demand {
    /// Blocks that it takes.
    blocks: u64,
    /// Blocks by which it makes the disk hold more than is promised.
    growth: u64,
}

/// Where more free blocks can come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Prospect {
    /// A transaction.
    Pending,
    /// Requests that are under way.
    Busy,
    None,
}

impl Core {
    /// Waits until there is room for a change, and admits it: its blocks may be taken (V3), or are promised.
    ///
    /// # Errors
    /// `NoSpace`, and device errors.
    pub(super) async fn admit(self: &Rc<Self>, claim: Claim) -> Result<(), DeviceError> {
        loop {
            self.check_writable()?;
            if self.stock_and_admit(claim).await? {
                return Ok(());
            }
            let changed = self.changed.wait();
            match self.prospect() {
                Prospect::Pending => self.commit().await?,
                Prospect::Busy => changed.await,
                Prospect::None => {
                    // Blocks may be about to be freed: once no transaction is under way, they are free.
                    drop(self.commit_gate.enter().await);
                    if self.stock_and_admit(claim).await? {
                        return Ok(());
                    }
                    // Or another request has taken them, and will give others back.
                    if self.prospect() == Prospect::None {
                        let demand = self.demand(&self.state.borrow(), claim);
                        let bytes = demand.blocks.max(demand.growth) * u64::from(self.layout.block_bytes());
                        return Err(DeviceError::NoSpace { at: Sector::ZERO, bytes });
                    }
                }
            }
        }
    }

    async fn stock_and_admit(self: &Rc<Self>, claim: Claim) -> Result<bool, DeviceError> {
        let demand = self.demand(&self.state.borrow(), claim);
        self.stock(demand).await?;
        Ok(self.try_admit(claim))
    }

    fn prospect(&self) -> Prospect {
        let state = self.state.borrow();
        if !state.pending.is_empty() || self.log.is_undecided() {
            Prospect::Pending
        } else if state.is_taking() {
            Prospect::Busy
        } else {
            Prospect::None
        }
    }

    /// Admits a change if there is room for it now.
    pub(super) fn try_admit(&self, claim: Claim) -> bool {
        let mut state = self.state.borrow_mut();
        let demand = self.demand(&state, claim);
        let fits = self.fits(&state, demand);
        if fits {
            state.reserved += demand.blocks;
            if let Claim::Promise { first, blocks } = claim {
                let unsure: Vec<u32> = (first..first + blocks).filter(|&logical| !state.is_sure(logical)).collect();
                unsure.into_iter().for_each(|logical| state.promises.add(logical));
            }
        }
        fits
    }

    fn demand(&self, state: &State, claim: Claim) -> Demand {
        let unsure = |first: u32, blocks: u32| match state.space.is_managed() {
            true => (first..first + blocks).filter(|&logical| !state.is_sure(logical)).count() as u64,
            false => u64::from(blocks),
        };
        match claim {
            Claim::Write { first, blocks } => Demand { blocks: blocks.into(), growth: unsure(first, blocks) },
            Claim::Move { blocks } => Demand { blocks, growth: blocks },
            Claim::Label => Demand { blocks: 1, growth: 1 + self.blocks_of_map(state) },
            Claim::Map => Demand { blocks: 0, growth: self.blocks_of_map(state) },
            Claim::Promise { first, blocks } => Demand { blocks: 0, growth: unsure(first, blocks) },
        }
    }

    /// Blocks for the pieces of a transaction that changes the map of the disk, or of a snapshot.
    fn blocks_of_map(&self, state: &State) -> u64 {
        self.blocks_of_pieces(state, u64::from(self.layout.span.div_ceil(self.layout.entries_per_piece)) + 1)
    }

    /// Whether a change may be admitted.
    fn fits(&self, state: &State, demand: Demand) -> bool {
        let Demand { blocks, growth } = demand;
        let (layout, space) = (&self.layout, &state.space);
        let taken = layout.margin + state.reserved + blocks;
        if layout.superblock.is_above() {
            return space.ready_blocks() >= taken; // The owner above has its own rules.
        }
        if blocks > 0 && space.free_blocks() < taken {
            return false;
        }
        if !self.is_thin(state) {
            // The layout has room for each logical block (L1), but not for what only snapshots have.
            return growth == 0 || layout.snapshots == 0 || space.free_blocks() >= taken + state.promises.count();
        }
        let ready = space.ready_blocks();
        let entries = state.pending.len() as u64 + state.reserved + blocks;
        let now = state.reserved + blocks + self.blocks_of_pieces(state, entries);
        ready >= now
            && (growth == 0 || ready >= state.reserved + self.committed_blocks(state) + self.with_pieces(growth)) // R1
    }

    /// Some free block may have no storage below.
    fn is_thin(&self, state: &State) -> bool {
        let space = &state.space;
        space.is_managed() && !self.layout.superblock.is_above() && space.ready_blocks() < space.free_blocks()
    }

    /// R1: ready blocks that nothing takes that makes the disk hold more.
    fn committed_blocks(&self, state: &State) -> u64 {
        self.reserve() + self.blocks_of_pieces(state, self.entries_max()) + self.with_pieces(state.promises.count())
    }

    /// Blocks for writing over others.
    fn reserve(&self) -> u64 {
        self.layout.transaction_blocks_max
    }

    /// Ready blocks that are not discarded when they become free.
    pub(super) fn kept_blocks(&self, state: &State) -> u64 {
        match self.layout.superblock.is_above() {
            true if state.below.is_full => state.below.keep,
            true => 0,
            false if state.space.is_managed() => state.reserved + self.committed_blocks(state),
            false => 0,
        }
    }

    /// Entries that the largest transaction changes.
    fn entries_max(&self) -> u64 {
        self.log.pending_max(&self.layout) as u64 + self.layout.transaction_blocks_max
    }

    /// Blocks, with those for new pieces that they may need.
    fn with_pieces(&self, blocks: u64) -> u64 {
        match self.layout.map_log {
            MapLog::Tree => blocks + blocks.div_ceil(u64::from(self.layout.cells_per_block)),
            MapLog::Append => blocks,
        }
    }

    /// Whole blocks that a transaction with so many entries takes for its pieces, besides free cells of blocks that have others.
    fn blocks_of_pieces(&self, state: &State, entries: u64) -> u64 {
        match self.layout.map_log {
            MapLog::Tree => {
                let cells = 2 * entries.min(u64::from(self.layout.pieces)) + CELLS_SPARE;
                let fresh = cells.saturating_sub(state.space.spare_cells());
                fresh.div_ceil(u64::from(self.layout.cells_per_block)).min(self.layout.margin)
            }
            MapLog::Append => 0,
        }
    }

    /// Pieces go to blocks that have others: all further ready blocks are committed.
    pub(super) fn is_short(&self, state: &State) -> bool {
        self.is_thin(state) && state.space.ready_blocks() <= state.reserved + self.committed_blocks(state)
    }

    /// Has storage allocated below for what is committed and some more, before a change that may need it.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    async fn stock(self: &Rc<Self>, demand: Demand) -> Result<(), DeviceError> {
        let needed = {
            let state = self.state.borrow();
            if !self.is_thin(&state) {
                return Ok(());
            }
            let pieces = self.entries_max().min(u64::from(self.layout.pieces)) / u64::from(self.layout.cells_per_block);
            let change = demand.blocks + self.with_pieces(demand.growth) + pieces;
            let needed = state.reserved + self.committed_blocks(&state) + change;
            // On full storage, what is committed is there for changes that need nothing else.
            let is_enough = state.space.ready_blocks() >= needed || state.below.is_full && self.fits(&state, demand);
            if is_enough {
                return Ok(());
            }
            needed
        };
        self.provision(needed + AHEAD_BLOCKS, needed, REFUSED_MAX).await?;
        Ok(())
    }

    /// The same before a change that frees space.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub(super) async fn stock_for_frees(self: &Rc<Self>) -> Result<(), DeviceError> {
        self.stock(Demand::default()).await
    }

    /// After an attempt to write that found no room in some place that was taken for ready: true if there may be room elsewhere.
    /// Holes of a sparse copy are passed by. After many refusals in a row the storage below is asked about all places: it may
    /// refuse writes to what it has allocated, too, as a host with copies on write, and then not each place is tried. As long as no
    /// write finds room after that, the next ones try a few places each, and do not ask about all of them again.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub(super) async fn may_find_room(
        self: &Rc<Self>,
        refusals: &mut Refusals,
        has_progress: bool,
    ) -> Result<bool, DeviceError> {
        refusals.in_a_row = if has_progress { 0 } else { refusals.in_a_row + 1 };
        if refusals.in_a_row < REFUSED_MAX {
            return Ok(true);
        }
        if refusals.has_asked {
            return Ok(false);
        }
        *refusals = Refusals { in_a_row: REFUSED_MAX - 1, has_asked: true };
        let has_none = self.state.borrow().below.has_none;
        if !has_none {
            let mut state = self.state.borrow_mut();
            let ready: Vec<u32> = (0..self.layout.blocks).filter(|&block| state.space.is_ready(block)).collect();
            ready.into_iter().for_each(|block| state.space.set_backed(block, false));
            state.below.search = None;
            state.below.has_none = true;
            state.found_full();
        }
        self.stock_for_frees().await?;
        Ok(true)
    }

    /// R2: has storage allocated for a run that was taken, and for the free blocks behind it. False if there is no room: from now
    /// on, only ready blocks are chosen.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub(super) async fn back(&self, run: Run) -> Result<bool, DeviceError> {
        let end = {
            let state = self.state.borrow();
            let blocks = run.first..run.first + run.blocks;
            match self.layout.superblock.is_above() || state.space.are_backed(blocks.clone()) {
                true => return Ok(true),
                false => state.space.unbacked_end(blocks),
            }
        };
        let sectors = u64::from(end - run.first) * self.layout.block_sectors;
        match self.below.provision(self.layout.sector_of(run.first), sectors).await {
            Ok(()) => {
                let mut state = self.state.borrow_mut();
                (run.first..end).for_each(|block| state.space.set_backed(block, true));
                Ok(true)
            }
            Err(DeviceError::NoSpace { .. }) => {
                self.state.borrow_mut().found_full();
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

impl State {
    /// A write to this logical block makes the disk hold no more than is promised: its old place is freed then, or it has a promise.
    fn is_sure(&self, logical: u32) -> bool {
        let block = self.map[logical as usize];
        block != 0 && self.shares.get(block as usize).is_none_or(|&shares| shares == 0) || self.promises.has(logical)
    }

    /// The storage below had room for a write.
    pub(super) fn found_room(&mut self) {
        self.below.has_none = false;
    }

    /// The storage below has no room for some block.
    pub(super) fn found_full(&mut self) {
        self.below.is_full = true;
        self.space.restrict(true);
    }
}
