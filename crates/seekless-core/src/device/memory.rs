//! A sparse device in memory: blocks that were never written, or are full of zeroes, cost nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::{BlockDevice, Buf, Counter, Data, DeviceError, Discard, Geometry, Guarantees, WriteFlags};
use crate::codec::is_zero;
use crate::units::{SECTOR_BYTES, Sector, human_bytes};

/// Bytes of one allocation unit.
const CHUNK_BYTES: u64 = 4096;

/// The bytes of a device, without any notion of time or failure. Cloning shares unchanged chunks, so that many
/// variants of one image can be held (see the crash explorer).
#[derive(Clone, Default)]
pub struct Image {
    chunks: Arc<BTreeMap<u64, Data>>,
}

impl Image {
    pub fn read(&self, at: Sector, buf: &mut [u8]) {
        let mut offset = at.byte_offset();
        let mut rest = buf;
        while !rest.is_empty() {
            let within = (offset % CHUNK_BYTES) as usize;
            let take = rest.len().min(CHUNK_BYTES as usize - within);
            let (head, tail) = rest.split_at_mut(take);
            match self.chunks.get(&(offset / CHUNK_BYTES)) {
                Some(chunk) => head.copy_from_slice(&chunk[within..within + take]),
                None => head.fill(0),
            }
            offset += take as u64;
            rest = tail;
        }
    }

    pub fn write(&mut self, at: Sector, bytes: &[u8]) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let mut offset = at.byte_offset();
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (offset % CHUNK_BYTES) as usize;
            let take = rest.len().min(CHUNK_BYTES as usize - within);
            if take == CHUNK_BYTES as usize && is_zero(&rest[..take]) {
                chunks.remove(&(offset / CHUNK_BYTES));
                offset += take as u64;
                rest = &rest[take..];
                continue;
            }
            let chunk = chunks.entry(offset / CHUNK_BYTES).or_insert_with(|| Data::zeroes(CHUNK_BYTES as usize));
            chunk.make_mut()[within..within + take].copy_from_slice(&rest[..take]);
            offset += take as u64;
            rest = &rest[take..];
        }
    }

    /// Makes `sectors` from `at` read as zeroes.
    pub fn zero(&mut self, at: Sector, sectors: u64) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let (mut offset, end) = (at.byte_offset(), (at + sectors).byte_offset());
        while offset < end {
            let within = offset % CHUNK_BYTES;
            let take = (end - offset).min(CHUNK_BYTES - within);
            if take == CHUNK_BYTES {
                chunks.remove(&(offset / CHUNK_BYTES));
            } else if let Some(chunk) = chunks.get_mut(&(offset / CHUNK_BYTES)) {
                chunk.make_mut()[within as usize..(within + take) as usize].fill(0);
            }
            offset += take;
        }
    }

    /// Bytes of memory that the image holds.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK_BYTES
    }
}

/// A device in memory. It is as durable as memory: completed writes are there until the device is dropped.
pub struct Memory {
    geometry: Geometry,
    image: RefCell<Image>,
}

impl Memory {
    /// A device of `bytes`, rounded down to whole sectors, that reads as zeroes.
    pub fn new(bytes: u64) -> Memory {
        Memory::from_image(bytes, Image::default())
    }

    pub fn from_image(bytes: u64, image: Image) -> Memory {
        let geometry =
            Geometry { sectors: bytes / SECTOR_BYTES, block_bytes: 512, request_bytes_max: 4 << 20, zones: None };
        Memory { geometry, image: RefCell::new(image) }
    }

    /// The current content. Cheap: unchanged chunks are shared.
    pub fn image(&self) -> Image {
        self.image.borrow().clone()
    }

    pub fn set_image(&self, image: Image) {
        *self.image.borrow_mut() = image;
    }
}

#[async_trait(?Send)]
impl BlockDevice for Memory {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { atomic_write_bytes: 512, durable_on_completion: true, ordered: true, discard: Discard::Zeroes }
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        self.image.borrow().read(at, &mut buf);
        Ok(buf)
    }

    async fn write(&self, at: Sector, data: Data, _flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        self.image.borrow_mut().write(at, &data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry.check(at, sectors * SECTOR_BYTES)?;
        self.image.borrow_mut().zero(at, sectors);
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("allocated_bytes", self.image.borrow().allocated_bytes())]
    }

    fn describe(&self) -> String {
        format!("memory:{}", human_bytes(self.geometry.bytes()))
    }
}
