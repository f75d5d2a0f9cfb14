//! The controller of a conventional drive: what a command books, in the order in which commands come.
//!
//! Invariants
//!   C1  Commands come in the order of time.
//!   C2  What is confirmed is in the buffer; with a protected buffer that is durable, without one it is after a flush.
//!   C3  Garbage collection moves live units at the pace of the host's writes, and never loses one.

use super::buffer::{Buffer, WHOLE};
use super::cells::Array;
use super::drive::{Fill, FlashError, STRIPES_MIN, Ssd, UNIT_BYTES};
use super::front::{Front, SectorExtent, WriteKind};
use super::mapping::Mapping;
use super::read_ahead::ReadAhead;
use crate::units::Nanos;

#[derive(Clone, Debug)]
pub struct Controller {
    drive: Ssd,
    front: Front,
    buffer: Buffer,
    mapping: Mapping,
    array: Array,
    /// Bytes of mapping journal that are not programmed yet.
    journal: u64,
    journal_stripes: u64,
    /// The unit behind the last write.
    next_unit: u32,
    /// When everything that left the buffer is programmed.
    programmed: Nanos,
    read_ahead: ReadAhead,
    pub(super) counts: Counts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) sectors_read: u64,
    pub(super) sectors_written: u64,
    pub(super) flushes: u64,
    pub(super) discards: u64,
    /// Units that reads asked for: in the buffer, on flash, or in neither of them.
    pub(super) units_read: u64,
    pub(super) buffer_hits: u64,
    pub(super) units_unwritten: u64,
    pub(super) buffer_wait_ns: u64,
    /// Units that the host's writes programmed.
    pub(super) units_written: u64,
    pub(super) units_moved: u64,
    pub(super) units_padded: u64,
    pub(super) units_merged: u64,
    pub(super) journal_stripes: u64,
    pub(super) collections: u64,
}

/// Units in places behind each other, of one stripe.
#[derive(Clone, Copy)]
struct Run {
    place: u64,
    units: u64,
}

impl Controller {
    /// `block_bytes`: the smallest unit that the host can address.
    ///
    /// # Errors
    /// When the drive contradicts itself.
    pub fn new(drive: &Ssd, fill: Fill, block_bytes: u32) -> Result<Controller, FlashError> {
        drive.cells.check()?;
        drive.interface.check()?;
        let wrong = |problem: String| Err(FlashError(problem));
        let (stripe, superblock) = (drive.cells.stripe_units(), drive.cells.superblock_units());
        if superblock < STRIPES_MIN * stripe {
            let problem = "a superblock has at least 16 stripes: dies times pages must be 16 or more";
            return wrong(problem.to_owned());
        }
        let units = drive.buffer.bytes / UNIT_BYTES;
        if units < 2 * stripe {
            let least = 2 * stripe * UNIT_BYTES;
            return wrong(format!("the write buffer needs room for two stripes, which are {least} bytes here"));
        }
        Ok(Controller {
            drive: *drive,
            front: Front::new(drive.interface, block_bytes),
            buffer: Buffer::new(units),
            mapping: Mapping::new(drive, fill)?,
            array: Array::new(drive.cells),
            journal: 0,
            journal_stripes: 0,
            next_unit: 0,
            programmed: Nanos::ZERO,
            read_ahead: ReadAhead::default(),
            counts: Counts::default(),
        })
    }

    pub fn drive(&self) -> &Ssd {
        &self.drive
    }

    /// When the write of `sectors` from `first_sector`, which comes at `now`, is confirmed. `durable`: not before it survives
    /// a power cut.
    pub fn write(&mut self, now: Nanos, first_sector: u64, sectors: u64, durable: bool) -> Nanos {
        self.buffer.expire(now);
        let extent = SectorExtent { first_sector, sectors };
        self.counts.writes += 1;
        self.counts.sectors_written += sectors;
        let (begin, end) = self.front.write(now, &extent, WriteKind::Write);
        let units = extent.units();
        if units.start != self.next_unit && units.start + 1 != self.next_unit {
            self.journal += u64::from(self.drive.journal_bytes);
        }
        self.next_unit = units.end;
        let count = units.len() as u64;
        let mut done = end;
        for (index, unit) in units.enumerate() {
            // The units arrive one after another.
            let arrival = begin + Nanos((end - begin).0 * (index as u64 + 1) / count);
            let ready = self.buffer.admit(arrival, unit, extent.sectors_of(unit));
            self.counts.buffer_wait_ns += (ready - arrival).0;
            done = done.max(ready);
            self.drain(now);
        }
        if durable && !self.drive.buffer.protected {
            done = done.max(self.empty(now, done));
        }
        self.front.leave(now, done)
    }

    /// When the read is complete.
    pub fn read(&mut self, now: Nanos, first_sector: u64, sectors: u64) -> Nanos {
        self.buffer.expire(now);
        let extent = SectorExtent { first_sector, sectors };
        self.counts.reads += 1;
        self.counts.sectors_read += sectors;
        let begin = self.front.read(now, extent.bytes());
        let ahead = self.read_ahead.continues(&extent, self.front.outstanding() + 1);
        let stripe_units = self.drive.cells.stripe_units();
        let mut done = begin;
        let (mut from_buffer, mut unwritten) = (0, 0);
        let mut run: Option<Run> = None;
        for unit in extent.units() {
            let is_in_buffer = self.buffer.serves(begin, unit);
            let place = match is_in_buffer {
                true => None,
                false => self.mapping.place(unit).map(u64::from),
            };
            match (&mut run, place) {
                // Some of a unit may be in the buffer, and nothing on flash.
                (_, None) if is_in_buffer || self.buffer.has(unit) => from_buffer += 1,
                (_, None) => unwritten += 1,
                // The unit behind the others, in the same stripe.
                (Some(run), Some(place)) if run.place + run.units == place && !place.is_multiple_of(stripe_units) => {
                    run.units += 1;
                }
                (_, Some(place)) => {
                    if let Some(before) = run.replace(Run { place, units: 1 }) {
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
            let bytes = (from_memory * UNIT_BYTES).min(extent.bytes());
            done = done.max(self.front.send(now, begin, bytes));
        }
        self.front.leave(now, done)
    }

    /// Reads a run and sends it, or what the command needs of it.
    fn fetch(&mut self, now: Nanos, at: Nanos, run: Run, ahead: bool, bytes: u64) -> Nanos {
        let stripe_units = self.drive.cells.stripe_units();
        let number = run.place / stripe_units;
        let there = match ahead {
            // It was read while the commands before were served; the link is slower than all dies together.
            true => at,
            false => self.array.read(now, at, self.array.die(number), number, run.place % stripe_units, run.units),
        };
        self.front.send(now, there, (run.units * UNIT_BYTES).min(bytes))
    }

    /// When everything that was confirmed before `now` is durable.
    pub fn flush(&mut self, now: Nanos) -> Nanos {
        self.counts.flushes += 1;
        let begin = self.front.command(now, self.drive.interface.write_latency);
        let done = match self.drive.buffer.protected {
            true => begin,
            false => self.empty(now, begin),
        };
        self.front.leave(now, done)
    }

    /// When the discard is done. Parts of units stay as they are; the device shows them as zeroes.
    pub fn discard(&mut self, now: Nanos, first_sector: u64, sectors: u64) -> Nanos {
        self.counts.discards += 1;
        let units = SectorExtent { first_sector, sectors }.whole_units();
        let begin = self.front.command(now, self.drive.interface.write_latency);
        self.buffer.discard(begin, units.clone());
        self.mapping.discard_all(units);
        self.free_victim();
        self.front.leave(now, begin)
    }

    /// Programs whole stripes, and lets the garbage collection keep pace.
    fn drain(&mut self, now: Nanos) {
        let stripe = self.drive.cells.stripe_units() as usize;
        while self.buffer.waiting() > stripe {
            let from_host = self.program(now, stripe);
            for _ in 0..from_host {
                self.collect(now);
            }
        }
    }

    /// Programs everything that waits; returns when all of it is there.
    fn empty(&mut self, now: Nanos, at: Nanos) -> Nanos {
        let stripe = self.drive.cells.stripe_units() as usize;
        while self.buffer.waiting() > 0 {
            let from_host = self.program(now, stripe);
            // What the collection adds leaves as well: it is only a few units, and its source may be erased next.
            for _ in 0..from_host {
                self.collect(now);
            }
        }
        at.max(self.programmed)
    }

    /// Programs the oldest units as one stripe; returns how many of them the host wrote.
    fn program(&mut self, now: Nanos, stripe_units: usize) -> usize {
        let stripe = self.buffer.take(stripe_units);
        let (place, erase) = self.mapping.next_place();
        let number = u64::from(place) / stripe_units as u64;
        let die = self.array.die(number);
        let mut ready = stripe.iter().fold(now, |ready, waiting| ready.max(waiting.ready));
        for waiting in stripe.iter().filter(|waiting| waiting.sectors != WHOLE) {
            // The rest of the unit is on flash.
            if let Some(old) = self.mapping.place(waiting.unit) {
                self.counts.units_merged += 1;
                let (number, within) = (u64::from(old) / stripe_units as u64, u64::from(old) % stripe_units as u64);
                let die = self.array.die(number);
                ready = ready.max(self.array.read(now, ready, die, number, within, 1));
            }
        }
        // A superblock's first stripe on each die comes after the erasure of the die's blocks.
        let within = u64::from(place % self.mapping.superblock_units()) / stripe_units as u64;
        if erase && within < u64::from(self.drive.cells.dies) {
            self.array.erase(now, ready, die);
        }
        let end = self.array.program(now, ready, die);
        for waiting in &stripe {
            self.mapping.write(waiting.unit);
        }
        for _ in stripe.len()..stripe_units {
            self.mapping.pad();
        }
        self.free_victim();
        self.buffer.programmed(&stripe, end);
        self.programmed = self.programmed.max(end);
        let moved = stripe.iter().filter(|waiting| waiting.moved).count();
        let from_host = stripe.len() - moved;
        self.counts.units_written += from_host as u64;
        self.counts.units_padded += (stripe_units - stripe.len()) as u64;
        self.write_journal(now, ready);
        from_host
    }

    /// Programs the journal's stripes, on the dies in turn. Their places are outside of the host's data.
    fn write_journal(&mut self, now: Nanos, at: Nanos) {
        let bytes = self.drive.cells.stripe_units() * UNIT_BYTES;
        while self.journal >= bytes {
            self.journal -= bytes;
            self.journal_stripes += 1;
            self.counts.journal_stripes += 1;
            let die = self.array.die(self.journal_stripes);
            self.array.program(now, at, die);
        }
    }

    /// Moves as many live units as one unit of the host requires.
    fn collect(&mut self, now: Nanos) {
        let Some(pace) = self.mapping.pace() else {
            return;
        };
        let stripe_units = self.drive.cells.stripe_units();
        for _ in 0..pace.units {
            let Some((unit, place)) = self.mapping.next_of_victim() else {
                break;
            };
            if self.buffer.has(unit) {
                continue; // A newer version is about to be programmed.
            }
            let number = u64::from(place) / stripe_units;
            let die = self.array.die(number);
            let ready = self.array.read(now, now, die, number, u64::from(place) % stripe_units, 1);
            self.counts.units_moved += 1;
            self.buffer.push_moved(unit, ready);
        }
        self.free_victim();
    }

    /// Ends the collection of a superblock in which nothing is live any more.
    fn free_victim(&mut self) {
        if self.mapping.free_victim() {
            self.counts.collections += 1;
        }
    }

    pub(super) fn readings(&self, now: Nanos) -> Vec<(&'static str, u64)> {
        let counts = &self.counts;
        let cells = &self.array.counts;
        let (dies, channels) = self.array.busy(now);
        vec![
            ("requests", counts.reads + counts.writes),
            ("reads", counts.reads),
            ("writes", counts.writes),
            ("sectors_read", counts.sectors_read),
            ("sectors_written", counts.sectors_written),
            ("flushes", counts.flushes),
            ("discards", counts.discards),
            ("units_read", counts.units_read),
            ("buffer_hits", counts.buffer_hits),
            ("units_unwritten", counts.units_unwritten),
            ("units_written", counts.units_written),
            ("units_moved", counts.units_moved),
            ("units_padded", counts.units_padded),
            ("units_merged", counts.units_merged),
            ("journal_stripes", counts.journal_stripes),
            ("collections", counts.collections),
            ("page_reads", cells.page_reads),
            ("programs", cells.programs),
            ("erases", cells.erases),
            ("busy_ns", self.front.busy(now).0),
            ("firmware_busy_ns", self.front.firmware_busy(now).0),
            ("dies", self.drive.cells.dies.into()),
            ("dies_busy_ns", dies.0),
            ("channels", self.drive.cells.channels.into()),
            ("channels_busy_ns", channels.0),
            ("buffer_wait_ns", counts.buffer_wait_ns),
            ("tables_bytes", self.mapping.memory_bytes()),
            ("units", self.drive.bytes / UNIT_BYTES),
            ("unit_places", self.mapping.physical_units()),
            ("superblock_units_max", self.mapping.superblock_units().into()),
        ]
    }

    /// Units programmed for each unit of the host.
    pub fn write_amplification(&self) -> f64 {
        let Counts { units_written, units_moved, units_padded, .. } = self.counts;
        (units_written + units_moved + units_padded) as f64 / units_written.max(1) as f64
    }

    /// Bytes of all places, with those that the host does not see.
    pub fn physical_bytes(&self) -> u64 {
        self.mapping.physical_units() * UNIT_BYTES
    }

    /// Share of all places that the host's data may take when the drive is full, without the superblocks that are open or free.
    pub fn utilisation(&self) -> f64 {
        let physical = self.mapping.physical_units() as f64;
        let superblock = f64::from(self.mapping.superblock_units());
        (self.drive.bytes / UNIT_BYTES) as f64 / (physical - superblock)
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        self.mapping.check();
        self.buffer.check();
    }
}
