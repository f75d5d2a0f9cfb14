//! The drive's side of the host interface: how long a command takes before and beside the work on its data.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::drive::{Interface, UNIT_BYTES, transfer};
use super::lane::Lane;
use crate::units::{Nanos, SECTOR_BYTES};

#[derive(Clone, Debug)]
pub(super) struct Front {
    interface: Interface,
    /// Smallest unit that the host can address.
    block_bytes: u64,
    firmware: Lane,
    to_drive: Lane,
    to_host: Lane,
    /// Ends of the commands that the drive holds.
    held: BinaryHeap<Reverse<Nanos>>,
    /// Time until `busy_until` with at least one command.
    busy: Nanos,
    busy_until: Nanos,
}

/// How data is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteKind {
    Write,
    Append,
}

/// A stretch of sectors, cut at the borders of mapping units.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectorExtent {
    pub(super) first_sector: u64,
    pub(super) sectors: u64,
}

const UNIT_SECTORS: u64 = UNIT_BYTES / SECTOR_BYTES;

impl SectorExtent {
    pub(super) fn bytes(&self) -> u64 {
        self.sectors * SECTOR_BYTES
    }

    /// All units that it touches.
    pub(super) fn units(&self) -> std::ops::Range<u32> {
        let end = (self.first_sector + self.sectors).div_ceil(UNIT_SECTORS);
        (self.first_sector / UNIT_SECTORS) as u32..end as u32
    }

    /// Units that lie in it as a whole.
    pub(super) fn whole_units(&self) -> std::ops::Range<u32> {
        let (start, end) =
            (self.first_sector.div_ceil(UNIT_SECTORS), (self.first_sector + self.sectors) / UNIT_SECTORS);
        start as u32..end.max(start) as u32
    }

    /// A bit for each sector of `unit` that is in it.
    pub(super) fn sectors_of(&self, unit: u32) -> u8 {
        let first = u64::from(unit) * UNIT_SECTORS;
        let bit = |sector: u64| sector >= self.first_sector && sector < self.first_sector + self.sectors;
        (0..UNIT_SECTORS).filter(|index| bit(first + index)).fold(0, |bits, index| bits | 1 << index)
    }

    /// Sectors in units that it covers in part, and the number of such units.
    pub(super) fn partial(&self) -> (u64, u64) {
        let whole = self.whole_units();
        let whole_units = u64::from(whole.end.saturating_sub(whole.start));
        let units = self.units().len() as u64;
        (self.sectors - whole_units * UNIT_SECTORS, units - whole_units)
    }
}

impl Front {
    pub(super) fn new(interface: Interface, block_bytes: u32) -> Front {
        Front {
            interface,
            block_bytes: block_bytes.into(),
            firmware: Lane::default(),
            to_drive: Lane::default(),
            to_host: Lane::default(),
            held: BinaryHeap::new(),
            busy: Nanos::ZERO,
            busy_until: Nanos::ZERO,
        }
    }

    /// When the drive takes a command that the host has at `now`.
    fn enter(&mut self, now: Nanos) -> Nanos {
        while self.held.peek().is_some_and(|Reverse(end)| *end <= now) {
            self.held.pop();
        }
        match self.held.len() < self.interface.queue as usize {
            true => now,
            false => self.held.pop().map_or(now, |Reverse(end)| end),
        }
    }

    /// Commands that the drive holds, beside one that has not ended yet.
    pub(super) fn outstanding(&self) -> usize {
        self.held.len()
    }

    /// The command that came at `now` ends at `done`.
    pub(super) fn leave(&mut self, now: Nanos, done: Nanos) -> Nanos {
        self.held.push(Reverse(done));
        self.busy += done.saturating_sub(self.busy_until.max(now));
        self.busy_until = self.busy_until.max(done);
        done
    }

    /// Time until `now` during which the drive had a command.
    pub(super) fn busy(&self, now: Nanos) -> Nanos {
        self.busy.saturating_sub(self.busy_until.saturating_sub(now))
    }

    /// A write or an append; returns when its first byte is in the drive and when its last. Once the last is in the buffer, it is
    /// confirmed.
    pub(super) fn write(&mut self, now: Nanos, extent: &SectorExtent, kind: WriteKind) -> (Nanos, Nanos) {
        let Interface { command, merge, merge_sector, merge_after, narrow, .. } = self.interface;
        let (sectors, parts) = extent.partial();
        let mut work = Nanos(command.0 + merge.0 * parts + merge_sector.0 * sectors);
        if self.block_bytes < UNIT_BYTES && parts == 0 && extent.bytes() == UNIT_BYTES {
            work += narrow;
        }
        let mut latency = self.interface.write_latency + self.list(extent.bytes());
        if kind == WriteKind::Append {
            work += self.interface.append;
            latency += self.interface.append_latency;
        }
        let after = if parts > 0 { merge_after } else { Nanos::ZERO };
        let entered = self.enter(now);
        let decoded = self.firmware.book(now, entered, work + after) + work;
        let begin = decoded + latency;
        let linked = transfer(extent.bytes(), self.interface.link_rate);
        let alone = transfer(extent.bytes(), self.interface.transfer_rate);
        let linked = self.to_drive.book(now, begin, linked) + linked;
        (begin, linked.max(begin + alone))
    }

    /// A command without data to the drive; returns when its work may begin.
    pub(super) fn command(&mut self, now: Nanos, latency: Nanos) -> Nanos {
        let entered = self.enter(now);
        let command = self.interface.command;
        self.firmware.book(now, entered, command) + command + latency
    }

    /// A read; returns when the drive knows what to do.
    pub(super) fn read(&mut self, now: Nanos, bytes: u64) -> Nanos {
        let entered = self.enter(now);
        let command = self.interface.read_command;
        self.firmware.book(now, entered, command) + command + self.interface.read_latency + self.list(bytes)
    }

    /// `bytes` for the host, from `at` on; returns when they are there.
    pub(super) fn send(&mut self, now: Nanos, at: Nanos, bytes: u64) -> Nanos {
        let length = self.interface.link_setup + transfer(bytes, self.interface.link_rate);
        self.to_host.book(now, at, length) + length
    }

    /// A command describes two pages itself; the addresses of more are in a list in the host's memory (NVMe base
    /// specification, "PRP list").
    fn list(&self, bytes: u64) -> Nanos {
        match bytes > 2 * UNIT_BYTES {
            true => self.interface.list_latency,
            false => Nanos::ZERO,
        }
    }

    pub(super) fn firmware_busy(&self, now: Nanos) -> Nanos {
        self.firmware.busy(now)
    }
}
