//! The array in memory: its members, what is recorded about them, and how the records are updated.
//!
//! Invariants
//!   A1  A write is acknowledged only when every member that took no part in it is recorded as failed on the others. So
//!       a member that missed a write is never trusted later.
//!   A2  The record changes only while no write is under way and everything completed is durable: then all rows are
//!       consistent, whatever was recorded before.
//!   A3  An array that has lost more members than it tolerates writes nothing more, not even a record of the loss.
//!   A4  A range recorded as known in a missing member's units is correct whatever the bitmap says: rows that lack a
//!       member are written only through the journal. So a range is dropped before a row can be written in another way.
//!   A5  Before an array that has been opened writes to data or replays the journal, and when its user is done with it,
//!       the generation of every member in use is raised twice, one step after the other. So an older copy of a member
//!       is not trusted, while wherever the power fails in between, all members are.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::join_all;

use super::bitmap::Bitmap;
use super::journal::Journal;
use super::request::{Deferred, QueuedWrite};
use super::rows::{LeftOut, Ranges, RowLocks, RowSet};
use super::shape::{Level, Shape};
use super::{ArrayOptions, UncertainData};
pub use crate::device::MemberState;
use crate::device::{Device, DeviceError, WriteFlags, worse};
use crate::rt::{Event, Gate, Rt};
use crate::units::{Nanos, SECTOR_BYTES, Sector};
use crate::volume::format::{BLOCK_SECTORS, FLAG_JOURNAL_ALWAYS, KNOWN_MAX, MAGIC, SUPERBLOCKS, Superblock, VERSION};
use crate::volume::members::relocate;

/// A member's state as stored in superblocks.
pub(super) trait MemberStateByte {
    fn to_byte(self) -> u8;

    fn from_byte(byte: u8) -> Self;
}

impl MemberStateByte for MemberState {
    fn to_byte(self) -> u8 {
        match self {
            MemberState::Active => 0,
            MemberState::Failed => 1,
            MemberState::Rebuilding => 2,
        }
    }

    fn from_byte(byte: u8) -> MemberState {
        match byte {
            0 => MemberState::Active,
            2 => MemberState::Rebuilding,
            _ => MemberState::Failed,
        }
    }
}

/// Where the metadata of an array is stored, the same on every member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) uuid: [u8; 16],
    pub(super) region_rows: u64,
    pub(super) bitmap_sectors: u64,
    pub(super) journal_start: u64,
    pub(super) journal_sectors: u64,
    pub(super) journal_always: bool,
}

impl Layout {
    /// What describes the array lies in the sectors before it.
    pub(super) fn metadata_end(&self) -> u64 {
        self.journal_start + self.journal_sectors
    }
}

/// State of the members.
pub(super) struct State {
    pub(super) now: Vec<MemberState>,
    pub(super) recorded: Vec<MemberState>,
    /// Rows below it are on the member that is being rebuilt, apart from those left out.
    pub(super) cursor: u64,
    pub(super) cursor_recorded: u64,
    pub(super) left_out: LeftOut,
    /// Counts members that took the place of failed ones: what a rebuild has copied counts only for the one for which it began.
    pub(super) admitted: u64,
    pub(super) generation: u64,
    /// The superblocks of these members were written and not all arrived, so what counts as recorded may not be. Until
    /// they are, nothing more is written.
    pub(super) behind: Option<Vec<usize>>,
    /// The first generation that recorded the latest failure; 0 when that is not known.
    pub(super) failed_at: u64,
    /// A3.
    pub(super) stopped: bool,
    /// Why a flush of the last member of a mirror failed: what it has lost is unknown, so nothing written later is acknowledged.
    pub(super) unflushed: Option<DeviceError>,
    /// Rows that a power cut may have left inconsistent. They are resynchronised before use.
    pub(super) out_of_sync: RowSet,
    /// In the units of a missing member: the sectors, counted from the first row, that have been written since the row
    /// was in doubt (A4).
    pub(super) known: Ranges,
    /// What failed with `NoSpace`; until it is done, these rows are inconsistent.
    pub(super) redo: BTreeMap<u64, Deferred>,
    /// Writers that wait for a row, to be served together.
    pub(super) queues: BTreeMap<u64, Vec<Rc<QueuedWrite>>>,
    /// Why the last rebuild ended early.
    pub(super) rebuild_error: Option<DeviceError>,
    /// Why members were dropped since the array was opened.
    pub(super) causes: BTreeMap<usize, String>,
}

/// Event counters.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) reads: Cell<u64>,
    pub(super) writes: Cell<u64>,
    pub(super) full_stripes: Cell<u64>,
    pub(super) read_modify_writes: Cell<u64>,
    pub(super) reconstruct_writes: Cell<u64>,
    pub(super) degraded_writes: Cell<u64>,
    pub(super) degraded_reads: Cell<u64>,
    pub(super) repaired: Cell<u64>,
    pub(super) repairs_without_space: Cell<u64>,
    pub(super) resynced: Cell<u64>,
    pub(super) rebuilt: Cell<u64>,
    pub(super) bitmap_writes: Cell<u64>,
    pub(super) journal_records: Cell<u64>,
    pub(super) superblock_writes: Cell<u64>,
    pub(super) corrected: Cell<u64>,
}

pub(super) fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

pub(super) struct Core {
    pub(super) rt: Rt,
    pub(super) shape: Shape,
    pub(super) layout: Option<Layout>,
    pub(super) members: RefCell<Vec<Option<Device>>>,
    pub(super) state: RefCell<State>,
    pub(super) locks: RowLocks,
    pub(super) bitmap: Bitmap,
    pub(super) journal: Journal,
    pub(super) counts: Counts,
    /// Reads under way on each member, and where the last one ended.
    pub(super) balance: Vec<Cell<(u64, u64)>>,
    /// Times that each member returned wrong data.
    pub(super) wrong: Vec<Cell<u64>>,
    /// Read from the first usable member of a mirror, not from any.
    pub(super) from_first: Cell<bool>,
    /// Return data that is uncertain, see [`super::UncertainData`].
    pub(super) accept_doubt: bool,
    /// See [`super::ArrayOptions`].
    pub(super) batch: u64,
    pub(super) progress: u64,
    pub(super) request_sectors_max: u64,
    /// The largest block of a member, in sectors.
    pub(super) block_sectors: u64,
    /// Until then a member counts as short of space.
    pub(super) tight_until: Cell<Nanos>,
    /// A member had no space for what it had provisioned.
    pub(super) is_space_unproven: Cell<bool>,
    under_way: Cell<u64>,
    paused: Cell<bool>,
    resumed: Event,
    calm: Event,
    transitions: Gate,
    superblocks: Gate,
    /// One member is replaced at a time.
    pub(super) replacements: Gate,
    /// The task that resynchronises and rebuilds is under way, and its end.
    pub(super) working: Cell<bool>,
    /// A task waits to start the background work again, after a lack of space.
    pub(super) will_try_again: Cell<bool>,
    /// There is more for it to do when it has come to its end.
    pub(super) more_work: Cell<bool>,
    pub(super) worked: Event,
    /// See [`super::Array::remark`].
    pub(super) remark: RefCell<Option<String>>,
    /// A task that will clear bits later is running.
    pub(super) tidying: Cell<bool>,
    pub(super) last_tidy: Cell<Nanos>,
}

/// A write under way. The record does not change before it is dropped.
pub(super) struct Token(Rc<Core>);

impl Drop for Token {
    fn drop(&mut self) {
        debug_assert!(self.0.under_way.get() > 0, "each write under way is counted until it ends");
        let left = self.0.under_way.get() - 1;
        self.0.under_way.set(left);
        if left == 0 {
            self.0.calm.notify();
        }
    }
}

/// An array that has stopped.
pub(super) fn stopped(at: Sector, bytes: u64) -> DeviceError {
    let cause = "the array has lost more members than it tolerates, and has stopped".to_string();
    DeviceError::Io { operation: "use", at, bytes, cause }
}

impl Core {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn new(
        rt: Rt,
        shape: Shape,
        layout: Option<Layout>,
        members: Vec<Option<Device>>,
        state: State,
        bitmap: Bitmap,
        journal: Journal,
        options: &ArrayOptions,
        request_sectors_max: u64,
    ) -> Rc<Core> {
        debug_assert_eq!(members.len(), shape.members, "there is a place for each member");
        debug_assert!(
            state.now.len() == shape.members && state.recorded.len() == shape.members,
            "A1: the state of each member is known, and what is recorded of it"
        );
        let blocks = members.iter().flatten().map(|member| u64::from(member.geometry().block_bytes) / SECTOR_BYTES);
        let block_sectors = blocks.max().unwrap_or(1);
        Rc::new(Core {
            rt,
            shape,
            layout,
            balance: members.iter().map(|_| Cell::new((0, 0))).collect(),
            wrong: members.iter().map(|_| Cell::new(0)).collect(),
            from_first: Cell::new(false),
            members: RefCell::new(members),
            state: RefCell::new(state),
            locks: RowLocks::default(),
            bitmap,
            journal,
            counts: Counts::default(),
            accept_doubt: options.doubt == UncertainData::Accept,
            batch: options.batch,
            progress: options.progress,
            request_sectors_max,
            block_sectors,
            tight_until: Cell::new(Nanos::ZERO),
            is_space_unproven: Cell::new(false),
            under_way: Cell::new(0),
            paused: Cell::new(false),
            resumed: Event::new(),
            calm: Event::new(),
            transitions: Gate::new(),
            superblocks: Gate::new(),
            replacements: Gate::new(),
            working: Cell::new(false),
            will_try_again: Cell::new(false),
            more_work: Cell::new(false),
            worked: Event::new(),
            remark: RefCell::new(None),
            tidying: Cell::new(false),
            last_tidy: Cell::new(Nanos::ZERO),
        })
    }

    /// The device in `slot`.
    ///
    /// # Panics
    /// When there is none: callers ask only for members that take part.
    pub(super) fn device(&self, slot: usize) -> Device {
        match &self.members.borrow()[slot] {
            Some(device) => device.clone(),
            None => unreachable!("a member that takes part has a device"),
        }
    }

    /// True when `member` holds its unit of `row`.
    pub(super) fn holds(&self, member: usize, row: u64) -> bool {
        self.state.borrow().holds(member, row)
    }

    /// True when `member` holds its units of all `rows`.
    pub(super) fn holds_all(&self, member: usize, mut rows: Range<u64>) -> bool {
        let state = self.state.borrow();
        state.now[member] == MemberState::Active || rows.all(|row| state.holds(member, row))
    }

    /// The member of `row` that cannot be used. On a stopped array there may be more than one.
    pub(super) fn absent(&self, row: u64) -> Option<usize> {
        let state = self.state.borrow();
        (0..self.shape.members).find(|&member| !state.holds(member, row))
    }

    /// The member of `row` that could not be used if the power failed now.
    pub(super) fn absent_recorded(&self, row: u64) -> Option<usize> {
        let state = self.state.borrow();
        let is_lacking = |member: &usize| match state.recorded[*member] {
            MemberState::Active => false,
            MemberState::Failed => true,
            MemberState::Rebuilding => row >= state.cursor_recorded,
        };
        (0..self.shape.members).find(is_lacking)
    }

    /// Members that receive requests.
    pub(super) fn in_use(&self) -> Vec<usize> {
        let state = self.state.borrow();
        (0..self.shape.members).filter(|&member| state.now[member] != MemberState::Failed).collect()
    }

    pub(super) fn check_running(&self, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        let state = self.state.borrow();
        match &state.unflushed {
            _ if state.stopped => Err(stopped(at, bytes)),
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Waits while the record changes, then counts as a write under way.
    pub(super) async fn begin(self: &Rc<Self>) -> Token {
        while self.paused.get() {
            self.resumed.wait().await;
        }
        self.under_way.set(self.under_way.get() + 1);
        Token(self.clone())
    }

    /// Held while the record changes.
    pub(super) fn transitions(&self) -> &Gate {
        &self.transitions
    }

    pub(super) fn writes_under_way(&self) -> u64 {
        self.under_way.get()
    }

    /// Marks `member` as failed: from now on it is not used. Returns false when the array needs it: then a mirror goes
    /// on using it, because a bad copy is better than none, and an array with parity stops.
    pub(super) fn fail(&self, member: usize, cause: &dyn std::fmt::Display) -> bool {
        let mut state = self.state.borrow_mut();
        if state.now[member] == MemberState::Failed {
            return true;
        }
        let others = (0..self.shape.members).filter(|&other| other != member);
        let active = others.filter(|&other| state.now[other] == MemberState::Active).count();
        let needed = match (self.shape.level, state.now[member]) {
            (_, MemberState::Rebuilding) => 0,
            (Level::Mirror, _) => 1,
            (Level::Parity, _) => self.shape.members - 1,
        };
        if active < needed {
            state.stopped |= self.shape.level == Level::Parity;
            return false;
        }
        state.now[member] = MemberState::Failed;
        state.causes.insert(member, cause.to_string());
        debug_assert!(
            self.shape.level == Level::Parity || state.now.contains(&MemberState::Active),
            "A3: a mirror keeps its last member"
        );
        debug_assert!(
            self.shape.level == Level::Mirror
                || state.stopped
                || state.now.iter().filter(|now| **now != MemberState::Active).count() <= 1,
            "A3: an array with parity goes on without one member at most"
        );
        if self.layout.is_none() {
            state.recorded = state.now.clone(); // Not read later.
        }
        true
    }

    /// True when the current state is not recorded on the members.
    pub(super) fn is_unrecorded(&self) -> bool {
        let state = self.state.borrow();
        state.now != state.recorded || state.behind.is_some()
    }

    /// Before a write begins: the superblocks name the copy of the bitmap that gets its bit (B1).
    pub(super) async fn catch_up(self: &Rc<Self>) -> Result<(), DeviceError> {
        let is_behind = self.state.borrow().behind.is_some();
        if is_behind { self.record(false).await } else { Ok(()) }
    }

    /// The end of every write (A1).
    pub(super) async fn acknowledge(self: &Rc<Self>) -> Result<(), DeviceError> {
        // A record that another task is writing counts only when that task has ended.
        if self.is_unrecorded() || self.paused.get() {
            self.record(false).await?;
            debug_assert!(!self.is_unrecorded(), "A1: a failed member is recorded before a write is acknowledged");
        }
        self.check_running(Sector::ZERO, 0)
    }

    /// For reads, which need not wait: records in the background the failures that they found.
    pub(super) fn acknowledge_later(self: &Rc<Self>) {
        // Superblocks that are behind are for the next write: not every read tries to write them.
        let is_new = {
            let state = self.state.borrow();
            state.now != state.recorded
        };
        if is_new {
            let core = self.clone();
            self.rt.spawn(async move {
                // If this failed, the next write reports it.
                let _ = core.record(false).await;
            });
        }
    }

    /// Records the state of the members and, with `progress`, how far a rebuild has come (A2).
    pub(super) async fn record(self: &Rc<Self>, progress: bool) -> Result<(), DeviceError> {
        let _transition = self.transitions.enter().await;
        if self.layout.is_none() {
            let mut state = self.state.borrow_mut();
            state.recorded = state.now.clone();
            state.cursor_recorded = state.rebuilt();
            return Ok(());
        }
        let is_due = || self.is_unrecorded() || progress;
        if !is_due() {
            return Ok(());
        }
        self.paused.set(true);
        let _resume = Resume(self);
        while self.under_way.get() > 0 {
            self.calm.wait().await;
        }
        loop {
            self.flush_members().await?;
            self.take_back().await?; // J5
            let bits = self.write_next_bitmap().await?;
            let known = self.state.borrow().now.clone();
            self.write_superblocks(|state| {
                debug_assert_eq!(self.under_way.get(), 0, "A2: what is recorded changes while no write is under way");
                self.journal.forget_all();
                self.use_bitmap(bits);
                state.recorded = state.now.clone();
                // The rows of a region's bit are all on this member, or none.
                let region_rows = self.layout.map_or(1, |layout| layout.region_rows);
                state.cursor_recorded = match state.rebuilt() {
                    all if all == self.shape.rows => all,
                    some => some / region_rows * region_rows,
                };
                state.known = still_known(&state.known, &state.recorded, state.cursor_recorded, self.shape.unit);
                self.forget_known(state);
            })
            .await?;
            // Members may have failed during these writes.
            if self.state.borrow().now == known {
                return Ok(());
            }
        }
    }

    /// At an opening: reading begins after all records but kept ones. For a host without space for the other copy of the bitmap,
    /// which needs to be written only when members have changed.
    pub(super) async fn begin_journal(&self) -> Result<(), DeviceError> {
        debug_assert!(!self.is_unrecorded(), "A2: the members are as recorded");
        self.flush_members().await?;
        self.take_back().await?; // J5
        self.write_superblocks(|_| self.journal.forget_all()).await
    }

    /// Gets space for what describes the array, where members have some: on a full host it can be used without that.
    pub(super) async fn allocate_metadata(&self) {
        let Some(layout) = &self.layout else { return };
        let end = layout.metadata_end();
        let members: Vec<Device> = self.in_use().into_iter().map(|member| self.device(member)).collect();
        join_all(members.iter().map(|member| member.provision(Sector::ZERO, end))).await;
    }

    /// At an opening: raises the generation of all members in use by one more than a trusted member may be behind (A5).
    pub(super) async fn outdate_copies(&self, change: impl Fn(&mut State)) -> Result<(), DeviceError> {
        for _ in 0..OUTDATING_STEPS {
            self.write_superblocks(&change).await?;
        }
        Ok(())
    }

    /// Flushes every member in use. One that fails is dropped, because it is unknown what it has lost; one that has no space for it is
    /// not: it still has everything, and a later flush may succeed.
    ///
    /// # Errors
    /// `NoSpace`, and what the last members that the array needs return.
    pub(super) async fn flush_members(&self) -> Result<(), DeviceError> {
        let members = self.in_use();
        let results = join_all(members.iter().map(|&member| {
            let device = self.device(member);
            async move { device.flush().await }
        }))
        .await;
        let mut answer = Ok(());
        for (&member, result) in members.iter().zip(results) {
            let Err(error) = result else { continue };
            let is_without_space = matches!(error, DeviceError::NoSpace { .. });
            if is_without_space || !self.fail(member, &error) {
                let error = relocate(error, member, Sector::ZERO, 0);
                match is_without_space {
                    true => answer = Err(error),
                    false => {
                        self.state.borrow_mut().unflushed.get_or_insert(error);
                    }
                }
            }
        }
        // What a member may have lost counts for more.
        worse(self.check_running(Sector::ZERO, 0), answer)
    }

    /// Writes the superblock of every member in use, after applying `change`.
    pub(super) async fn write_superblocks(&self, change: impl FnOnce(&mut State)) -> Result<(), DeviceError> {
        let Some(layout) = &self.layout else { return Ok(()) };
        let _gate = self.superblocks.enter().await;
        let members = self.in_use();
        let blocks: Vec<_> = {
            let mut state = self.state.borrow_mut();
            if state.stopped {
                return Err(stopped(Sector::ZERO, 0)); // A3
            }
            debug_assert!(!members.is_empty(), "A1: what is recorded is recorded on some member");
            let before = state.recorded.clone();
            change(&mut state);
            // One that could not be written must not fall further behind than a trusted member may. When a member has
            // been dropped since, what it got must be older than what follows.
            if state.behind.as_ref() != Some(&members) {
                state.generation += 1;
            }
            let has_failed = |(old, new): (&MemberState, &MemberState)| old != new && *new == MemberState::Failed;
            if before.iter().zip(&state.recorded).any(has_failed) {
                state.failed_at = state.generation;
            }
            members.iter().map(|&member| self.superblock(layout, &state, member)).collect()
        };
        count(&self.counts.superblock_writes);
        let written = members.iter().zip(&blocks).map(|(&member, superblock)| {
            let device = self.device(member);
            let at = Sector(SUPERBLOCKS[(superblock.generation % 2) as usize]);
            let block = crate::device::Data::from_slice(&superblock.to_block());
            async move { device.write(at, block, WriteFlags::FUA).await }
        });
        let results = join_all(written).await;
        let written = self.judge(members.iter().copied().zip(results), true);
        self.state.borrow_mut().behind = written.is_err().then_some(members);
        written
    }

    /// Gives up the members that could not be written. `NoSpace` is returned to the caller, except for superblocks: a
    /// member without space for its superblock, which has had the same place since the array was made, is dropped too.
    fn judge(
        &self,
        results: impl Iterator<Item = (usize, Result<(), DeviceError>)>,
        is_strict: bool,
    ) -> Result<(), DeviceError> {
        let mut answer = Ok(());
        for (member, result) in results {
            let Err(error) = result else { continue };
            if matches!(error, DeviceError::NoSpace { .. }) && !is_strict || !self.fail(member, &error) {
                answer = worse(answer, Err(relocate(error, member, Sector::ZERO, 0)));
            }
        }
        answer
    }

    fn superblock(&self, layout: &Layout, state: &State, slot: usize) -> Superblock {
        let Layout { uuid, region_rows, bitmap_sectors, journal_start, journal_sectors, journal_always } = *layout;
        let Shape { level, members, unit, rows, data_start } = self.shape;
        let (journal_sequence, journal_position) = self.journal.tail();
        debug_assert!(state.known.len() <= KNOWN_MAX, "A4: all that is known has a place in the superblock");
        debug_assert!(state.cursor_recorded <= rows, "A2: no more rows are rebuilt than there are");
        let mut states = [MemberState::Failed.to_byte(); 64];
        for (byte, member_state) in states.iter_mut().zip(&state.recorded) {
            *byte = member_state.to_byte();
        }
        let mut known = [0; 2 * KNOWN_MAX];
        for (pair, range) in
            known.chunks_mut(2).zip(still_known(&state.known, &state.recorded, state.cursor_recorded, unit).iter())
        {
            pair.copy_from_slice(&[range.start, range.end]);
        }
        Superblock {
            magic: MAGIC,
            version: VERSION,
            crc: 0,
            uuid,
            generation: state.generation,
            level: if level == Level::Mirror { 1 } else { 5 },
            member_count: members as u32,
            slot: slot as u32,
            flags: if journal_always { FLAG_JOURNAL_ALWAYS } else { 0 },
            unit_sectors: unit,
            row_count: rows,
            region_rows,
            bitmap_sectors,
            journal_start,
            journal_sectors,
            data_start,
            journal_sequence,
            journal_position,
            bitmap_epoch: self.bitmap.epoch(),
            rebuilt_rows: state.cursor_recorded,
            states,
            known,
            failed_at: state.failed_at,
        }
    }

    /// Writes `data` at sector `at` of every member in use, with `fua`: for metadata.
    pub(super) async fn write_everywhere(&self, writes: &[(u64, crate::device::Data)]) -> Result<(), DeviceError> {
        let members = self.in_use();
        let each = members.iter().flat_map(|&member| writes.iter().map(move |write| (member, write)));
        let each: Vec<(usize, &(u64, crate::device::Data))> = each.collect();
        let results = join_all(each.iter().map(|(member, (at, data))| {
            let (device, at, data) = (self.device(*member), Sector(*at), data.clone());
            async move { device.write(at, data, WriteFlags::FUA).await }
        }))
        .await;
        self.judge(each.iter().map(|(member, _)| *member).zip(results), false)
    }
}

/// One more than the generations that a trusted member may be behind (A5).
pub(super) const OUTDATING_STEPS: u32 = 2;

impl State {
    /// True when `member` holds its unit of `row`.
    pub(super) fn holds(&self, member: usize, row: u64) -> bool {
        match self.now[member] {
            MemberState::Active => true,
            MemberState::Failed => false,
            MemberState::Rebuilding => row < self.cursor && !self.left_out.rows.contains(row),
        }
    }
}

/// The part of `known` that remains with members in the states `recorded` (A4).
pub(super) fn still_known(known: &Ranges, recorded: &[MemberState], cursor_recorded: u64, unit: u64) -> Ranges {
    let mut known = known.clone();
    if !recorded.contains(&MemberState::Failed) {
        let rows = if recorded.contains(&MemberState::Rebuilding) { cursor_recorded } else { u64::MAX / unit };
        known.remove(0..rows * unit);
    }
    known
}

/// Lets writes continue.
struct Resume<'a>(&'a Core);

impl Drop for Resume<'_> {
    fn drop(&mut self) {
        self.0.paused.set(false);
        self.0.resumed.notify();
    }
}

const _: () = assert!(SUPERBLOCKS[1] == BLOCK_SECTORS);
