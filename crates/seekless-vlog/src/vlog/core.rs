//! The state of a virtual log disk in memory, and the data path to and from the device.
//!
//! Invariants
//!   V1  A block is used exactly when it is mapped, by the disk or a snapshot, or was mapped by the durable map, or is
//!       being written, or is being read while its logical block has moved on.
//!   V2  `pending` has every logical block whose mapping differs from that of the last transaction, with its mapping
//!       there. Each transaction begins when the previous one is durable; so a block that is not in `pending` is
//!       durable as soon as no transaction is under way.
//!   V3  A request takes only as many blocks as it was admitted for, and never waits for space while it holds some.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::arms::{Arms, HeldArm};
use super::backing::BelowState;
use super::buffer::TrackBuffer;
use super::claim::Claim;
use super::eager::{AllocPurpose, EagerAllocator, Head, Run};
use super::format::Key;
use super::layout::Layout;
use super::map_state::MapState;
use super::marks::Marks;
use super::options::Options;
use super::promises::Promises;
use super::space::Space;
use super::transaction::Garbage;
use crate::device::{Data, Device, DeviceError, WriteFlags};
use crate::rt::{Event, Gate, Rt};
use crate::units::{SECTOR_BYTES, Sector};

pub(super) struct Core {
    pub(super) rt: Rt,
    pub(super) below: Device,
    pub(super) layout: Layout,
    pub(super) key: Key,
    pub(super) options: Options,
    /// Every request is committed before it is acknowledged.
    pub(super) commit_each_write: bool,
    /// A write below is durable when it completes.
    pub(super) durable_on_completion: bool,
    pub(super) state: RefCell<State>,
    pub(super) log: MapState,
    /// The map that requests address: 0 is the disk, the others are snapshots.
    pub(super) map_index: u32,
    /// One snapshot is taken or removed at a time.
    pub(super) snapshot_gate: Gate,
    /// One transaction at a time.
    pub(super) commit_gate: Gate,
    /// Storage below is allocated by one task at a time.
    pub(super) provision_gate: Gate,
    pub(super) arms: Arms,
    /// Blocks of the track being read ahead have arrived, or will not.
    pub(super) arrived: Event,
    /// Something was freed, or an admitted request has ended.
    pub(super) changed: Event,
    pub(super) activity: Rc<Activity>,
    /// Tracks that idle work leaves alone, since it could not read a block there.
    pub(super) unreadable_tracks: RefCell<BTreeSet<u32>>,
    /// Logical blocks that idle work could not read, and where they were then.
    pub(super) unreadable_blocks: RefCell<BTreeMap<u32, u32>>,
    pub(super) counts: Counts,
}

/// Requests from above, for idle work, which waits until there are none.
#[derive(Default)]
pub(super) struct Activity {
    pub(super) begun: Cell<u64>,
    pub(super) running: Cell<u32>,
    pub(super) event: Event,
}

impl Activity {
    /// True when a request began since `seen`, or is under way.
    pub(super) fn since(&self, seen: u64) -> bool {
        self.begun.get() != seen || self.running.get() > 0
    }
}

/// A request from above, until it is dropped.
pub(super) struct Active(Rc<Activity>);

impl Drop for Active {
    fn drop(&mut self) {
        debug_assert!(self.0.running.get() > 0, "each request from above is counted until it ends");
        self.0.running.set(self.0.running.get() - 1);
        self.0.event.notify();
    }
}

pub(super) struct State {
    pub(super) space: Space,
    pub(super) allocator: EagerAllocator,
    /// Physical block of each logical one, or 0.
    pub(super) map: Vec<u32>,
    /// Logical block of each physical one plus 1, or 0.
    pub(super) owner: Vec<u32>,
    /// V2.
    pub(super) pending: BTreeMap<u32, u32>,
    /// Those of `pending` that idle work has moved: no request waits for them to be durable.
    pub(super) moved: BTreeSet<u32>,
    /// Blocks that are being read, with the number of readers.
    pins: BTreeMap<u32, u32>,
    /// Of these, blocks to be freed when the last reader is done.
    doomed: BTreeSet<u32>,
    /// Number of further references to each block, from entries of the map and from older entries of the durable map.
    /// Empty where there are no snapshots.
    pub(super) shares: Vec<u8>,
    /// Blocks admitted and not yet taken.
    pub(super) reserved: u64,
    /// Logical blocks that have room whatever else is written.
    pub(super) promises: Promises,
    /// Blocks taken and not yet mapped.
    in_flight: u64,
    pub(super) buffer: TrackBuffer,
    /// Logical blocks that were read in order since they were last put in order: for [`super::compact`].
    /// Empty where there is no such work.
    pub(super) read_in_order: Marks,
    /// Blocks and cells that a map of an owner above no longer needs once all pending changes are durable.
    pub(super) garbage: Garbage,
    pub(super) below: BelowState,
    /// Why writing has stopped.
    pub(super) stopped: Option<String>,
}

/// Which of the pending changes a transaction makes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommitScope {
    All,
    /// All changes that requests wait for. Blocks moved by idle work are still valid at their old places until idle
    /// work commits them.
    Promised,
    /// Those, and some of the blocks that idle work has moved.
    Few,
}

macro_rules! counts {
    ($($name:ident),* $(,)?) => {
        #[derive(Default)]
        pub(super) struct Counts { $(pub(super) $name: Cell<u64>),* }

        impl Counts {
            pub(super) fn all(&self) -> Vec<crate::device::Counter> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}
counts!(
    reads,
    writes,
    blocks_read,
    blocks_written,
    transactions,
    pieces_written,
    pieces_rewritten,
    records_written,
    checkpoints_written,
    anchors_written,
    blocks_discarded,
    track_reads,
    track_hits,
    tracks_emptied,
    blocks_moved,
    extents_ordered,
    superblocks_mended,
    overhead_ns,
);

pub(super) fn count(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

impl State {
    pub(super) fn new(layout: &Layout, space: Space, options: &Options) -> State {
        State {
            space,
            allocator: EagerAllocator::new(options.track_fill_reserve),
            map: vec![0; layout.logical_blocks as usize],
            owner: if layout.superblock.is_above() { Vec::new() } else { vec![0; layout.blocks as usize] },
            pending: BTreeMap::new(),
            moved: BTreeSet::new(),
            pins: BTreeMap::new(),
            doomed: BTreeSet::new(),
            shares: Vec::new(),
            reserved: 0,
            promises: Promises::default(),
            in_flight: 0,
            buffer: TrackBuffer::new(0),
            read_in_order: Marks::default(),
            garbage: Garbage::default(),
            below: BelowState::default(),
            stopped: None,
        }
    }

    /// Maps a logical block to `new`, which holds the same bytes as the old place.
    pub(super) fn relocate(&mut self, logical: u32, new: u32) {
        let is_idle = self.moved.contains(&logical) || !self.pending.contains_key(&logical);
        debug_assert!(self.map[logical as usize] != 0, "V1: only a block that is mapped moves");
        debug_assert!(self.map[logical as usize] != new, "V1: a block moves to another place");
        debug_assert!(
            self.shares.get(self.map[logical as usize] as usize).is_none_or(|&shares| shares == 0),
            "H2: a block that several maps share does not move"
        );
        self.set(logical, new);
        if is_idle {
            self.moved.insert(logical);
            debug_assert!(self.pending.contains_key(&logical), "V2: what idle work has moved is pending");
        }
    }

    /// Maps a logical block to `new`; 0 is none.
    pub(super) fn set(&mut self, logical: u32, new: u32) {
        self.moved.remove(&logical);
        let old = std::mem::replace(&mut self.map[logical as usize], new);
        if new != 0 {
            debug_assert!(!self.space.is_free(new), "V1: what is mapped is taken");
            debug_assert!(self.in_flight > 0, "V3: what is mapped was admitted and taken");
            debug_assert!(
                !self.shares.is_empty() || self.owner[new as usize] == 0,
                "V1: without snapshots, a block belongs to one logical block"
            );
            debug_assert!(!self.pins.contains_key(&new), "V1: a block that is written has no reader");
            self.owner[new as usize] = logical + 1;
            self.in_flight -= 1;
            self.promises.end(logical..logical + 1);
        }
        if old == new {
            return;
        }
        if old != 0 {
            self.owner[old as usize] = 0;
        }
        self.replaced(logical, old);
    }

    /// Maps a logical block to where another one is; 0 is none.
    pub(super) fn share(&mut self, logical: u32, block: u32) {
        if block == 0 {
            return self.set(logical, 0);
        }
        let old = std::mem::replace(&mut self.map[logical as usize], block);
        if old != block {
            debug_assert!(!self.space.is_free(block), "H2: what is shared is in use");
            debug_assert!(!self.doomed.contains(&block), "H2: what is shared has a reference already");
            debug_assert!(self.moved.is_empty(), "H2: idle work moves nothing where maps share blocks");
            self.shares[block as usize] += 1;
            self.replaced(logical, old);
        }
    }

    /// The block has a single reference and no reader.
    pub(super) fn is_last_use(&self, block: u32) -> bool {
        self.shares.get(block as usize).is_none_or(|&shares| shares == 0) && !self.pins.contains_key(&block)
    }

    /// Records that a logical block no longer maps to `old`.
    fn replaced(&mut self, logical: u32, old: u32) {
        match self.pending.entry(logical) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(old);
            }
            // No transaction has it.
            std::collections::btree_map::Entry::Occupied(_) => self.release(old),
        }
    }

    /// Drops one reference, of the map or of the durable map, and frees the block if it was the last; 0 is none.
    pub(super) fn release(&mut self, block: u32) {
        if block == 0 {
            return;
        }
        debug_assert!(!self.space.is_free(block), "V1: what is released was in use");
        if let Some(shares) = self.shares.get_mut(block as usize).filter(|shares| **shares > 0) {
            *shares -= 1;
            return;
        }
        if self.pins.contains_key(&block) {
            let is_new = self.doomed.insert(block);
            debug_assert!(is_new, "V1: the last reference to a block is dropped once");
        } else {
            self.space.give(block);
        }
    }

    /// Some blocks are being taken or read, and may be given back.
    pub(super) fn is_taking(&self) -> bool {
        self.reserved + self.in_flight > 0 || !self.doomed.is_empty()
    }

    /// Blocks taken and not yet mapped or referenced.
    pub(super) fn copies_under_way(&self) -> u64 {
        self.in_flight
    }

    /// Blocks in use to which no entry leads, of the map or of the durable one: they are being written, or are given back when
    /// their last reader is done (V1).
    pub(super) fn used_beside_map(&self) -> u64 {
        self.in_flight + self.doomed.len() as u64
    }

    /// The owner above now references the blocks of `run`.
    pub(super) fn mark_referenced(&mut self, run: Run) {
        debug_assert!(self.in_flight >= u64::from(run.blocks), "V3: what is kept was admitted and taken");
        self.in_flight -= u64::from(run.blocks);
    }

    /// Gives back blocks that were taken and never mapped.
    pub(super) fn give_back(&mut self, run: Run) {
        debug_assert!(self.in_flight >= u64::from(run.blocks), "V3: what is given back was admitted and taken");
        for block in run.first..run.first + run.blocks {
            debug_assert!(!self.pins.contains_key(&block), "V1: nothing reads what was never mapped");
            self.space.give(block);
        }
        self.in_flight -= u64::from(run.blocks);
    }

    /// Gives back blocks that were taken and could not be backed: as many may be taken elsewhere.
    pub(super) fn give_back_unbacked(&mut self, run: Run) {
        let blocks = run.first..run.first + run.blocks;
        let unbacked: Vec<u32> = blocks.filter(|&block| !self.space.are_backed(block..block + 1)).collect();
        self.give_back(run);
        self.reserved += u64::from(run.blocks);
        unbacked.into_iter().for_each(|block| self.space.set_backed(block, false));
    }

    /// A write to blocks that were ready has found no room: they are a hole of a sparse copy of the device. As many may be taken elsewhere.
    pub(super) fn found_hole(&mut self, run: Run) {
        (run.first..run.first + run.blocks).for_each(|block| self.space.set_backed(block, false));
        self.give_back_unbacked(run);
        self.found_full();
    }

    /// Keeps a block from being reused; 0 is none.
    pub(super) fn pin(&mut self, block: u32) {
        if block == 0 {
            return;
        }
        debug_assert!(!self.space.is_free(block), "V1: what is read is in use");
        *self.pins.entry(block).or_insert(0) += 1;
    }

    pub(super) fn unpin(&mut self, block: u32) {
        if block == 0 {
            return;
        }
        let Some(readers) = self.pins.get_mut(&block) else { unreachable!("pinned by this reader") };
        debug_assert!(*readers > 0, "a block that is pinned has a reader");
        *readers -= 1;
        if *readers == 0 {
            self.pins.remove(&block);
            if self.doomed.remove(&block) {
                debug_assert!(
                    self.shares.get(block as usize).is_none_or(|&shares| shares == 0),
                    "V1: what its last reader frees has no reference"
                );
                self.space.give(block);
            }
        }
    }
}

impl Core {
    pub(super) fn active(&self) -> Active {
        let activity = &self.activity;
        activity.begun.set(activity.begun.get() + 1);
        activity.running.set(activity.running.get() + 1);
        Active(activity.clone())
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.layout.block_bytes() as usize
    }

    fn head<'a>(&'a self, busy: &'a [bool]) -> Option<Head<'a>> {
        self.below.head().map(|view| Head { view, now: self.rt.now(), busy })
    }

    /// # Errors
    /// When writing has stopped.
    pub(super) fn check_writable(&self) -> Result<(), DeviceError> {
        if self.options.read_only {
            return Err(DeviceError::ReadOnly);
        }
        match &self.state.borrow().stopped {
            None => Ok(()),
            Some(why) => {
                let cause = format!("nothing is written since an error of unknown effect: {why}");
                Err(DeviceError::Io { operation: "write", at: Sector::ZERO, bytes: 0, cause })
            }
        }
    }

    /// Stops writing: the state of the device is unknown.
    pub(super) fn stop(&self, error: &DeviceError) {
        let mut state = self.state.borrow_mut();
        if state.stopped.is_none() {
            state.stopped = Some(error.to_string());
        }
        drop(state);
        self.changed.notify();
    }

    /// Flags of writes that must be durable when they complete.
    pub(super) fn durable_flags(&self) -> WriteFlags {
        WriteFlags { fua: !self.durable_on_completion }
    }

    /// Flags for writes of data, and for writes of a transaction before its tail.
    pub(super) fn flags(&self) -> WriteFlags {
        if self.commit_each_write { self.durable_flags() } else { WriteFlags::NONE }
    }

    /// Takes up to `blocks` of the admitted ones.
    fn take(&self, busy: &[bool], purpose: AllocPurpose, blocks: u32) -> Option<Run> {
        let head = self.head(busy);
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let run = state.allocator.run(&state.space, &self.layout, head, purpose, blocks)?;
        let longest = self.below.geometry().request_bytes_max / self.layout.block_bytes();
        let run = Run { blocks: run.blocks.min(longest.max(1)), ..run };
        debug_assert!(
            run.first + run.blocks <= state.space.tracks.blocks(state.space.tracks.track_of(run.first)).end,
            "B1: a run lies on one track, which the buffer forgets"
        );
        for block in run.first..run.first + run.blocks {
            state.space.take(block);
        }
        debug_assert!(state.reserved >= u64::from(run.blocks), "V3: no more is taken than was admitted");
        state.reserved -= u64::from(run.blocks);
        state.in_flight += u64::from(run.blocks);
        debug_assert!(
            self.layout.superblock.is_above() || state.space.free_blocks() >= state.reserved,
            "V3: what was admitted is still free"
        );
        state.buffer.forget(state.space.tracks.track_of(run.first), run.first..run.first + run.blocks);
        Some(run)
    }

    /// Takes up to `blocks` of the admitted ones when `address` has its turn, and holds the arm that reaches them,
    /// where there is one. Idle work has no address.
    ///
    /// # Errors
    /// Device errors; then no block is taken.
    pub(super) async fn choose(
        &self,
        purpose: AllocPurpose,
        address: Option<u32>,
        blocks: u32,
    ) -> Result<Option<(Run, Option<HeldArm<'_>>)>, DeviceError> {
        if self.below.head().is_none() {
            while let Some(run) = self.take(&[], purpose, blocks) {
                let backed = self.back(run).await;
                if let Ok(true) = backed {
                    return Ok(Some((run, None)));
                }
                self.state.borrow_mut().give_back_unbacked(run);
                backed?;
            }
            return Ok(None);
        }
        self.leave_track();
        let place = self.arms.queue(address.unwrap_or(u32::MAX));
        loop {
            let busy = place.turn().await;
            if let Some(run) = self.take(&busy, purpose, blocks) {
                let arm = self.arms.hold(self.arm_of(run.first));
                if let Some(address) = address {
                    place.leave(address.saturating_add(run.blocks));
                }
                return Ok(Some((run, Some(arm))));
            }
            if !busy.contains(&true) {
                return Ok(None);
            }
            place.another().await;
        }
    }

    fn arm_of(&self, block: u32) -> u32 {
        let state = self.state.borrow();
        state.space.tracks.arm_of(state.space.tracks.track_of(block))
    }

    /// Stores the blocks of `data` from `logical` on.
    pub(super) async fn write(self: Rc<Self>, logical: u32, data: Data, fua: bool) -> Result<(), DeviceError> {
        let step = self.layout.transaction_blocks_max as usize * self.block_bytes();
        let mut at = 0;
        while at < data.len() {
            let part = data.slice(at..(at + step).min(data.len()));
            let first = logical + (at / self.block_bytes()) as u32;
            self.admit(Claim::Write { first, blocks: (part.len() / self.block_bytes()) as u32 }).await?;
            let runs = self
                .place(&part, AllocPurpose::Data, Some(first))
                .await
                .map_err(|error| self.at_logical_address(error, first, part.len()))?;
            {
                let mut state = self.state.borrow_mut();
                let places = runs.iter().flat_map(|run| run.first..run.first + run.blocks);
                for (offset, block) in places.enumerate() {
                    state.set(first + offset as u32, block);
                }
            }
            self.changed.notify();
            if self.commit_each_write || self.has_much_pending() {
                self.commit_with(CommitScope::Promised, &BTreeSet::new()).await?;
            }
            at += step;
        }
        if fua { self.commit_with(CommitScope::Promised, &BTreeSet::new()).await } else { Ok(()) }
    }

    /// Unmaps blocks: they read as zeroes. In several transactions if there are many: the pieces of one have room on a full host.
    pub(super) async fn forget(self: Rc<Self>, logical: u32, blocks: u32) -> Result<(), DeviceError> {
        let (mut at, end) = (logical, logical + blocks);
        while at < end {
            self.check_writable()?;
            self.stock_for_frees().await?;
            at = self.forget_some(at..end);
            if self.commit_each_write || self.has_much_pending() {
                self.commit_with(CommitScope::Promised, &BTreeSet::new()).await?;
            }
        }
        Ok(())
    }

    /// Unmaps blocks until many changes wait for a transaction. Returns the end of those that were.
    fn forget_some(&self, range: Range<u32>) -> u32 {
        let most = self.log.pending_max(&self.layout);
        let mut state = self.state.borrow_mut();
        let mut end = range.start;
        while end < range.end && (end == range.start || state.pending.len() < most) {
            if state.map[end as usize] != 0 {
                state.set(end, 0);
                count(&self.counts.blocks_discarded, 1);
            }
            end += 1;
        }
        state.promises.end(range.start..end);
        end
    }

    fn has_much_pending(&self) -> bool {
        self.state.borrow().pending.len() >= self.log.pending_max(&self.layout)
    }

    /// An error with the logical address, which the caller knows.
    pub(super) fn at_logical_address(&self, error: DeviceError, logical: u32, bytes: usize) -> DeviceError {
        let (at, bytes) = (self.layout.sector_of(logical), bytes as u64);
        match error {
            DeviceError::NoSpace { .. } => DeviceError::NoSpace { at, bytes },
            DeviceError::Io { operation, cause, .. } => DeviceError::Io { operation, at, bytes, cause },
            other => other,
        }
    }

    /// Takes a free cell for a piece, and the arm that reaches it. A request waits for the transaction, so it does not
    /// queue behind data.
    ///
    /// # Errors
    /// Device errors; then no cell is taken.
    pub(super) async fn choose_cell(&self) -> Result<Option<(u64, Option<HeldArm<'_>>)>, DeviceError> {
        if self.below.head().is_none() {
            while let Some((cell, is_first)) = self.take_cell(&[]) {
                let block = self.layout.block_of(cell);
                let backed = match is_first {
                    true => self.back(Run { first: block, blocks: 1 }).await,
                    false => Ok(true),
                };
                if let Ok(true) = backed {
                    return Ok(Some((cell, None)));
                }
                let mut state = self.state.borrow_mut();
                state.space.give_cell(cell);
                state.space.set_backed(block, false);
                backed?;
            }
            return Ok(None);
        }
        self.leave_track();
        loop {
            let freed = self.arms.freed();
            let busy = self.arms.busy();
            if busy.contains(&false) {
                if let Some((cell, _)) = self.take_cell(&busy) {
                    let arm = self.arm_of(self.layout.block_of(cell));
                    return Ok(Some((cell, Some(self.arms.hold(arm)))));
                }
                if !busy.contains(&true) {
                    return Ok(None);
                }
            }
            freed.await;
        }
    }

    /// Takes a free cell; also returns whether it is the first one in use of its block.
    fn take_cell(&self, busy: &[bool]) -> Option<(u64, bool)> {
        let head = self.head(busy);
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let spare = match self.is_short(state) && state.space.spare_cells() > 0 {
            true => state.allocator.spare_cell(&state.space, &self.layout),
            false => None,
        };
        let cell = spare.or_else(|| state.allocator.cell(&state.space, &self.layout, head))?;
        let is_first = state.space.is_free(self.layout.block_of(cell));
        state.space.take_cell(cell);
        debug_assert!(
            self.layout.superblock.is_above() || state.space.free_blocks() >= state.reserved,
            "L1: a piece takes none of the blocks that data was admitted for"
        );
        let block = self.layout.block_of(cell);
        state.buffer.forget(state.space.tracks.track_of(block), block..block + 1);
        Some((cell, is_first))
    }

    /// Writes one cell.
    pub(super) async fn write_cell(&self, cell: u64, bytes: Vec<u8>, flags: WriteFlags) -> Result<(), DeviceError> {
        debug_assert_eq!(bytes.len(), self.layout.cell_bytes() as usize, "a cell is written as a whole");
        debug_assert!(!self.state.borrow().space.is_cell_free(cell), "T3: a piece is written to a cell of its own");
        let written = self.below.write(self.layout.cell_sector(cell), Data::from_slice(&bytes), flags).await;
        if let Err(DeviceError::NoSpace { .. }) = written {
            self.state.borrow_mut().below.holes.insert(self.layout.block_of(cell));
        }
        written
    }

    /// Writes a cell with the flags for what a transaction writes before its tail.
    pub(super) async fn write_early(&self, cell: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
        self.write_cell(cell, bytes, self.flags()).await
    }

    /// Sectors of a request as logical blocks; `None` when it is empty.
    pub(super) fn blocks(&self, at: Sector, bytes: u64) -> Option<(u32, u32)> {
        let first = u64::from(self.layout.map_start(self.map_index)) + at.0 / self.layout.block_sectors;
        let count = bytes / SECTOR_BYTES / self.layout.block_sectors;
        (count > 0).then_some((first as u32, count as u32))
    }
}
