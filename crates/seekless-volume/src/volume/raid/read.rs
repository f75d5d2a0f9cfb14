//! Reading: from the member that holds the data, or by computing it from all the others.
//!
//! A read that fails on one member is served from the others, and the result is written where the read failed: drives
//! remap a bad sector when it is written. A member that fails this write too is dropped, unless it only lacks space:
//! then its other content is still right, and the next read tries again.
//!
//! Such a repair is made in a task of its own, which locks the rows. Devices complete a write that has begun even when
//! its caller is dropped, and without the lock it could overwrite a newer one.
//!
//! While writes to a full member wait for space, the parity of their rows is that of the new data. So data is computed
//! from units as they will be once these writes are done: computed from the old ones it would be garbage, which a
//! repair would store. Data on a member is returned as stored: the caller of such a write got an error.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::join_all;

use super::core::{Core, count};
use super::request::DeferredWrite;
use super::shape::{Level, Part};
use super::write::ReadFailure;
use crate::codec::xor;
use crate::device::{Buf, Data, DeviceError, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::members::{MemberPart, Run, bytes, relocate, runs, scatter_all};

/// A range of one member's unit: member, row, first sector, sectors.
type UnitRange = (usize, u64, u64, u64);

/// What became of the rewriting of what could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rewriting {
    Done,
    /// The member has no space for it.
    NoSpace,
    /// It was not tried, as there is nothing certain to write, or the member was dropped.
    Other,
}

/// A read of a member that is under way, until it ends or its caller drops it.
struct Load<'a>(&'a Cell<(u64, u64)>);

impl Load<'_> {
    fn new(balance: &Cell<(u64, u64)>, end: u64) -> Load<'_> {
        balance.set((balance.get().0 + 1, end));
        Load(balance)
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        let (under_way, end) = self.0.get();
        debug_assert!(under_way > 0, "each read of a member is counted until it ends");
        self.0.set((under_way - 1, end));
    }
}

impl Core {
    /// Fills `buf` from `at`; the range has been checked.
    pub(super) async fn read(self: Rc<Self>, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        count(&self.counts.reads);
        let sectors = buf.len() as u64 / SECTOR_BYTES;
        let rows = self.shape.rows_of(at, sectors);
        self.touch_for_reading(rows.clone()).await?;
        let read = match self.shape.level {
            Level::Mirror => self.read_mirror(at, buf).await,
            Level::Parity => self.read_parity(at, buf).await,
        };
        self.acknowledge_later();
        read
    }

    /// Resynchronises the rows that need it, in a task of its own: the caller may drop this, and a write is not abandoned
    /// half-way. Rows that fail to with `NoSpace` are read as they are; so are those with data that cannot be read, from the
    /// units that can: a row that stays out of sync is read from nothing else.
    pub(super) async fn touch_for_reading(self: &Rc<Self>, rows: Range<u64>) -> Result<(), DeviceError> {
        if !self.needs_touch(rows.clone()) {
            return Ok(());
        }
        let core = self.clone();
        let touched = self.rt.spawn(async move {
            let _token = core.begin().await;
            core.touch(rows).await
        });
        match touched.await {
            Ok(()) | Err(DeviceError::NoSpace { .. }) => Ok(()),
            // Copies may differ: one answers now, another one later.
            Err(error) if error.is_of_medium() && self.shape.level == Level::Parity => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn read_mirror(self: &Rc<Self>, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        let (length, sectors) = (buf.len(), buf.len() as u64 / SECTOR_BYTES);
        let rows = self.shape.rows_of(at, sectors);
        let mut bad: Vec<(usize, DeviceError)> = Vec::new();
        loop {
            let tried: Vec<usize> = bad.iter().map(|(member, _)| *member).collect();
            let Some(member) = self.choose(at, rows.clone(), &tried) else {
                let Some((member, error)) = bad.into_iter().next() else {
                    unreachable!("a mirror keeps its last member");
                };
                return Err(relocate(error, member, at, length as u64));
            };
            let load = Load::new(&self.balance[member], at.0 + sectors);
            let result = self.device(member).read(Sector(self.shape.data_start + at.0), buf).await;
            drop(load);
            match result {
                Ok(read) => {
                    for (bad, error) in bad {
                        if !matches!(error, DeviceError::Gone(_)) {
                            count(&self.counts.degraded_reads);
                            self.repair_mirror(bad, member, at, sectors).await;
                        }
                    }
                    return Ok(read);
                }
                Err(error) => {
                    if matches!(error, DeviceError::Gone(_)) {
                        self.fail(member, &error);
                    }
                    bad.push((member, error));
                    buf = Buf::dirty(length);
                }
            }
        }
    }

    /// The member to read from: the one with the least load, then the nearest one. Where members may differ, always the
    /// same one.
    fn choose(&self, at: Sector, rows: Range<u64>, tried: &[usize]) -> Option<usize> {
        let candidates = self.active().into_iter().filter(|member| !tried.contains(member));
        let differ = {
            let state = self.state.borrow();
            state.redo.range(rows.clone()).next().is_some() || state.out_of_sync.contains_any(rows)
        };
        candidates.min_by_key(|&member| {
            let (under_way, end) = self.balance[member].get();
            if differ || self.from_first.get() { (0, 0, member) } else { (under_way, end.abs_diff(at.0), member) }
        })
    }

    /// Writes the data of `good` to `bad`, where it could not be read.
    async fn repair_mirror(self: &Rc<Self>, bad: usize, good: usize, at: Sector, sectors: u64) {
        let core = self.clone();
        let repaired = self.rt.spawn(async move {
            let _rows = core.locks.hold_all(core.shape.rows_of(at, sectors)).await;
            core.repair_held(bad, good, core.shape.data_start + at.0, sectors).await;
        });
        repaired.await;
    }

    /// The same for sector `at` of the members, on rows that the caller holds.
    pub(super) async fn repair_held(&self, bad: usize, good: usize, at: u64, sectors: u64) -> Rewriting {
        debug_assert!(
            self.locks.is_held((at - self.shape.data_start) / self.shape.unit)
                && self.locks.is_held((at + sectors - 1 - self.shape.data_start) / self.shape.unit),
            "O1: a copy is repaired while its rows are held, so that nothing older is written over newer data"
        );
        debug_assert_ne!(bad, good, "a copy is repaired from another one");
        let rows = (at - self.shape.data_start) / self.shape.unit
            ..(at + sectors - self.shape.data_start).div_ceil(self.shape.unit);
        // While this waited for the rows, a write may have failed on one of them, or found no space: then it is on the
        // other one alone.
        let is_held = [bad, good].into_iter().all(|member| self.holds_all(member, rows.clone()));
        if !is_held || self.state.borrow().redo.range(rows).next().is_some() {
            return Rewriting::Other;
        }
        match self.device(good).read(Sector(at), Buf::dirty(bytes(0, sectors).len())).await {
            Ok(read) => self.rewrite(bad, at, read.freeze()).await,
            Err(_) => Rewriting::Other,
        }
    }

    /// Writes `data` at sector `at` of `member`, where it could not be read or is wrong; the caller holds or shares the rows.
    pub(super) async fn rewrite(&self, member: usize, at: u64, data: Data) -> Rewriting {
        match self.device(member).write(Sector(at), data, WriteFlags::NONE).await {
            Ok(()) => {
                count(&self.counts.repaired);
                Rewriting::Done
            }
            Err(DeviceError::NoSpace { .. }) => {
                count(&self.counts.repairs_without_space);
                Rewriting::NoSpace
            }
            Err(error) => {
                self.fail(member, &error);
                Rewriting::Other
            }
        }
    }

    async fn read_parity(self: &Rc<Self>, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        let length = buf.len();
        let parts: Vec<Part> = self.shape.parts(at, length as u64 / SECTOR_BYTES).collect();
        if parts.iter().all(|part| self.holds(self.shape.member(part.row, part.index), part.row)) {
            match self.read_direct(&parts, buf).await {
                Ok(read) => return Ok(read),
                // The slow way decides what to do about it.
                Err(_) => buf = Buf::dirty(length),
            }
        }
        let core = self.clone();
        self.rt.spawn(async move { core.read_rows(&parts, at, &mut buf).await.map(|()| buf) }).await
    }

    fn piece(&self, part: &Part) -> MemberPart {
        let member = self.shape.member(part.row, part.index);
        MemberPart { member, at: self.shape.at(part.row, part.from), sectors: part.sectors, offset: part.offset }
    }

    /// For parts that are all on valid members.
    async fn read_direct(&self, parts: &[Part], mut buf: Buf) -> Result<Buf, DeviceError> {
        if let [only] = parts
            && only.sectors <= self.request_sectors_max
        {
            let piece = self.piece(only);
            return self.device(piece.member).read(Sector(piece.at), buf).await;
        }
        let runs = runs(parts.iter().map(|part| self.piece(part)), self.request_sectors_max);
        let results = join_all(runs.iter().map(|run| self.read_run(run))).await;
        scatter_all(&runs, &results.into_iter().collect::<Result<Vec<Buf>, DeviceError>>()?, &mut buf);
        Ok(buf)
    }

    async fn read_run(&self, run: &Run) -> Result<Buf, DeviceError> {
        self.device(run.member).read(Sector(run.at), Buf::dirty(bytes(0, run.sectors).len())).await
    }

    /// Row by row, with missing data computed from the rest. It may repair what it reads: the caller does not drop it.
    async fn read_rows(&self, parts: &[Part], at: Sector, buf: &mut Buf) -> Result<(), DeviceError> {
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return Ok(()) };
        let length = buf.len() as u64;
        let _rows = self.locks.share_all(first.row..last.row + 1).await;
        loop {
            let mut ranges: Vec<UnitRange> = Vec::new();
            // For each part: its own range among those read, or the ranges whose exclusive or it is.
            let mut sources: Vec<(&Part, Vec<usize>, u64)> = Vec::new();
            for group in parts.chunk_by(|one, two| one.row == two.row) {
                let row = group[0].row;
                let is_there = |part: &Part| self.holds(self.shape.member(row, part.index), row);
                if group.iter().all(is_there) {
                    for part in group {
                        sources.push((part, vec![ranges.len()], part.from));
                        ranges.push((self.shape.member(row, part.index), row, part.from, part.sectors));
                    }
                    continue;
                }
                for part in group.iter().filter(|part| !is_there(part)) {
                    self.check_doubt("read", row, part.from..part.from + part.sectors, at, length)?;
                }
                count(&self.counts.degraded_reads);
                let from = group.iter().map(|part| part.from).min().unwrap_or(0);
                let to = group.iter().map(|part| part.from + part.sectors).max().unwrap_or(0);
                let others: Vec<usize> = (0..self.shape.members).filter(|&member| self.holds(member, row)).collect();
                if others.len() + 1 < self.shape.members {
                    return self.check_running(at, length);
                }
                let start = ranges.len();
                ranges.extend(others.iter().map(|&member| (member, row, from, to - from)));
                for part in group {
                    let own = others.iter().position(|&member| member == self.shape.member(row, part.index));
                    let needed = match own {
                        Some(own) => vec![start + own],
                        None => (start..start + others.len()).collect(),
                    };
                    sources.push((part, needed, from));
                }
            }
            let read = match self.read_units(&ranges).await {
                Ok(read) => read,
                Err(ReadFailure::Member) => continue,
                Err(ReadFailure::Data(member, error)) => return Err(relocate(error, member, at, length)),
            };
            for (part, needed, from) in sources {
                let target = &mut buf[bytes(part.offset, part.sectors)];
                let within = bytes(part.from - from, part.sectors);
                if let [own] = needed[..] {
                    target.copy_from_slice(&read[own][within]);
                    continue;
                }
                target.fill(0);
                for other in needed {
                    let range = (ranges[other].0, part.row, part.from, part.sectors);
                    self.add(range, &read[other][within.clone()], target);
                }
            }
            return Ok(());
        }
    }

    /// Adds `unit`, a range of a member's unit, to `sum`: as it will be once no write to it waits for space, because
    /// parity is that of those writes. The caller holds or shares the row.
    pub(super) fn add(&self, (member, row, from, sectors): UnitRange, unit: &[u8], sum: &mut [u8]) {
        debug_assert!(self.locks.is_locked(row), "a row whose units are added up does not change in the meantime");
        debug_assert_eq!(unit.len(), bytes(0, sectors).len(), "what is added is the whole range");
        if !self.state.borrow().redo.contains_key(&row) {
            return xor(sum, unit);
        }
        xor(sum, &self.as_it_will_be((member, row, from, sectors), Buf::from_slice(unit)));
    }

    /// A range of a member's unit, with what is deferred of it.
    pub(super) fn as_it_will_be(&self, (member, row, from, _): UnitRange, mut unit: Buf) -> Buf {
        let state = self.state.borrow();
        let deferred = state.redo.get(&row).into_iter().flat_map(|deferred| &deferred.writes);
        for DeferredWrite { write, .. } in deferred.filter(|deferred| deferred.write.member == member) {
            write.lay_over(self.shape.at(row, from), &mut unit);
        }
        unit
    }

    /// Fails where the missing unit of a row that was being written at a power cut cannot be known, except for sectors
    /// written since. `within` is relative to the unit.
    pub(super) fn check_doubt(
        &self,
        operation: &'static str,
        row: u64,
        within: Range<u64>,
        at: Sector,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        if self.accept_doubt || !self.is_in_doubt(row, within) {
            return Ok(());
        }
        let missing = self.absent(row).unwrap_or_default();
        let cause = format!(
            "row {row} was being written when the power failed, and member {missing} is missing since: its unit cannot \
             be known; it can again once it has been written, or with doubt=accept"
        );
        Err(DeviceError::Io { operation, at, bytes, cause })
    }

    /// The row is out of sync, and not all of the sectors `within` its missing unit have been written since.
    pub(super) fn is_in_doubt(&self, row: u64, within: Range<u64>) -> bool {
        let (state, start) = (self.state.borrow(), row * self.shape.unit);
        state.out_of_sync.contains(row) && !state.known.contains(start + within.start..start + within.end)
    }

    /// Reads ranges of units, merged where they are neighbours; the caller holds or shares the rows. A range that
    /// cannot be read is computed from the rest of its row and written back.
    pub(super) async fn read_units(&self, ranges: &[UnitRange]) -> Result<Vec<Buf>, ReadFailure> {
        debug_assert!(
            ranges.iter().all(|&(_, row, ..)| self.locks.is_locked(row)),
            "a row that is read unit by unit does not change in the meantime"
        );
        let mut total = 0;
        let pieces: Vec<MemberPart> = ranges
            .iter()
            .map(|&(member, row, from, sectors)| {
                let piece = MemberPart { member, at: self.shape.at(row, from), sectors, offset: total };
                total += sectors;
                piece
            })
            .collect();
        let runs = runs(pieces.iter().copied(), self.request_sectors_max);
        let results = join_all(runs.iter().map(|run| self.read_run(run))).await;
        // Members that keep no data return none.
        let is_hole = results.iter().all(|result| result.as_ref().is_ok_and(Buf::is_hole));
        let length = bytes(0, total).len();
        let mut whole = if is_hole { Buf::zeroed(length) } else { Buf::dirty(length) };
        let mut lost = None;
        for (run, result) in runs.iter().zip(results) {
            match result {
                Ok(_) if is_hole => {}
                Ok(read) => run.scatter(&read, &mut whole),
                Err(error @ DeviceError::Gone(_)) => {
                    let is_borne = self.fail(run.member, &error);
                    lost.get_or_insert(if is_borne {
                        ReadFailure::Member
                    } else {
                        ReadFailure::Data(run.member, error)
                    });
                }
                Err(error) => {
                    for &(offset, sectors) in &run.parts {
                        for (index, piece) in pieces.iter().enumerate() {
                            let is_in = piece.member == run.member
                                && piece.offset < offset + sectors
                                && offset < piece.offset + piece.sectors;
                            if !is_in {
                                continue;
                            }
                            match self.recover(ranges[index], &error).await {
                                Ok((recovered, _)) => {
                                    whole[bytes(piece.offset, piece.sectors)].copy_from_slice(&recovered);
                                }
                                Err(why) => {
                                    lost.get_or_insert(why);
                                }
                            }
                        }
                    }
                }
            }
        }
        if let Some(lost) = lost {
            return Err(lost);
        }
        Ok(pieces.iter().map(|piece| whole.part(bytes(piece.offset, piece.sectors))).collect())
    }

    /// Computes a range of a unit, which failed to be read with `error`, from the other members of a complete row, and writes it back.
    pub(super) async fn recover(
        &self,
        (member, row, from, sectors): UnitRange,
        error: &DeviceError,
    ) -> Result<(Buf, Rewriting), ReadFailure> {
        let give_up = || ReadFailure::Data(member, error.clone());
        match self.absent(row) {
            // Dropped since it was read, for another range: the row is read without it.
            Some(absent) if absent == member => return Err(ReadFailure::Member),
            Some(_) => return Err(give_up()),
            None if self.state.borrow().out_of_sync.contains(row) => return Err(give_up()),
            None => {}
        }
        let length = bytes(0, sectors).len();
        let others: Vec<usize> = (0..self.shape.members).filter(|&other| other != member).collect();
        let at = Sector(self.shape.at(row, from));
        let results = join_all(others.iter().map(|&other| {
            let device = self.device(other);
            async move { device.read(at, Buf::dirty(length)).await }
        }))
        .await;
        let mut unit = Buf::zeroed(length);
        for (other, result) in others.into_iter().zip(results) {
            self.add((other, row, from, sectors), &result.map_err(|_| give_up())?, &mut unit);
        }
        let rewriting = self.rewrite(member, at.0, Data::from_slice(&unit)).await;
        Ok((unit, rewriting))
    }
}
