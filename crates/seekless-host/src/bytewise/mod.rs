//! A block device as bytes: any offset, any length, any number of concurrent requests.
//!
//! Where the device has larger blocks, the rest of a block is read and rewritten. A device must not get overlapping
//! requests, so those wait for each other here.

mod locks;

use std::ops::Range;
use std::rc::Rc;

use locks::Locks;
use seekless::device::{Buf, Data, Device, DeviceError, Discard, WriteFlags};
use seekless::units::{SECTOR_BYTES, Sector};

/// A device, by bytes. Callers check that a request is inside.
pub(crate) struct Bytewise {
    device: Device,
    locks: Rc<Locks>,
    /// What all requests write that zero something: a client can ask for zeroes without sending any.
    zeroes: Data,
}

/// Zeroes that are written at once.
const ZEROES_BYTES_MAX: u64 = 1 << 20;

const UNWANTED: DeviceError = DeviceError::Gone("the client that asked for zeroes has left");

impl Bytewise {
    pub(crate) fn new(device: Device) -> Bytewise {
        let mut bytewise = Bytewise { device, locks: Rc::default(), zeroes: Data::empty() };
        let length = (ZEROES_BYTES_MAX.min(bytewise.step()) / bytewise.block()).max(1) * bytewise.block();
        bytewise.zeroes = Data::zeroes(length as usize);
        bytewise
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.device.geometry().bytes()
    }

    fn block(&self) -> u64 {
        u64::from(self.device.geometry().block_bytes)
    }

    /// The whole blocks around some bytes.
    fn around(&self, offset: u64, length: u64) -> Range<u64> {
        offset / self.block() * self.block()..(offset + length).next_multiple_of(self.block())
    }

    /// The whole blocks inside some bytes.
    fn inside(&self, offset: u64, length: u64) -> Range<u64> {
        let start = offset.next_multiple_of(self.block());
        start..((offset + length) / self.block() * self.block()).max(start)
    }

    fn step(&self) -> u64 {
        (u64::from(self.device.geometry().request_bytes_max) / self.block()).max(1) * self.block()
    }

    pub(crate) async fn read(&self, offset: u64, length: u32) -> Result<Data, DeviceError> {
        let length = u64::from(length);
        let whole = self.around(offset, length);
        let _lock = self.locks.lock(whole.clone(), false).await;
        let data = self.read_blocks(whole.clone()).await?;
        let from = (offset - whole.start) as usize;
        Ok(data.slice(from..from + length as usize))
    }

    async fn read_blocks(&self, whole: Range<u64>) -> Result<Data, DeviceError> {
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

    pub(crate) async fn write(&self, offset: u64, data: Data, fua: bool) -> Result<(), DeviceError> {
        let whole = self.around(offset, data.len() as u64);
        let _lock = self.locks.lock(whole.clone(), true).await;
        let data = self.complete(offset, data, &whole).await?;
        self.write_blocks(whole.start, &data, fua).await
    }

    /// `data`, completed with the existing bytes of its first and last block.
    async fn complete(&self, offset: u64, data: Data, whole: &Range<u64>) -> Result<Data, DeviceError> {
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

    async fn write_blocks(&self, start: u64, data: &Data, fua: bool) -> Result<(), DeviceError> {
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

    pub(crate) async fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush().await
    }

    /// Discards the blocks that are entirely inside the request.
    pub(crate) async fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let inner = self.inside(offset, length);
        if inner.is_empty() {
            return Ok(());
        }
        let _lock = self.locks.lock(inner.clone(), true).await;
        self.discard_blocks(inner).await
    }

    async fn discard_blocks(&self, whole: Range<u64>) -> Result<(), DeviceError> {
        let sectors = (whole.end - whole.start) / SECTOR_BYTES;
        self.device.discard(Sector(whole.start / SECTOR_BYTES), sectors).await
    }

    /// Zeroes bytes; by discarding them where the device promises zeroes for that, and `hole` allows it.
    pub(crate) async fn zero(&self, offset: u64, length: u64, hole: bool) -> Result<(), DeviceError> {
        self.zero_while(offset, length, hole, &|| true).await
    }

    /// The same for as long as `go_on` is true. Asks it before the first write and before each further one.
    ///
    /// # Errors
    /// `Gone` when it was false: then any part of the bytes is zero.
    pub(crate) async fn zero_while(
        &self,
        offset: u64,
        length: u64,
        hole: bool,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), DeviceError> {
        let whole = self.around(offset, length);
        let _lock = self.locks.lock(whole.clone(), true).await;
        if !go_on() {
            return Err(UNWANTED);
        }
        let inner = self.inside(offset, length);
        if hole && self.device.guarantees().discard == Discard::Zeroes && !inner.is_empty() {
            self.discard_blocks(inner.clone()).await?;
            for edge in [offset..inner.start, inner.end..offset + length] {
                self.zero_bytes(edge, go_on).await?;
            }
            return Ok(());
        }
        self.zero_bytes(offset..offset + length, go_on).await
    }

    async fn zero_bytes(&self, bytes: Range<u64>, go_on: &dyn Fn() -> bool) -> Result<(), DeviceError> {
        let inner = self.inside(bytes.start, bytes.end - bytes.start);
        // Parts of blocks, at both ends or of a single one.
        let edges = match inner.is_empty() {
            true => [bytes.clone(), bytes.end..bytes.end],
            false => [bytes.start..inner.start, inner.end..bytes.end],
        };
        for edge in edges.into_iter().filter(|edge| edge.start < edge.end) {
            let whole = self.around(edge.start, edge.end - edge.start);
            let zeroes = Data::zeroes((edge.end - edge.start) as usize);
            let data = self.complete(edge.start, zeroes, &whole).await?;
            self.write_blocks(whole.start, &data, false).await?;
        }
        let mut at = inner.start;
        while at < inner.end {
            if !go_on() {
                return Err(UNWANTED);
            }
            let length = (inner.end - at).min(self.zeroes.len() as u64);
            let zeroes = self.zeroes.slice(0..length as usize);
            self.device.write(Sector(at / SECTOR_BYTES), zeroes, WriteFlags::NONE).await?;
            at += length;
        }
        Ok(())
    }

    /// Makes sure that later writes will find room.
    pub(crate) async fn provision(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let whole = self.around(offset, length);
        let sectors = (whole.end - whole.start) / SECTOR_BYTES;
        self.device.provision(Sector(whole.start / SECTOR_BYTES), sectors).await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use seekless::device::{BlockDevice, Geometry, Guarantees, Memory};
    use seekless::rt::{Executor, HostProfile};
    use seekless::units::MIB;

    use super::*;

    /// Memory that notes where the data of its writes was, and does not promise zeroes after discards.
    struct Watched {
        memory: Memory,
        lowest: Cell<usize>,
        highest: Cell<usize>,
    }

    #[async_trait(?Send)]
    impl BlockDevice for Watched {
        fn geometry(&self) -> Geometry {
            Geometry { block_bytes: 4096, ..self.memory.geometry() }
        }

        fn guarantees(&self) -> Guarantees {
            Guarantees { discard: Discard::Ignored, ..self.memory.guarantees() }
        }

        async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
            self.memory.read(at, buf).await
        }

        async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
            if data.len() > 8192 {
                let start = data.as_ptr() as usize;
                self.lowest.set(self.lowest.get().min(start));
                self.highest.set(self.highest.get().max(start + data.len()));
            }
            self.memory.write(at, data, flags).await
        }

        async fn flush(&self) -> Result<(), DeviceError> {
            self.memory.flush().await
        }

        async fn discard(&self, _: Sector, _: u64) -> Result<(), DeviceError> {
            Ok(())
        }

        fn describe(&self) -> String {
            "watched memory".to_owned()
        }
    }

    /// Zeroing takes no memory for each request, and zeroes exactly what was asked for. Method: many requests at once of any
    /// bytes; everything that they write but the blocks at their ends is the same megabyte.
    #[test]
    fn zeroes_are_shared() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let memory = Memory::new(40 * MIB);
        let device = Rc::new(Watched { memory, lowest: Cell::new(usize::MAX), highest: Cell::new(0) });
        let bytes = Bytewise::new(device.clone());
        let run = async {
            let ones = Data::from_slice(&vec![1; 40 * MIB as usize]);
            bytes.device().write(Sector(0), ones, WriteFlags::NONE).await.unwrap();
            device.lowest.set(usize::MAX);
            device.highest.set(0);
            let ranges: Vec<(u64, u64)> = (0..8)
                .map(|at| (at * 5 * MIB + at * 700, [4 * MIB, 4 * MIB - 512, 100, 5000, 8192][at as usize % 5] + at))
                .collect();
            let zeroed = join_all(ranges.iter().map(|&(offset, length)| bytes.zero(offset, length, false))).await;
            assert!(zeroed.into_iter().all(|zeroed| zeroed.is_ok()));
            let span = device.highest.get() - device.lowest.get();
            assert!(span as u64 <= ZEROES_BYTES_MAX, "{span} bytes of zeroes");
            let all = device.read(Sector(0), Buf::dirty(40 * MIB as usize)).await.unwrap();
            for (at, byte) in (0..).zip(&all[..]) {
                let is_zero = ranges.iter().any(|&(offset, length)| (offset..offset + length).contains(&at));
                assert_eq!(*byte, u8::from(!is_zero), "byte {at}");
            }
        };
        executor.block_on(run).unwrap();
    }
}
