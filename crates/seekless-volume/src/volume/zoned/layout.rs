//! Where things are: the addresses that the store offers, and the slots in zones that hold them.

use super::ZonedError;
use super::format::{BLOCK_SECTORS, END_BLOCKS, FIXED_BLOCKS, FRONT_BLOCKS, METADATA_ZONES, RecordHead, copy_bytes};
use crate::device::{Geometry, Zones};
use crate::units::{SECTOR_BYTES, Sector, human_bytes};

/// Largest span that is chosen by default: the largest segment of LFS.
pub const SPAN_BYTES_MAX: u64 = 32 << 20;

/// Zones for data beyond those that the spans need: one to which users write, one to which spans are moved, and one that is
/// empty, so that moving never waits for room (Z4).
pub const SPARE_ZONES_MIN: u32 = 3;

/// Zones that the store has open or active at once: the two metadata zones while it goes from one to the other, one for users
/// and one for what is moved.
pub const ACTIVE_ZONES: u32 = 4;

/// A metadata zone is left for the other one when it holds this much, or four times what a snapshot takes: opening reads all of it.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// What a new store is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub uuid: [u8; 16],
    /// Bytes of a span. By default a zone, or so large a part of it that is no more than [`SPAN_BYTES_MAX`].
    pub span_bytes: Option<u64>,
    /// Share of the slots that is not offered, in hundredths of a percent; at least [`SPARE_ZONES_MIN`] zones are kept.
    pub spare: u32,
}

/// Shape of a store.
///
/// Its addresses: blocks that can be written anywhere, spans, and one more such block. A span is in a *slot*, of which a zone
/// has [`Layout::zone_slots`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    pub zones: Zones,
    pub span_sectors: u64,
    pub span_count: u32,
}

/// A part of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetPiece {
    /// `offset` sectors behind the first of fixed block `block`.
    Fixed { block: u32, offset: u64 },
    /// `offset` sectors behind the first of `span`.
    Span { span: u32, offset: u64 },
}

impl Layout {
    /// # Errors
    /// `Plan` when the device or the wishes do not allow it.
    pub fn plan(geometry: &Geometry, plan: &Plan) -> Result<Layout, ZonedError> {
        let refuse = |problem: String| Err(ZonedError::Plan(problem));
        let Some(zones) = geometry.zones else {
            return refuse("the device below has no zones".into());
        };
        for (limit, what) in [(zones.open_max, "open"), (zones.active_max, "active")] {
            if limit > 0 && limit < ACTIVE_ZONES {
                return refuse(format!("{ACTIVE_ZONES} zones must be {what} at once, and the device allows {limit}"));
            }
        }
        let capacity = zones.capacity_sectors / BLOCK_SECTORS * BLOCK_SECTORS;
        let span_sectors = match plan.span_bytes {
            Some(bytes) => bytes / SECTOR_BYTES,
            None => {
                let parts = (capacity * SECTOR_BYTES).div_ceil(SPAN_BYTES_MAX).max(1);
                capacity / parts / BLOCK_SECTORS * BLOCK_SECTORS
            }
        };
        if span_sectors == 0 || !span_sectors.is_multiple_of(BLOCK_SECTORS) || span_sectors > capacity {
            let zone = human_bytes(zones.capacity_sectors * SECTOR_BYTES);
            return refuse(format!("a span is a multiple of 4 KiB and no larger than what a zone holds ({zone})"));
        }
        let slots = zones.capacity_sectors / span_sectors;
        let data_zones = u64::from(zones.count.saturating_sub(METADATA_ZONES));
        let spare_slots = (data_zones * slots * u64::from(plan.spare)).div_ceil(10_000);
        let spare_slots = spare_slots.max(u64::from(SPARE_ZONES_MIN) * slots);
        let span_count = (data_zones * slots).saturating_sub(spare_slots);
        if span_count == 0 {
            let zones = zones.count;
            return refuse(format!("{zones} zones are too few: two hold metadata, and {SPARE_ZONES_MIN} are spare"));
        }
        if data_zones * slots >= u64::from(u32::MAX) {
            return refuse("there are more than 2^32 spans; make them larger".into());
        }
        let layout = Layout { zones, span_sectors, span_count: span_count as u32 };
        if 4 * layout.snapshot_bytes() > zones.capacity_sectors * SECTOR_BYTES {
            let wanted = human_bytes(4 * layout.snapshot_bytes());
            return refuse(format!("a metadata zone needs {wanted}; larger spans need less"));
        }
        Ok(layout)
    }

    /// The shape that a record's head says.
    ///
    /// # Errors
    /// `Damaged` when that cannot be, or the device is not the one it was made on.
    pub fn of(head: &RecordHead, geometry: &Geometry) -> Result<Layout, ZonedError> {
        let zones = geometry.zones.ok_or_else(|| ZonedError::Plan("the device below has no zones".into()))?;
        let made = (head.zone_count, head.zone_sectors, head.capacity_sectors);
        if made != (zones.count, zones.zone_sectors, zones.capacity_sectors) {
            return Err(ZonedError::Damaged("it was made on a device with other zones".into()));
        }
        let span = head.span_sectors;
        if span == 0 || !span.is_multiple_of(BLOCK_SECTORS) || span > zones.capacity_sectors || head.span_count == 0 {
            return Err(ZonedError::Damaged(format!("spans of {span} sectors cannot be")));
        }
        let layout = Layout { zones, span_sectors: span, span_count: head.span_count };
        let slots = u64::from(zones.count.saturating_sub(METADATA_ZONES + SPARE_ZONES_MIN)) * layout.zone_slots();
        if u64::from(head.span_count) > slots {
            return Err(ZonedError::Damaged(format!("{} spans are more than the zones can hold", head.span_count)));
        }
        if layout.slot_count() >= u64::from(u32::MAX)
            || layout.snapshot_bytes() / SECTOR_BYTES > layout.log_sectors_max()
        {
            return Err(ZonedError::Damaged(format!("{} spans of {span} sectors cannot be", head.span_count)));
        }
        Ok(layout)
    }

    /// Slots of a zone.
    pub fn zone_slots(&self) -> u64 {
        self.zones.capacity_sectors / self.span_sectors
    }

    /// Slots of all zones for data.
    pub fn slot_count(&self) -> u64 {
        u64::from(self.zones.count - METADATA_ZONES) * self.zone_slots()
    }

    /// The zone of a slot, and where in it the slot begins, in sectors.
    pub fn slot_place(&self, slot: u32) -> (u32, u64) {
        debug_assert!(u64::from(slot) < self.slot_count(), "a slot lies in a zone for data");
        let slots = self.zone_slots();
        let zone = METADATA_ZONES + (u64::from(slot) / slots) as u32;
        (zone, u64::from(slot) % slots * self.span_sectors)
    }

    /// Slot number `index` of `zone`.
    pub fn slot(&self, zone: u32, index: u64) -> u32 {
        debug_assert!(
            (METADATA_ZONES..self.zones.count).contains(&zone) && index <= self.zone_slots(),
            "slots are in zones for data"
        );
        (u64::from(zone - METADATA_ZONES) * self.zone_slots() + index) as u32
    }

    /// First sector of a slot on the device.
    pub fn slot_start(&self, slot: u32) -> Sector {
        let (zone, offset) = self.slot_place(slot);
        self.zones.start(zone) + offset
    }

    /// First sector of the spans, in the addresses that the store offers.
    pub fn first_span(&self) -> Sector {
        Sector(FRONT_BLOCKS * BLOCK_SECTORS)
    }

    /// First sector of `span`.
    pub fn span_start(&self, span: u32) -> Sector {
        debug_assert!(span <= self.span_count, "a span lies in what the store offers");
        self.first_span() + u64::from(span) * self.span_sectors
    }

    /// Sectors that the store offers.
    pub fn sectors(&self) -> u64 {
        u64::from(self.span_count) * self.span_sectors + (FRONT_BLOCKS + END_BLOCKS) * BLOCK_SECTORS
    }

    /// What is at `at`, and how many sectors from there on belong to the same block or span.
    pub fn place(&self, at: Sector) -> (TargetPiece, u64) {
        let spans_end = self.span_start(self.span_count);
        let fixed = |first: u64, from: Sector| {
            let sector = at.0 - from.0;
            let offset = sector % BLOCK_SECTORS;
            (TargetPiece::Fixed { block: (first + sector / BLOCK_SECTORS) as u32, offset }, BLOCK_SECTORS - offset)
        };
        if at < self.first_span() {
            return fixed(0, Sector::ZERO);
        }
        if at >= spans_end {
            return fixed(FRONT_BLOCKS, spans_end);
        }
        debug_assert!(at < spans_end, "what is no fixed block is in a span");
        let sector = at.0 - self.first_span().0;
        let offset = sector % self.span_sectors;
        (TargetPiece::Span { span: (sector / self.span_sectors) as u32, offset }, self.span_sectors - offset)
    }

    /// Bytes that both copies of the largest snapshot take.
    pub fn snapshot_bytes(&self) -> u64 {
        2 * copy_bytes(self.span_count as usize, FIXED_BLOCKS as usize) as u64
    }

    /// Sectors of a metadata zone that are used.
    pub fn log_sectors_max(&self) -> u64 {
        let wanted = LOG_BYTES_MAX.max(4 * self.snapshot_bytes()) / SECTOR_BYTES;
        wanted.min(self.zones.capacity_sectors / BLOCK_SECTORS * BLOCK_SECTORS)
    }
}
