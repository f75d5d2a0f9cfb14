//! The virtual log without a disk on it: a map of numbers whose meaning its owner above defines, and space for the
//! owner's data.
//!
//! The owner takes blocks and cells where eager writing places them, writes them itself, and sets the entries of the
//! map that lead to them. A transaction writes the entries to the device; space that it made obsolete is free once it
//! is durable.
//!
//! Invariants
//!   K1  The target of an entry has been written, with [`Store::flags`], before the entry is set. So a transaction,
//!       which makes everything before its tail durable, never leads to missing data.
//!   K2  Space passed as garbage is needed by no entry as set at that time; it is free after the next transaction.

use std::rc::Rc;

use super::compact::{Emptied, Emptying, Tenant};
use super::core::{CommitScope, Core, State, count};
use super::eager::{AllocPurpose, Head, Run};
use super::format::{ABOVE_AT, FIXED_BYTES, PARKED, Superblock};
use super::landmarks;
use super::layout::{Layout, Plan};
use super::open::{RecoveredMap, format_as, layout_of, newest_anchor, recover_timed, superblocks};
use super::options::{Options, Recovery, VldError};
use super::transaction::Garbage;
use crate::device::{Counter, Device, DeviceError, HeadView, WriteFlags};
use crate::rt::Rt;
use crate::units::{Nanos, Sector};

/// Contents of superblock and anchors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreInfo {
    pub superblock: Superblock,
    /// The record of the owner above, padded with zeroes.
    pub above: Vec<u8>,
    /// The tail is found without a search.
    pub is_parked: bool,
    /// Damaged superblocks, one line each, where the other copy is good.
    pub damaged: Vec<String>,
    /// Other damage without consequences, one line each.
    pub notes: Vec<String>,
}

/// Predicts where the head will be, and when, so that several places can be chosen before anything is written.
///
/// The places must be written in that order, each when the one before is complete; consecutive ones in one request.
pub struct Aim {
    now: Nanos,
    /// The heads at that moment, once something has been chosen and the device can predict them.
    heads: Option<Box<dyn HeadView>>,
    last: Option<Chosen>,
}

/// The request of the place chosen last.
struct Chosen {
    at: Sector,
    sectors: u64,
    /// When it begins, and the heads then, where they differ from the device's current ones.
    issued: Nanos,
    heads: Option<Box<dyn HeadView>>,
}

impl Chosen {
    fn end(&self) -> Sector {
        self.at + self.sectors
    }
}

/// Space below that the virtual log holds, besides what the owner above has taken.
pub struct Holdings {
    /// Pieces of the map, and their cells.
    pub pieces: Vec<(u32, u64)>,
    /// Free after the next transaction.
    pub garbage: Garbage,
    /// Blocks that are being copied to, or are copied and neither referenced nor given back.
    pub copies: u64,
}

/// A virtual log in use. Handles are cheap.
#[derive(Clone)]
pub struct Store {
    core: Rc<Core>,
    recovery: Recovery,
}

impl Store {
    /// Makes a virtual log on `device` with a map of `entries` and a record for the owner above; existing content is
    /// lost.
    ///
    /// # Errors
    /// When the device is too small for `plan`, and device errors.
    pub async fn create(device: &Device, plan: &Plan, entries: u32, above: &[u8]) -> Result<(), VldError> {
        assert!(above.len() <= FIXED_BYTES - ABOVE_AT, "what the file system above keeps fits into the superblock");
        let superblock = Layout::plan_above(device.geometry(), plan, entries, &[])?;
        let around = landmarks::choose(device, superblock);
        let superblock = Layout::plan_above(device.geometry(), plan, entries, &around)?;
        format_as(device, superblock, above).await?;
        Ok(())
    }

    /// Information on `device` about a virtual log with an owner above it.
    ///
    /// # Errors
    /// `Nothing` when there is none, or one that is a disk; `Corrupt`, and device errors.
    pub async fn info(device: &Device) -> Result<StoreInfo, VldError> {
        let found = superblocks(device).await?;
        let superblock = found.superblock;
        if !superblock.is_above() {
            return Err(VldError::Nothing);
        }
        let (anchor, is_whole) = newest_anchor(device, &superblock).await?;
        let damaged: Vec<String> = found.notes().collect();
        let mut notes = Vec::new();
        if !is_whole {
            notes.push("an anchor is damaged; the tail of the log is searched for everywhere".to_string());
        }
        let is_parked = is_whole && anchor.is_some_and(|anchor| anchor.state == PARKED);
        let above = found.above().to_vec();
        Ok(StoreInfo { superblock, above, is_parked, notes, damaged })
    }

    /// Rewrites damaged superblocks from the good one; the next flush makes that durable. Returns how many.
    ///
    /// # Errors
    /// As [`Store::info`]. One that cannot be written stays as it is.
    pub async fn mend_superblocks(device: &Device) -> Result<u64, VldError> {
        let found = superblocks(device).await?;
        landmarks::check(device, &layout_of(found.superblock)?).await?;
        Ok(found.mend(device).await)
    }

    /// Opens the one on `device`. Initially only the space of the map itself is taken; nothing is written before the
    /// first transaction.
    ///
    /// # Errors
    /// `Nothing` and `Corrupt`, and device errors.
    pub async fn open(rt: &Rt, device: Device, options: Options) -> Result<Store, VldError> {
        let start = rt.now();
        let superblock = superblocks(&device).await?.superblock;
        if !superblock.is_above() {
            return Err(VldError::Nothing);
        }
        let (layout, found) = recover_timed(rt, start, &device, superblock, options.read_only).await?;
        let RecoveredMap { map, log, cells, recovery } = found;
        let core = Core::opened(rt, device, layout, options, 0, log, |_, state| {
            cells.iter().for_each(|&cell| state.space.take_cell(cell));
            state.map = map;
        });
        Ok(Store { core: Rc::new(core), recovery })
    }

    pub fn layout(&self) -> &Layout {
        &self.core.layout
    }

    /// Work that opening had to do.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Flags that every write needs before an entry leads to it (K1).
    pub fn flags(&self) -> WriteFlags {
        self.core.flags()
    }

    pub fn free_blocks(&self) -> u64 {
        self.core.state.borrow().space.free_blocks()
    }

    /// Free blocks that can be taken now: storage below may have to be allocated for others ([`Store::provision`]).
    pub fn ready_blocks(&self) -> u64 {
        self.core.state.borrow().space.ready_blocks()
    }

    /// From now on, only blocks with storage below are taken: for use on a device where it is allocated on demand.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub async fn manage_backing(&self) -> Result<(), DeviceError> {
        match self.core.manage_backing() {
            true => self.core.provision_fixed().await,
            false => Ok(()),
        }
    }

    /// Allocates storage below until `target` blocks are ready; gives up after `refused_max` failures. When the storage below is
    /// full, freed blocks are kept ready, up to `keep`, and only others are discarded. True if more is ready now than
    /// at the time of the call.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub async fn provision(&self, target: u64, keep: u64, refused_max: u32) -> Result<bool, DeviceError> {
        self.core.provision(target, keep, refused_max).await
    }

    /// The same for the free blocks of partly used tracks, to which idle work moves others, as far as there is room.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub async fn provision_holes(&self) -> Result<(), DeviceError> {
        self.core.provision_holes().await
    }

    /// The storage below had no room for some block when this was last tried.
    pub fn is_full_below(&self) -> bool {
        self.core.state.borrow().below.is_full
    }

    pub fn empty_tracks(&self) -> usize {
        self.core.state.borrow().space.empty_tracks()
    }

    pub fn entry(&self, number: u32) -> u32 {
        self.core.state.borrow().map.get(number as usize).copied().unwrap_or(0)
    }

    /// Entries that are not 0.
    pub fn entries(&self) -> Vec<(u32, u32)> {
        let state = self.core.state.borrow();
        let entries = state.map.iter().enumerate().filter(|(_, entry)| **entry != 0);
        entries.map(|(number, &entry)| (number as u32, entry)).collect()
    }

    /// Sets an entry for the next transaction (K1).
    pub fn set(&self, number: u32, entry: u32) {
        let mut state = self.core.state.borrow_mut();
        let old = std::mem::replace(&mut state.map[number as usize], entry);
        if old != entry {
            state.pending.entry(number).or_insert(old);
        }
    }

    /// Frees `garbage` after the next transaction (K2).
    pub fn discard(&self, garbage: Garbage) {
        let mut state = self.core.state.borrow_mut();
        debug_assert!(garbage.blocks.iter().all(|&block| !state.space.is_free(block)), "K2: garbage is taken");
        debug_assert!(garbage.cells.iter().all(|&cell| !state.space.is_cell_free(cell)), "K2: garbage is taken");
        state.garbage.append(garbage);
    }

    /// Number of entries that have changed since the last transaction.
    pub fn pending_entries(&self) -> usize {
        self.core.state.borrow().pending.len()
    }

    /// True while something waits for a transaction.
    pub fn is_pending(&self) -> bool {
        let state = self.core.state.borrow();
        !state.pending.is_empty() || !state.garbage.is_empty() || self.core.log.is_undecided()
    }

    /// Begins to choose places for writes that follow those chosen with `last`, if these are not yet complete.
    pub fn aim(&self, last: Option<Aim>) -> Aim {
        let now = self.core.rt.now();
        match last {
            Some(Aim { now: end, heads, .. }) if end > now => Aim { now: end, heads, last: None },
            _ => Aim { now, heads: None, last: None },
        }
    }

    /// Takes up to `blocks` consecutive blocks.
    pub fn take_run(&self, aim: &mut Aim, purpose: AllocPurpose, blocks: u32) -> Option<Run> {
        let mut guard = self.core.state.borrow_mut();
        let state = &mut *guard;
        let layout = &self.core.layout;
        let head = self.head(aim);
        let run = state.allocator.run(&state.space, layout, head, purpose, blocks)?;
        debug_assert!(
            !layout.has_reserved(&(run.first..run.first + run.blocks)),
            "N1: nothing is placed where superblocks, anchors and landmarks are"
        );
        (run.first..run.first + run.blocks).for_each(|block| state.space.take(block));
        self.advance(aim, layout.sector_of(run.first), u64::from(run.blocks) * layout.block_sectors);
        Some(run)
    }

    /// Takes a cell; with `spare`, in a partly used block if there is one.
    pub fn take_cell(&self, aim: &mut Aim, spare: bool) -> Option<u64> {
        let mut guard = self.core.state.borrow_mut();
        let state = &mut *guard;
        let layout = &self.core.layout;
        let head = self.head(aim);
        let found = match spare {
            true => state.allocator.spare_cell(&state.space, layout),
            // A consecutive place needs neither a seek nor a command.
            false => aim
                .last
                .as_ref()
                .map(|last| last.end().0 / layout.cell_sectors)
                .filter(|&cell| is_open(state, layout, cell)),
        };
        let cell = match found {
            Some(cell) => cell,
            None => state.allocator.cell(&state.space, layout, head)?,
        };
        debug_assert!(
            !layout.is_reserved(layout.block_of(cell)),
            "N1: nothing is placed where superblocks, anchors and landmarks are"
        );
        state.space.take_cell(cell);
        self.advance(aim, layout.cell_sector(cell), layout.cell_sectors);
        Some(cell)
    }

    /// Gives back a cell that was never written, or that nothing leads to.
    pub fn give_cell(&self, cell: u64) {
        self.core.state.borrow_mut().space.give_cell(cell);
    }

    /// Takes a block that the owner found in use after a start.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn occupy_block(&self, block: u32) -> Result<(), &'static str> {
        self.check_place(block)?;
        let space = &mut self.core.state.borrow_mut().space;
        if !space.is_free(block) {
            return Err("something else is there");
        }
        space.take(block);
        Ok(())
    }

    /// The same for a cell.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn occupy_cell(&self, cell: u64) -> Result<(), &'static str> {
        let block = u32::try_from(cell / u64::from(self.core.layout.cells_per_block)).unwrap_or(u32::MAX);
        self.check_place(block)?;
        let space = &mut self.core.state.borrow_mut().space;
        if !space.is_cell_free(cell) {
            return Err("something else is there");
        }
        space.take_cell(cell);
        Ok(())
    }

    fn check_place(&self, block: u32) -> Result<(), &'static str> {
        match self.core.layout.is_reserved(block) {
            true => Err("nothing can be there"),
            false => Ok(()),
        }
    }

    /// Makes every entry durable that has been set.
    ///
    /// # Errors
    /// Device errors. After `NoSpace` the next transaction does what this one was to do; after any other error writing stops.
    pub async fn commit(&self) -> Result<(), DeviceError> {
        self.core.commit().await
    }

    /// Writes the record that lets the next start find the tail without a search.
    ///
    /// # Errors
    /// As those of [`Store::commit`].
    pub async fn park(&self) -> Result<(), DeviceError> {
        self.core.park().await
    }

    /// True when the device reports its head position.
    pub fn has_head(&self) -> bool {
        self.core.below.head().is_some()
    }

    /// True after an error of unknown effect.
    pub fn is_stopped(&self) -> bool {
        self.core.state.borrow().stopped.is_some()
    }

    pub fn is_block_free(&self, block: u32) -> bool {
        self.core.state.borrow().space.is_free(block)
    }

    /// Begins to empty the track with the fewest blocks in use, among those that `may` be emptied and for which other
    /// tracks have holes for as many blocks as it `needs`. `None` when there is none, or nothing has been written since
    /// the log was parked.
    pub fn begin_emptying(&self, needs: impl Fn(u64) -> u64, may: impl Fn(u32) -> bool) -> Option<Emptying> {
        let core = &self.core;
        let track = Some(()).filter(|()| core.log.is_in_use()).and_then(|()| core.sparse_track(needs, may))?;
        Some(Emptying::begin(core, track))
    }

    /// Copies the blocks of the track that the tenant needs. True when all are copied; false when a request is pending
    /// or no hole is left.
    ///
    /// # Errors
    /// Device errors. After a write of unknown effect writing stops.
    pub async fn copy_out(&self, emptying: &Emptying, tenant: &mut dyn Tenant) -> Result<bool, DeviceError> {
        self.core.copy_out(emptying, tenant).await.map(|step| step == Emptied::Done)
    }

    /// Ends a copy: it is now referenced, or is given back.
    pub fn end_copy(&self, run: Run, is_used: bool) {
        let mut state = self.core.state.borrow_mut();
        match is_used {
            true => state.mark_referenced(run),
            false => state.give_back(run),
        }
    }

    /// As [`Store::commit`], and moves pieces away from the track. True when the track is then empty.
    ///
    /// # Errors
    /// As those of [`Store::commit`].
    pub async fn commit_emptying(&self, emptying: &Emptying) -> Result<bool, DeviceError> {
        self.core.commit_with(CommitScope::All, &self.core.pieces_in(emptying.track)).await?;
        let is_empty = self.core.state.borrow().space.is_empty(emptying.track);
        count(&self.core.counts.tracks_emptied, u64::from(is_empty));
        Ok(is_empty)
    }

    /// Waits until no transaction is under way; none begins before the result is dropped.
    pub async fn quiet(&self) -> crate::rt::Pass<'_> {
        self.core.commit_gate.enter().await
    }

    /// Space that the log has taken for itself or still holds, while it is [`Store::quiet`].
    pub fn holdings(&self) -> Holdings {
        let state = self.core.state.borrow();
        let mut pieces = self.core.log.placed_pieces();
        let mut garbage = state.garbage.clone();
        let (undecided_pieces, undecided_garbage) = self.core.log.undecided();
        pieces.extend(undecided_pieces);
        garbage.append(undecided_garbage);
        Holdings { pieces, garbage, copies: state.copies_under_way() }
    }

    pub fn is_cell_free(&self, cell: u64) -> bool {
        self.core.state.borrow().space.is_cell_free(cell)
    }

    /// Checks the invariants in memory.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        let state = self.core.state.borrow();
        state.space.check(&self.core.layout)?;
        self.core.log.check()?;
        match self.core.log.placed_pieces().into_iter().find(|&(_, cell)| state.space.is_cell_free(cell)) {
            Some((index, cell)) => Err(format!("T3: piece {index} is in cell {cell}, which is free")),
            None => Ok(()),
        }
    }

    pub fn counters(&self) -> Vec<Counter> {
        let names = ["transactions", "pieces_written", "pieces_rewritten", "anchors_written", "tracks_emptied"];
        let mut counters = self.core.counts.all();
        counters.retain(|(name, _)| names.contains(name));
        counters.extend([
            ("tracks_empty", self.core.state.borrow().space.empty_tracks() as u64),
            ("recovery_blocks_scanned", self.recovery.blocks_scanned),
            ("recovery_pieces_read", self.recovery.pieces_read),
        ]);
        counters
    }

    fn head<'a>(&'a self, aim: &'a Aim) -> Option<Head<'a>> {
        let view = aim.heads.as_deref().or(self.core.below.head())?;
        Some(Head { view, now: aim.now, busy: &[] })
    }

    /// Advances the predicted time by the duration of the write.
    fn advance(&self, aim: &mut Aim, at: Sector, sectors: u64) {
        debug_assert!(sectors > 0, "what is chosen is written, and takes time");
        let chosen = match aim.last.take() {
            Some(last) if last.end() == at => Chosen { sectors: last.sectors + sectors, ..last },
            _ => Chosen { at, sectors, issued: aim.now, heads: aim.heads.take() },
        };
        if let Some(view) = chosen.heads.as_deref().or(self.core.below.head()) {
            match view.after_write(chosen.issued, chosen.at, chosen.sectors as u32, self.flags()) {
                Some((done, heads)) => (aim.now, aim.heads) = (done, Some(heads)),
                // At least until the head would be behind it.
                None => {
                    let (begin, end) = (view.write_access(aim.now, at, 1), view.write_access(aim.now, at + sectors, 1));
                    if view.track_of(at + sectors).is_some() && end > begin {
                        aim.now = Nanos(aim.now.0 + end.0);
                    }
                }
            }
        }
        aim.last = Some(chosen);
    }
}

/// A free cell on a track that is in use, and is not being emptied.
fn is_open(state: &State, layout: &Layout, cell: u64) -> bool {
    let block = u32::try_from(cell / u64::from(layout.cells_per_block)).unwrap_or(u32::MAX);
    if block >= layout.blocks || !state.space.is_cell_free(cell) {
        return false;
    }
    if state.space.is_free(block) && !state.space.is_ready(block) {
        return false;
    }
    let track = state.space.tracks.track_of(block);
    !state.space.is_empty(track) && !state.allocator.avoids(track)
}
