//! Parts of one device, as the members of an array: they are cut, killed, or short of space together.

use std::rc::Rc;

use async_trait::async_trait;

use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};

/// A part of a device.
struct Part {
    whole: Device,
    at: u64,
    sectors: u64,
}

impl Part {
    fn check(&self, at: Sector, bytes: u64) -> Result<Sector, DeviceError> {
        self.geometry().check(at, bytes)?;
        Ok(at + self.at)
    }
}

#[async_trait(?Send)]
impl BlockDevice for Part {
    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, ..self.whole.geometry() }
    }

    fn guarantees(&self) -> Guarantees {
        self.whole.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        let at = self.check(at, buf.len() as u64)?;
        self.whole.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let at = self.check(at, data.len() as u64)?;
        self.whole.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.whole.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let at = self.check(at, sectors * SECTOR_BYTES)?;
        self.whole.discard(at, sectors).await
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let at = self.check(at, sectors * SECTOR_BYTES)?;
        self.whole.provision(at, sectors).await
    }

    fn describe(&self) -> String {
        "part".to_string()
    }
}

/// `members` parts of the same size.
pub fn parts(whole: &Device, members: u64) -> Vec<Device> {
    let sectors = whole.geometry().sectors / members / 8 * 8;
    let part = |slot: u64| Rc::new(Part { whole: whole.clone(), at: slot * sectors, sectors }) as Device;
    (0..members).map(part).collect()
}
