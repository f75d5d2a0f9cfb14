//! Copy-on-write: a device that starts as another one and keeps every change to itself.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use async_trait::async_trait;

use super::{BlockDevice, Buf, Counter, Data, Device, DeviceError, Discard, Geometry, Guarantees, WriteFlags};
use crate::units::{SECTOR_BYTES, Sector};

/// Bytes of one overlay chunk: eight sectors, each of which is ours or the base's.
const CHUNK_BYTES: u64 = 4096;
const CHUNK_SECTORS: u64 = CHUNK_BYTES / SECTOR_BYTES;

/// Some sectors of a chunk.
#[derive(Clone)]
struct Chunk {
    data: Data,
    /// Bit n: sector n of the chunk is in `data`.
    own: u8,
}

/// What a fork has changed.
#[derive(Clone, Default)]
struct Changes {
    chunks: BTreeMap<u64, Chunk>,
    /// Chunks that are zero as a whole, unless they are in `chunks` again and then all ours: first ones and ends of ranges that are apart
    /// from each other. A discard may be of terabytes.
    zeroed: BTreeMap<u64, u64>,
}

impl Changes {
    fn is_zeroed(&self, index: u64) -> bool {
        self.zeroed_end(index).is_some()
    }

    /// The end of the zeroed range that chunk `index` is in.
    fn zeroed_end(&self, index: u64) -> Option<u64> {
        self.zeroed.range(..=index).next_back().map(|(_, &end)| end).filter(|&end| index < end)
    }

    /// The first sector from `at` on in a chunk that has been written here.
    fn next_written(&self, at: Sector) -> Option<Sector> {
        let (&index, _) = self.chunks.range(at.0 / CHUNK_SECTORS..).next()?;
        Some(at.max(Sector(index * CHUNK_SECTORS)))
    }

    /// The chunk, to be changed.
    fn chunk(&mut self, index: u64) -> &mut Chunk {
        let own = if self.is_zeroed(index) { u8::MAX } else { 0 };
        let fresh = || Chunk { data: Data::zeroes(CHUNK_BYTES as usize), own };
        self.chunks.entry(index).or_insert_with(fresh)
    }

    /// Makes whole chunks zero.
    fn zero(&mut self, first: u64, end: u64) {
        // Only what lies in the range is looked at, not all that was ever written.
        while let Some((&index, _)) = self.chunks.range(first..end).next() {
            self.chunks.remove(&index);
        }
        let (mut first, mut end) = (first, end);
        // Also those that it touches.
        while let Some((&start, &other)) = self.zeroed.range(..=end).next_back().filter(|&(_, &other)| other >= first) {
            self.zeroed.remove(&start);
            (first, end) = (first.min(start), end.max(other));
        }
        self.zeroed.insert(first, end);
    }
}

/// A fork of a base device, in memory: reads come from the base until they are overwritten here. The base is
/// never written, and must not change while forks of it are in use.
pub struct ForkDevice {
    base: Device,
    changes: RefCell<Changes>,
}

impl ForkDevice {
    pub fn new(base: Device) -> Rc<ForkDevice> {
        Rc::new(ForkDevice { base, changes: RefCell::default() })
    }

    /// Another fork in the same state, independent from now on. Cheap: unchanged chunks are shared.
    pub fn fork(&self) -> Rc<ForkDevice> {
        Rc::new(ForkDevice { base: self.base.clone(), changes: self.changes.clone() })
    }

    /// Forgets all changes.
    pub fn reset(&self) {
        *self.changes.borrow_mut() = Changes::default();
    }

    /// Sectors that differ, or may differ, from the base.
    pub fn own_sectors(&self) -> u64 {
        let changes = self.changes.borrow();
        let zeroed: u64 = changes.zeroed.iter().map(|(first, end)| (end - first) * CHUNK_SECTORS).sum();
        let chunks = changes.chunks.iter().filter(|&(&index, _)| !changes.is_zeroed(index));
        zeroed + chunks.map(|(_, chunk)| u64::from(chunk.own.count_ones())).sum::<u64>()
    }

    /// Applies `change` to each chunk of the span: chunk number, first sector in it, number of sectors.
    fn for_chunks(at: Sector, sectors: u64, mut change: impl FnMut(u64, u64, u64)) {
        let (mut sector, end) = (at.0, at.0 + sectors);
        while sector < end {
            let within = sector % CHUNK_SECTORS;
            let take = (CHUNK_SECTORS - within).min(end - sector);
            change(sector / CHUNK_SECTORS, within, take);
            sector += take;
        }
    }

    /// Stores `sectors` sectors from `at`: those of `bytes`, or zeroes.
    fn store(&self, at: Sector, sectors: u64, bytes: Option<&[u8]>) {
        let mut changes = self.changes.borrow_mut();
        let mut done = 0;
        Self::for_chunks(at, sectors, |index, within, take| {
            let chunk = changes.chunk(index);
            let target = (within * SECTOR_BYTES) as usize..((within + take) * SECTOR_BYTES) as usize;
            let length = target.len();
            match bytes {
                Some(bytes) => chunk.data.make_mut()[target].copy_from_slice(&bytes[done..done + length]),
                None => chunk.data.make_mut()[target].fill(0),
            }
            chunk.own |= mask(within, take);
            done += length;
        });
    }

    /// Makes sectors zero: whole chunks as a range, the rest as if it were written.
    fn zero(&self, at: Sector, sectors: u64) {
        let end = at.0 + sectors;
        let (first, last) = (at.0.div_ceil(CHUNK_SECTORS), end / CHUNK_SECTORS);
        if first >= last {
            return self.store(at, sectors, None);
        }
        self.store(at, first * CHUNK_SECTORS - at.0, None);
        self.store(Sector(last * CHUNK_SECTORS), end - last * CHUNK_SECTORS, None);
        self.changes.borrow_mut().zero(first, last);
    }

    /// This fork's own sectors, over those of the base.
    async fn read_over(&self, at: Sector, buf: Buf, reading: Option<u32>) -> Result<Buf, DeviceError> {
        let geometry = self.geometry();
        geometry.check(at, buf.len() as u64)?;
        let sectors = buf.len() as u64 / SECTOR_BYTES;
        let mut all_own = true;
        {
            let changes = self.changes.borrow();
            Self::for_chunks(at, sectors, |index, within, take| {
                let wanted = mask(within, take);
                all_own &= match changes.chunks.get(&index) {
                    Some(chunk) => chunk.own & wanted == wanted,
                    None => changes.is_zeroed(index),
                };
            });
        }
        let mut buf = match reading {
            _ if all_own => buf,
            None => self.base.read(at, buf).await?,
            Some(reading) => self.base.read_as(at, buf, reading).await?,
        };
        let changes = self.changes.borrow();
        let mut done = 0;
        Self::for_chunks(at, sectors, |index, within, take| {
            if let Some(chunk) = changes.chunks.get(&index) {
                for sector in (within..within + take).filter(|sector| chunk.own & (1 << sector) != 0) {
                    let source = (sector * SECTOR_BYTES) as usize;
                    let target = done + ((sector - within) * SECTOR_BYTES) as usize;
                    let length = SECTOR_BYTES as usize;
                    buf[target..target + length].copy_from_slice(&chunk.data[source..source + length]);
                }
            } else if changes.is_zeroed(index) {
                buf[done..done + (take * SECTOR_BYTES) as usize].fill(0);
            }
            done += (take * SECTOR_BYTES) as usize;
        });
        Ok(buf)
    }
}

/// `count` bits from bit `first`.
fn mask(first: u64, count: u64) -> u8 {
    (((1u16 << count) - 1) << first) as u8
}

#[async_trait(?Send)]
impl BlockDevice for ForkDevice {
    fn geometry(&self) -> Geometry {
        Geometry { zones: None, ..self.base.geometry() }
    }

    /// The guarantees of memory: the changes live as long as the fork.
    fn guarantees(&self) -> Guarantees {
        Guarantees { atomic_write_bytes: 512, durable_on_completion: true, ordered: true, discard: Discard::Zeroes }
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.read_over(at, buf, None).await
    }

    /// What the base has, without the zeroes made here, or what was written here, whichever comes first.
    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        let mut from = at;
        loop {
            let of_base = self.base.next_data(from).await?;
            let changes = self.changes.borrow();
            let first = changes.next_written(at).into_iter().chain(of_base).min();
            let Some(first) = first.filter(|first| first.0 < self.geometry().sectors) else { return Ok(None) };
            match changes.zeroed_end(first.0 / CHUNK_SECTORS) {
                Some(end) if !changes.chunks.contains_key(&(first.0 / CHUNK_SECTORS)) => {
                    from = Sector(end * CHUNK_SECTORS);
                }
                _ => {
                    let block = u64::from(self.geometry().block_bytes) / SECTOR_BYTES;
                    return Ok(Some(at.max(Sector(first.0 / block * block))));
                }
            }
        }
    }

    fn readings(&self) -> u32 {
        self.base.readings()
    }

    async fn read_as(&self, at: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        self.read_over(at, buf, Some(reading)).await
    }

    /// The correct data is kept here; the base does not change.
    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        if self.read_over(at, Buf::dirty(data.len()), None).await.is_ok_and(|usual| usual[..] == data[..]) {
            return Ok(false);
        }
        for reading in 0..self.readings() {
            let read = self.read_over(at, Buf::dirty(data.len()), Some(reading)).await;
            if read.is_ok_and(|read| read[..] == data[..]) {
                self.store(at, data.len() as u64 / SECTOR_BYTES, Some(&data));
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn write(&self, at: Sector, data: Data, _flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry().check(at, data.len() as u64)?;
        self.store(at, data.len() as u64 / SECTOR_BYTES, Some(&data));
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry().check(at, sectors.saturating_mul(SECTOR_BYTES))?;
        self.zero(at, sectors);
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("own_sectors", self.own_sectors())]
    }

    fn arrangement(&self) -> u32 {
        self.base.arrangement()
    }

    fn parts(&self) -> u32 {
        self.base.parts()
    }

    fn part_at(&self, sector: Sector) -> (u32, u64) {
        self.base.part_at(sector)
    }

    fn describe(&self) -> String {
        format!("fork / {}", self.base.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Image, Memory};
    use crate::rng::Rng;
    use crate::rt::{Executor, HostProfile};

    const SECTORS: u64 = 64;

    /// Aim: a fork reads like a private copy, and so does a fork of it, and the base stays as it was. Method: random
    /// requests on fork and plain copy, compared after each.
    #[test]
    fn a_fork_is_a_private_copy() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let mut rng = Rng::new(3);
        let mut bytes = vec![0; (SECTORS * SECTOR_BYTES) as usize];
        rng.fill(&mut bytes);
        let mut image = Image::default();
        image.write(Sector(0), &bytes);
        let base: Device = Rc::new(Memory::from_image(bytes.len() as u64, image));
        let done = executor.block_on(async {
            let fork = ForkDevice::new(base.clone());
            let mut copy = bytes.clone();
            let mut older: Option<(Rc<ForkDevice>, Vec<u8>)> = None;
            for step in 0..300u16 {
                let at = rng.below(SECTORS);
                let sectors = rng.between(1, SECTORS - at);
                let range = (at * SECTOR_BYTES) as usize..((at + sectors) * SECTOR_BYTES) as usize;
                match rng.below(4) {
                    0 => {
                        fork.discard(Sector(at), sectors).await.expect("in range");
                        copy[range.clone()].fill(0);
                    }
                    1 => {
                        copy[range.clone()].fill(step as u8);
                        let data = Data::from_slice(&copy[range.clone()]);
                        fork.write(Sector(at), data, WriteFlags::NONE).await.expect("in range");
                    }
                    2 if step % 50 == 0 => older = Some((fork.fork(), copy.clone())),
                    _ => {}
                }
                let read = fork.read(Sector(at), Buf::dirty(range.len())).await.expect("in range");
                assert_eq!(read[..], copy[range.clone()], "step {step}");
                if let Some((older, copy)) = &older {
                    let read = older.read(Sector(at), Buf::dirty(range.len())).await.expect("in range");
                    assert_eq!(read[..], copy[range], "step {step}");
                }
            }
            assert!(fork.own_sectors() > 0);
            fork.reset();
            for device in [fork as Device, base] {
                assert_eq!(device.read(Sector(0), Buf::dirty(bytes.len())).await.expect("in range")[..], bytes[..]);
            }
        });
        assert_eq!(done, Ok(()));
    }

    /// Aim: a search of a fork skips the holes of its base and what was discarded, and passes over nothing else. Method: random writes and
    /// discards on a sparse base and beside it on plain bytes; all that lies between two answers is zero. Then one long discard.
    #[test]
    fn holes_are_skipped() {
        const SECTORS: u64 = 4096;
        let executor = Executor::simulated(1, HostProfile::NONE);
        let mut rng = Rng::new(5);
        let (mut image, mut plain) = (Image::default(), vec![0; (SECTORS * SECTOR_BYTES) as usize]);
        for at in [3, 700, 701, 3999] {
            image.write(Sector(at), &[9; 512]);
            plain[(at * SECTOR_BYTES) as usize..][..512].fill(9);
        }
        let fork = ForkDevice::new(Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, image)));
        let done = executor.block_on(async {
            for step in 0..200 {
                let (mut at, mut jumps) = (Sector(rng.below(SECTORS)), 0);
                while let Some(data) = fork.next_data(at).await.expect("in range") {
                    let hole = at.byte_offset() as usize..data.byte_offset() as usize;
                    assert!(data >= at && plain[hole].iter().all(|&byte| byte == 0), "step {step}: {at}, {data}");
                    jumps += u32::from(data > at);
                    at = data + 1;
                }
                assert!(
                    plain[(at.byte_offset() as usize).min(plain.len())..].iter().all(|&byte| byte == 0),
                    "step {step}"
                );
                assert!(step > 0 || jumps > 0, "the search is broken");
                let at = rng.below(SECTORS);
                let most = if rng.chance(1, 2) { 4 } else { 512 };
                let sectors = rng.between(1, most).min(SECTORS - at);
                let range = (at * SECTOR_BYTES) as usize..((at + sectors) * SECTOR_BYTES) as usize;
                let fill = if rng.chance(1, 3) { 7 } else { 0 };
                plain[range.clone()].fill(fill);
                match fill {
                    0 => fork.discard(Sector(at), sectors).await,
                    _ => fork.write(Sector(at), Data::from_slice(&plain[range]), WriteFlags::NONE).await,
                }
                .expect("in range");
            }
            fork.discard(Sector(0), SECTORS).await.expect("in range");
            assert_eq!(fork.next_data(Sector(0)).await, Ok(None));
        });
        assert_eq!(done, Ok(()));
    }

    /// Aim: a discard, however long, takes no memory for each piece of it, and reads as zeroes until it is overwritten; parts of it
    /// that are discarded again add nothing. Method: one of the whole of a sparse device, counted, with writes and further discards in it.
    #[test]
    fn a_long_discard_is_short_in_memory() {
        const BYTES: u64 = 1 << 40;
        let executor = Executor::simulated(1, HostProfile::NONE);
        let done = executor.block_on(async {
            let mut image = Image::default();
            for at in [0, 77, BYTES / 2 / SECTOR_BYTES, BYTES / SECTOR_BYTES - 1] {
                image.write(Sector(at), &[9; 512]);
            }
            let fork = ForkDevice::new(Rc::new(Memory::from_image(BYTES, image)));
            let byte = async |fork: &ForkDevice, at: u64| {
                fork.read(Sector(at), Buf::dirty(512)).await.expect("in range").iter().fold(0, |all, byte| all | byte)
            };
            assert_eq!(byte(&fork, 77).await, 9);
            fork.write(Sector(77), Data::from_slice(&[5; 512]), WriteFlags::NONE).await.expect("in range");
            // But for a sector at each end.
            fork.discard(Sector(1), BYTES / SECTOR_BYTES - 2).await.expect("in range");
            assert_eq!(fork.own_sectors(), BYTES / SECTOR_BYTES - 2);
            let entries = |fork: &ForkDevice| {
                let changes = fork.changes.borrow();
                changes.chunks.len() + changes.zeroed.len()
            };
            assert!(entries(&fork) <= 3, "{}", entries(&fork));
            for (at, wanted) in [(0, 9), (77, 0), (BYTES / 2 / SECTOR_BYTES, 0), (BYTES / SECTOR_BYTES - 1, 9)] {
                assert_eq!(byte(&fork, at).await, wanted, "sector {at}");
            }
            let other = fork.fork();
            for at in [77, 4096, 1 << 30] {
                fork.write(Sector(at), Data::from_slice(&[3; 512]), WriteFlags::NONE).await.expect("in range");
                assert_eq!([byte(&fork, at - 1).await, byte(&fork, at).await, byte(&fork, at + 1).await], [0, 3, 0]);
                assert_eq!(byte(&other, at).await, 0);
            }
            assert_eq!(fork.own_sectors(), BYTES / SECTOR_BYTES - 2, "what is overwritten counts once");
            let read = fork.read(Sector(4090), Buf::dirty(16 * 512)).await.expect("in range");
            let wanted: Vec<u8> = (4090..4106).flat_map(|at| [if at == 4096 { 3 } else { 0 }; 512]).collect();
            assert_eq!(read[..], wanted[..]);
            for start in 0..100 {
                fork.discard(Sector(start * 8), 4096).await.expect("in range");
            }
            assert!(entries(&fork) <= 8, "{}", entries(&fork));
            assert_eq!([byte(&fork, 0).await, byte(&fork, 77).await, byte(&fork, 4096).await], [0, 0, 0]);
        });
        assert_eq!(done, Ok(()));
    }

    /// The fork checks requests as its base does.
    #[test]
    fn requests_out_of_range_fail() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let done = executor.block_on(async {
            let fork = ForkDevice::new(Rc::new(Memory::new(4096)));
            assert!(fork.discard(Sector(0), u64::MAX).await.is_err());
            assert!(fork.write(Sector(8), Data::zeroes(512), WriteFlags::NONE).await.is_err());
            assert!(fork.read(Sector(0), Buf::dirty(100)).await.is_err());
            assert_eq!(fork.own_sectors(), 0);
        });
        assert_eq!(done, Ok(()));
    }
}
