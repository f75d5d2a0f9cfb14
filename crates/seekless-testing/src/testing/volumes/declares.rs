//! A device that declares other properties than the one below, and adheres to its block size.

use std::rc::Rc;

use async_trait::async_trait;

use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::units::Sector;

pub struct Declares {
    below: Device,
    geometry: Geometry,
    guarantees: Guarantees,
}

impl Declares {
    /// Writes can be lost in a power cut until they are flushed.
    pub fn volatile(below: Device) -> Rc<Declares> {
        let guarantees = Guarantees { durable_on_completion: false, ..below.guarantees() };
        Rc::new(Declares { geometry: below.geometry(), guarantees, below })
    }

    /// Whole blocks of 4 KiB only, as on current drives.
    pub fn blocks_of_4096(below: Device) -> Rc<Declares> {
        let geometry = Geometry { block_bytes: 4096, zones: None, ..below.geometry() };
        Rc::new(Declares { geometry, guarantees: below.guarantees(), below })
    }
}

#[async_trait(?Send)]
impl BlockDevice for Declares {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        self.below.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        self.below.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.below.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        self.below.describe()
    }
}
