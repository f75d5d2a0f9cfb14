//! The dies and channels as lanes: when a page has been read or a stripe programmed.
//!
//! Stripes go to the dies in turn. A die's next program operation may wait in its second register, so that its channel
//! transfers while it programs.

use super::drive::{Cells, UNIT_BYTES, transfer};
use super::lane::Lane;
use crate::units::Nanos;

#[derive(Clone, Debug)]
pub(super) struct Array {
    cells: Cells,
    dies: Vec<Lane>,
    channels: Vec<Lane>,
    registers: Vec<Register>,
    pub(super) counts: Counts,
}

/// What a die's page registers hold.
#[derive(Clone, Copy, Debug)]
struct Register {
    stripe: u64,
    /// A bit for each plane.
    pages: u64,
    /// When the pages were read.
    there: Nanos,
}

impl Default for Register {
    fn default() -> Register {
        Register { stripe: u64::MAX, pages: 0, there: Nanos::ZERO }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) page_reads: u64,
    pub(super) programs: u64,
    pub(super) erases: u64,
}

impl Array {
    pub(super) fn new(cells: Cells) -> Array {
        let lanes = |count: u32| vec![Lane::default(); count as usize];
        Array {
            cells,
            dies: lanes(cells.dies),
            channels: lanes(cells.channels),
            registers: vec![Register::default(); cells.dies as usize],
            counts: Counts::default(),
        }
    }

    /// The die of the stripe with this number.
    pub(super) fn die(&self, stripe: u64) -> usize {
        (stripe % self.dies.len() as u64) as usize
    }

    /// Reads `units` of the stripe `number` on `die` into the controller, from the unit `first` of the stripe on; returns when
    /// they are there. Pages that the die read last are still in its registers.
    pub(super) fn read(&mut self, now: Nanos, at: Nanos, die: usize, number: u64, first: u64, units: u64) -> Nanos {
        let page_units = u64::from(self.cells.page_bytes) / UNIT_BYTES;
        let pages = (first / page_units..(first + units).div_ceil(page_units)).fold(0, |mask, page| mask | 1 << page);
        let register = &mut self.registers[die];
        if register.stripe != number || register.pages & pages != pages {
            self.counts.page_reads += 1;
            let read = self.cells.read;
            let there = self.dies[die].book(now, at, read) + read;
            let register = &mut self.registers[die];
            *register = Register { stripe: number, pages, there };
        }
        let there = self.registers[die].there;
        self.transfer(now, at.max(there), die, units) + self.cells.correction
    }

    /// Transfers `units` between the controller and a register of `die`. Neighbouring dies share a channel.
    pub(super) fn transfer(&mut self, now: Nanos, at: Nanos, die: usize, units: u64) -> Nanos {
        let length = self.cells.channel_setup + transfer(units * UNIT_BYTES, self.cells.channel_rate);
        let channel = die * self.channels.len() / self.dies.len();
        self.channels[channel].book(now, at, length) + length
    }

    /// Programs a whole stripe on `die`; returns when it is there for good.
    pub(super) fn program(&mut self, now: Nanos, at: Nanos, die: usize) -> Nanos {
        self.counts.programs += 1;
        self.registers[die] = Register::default();
        let there = self.transfer(now, at, die, self.cells.stripe_units());
        let program = self.cells.program;
        self.dies[die].book(now, there, program) + program
    }

    /// Erases a block in each plane of `die`; returns when that is done.
    pub(super) fn erase(&mut self, now: Nanos, at: Nanos, die: usize) -> Nanos {
        self.counts.erases += 1;
        let erase = self.cells.erase;
        self.dies[die].book(now, at, erase) + erase
    }

    /// Time until `now` during which dies were busy, and channels: of all of them.
    pub(super) fn busy(&self, now: Nanos) -> (Nanos, Nanos) {
        let sum = |lanes: &[Lane]| lanes.iter().fold(Nanos::ZERO, |sum, lane| sum + lane.busy(now));
        (sum(&self.dies), sum(&self.channels))
    }
}
