//! Zones over any device: a host-managed shingled disk over a modelled one. It has the interface and the rules of zones; times
//! are those of the disk below. The write pointers are in memory and are gone with the device.

use std::cell::{Cell, RefCell};

use async_trait::async_trait;

use super::drive::FlashError;
use super::zone_table::ZoneTable;
use crate::device::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Discard, Geometry, Guarantees, WriteFlags, ZoneAction,
    ZoneInfo, Zoned, Zones,
};
use crate::units::{SECTOR_BYTES, Sector};

pub struct HostManaged {
    below: Device,
    geometry: Geometry,
    zones: Zones,
    table: RefCell<ZoneTable>,
    resets: Cell<u64>,
    appends: Cell<u64>,
}

impl HostManaged {
    /// Zones of `zone_bytes`, of which `open_max` may be open at once; sectors behind the last whole zone are not used.
    ///
    /// # Errors
    /// When not even one zone fits, or its size is no multiple of the device's blocks.
    pub fn new(below: Device, zone_bytes: u64, open_max: u32) -> Result<HostManaged, FlashError> {
        let geometry = below.geometry();
        if zone_bytes == 0 || !zone_bytes.is_multiple_of(geometry.block_bytes.into()) {
            let block = geometry.block_bytes;
            return Err(FlashError(format!("a zone has a multiple of the device's blocks of {block} bytes")));
        }
        let count = u32::try_from(geometry.bytes() / zone_bytes).unwrap_or(u32::MAX);
        if count == 0 {
            return Err(FlashError("the device is smaller than a zone".to_owned()));
        }
        let zone_sectors = zone_bytes / SECTOR_BYTES;
        // ZBC limits open zones alone.
        let zones = Zones { count, zone_sectors, capacity_sectors: zone_sectors, open_max, active_max: 0 };
        let sectors = u64::from(count) * zone_sectors;
        Ok(HostManaged {
            below,
            geometry: Geometry { sectors, zones: Some(zones), ..geometry },
            zones,
            table: RefCell::new(ZoneTable::new(zones)),
            resets: Cell::new(0),
            appends: Cell::new(0),
        })
    }
}

#[async_trait(?Send)]
impl BlockDevice for HostManaged {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { discard: Discard::Ignored, ..self.below.guarantees() }
    }

    fn zoned(&self) -> Option<&dyn Zoned> {
        Some(self)
    }

    /// What is behind a write pointer reads as zeroes.
    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        let mut buf = self.below.read(at, buf).await?;
        let table = self.table.borrow();
        let end = at.0 + buf.len() as u64 / SECTOR_BYTES;
        let mut zone_start = at.0 / self.zones.zone_sectors * self.zones.zone_sectors;
        while zone_start < end {
            let written = zone_start + table.written(self.zones.zone_of(Sector(zone_start)));
            let next = zone_start + self.zones.zone_sectors;
            let (from, to) = (written.max(at.0), next.min(end));
            if from < to {
                let bytes = |sector: u64| ((sector - at.0) * SECTOR_BYTES) as usize;
                buf[bytes(from)..bytes(to)].fill(0);
            }
            zone_start = next;
        }
        Ok(buf)
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        self.table.borrow_mut().write(at, data.len() as u64 / SECTOR_BYTES)?;
        self.below.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)
    }

    async fn release(&self) -> Result<(), DeviceError> {
        self.below.release().await
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("zones_reset", self.resets.get()), ("appends", self.appends.get())]
    }

    fn describe(&self) -> String {
        format!("smr over {}", self.below.describe())
    }
}

#[async_trait(?Send)]
impl Zoned for HostManaged {
    fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        self.table.borrow().info(zone)
    }

    /// Disks have no append; the device does what a kernel does for them, and writes at the pointer.
    async fn append(&self, zone: u32, data: Data, flags: WriteFlags) -> Result<Sector, DeviceError> {
        self.geometry.check(Sector::ZERO, data.len() as u64)?;
        if data.is_empty() {
            return Err(DeviceError::Zone { zone, problem: "an append has at least one block" });
        }
        let (at, _) = self.table.borrow_mut().append(zone, data.len() as u64 / SECTOR_BYTES)?;
        self.appends.set(self.appends.get() + 1);
        self.below.write(at, data, flags).await?;
        Ok(at)
    }

    async fn manage(&self, zone: u32, action: ZoneAction) -> Result<(), DeviceError> {
        self.table.borrow_mut().manage(zone, action)?;
        if action == ZoneAction::Reset {
            self.resets.set(self.resets.get() + 1);
        }
        Ok(())
    }
}
