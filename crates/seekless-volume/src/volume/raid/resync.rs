//! Making rows consistent after a power cut, and the task that does so in the background and then rebuilds a member.
//!
//! The bitmap tells which rows may be inconsistent after a power cut. Such a row is neither read nor written before it
//! is resynchronised: its parity recomputed, or its copies made equal. So data once read does not change, whichever
//! member fails later. A task resynchronises the rest in the background.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::{Rc, Weak};

use futures_util::future::join_all;

use super::core::{Core, MemberState};
use super::deferred::is_no_space;
use super::rebuild::rebuild_all;
use super::request::MemberWrite;
use super::shape::Level;
use crate::codec::xor;
use crate::device::rescue::{Rescued, rescue};
use crate::device::{Buf, Data, DeviceError, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::members::{bytes, relocate};

impl Core {
    /// True when a row must be resynchronised before use.
    pub(super) fn needs_touch(&self, rows: Range<u64>) -> bool {
        let state = self.state.borrow();
        if state.redo.range(rows.clone()).next().is_some() {
            return true;
        }
        // A row with a missing unit stays as it is.
        let is_whole = |row: &u64| {
            self.shape.level == Level::Mirror || (0..self.shape.members).all(|member| state.holds(member, *row))
        };
        state.out_of_sync.contains_any(rows.clone())
            && rows.filter(|&row| state.out_of_sync.contains(row)).any(|row| is_whole(&row))
    }

    /// Resynchronises the rows that need it.
    pub(super) async fn touch(&self, rows: Range<u64>) -> Result<(), DeviceError> {
        if !self.needs_touch(rows.clone()) {
            return Ok(());
        }
        let _rows = self.locks.hold_all(rows.clone()).await;
        self.resync_held(&rows.collect()).await
    }

    /// The same for rows that are held.
    pub(super) async fn resync_held(&self, rows: &BTreeSet<u64>) -> Result<(), DeviceError> {
        if self.state.borrow().redo.is_empty() && self.state.borrow().out_of_sync.is_empty() {
            return Ok(());
        }
        for &row in rows {
            self.redo(row).await?;
            debug_assert!(
                !self.state.borrow().redo.contains_key(&row),
                "a row is resynchronised when nothing waits to be written to it"
            );
            if self.state.borrow().out_of_sync.contains(row) {
                self.resync(row..row + 1).await?;
            }
        }
        Ok(())
    }

    /// Resynchronises `rows`, which are held, few, and on the same members. Rows without a data unit stay out of sync:
    /// they cannot be resynchronised.
    ///
    /// # Errors
    /// Also for data that cannot be read, or has no space: the other rows are resynchronised nevertheless.
    pub(super) async fn resync(&self, rows: Range<u64>) -> Result<(), DeviceError> {
        match self.resync_at_once(rows.clone()).await {
            Err(error) if is_of_few_rows(&error) && rows.end - rows.start > 1 => {}
            done => return done,
        }
        let mut answer = Ok(());
        for row in rows {
            self.check_running(Sector(row * self.shape.row_sectors()), 0)?;
            match self.resync_at_once(row..row + 1).await {
                Err(error) if is_of_few_rows(&error) => answer = answer.and(Err(error)),
                done => done?,
            }
        }
        answer
    }

    /// The same in one go. Data that cannot be read fails all of them; so does parity, unless it is that of one row.
    async fn resync_at_once(&self, rows: Range<u64>) -> Result<(), DeviceError> {
        debug_assert!(!rows.is_empty(), "there is something to resynchronise");
        debug_assert!(rows.clone().all(|row| self.locks.is_held(row)), "a row is resynchronised while it is held");
        debug_assert!(
            (0..self.shape.members).all(|member| self.holds(member, rows.start) == self.holds(member, rows.end - 1)),
            "rows that are resynchronised together are on the same members"
        );
        if self.shape.level == Level::Parity && self.absent(rows.start).is_some() {
            for row in rows {
                if self.absent(row) == Some(self.shape.parity(row)) {
                    self.state.borrow_mut().out_of_sync.remove(row);
                }
            }
            return Ok(());
        }
        let count = rows.end - rows.start;
        let (at, sectors) = (self.shape.at(rows.start, 0), count * self.shape.unit);
        let members: Vec<usize> =
            self.in_use().into_iter().filter(|&member| self.holds(member, rows.end - 1)).collect();
        if self.shape.level == Level::Mirror && members.len() < 2 {
            // A single copy agrees with itself, whatever of it can be read.
            rows.for_each(|row| self.state.borrow_mut().out_of_sync.remove(row));
            return Ok(());
        }
        let results = join_all(members.iter().map(|&member| self.read_long(member, at, sectors))).await;
        let start = Sector(rows.start * self.shape.row_sectors());
        let mut read: Vec<Option<Buf>> = Vec::new();
        let mut error = None;
        for (&member, result) in members.iter().zip(results) {
            match result {
                Ok(buf) => read.push(Some(buf)),
                Err(cause) => {
                    if matches!(cause, DeviceError::Gone(_)) {
                        self.fail(member, &cause);
                    }
                    error = Some(relocate(cause, member, start, sectors * SECTOR_BYTES));
                    read.push(None);
                }
            }
        }
        let has_data = |row: u64, read: &[Option<Buf>]| {
            members.iter().zip(read).all(|(&member, unit)| unit.is_some() || member == self.shape.parity(row))
        };
        let writes = match (self.shape.level, error) {
            // A member has just failed: the caller looks at what is left.
            (Level::Mirror, Some(_)) if members.iter().any(|&member| !self.holds(member, rows.end - 1)) => {
                return Ok(());
            }
            (Level::Mirror, Some(_)) => {
                let copies = join_all(members.iter().map(|&member| {
                    let device = self.device(member);
                    async move { rescue(&device, Sector(at), sectors).await }
                }));
                let copies = copies.await.into_iter().collect::<Result<Vec<_>, _>>()?;
                self.block_corrections(&members, &copies, at)
            }
            (Level::Mirror, None) => self.copies_of(rows.clone(), &members, &read),
            // A member has just failed: the row can no longer be resynchronised.
            (Level::Parity, Some(_)) if self.absent(rows.start).is_some() => return Ok(()),
            (Level::Parity, Some(error)) if count > 1 || !has_data(rows.start, &read) => return Err(error),
            (Level::Parity, _) => self.parities_of(rows.clone(), &members, &read),
        };
        let length = sectors * SECTOR_BYTES;
        // The bits are set already, and stay until a flush covers what is written here (B2).
        let _mark = self.mark(rows.clone()).await?;
        let writes = super::request::merge(writes, self.request_sectors_max);
        match self.shape.level {
            Level::Mirror => {
                let written = self.perform(writes, WriteFlags::NONE, None, start, length).await;
                match written.as_ref().is_err_and(is_no_space) {
                    // Before anything is read, any copy can be the one that counts.
                    true => {
                        for row in rows.clone() {
                            self.redo(row).await?;
                        }
                    }
                    false => written?,
                }
            }
            // The row stays out of sync, so that nothing has to be deferred.
            Level::Parity => self.attempt(writes, WriteFlags::NONE, start, length).await.0?,
        }
        self.counts.resynced.set(self.counts.resynced.get() + count);
        let mut state = self.state.borrow_mut();
        rows.for_each(|row| state.out_of_sync.remove(row));
        Ok(())
    }

    /// The writes that make copies agree, of what was read of `rows` from `members`.
    fn copies_of(&self, rows: Range<u64>, members: &[usize], read: &[Option<Buf>]) -> Vec<MemberWrite> {
        let copies: Vec<&Buf> = read.iter().flatten().collect();
        let mut writes = Vec::new();
        for row in rows.clone() {
            let range = bytes((row - rows.start) * self.shape.unit, self.shape.unit);
            let right = agreed(&copies, range.clone());
            for (&member, copy) in members.iter().zip(read) {
                if self.holds(member, row) {
                    let copy = copy.as_ref().map(|copy| &copy[range.clone()]);
                    writes.extend(self.corrections(member, self.shape.at(row, 0), copy, right));
                }
            }
        }
        writes
    }

    /// The writes that make parity agree with the data that was read of `rows` from `members`.
    fn parities_of(&self, rows: Range<u64>, members: &[usize], read: &[Option<Buf>]) -> Vec<MemberWrite> {
        let mut writes = Vec::new();
        for row in rows.clone() {
            let range = bytes((row - rows.start) * self.shape.unit, self.shape.unit);
            let mut parity = Buf::zeroed(range.len());
            let holder = self.shape.parity(row);
            for (_, unit) in members.iter().zip(read).filter(|(member, _)| **member != holder) {
                debug_assert!(unit.is_some(), "parity is computed from all data of its row");
                if let Some(unit) = unit {
                    xor(&mut parity, &unit[range.clone()]);
                }
            }
            let old = members.iter().position(|&member| member == holder).and_then(|at| read[at].as_ref());
            let old = old.map(|old| &old[range]);
            writes.extend(self.corrections(holder, self.shape.at(row, 0), old, &parity));
        }
        writes
    }

    /// What has to be written so that a member holds `right`, where it holds `found`, or nothing that can be read. Blocks that
    /// are right are left alone: a sparse member may have no space for them.
    fn corrections(&self, member: usize, at: u64, found: Option<&[u8]>, right: &[u8]) -> Vec<MemberWrite> {
        let parts = match found {
            Some(found) => self.differences(found, right),
            None => std::iter::once(0..right.len() as u64 / SECTOR_BYTES).collect(),
        };
        let data = |part: &Range<u64>| Data::from_slice(&right[bytes(part.start, part.end - part.start)]);
        parts.into_iter().map(|part| MemberWrite::new(member, at + part.start, data(&part))).collect()
    }

    /// What makes `copies` of the same sectors equal, block by block, where some of them cannot be read as a whole: a block becomes
    /// what the first copy holds that has it. One that none has stays as it is.
    fn block_corrections(&self, members: &[usize], copies: &[Rescued], at: u64) -> Vec<MemberWrite> {
        let block = self.block_sectors;
        let mut writes = Vec::new();
        let end = at + copies.first().map_or(0, |copy| copy.bytes.len() as u64 / SECTOR_BYTES);
        for start in (at..end).step_by(block as usize) {
            let sectors = block.min(end - start);
            let range = bytes(start - at, sectors);
            let has_it = |copy: &&Rescued| copy.lost_in(Sector(start), sectors).is_none();
            let Some(right) = copies.iter().find(has_it).map(|copy| &copy.bytes[range.clone()]) else { continue };
            for (&member, copy) in members.iter().zip(copies) {
                if !has_it(&copy) || copy.bytes[range.clone()] != *right {
                    writes.push(MemberWrite::new(member, start, Data::from_slice(right)));
                }
            }
        }
        writes
    }

    /// Reads any number of sectors of one member.
    pub(super) async fn read_long(&self, member: usize, at: u64, sectors: u64) -> Result<Buf, DeviceError> {
        let device = self.device(member);
        let longest = self.request_sectors_max;
        if sectors <= longest {
            return device.read(Sector(at), Buf::dirty(bytes(0, sectors).len())).await;
        }
        let mut whole = Buf::dirty(bytes(0, sectors).len());
        let mut done = 0;
        while done < sectors {
            let take = (sectors - done).min(longest);
            let part = device.read(Sector(at + done), Buf::dirty(bytes(0, take).len())).await?;
            whole[bytes(done, take)].copy_from_slice(&part);
            done += take;
        }
        Ok(whole)
    }

    /// Rows resynchronised or rebuilt at once.
    pub(super) fn batch_rows(&self) -> u64 {
        (self.batch / (self.shape.unit * SECTOR_BYTES)).max(1)
    }

    /// Resynchronises the next rows out of sync from `from` on; returns where the rest begins, or `None` at the end. Rows with data
    /// that cannot be read, or has no space, stay as they are, and keep no others from being resynchronised.
    async fn resync_some(self: &Rc<Self>, from: u64, left: &mut Left) -> Result<Option<u64>, DeviceError> {
        let _token = self.begin().await;
        let Some(first) = self.state.borrow().out_of_sync.next_from(from) else { return Ok(None) };
        let end = (first + self.batch_rows()).min(self.shape.rows);
        let _rows = self.locks.hold_all(first..end).await;
        self.check_running(Sector::ZERO, 0)?;
        // Only runs of rows out of sync; another task may have resynchronised some before this one held them.
        let out_of_sync: Vec<u64> = (first..end).filter(|&row| self.state.borrow().out_of_sync.contains(row)).collect();
        let mut ready = Vec::new();
        for row in out_of_sync {
            match self.redo(row).await {
                Err(error) if is_no_space(&error) => left.add(error),
                done => {
                    done?;
                    ready.push(row);
                }
            }
        }
        let mut rows = ready.into_iter().peekable();
        while let Some(start) = rows.next() {
            // Members may fail in the meantime: which of them hold a row is asked again for each part.
            let holders = |row| (0..self.shape.members).map(|member| self.holds(member, row)).collect::<Vec<_>>();
            let mut stop = start + 1;
            while rows.next_if(|&row| row == stop && holders(row) == holders(start)).is_some() {
                stop += 1;
            }
            match self.resync(start..stop).await {
                Err(error) if is_of_few_rows(&error) => left.add(error),
                done => done?,
            }
        }
        Ok(Some(end))
    }

    /// Rows out of sync that lack a data unit, not all of which has been rewritten.
    pub(super) fn doubtful_rows(&self) -> u64 {
        let state = self.state.borrow();
        let (mut from, mut rows) = (0, 0);
        if self.shape.level == Level::Mirror || state.out_of_sync.is_empty() {
            return 0;
        }
        while let Some(row) = state.out_of_sync.next_from(from) {
            let parity = self.shape.parity(row);
            rows += u64::from(!(0..self.shape.members).all(|member| member == parity || state.holds(member, row)));
            from = row + 1;
        }
        rows
    }
}

impl Core {
    /// Provisions `sectors` from `at`, with their parity, on every member in use. A member that fails is dropped, as by a write.
    pub(super) async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let (start, length) = match self.shape.level {
            Level::Mirror => (self.shape.data_start + at.0, sectors),
            Level::Parity => {
                let rows = self.shape.rows_of(at, sectors);
                (self.shape.at(rows.start, 0), (rows.end - rows.start) * self.shape.unit)
            }
        };
        let members = self.in_use();
        let results = join_all(members.iter().map(|&member| {
            let device = self.device(member);
            async move { device.provision(Sector(start), length).await }
        }))
        .await;
        let mut answer = Ok(());
        for (member, result) in members.into_iter().zip(results) {
            if let Err(error) = result
                && (is_no_space(&error) || !self.fail(member, &error))
            {
                answer = Err(relocate(error, member, at, sectors * SECTOR_BYTES));
            }
        }
        answer
    }
}

/// What `copies` of a row are made equal to: what most of them hold, so that one with a fault does not decide; otherwise
/// what the first holds. A power cut during the resync and the one after it have the same result.
fn agreed<'a>(copies: &[&'a Buf], range: Range<usize>) -> &'a [u8] {
    let alike = |one: &Buf| copies.iter().filter(|other| other[range.clone()] == one[range.clone()]).count();
    let most = if copies.len() > 2 { copies.iter().find(|copy| 2 * alike(copy) > copies.len()) } else { None };
    &most.unwrap_or(&copies[0])[range]
}

/// An error of some rows, which others need not have: what cannot be read, or has no space.
fn is_of_few_rows(error: &DeviceError) -> bool {
    error.is_of_medium() || is_no_space(error)
}

/// Why rows are left out of sync.
#[derive(Default)]
struct Left {
    unreadable: Option<DeviceError>,
    lacking: Option<DeviceError>,
}

impl Left {
    fn add(&mut self, error: DeviceError) {
        debug_assert!(is_of_few_rows(&error), "rows are left alone only for what others need not have");
        let first = if is_no_space(&error) { &mut self.lacking } else { &mut self.unreadable };
        first.get_or_insert(error);
    }

    /// Shows it with the array. What cannot be read counts for more: what is full may have room later. What was full before, and is not
    /// any more, is forgotten unless a rebuild may have been the cause.
    fn show(self, core: &Core) {
        let mut state = core.state.borrow_mut();
        let is_rebuilding = state.now.contains(&MemberState::Rebuilding);
        let shown = &mut state.rebuild_error;
        let is_replaced = shown.as_ref().is_none_or(is_no_space);
        match self.unreadable.or(self.lacking) {
            Some(error) if is_replaced => *shown = Some(error),
            None if !is_rebuilding => drop(shown.take_if(|error| is_no_space(error))),
            _ => {}
        }
    }
}

/// Resynchronises rows, then rebuilds the member that is being filled, in the background. It ends when the array is
/// dropped, when it is done, or at an error, which [`super::Status`] shows.
pub(super) async fn work(core: Weak<Core>) {
    let note = |error: DeviceError| {
        if let Some(core) = core.upgrade() {
            core.state.borrow_mut().rebuild_error = Some(error);
        }
    };
    let left = match resync_all(&core).await {
        Ok(left) => left,
        Err(error) => return note(error),
    };
    let lacking = left.lacking.clone();
    if let Some(core) = core.upgrade() {
        let _ = core.flush().await; // Clears the bits.
        left.show(&core);
    }
    match rebuild_all(&core).await {
        Err(error) => note(error),
        // The rows are tried again later.
        Ok(()) => {
            if let (Some(error), Some(core)) = (lacking, core.upgrade()) {
                core.state.borrow_mut().rebuild_error.get_or_insert(error);
            }
        }
    }
}

/// Resynchronises all rows out of sync for which that is possible.
async fn resync_all(core: &Weak<Core>) -> Result<Left, DeviceError> {
    let (mut from, mut left) = (0, Left::default());
    while let Some(core) = core.upgrade() {
        let resynced = core.resync_some(from, &mut left).await;
        let acknowledged = core.acknowledge().await;
        match resynced.and_then(|next| acknowledged.map(|()| next))? {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(left)
}
