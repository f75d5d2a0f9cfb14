//! What clients ask of the device: any bytes, any length, in any order.

use std::rc::Rc;

use seekless::device::{Buf, Data, Device, DeviceError, Discard, WriteFlags};
use seekless::units::{SECTOR_BYTES, Sector};

use super::locks::Locks;
use super::wire::{Error, PAYLOAD_MAX, Request, command, flag};

/// The device, as clients see it.
pub(super) struct Disk {
    device: Device,
    locks: Rc<Locks>,
    read_only: bool,
}

/// Why a request fails: the protocol's number, and a text for people.
pub(super) struct Refusal {
    pub(super) error: Error,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn new(error: Error, text: impl Into<String>) -> Refusal {
        Refusal { error, text: text.into() }
    }
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Refusal {
        let number = match &error {
            DeviceError::NoSpace { .. } => Error::NoSpace,
            DeviceError::ReadOnly => Error::NotPermitted,
            DeviceError::Gone(_) => Error::ShuttingDown,
            DeviceError::OutOfRange { .. } | DeviceError::Unaligned { .. } => Error::Invalid,
            DeviceError::Io { .. } => Error::Io,
        };
        Refusal::new(number, error.to_string())
    }
}

/// Flags that each command knows.
fn known_flags(request: &Request) -> Option<u16> {
    Some(match request.command {
        command::READ => flag::DF | flag::FUA,
        command::WRITE | command::TRIM => flag::FUA,
        command::WRITE_ZEROES => flag::FUA | flag::NO_HOLE,
        command::FLUSH => flag::FUA,
        _ => return None,
    })
}

impl Disk {
    pub(super) fn new(device: Device, read_only: bool) -> Disk {
        Disk { device, locks: Rc::default(), read_only }
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Says what is wrong with a request before anything of it is done.
    pub(super) fn check(&self, request: &Request) -> Result<(), Refusal> {
        let Some(known) = known_flags(request) else {
            return Err(Refusal::new(Error::Unsupported, format!("there is no command {}", request.command)));
        };
        if request.flags & !known != 0 {
            let text = format!("command {} has no flags {:#x}", request.command, request.flags & !known);
            return Err(Refusal::new(Error::Invalid, text));
        }
        if request.command == command::FLUSH {
            return Ok(());
        }
        let writes = request.command != command::READ;
        if writes && self.read_only {
            return Err(Refusal::new(Error::NotPermitted, "the export is read-only"));
        }
        let carries = matches!(request.command, command::READ | command::WRITE);
        if carries && request.length > PAYLOAD_MAX {
            let text = format!("{} bytes are more than {PAYLOAD_MAX} at once", request.length);
            return Err(Refusal::new(Error::Invalid, text));
        }
        let size = self.device.geometry().bytes();
        match request.offset.checked_add(u64::from(request.length)) {
            Some(end) if end <= size => Ok(()),
            _ => {
                let error = if request.command == command::READ { Error::Invalid } else { Error::NoSpace };
                Err(Refusal::new(error, format!("the export ends at byte {size}")))
            }
        }
    }

    fn block(&self) -> u64 {
        u64::from(self.device.geometry().block_bytes)
    }

    /// The whole blocks around some bytes.
    fn around(&self, offset: u64, length: u64) -> std::ops::Range<u64> {
        offset / self.block() * self.block()..(offset + length).next_multiple_of(self.block())
    }

    fn step(&self) -> u64 {
        (u64::from(self.device.geometry().request_bytes_max) / self.block()).max(1) * self.block()
    }

    pub(super) async fn read(&self, offset: u64, length: u32) -> Result<Data, Refusal> {
        let length = u64::from(length);
        let whole = self.around(offset, length);
        let _lock = self.locks.lock(whole.clone(), false).await;
        let data = self.read_blocks(whole.clone()).await?;
        let from = (offset - whole.start) as usize;
        Ok(data.slice(from..from + length as usize))
    }

    async fn read_blocks(&self, whole: std::ops::Range<u64>) -> Result<Data, Refusal> {
        let length = (whole.end - whole.start) as usize;
        if length as u64 <= self.step() {
            return Ok(self.device.read(Sector(whole.start / SECTOR_BYTES), Buf::dirty(length)).await?.freeze());
        }
        let mut buf = Buf::dirty(length);
        let mut at = whole.start;
        while at < whole.end {
            let part = self.step().min(whole.end - at) as usize;
            let read = self.device.read(Sector(at / SECTOR_BYTES), Buf::dirty(part)).await?;
            let from = (at - whole.start) as usize;
            buf[from..from + part].copy_from_slice(&read);
            at += part as u64;
        }
        Ok(buf.freeze())
    }

    pub(super) async fn write(&self, offset: u64, data: Data, fua: bool) -> Result<(), Refusal> {
        let whole = self.around(offset, data.len() as u64);
        let _lock = self.locks.lock(whole.clone(), true).await;
        let data = self.complete(offset, data, &whole).await?;
        self.write_blocks(whole.start, &data, fua).await
    }

    /// `data` with what stands before and behind it in its first and last block.
    async fn complete(&self, offset: u64, data: Data, whole: &std::ops::Range<u64>) -> Result<Data, Refusal> {
        if whole.end - whole.start == data.len() as u64 {
            return Ok(data);
        }
        let mut buf = Buf::dirty((whole.end - whole.start) as usize);
        let last = whole.end - self.block();
        let first = self.read_blocks(whole.start..whole.start + self.block()).await?;
        buf[..first.len()].copy_from_slice(&first);
        if last > whole.start {
            let from = (last - whole.start) as usize;
            buf[from..].copy_from_slice(&self.read_blocks(last..whole.end).await?);
        }
        let from = (offset - whole.start) as usize;
        buf[from..from + data.len()].copy_from_slice(&data);
        Ok(buf.freeze())
    }

    async fn write_blocks(&self, start: u64, data: &Data, fua: bool) -> Result<(), Refusal> {
        let step = self.step() as usize;
        let mut at = 0;
        while at < data.len() {
            let part = data.slice(at..(at + step).min(data.len()));
            let sector = Sector((start + at as u64) / SECTOR_BYTES);
            at += part.len();
            self.device.write(sector, part, WriteFlags { fua }).await?;
        }
        Ok(())
    }

    pub(super) async fn flush(&self) -> Result<(), Refusal> {
        Ok(self.device.flush().await?)
    }

    /// Forgets the blocks that lie between `offset` and the end of the request as a whole.
    pub(super) async fn trim(&self, offset: u64, length: u32, fua: bool) -> Result<(), Refusal> {
        let inner = self.inside(offset, u64::from(length));
        if !inner.is_empty() {
            let _lock = self.locks.lock(inner.clone(), true).await;
            self.discard(inner).await?;
        }
        if fua { self.flush().await } else { Ok(()) }
    }

    fn inside(&self, offset: u64, length: u64) -> std::ops::Range<u64> {
        let start = offset.next_multiple_of(self.block());
        start..((offset + length) / self.block() * self.block()).max(start)
    }

    async fn discard(&self, whole: std::ops::Range<u64>) -> Result<(), Refusal> {
        let sectors = (whole.end - whole.start) / SECTOR_BYTES;
        Ok(self.device.discard(Sector(whole.start / SECTOR_BYTES), sectors).await?)
    }

    /// Makes bytes zero; by forgetting them where the device promises zeroes for that, and `hole` allows it.
    pub(super) async fn zero(&self, offset: u64, length: u32, fua: bool, hole: bool) -> Result<(), Refusal> {
        let length = u64::from(length);
        let whole = self.around(offset, length);
        let _lock = self.locks.lock(whole.clone(), true).await;
        let inner = self.inside(offset, length);
        if hole && self.device.guarantees().discard == Discard::Zeroes && !inner.is_empty() {
            self.discard(inner.clone()).await?;
            for edge in [offset..inner.start, inner.end..offset + length] {
                self.zero_bytes(edge, false).await?;
            }
        } else {
            self.zero_bytes(offset..offset + length, false).await?;
        }
        if fua { self.flush().await } else { Ok(()) }
    }

    async fn zero_bytes(&self, bytes: std::ops::Range<u64>, fua: bool) -> Result<(), Refusal> {
        let mut at = bytes.start;
        while at < bytes.end {
            // Up to the next block that a step can begin with.
            let end = ((at + self.step()) / self.block() * self.block()).min(bytes.end);
            let data = Data::zeroes((end - at) as usize);
            let whole = self.around(at, end - at);
            let data = self.complete(at, data, &whole).await?;
            self.write_blocks(whole.start, &data, fua).await?;
            at = end;
        }
        Ok(())
    }
}
