//! The cleaner: empties segments that hold little live data, so that the log always has clean segments to write.
//!
//! Paper: [ro92 §3.3–§3.6].
//!
//! The cleaner makes the live blocks of a segment dirty, as if a user had written them, and so moves them to the end of
//! the log, a slice at a time. Once that is durable, most emptied segments can be written again (G1). The others need two
//! checkpoints, which are made when enough segments wait for them.
//!
//! Invariants
//!   C1  A cleaned segment is written again only after neither checkpoint slot needs it (G1).
//!   C2  Cleaning moves blocks; it never changes what a read returns.
//!   C3  A pass moves no more than fits into the clean segments, together with its checkpoints. Before a victim is
//!       read, an indirect block is assumed above each of its blocks, as in small and in sparse files. Where there are
//!       more, the pass ends in the middle of a victim.
//!   C4  A user's change leaves enough clean segments for the largest checkpoint (with everything dirty that may wait for
//!       one), and `cleaner_segments` besides. After a checkpoint, these last until as much is dirty again. A moved
//!       block makes an indirect block dirty, once between two checkpoints; so the first passes after a checkpoint make
//!       more dirty than they gain, and later passes gain it back. Where clean segments do not last until then, the
//!       next checkpoint has to come earlier (S3), and the same begins again with fewer.

use std::collections::BTreeSet;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::Lfs;
use super::assemble::TransactionScope;
use super::format::*;
use super::layout::*;
use super::state::*;
use super::victims::CleaningPace;
use crate::device::rescue::{rescue, rescue_as};
use crate::device::{Buf, Device, read_right};
use crate::fs::logfs::backend::SpaceAccounts;
use crate::fs::logfs::change::Change;
use crate::fs::logfs::demand::ReserveAccess;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::{Ino, Nanos, SECTOR_BYTES, Sector};

/// Live bytes that one pass moves, or one victim's where that is more. All of them are in memory, and an fsync may have to
/// wait for their writes.
const SLICE_BYTES: u64 = 2 << 20;

/// Clean segments that passes need beside all that checkpoints write: room for a victim, for the rest of the segment in which the
/// log is, and the one that [`Lfs::few_are_surely_clean`] keeps.
pub(super) const WORKING_SEGMENTS: u64 = 3;

/// Blocks above a moved one besides an indirect block: those of higher levels, its inode, and the inode map's.
const ABOVE_BYTES: u64 = 4 * BLOCK_BYTES as u64;

/// Checkpoints are made for waiting segments when these hold so many times as much as a checkpoint writes.
const GAIN_OF_CHECKPOINT: u64 = 8;

/// Room for the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Room {
    /// Bytes that it could still take. A pass may gain less than a segment, so progress is counted in bytes.
    bytes: u64,
    /// Clean segments that a mount after a crash would know of.
    sure: u64,
}

impl Room {
    fn is_more_than(self, before: Room) -> bool {
        self.bytes > before.bytes || self.sure > before.sure
    }
}

/// What a pass may leave undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Urge {
    /// There will be another pass: checkpoints that make no segment clean are left out. Each would write every indirect block
    /// that has changed.
    Patient,
    /// There is time for them.
    Idle,
    /// Without room, an operation fails: what counts is room now, and not what the policy says.
    Urgent,
}

/// What became of a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moved {
    /// All of it was read, and what is alive in it, if anything, cannot be moved: it is damaged, or what leads to it is.
    Nothing,
    /// Something was moved, or there was no time or room to find out.
    Something,
}

/// Result of a pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pass {
    before: Room,
    after: Room,
}

impl Lfs {
    fn room(&self) -> Room {
        let clean = self.clean_segments();
        let state = self.state.borrow();
        let bytes = clean * state.log.layout.segment_bytes()
            + (state.log.layout.segment_sectors() - state.log.end.offset) * SECTOR_BYTES;
        Room { bytes, sure: state.log.segments.surely_clean() }
    }

    /// Segments that the log could continue in.
    pub(super) fn clean_segments(&self) -> u64 {
        let state = self.state.borrow();
        let without_storage = if state.log.is_full_below { 0 } else { state.log.segments.clean.len() };
        (state.log.segments.ready.len() + without_storage) as u64
    }

    /// Cleans in the background until there are enough clean segments again.
    pub(super) async fn clean_if_short(self: &Rc<Self>) {
        if self.provision_if_full().await.is_err() {
            return;
        }
        let (mut most, mut passes_without_gain) = (0, 0);
        while self.clean_segments() < self.low_water() && passes_without_gain < PASSES_WITHOUT_GAIN_MAX {
            // The operation that needs the space gets the error.
            let Ok(pass) = self.clean_pass(Urge::Patient).await else { return };
            if !pass.after.is_more_than(pass.before) {
                return;
            }
            passes_without_gain = if pass.after.bytes > most { 0 } else { passes_without_gain + 1 };
            most = most.max(pass.after.bytes);
        }
    }

    /// Below this many clean segments the cleaner works.
    fn low_water(&self) -> u64 {
        let state = self.state.borrow();
        // Room for a checkpoint of all that may wait for it, and not only of what waits now: of segments that become clean
        // until then a mount after a crash knows nothing.
        let need = state.log_need_bytes().max(state.log_need_most_bytes());
        let soon = need + 2 * Segmented::batch_bytes(&state);
        let least = state.cleaner_segments() + soon.div_ceil(state.log.layout.segment_bytes());
        match state.log.options.cleaner.pace {
            CleaningPace::Late => least,
            CleaningPace::Early => least.max(state.possible_segments() / 2),
        }
    }

    /// Makes room for an operation that found too few clean segments.
    ///
    /// # Errors
    /// `NoSpace` when cleaning makes none.
    pub(super) async fn wait_for_clean(&self) -> FsResult<()> {
        let before = self.room();
        let waits = self.state.borrow().log.waits_for_room.get();
        if waits >= WAITS_FOR_ROOM_MAX {
            return Err(FsError::NoSpace);
        }
        for passes in 0..=PASSES_WITHOUT_GAIN_MAX {
            let urge = if passes == 0 { Urge::Patient } else { Urge::Urgent };
            let Some(pass) = self.this().clean_pass_for(urge, Some(before)).await? else {
                return Ok(()); // Another task's pass has made room.
            };
            if passes == 0 {
                self.state.borrow().log.waits_for_room.update(|waits| waits + 1);
            }
            if pass.after.is_more_than(before) || pass.after.is_more_than(pass.before) {
                return Ok(());
            }
        }
        Err(FsError::NoSpace)
    }

    /// Compacts live data because the storage below is full: the segments gained stay allocated below.
    pub(super) async fn clean_for_room(&self) -> FsResult<()> {
        let room = |lfs: &Lfs| {
            let state = lfs.state.borrow();
            (state.log.segments.ready.len(), state.log.segments.surely_ready())
        };
        let before = room(self);
        let is_more = |(ready, sure): (usize, u64)| ready > before.0 || sure > before.1;
        for _ in 0..PASSES_WITHOUT_GAIN_MAX {
            Box::pin(self.this().clean_pass(Urge::Urgent)).await?;
            if is_more(room(self)) {
                return Ok(());
            }
        }
        Err(FsError::NoSpace)
    }

    /// Cleans while the volume is idle. Returns true when more cleaning is worthwhile.
    pub(super) async fn clean_idle(&self, until: Nanos) -> FsResult<bool> {
        loop {
            {
                let mut state = self.state.borrow_mut();
                let possible = state.possible_segments();
                let clean = (state.log.segments.ready.len() + state.log.segments.clean.len()) as u64;
                let enough = clean * 10 >= possible * 9; // [se93]: 90 % of what is possible
                let best = state.choose_victim(true);
                let gain = best.is_some_and(|segment| {
                    state.log.segments.get(segment).live_bytes * 4 <= state.log.layout.segment_bytes() * 3
                });
                // The checkpoints of a pass turn empty segments into clean ones and return their storage below.
                let empty = state.log.segments.waiting([state.log.end.segment, state.log.end.next_segment]) > 0;
                if (enough || !gain) && !empty || state.stopped.is_some() {
                    return Ok(false);
                }
            }
            let pass = self.this().clean_pass(Urge::Idle).await?;
            if pass.after.bytes <= pass.before.bytes {
                return Ok(false);
            }
            if self.rt.now() >= until {
                return Ok(true);
            }
        }
    }

    async fn clean_pass(self: &Rc<Self>, urge: Urge) -> FsResult<Pass> {
        let pass = self.clean_pass_for(urge, None).await?;
        Ok(pass.unwrap_or_else(|| unreachable!("nothing makes it needless")))
    }

    /// One pass: takes back what needs no work, and otherwise moves a slice of live data, or writes checkpoints where
    /// that gains more. `None`, and no pass, where there is more room than `asked` had once the passes of others have ended: of
    /// several changes that wait at once, the last would otherwise wait for a pass of each.
    async fn clean_pass_for(self: &Rc<Self>, urge: Urge, asked: Option<Room>) -> FsResult<Option<Pass>> {
        let _pass = self.work.cleaner_gate.enter().await;
        let before = self.room();
        if asked.is_some_and(|asked| before.is_more_than(asked)) {
            return Ok(None);
        }
        if self.closed.get() {
            return Ok(Some(Pass { before, after: before }));
        }
        self.state.borrow_mut().log.counters.cleaner_passes += 1;
        if self.few_are_surely_clean() {
            self.checkpoint(false).await?;
        } else if self.take_back_early().await? == 0 {
            let moved = if self.checkpoints_gain() { 0 } else { self.move_live(urge).await? };
            if moved > 0 {
                let submitted = self.submit_loading(TransactionScope::Cleaned).await?;
                self.make_durable(submitted.end_sequence).await?;
            }
            if moved == 0 || self.take_back_early().await? == 0 {
                self.take_back_by_checkpoints().await?;
            } else if self.room().bytes <= before.bytes {
                // Users have written in the meantime, or the victims were nearly full: the next pass gains more.
                let gain_nothing = self.waiting_segments() == 0 && !self.room_is_short();
                if urge != Urge::Patient || !gain_nothing {
                    self.take_back_by_checkpoints().await?;
                }
            }
        }
        Ok(Some(Pass { before, after: self.room() }))
    }

    /// Makes the log durable that says which segments are empty, and takes those back that the slots do not need.
    async fn take_back_early(self: &Rc<Self>) -> FsResult<u64> {
        let wanted = {
            let state = self.state.borrow();
            state.log.segments.next_early(state.older_slot())
        };
        match wanted {
            Some(sequence) => {
                self.make_durable(sequence).await?;
                Ok(self.release_early().await)
            }
            None => Ok(0),
        }
    }

    pub(super) async fn take_back_by_checkpoints(self: &Rc<Self>) -> FsResult<()> {
        for _ in 0..2 {
            self.checkpoint(false).await?;
            if self.state.borrow().log.segments.empty.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Whether a mount after a crash would soon lack room for its checkpoint, and a checkpoint now helps.
    fn few_are_surely_clean(&self) -> bool {
        let state = self.state.borrow();
        let need = state.log_need_bytes() + Segmented::batch_bytes(&state) + state.log.layout.segment_bytes();
        !state.log.segments.early.is_empty()
            && state.log.segments.surely_ready() * state.log.layout.segment_bytes() < need
    }

    /// Segments that checkpoints would make clean.
    pub(super) fn waiting_segments(&self) -> u64 {
        let state = self.state.borrow();
        state.log.segments.waiting([state.log.end.segment, state.log.end.next_segment])
    }

    /// Whether checkpoints are the cheaper way to make room now.
    fn checkpoints_gain(&self) -> bool {
        let waiting = self.waiting_segments();
        let state = self.state.borrow();
        waiting * state.log.layout.segment_bytes() > GAIN_OF_CHECKPOINT * state.log_need_bytes()
    }

    /// Passes have begun to use up the cleaner's own segments: what counts is room now, and not what the policy says.
    pub(super) fn room_is_short(&self) -> bool {
        self.clean_segments() < self.state.borrow().cleaner_segments()
    }

    /// Makes the live blocks of the best victims dirty, within C3. Returns the number of victims.
    async fn move_live(self: &Rc<Self>, urge: Urge) -> FsResult<u64> {
        debug_assert!(self.work.cleaner_gate.is_held(), "C3: one pass at a time moves blocks");
        let (mut moved, mut count) = (0, 0);
        loop {
            let room_is_short = urge == Urge::Urgent || self.room_is_short();
            let (victim, live) = {
                let mut guard = self.state.borrow_mut();
                let state = &mut *guard;
                let Some(victim) = state.choose_victim(room_is_short) else { break };
                let live = state.log.segments.get(victim).live_bytes;
                debug_assert!(live > 0, "K1: something is alive in a victim");
                debug_assert_ne!(victim, state.log.end.segment, "K1: the log has left a victim");
                // What one victim gains may be less than what moving it costs.
                let slice = match state.log.options.cleaner.pace {
                    CleaningPace::Early if !room_is_short => 0,
                    _ => SLICE_BYTES,
                };
                let fits = (moved == 0 || moved + live <= slice) && state.has_room_to_move(moved, live);
                if !fits {
                    break;
                }
                state.log.segments.cleaned(victim);
                (victim, live)
            };
            let progress = self.move_segment(victim, moved).await?;
            let mut state = self.state.borrow_mut();
            debug_assert!(
                state.log_need_bytes() <= state.log.segments.ready.len() as u64 * state.log.layout.segment_bytes(),
                "C3: the checkpoint after a pass fits"
            );
            match progress {
                // The rest of the pass is for others.
                Moved::Nothing => state.log.segments.stays(victim),
                Moved::Something => {
                    moved += live;
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    /// Makes the live blocks of a segment dirty, in a pass that has moved `moved` bytes before it.
    pub(super) fn move_segment(&self, segment: SegmentNo, moved: u64) -> LocalBoxFuture<'_, FsResult<Moved>> {
        Box::pin(self.move_live_of(segment, moved))
    }

    async fn move_live_of(&self, segment: SegmentNo, mut moved: u64) -> FsResult<Moved> {
        let mut result = Moved::Nothing;
        let uses = |state: &State| state.log.segments.get(segment).uses;
        let (layout, use_read) = {
            let state = self.state.borrow();
            if is_in_flight(&state, segment) || state.log.end.next_segment == segment {
                return Ok(Moved::Something); // What can be read is not what it holds.
            }
            (state.log.layout, uses(&state))
        };
        let bytes = self.read_segment(&layout, segment).await?;
        if uses(&self.state.borrow()) != use_read {
            return Ok(Moved::Something);
        }
        {
            let mut state = self.state.borrow_mut();
            state.log.counters.cleaner_segments_read += 1;
            state.log.counters.cleaner_read_bytes += bytes.len() as u64;
        }
        let partials = partials_in(&layout, segment, &bytes);
        let is_user_data = |item: &Item| match *item {
            Item::Block { ino, key, .. } => BlockKey(key).is_data() && !is_internal(Ino(ino.0)),
            _ => true,
        };
        // To the end of the segment, where no partial segment with a block has room.
        let read: u64 = partials.iter().map(|partial| u64::from(partial.summary.sectors)).sum();
        if layout.segment_sectors() - read < (1 + BLOCK_SECTORS).next_multiple_of(layout.align_sectors())
            && partials.iter().flat_map(|partial| &partial.items).all(is_user_data)
        {
            self.state.borrow_mut().log.segments.has_no_tree(segment);
        }
        let behind = partials_behind_damage(&layout, segment, &bytes, &partials);
        if !behind.is_empty() {
            cover("lfs: the cleaner goes on behind damage in a segment");
        }
        for partial in partials.into_iter().chain(behind) {
            let mut at = partial.start + u64::from(partial.summary.summary_sectors);
            for item in partial.items {
                if uses(&self.state.borrow()) != use_read {
                    return Ok(Moved::Something); // Users have emptied it in the meantime.
                }
                if !self.state.borrow().has_room_to_move(moved, item.live_bytes()) {
                    cover("lfs: a pass ends in the middle of a victim");
                    return Ok(Moved::Something);
                }
                let offset = ((at - layout.segment_start(segment)) * SECTOR_BYTES) as usize;
                let end = offset + (item.sectors() * SECTOR_BYTES) as usize;
                debug_assert!(end <= bytes.len(), "what a summary that was checked names lies in its segment");
                let payload = &bytes[offset..end];
                let bytes_moved = match item {
                    Item::Block { ino, key, written, .. } => {
                        let id = BlockId { ino, key: BlockKey(key) };
                        self.move_block(id, at, payload, layout.time_of(written)).await?
                    }
                    Item::Inodes { count, .. } => {
                        if self.move_inodes(count, at, payload).await? > 0 {
                            result = Moved::Something;
                        }
                        0
                    }
                    Item::Xattr { ino, .. } => self.move_xattr(ino, at, payload).await?,
                    _ => 0,
                };
                if bytes_moved > 0 {
                    result = Moved::Something;
                }
                moved += bytes_moved;
                at = at + item.sectors();
            }
        }
        Ok(result)
    }

    /// Reads a whole segment. Where the intact part is less than the live part, the other readings of the device are
    /// tried for the rest. Blocks that no reading returns stay where they are, as damaged blocks do; all others move.
    async fn read_segment(&self, layout: &Layout, segment: SegmentNo) -> FsResult<Buf> {
        let mut bytes = rescue(&self.device, layout.segment_start(segment), layout.segment_sectors()).await?.bytes;
        while self.device.readings() > 1 {
            let partials = partials_in(layout, segment, &bytes);
            let found: u64 = partials.iter().flat_map(|partial| &partial.items).map(|item| item.live_bytes()).sum();
            if found >= self.state.borrow().log.segments.get(segment).live_bytes {
                break;
            }
            let sectors: u64 = partials.iter().map(|partial| u64::from(partial.summary.sectors)).sum();
            let next = partials.last().map(|partial| partial.summary.sequence + 1);
            let follows = |summary: &Summary| next.is_none_or(|next| summary.sequence == next);
            let Some(right) = partial_otherwise(&self.device, layout, segment, sectors, follows).await else { break };
            let from = (sectors * SECTOR_BYTES) as usize;
            bytes[from..from + right.len()].copy_from_slice(&right);
        }
        Ok(bytes)
    }

    /// Makes a block dirty if it is alive at `at`. `written` is when a user wrote it, if that is known. Returns the bytes moved.
    async fn move_block(&self, id: BlockId, at: Sector, payload: &[u8], written: Option<i64>) -> FsResult<u64> {
        if !id.key.is_valid() {
            return Ok(0);
        }
        let moved = self.run(|state| {
            let pointer = state.pointer(id)?;
            let Pointer::Mapped { at: now_at, crc, .. } = pointer else { return Ok(0) };
            if now_at != at {
                return Ok(0);
            }
            if state.blocks.peek(id).is_none() {
                if crate::codec::crc32c(payload) != crc {
                    // It stays where it is, and so does its segment; a reader of the block gets the error.
                    return Ok(0);
                }
                let mut block = Buf::dirty(BLOCK_BYTES);
                block[..payload.len()].copy_from_slice(payload);
                block[payload.len()..].fill(0);
                state.blocks.insert_clean(id, block.freeze());
            }
            cover("lfs: the cleaner moves a block");
            let mut change = Change::new(state);
            change.touch(id)?;
            change.commit(ReserveAccess::Internal)?;
            if let Some(written) = written {
                state.log.moving.insert(id, written);
            }
            Ok(pointer.live_bytes())
        });
        leave_lost(moved.await)
    }

    /// Returns how many were moved.
    async fn move_inodes(&self, count: u32, first: Sector, payload: &[u8]) -> FsResult<u32> {
        let mut total = 0;
        for index in 0..u64::from(count) {
            let slot = InodeSlot::new(first + index / INODES_PER_SECTOR, index % INODES_PER_SECTOR);
            let raw = &payload[index as usize * Inode::BYTES..];
            let Some(inode) = Inode::unseal(raw) else { continue };
            let ino = Ino(inode.ino);
            let moved = self.run(|state| {
                if state.inode_slot(ino)? != slot {
                    return Ok(0);
                }
                cover("lfs: the cleaner moves an inode");
                state.insert_inode(ino, InodeMem::new(inode, slot));
                let mut change = Change::new(state);
                change.inode_mut(ino, InodeDirt::Own)?;
                change.commit(ReserveAccess::Internal)?;
                Ok(1)
            });
            total += leave_lost(moved.await)?;
        }
        Ok(total)
    }

    /// As [`Lfs::move_block`].
    async fn move_xattr(&self, ino: Ino, at: Sector, payload: &[u8]) -> FsResult<u64> {
        let moved = self.run(|state| {
            let known = state.inode(ino)?;
            match known.inode.xattr_pointer() {
                Some(Pointer::Mapped { at: now_at, crc, .. })
                    if now_at == at && !known.xattr_dirty && crate::codec::crc32c(payload) == crc =>
                {
                    cover("lfs: the cleaner moves attributes");
                    let same = crate::device::Data::from_slice(payload);
                    if known.xattr.is_none() {
                        // Counted as if they had been read: the change may be refused.
                        known.xattr = Some(same.clone());
                        state.count_attributes(ino);
                    }
                    let mut change = Change::new(state);
                    change.set_xattr(ino, Some(same))?;
                    change.commit(ReserveAccess::Internal)?;
                    Ok(payload.len() as u64)
                }
                _ => Ok(0),
            }
        });
        leave_lost(moved.await)
    }
}

/// Passes without a gain before the volume counts as full: the first pass may only have moved an obstacle.
const PASSES_WITHOUT_GAIN_MAX: u32 = 3;

/// Passes for changes that wait for room, without one in between for which there was enough, before the volume counts as full:
/// what one kind of pass gains another may use up.
const WAITS_FOR_ROOM_MAX: u32 = 256;

/// A removed file has no live blocks. Damaged and unreadable blocks stay where they are, and so do their segments:
/// readers of these blocks get the error, and other segments can still be cleaned.
fn leave_lost<T: Default>(result: FsResult<T>) -> FsResult<T> {
    match result {
        Err(FsError::Stale | FsError::Corrupt { .. }) => Ok(T::default()),
        Err(FsError::Device(error)) if error.is_of_medium() => Ok(T::default()),
        other => other,
    }
}

fn is_in_flight(state: &State, segment: SegmentNo) -> bool {
    state.in_flight.iter().any(|flight| state.log.layout.segment_of(flight.at) == Some(segment))
}

impl State {
    /// Segments that would be clean if cleaning went on without end.
    fn possible_segments(&self) -> u64 {
        let free = self.log.layout.capacity_bytes().saturating_sub(Segmented::used_bytes(self));
        free / self.log.layout.segment_bytes()
    }

    /// Clean segments that only the cleaner may use (C4), at most a third of the reserve.
    ///
    /// Of `all` that may become dirty a part is not gained back by the time it is missed most: where passes gain `g` bytes for
    /// each that they move, and these lie anywhere, `all * (1 - g + g * ln(g))`. Three quarters are that of a full volume
    /// with the default reserve, whose emptiest segments are 94 % full.
    pub(super) fn cleaner_segments(&self) -> u64 {
        let reserve = u64::from(self.log.layout.superblock.reserve_segments);
        let missed = self.log_need_most_bytes() / 4 * 3 + Segmented::batch_bytes(self);
        (missed.div_ceil(self.log.layout.segment_bytes()) + WORKING_SEGMENTS).min(reserve / 3).max(3)
    }

    /// Whether a pass that has moved `moved` bytes has room for `more` of them, with an indirect block above each (C3).
    fn has_room_to_move(&self, moved: u64, more: u64) -> bool {
        let segments = &self.log.segments;
        let (segment_bytes, ready) = (self.log.layout.segment_bytes(), segments.ready.len() as u64);
        // The second checkpoint writes little more than the blocks of the usage table that the first one changed.
        let second_checkpoint = (segments.table_blocks() + 2) * BLOCK_BYTES as u64;
        let (dirty, above) = (self.log_need_bytes(), more + ABOVE_BYTES);
        // After a crash there must be room for the checkpoint, without the segments that a mount does not know of. The log
        // takes those first.
        let taken = (moved + more).div_ceil(segment_bytes) + 1;
        let of_mount = (dirty.saturating_sub(moved) + above).div_ceil(segment_bytes);
        dirty + more + above + second_checkpoint <= ready.saturating_sub(1) * segment_bytes
            && taken + of_mount <= ready
            && segments.are_surely_ready(of_mount)
    }

    /// The best victim of the policy, or where `room_is_short` the one that makes the most room.
    pub(super) fn choose_victim(&mut self, room_is_short: bool) -> Option<SegmentNo> {
        let layout = self.log.layout;
        let in_flight: BTreeSet<SegmentNo> =
            self.in_flight.iter().filter_map(|flight| layout.segment_of(flight.at)).collect();
        let now = self.now.nanos_since_epoch();
        self.log.segments.choose_victim(now, room_is_short, |segment| in_flight.contains(&segment))
    }
}

/// A partial segment found in a segment.
pub(super) struct FoundPartial {
    pub start: Sector,
    pub summary: Summary,
    pub items: Vec<Item>,
}

/// The partial segments of a segment's present use: they follow one another in position and sequence number.
pub(super) fn partials_in(layout: &Layout, segment: SegmentNo, bytes: &[u8]) -> Vec<FoundPartial> {
    let mut found: Vec<FoundPartial> = Vec::new();
    let mut offset = 0;
    while let Some(partial) = partial_at(layout, segment, offset, bytes) {
        if found.last().is_some_and(|last| last.summary.sequence + 1 != partial.summary.sequence) {
            break;
        }
        offset += u64::from(partial.summary.sectors);
        found.push(partial);
    }
    found
}

/// The intact partial segments behind the first that is damaged, where `intact` are those before it. A segment's present use has the
/// highest numbers in it. What they name may be alive all the same only where a pointer with its checksum leads there.
pub(super) fn partials_behind_damage(
    layout: &Layout,
    segment: SegmentNo,
    bytes: &[u8],
    intact: &[FoundPartial],
) -> Vec<FoundPartial> {
    let mut found: Vec<FoundPartial> = Vec::new();
    let mut offset: u64 = intact.iter().map(|partial| u64::from(partial.summary.sectors)).sum();
    while offset < layout.segment_sectors() {
        let last = found.last().or(intact.last()).map(|last| last.summary.sequence);
        let rest = &bytes[(offset * SECTOR_BYTES) as usize..];
        // Most sectors begin none; the magic number shows that without decoding the rest.
        let is_candidate = crate::codec::get_at(rest, 0) == Some(SUMMARY_MAGIC);
        let partial = is_candidate.then(|| partial_at(layout, segment, offset, bytes)).flatten();
        match partial.filter(|partial| last.is_none_or(|last| last < partial.summary.sequence)) {
            Some(partial) => {
                offset += u64::from(partial.summary.sectors);
                found.push(partial);
            }
            None => offset += layout.align_sectors(),
        }
    }
    found
}

/// The intact partial segment `offset` sectors into `segment`, whose bytes are `bytes`.
pub(super) fn partial_at(layout: &Layout, segment: SegmentNo, offset: u64, bytes: &[u8]) -> Option<FoundPartial> {
    let rest = bytes.get((offset * SECTOR_BYTES) as usize..)?;
    let summary = Summary::decode(rest)?;
    let claims = summary.magic == SUMMARY_MAGIC
        && summary.uuid == layout.superblock.uuid
        && summary.segment == segment
        && u64::from(summary.offset) == offset
        && summary.next_segment < layout.segment_count()
        && summary.next_segment != segment
        && summary.sectors > 0
        && u64::from(summary.sectors).is_multiple_of(layout.align_sectors());
    if !claims {
        return None;
    }
    let partial = rest.get(..(u64::from(summary.sectors) * SECTOR_BYTES) as usize)?;
    if !partial_is_sealed(partial, &summary) {
        return None;
    }
    let items = summary_items(partial, &summary)?;
    Some(FoundPartial { start: layout.segment_start(segment) + offset, summary, items })
}

/// The bytes of the partial segment `offset` sectors into `segment` that `is_wanted`, from a reading of the device
/// other than the default one.
pub(super) async fn partial_otherwise(
    device: &Device,
    layout: &Layout,
    segment: SegmentNo,
    offset: u64,
    is_wanted: impl Fn(&Summary) -> bool,
) -> Option<Buf> {
    let (start, sectors) = (layout.segment_start(segment), layout.segment_sectors());
    // On a device with one reading that is the default one.
    for reading in (0..device.readings()).filter(|_| device.readings() > 1) {
        let Ok(read) = rescue_as(device, start, sectors, Some(reading)).await else { continue };
        let found = partial_at(layout, segment, offset, &read.bytes).filter(|partial| is_wanted(&partial.summary));
        let Some(summary) = found.map(|partial| partial.summary) else { continue };
        // Only the sectors of this partial segment are known to be right.
        let is_right = |bytes: &[u8]| Summary::decode(bytes) == Some(summary) && partial_is_sealed(bytes, &summary);
        return read_right(device, start + offset, summary.sectors.into(), is_right).await;
    }
    None
}
