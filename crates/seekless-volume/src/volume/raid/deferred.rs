//! Writes for which a member had no space.
//!
//! The caller gets the error, so each sector of the write may hold what it held before or what was to be written; only
//! copies must be equal, and parity must match. Where a member has no space, there is hardly ever space for anything
//! new, but there is for what is allocated. So the row is made consistent at once by going back:
//!
//! * On a mirror, the copies are made equal where they differ: to one that has the new data, and if that has no space,
//!   to one that lacks it.
//! * With parity, all that has reached a member is overwritten with what was there before. For that the old data is
//!   read, also where all of a row is overwritten, if a member had no space a short while ago. Where it was not read,
//!   parity is computed from the data.
//!
//! What neither way has space for is *deferred*. Until it is done, the rows keep their bits, and they serve reads and
//! writes nevertheless: on a mirror copies differ in sectors whose write failed, and there alone; with parity the writes
//! are kept, and whatever is computed from a unit is computed from the unit as it will be. A later write or discard of
//! the same sectors replaces them.
//!
//! What goes through the journal cannot be taken back once there is a record of it. So it is refused before that: members provision
//! the space first, and where one had no space for what it had provisioned, it is also tried by writing what is there. While there
//! is little space, what does not change is in no record. What a record holds and a member lacks space for nevertheless, now or when
//! the array is opened, is deferred with its record (J7).
//!
//! Invariants
//!   S1  All deferred writes together have at most [`DEFERRED_BYTES_MAX`] bytes, apart from those that a record of the
//!       journal holds: these have at most its size. Rows beyond the limit are out of sync instead: their parity is
//!       computed when there is space, and until then each write computes it from all data.
//!   S2  A row is deferred when a sector of it was written on some members alone, or when its parity is not that of its
//!       units. Copies of a mirror differ in deferred sectors only.

use std::collections::BTreeSet;
use std::ops::Range;

use futures_util::future::join_all;

use super::core::Core;
use super::journal::Open;
use super::plan::{Method, RowPlan};
use super::request::{DeferredWrite, MemberWrite, merge};
use super::shape::Level;
use crate::codec::xor;
use crate::device::{Buf, Data, DeviceError, WriteFlags};
use crate::units::{MIB, Nanos, SECTOR_BYTES, Sector};
use crate::volume::format::BLOCK_SECTORS;
use crate::volume::members::{bytes, relocate};

/// S1. Enough for what is under way at the moment when a member becomes full.
pub(super) const DEFERRED_BYTES_MAX: u64 = 16 * MIB;

/// How long old data is read before all of a row is overwritten, after a member had no space.
const TIGHT: Nanos = Nanos::from_secs(1);

/// True for a lack of space.
pub(super) fn is_no_space(error: &DeviceError) -> bool {
    matches!(error, DeviceError::NoSpace { .. })
}

impl Core {
    /// True when a member had no space a short while ago.
    pub(super) fn is_tight(&self) -> bool {
        self.rt.now() < self.tight_until.get()
    }

    pub(super) fn note_no_space(&self) {
        self.tight_until.set(self.rt.now() + TIGHT);
    }

    /// Gets space for `writes` before there is a record of them, as long as they can be refused (J7).
    pub(super) async fn allocate(&self, writes: &[MemberWrite], at: Sector, length: u64) -> Result<(), DeviceError> {
        let with_data: Vec<&MemberWrite> = writes.iter().filter(|write| write.data().is_some()).collect();
        let results = join_all(with_data.iter().map(|write| {
            let (device, at) = (self.device(write.member), Sector(write.at));
            async move { device.provision(at, write.sectors).await }
        }))
        .await;
        self.judge_allocation(with_data.iter().map(|write| write.member).zip(results), at, length)?;
        if !self.is_space_unproven.get() || !self.is_tight() && !self.journal.has_kept() {
            return Ok(());
        }
        let results = join_all(with_data.iter().map(|write| self.write_as_found(write))).await;
        self.judge_allocation(with_data.iter().map(|write| write.member).zip(results), at, length)
    }

    /// Does the `writes` of a record, once more when the array is opened. What there is no space for is deferred.
    pub(super) async fn replay(&self, writes: Vec<MemberWrite>, record: Open<'_>) -> Result<(), DeviceError> {
        let rows: Vec<MemberWrite> = writes.iter().flat_map(|write| self.by_rows(write)).collect();
        rows.iter().for_each(|part| self.supersede(self.row_of(part), part));
        let (answer, lacking) = self.attempt(writes, WriteFlags::NONE, Sector::ZERO, 0).await;
        let mut left = Vec::new();
        for write in lacking {
            left.extend(self.apply_in_part(write).await?);
        }
        if left.is_empty() {
            return answer.or_else(|error| if is_no_space(&error) { Ok(()) } else { Err(error) });
        }
        self.defer(left, Some(record.keep()));
        Ok(())
    }

    /// Does what there is space for of a write, where it changes something, and returns the rest.
    async fn apply_in_part(&self, write: MemberWrite) -> Result<Vec<MemberWrite>, DeviceError> {
        let block = self.block_sectors.max(BLOCK_SECTORS);
        let mut left = Vec::new();
        for part in self.changes_now(&write).await {
            let end = part.at + part.sectors;
            for from in (part.at..end).step_by(block as usize) {
                let part = part.part(from..(from + block).min(end));
                match part.apply(&self.device(write.member), WriteFlags::NONE).await {
                    Ok(()) => {}
                    Err(error) if is_no_space(&error) => left.push(part),
                    Err(error) if self.fail(write.member, &error) => return Ok(Vec::new()),
                    Err(error) => return Err(relocate(error, write.member, Sector::ZERO, 0)),
                }
            }
        }
        Ok(left)
    }

    /// The parts of `write` that differ from what the member holds.
    pub(super) async fn changes_now(&self, write: &MemberWrite) -> Vec<MemberWrite> {
        let found = self.read_long(write.member, write.at, write.sectors).await;
        match (found, write.data()) {
            (Ok(found), Some(data)) => self.parts_that_differ(write, &found, data),
            _ => vec![write.clone()],
        }
    }

    /// Drops members that failed, and returns a lack of space.
    fn judge_allocation(
        &self,
        results: impl Iterator<Item = (usize, Result<(), DeviceError>)>,
        at: Sector,
        length: u64,
    ) -> Result<(), DeviceError> {
        let mut answer = Ok(());
        for (member, result) in results {
            let Err(error) = result else { continue };
            if is_no_space(&error) {
                self.note_no_space();
            } else if self.fail(member, &error) {
                continue;
            }
            answer = Err(relocate(error, member, at, length));
        }
        answer
    }

    /// Writes what a member holds where `write` is to go: that shows whether there is space, and changes nothing.
    async fn write_as_found(&self, write: &MemberWrite) -> Result<(), DeviceError> {
        let Ok(found) = self.read_long(write.member, write.at, write.sectors).await else { return Ok(()) };
        for part in merge(vec![MemberWrite::new(write.member, write.at, found.freeze())], self.request_sectors_max) {
            part.apply(&self.device(write.member), WriteFlags::NONE).await?;
        }
        Ok(())
    }

    /// Defers writes that failed with `NoSpace`, under every row that they touch. `record` holds them.
    pub(super) fn defer(&self, writes: Vec<MemberWrite>, record: Option<u64>) {
        let mut rows = BTreeSet::new();
        for write in writes {
            let mut done = 0;
            while done < write.sectors {
                let within = write.at + done - self.shape.data_start;
                let (row, from) = (within / self.shape.unit, within % self.shape.unit);
                let take = (self.shape.unit - from).min(write.sectors - done);
                rows.insert(row);
                self.defer_part(row, write.part(write.at + done..write.at + done + take), from, record);
                done += take;
            }
        }
        self.limit_deferred(&rows);
    }

    fn defer_part(&self, row: u64, part: MemberWrite, from: u64, record: Option<u64>) {
        if self.shape.level == Level::Mirror {
            let mut state = self.state.borrow_mut();
            let deferred = state.redo.entry(row).or_default();
            deferred.differing.insert(from..from + part.sectors);
            deferred.lacking.insert(part.member);
            return;
        }
        if record.is_none() && self.absent(row) == Some(self.shape.parity(row)) {
            return; // There is nothing that its units have to agree with.
        }
        self.supersede(row, &part);
        let mut state = self.state.borrow_mut();
        state.redo.entry(row).or_default().writes.push(DeferredWrite { write: part.copied(), record });
    }

    /// Keeps S1: of `rows`, those beyond the limit are out of sync instead.
    fn limit_deferred(&self, rows: &BTreeSet<u64>) {
        let of_row = |deferred: &super::request::Deferred| -> u64 {
            let unrecorded = deferred.writes.iter().filter(|deferred| deferred.record.is_none());
            unrecorded.map(|deferred| deferred.write.kept_bytes()).sum()
        };
        let mut total: u64 = self.state.borrow().redo.values().map(of_row).sum();
        for &row in rows.iter().rev() {
            if total <= DEFERRED_BYTES_MAX {
                return;
            }
            let is_whole = self.absent(row).is_none();
            let mut state = self.state.borrow_mut();
            let Some(deferred) = state.redo.get(&row) else { continue };
            if is_whole && deferred.writes.iter().all(|deferred| deferred.record.is_none()) {
                total -= of_row(deferred);
                state.redo.remove(&row);
                state.out_of_sync.insert(row);
            }
        }
    }

    /// Forgets what is deferred of the sectors that `new` writes: it is done, or is deferred itself.
    pub(super) fn supersede(&self, row: u64, new: &MemberWrite) {
        let mut state = self.state.borrow_mut();
        let Some(deferred) = state.redo.get_mut(&row) else { return };
        let written = new.at..new.at + new.sectors;
        let old = std::mem::take(&mut deferred.writes);
        let mut records = BTreeSet::new();
        for DeferredWrite { write, record } in old {
            let end = write.at + write.sectors;
            if write.member != new.member || end <= written.start || written.end <= write.at {
                deferred.writes.push(DeferredWrite { write, record });
                continue;
            }
            records.extend(record);
            for left in [write.at..written.start, written.end..end].into_iter().filter(|left| left.start < left.end) {
                deferred.writes.push(DeferredWrite { write: write.part(left).copied(), record });
            }
        }
        state.redo.retain(|other, deferred| *other != row || !deferred.is_empty());
        drop(state);
        self.records_done(records);
    }

    /// Ends those of `records` of which nothing is deferred any more.
    fn records_done(&self, records: BTreeSet<u64>) {
        for sequence in records {
            let is_needed = |deferred: &DeferredWrite| deferred.record == Some(sequence);
            let is_needed = self.state.borrow().redo.values().any(|row| row.writes.iter().any(is_needed));
            if !is_needed {
                self.journal.done(sequence);
            }
        }
    }

    /// Makes the rows usable for a write, which are held. Returns those that stay out of sync, because a member has no space for
    /// their parity, or because data that it needs cannot be read.
    pub(super) async fn prepare(&self, rows: &BTreeSet<u64>) -> Result<BTreeSet<u64>, DeviceError> {
        let mut out_of_sync = BTreeSet::new();
        if self.state.borrow().redo.is_empty() && self.state.borrow().out_of_sync.is_empty() {
            return Ok(out_of_sync);
        }
        for &row in rows {
            match self.resync_held(&BTreeSet::from([row])).await {
                Err(error) if is_no_space(&error) || error.is_of_medium() => {
                    let state = self.state.borrow();
                    if state.out_of_sync.contains(row) {
                        if self.absent(row).is_some() || state.redo.contains_key(&row) {
                            return Err(error);
                        }
                        out_of_sync.insert(row);
                    }
                }
                done => done?,
            }
        }
        Ok(out_of_sync)
    }

    /// Does what is deferred of a row, which is held.
    ///
    /// # Errors
    /// `NoSpace` when there is still no space; it then stays deferred.
    pub(super) async fn redo(&self, row: u64) -> Result<(), DeviceError> {
        debug_assert!(self.locks.is_held(row), "a row has one writer at a time");
        // The row stays listed until it is done: until then its bit cannot be cleared (B2).
        if !self.state.borrow().redo.contains_key(&row) {
            return Ok(());
        }
        // Until a flush covers what is written here, the bit stays (B2).
        let _mark = match self.shape.level {
            Level::Mirror => self.mark_copies(row..row + 1).await?,
            Level::Parity => self.mark_needed(std::iter::once(row)).await?,
        };
        match self.shape.level {
            Level::Mirror => self.settle(row).await,
            Level::Parity => self.redo_writes(row).await,
        }
    }

    async fn redo_writes(&self, row: u64) -> Result<(), DeviceError> {
        // They stay listed, as this may be dropped while one is under way.
        let Some(writes) = self.state.borrow().redo.get(&row).map(|deferred| deferred.writes.clone()) else {
            return Ok(());
        };
        let (at, length) = (Sector(row * self.shape.row_sectors()), self.shape.unit * SECTOR_BYTES);
        for DeferredWrite { write, .. } in writes.iter().filter(|deferred| self.holds(deferred.write.member, row)) {
            match write.apply(&self.device(write.member), WriteFlags::NONE).await {
                Ok(()) => {}
                Err(DeviceError::NoSpace { .. }) => {
                    self.note_no_space();
                    return Err(DeviceError::NoSpace { at, bytes: length });
                }
                Err(error) => {
                    if !self.fail(write.member, &error) {
                        self.state.borrow_mut().redo.remove(&row);
                        return Err(relocate(error, write.member, at, length));
                    }
                }
            }
        }
        // A record may have got another number since (J7).
        let done = self.state.borrow_mut().redo.remove(&row).unwrap_or_default();
        self.records_done(done.writes.iter().filter_map(|deferred| deferred.record).collect());
        Ok(())
    }

    /// Does all that is deferred.
    pub(super) async fn redo_all(&self) {
        let rows: Vec<u64> = self.state.borrow().redo.keys().copied().collect();
        for row in rows {
            let _row = self.locks.hold(row).await;
            if self.redo(row).await.is_err() {
                return; // Next time.
            }
        }
    }

    /// Makes the copies of a mirror's row equal where they may differ.
    async fn settle(&self, row: u64) -> Result<(), DeviceError> {
        let listed = |deferred: &super::request::Deferred| (deferred.differing.clone(), deferred.lacking.clone());
        let Some((differing, lacking)) = self.state.borrow().redo.get(&row).map(listed) else { return Ok(()) };
        for range in differing.iter() {
            let mut done = range.start;
            while done < range.end {
                let take = (range.end - done).min(self.request_sectors_max);
                self.settle_range(row, done..done + take, &lacking).await?;
                done += take;
            }
        }
        self.state.borrow_mut().redo.remove(&row);
        Ok(())
    }

    /// The same for sectors of its unit, which fit into a request: to a copy that does not lack the new data, or else to one that does.
    async fn settle_range(&self, row: u64, range: Range<u64>, lacking: &BTreeSet<usize>) -> Result<(), DeviceError> {
        let (at, sectors) = (self.shape.at(row, range.start), range.end - range.start);
        let holders = || -> Vec<usize> { (0..self.shape.members).filter(|&member| self.holds(member, row)).collect() };
        let (lacking, complete): (Vec<usize>, Vec<usize>) =
            holders().into_iter().partition(|member| lacking.contains(member));
        let mut answer = Ok(());
        for source in complete.into_iter().chain(lacking) {
            if !self.holds(source, row) {
                continue;
            }
            let Ok(right) = self.read_long(source, at, sectors).await else { continue };
            answer = Ok(());
            for target in holders().into_iter().filter(|&target| target != source) {
                if let Err(error) = self.overwrite(target, at, &right).await {
                    answer = Err(error);
                    break;
                }
            }
            if answer.is_ok() {
                return Ok(());
            }
        }
        answer // A single copy that cannot be read differs from no other one.
    }

    /// Writes `right` to a member where it holds something else. One that fails is dropped.
    async fn overwrite(&self, member: usize, at: u64, right: &[u8]) -> Result<(), DeviceError> {
        let sectors = right.len() as u64 / SECTOR_BYTES;
        let found = self.read_long(member, at, sectors).await;
        let parts = match &found {
            Ok(found) => self.differences(found, right),
            Err(_) => std::iter::once(0..sectors).collect(),
        };
        for part in parts {
            let data = Data::from_slice(&right[bytes(part.start, part.end - part.start)]);
            match self.device(member).write(Sector(at + part.start), data, WriteFlags::NONE).await {
                Ok(()) => {}
                Err(error) if is_no_space(&error) || !self.fail(member, &error) => {
                    return Err(relocate(error, member, Sector(at), right.len() as u64));
                }
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// The blocks in which two contents of the same sectors differ, as ranges of sectors.
    pub(super) fn differences(&self, one: &[u8], two: &[u8]) -> Vec<Range<u64>> {
        debug_assert_eq!(one.len(), two.len(), "contents of the same sectors have one length");
        let block = self.block_sectors.max(BLOCK_SECTORS);
        let length = bytes(0, block).len();
        let mut parts: Vec<Range<u64>> = Vec::new();
        for (index, (one, two)) in one.chunks(length).zip(two.chunks(length)).enumerate() {
            if one == two {
                continue;
            }
            let start = index as u64 * block;
            let end = start + one.len() as u64 / SECTOR_BYTES;
            match parts.last_mut().filter(|last| last.end == start && end - last.start <= self.request_sectors_max) {
                Some(last) => last.end = end,
                None => parts.push(start..end),
            }
        }
        parts
    }

    /// Makes a row consistent of whose `writes` those in `lacking` failed with `NoSpace`: its members get what was `read` before, or
    /// its parity becomes that of its data. The row is held. What there is no space for is deferred.
    pub(super) async fn take_back_row(
        &self,
        plan: &RowPlan,
        read: &[Buf],
        writes: Vec<MemberWrite>,
        lacking: Vec<MemberWrite>,
    ) {
        debug_assert!(self.locks.is_held(plan.row), "a row has one writer at a time");
        let within = plan.from..plan.to;
        let left = match plan.method {
            Method::Bare => return,
            Method::ReadModifyWrite => (!self.put_back(plan, read).await).then_some(writes),
            Method::FullStripe | Method::ReconstructWrite => match self.recompute(plan.row, within).await {
                true => None,
                false => {
                    // Of the parity of what is there, a part may have been written.
                    let holder = self.shape.parity(plan.row);
                    let data = lacking.into_iter().filter(|write| write.member != holder);
                    Some(data.chain(writes.into_iter().filter(|write| write.member == holder)).collect())
                }
            },
            Method::Recover => Some(lacking),
        };
        if let Some(left) = left {
            self.defer(left, None);
        }
    }

    /// The members get what was `read`, as far as there is space, and parity what encodes as much as before. False when there is no
    /// space for parity.
    async fn put_back(&self, plan: &RowPlan, read: &[Buf]) -> bool {
        let at = self.shape.at(plan.row, plan.from);
        let holder = self.shape.parity(plan.row);
        let mut parity = None;
        let mut change = Buf::zeroed(bytes(0, plan.sectors()).len());
        for (&member, old) in plan.reads.iter().zip(read).filter(|(member, _)| self.holds(**member, plan.row)) {
            if member == holder {
                parity = Some(old);
                continue;
            }
            if self.overwrite(member, at, old).await.is_ok() {
                continue;
            }
            let Ok(left) = self.read_long(member, at, plan.sectors()).await else { return false };
            xor(&mut change, old);
            xor(&mut change, &left);
        }
        let Some(parity) = parity else { return true };
        xor(&mut change, parity);
        self.overwrite(holder, at, &change).await.is_ok()
    }

    /// The parts of `write` that differ from what was `read`: there may be no space for what a sparse member holds without.
    pub(super) fn changes(&self, plan: &RowPlan, read: &[Buf], write: &MemberWrite) -> Vec<MemberWrite> {
        let old = plan.reads.iter().zip(read).find(|(member, _)| **member == write.member).map(|(_, old)| old);
        match (old, write.data()) {
            (Some(old), Some(data)) => {
                let old = &old[bytes(write.at - self.shape.at(plan.row, plan.from), write.sectors)];
                self.parts_that_differ(write, old, data)
            }
            _ => vec![write.clone()],
        }
    }

    fn parts_that_differ(&self, write: &MemberWrite, old: &[u8], data: &[u8]) -> Vec<MemberWrite> {
        let parts = self.differences(old, data).into_iter();
        parts.map(|part| write.part(write.at + part.start..write.at + part.end)).collect()
    }

    /// Makes the parity of a complete row, which is held, that of its data within a range of its units. False when it cannot.
    pub(super) async fn recompute(&self, row: u64, within: Range<u64>) -> bool {
        if self.absent(row).is_some() {
            return false;
        }
        let (at, sectors) = (self.shape.at(row, within.start), within.end - within.start);
        let parity = self.shape.parity(row);
        let data = (0..self.shape.members).filter(|&member| member != parity);
        let read = join_all(data.map(|member| self.read_long(member, at, sectors))).await;
        let mut sum = Buf::zeroed(bytes(0, sectors).len());
        for unit in read {
            let Ok(unit) = unit else { return false };
            xor(&mut sum, &unit);
        }
        self.overwrite(parity, at, &sum).await.is_ok()
    }
}
