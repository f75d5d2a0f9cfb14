//! The conventional drive as a block device: a controller that says when, and the bytes.

use std::cell::RefCell;

use async_trait::async_trait;

use super::controller::Controller;
use super::drive::{Fill, FlashError, Ssd};
use crate::device::{BlockDevice, Buf, Counter, Data, DeviceError, Discard, Geometry, Guarantees, Image, WriteFlags};
use crate::rt::{Rt, Work};
use crate::units::{Nanos, SECTOR_BYTES, Sector, human_bytes};

/// Longest request: what drives of today commonly allow, 32 times 4 KiB.
const REQUEST_BYTES_MAX: u32 = 128 << 10;

/// How a modelled drive is used; its [`Ssd`] says what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub fill: Fill,
    /// Smallest unit that the host can address: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// Keep the data. Without it, a drive costs no memory for it, and reads return zeroes.
    pub keep_bytes: bool,
    pub request_bytes_max: u32,
}

impl Default for Options {
    fn default() -> Options {
        let block_bytes = SECTOR_BYTES as u32;
        Options { fill: Fill::Fresh, block_bytes, keep_bytes: true, request_bytes_max: REQUEST_BYTES_MAX }
    }
}

/// A modelled drive with flash memory. Commands overlap in it as far as its parts allow; on a real clock they take real
/// time.
pub struct SsdDevice {
    rt: Rt,
    geometry: Geometry,
    protected: bool,
    name: &'static str,
    image: Option<RefCell<Image>>,
    controller: RefCell<Controller>,
}

impl SsdDevice {
    /// # Errors
    /// When the drive contradicts itself.
    pub fn new(rt: Rt, drive: &Ssd, options: Options) -> Result<SsdDevice, FlashError> {
        let geometry = Geometry {
            sectors: drive.bytes / SECTOR_BYTES,
            block_bytes: options.block_bytes,
            request_bytes_max: options.request_bytes_max,
            zones: None,
        };
        Ok(SsdDevice {
            rt,
            geometry,
            protected: drive.buffer.protected,
            name: drive.name,
            image: options.keep_bytes.then(RefCell::default),
            controller: RefCell::new(Controller::new(drive, options.fill, options.block_bytes)?),
        })
    }

    /// Sleeps until the command is done that `book` books; returns at once without sectors.
    async fn serve(&self, book: impl FnOnce(&mut Controller, Nanos) -> Nanos) {
        self.rt.charge(Work::DeviceRequest).await;
        let done = book(&mut self.controller.borrow_mut(), self.rt.now());
        self.rt.sleep_until(done).await;
    }

    /// Units programmed for each unit of the host so far.
    pub fn write_amplification(&self) -> f64 {
        self.controller.borrow().write_amplification()
    }
}

#[async_trait(?Send)]
impl BlockDevice for SsdDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            // What is promised of any drive (NVMe: AWUPF of 0 is one logical block).
            atomic_write_bytes: self.geometry.block_bytes,
            durable_on_completion: self.protected,
            // The buffer is a queue, but the dies that program its stripes finish in any order.
            ordered: self.protected,
            discard: Discard::Zeroes,
        }
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        let sectors = buf.len() as u64 / SECTOR_BYTES;
        if sectors > 0 {
            self.serve(|controller, now| controller.read(now, at.0, sectors)).await;
        }
        match &self.image {
            Some(image) => image.borrow().read(at, &mut buf),
            None => buf = Buf::zeroed(buf.len()),
        }
        Ok(buf)
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        if sectors > 0 {
            self.serve(|controller, now| controller.write(now, at.0, sectors, flags.fua)).await;
        }
        if let Some(image) = &self.image {
            image.borrow_mut().write(at, &data);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.serve(|controller, now| controller.flush(now)).await;
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        // Longer than any device, and still whole sectors.
        self.geometry.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)?;
        if sectors > 0 {
            self.serve(|controller, now| controller.discard(now, at.0, sectors)).await;
        }
        if let Some(image) = &self.image {
            image.borrow_mut().zero(at, sectors);
        }
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        self.controller.borrow().readings(self.rt.now())
    }

    fn describe(&self) -> String {
        format!("ssd:{} ({})", self.name, human_bytes(self.geometry.bytes()))
    }
}
