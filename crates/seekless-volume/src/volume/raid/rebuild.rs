//! Rebuilding: a member that takes the place of a failed one is filled row by row, while the array is in use.
//!
//! A row for which a sector of another member cannot be read, or in which a unit cannot be known, is *left out*: the member does not hold
//! it, as if it were not reached yet, and the rebuild goes on with the next row. A row that has been left out is tried again when it has
//! been written, when a scrub begins, and when the array is opened. The member becomes active when no row is left out.
//!
//! Invariants
//!   R1  No row that is left out is recorded as rebuilt: what is recorded ends before the first of them. So after a power cut such a row
//!       is not read from the member, and until then it is written through the journal.

use std::ops::Range;
use std::rc::{Rc, Weak};

use futures_util::future::join_all;

use super::core::{Core, MemberState, State, stopped};
use super::deferred::is_no_space;
use super::request::MemberWrite;
use super::rows::LeftOut;
use super::shape::Level;
use crate::codec::xor;
use crate::device::{Buf, DeviceError, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::members::{bytes, relocate};

/// Rows that a rebuild leaves out at most. With more of them, another member has most likely failed as a whole, and the rebuild ends.
pub(super) const LEFT_OUT_MAX: u64 = 1024;

impl Core {
    /// Before rows are rebuilt: the journal begins behind all records from before the members changed last. They may hold old data of the
    /// member's slot, and what a rebuild copies is in no record (J4).
    ///
    /// # Errors
    /// `NoSpace` while one of them is kept.
    async fn begin_journal_behind_members(self: &Rc<Self>) -> Result<(), DeviceError> {
        let is_rebuilding = self.state.borrow().now.contains(&MemberState::Rebuilding);
        if !is_rebuilding || !self.journal.carries() {
            return Ok(());
        }
        if !self.journal.has_kept() {
            self.record(true).await?;
        }
        match self.journal.carries() {
            true => {
                let at = Sector(self.state.borrow().cursor * self.shape.row_sectors());
                Err(DeviceError::NoSpace { at, bytes: self.shape.unit * SECTOR_BYTES })
            }
            false => Ok(()),
        }
    }

    /// The member that is being filled, and the number of its admission.
    fn target(&self) -> Option<(usize, u64)> {
        let state = self.state.borrow();
        let target = state.now.iter().position(|member_state| *member_state == MemberState::Rebuilding)?;
        Some((target, state.admitted))
    }

    /// Rebuilds the next rows of a member. False at the end, or when no member is being rebuilt any more.
    ///
    /// # Errors
    /// Also for a row to be left out, when there are [`LEFT_OUT_MAX`] already.
    async fn rebuild_some(self: &Rc<Self>) -> Result<bool, DeviceError> {
        self.begin_journal_behind_members().await?;
        let _token = self.begin().await;
        let Some((target, admitted)) = self.target() else { return Ok(false) };
        let first = self.state.borrow().cursor;
        let end = (first + self.batch_rows()).min(self.shape.rows);
        if first == end {
            return Ok(false);
        }
        let _rows = self.locks.hold_all(first..end).await;
        self.check_running(Sector::ZERO, 0)?;
        match self.rebuild_rows(target, first..end).await {
            Err(error) if self.is_of_row(&error, target, admitted) => {}
            done => {
                done?;
                self.advance(target, admitted, first..end, None);
                return Ok(true);
            }
        }
        for row in first..end {
            let has_room = self.state.borrow().left_out.rows.len() < LEFT_OUT_MAX;
            let left_out = match self.rebuild_rows(target, row..row + 1).await {
                Err(error) if has_room && self.is_of_row(&error, target, admitted) => Some(error),
                done => done.map(|()| None)?,
            };
            self.advance(target, admitted, row..row + 1, left_out);
        }
        Ok(true)
    }

    /// `target` holds `rows`, the next ones, unless they are `left_out`.
    fn advance(&self, target: usize, admitted: u64, rows: Range<u64>, left_out: Option<DeviceError>) {
        if left_out.is_none() {
            self.counts.rebuilt.set(self.counts.rebuilt.get() + (rows.end - rows.start));
        }
        let mut state = self.state.borrow_mut();
        state.rebuild_error.take_if(|error| is_no_space(error)); // There is room again.
        // It may have failed since, and another one be in its place, which has none of these rows.
        if state.now[target] == MemberState::Rebuilding && state.admitted == admitted {
            debug_assert_eq!(state.cursor, rows.start, "one task rebuilds, from the first row to the last");
            if let Some(error) = left_out {
                rows.clone().for_each(|row| state.left_out.rows.insert(row));
                state.left_out.error = Some(error);
            }
            state.cursor = rows.end;
            debug_assert!(state.cursor_recorded <= state.rebuilt(), "R1: what is recorded as rebuilt has been rebuilt");
        }
    }

    /// Tries the next row that is to be tried again. False when there is none.
    async fn rebuild_left_out(self: &Rc<Self>) -> Result<bool, DeviceError> {
        let Some(row) = self.state.borrow().left_out.to_retry.first().copied() else { return Ok(false) };
        self.begin_journal_behind_members().await?;
        let _token = self.begin().await;
        let _row = self.locks.hold(row).await;
        self.check_running(Sector::ZERO, 0)?;
        let target = self.target().filter(|_| self.state.borrow().left_out.rows.contains(row));
        let Some((target, admitted)) = target else {
            self.state.borrow_mut().left_out.to_retry.remove(&row);
            return Ok(true);
        };
        let left_out = match self.rebuild_rows(target, row..row + 1).await {
            Err(error) if self.is_of_row(&error, target, admitted) => Some(error),
            done => done.map(|()| None)?,
        };
        if self.target() != Some((target, admitted)) {
            return Ok(true);
        }
        let mut state = self.state.borrow_mut();
        state.left_out.to_retry.remove(&row);
        match left_out {
            None => {
                state.left_out.rows.remove(row);
                self.counts.rebuilt.set(self.counts.rebuilt.get() + 1);
            }
            error => state.left_out.error = error,
        }
        Ok(true)
    }

    /// True when `error` is that of a row to be left out, not that of the member being filled, or of an array that has stopped.
    fn is_of_row(&self, error: &DeviceError, target: usize, admitted: u64) -> bool {
        error.is_of_medium() && self.target() == Some((target, admitted)) && self.check_running(Sector::ZERO, 0).is_ok()
    }

    /// After a write to these sectors: rows of it that were left out are tried again.
    pub(super) fn retry_written(self: &Rc<Self>, at: Sector, sectors: u64) {
        self.retry(self.shape.rows_of(at, sectors));
    }

    /// Those of `rows` that a rebuild has left out are tried again in the background.
    pub(super) fn retry(self: &Rc<Self>, rows: Range<u64>) {
        if !self.state.borrow().left_out.rows.contains_any(rows.clone()) {
            return;
        }
        {
            let mut state = self.state.borrow_mut();
            let LeftOut { rows: left_out, to_retry, .. } = &mut state.left_out;
            let mut from = rows.start;
            while let Some(row) = left_out.next_from(from).filter(|row| *row < rows.end) {
                to_retry.insert(row);
                from = row + 1;
            }
        }
        super::start(self);
    }

    /// Fills `rows` of `target`, which are held.
    ///
    /// # Errors
    /// An error of the medium when a sector of another member cannot be read, or when a unit cannot be known.
    async fn rebuild_rows(self: &Rc<Self>, target: usize, rows: Range<u64>) -> Result<(), DeviceError> {
        debug_assert!(rows.clone().all(|row| self.locks.is_held(row)), "a row is rebuilt while it is held");
        let out_of_sync: Vec<u64> = rows.clone().filter(|&row| self.state.borrow().out_of_sync.contains(row)).collect();
        for row in out_of_sync {
            match self.shape.level {
                Level::Mirror => self.resync(row..row + 1).await?,
                // Unknown data must not become data that looks valid.
                Level::Parity if self.shape.parity(row) != target => {
                    let at = Sector(row * self.shape.row_sectors());
                    self.check_doubt("rebuild", row, 0..self.shape.unit, at, 0)?;
                }
                Level::Parity => {}
            }
        }
        for row in rows.clone() {
            self.redo(row).await?;
        }
        let (at, sectors) = (self.shape.at(rows.start, 0), (rows.end - rows.start) * self.shape.unit);
        let start = Sector(rows.start * self.shape.row_sectors());
        let mut unit = Buf::zeroed(bytes(0, sectors).len());
        match self.shape.level {
            Level::Mirror if rows.end - rows.start == 1 => unit = self.read_blocks(at, sectors, start).await?,
            Level::Mirror => unit = self.read_any(at, sectors, start).await?,
            Level::Parity => {
                let others = self.active();
                debug_assert!(!others.contains(&target), "a member that is being rebuilt is not read for that");
                self.check_running(start, 0)?;
                if others.len() + 1 < self.shape.members {
                    return Err(stopped(start, 0));
                }
                let results = join_all(others.iter().map(|&member| self.read_long(member, at, sectors))).await;
                for (&member, result) in others.iter().zip(results) {
                    let read = result.map_err(|error| relocate(error, member, start, sectors * SECTOR_BYTES))?;
                    xor(&mut unit, &read);
                }
            }
        }
        let write = MemberWrite::new(target, at, unit.freeze());
        for write in super::request::merge(vec![write], self.request_sectors_max) {
            match write.apply(&self.device(target), WriteFlags::NONE).await {
                Ok(()) => {}
                Err(error @ DeviceError::NoSpace { .. }) => {
                    return Err(relocate(error, target, start, sectors * SECTOR_BYTES));
                }
                Err(error) => {
                    self.fail(target, &error);
                    return Err(relocate(error, target, start, sectors * SECTOR_BYTES));
                }
            }
        }
        Ok(())
    }

    /// Each block from the first complete member of a mirror that has it.
    async fn read_blocks(&self, at: u64, sectors: u64, start: Sector) -> Result<Buf, DeviceError> {
        if let Ok(read) = self.read_any(at, sectors, start).await {
            return Ok(read);
        }
        let mut whole = Buf::zeroed(bytes(0, sectors).len());
        for from in (0..sectors).step_by(self.block_sectors as usize) {
            let take = self.block_sectors.min(sectors - from);
            let block = self.read_any(at + from, take, start + from).await?;
            whole[bytes(from, take)].copy_from_slice(&block);
        }
        Ok(whole)
    }

    /// From the first complete member of a mirror that can be read.
    async fn read_any(&self, at: u64, sectors: u64, start: Sector) -> Result<Buf, DeviceError> {
        let mut last = None;
        for member in self.active() {
            match self.read_long(member, at, sectors).await {
                Ok(read) => return Ok(read),
                Err(error) => last = Some(relocate(error, member, start, sectors * SECTOR_BYTES)),
            }
        }
        match last {
            Some(error) => Err(error),
            None => unreachable!("a mirror keeps its last member"),
        }
    }

    /// Ends a rebuild: the member holds all rows and becomes active.
    fn rebuild_done(&self) {
        let mut state = self.state.borrow_mut();
        if state.rebuilt() >= self.shape.rows
            && let Some(target) = state.now.iter().position(|member_state| *member_state == MemberState::Rebuilding)
        {
            debug_assert_eq!(state.cursor, self.shape.rows, "a member that becomes active holds all rows");
            state.now[target] = MemberState::Active;
            state.cursor = 0;
            let error = std::mem::take(&mut state.left_out).error;
            state.rebuild_error.take_if(|shown| error.as_ref() == Some(shown));
        }
    }
}

impl State {
    /// The first row that the member being rebuilt lacks: more must not be recorded as rebuilt (R1).
    pub(super) fn rebuilt(&self) -> u64 {
        self.left_out.rows.next_from(0).unwrap_or(self.cursor)
    }
}

/// Rebuilds the member that is being filled, if there is one.
///
/// # Errors
/// Also when rows have been left out.
pub(super) async fn rebuild_all(core: &Weak<Core>) -> Result<(), DeviceError> {
    let mut recorded = u64::MAX;
    while let Some(core) = core.upgrade() {
        recorded = recorded.min(core.state.borrow().rebuilt());
        let rebuilt = match core.rebuild_left_out().await {
            Ok(false) => core.rebuild_some().await,
            retried => retried,
        };
        let acknowledged = core.acknowledge().await;
        if !rebuilt.and_then(|more| acknowledged.map(|()| more))? {
            core.rebuild_done();
            core.acknowledge().await?;
            let left_out = &core.state.borrow().left_out;
            return match &left_out.error {
                Some(error) if !left_out.rows.is_empty() => Err(error.clone()),
                _ => Ok(()),
            };
        }
        let now = core.state.borrow().rebuilt();
        recorded = recorded.min(now); // Another member in its place begins at the first row.
        if (now - recorded) * core.shape.unit * SECTOR_BYTES >= core.progress {
            recorded = now;
            core.record(true).await?;
        }
    }
    Ok(())
}
