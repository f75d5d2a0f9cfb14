//! The cleaner: empties segments that hold little live data, so that the log always has clean segments to write.
//!
//! Paper: [ro92 §3.3–§3.6].
//!
//! A pass finds the live blocks of some segments, and moves them to the end of the log (`moving`). Once that is durable,
//! most emptied segments can be written again (G1). The others need two checkpoints, which are made when enough segments
//! wait for them.
//!
//! Invariants
//!   C1  A cleaned segment is written again only after neither checkpoint slot needs it (G1).
//!   C2  Cleaning moves blocks; it never changes what a read returns.
//!   C3  A pass moves no more than fits into the clean segments, together with its checkpoints. Before a victim is
//!       read, an indirect block is assumed above each of its blocks, as in small and in sparse files. Where there are
//!       more, the pass ends in the middle of a victim.
//!   C4  user's change leaves enough clean segments for the largest checkpoint (with everything dirty that may wait for
//!       one), and `cleaner_segments` besides. After a checkpoint, these last until as much is dirty again. A moved
//!       block makes an indirect block dirty, once between two checkpoints; so the first passes after a checkpoint make
//!       more dirty than they gain, and later passes gain it back. Where clean segments do not last until then, the
//!       next checkpoint has to come earlier (S3), and the same begins again with fewer.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::Lfs;
use super::format::*;
use super::layout::*;
use super::moving::FoundLive;
use super::slices::SLICE_BYTES;
use super::state::*;
use super::victims::CleaningPace;
use crate::fs::logfs::backend::SpaceAccounts;
use crate::fs::{FsError, FsResult};
use crate::units::{Nanos, SECTOR_BYTES};

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

    /// Wakes the background task where clean segments run short, unless it has tried with as many and gained too few.
    pub(super) fn clean_soon_if_short(&self) {
        #[cfg(test)]
        if std::env::var("NOBG").is_ok() {
            return;
        }
        let clean = self.clean_segments();
        let is_new = self.work.clean_segments_tried.get().is_none_or(|tried| clean < tried);
        if is_new && clean < self.low_water() {
            self.write_back_wanted.notify();
        }
    }

    /// Cleans in the background until there are enough clean segments again.
    pub(super) async fn clean_if_short(self: &Rc<Self>) {
        self.clean_while_short().await;
        let clean = self.clean_segments();
        self.work.clean_segments_tried.set((clean < self.low_water()).then_some(clean));
    }

    async fn clean_while_short(self: &Rc<Self>) {
        if self.provision_if_full().await.is_err() {
            return;
        }
        let (mut most, mut passes_without_gain) = (0, 0);
        while self.clean_segments() < self.low_water() && passes_without_gain < PASSES_WITHOUT_GAIN_MAX {
            // The operation that needs the space gets the error.
            let Ok(pass) = self.clean_pass(Urge::Patient, None).await else { return };
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
        let waits = {
            let state = self.state.borrow();
            state.log.waits_for_room.update(|waits| waits + 1);
            state.log.waits_for_room.get()
        };
        if waits > WAITS_FOR_ROOM_MAX {
            return Err(FsError::NoSpace);
        }
        let _waiting = self.work.slices.wait_for_room();
        for passes in 0..=PASSES_WITHOUT_GAIN_MAX {
            let urge = if passes == 0 { Urge::Patient } else { Urge::Urgent };
            // Another task's pass may have made room.
            let pass = self.this().clean_pass(urge, Some(before)).await?;
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
            Box::pin(self.this().clean_pass(Urge::Urgent, None)).await?;
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
            let pass = self.this().clean_pass(Urge::Idle, None).await?;
            if pass.after.bytes <= pass.before.bytes {
                return Ok(false);
            }
            if self.rt.now() >= until {
                return Ok(true);
            }
        }
    }

    /// One pass: takes back what needs no work, and otherwise moves a slice of live data, or writes checkpoints where
    /// that gains more. Nothing where there is more room than `asked` by the time that the passes of others have ended.
    async fn clean_pass(self: &Rc<Self>, urge: Urge, asked: Option<Room>) -> FsResult<Pass> {
        let _pass = self.work.cleaner_gate.enter().await;
        let before = self.room();
        #[cfg(test)]
        let asked = if std::env::var("NOASK").is_ok() { None } else { asked };
        if self.closed.get() || asked.is_some_and(|asked| before.is_more_than(asked)) {
            return Ok(Pass { before, after: before });
        }
        self.state.borrow_mut().log.counters.cleaner_passes += 1;
        if self.few_are_surely_clean() {
            self.checkpoint(false).await?;
        } else if self.take_back_early().await? == 0 {
            let moved = if self.checkpoints_gain() { 0 } else { self.move_live(urge).await? };
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
        Ok(Pass { before, after: self.room() })
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

    /// Moves the live blocks of the best victims, within C3. Returns the number of victims.
    async fn move_live(self: &Rc<Self>, urge: Urge) -> FsResult<u64> {
        debug_assert!(self.work.cleaner_gate.is_held(), "C3: one pass at a time moves blocks");
        let mut found = FoundLive::default();
        let mut count = 0;
        while let Some(victim) = self.next_victim(urge, &mut found) {
            Box::pin(self.find_live(victim, &mut found)).await?;
            count += 1;
        }
        if count > 0 {
            Box::pin(self.move_found(found)).await?;
        }
        Ok(count)
    }

    /// The next victim of a pass that has found some; `None` where the pass has enough, or there is no room for more.
    fn next_victim(&self, urge: Urge, found: &mut FoundLive) -> Option<SegmentNo> {
        let room_is_short = urge == Urge::Urgent || self.room_is_short();
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let victim = state.choose_victim(room_is_short)?;
        let live = state.log.segments.get(victim).live_bytes;
        debug_assert!(live > 0, "K1: something is alive in a victim");
        debug_assert_ne!(victim, state.log.end.segment, "K1: the log has left a victim");
        // What one victim gains may be less than what moving it costs.
        let slice = match state.log.options.cleaner.pace {
            CleaningPace::Early if !room_is_short => 0,
            _ => SLICE_BYTES,
        };
        let moves = found.live_bytes();
        let fits = (moves == 0 || moves + live <= slice) && state.has_room_for(found, live);
        if !fits {
            return None;
        }
        state.log.segments.cleaned(victim);
        found.add_segment(live);
        Some(victim)
    }
}

/// Passes without a gain before the volume counts as full: the first pass may only have moved an obstacle.
const PASSES_WITHOUT_GAIN_MAX: u32 = 3;

/// Waits for room, without a change in between for which there was enough, before the volume counts as full: what one
/// kind of pass gains another may use up.
const WAITS_FOR_ROOM_MAX: u32 = 256;

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

    /// Whether there is room to move what a pass has found, and `more` bytes, with an indirect block above each (C3).
    fn has_room_for(&self, found: &FoundLive, more: u64) -> bool {
        let moved = found.live_bytes();
        // Summaries and rounding, as in `log_need_bytes`.
        let dirty = found.dirty_bytes() / 8 * 9;
        self.has_room(self.log_need_bytes() + dirty, moved, more)
    }

    /// Whether there is room to move `more` bytes, with an indirect block above each (C3), where of what is dirty `moved`
    /// bytes are moved.
    pub(super) fn has_room_to_move(&self, moved: u64, more: u64) -> bool {
        self.has_room(self.log_need_bytes(), moved, more)
    }

    fn has_room(&self, dirty: u64, moved: u64, more: u64) -> bool {
        let segments = &self.log.segments;
        let (segment_bytes, ready) = (self.log.layout.segment_bytes(), segments.ready.len() as u64);
        // The second checkpoint writes little more than the blocks of the usage table that the first one changed.
        let second_checkpoint = (segments.table_blocks() + 2) * BLOCK_BYTES as u64;
        let above = more + ABOVE_BYTES;
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
