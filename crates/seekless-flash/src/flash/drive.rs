//! The description of a flash drive. Values are in the catalogue, each with its source.

use crate::device::Zones;
use crate::units::{Nanos, SECTOR_BYTES, counted};

/// Bytes of a mapping unit: what the drive's table gives one entry, as nearly all drives of the last ten years do.
pub const UNIT_BYTES: u64 = 4096;

/// The fewest stripes of a superblock. A flush of one unit costs a whole stripe, and what is moved for it another: the half
/// superblock that the garbage collection keeps in reserve must be several times that.
pub(super) const STRIPES_MIN: u64 = 16;

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
    /// Time of a channel for each transfer, before its bytes: commands, addresses, status.
    pub channel_setup: Nanos,
    /// From the end of a read's transfer until the controller has corrected it; reads overlap in it.
    pub correction: Nanos,
}

/// The host's side: the command interface and the controller's work for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Commands that the drive holds at once; more wait in the host.
    pub queue: u32,
    /// The firmware's processor, for each write, flush and change: one command after another.
    pub command: Nanos,
    /// The same, for each read.
    pub read_command: Nanos,
    /// The firmware's processor, for an append beyond a write.
    pub append: Nanos,
    /// Extra latency of an append.
    pub append_latency: Nanos,
    /// What a write takes besides, from the doorbell to the completion; commands overlap in it.
    pub write_latency: Nanos,
    /// What a read takes besides; commands overlap in it.
    pub read_latency: Nanos,
    /// Extra latency of a command of more than two host pages: the drive fetches the list of the others first.
    pub list_latency: Nanos,
    /// Bytes a second of the transfer of one command.
    pub transfer_rate: u64,
    /// Time of the link for each command with data, before its bytes.
    pub link_setup: Nanos,
    /// Bytes a second over the link to the host, of all commands together, in each direction.
    pub link_rate: u64,
    /// The firmware's processor, for each write of less than a whole mapping unit.
    pub merge: Nanos,
    /// The same, for each of its sectors of 512 bytes.
    pub merge_sector: Nanos,
    /// The same, after the confirmation of a command with such a write.
    pub merge_after: Nanos,
    /// In a namespace with sectors of 512 bytes: the firmware's processor, for a write of one whole mapping unit.
    pub narrow: Nanos,
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
    /// Reads, writes and changes of zones are fitted to measurements; what is inside the drive is inferred.
    Measured,
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

/// What it takes to change the state of a zone, beyond the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneCosts {
    pub open: Nanos,
    /// For the first write to a zone that is not open.
    pub open_by_write: Nanos,
    pub close: Nanos,
    /// For a zone in which nothing was written.
    pub finish_empty: Nanos,
    /// Beside the time to program the rest of the zone.
    pub finish: Nanos,
    pub reset_empty: Nanos,
    pub reset: Nanos,
    /// For each unit that was written.
    pub reset_unit: Nanos,
}

/// A drive with zones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zns {
    /// The name in the catalogue.
    pub name: &'static str,
    pub product: &'static str,
    pub known: Known,
    /// Where the constants come from.
    pub source: &'static str,
    pub zones: u32,
    /// Distance from one zone to the next.
    pub zone_bytes: u64,
    /// Bytes of a zone that can be written.
    pub capacity_bytes: u64,
    /// 0: no limit.
    pub open_max: u32,
    /// 0: no limit.
    pub active_max: u32,
    pub cells: Cells,
    pub interface: Interface,
    pub buffer: WriteBuffer,
    pub costs: ZoneCosts,
}

impl Zns {
    /// Its zones as the host sees them.
    pub fn shape(&self) -> Zones {
        Zones {
            count: self.zones,
            zone_sectors: self.zone_bytes / SECTOR_BYTES,
            capacity_sectors: self.capacity_bytes / SECTOR_BYTES,
            open_max: self.open_max,
            active_max: self.active_max,
        }
    }

    /// # Errors
    /// What is impossible about it.
    pub fn check(&self) -> Result<(), FlashError> {
        self.cells.check()?;
        self.interface.check()?;
        let wrong = |problem: String| Err(FlashError(problem));
        let stripe_bytes = self.cells.stripe_units() * UNIT_BYTES;
        if self.zones == 0 || self.capacity_bytes == 0 || !self.capacity_bytes.is_multiple_of(stripe_bytes) {
            return wrong(format!("a zone holds a multiple of a stripe, which has {stripe_bytes} bytes here"));
        }
        if self.zone_bytes < self.capacity_bytes || !self.zone_bytes.is_multiple_of(UNIT_BYTES) {
            return wrong("a zone is at least as long as its capacity, in units of 4096 bytes".to_owned());
        }
        // Units have 32 bits.
        if u128::from(self.zone_bytes) * u128::from(self.zones) / u128::from(UNIT_BYTES) >= u128::from(u32::MAX) {
            return wrong("a flash drive has at most 15 TiB".to_owned());
        }
        if self.active_max > 0 && self.open_max > self.active_max {
            return wrong("an open zone is active: no more can be open than active".to_owned());
        }
        // Each active zone may wait for the rest of its stripe.
        let most = if self.active_max > 0 { self.active_max } else { self.zones };
        let needed = (u128::from(most) + 1) * u128::from(stripe_bytes);
        match u128::from(self.buffer.bytes) >= needed {
            true => Ok(()),
            false => {
                wrong(format!("the write buffer needs a stripe for each zone that can be active: {needed} bytes here"))
            }
        }
    }
}

/// A drive of either kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Model {
    Ssd(Ssd),
    Zns(Zns),
}

impl Model {
    pub fn name(&self) -> &'static str {
        match self {
            Model::Ssd(drive) => drive.name,
            Model::Zns(drive) => drive.name,
        }
    }
}

impl Ssd {
    /// Pages of an erase block with which a drive of this size has 200 superblocks, at least 4 and enough for the fewest
    /// stripes, and at most those that it has. The steps in which space is collected would otherwise be large beside a small drive.
    pub fn pages_for_size(&self) -> u32 {
        let row = (self.cells.stripe_units() * UNIT_BYTES).saturating_mul(self.cells.dies.into());
        let pages = self.bytes / row.saturating_mul(200).max(1);
        let least = (STRIPES_MIN as u32).div_ceil(self.cells.dies.max(1)).max(4);
        u32::try_from(pages).unwrap_or(u32::MAX).clamp(least, self.cells.pages.max(least))
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
            return wrong(&format!(
                "{} dies do not spread evenly over {}: `dies` is a multiple of `channels`",
                self.dies,
                counted(self.channels.into(), "channel")
            ));
        }
        if self.page_bytes == 0 || !u64::from(self.page_bytes).is_multiple_of(UNIT_BYTES) {
            return wrong("a page has a multiple of 4096 bytes");
        }
        if self.planes > 64 {
            return wrong("a die has at most 64 planes");
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
