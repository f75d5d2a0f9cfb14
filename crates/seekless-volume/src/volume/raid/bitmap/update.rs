//! Setting and clearing bits, and writing them to the members.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use super::super::core::{Core, MemberState, State, count};
use super::super::rows::{LeftOut, Ranges};
use super::Mark;
use crate::device::{Data, Device, DeviceError, WriteFlags};
use crate::units::{Nanos, Sector};
use crate::volume::format::{
    BLOCK_BYTES, BLOCK_SECTORS, BitmapSector, REGIONS_PER_SECTOR, SUPERBLOCKS, bitmap_start, uuid_start,
};

/// Minimum time between clearings, so that a stream of fsyncs does not pay for one each time.
const TIDY_INTERVAL: Nanos = Nanos::from_secs(1);

impl Core {
    /// Marks `rows` as about to be written (B1), until the mark is dropped.
    pub(in crate::volume::raid) async fn mark(&self, rows: Range<u64>) -> Result<Option<Mark<'_>>, DeviceError> {
        let Some(layout) = &self.layout else { return Ok(None) };
        let regions = rows.start / layout.region_rows..rows.end.div_ceil(layout.region_rows);
        debug_assert!(self.writes_under_way() > 0, "A2: who marks a region counts as a write under way");
        let mark = {
            let mut state = self.bitmap.state.borrow_mut();
            for region in regions.clone() {
                *state.under_way.entry(region).or_insert(0) += 1;
            }
            Mark { bitmap: &self.bitmap, regions: regions.clone() }
        };
        let is_set = || regions.clone().all(|region| self.bitmap.state.borrow().set.contains(&region));
        if is_set() {
            return Ok(Some(mark));
        }
        let _gate = self.bitmap.gate.enter().await;
        if is_set() {
            return Ok(Some(mark));
        }
        let mut wanted = self.bitmap.state.borrow().set.clone();
        let new: Vec<u64> = regions.clone().filter(|region| !wanted.contains(region)).collect();
        wanted.extend(&new);
        self.write_bitmap(&wanted, &new).await?;
        self.bitmap.state.borrow_mut().set.extend(new);
        debug_assert!(is_set(), "B1: the bits are set before anything is written");
        Ok(Some(mark))
    }

    /// True when the bit of the region of `row` is set on the members. For assertions.
    pub(in crate::volume::raid) fn is_marked(&self, row: u64) -> bool {
        let state = self.bitmap.state.borrow();
        self.layout.is_none_or(|layout| state.set.contains(&(row / layout.region_rows)))
    }

    /// Writes the blocks of the bitmap that hold the bits of `changed` regions.
    async fn write_bitmap(&self, set: &BTreeSet<u64>, changed: &[u64]) -> Result<(), DeviceError> {
        debug_assert!(self.bitmap.gate.is_held(), "B3: bits are written one change after the other");
        let regions_per_block = REGIONS_PER_SECTOR * BLOCK_SECTORS;
        let blocks: BTreeSet<u64> = changed.iter().map(|region| region / regions_per_block).collect();
        let epoch = self.bitmap.epoch();
        let writes: Vec<(u64, Data)> = blocks.into_iter().map(|block| self.bitmap_block(set, epoch, block)).collect();
        count(&self.counts.bitmap_writes);
        self.write_everywhere(&writes).await
    }

    fn bitmap_block(&self, set: &BTreeSet<u64>, epoch: u64, block: u64) -> (u64, Data) {
        let (uuid, all) = self.layout.map_or(([0; 16], 0), |layout| (layout.uuid, layout.bitmap_sectors));
        let sectors = (0..BLOCK_SECTORS).flat_map(|sector| {
            let index = block * BLOCK_SECTORS + sector;
            let mut bits = [0u64; 61];
            let first = index * REGIONS_PER_SECTOR;
            for region in set.range(first..first + REGIONS_PER_SECTOR) {
                let bit = region - first;
                bits[(bit / 64) as usize] |= 1 << (bit % 64);
            }
            BitmapSector { crc: 0, index: index as u32, uuid_start: uuid_start(&uuid), epoch, bits }.to_bytes()
        });
        let bytes: Vec<u8> = sectors.collect();
        (bitmap_start(epoch % 2, all) + block * BLOCK_SECTORS, Data::from_slice(&bytes))
    }

    /// The whole bitmap, with these bits.
    fn bitmap_blocks(&self, set: &BTreeSet<u64>, epoch: u64) -> Vec<(u64, Data)> {
        let sectors = self.layout.map_or(0, |layout| layout.bitmap_sectors);
        (0..sectors / BLOCK_SECTORS).map(|block| self.bitmap_block(set, epoch, block)).collect()
    }

    /// While nothing is under way and everything is durable: writes the other copy of the bitmap, in which only regions
    /// with inconsistent rows have their bits (B4). It becomes valid with [`Core::use_bitmap`].
    pub(in crate::volume::raid) async fn write_next_bitmap(&self) -> Result<BTreeSet<u64>, DeviceError> {
        let _gate = self.bitmap.gate.enter().await;
        let set: BTreeSet<u64> = {
            let bitmap = self.bitmap.state.borrow();
            debug_assert!(bitmap.under_way.is_empty(), "B4: the copy of the bitmap changes while nothing is under way");
            bitmap.set.iter().copied().filter(|&region| !self.is_region_consistent(region)).collect()
        };
        let blocks = self.bitmap_blocks(&set, self.bitmap.epoch() + 1);
        self.write_everywhere(&blocks).await?;
        Ok(set)
    }

    /// Switches to the copy that [`Core::write_next_bitmap`] has written, which the superblocks now being written name.
    pub(in crate::volume::raid) fn use_bitmap(&self, set: BTreeSet<u64>) {
        let mut bitmap = self.bitmap.state.borrow_mut();
        debug_assert!(set.is_subset(&bitmap.set), "B4: the next copy of the bitmap has no bit that this one lacks");
        bitmap.epoch += 1;
        bitmap.set = set;
        bitmap.ended.clear();
    }

    fn is_region_consistent(&self, region: u64) -> bool {
        let Some(layout) = &self.layout else { return true };
        let rows = region * layout.region_rows..(region + 1) * layout.region_rows;
        let state = self.state.borrow();
        !state.out_of_sync.contains_any(rows.clone()) && state.redo.range(rows).next().is_none()
    }

    /// Puts `device` into `slot`, to be rebuilt. It gets the bitmap first; no bit changes in between.
    pub(in crate::volume::raid) async fn admit(&self, slot: usize, device: Device) -> Result<(), DeviceError> {
        debug_assert!(self.replacements.is_held(), "one member is replaced at a time");
        let _gate = self.bitmap.gate.enter().await;
        if self.layout.is_some() {
            for at in SUPERBLOCKS {
                // Erases any superblock of an earlier array.
                device.write(Sector(at), Data::zeroes(BLOCK_BYTES as usize), WriteFlags::FUA).await?;
            }
            if let Some(layout) = &self.layout {
                let _ = device.provision(Sector::ZERO, layout.metadata_end()).await; // As for the others.
            }
            let (set, epoch) = (self.bitmap.state.borrow().set.clone(), self.bitmap.epoch());
            for (at, block) in self.bitmap_blocks(&set, epoch) {
                device.write(Sector(at), block, WriteFlags::FUA).await?;
            }
        }
        self.members.borrow_mut()[slot] = Some(device);
        let mut state = self.state.borrow_mut();
        debug_assert_eq!(state.now[slot], MemberState::Failed, "A1: a member takes the place of one that has failed");
        debug_assert!(!state.now.contains(&MemberState::Rebuilding), "one member is rebuilt at a time");
        state.now[slot] = MemberState::Rebuilding;
        state.cursor = 0;
        state.left_out = LeftOut::default();
        state.admitted += 1;
        state.rebuild_error = None;
        Ok(())
    }

    /// Called before members are flushed; the result goes to [`Core::flush_ended`].
    pub(in crate::volume::raid) fn flush_begins(&self) -> u64 {
        let mut state = self.bitmap.state.borrow_mut();
        state.flushes += 1;
        state.flushes
    }

    /// After flush number `flush`: clears the bits that it made unnecessary, if the last clearing is long enough ago;
    /// otherwise later.
    pub(in crate::volume::raid) async fn flush_ended(self: &Rc<Self>, flush: u64) -> Result<(), DeviceError> {
        if self.layout.is_none() || self.bitmap.is_clean() {
            return Ok(());
        }
        let due = self.last_tidy.get() + TIDY_INTERVAL;
        if self.last_tidy.get() > Nanos::ZERO && self.rt.now() < due {
            self.tidy_later(due);
            return Ok(());
        }
        self.last_tidy.set(Nanos(self.rt.now().0.max(1)));
        self.clear_bits(flush).await
    }

    /// Schedules clearing bits some time after a write, even if no caller flushes.
    pub(in crate::volume::raid) fn tidy_soon(self: &Rc<Self>) {
        if self.layout.is_some() && !self.bitmap.is_clean() {
            self.tidy_later(self.rt.now() + TIDY_INTERVAL);
        }
    }

    fn tidy_later(self: &Rc<Self>, when: Nanos) {
        if self.tidying.replace(true) {
            return;
        }
        let (rt, core) = (self.rt.clone(), Rc::downgrade(self));
        self.rt.spawn(async move {
            rt.sleep_until(when).await;
            if let Some(core) = core.upgrade() {
                core.tidying.set(false);
                // This only speeds up the start after a power cut; the next write reports errors.
                let _ = core.flush().await;
            }
        });
    }

    /// Clears the bits of all regions that flush number `flush` covers and in which every row is consistent (B2).
    pub(in crate::volume::raid) async fn clear_bits(&self, flush: u64) -> Result<(), DeviceError> {
        if self.layout.is_none() {
            return Ok(());
        }
        let _gate = self.bitmap.gate.enter().await;
        if self.is_unrecorded() {
            return Ok(()); // These bits are cleared with the record (B4).
        }
        let (left, cleared) = {
            let mut bitmap = self.bitmap.state.borrow_mut();
            debug_assert!(flush <= bitmap.flushes, "B2: a flush that ends has begun");
            let is_needed = |region: &u64| {
                bitmap.under_way.contains_key(region)
                    || bitmap.ended.get(region).is_some_and(|ended| *ended >= flush)
                    || !self.is_region_consistent(*region)
            };
            let (left, cleared): (BTreeSet<u64>, BTreeSet<u64>) =
                bitmap.set.iter().partition(|region| is_needed(region));
            debug_assert!(
                cleared.iter().all(|region| !bitmap.under_way.contains_key(region)),
                "B2: nothing is under way to a region whose bit is cleared"
            );
            bitmap.set = left.clone(); // B3
            bitmap.ended.retain(|region, _| !cleared.contains(region));
            (left, cleared.into_iter().collect::<Vec<u64>>())
        };
        if cleared.is_empty() {
            return Ok(());
        }
        match self.write_bitmap(&left, &cleared).await {
            // An extra bit does no harm.
            Err(DeviceError::NoSpace { .. }) => Ok(()),
            Ok(()) => {
                self.forget_known(&mut self.state.borrow_mut());
                Ok(())
            }
            other => other,
        }
    }

    /// Drops the ranges recorded as known in regions that have no bit on any member: their units are not in doubt.
    pub(in crate::volume::raid) fn forget_known(&self, state: &mut State) {
        let Some(layout) = &self.layout else { return };
        let bitmap = self.bitmap.state.borrow();
        let is_needed = |range: &Range<u64>| {
            let rows = range.start / self.shape.unit..range.end.div_ceil(self.shape.unit);
            let regions = rows.start / layout.region_rows..rows.end.div_ceil(layout.region_rows);
            bitmap.set.range(regions).next().is_some()
        };
        let needed: Vec<Range<u64>> = state.known.iter().filter(is_needed).collect();
        state.known = Ranges::default();
        needed.into_iter().for_each(|range| state.known.insert(range));
    }
}
