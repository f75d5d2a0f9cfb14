//! The drive with zones as a block device.

use std::cell::RefCell;

use async_trait::async_trait;

use super::device::Options;
use super::drive::{FlashError, Zns};
use super::zone_controller::ZoneController;
use crate::device::{
    BlockDevice, Buf, Counter, Data, DeviceError, Discard, Geometry, Guarantees, Image, WriteFlags, ZoneAction,
    ZoneInfo, Zoned,
};
use crate::rt::{Rt, Work};
use crate::units::{SECTOR_BYTES, Sector, human_bytes};

/// A modelled drive with zones.
///
/// Commands take effect in the order in which they come, though they are complete later: so two writes to one zone may be
/// outstanding if they come in order, which a real drive does not promise.
pub struct ZnsDevice {
    rt: Rt,
    geometry: Geometry,
    protected: bool,
    name: &'static str,
    image: Option<RefCell<Image>>,
    controller: RefCell<ZoneController>,
}

impl ZnsDevice {
    /// # Errors
    /// When the drive contradicts itself.
    pub fn new(rt: Rt, drive: &Zns, options: Options) -> Result<ZnsDevice, FlashError> {
        let controller = ZoneController::new(drive, options.fill, options.block_bytes)?;
        let zones = *controller.zones();
        Ok(ZnsDevice {
            rt,
            geometry: Geometry {
                sectors: u64::from(zones.count) * zones.zone_sectors,
                block_bytes: options.block_bytes,
                request_bytes_max: options.request_bytes_max,
                zones: Some(zones),
            },
            protected: drive.buffer.protected,
            name: drive.name,
            image: options.keep_bytes.then(RefCell::default),
            controller: RefCell::new(controller),
        })
    }

    fn store(&self, at: Sector, data: &Data) {
        if let Some(image) = &self.image {
            image.borrow_mut().write(at, data);
        }
    }
}

#[async_trait(?Send)]
impl BlockDevice for ZnsDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            atomic_write_bytes: self.geometry.block_bytes,
            durable_on_completion: self.protected,
            ordered: self.protected,
            discard: Discard::Ignored,
        }
    }

    fn zoned(&self) -> Option<&dyn Zoned> {
        Some(self)
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        if !buf.is_empty() {
            self.rt.charge(Work::DeviceRequest).await;
            let sectors = buf.len() as u64 / SECTOR_BYTES;
            let done = self.controller.borrow_mut().read(self.rt.now(), at, sectors);
            self.rt.sleep_until(done).await;
        }
        match &self.image {
            Some(image) => image.borrow().read(at, &mut buf),
            None => buf = Buf::zeroed(buf.len()),
        }
        Ok(buf)
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        self.rt.charge(Work::DeviceRequest).await;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        let done = self.controller.borrow_mut().write(self.rt.now(), at, sectors, flags.fua)?;
        self.store(at, &data);
        self.rt.sleep_until(done).await;
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.rt.charge(Work::DeviceRequest).await;
        let done = self.controller.borrow_mut().flush(self.rt.now());
        self.rt.sleep_until(done).await;
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        // A reset frees space here, of a whole zone.
        self.geometry.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)
    }

    fn counters(&self) -> Vec<Counter> {
        self.controller.borrow_mut().readings(self.rt.now())
    }

    fn describe(&self) -> String {
        format!("zns:{} ({})", self.name, human_bytes(self.geometry.capacity_bytes()))
    }
}

#[async_trait(?Send)]
impl Zoned for ZnsDevice {
    fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        self.controller.borrow().zone(zone)
    }

    async fn append(&self, zone: u32, data: Data, flags: WriteFlags) -> Result<Sector, DeviceError> {
        self.geometry.check(Sector::ZERO, data.len() as u64)?;
        if data.is_empty() {
            return Err(DeviceError::Zone { zone, problem: "an append has at least one block" });
        }
        self.rt.charge(Work::DeviceRequest).await;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        let (at, done) = self.controller.borrow_mut().append(self.rt.now(), zone, sectors, flags.fua)?;
        self.store(at, &data);
        self.rt.sleep_until(done).await;
        Ok(at)
    }

    async fn manage(&self, zone: u32, action: ZoneAction) -> Result<(), DeviceError> {
        self.rt.charge(Work::DeviceRequest).await;
        let written = self.controller.borrow().written(zone);
        let done = self.controller.borrow_mut().manage(self.rt.now(), zone, action)?;
        if action == ZoneAction::Reset
            && let (Some(image), Some(zones)) = (&self.image, &self.geometry.zones)
        {
            // Now and not at the end: the next write to the zone may come before that.
            image.borrow_mut().zero(zones.start(zone), written);
        }
        self.rt.sleep_until(done).await;
        Ok(())
    }
}
