//! The controller of a drive with zones: what a command books, in the order in which commands come.
//!
//! A zone is a superblock: its stripes go to the dies in turn, from a die of its own on, so that zones that are written together
//! use different dies. There is no garbage collection. Units wait in the write buffer until their stripe is complete.
//!
//! A finish programs the rest of the zone, as the measured drive does: 0.9 s for a zone with one unit \[do23\]. Other commands come
//! between: what the dies do for it is booked while time passes, a stripe on each die at a time. A reset of the zone gives up the
//! stripes that no die has begun; the finish, if it is still under way, is answered when it was going to be.

use std::collections::{BTreeMap, VecDeque};

use super::cells::Array;
use super::drive::{Fill, FlashError, UNIT_BYTES, Zns};
use super::front::{Front, SectorExtent, WriteKind};
use super::read_ahead::ReadAhead;
use super::space::Space;
use super::zone_table::{Effects, ZoneTable};
use crate::device::{DeviceError, ZoneAction, ZoneInfo, ZoneState, Zones};
use crate::units::{Nanos, SECTOR_BYTES, Sector};

const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;

#[derive(Clone, Debug)]
pub struct ZoneController {
    drive: Zns,
    front: Front,
    table: ZoneTable,
    space: Space,
    array: Array,
    read_ahead: ReadAhead,
    writing: BTreeMap<u32, Writing>,
    /// Rests of zones that were finished, one after another.
    padding: VecDeque<Padding>,
    /// When all of them are programmed.
    padded: Nanos,
    /// When those stripes of them are programmed that dies have begun.
    begun: Nanos,
    /// When everything that left the buffer, and every copy of what is in it, is programmed.
    programmed: Nanos,
    counts: Counts,
}

/// A zone with units in the buffer, or on their way to a die.
#[derive(Clone, Debug, Default)]
struct Writing {
    /// Units that have space in the buffer or are programmed.
    admitted: u64,
    /// Units of complete stripes.
    programmed: u64,
    /// Sectors of the zone that were written when the rest of its stripe was saved last.
    saved: u64,
    /// When the newest unit is in the buffer.
    ready: Nanos,
    /// Stripes that are being programmed: the units before their ends, and when they are there.
    leaving: VecDeque<(u64, Nanos)>,
}

/// Stripes of a finished zone that are not booked yet.
#[derive(Clone, Copy, Debug)]
struct Padding {
    zone: u32,
    /// Number of the next one, which says on which die it is.
    next: u64,
    stripes: u64,
    /// When the dies begin with the next ones.
    at: Nanos,
    /// When all are programmed.
    end: Nanos,
}

/// Units of a zone behind each other, of one stripe.
#[derive(Clone, Copy)]
struct Run {
    zone: u32,
    first: u64,
    units: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    appends: u64,
    sectors_read: u64,
    sectors_written: u64,
    flushes: u64,
    /// Units that reads asked for: in the buffer, on flash, or in neither of them.
    units_read: u64,
    buffer_hits: u64,
    units_unwritten: u64,
    opened: u64,
    closed: u64,
    finished: u64,
    reset: u64,
    units_padded: u64,
}

impl ZoneController {
    /// # Errors
    /// When the drive contradicts itself.
    pub fn new(drive: &Zns, fill: Fill, block_bytes: u32) -> Result<ZoneController, FlashError> {
        drive.check()?;
        let mut controller = ZoneController {
            drive: *drive,
            front: Front::new(drive.interface, block_bytes),
            table: ZoneTable::new(drive.shape()),
            space: Space::new(drive.buffer.bytes / UNIT_BYTES),
            array: Array::new(drive.cells),
            read_ahead: ReadAhead::default(),
            writing: BTreeMap::new(),
            padding: VecDeque::new(),
            padded: Nanos::ZERO,
            begun: Nanos::ZERO,
            programmed: Nanos::ZERO,
            counts: Counts::default(),
        };
        if fill != Fill::Fresh {
            controller.table.fill();
        }
        Ok(controller)
    }

    /// Sectors of a zone that were written since its last reset.
    pub(super) fn written(&self, zone: u32) -> u64 {
        self.table.written(zone)
    }

    pub(super) fn zones(&self) -> &Zones {
        self.table.zones()
    }

    /// # Errors
    /// When there is no such zone.
    pub fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        self.table.info(zone)
    }

    /// When the write, which comes at `now`, is confirmed.
    ///
    /// # Errors
    /// When it does not begin at a write pointer, or does not fit; then nothing has changed.
    pub fn write(&mut self, now: Nanos, at: Sector, sectors: u64, durable: bool) -> Result<Nanos, DeviceError> {
        let effects = self.table.write(at, sectors)?;
        self.counts.writes += 1;
        Ok(self.put(now, at, sectors, durable, effects, WriteKind::Write))
    }

    /// Where the data went, and when that is confirmed.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn append(
        &mut self,
        now: Nanos,
        zone: u32,
        sectors: u64,
        durable: bool,
    ) -> Result<(Sector, Nanos), DeviceError> {
        let (at, effects) = self.table.append(zone, sectors)?;
        self.counts.appends += 1;
        Ok((at, self.put(now, at, sectors, durable, effects, WriteKind::Append)))
    }

    fn put(&mut self, now: Nanos, at: Sector, sectors: u64, durable: bool, effects: Effects, kind: WriteKind) -> Nanos {
        self.pad(now);
        self.counts.sectors_written += sectors;
        let extent = SectorExtent { first_sector: at.0, sectors };
        let (mut begin, mut end) = self.front.write(now, &extent, kind);
        if effects.opened {
            self.counts.opened += 1;
            let close = if effects.closed.is_some() { self.drive.costs.close } else { Nanos::ZERO };
            (begin, end) =
                (begin + self.drive.costs.open_by_write + close, end + self.drive.costs.open_by_write + close);
        }
        let zone = self.zones().zone_of(at);
        let within = SectorExtent { first_sector: at.0 - self.zones().start(zone).0, sectors };
        let stripe = self.drive.cells.stripe_units();
        let first_die = self.first_stripe(zone);
        let units = within.units();
        let count = units.len() as u64;
        let mut done = end;
        let writing = self.writing.entry(zone).or_default();
        for (index, unit) in units.enumerate() {
            let unit = u64::from(unit);
            let arrival = begin + Nanos((end - begin).0 * (index as u64 + 1) / count);
            let mut ready = arrival;
            // The rest of a unit that is here in part has its space.
            if unit >= writing.admitted {
                ready = self.space.take(arrival);
                writing.admitted = unit + 1;
            }
            writing.ready = writing.ready.max(ready);
            done = done.max(ready);
            let whole = (unit + 1).min((within.first_sector + sectors) / UNIT_SECTORS);
            if whole >= writing.programmed + stripe {
                let die = self.array.die(first_die + writing.programmed / stripe);
                let there = self.array.program(now, writing.ready, die);
                writing.programmed += stripe;
                self.space.release(there, stripe as u32);
                writing.leaving.push_back((writing.programmed, there));
                self.programmed = self.programmed.max(there);
            }
        }
        while writing.leaving.front().is_some_and(|(_, there)| *there <= now) {
            writing.leaving.pop_front();
        }
        if durable && !self.drive.buffer.protected {
            done = done.max(self.save(now, done));
        }
        self.front.leave(now, done)
    }

    /// Number of the first stripe of a zone, which says on which die it begins.
    fn first_stripe(&self, zone: u32) -> u64 {
        u64::from(zone) * 5
    }

    /// When the read is complete. What was never written reads as zeroes, in no time.
    pub fn read(&mut self, now: Nanos, at: Sector, sectors: u64) -> Nanos {
        self.pad(now);
        self.counts.reads += 1;
        self.counts.sectors_read += sectors;
        let extent = SectorExtent { first_sector: at.0, sectors };
        let begin = self.front.read(now, extent.bytes());
        let ahead = self.read_ahead.continues(&extent, self.front.outstanding() + 1);
        let stripe_units = self.drive.cells.stripe_units();
        let zone_units = self.zones().zone_sectors / UNIT_SECTORS;
        let (mut done, mut from_buffer, mut unwritten) = (begin, 0, 0);
        let mut run: Option<Run> = None;
        for unit in extent.units() {
            let (zone, within) = ((u64::from(unit) / zone_units) as u32, u64::from(unit) % zone_units);
            match &mut run {
                _ if !self.on_flash(begin, zone, within) => match within * UNIT_SECTORS < self.table.written(zone) {
                    true => from_buffer += 1,
                    false => unwritten += 1,
                },
                // The unit behind the others, in the same stripe.
                Some(run) if run.first + run.units == within && !within.is_multiple_of(stripe_units) => run.units += 1,
                _ => {
                    if let Some(before) = run.replace(Run { zone, first: within, units: 1 }) {
                        done = done.max(self.fetch(now, begin, before, ahead, extent.bytes()));
                    }
                }
            }
        }
        if let Some(last) = run {
            done = done.max(self.fetch(now, begin, last, ahead, extent.bytes()));
        }
        self.counts.units_read += extent.units().len() as u64;
        self.counts.buffer_hits += from_buffer;
        self.counts.units_unwritten += unwritten;
        let from_memory = from_buffer + unwritten;
        if from_memory > 0 {
            done = done.max(self.front.send(now, begin, (from_memory * UNIT_BYTES).min(extent.bytes())));
        }
        self.front.leave(now, done)
    }

    fn on_flash(&self, at: Nanos, zone: u32, unit: u64) -> bool {
        match self.writing.get(&zone) {
            Some(writing) => {
                let end = writing.leaving.iter().find(|(before, _)| unit < *before);
                unit < writing.programmed && end.is_none_or(|(_, there)| *there <= at)
            }
            None => unit < self.table.written(zone).div_ceil(UNIT_SECTORS),
        }
    }

    fn fetch(&mut self, now: Nanos, at: Nanos, run: Run, ahead: bool, bytes: u64) -> Nanos {
        let stripe_units = self.drive.cells.stripe_units();
        let stripe = run.first / stripe_units;
        let die = self.array.die(self.first_stripe(run.zone) + stripe);
        // A number that no other zone has.
        let number = (u64::from(run.zone) << 32) + stripe;
        let there = match ahead {
            // It was read while the commands before were served; the link is slower than all dies together.
            true => at,
            false => self.array.read(now, at, die, number, run.first % stripe_units, run.units),
        };
        self.front.send(now, there, (run.units * UNIT_BYTES).min(bytes))
    }

    /// When everything that was confirmed before `now` is durable.
    pub fn flush(&mut self, now: Nanos) -> Nanos {
        self.pad(now);
        self.counts.flushes += 1;
        let begin = self.front.command(now, self.drive.interface.write_latency);
        let done = if self.drive.buffer.protected { begin } else { self.save(now, begin) };
        self.front.leave(now, done)
    }

    /// Units of incomplete stripes cannot be programmed where they belong: the rest of the stripe could not follow. The drive
    /// saves a copy of them elsewhere, a stripe for each zone with something new, and they stay in the buffer.
    fn save(&mut self, now: Nanos, at: Nanos) -> Nanos {
        for (zone, writing) in &mut self.writing {
            let written = self.table.written(*zone);
            if writing.admitted > writing.programmed && written > writing.saved {
                let die = self.array.die(u64::from(*zone));
                self.counts.units_padded += self.drive.cells.stripe_units();
                let there = self.array.program(now, writing.ready.max(at), die);
                // A flush beside this one waits for the same copy.
                self.programmed = self.programmed.max(there);
                writing.saved = written;
            }
        }
        at.max(self.programmed)
    }

    /// When the change of a zone's state is done.
    ///
    /// # Errors
    /// When the zone is not in a state for it.
    pub fn manage(&mut self, now: Nanos, zone: u32, action: ZoneAction) -> Result<Nanos, DeviceError> {
        self.pad(now);
        let written = self.table.written(zone);
        let (before, effects) = self.table.manage(zone, action)?;
        let costs = self.drive.costs;
        let units = written.div_ceil(UNIT_SECTORS);
        let capacity = self.drive.capacity_bytes / UNIT_BYTES;
        let partial = written > 0 && before != ZoneState::Full;
        let mut time = match action {
            ZoneAction::Open => costs.open,
            ZoneAction::Close => costs.close,
            ZoneAction::Finish if before == ZoneState::Full || written == 0 => costs.finish_empty,
            // `fill` has it.
            ZoneAction::Finish => Nanos::ZERO,
            ZoneAction::Reset if before == ZoneState::Empty => costs.reset_empty,
            ZoneAction::Reset => {
                let closing =
                    if partial && units >= self.drive.cells.stripe_units() { costs.finish } else { Nanos::ZERO };
                costs.reset + Nanos(costs.reset_unit.0 * units) + closing
            }
        };
        if effects.closed.is_some() {
            time += costs.close;
        }
        match action {
            ZoneAction::Open => self.counts.opened += 1,
            ZoneAction::Close => self.counts.closed += 1,
            ZoneAction::Finish => self.counts.finished += 1,
            ZoneAction::Reset => self.counts.reset += 1,
        }
        let begin = self.front.command(now, Nanos::ZERO);
        let done = match action {
            ZoneAction::Finish if partial => self.fill(now, begin, zone, capacity - units),
            ZoneAction::Finish => self.leave(now, zone).max(begin),
            ZoneAction::Reset => self.give_up(now, zone).max(begin),
            _ => begin,
        };
        Ok(self.front.leave(now, done + time))
    }

    /// Programs the rest of a zone, which has `rest` units, at the rate of all dies and after the rests of other zones; returns when
    /// the zone is finished. The first stripe may have units of the host.
    fn fill(&mut self, now: Nanos, begin: Nanos, zone: u32, rest: u64) -> Nanos {
        let cells = self.drive.cells;
        let first = self.first_stripe(zone);
        let end = first + self.drive.capacity_bytes / UNIT_BYTES / cells.stripe_units();
        let next = end - rest / cells.stripe_units();
        let writing = self.writing.remove(&zone).unwrap_or_default();
        let left = writing.leaving.back().map_or(now, |(_, there)| *there);
        let start = begin.max(left).max(self.padded);
        self.padded = start + super::drive::transfer(rest * UNIT_BYTES, cells.program_rate());
        // `costs.finish` covers the last program operation: it is what was measured of a zone that lacks one unit.
        let mut done = self.padded + self.drive.costs.finish;
        let waiting = writing.admitted - writing.programmed;
        if waiting > 0 {
            let die = self.array.die(first + writing.programmed / cells.stripe_units());
            let there = self.array.program(now, begin.max(writing.ready), die);
            self.space.release(there, waiting as u32);
            // A flush beside this one waits for what was confirmed before.
            self.programmed = self.programmed.max(there);
            done = done.max(there);
        }
        // Of the stripe that the host has begun; `pad` counts the others.
        self.counts.units_padded += rest % cells.stripe_units();
        if next < end {
            self.padding.push_back(Padding { zone, next, stripes: end - next, at: start, end: self.padded });
        }
        done
    }

    /// Books what the dies have begun by `now` for zones that were finished.
    fn pad(&mut self, now: Nanos) {
        let cells = self.drive.cells;
        while let Some(padding) = self.padding.front_mut().filter(|padding| padding.at <= now) {
            let (at, first) = (padding.at, padding.next);
            let stripes = padding.stripes.min(cells.dies.into());
            padding.next += stripes;
            padding.stripes -= stripes;
            padding.at += cells.program;
            self.begun = self.begun.max(padding.at);
            self.counts.units_padded += stripes * cells.stripe_units();
            if padding.stripes == 0 {
                self.padding.pop_front();
            }
            for stripe in first..first + stripes {
                let die = self.array.die(stripe);
                self.array.program(at, at, die);
            }
        }
    }

    /// Nothing of a zone waits any more, in the buffer or for dies; returns when its last stripe has left. Rests of zones that were
    /// finished after it keep their places: when those finishes are done was said.
    fn give_up(&mut self, now: Nanos, zone: u32) -> Nanos {
        let before = self.padding.len();
        self.padding.retain(|padding| padding.zone != zone);
        if self.padding.len() < before {
            self.padded = self.padding.back().map_or(self.begun, |last| last.end);
        }
        self.leave(now, zone)
    }

    /// Takes a zone out of the buffer; returns when its last stripe has left. What still waits needs no space any more.
    fn leave(&mut self, now: Nanos, zone: u32) -> Nanos {
        let Some(writing) = self.writing.remove(&zone) else { return now };
        let waiting = writing.admitted - writing.programmed;
        self.space.release(now, waiting as u32);
        writing.leaving.back().map_or(now, |(_, there)| *there)
    }

    /// Empties a zone without a command and without time, for a prediction that is longer than the drive: the rest of a finish goes
    /// on, as that of another zone.
    ///
    /// # Errors
    /// When there is no such zone.
    pub(super) fn empty(&mut self, now: Nanos, zone: u32) -> Result<(), DeviceError> {
        self.leave(now, zone);
        self.table.manage(zone, ZoneAction::Reset).map(drop)
    }

    pub(super) fn readings(&mut self, now: Nanos) -> Vec<(&'static str, u64)> {
        self.pad(now);
        let counts = &self.counts;
        let cells = &self.array.counts;
        let (dies, channels) = self.array.busy(now);
        vec![
            ("requests", counts.reads + counts.writes + counts.appends),
            ("reads", counts.reads),
            ("writes", counts.writes),
            ("appends", counts.appends),
            ("sectors_read", counts.sectors_read),
            ("sectors_written", counts.sectors_written),
            ("flushes", counts.flushes),
            ("units_read", counts.units_read),
            ("buffer_hits", counts.buffer_hits),
            ("units_unwritten", counts.units_unwritten),
            ("zones_opened", counts.opened),
            ("zones_closed", counts.closed),
            ("zones_finished", counts.finished),
            ("zones_reset", counts.reset),
            ("units_written", counts.sectors_written / UNIT_SECTORS),
            ("units_padded", counts.units_padded),
            ("page_reads", cells.page_reads),
            ("programs", cells.programs),
            ("busy_ns", self.front.busy(now).0),
            ("firmware_busy_ns", self.front.firmware_busy(now).0),
            ("dies", self.drive.cells.dies.into()),
            ("dies_busy_ns", dies.0),
            ("channels", self.drive.cells.channels.into()),
            ("channels_busy_ns", channels.0),
        ]
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.table.check();
        self.space.check(self.writing.values().map(|writing| writing.admitted - writing.programmed).sum());
    }
}
