//! Reading the metadata zones: following the records of each, and choosing the log that counts.

use std::collections::BTreeMap;

use super::ZonedError;
use super::format::{
    BLOCK_SECTORS, Change, FIXED_BLOCKS, METADATA_ZONES, MetadataRecord, NO_SLOT, OPEN, RecordHead, SNAPSHOT, head_of,
};
use super::layout::Layout;
use crate::device::{Buf, Device, DeviceError, ZoneState, Zoned, Zones};
use crate::rt::cover;
use crate::units::SECTOR_BYTES;

/// What the metadata zones say.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    pub(super) layout: Layout,
    pub(super) uuid: [u8; 16],
    /// The metadata zone whose log counts.
    pub(super) zone: u32,
    /// Where its next record goes, in sectors from its start.
    pub(super) end: u64,
    /// Number of the next record.
    pub(super) sequence: u64,
    /// The slot of each span.
    pub(super) map: Vec<u32>,
    /// Lengths of the spans that do not continue where they are, in sectors.
    pub(super) sealed: BTreeMap<u32, u32>,
    pub(super) blocks: BTreeMap<u32, Box<[u8]>>,
    pub(super) records: u64,
    /// The next record must begin a new log: this one ends within a record, or a copy in it is damaged.
    pub(super) is_worn: bool,
    /// What was damaged and had a good copy.
    pub(super) notes: Vec<String>,
}

/// The zones of a device, and what they need.
pub(super) fn zoned_of(device: &Device) -> Result<(&dyn Zoned, Zones), ZonedError> {
    match (device.zoned(), device.geometry().zones) {
        (Some(zoned), Some(zones)) if zones.count > METADATA_ZONES => Ok((zoned, zones)),
        (Some(_), Some(_)) => Err(ZonedError::Plan("the device has too few zones".into())),
        _ => Err(ZonedError::Plan("the device below has no zones".into())),
    }
}

/// Sectors of `zone` that hold something.
pub(super) fn written(zoned: &dyn Zoned, zones: &Zones, zone: u32) -> Result<u64, DeviceError> {
    let info = zoned.zone(zone)?;
    Ok(match info.state {
        ZoneState::Full => zones.capacity_sectors,
        _ => info.pointer.0.saturating_sub(zones.start(zone).0).min(zones.capacity_sectors),
    })
}

/// Reads both metadata zones.
///
/// # Errors
/// `Nothing` when there is no store; `Damaged` when what one of them holds cannot be read, so that nothing older is taken for it.
pub(super) async fn load(device: &Device) -> Result<Loaded, ZonedError> {
    let (zoned, zones) = zoned_of(device)?;
    let mut newest: Option<Loaded> = None;
    let mut problem = None;
    for zone in 0..METADATA_ZONES {
        let end = written(zoned, &zones, zone)?;
        let log = Reader { device, zones, zone, end };
        match log.follow().await {
            Ok(Some(loaded)) if newest.as_ref().is_none_or(|newest| loaded.sequence > newest.sequence) => {
                newest = Some(loaded);
            }
            Ok(_) => {}
            Err(ZonedError::Device(error)) if !error.is_of_medium() => return Err(error.into()),
            Err(error) => problem = Some(error),
        }
    }
    match (newest, problem) {
        (Some(newest), None) => Ok(newest),
        (_, Some(problem)) => Err(problem),
        (None, None) => Err(ZonedError::Nothing),
    }
}

/// One metadata zone.
struct Reader<'a> {
    device: &'a Device,
    zones: Zones,
    zone: u32,
    /// Sectors that were written.
    end: u64,
}

/// A record, and where the next one begins.
struct FoundRecord {
    record: MetadataRecord,
    next: u64,
    /// One of its copies is not intact.
    is_worn: bool,
}

impl Reader<'_> {
    /// The log of this zone; `None` when it holds none, or one whose first record was never complete.
    async fn follow(&self) -> Result<Option<Loaded>, ZonedError> {
        let Some(first) = self.record_at(0, None).await? else { return Ok(None) };
        let head = first.record.head;
        let layout = Layout::of(&head, &self.device.geometry())?;
        let mut loaded = Loaded {
            layout,
            uuid: head.uuid,
            zone: self.zone,
            end: 0,
            sequence: head.sequence,
            map: vec![NO_SLOT; layout.span_count as usize],
            sealed: BTreeMap::new(),
            blocks: BTreeMap::new(),
            records: 0,
            is_worn: false,
            notes: Vec::new(),
        };
        let mut found = Some(first);
        while let Some(FoundRecord { record, next, is_worn }) = found {
            if is_worn {
                loaded
                    .notes
                    .push(format!("metadata zone {}: one of two copies at sector {} is bad", self.zone, loaded.end));
            }
            loaded.is_worn |= is_worn;
            loaded.apply(record).map_err(|what| self.damaged(loaded.end, &what))?;
            loaded.end = next;
            found = self.record_at(next, Some(&loaded)).await?;
        }
        loaded.is_worn |= loaded.end != self.end;
        let block_sectors = u64::from(self.device.geometry().block_bytes) / SECTOR_BYTES;
        loaded.check_map(block_sectors).map_err(|what| self.damaged(loaded.end, &what))?;
        Ok(Some(loaded))
    }

    fn damaged(&self, at: u64, what: &str) -> ZonedError {
        ZonedError::Damaged(format!(
            "metadata zone {} at sector {}: {what}",
            self.zone,
            self.zones.start(self.zone) + at
        ))
    }

    /// The record at `at`, which follows those in `before`. `None` where the log ends: nothing was written there, or a record of
    /// which the power cut left only the beginning.
    ///
    /// # Errors
    /// `Damaged`: what is below the write pointer was written, and a record that is whole there must be intact.
    async fn record_at(&self, at: u64, before: Option<&Loaded>) -> Result<Option<FoundRecord>, ZonedError> {
        if at >= self.end {
            return Ok(None);
        }
        let head = self.head_at(at).await?;
        let fits = |head: &RecordHead| match before {
            Some(log) => (log.uuid, log.sequence) == (head.uuid, head.sequence),
            None => head.flags & SNAPSHOT != 0,
        };
        if let Some(head) = head.filter(|head| fits(head) && head.copy == 0) {
            let sectors = u64::from(head.bytes) / SECTOR_BYTES;
            if at + sectors > self.end {
                cover("zoned: a record is cut short");
                return Ok(None);
            }
            if let Some(record) = self.copy_at(at, &head).await? {
                let second_end = at + 2 * sectors;
                let second = match second_end <= self.end {
                    true => match self.head_at(at + sectors).await? {
                        Some(head) => self.copy_at(at + sectors, &head).await?,
                        None => None,
                    },
                    // Cut short; the log continues elsewhere.
                    false => return Ok(Some(FoundRecord { record, next: self.end, is_worn: true })),
                };
                let is_worn = second.is_none_or(|second| second.head.sequence != record.head.sequence);
                return Ok(Some(FoundRecord { record, next: second_end, is_worn }));
            }
        }
        // The first copy is not intact. Where the second begins is not known for sure.
        let mut place = at + BLOCK_SECTORS;
        while place < self.end {
            if let Some(head) = self.head_at(place).await?.filter(|head| fits(head) && head.copy == 1)
                && let Some(record) = self.copy_at(place, &head).await?
            {
                let next = place + u64::from(head.bytes) / SECTOR_BYTES;
                return Ok(Some(FoundRecord { record, next, is_worn: true }));
            }
            place += BLOCK_SECTORS;
        }
        Err(self.damaged(at, "both copies of a record are damaged"))
    }

    async fn head_at(&self, at: u64) -> Result<Option<RecordHead>, ZonedError> {
        let sectors = BLOCK_SECTORS.min(self.end.saturating_sub(at));
        Ok(self.read(at, sectors).await?.and_then(|bytes| head_of(&bytes)))
    }

    /// The copy at `at` whose head is `head`, if it is intact.
    async fn copy_at(&self, at: u64, head: &RecordHead) -> Result<Option<MetadataRecord>, ZonedError> {
        let sectors = u64::from(head.bytes) / SECTOR_BYTES;
        if at + sectors > self.end {
            return Ok(None);
        }
        Ok(self.read(at, sectors).await?.and_then(|bytes| MetadataRecord::decode(&bytes)))
    }

    /// `None` for sectors that cannot be read.
    async fn read(&self, at: u64, sectors: u64) -> Result<Option<Buf>, ZonedError> {
        let most = u64::from(self.device.geometry().request_bytes_max) / SECTOR_BYTES;
        let start = self.zones.start(self.zone) + at;
        let mut whole = Buf::zeroed((sectors * SECTOR_BYTES) as usize);
        let mut done = 0;
        while done < sectors {
            let count = most.min(sectors - done);
            match self.device.read(start + done, Buf::dirty((count * SECTOR_BYTES) as usize)).await {
                Ok(piece) => {
                    let from = (done * SECTOR_BYTES) as usize;
                    whole[from..from + piece.len()].copy_from_slice(&piece);
                }
                Err(error) if error.is_of_medium() => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            done += count;
        }
        Ok(Some(whole))
    }
}

impl Loaded {
    fn apply(&mut self, record: MetadataRecord) -> Result<(), String> {
        if record.head.flags & SNAPSHOT != 0 && self.records > 0 {
            return Err("a snapshot that is not the first record".into());
        }
        // Numbers of records last for ages; the next ones must not overflow.
        if record.head.sequence >= u64::MAX / 2 {
            return Err(format!("record {} cannot have been reached", record.head.sequence));
        }
        for Change { span, slot, sectors } in record.changes {
            let Some(place) = self.map.get_mut(span as usize) else {
                return Err(format!("there is no span {span}"));
            };
            if slot != NO_SLOT && u64::from(slot) >= self.layout.slot_count() {
                return Err(format!("there is no slot {slot}"));
            }
            *place = slot;
            match (slot, sectors) {
                (NO_SLOT, _) | (_, OPEN) => self.sealed.remove(&span),
                _ => self.sealed.insert(span, sectors),
            };
        }
        for (number, content) in record.blocks {
            if u64::from(number) >= FIXED_BLOCKS {
                return Err(format!("there is no fixed block {number}"));
            }
            self.blocks.insert(number, content);
        }
        self.records += 1;
        self.sequence = record.head.sequence + 1;
        Ok(())
    }

    /// No two spans are in one slot, and each ends with a block of the device.
    fn check_map(&self, block_sectors: u64) -> Result<(), String> {
        for (span, &sectors) in &self.sealed {
            let sectors = u64::from(sectors);
            if sectors > self.layout.span_sectors || !sectors.is_multiple_of(block_sectors) {
                return Err(format!("span {span} cannot end at {sectors} sectors"));
            }
        }
        let mut owners = BTreeMap::new();
        for (span, &slot) in self.map.iter().enumerate().filter(|(_, slot)| **slot != NO_SLOT) {
            if let Some(other) = owners.insert(slot, span) {
                return Err(format!("spans {other} and {span} are both in slot {slot}"));
            }
        }
        Ok(())
    }
}
