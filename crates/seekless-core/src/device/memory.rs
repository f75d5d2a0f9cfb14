//! A sparse device in memory: blocks that were never written, or are full of zeroes, cost nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use siphasher::sip::SipHasher13;

use super::{BlockDevice, Buf, Counter, Data, DeviceError, Discard, Geometry, Guarantees, WriteFlags};
use crate::codec::is_zero;
use crate::units::{SECTOR_BYTES, Sector, human_bytes};

/// Bytes of one allocation unit.
const CHUNK_BYTES: u64 = 4096;

/// Chunks that a change of a shared image copies the list of.
const GROUP_CHUNKS: u64 = 64;

/// Neighbouring chunks, those that are there.
type Group = [Option<Data>; GROUP_CHUNKS as usize];

/// The bytes of a device, without any notion of time or failure. Cloning shares unchanged chunks, so that many
/// variants of one image can be held (see the crash explorer).
#[derive(Clone, Default)]
pub struct Image {
    groups: Arc<BTreeMap<u64, Arc<Group>>>,
    /// How many there are.
    chunks: u64,
}

/// The parts of `bytes` bytes from `offset` on that are in one chunk each: its number, and the bytes in it.
fn parts(mut offset: u64, mut bytes: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    std::iter::from_fn(move || {
        let within = (offset % CHUNK_BYTES) as usize;
        let take = bytes.min(CHUNK_BYTES as usize - within);
        let part = (take > 0).then_some((offset / CHUNK_BYTES, within..within + take));
        (offset, bytes) = (offset + take as u64, bytes - take);
        part
    })
}

/// The number of a chunk's group, and its place there.
fn place(chunk: u64) -> (u64, usize) {
    (chunk / GROUP_CHUNKS, (chunk % GROUP_CHUNKS) as usize)
}

impl Image {
    pub fn read(&self, at: Sector, buf: &mut [u8]) {
        let mut rest = buf;
        let mut last: Option<(u64, Option<&Arc<Group>>)> = None;
        for (chunk, part) in parts(at.byte_offset(), rest.len()) {
            let (head, tail) = rest.split_at_mut(part.len());
            let (number, place) = place(chunk);
            let group = match last {
                Some((known, group)) if known == number => group,
                _ => self.groups.get(&number),
            };
            last = Some((number, group));
            match group.and_then(|group| group[place].as_ref()) {
                Some(chunk) => head.copy_from_slice(&chunk[part]),
                None => head.fill(0),
            }
            rest = tail;
        }
    }

    pub fn write(&mut self, at: Sector, bytes: &[u8]) {
        let mut rest = bytes;
        for (chunk, part) in parts(at.byte_offset(), bytes.len()) {
            let (head, tail) = rest.split_at(part.len());
            rest = tail;
            if head.len() == CHUNK_BYTES as usize && is_zero(head) {
                self.remove(chunk);
                continue;
            }
            let (number, place) = place(chunk);
            let group = Arc::make_mut(&mut self.groups).entry(number);
            let group = group.or_insert_with(|| Arc::new([const { None }; GROUP_CHUNKS as usize]));
            let chunk = &mut Arc::make_mut(group)[place];
            self.chunks += u64::from(chunk.is_none());
            match chunk {
                // All of it, so what is there need not be copied.
                _ if head.len() == CHUNK_BYTES as usize => *chunk = Some(Data::from_slice(head)),
                _ => {
                    let chunk = chunk.get_or_insert_with(|| Data::zeroes(CHUNK_BYTES as usize));
                    chunk.make_mut()[part].copy_from_slice(head);
                }
            }
        }
    }

    /// Makes `sectors` from `at` read as zeroes.
    pub fn zero(&mut self, at: Sector, sectors: u64) {
        let (start, end) = (at.byte_offset(), (at + sectors).byte_offset());
        let (first, last) = (start.div_ceil(CHUNK_BYTES), end / CHUNK_BYTES);
        if first > last {
            return self.zero_part(start, (end - start) as usize);
        }
        self.zero_part(start, (first * CHUNK_BYTES - start) as usize);
        self.zero_part(last * CHUNK_BYTES, (end - last * CHUNK_BYTES) as usize);
        // Only what is there: a discard may cover a whole volume of any size.
        let groups = first / GROUP_CHUNKS..last.div_ceil(GROUP_CHUNKS);
        let there = self.groups.range(groups).flat_map(|(&number, group)| {
            let chunks = (number * GROUP_CHUNKS..).zip(group.iter());
            chunks.filter_map(|(chunk, data)| data.is_some().then_some(chunk))
        });
        let whole: Vec<u64> = there.filter(|chunk| (first..last).contains(chunk)).collect();
        whole.into_iter().for_each(|chunk| self.remove(chunk));
    }

    /// The same for bytes that are all in one chunk.
    fn zero_part(&mut self, offset: u64, bytes: usize) {
        for (chunk, part) in parts(offset, bytes) {
            let (number, place) = place(chunk);
            if self.chunk(chunk).is_some()
                && let Some(group) = Arc::make_mut(&mut self.groups).get_mut(&number)
                && let Some(chunk) = &mut Arc::make_mut(group)[place]
            {
                chunk.make_mut()[part].fill(0);
            }
        }
    }

    fn chunk(&self, chunk: u64) -> Option<&Data> {
        let (number, place) = place(chunk);
        self.groups.get(&number)?[place].as_ref()
    }

    fn remove(&mut self, chunk: u64) {
        let (number, place) = place(chunk);
        if self.chunk(chunk).is_none() {
            return;
        }
        let groups = Arc::make_mut(&mut self.groups);
        if let Some(group) = groups.get_mut(&number) {
            let group = Arc::make_mut(group);
            group[place] = None;
            self.chunks -= 1;
            if group.iter().all(Option::is_none) {
                groups.remove(&number);
            }
        }
    }

    /// The chunks that are there, of those with these numbers.
    fn chunks(&self, numbers: Range<u64>) -> impl Iterator<Item = (u64, &Data)> {
        let groups = self.groups.range(numbers.start / GROUP_CHUNKS..numbers.end.div_ceil(GROUP_CHUNKS));
        let all = groups.flat_map(|(&number, group)| (number * GROUP_CHUNKS..).zip(group.iter()));
        all.filter(move |(number, _)| numbers.contains(number))
            .filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)))
    }

    /// The first sector from `at` on that was written with anything but zeroes, or lies beside such a sector.
    pub fn next_data(&self, at: Sector) -> Option<Sector> {
        let (chunk, _) = self.chunks(at.byte_offset() / CHUNK_BYTES..u64::MAX).next()?;
        Some(at.max(Sector(chunk * CHUNK_BYTES / SECTOR_BYTES)))
    }

    /// A hash of the content. Images with equal bytes have equal hashes, whatever was written to get there.
    pub fn content_hash(&self) -> u64 {
        self.chunks(0..u64::MAX).fold(0, |hash, (number, chunk)| hash ^ chunk_hash(number, chunk))
    }

    /// The part of [`Image::content_hash`] that changing `sectors` from `at` can change: exclusive or takes the old part
    /// out and puts the new one in.
    pub(super) fn content_hash_around(&self, at: Sector, sectors: u64) -> u64 {
        let chunks = at.byte_offset() / CHUNK_BYTES..(at + sectors).byte_offset().div_ceil(CHUNK_BYTES);
        self.chunks(chunks).fold(0, |hash, (number, chunk)| hash ^ chunk_hash(number, chunk))
    }

    /// Bytes of memory that the image holds.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks * CHUNK_BYTES
    }
}

/// Of a chunk of zeroes as of none at all: 0.
fn chunk_hash(number: u64, chunk: &[u8]) -> u64 {
    if is_zero(chunk) {
        return 0;
    }
    let mut bytes = rustc_hash::FxHasher::default();
    bytes.write(chunk);
    // The combination with the number must not be linear, as the hashes of chunks are added up.
    SipHasher13::new_with_keys(number, bytes.finish()).finish()
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

    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        let data = self.image.borrow().next_data(at);
        Ok(data.filter(|data| data.0 < self.geometry.sectors))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Aim: an image reads like a plain vector, and so do its clones, whatever is written to others. Method: random writes
    /// and zeroes on some of several images, each beside a vector.
    #[test]
    fn images_read_like_vectors() {
        const SECTORS: u64 = 3 * GROUP_CHUNKS * CHUNK_BYTES / SECTOR_BYTES;
        for seed in 0..8 {
            let mut rng = Rng::new(seed);
            let mut images = vec![(Image::default(), vec![0; (SECTORS * SECTOR_BYTES) as usize])];
            for step in 1..120u8 {
                if images.len() < 4 && rng.chance(1, 8) {
                    images.push(images[rng.below(images.len() as u64) as usize].clone());
                }
                let index = rng.below(images.len() as u64) as usize;
                let (image, plain) = &mut images[index];
                // Up to all of it.
                let at = rng.below(SECTORS);
                let most = 1 << rng.below(11);
                let sectors = rng.between(1, most).min(SECTORS - at);
                let bytes = (at * SECTOR_BYTES) as usize..((at + sectors) * SECTOR_BYTES) as usize;
                match rng.below(4) {
                    0 => {
                        image.zero(Sector(at), sectors);
                        plain[bytes].fill(0);
                    }
                    1 => {
                        image.write(Sector(at), &vec![0; bytes.len()]);
                        plain[bytes].fill(0);
                    }
                    _ => {
                        image.write(Sector(at), &vec![step; bytes.len()]);
                        plain[bytes].fill(step);
                    }
                }
                for (image, plain) in &images {
                    let mut read = vec![1; plain.len()];
                    image.read(Sector(0), &mut read);
                    assert!(read == *plain, "seed {seed}, step {step}");
                    let mut again = Image::default();
                    again.write(Sector(0), plain);
                    assert_eq!(image.content_hash(), again.content_hash(), "seed {seed}, step {step}");
                    let next = image.next_data(Sector(at)).map_or(plain.len(), |next| next.byte_offset() as usize);
                    assert!(
                        plain[(at * SECTOR_BYTES) as usize..next].iter().all(|&byte| byte == 0),
                        "seed {seed}, step {step}"
                    );
                    let chunks = image.chunks(0..u64::MAX).count() as u64;
                    assert_eq!(image.allocated_bytes(), chunks * CHUNK_BYTES);
                    assert!(again.allocated_bytes() <= image.allocated_bytes());
                }
            }
        }
    }
}
