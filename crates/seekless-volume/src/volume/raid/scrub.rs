//! Scrubbing: checks that all copies are equal, and that all parity matches.
//!
//! An unreadable unit is rewritten. Where members differ, the majority decides; without a majority the row is left as
//! it is, unless the caller knows that the data is right.
//!
//! [`Core::check`] recounts everything that is assumed about the members from their content.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::join_all;

use super::bitmap::collect;
use super::core::{Core, MemberState, MemberStateByte};
use super::read::Rewriting;
use super::request::{Deferred, DeferredWrite, MemberWrite};
use super::shape::Level;
use super::write::ReadFailure;
use crate::codec::xor;
use crate::device::{Buf, Data, DeviceError, Scrubbed};
use crate::units::{SECTOR_BYTES, Sector};
use crate::volume::format::{
    BLOCK_BYTES, BLOCK_SECTORS, BitmapSector, SUPERBLOCKS, Superblock, bitmap_start, uuid_start,
};
use crate::volume::members::{bytes, relocate};

/// Limit of rows that are listed; the rest is only counted.
const LEFT_MAX: usize = 16;

/// Result of checking a row.
enum Row {
    Consistent,
    /// The members that hold it, with their content.
    Differs(Vec<(usize, Buf)>),
    /// A unit of it is missing or unknown.
    NotWhole,
}

impl Core {
    /// See [`crate::device::Redundancy::scrub`]. Clients may use the array at the same time.
    pub(super) async fn scrub(self: Rc<Self>, believe_data: bool, tell: &dyn Fn(u64)) -> Result<Scrubbed, DeviceError> {
        let mut scrubbed = Scrubbed::default();
        self.retry(0..self.shape.rows);
        let mut first = 0;
        while first < self.shape.rows {
            let end = (first + self.batch_rows()).min(self.shape.rows);
            // As in a read that repairs: the caller may drop this.
            scrubbed = self.rt.spawn(self.clone().scrub_rows(first..end, believe_data, scrubbed)).await?;
            self.acknowledge().await?;
            scrubbed.rows += end - first;
            first = end;
            tell(first);
        }
        Ok(scrubbed)
    }

    /// Adds what it finds in `rows` to `scrubbed`.
    async fn scrub_rows(
        self: Rc<Self>,
        rows: Range<u64>,
        believe_data: bool,
        mut scrubbed: Scrubbed,
    ) -> Result<Scrubbed, DeviceError> {
        let _token = self.begin().await;
        let _rows = self.locks.hold_all(rows.clone()).await;
        self.check_running(Sector(rows.start * self.shape.row_sectors()), 0)?;
        if !self.agrees(rows.clone()).await {
            for row in rows {
                self.scrub_row(row, believe_data, &mut scrubbed).await?;
            }
        }
        Ok(scrubbed)
    }

    /// True when all of `rows`, which are held, are certainly consistent; read in one go.
    async fn agrees(&self, rows: Range<u64>) -> bool {
        let is_whole = |row: u64| (0..self.shape.members).all(|member| self.holds(member, row));
        if !rows.clone().all(is_whole) || self.needs_touch(rows.clone()) {
            return false;
        }
        let (at, sectors) = (self.shape.at(rows.start, 0), (rows.end - rows.start) * self.shape.unit);
        let reads = (0..self.shape.members).map(|member| self.read_long(member, at, sectors));
        let Ok(read) = join_all(reads).await.into_iter().collect::<Result<Vec<Buf>, DeviceError>>() else {
            return false;
        };
        is_consistent(self.shape.level, &read)
    }

    async fn scrub_row(&self, row: u64, believe_data: bool, scrubbed: &mut Scrubbed) -> Result<(), DeviceError> {
        debug_assert!(self.locks.is_held(row), "a row is corrected while it is held");
        if self.needs_touch(row..row + 1) {
            match self.resync_held(&BTreeSet::from([row])).await {
                Ok(()) => {}
                Err(DeviceError::NoSpace { .. }) => {
                    self.note_without_space(row, scrubbed);
                    return self.check_running(Sector(row * self.shape.row_sectors()), 0);
                }
                // Data that cannot be read.
                Err(error) if error.is_of_medium() => {
                    scrubbed.degraded += 1;
                    return self.check_running(Sector(row * self.shape.row_sectors()), 0);
                }
                Err(error) => return Err(error),
            }
        }
        let holders = match self.read_row(row, scrubbed).await? {
            Row::Consistent => return Ok(()),
            Row::NotWhole => {
                scrubbed.degraded += 1;
                return Ok(());
            }
            Row::Differs(holders) => holders,
        };
        let writes = match self.shape.level {
            Level::Mirror => self.copies_to_write(row, &holders, believe_data),
            Level::Parity if believe_data => vec![self.parity_to_write(row, &holders)],
            Level::Parity => Vec::new(),
        };
        scrubbed.inconsistent += 1;
        // Not as other writes, which wait for space and keep their data in memory until then: the row is as good as before.
        let mut is_corrected = !writes.is_empty();
        for write in super::request::merge(writes, self.request_sectors_max) {
            let Some(data) = write.data() else { continue };
            if self.rewrite(write.member, write.at, data.clone()).await == Rewriting::NoSpace {
                *scrubbed.without_space.entry(write.member).or_default() += write.sectors;
                is_corrected = false;
            }
        }
        if is_corrected {
            scrubbed.corrected += 1;
        } else if scrubbed.left.len() < LEFT_MAX {
            scrubbed.left.push(row);
        }
        self.check_running(Sector(row * self.shape.row_sectors()), 0)
    }

    /// What was to be written to `row` waits for space, as other writes do: which of its members is right is known.
    fn note_without_space(&self, row: u64, scrubbed: &mut Scrubbed) {
        scrubbed.degraded += 1;
        let state = self.state.borrow();
        let Some(deferred) = state.redo.get(&row) else { return };
        for DeferredWrite { write, .. } in &deferred.writes {
            *scrubbed.without_space.entry(write.member).or_default() += write.sectors;
        }
        for &member in &deferred.lacking {
            let sectors: u64 = deferred.differing.iter().map(|range| range.end - range.start).sum();
            *scrubbed.without_space.entry(member).or_default() += sectors;
        }
    }

    /// The writes that make all copies equal to the majority or, with `believe_data`, to the first.
    fn copies_to_write(&self, row: u64, holders: &[(usize, Buf)], believe_data: bool) -> Vec<MemberWrite> {
        let alike = |one: &Buf| holders.iter().filter(|(_, other)| other[..] == one[..]).count();
        let most = holders.iter().find(|(_, copy)| 2 * alike(copy) > holders.len());
        let right = match (most, holders.first()) {
            (_, Some((_, first))) if believe_data => first,
            (Some((_, most)), _) => most,
            _ => return Vec::new(),
        };
        let mut writes = Vec::new();
        for (member, _) in holders.iter().filter(|(_, copy)| copy[..] != right[..]) {
            if !believe_data {
                self.note_wrong(*member); // Otherwise the first one may be the wrong one.
            }
            writes.push(MemberWrite::new(*member, self.shape.at(row, 0), Data::from_slice(right)));
        }
        writes
    }

    fn parity_to_write(&self, row: u64, holders: &[(usize, Buf)]) -> MemberWrite {
        debug_assert_eq!(holders.len(), self.shape.members, "parity is computed from all units of a row");
        let parity = self.shape.parity(row);
        let mut sum = Buf::zeroed(bytes(0, self.shape.unit).len());
        holders.iter().filter(|(member, _)| *member != parity).for_each(|(_, unit)| xor(&mut sum, unit));
        MemberWrite::new(parity, self.shape.at(row, 0), sum.freeze())
    }

    /// Reads all units of a row, which is held. An unreadable unit is repaired. Where its member has no space for that, it is left out.
    async fn read_row(&self, row: u64, scrubbed: &mut Scrubbed) -> Result<Row, DeviceError> {
        let (at, start) = (self.shape.at(row, 0), Sector(row * self.shape.row_sectors()));
        let length = self.shape.unit * SECTOR_BYTES;
        let mut repaired: BTreeSet<usize> = BTreeSet::new();
        let mut full: BTreeSet<usize> = BTreeSet::new();
        loop {
            let is_there = |member: &usize| self.holds(*member, row) && !full.contains(member);
            let holders: Vec<usize> = (0..self.shape.members).filter(is_there).collect();
            let is_whole = match self.shape.level {
                Level::Mirror => holders.len() > 1,
                Level::Parity => holders.len() == self.shape.members,
            };
            if !is_whole || self.state.borrow().out_of_sync.contains(row) {
                return Ok(Row::NotWhole);
            }
            let results = join_all(holders.iter().map(|&member| self.read_long(member, at, self.shape.unit))).await;
            let bad = holders
                .iter()
                .zip(&results)
                .find_map(|(&member, result)| Some((member, result.as_ref().err()?.clone())));
            if let Some((member, error)) = bad {
                let good = holders.iter().zip(&results).find(|(_, result)| result.is_ok()).map(|(good, _)| *good);
                let is_hopeless = matches!(error, DeviceError::Gone(_)) || !repaired.insert(member);
                let rewriting = match (self.shape.level, good) {
                    _ if is_hopeless && self.fail(member, &error) => continue,
                    _ if is_hopeless => return Err(relocate(error, member, start, length)),
                    (Level::Mirror, Some(good)) => self.repair_held(member, good, at, self.shape.unit).await,
                    (Level::Parity, _) => match self.recover((member, row, 0, self.shape.unit), &error).await {
                        Ok((_, rewriting)) => rewriting,
                        Err(ReadFailure::Member) => Rewriting::Other,
                        Err(ReadFailure::Data(member, error)) => return Err(relocate(error, member, start, 0)),
                    },
                    _ => return Err(relocate(error, member, start, length)),
                };
                if rewriting == Rewriting::NoSpace {
                    *scrubbed.without_space.entry(member).or_default() += self.shape.unit;
                    full.insert(member);
                } else {
                    scrubbed.unreadable += 1;
                }
                continue;
            }
            let read: Vec<Buf> = results.into_iter().flatten().collect();
            return Ok(match is_consistent(self.shape.level, &read) {
                true if full.is_empty() => Row::Consistent,
                true => Row::NotWhole,
                false => Row::Differs(holders.into_iter().zip(read).collect()),
            });
        }
    }

    /// Recounts what is assumed about the members from their content. Only the array's own background work may be under
    /// way.
    ///
    /// # Errors
    /// What is inconsistent.
    pub(super) async fn check(&self) -> Result<(), String> {
        let _transition = self.transitions().enter().await;
        let _bits = self.bitmap.gate().enter().await;
        if let Some(broken) = self.check_quiet() {
            return Err(broken);
        }
        for row in 0..self.shape.rows {
            let is_open = {
                let state = self.state.borrow();
                state.out_of_sync.contains(row) || state.redo.contains_key(&row)
            };
            let holders: Vec<usize> = (0..self.shape.members).filter(|&member| self.holds(member, row)).collect();
            if is_open || (self.shape.level == Level::Parity && holders.len() < self.shape.members) {
                continue;
            }
            let at = self.shape.at(row, 0);
            let read = join_all(holders.iter().map(|&member| self.read_long(member, at, self.shape.unit))).await;
            let read: Result<Vec<Buf>, DeviceError> = read.into_iter().collect();
            let read = read.map_err(|error| format!("row {row}: {error}"))?;
            if !is_consistent(self.shape.level, &read) {
                return Err(format!("row {row} is not consistent, and is not said to be open"));
            }
        }
        self.check_metadata().await
    }

    /// Checks the state in memory against itself.
    fn check_quiet(&self) -> Option<String> {
        let state = self.state.borrow();
        let is_idle = !self.working.get();
        let rebuilding = state.now.iter().filter(|member_state| **member_state == MemberState::Rebuilding).count();
        let open: Vec<u64> = (0..self.shape.rows).filter(|&row| state.out_of_sync.contains(row)).collect();
        let checks = [
            (is_idle && self.locks.in_use() > 0, "rows are locked while nothing is under way"),
            (!state.queues.is_empty(), "writers wait while nothing is under way"),
            (is_idle && self.writes_under_way() > 0, "a write is under way"),
            (
                is_idle && self.layout.is_some() && !state.stopped && state.now != state.recorded,
                "A1: a failure is not recorded",
            ),
            (rebuilding > 1, "two members are being rebuilt"),
            (
                is_idle && rebuilding == 0 && state.cursor > 0 && state.cursor < self.shape.rows,
                "a rebuild has begun, but no member is being rebuilt",
            ),
            (is_idle && state.cursor_recorded > state.rebuilt(), "R1: more is recorded as rebuilt than has been"),
            (open.len() as u64 != state.out_of_sync.len(), "the number of rows out of sync is wrong"),
        ];
        checks.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, what)| what.to_string())
    }

    /// Checks the metadata on the members.
    async fn check_metadata(&self) -> Result<(), String> {
        let Some(layout) = self.layout else { return Ok(()) };
        if self.state.borrow().stopped {
            return Ok(()); // A3
        }
        let regions = self.shape.rows.div_ceil(layout.region_rows);
        let open: BTreeSet<u64> = {
            let state = self.state.borrow();
            // What the journal has needs no bit.
            let is_recorded = |row: u64| state.redo.get(&row).is_none_or(Deferred::is_recorded);
            let rows = (0..self.shape.rows).filter(|&row| state.out_of_sync.contains(row) || !is_recorded(row));
            rows.map(|row| row / layout.region_rows).collect()
        };
        let known = self.bitmap.regions();
        if let Some(region) = open.iter().find(|region| !known.contains(region)) {
            return Err(format!("B2: region {region} has rows that are not consistent, and its bit is clear"));
        }
        for member in self.in_use() {
            let (generation, states, epoch, rebuilt) = {
                let state = self.state.borrow();
                let states: Vec<u8> = state.recorded.iter().map(|member_state| member_state.to_byte()).collect();
                (state.generation, states, self.bitmap.epoch(), state.cursor_recorded)
            };
            let failed = |error: DeviceError| format!("member {member}: {error}");
            let at = SUPERBLOCKS[(generation % 2) as usize];
            let block = self.read_long(member, at, BLOCK_SECTORS).await.map_err(failed)?;
            let found = Superblock::from_block(&block).map_err(|why| format!("member {member}: {why:?}"))?;
            let says = (found.generation, &found.states[..states.len()], found.bitmap_epoch, found.rebuilt_rows);
            if says != (generation, &states[..], epoch, rebuilt) {
                return Err(format!(
                    "member {member} says {says:?}, and memory {generation}, {states:?}, {epoch}, {rebuilt}"
                ));
            }
            let start = bitmap_start(epoch % 2, layout.bitmap_sectors);
            let mut set = BTreeSet::new();
            for block in (0..layout.bitmap_sectors).step_by(BLOCK_SECTORS as usize) {
                let read = self.read_long(member, start + block, BLOCK_BYTES / SECTOR_BYTES).await.map_err(failed)?;
                for sector in 0..BLOCK_SECTORS {
                    let uuid = uuid_start(&layout.uuid);
                    let found = BitmapSector::from_bytes(&read[bytes(sector, 1)], block + sector, epoch, uuid);
                    let Some(found) = found else {
                        return Err(format!("member {member}: sector {} of the bitmap is damaged", block + sector));
                    };
                    collect(&found, &mut set);
                }
            }
            set.retain(|region| *region < regions);
            if let Some(region) = known.iter().find(|region| !set.contains(region)) {
                return Err(format!("B1: the bit of region {region} is not on member {member}"));
            }
        }
        Ok(())
    }
}

/// All copies are equal, or the exclusive or of all units is zero.
fn is_consistent(level: Level, read: &[Buf]) -> bool {
    let Some(first) = read.first() else { return true };
    match level {
        Level::Mirror => read.iter().all(|copy| copy[..] == first[..]),
        Level::Parity => {
            let mut sum = Buf::zeroed(first.len());
            read.iter().for_each(|unit| xor(&mut sum, unit));
            sum.iter().all(|byte| *byte == 0)
        }
    }
}
