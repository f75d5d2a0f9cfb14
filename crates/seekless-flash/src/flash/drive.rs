//! The description of a flash drive. Values are in the catalogue, each with its source.

use crate::units::Nanos;

/// Bytes of a mapping unit: what the drive's table gives one entry, as nearly all drives of the last ten years do.
pub const UNIT_BYTES: u64 = 4096;

/// The flash memory behind the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cells {
    /// Channels between the controller and the dies.
    pub channels: u32,
    /// Dies in total, spread evenly over the channels.
    pub dies: u32,
    /// Planes of a die: their pages are read and programmed together.
    pub planes: u32,
    /// Bytes of a page: a multiple of [`UNIT_BYTES`].
    pub page_bytes: u32,
    /// Pages of an erase block.
    pub pages: u32,
    /// Time to read a page into the die's register.
    pub read: Nanos,
    /// Time to program a page in each plane, averaged over the pages of a word line.
    pub program: Nanos,
    /// Time to erase a block in each plane.
    pub erase: Nanos,
    /// Bytes a second over one channel.
    pub channel_rate: u64,
}

/// The host's side: the command interface and the controller's work for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Commands that the drive holds at once; more wait in the host.
    pub queue: u32,
    /// The firmware's processor, for each command: one command after another.
    pub command: Nanos,
    /// What a write takes besides, from the doorbell to the completion; commands overlap in it.
    pub write_latency: Nanos,
    /// What a read takes besides; commands overlap in it.
    pub read_latency: Nanos,
    /// Extra latency of a command of more than two host pages: the drive fetches the list of the others first.
    pub list_latency: Nanos,
    /// Bytes a second of the transfer of one command.
    pub transfer_rate: u64,
    /// Bytes a second over the link to the host, of all commands together, in each direction.
    pub link_rate: u64,
    /// The firmware's processor, for each write of less than a whole mapping unit.
    pub merge: Nanos,
    /// The same, for each of its sectors of 512 bytes.
    pub merge_sector: Nanos,
}

/// How the drive buffers writes in its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteBuffer {
    pub bytes: u64,
    /// Capacitors save the buffer when power fails: what is in it is durable, and a flush has nothing to wait for.
    pub protected: bool,
}

/// What was there before the first request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fill {
    /// Everything was discarded or never written.
    #[default]
    Fresh,
    /// All of it was written once, in order.
    Sequential,
    /// All of it was overwritten at random, until the garbage collection reached its steady state. The content reads as
    /// zeroes all the same.
    Random,
}

/// How much of the constants was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Writes are fitted to measurements; reads and what is inside the drive are assumed.
    Writes,
    /// Nothing: round figures for what a drive of its kind has.
    Assumed,
}

/// A drive with a conventional block interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ssd {
    /// The name in the catalogue.
    pub name: &'static str,
    pub product: &'static str,
    pub known: Known,
    /// Where the constants come from.
    pub source: &'static str,
    /// Capacity in bytes, as the host sees it.
    pub bytes: u64,
    /// Further capacity for the garbage collection, in hundredths of a percent of the host's.
    pub spare: u32,
    pub cells: Cells,
    pub interface: Interface,
    pub buffer: WriteBuffer,
    /// Bytes of mapping journal that the drive programs for each write that does not continue the one before.
    pub journal_bytes: u32,
}

/// A drive of either kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Model {
    Ssd(Ssd),
}

impl Model {
    pub fn name(&self) -> &'static str {
        match self {
            Model::Ssd(drive) => drive.name,
        }
    }
}

impl Ssd {
    /// Pages of an erase block with which a drive of this size has 200 superblocks, at least 4 and at most those that it has.
    /// The steps in which space is collected would otherwise be large beside a small drive.
    pub fn pages_for_size(&self) -> u32 {
        let row = (self.cells.stripe_units() * UNIT_BYTES).saturating_mul(self.cells.dies.into());
        let pages = self.bytes / row.saturating_mul(200).max(1);
        u32::try_from(pages).unwrap_or(u32::MAX).clamp(4, self.cells.pages.max(4))
    }
}

impl Cells {
    /// Units that one die programs at once: a page in each plane.
    pub fn stripe_units(&self) -> u64 {
        u64::from(self.planes) * u64::from(self.page_bytes) / UNIT_BYTES
    }

    /// Units of a *superblock*, which is filled and erased as a whole: a block in each plane of each die.
    pub fn superblock_units(&self) -> u64 {
        self.stripe_units() * u64::from(self.dies) * u64::from(self.pages)
    }

    /// Bytes a second when all dies program.
    pub fn program_rate(&self) -> u64 {
        rate(self.stripe_units() * UNIT_BYTES * u64::from(self.dies), self.program)
    }

    /// # Errors
    /// What is impossible about it.
    pub fn check(&self) -> Result<(), FlashError> {
        let wrong = |problem: &str| Err(FlashError(problem.to_owned()));
        if self.channels == 0 || self.dies == 0 || self.planes == 0 || self.pages == 0 {
            return wrong("channels, dies, planes and pages are at least 1");
        }
        if !self.dies.is_multiple_of(self.channels) {
            return wrong("the dies must spread evenly over the channels");
        }
        if self.page_bytes == 0 || !u64::from(self.page_bytes).is_multiple_of(UNIT_BYTES) {
            return wrong("a page has a multiple of 4096 bytes");
        }
        if self.channel_rate == 0 || self.program == Nanos::ZERO {
            return wrong("a channel transfers something in a second, and a program operation takes time");
        }
        let units = u128::from(self.planes) * u128::from(self.page_bytes) / u128::from(UNIT_BYTES);
        match units * u128::from(self.dies) * u128::from(self.pages) {
            0..=0x0fff_ffff => Ok(()),
            _ => wrong("a superblock of more than 1 TiB is no drive of this world"),
        }
    }
}

impl Interface {
    /// # Errors
    /// What is impossible about it.
    pub fn check(&self) -> Result<(), FlashError> {
        match self.queue > 0 && self.transfer_rate > 0 && self.link_rate > 0 {
            true => Ok(()),
            false => Err(FlashError("a drive takes at least one command and some bytes a second".to_owned())),
        }
    }
}

/// A drive record contradicts itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct FlashError(pub String);

/// Time of `bytes` at `rate` bytes a second, rounded up.
pub(super) fn transfer(bytes: u64, rate: u64) -> Nanos {
    let nanos = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Bytes a second.
pub(super) fn rate(bytes: u64, time: Nanos) -> u64 {
    let rate = u128::from(bytes) * 1_000_000_000 / u128::from(time.0.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}
