//! A device with zones over any device, whose write pointers survive power cuts: what power-cut, damage and fault tests of everything
//! that uses zones run on.
//!
//! Over a crash device it has the states that a zoned device can be in after a cut, and no others:
//!
//! * What was not flushed is lost from some place between the last flushed write pointer and the newest one: the blocks before that
//!   place are there, and none behind it. So a torn write leaves its beginning.
//! * Zones lose independently of each other.
//! * A reset is there or not; if it is not, neither is anything that was written to the zone since.
//!
//! How: each block has a trailer with the generation of its zone and a checksum. A reset begins a new generation, in the other one of two
//! places that a zone has. Trailers are chained, so that what a cut left behind the first gap is no continuation of what is written
//! there later. After a cut the write pointer is at that gap.

use std::cell::RefCell;
use std::rc::Rc;

use async_trait::async_trait;

use crate::codec::{crc32c, crc32c_append, get_at, put_at};
use crate::device::{
    BlockDevice, Buf, Data, Device, DeviceError, Discard, Geometry, Guarantees, WriteFlags, ZoneAction, ZoneInfo,
    ZoneState, Zoned, Zones,
};
use crate::rt::Gate;
use crate::units::{SECTOR_BYTES, Sector};

const BLOCK: usize = 4096;
const BLOCK_SECTORS: u64 = BLOCK as u64 / SECTOR_BYTES;
/// A block and its trailer.
const STORED_SECTORS: u64 = 2 * BLOCK_SECTORS;
/// Copies of each zone's head.
const HEADS: u64 = 2;
const HEAD_MAGIC: u64 = 0x6461_6548_656e_6f5a;
const TRAILER_MAGIC: u64 = 0x6961_7254_656e_6f5a;

/// See the module.
pub struct StoredZones {
    below: Device,
    zones: Zones,
    state: RefCell<Vec<Zone>>,
    /// Heads are written by one flush or change of a zone at a time.
    heads: Gate,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Zone {
    generation: u64,
    /// Blocks written, or being written.
    written: u64,
    /// Of these, the ones that are complete.
    complete: u64,
    /// Of these, the ones that a flush has made durable.
    durable: u64,
    /// What the trailer of the next block depends on.
    chain: u32,
    is_full: bool,
    /// Changed since its head was written.
    is_changed: bool,
    /// Its last reset may not be durable.
    reset_pending: bool,
}

impl StoredZones {
    /// Bytes that the device below needs.
    pub fn bytes(zones: &Zones) -> u64 {
        let blocks = zones.capacity_sectors / BLOCK_SECTORS;
        u64::from(zones.count) * (HEADS * BLOCK_SECTORS + 2 * blocks * STORED_SECTORS) * SECTOR_BYTES
    }

    /// # Errors
    /// Those of the device.
    ///
    /// # Panics
    /// When the zones do not consist of blocks of 4 KiB.
    pub async fn open(below: Device, zones: Zones) -> Result<Rc<StoredZones>, DeviceError> {
        assert!(zones.capacity_sectors.is_multiple_of(BLOCK_SECTORS), "zones of whole blocks");
        assert!(zones.zone_sectors.is_multiple_of(BLOCK_SECTORS), "zones of whole blocks");
        let device = StoredZones { below, zones, state: RefCell::default(), heads: Gate::new() };
        for zone in 0..zones.count {
            let found = device.find(zone).await?;
            device.state.borrow_mut().push(found);
        }
        Ok(Rc::new(device))
    }

    fn head_at(&self, zone: u32, copy: u64) -> Sector {
        Sector((copy * u64::from(self.zones.count) + u64::from(zone)) * BLOCK_SECTORS)
    }

    fn stored_at(&self, zone: u32, generation: u64, block: u64) -> Sector {
        let blocks = self.zones.capacity_sectors / BLOCK_SECTORS;
        let heads = HEADS * u64::from(self.zones.count) * BLOCK_SECTORS;
        Sector(heads + ((u64::from(zone) * 2 + generation % 2) * blocks + block) * STORED_SECTORS)
    }

    /// The zone as it is after a cut.
    async fn find(&self, zone: u32) -> Result<Zone, DeviceError> {
        let mut best = Zone::default();
        for copy in 0..HEADS {
            let Ok(bytes) = self.below.read(self.head_at(zone, copy), Buf::dirty(BLOCK)).await else { continue };
            let field = |at: usize| get_at::<u64>(&bytes, at).unwrap_or(0);
            if field(0) == HEAD_MAGIC && field(32) == u64::from(crc32c(&bytes[..32])) {
                let (generation, durable, is_full) = (field(8), field(16), field(24) == 1);
                let head = Zone { generation, written: durable, durable, is_full, ..Zone::default() };
                let is_newer = (generation, durable, is_full) > (best.generation, best.durable, best.is_full);
                best = if is_newer { head } else { best };
            }
        }
        best.chain = match best.written {
            0 => chain_start(best.generation),
            written => self.chain_at(zone, best.generation, written - 1).await?,
        };
        // A block of the next generation implies the reset.
        let next = best.generation + 1;
        if self.next_chain(zone, next, 0, chain_start(next)).await?.is_some() {
            best = Zone { generation: next, chain: chain_start(next), ..Zone::default() };
        }
        let blocks = self.zones.capacity_sectors / BLOCK_SECTORS;
        while best.written < blocks
            && let Some(chain) = self.next_chain(zone, best.generation, best.written, best.chain).await?
        {
            (best.written, best.chain) = (best.written + 1, chain);
        }
        best.is_full |= best.written == blocks;
        best.complete = best.written;
        best.is_changed = best.written != best.durable;
        Ok(best)
    }

    /// A block and its trailer.
    async fn stored(&self, zone: u32, generation: u64, block: u64) -> Result<Option<Buf>, DeviceError> {
        match self.below.read(self.stored_at(zone, generation, block), Buf::dirty(2 * BLOCK)).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_of_medium() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The chain behind a block that is durable, 0 if its trailer is lost.
    async fn chain_at(&self, zone: u32, generation: u64, block: u64) -> Result<u32, DeviceError> {
        let bytes = self.stored(zone, generation, block).await?;
        Ok(bytes.and_then(|bytes| get_at::<u64>(&bytes, BLOCK + 24)).unwrap_or(0) as u32)
    }

    /// The chain behind a block, if it was written behind one with the chain `before`.
    async fn next_chain(
        &self,
        zone: u32,
        generation: u64,
        block: u64,
        before: u32,
    ) -> Result<Option<u32>, DeviceError> {
        let Some(bytes) = self.stored(zone, generation, block).await? else { return Ok(None) };
        let field = |at: usize| get_at::<u64>(&bytes, BLOCK + at).unwrap_or(0);
        let (crc, chain) = (crc32c(&bytes[..BLOCK]), chain_behind(before, &bytes[..BLOCK]));
        let is_right = field(0) == TRAILER_MAGIC && field(8) == generation;
        Ok((is_right && field(16) == u64::from(crc) && field(24) == u64::from(chain)).then_some(chain))
    }

    async fn write_head(&self, zone: u32) -> Result<(), DeviceError> {
        let Zone { generation, durable, is_full, .. } = self.state.borrow()[zone as usize];
        let mut bytes = Buf::zeroed(BLOCK);
        for (at, value) in [(0, HEAD_MAGIC), (8, generation), (16, durable), (24, u64::from(is_full))] {
            put_at(&mut bytes, at, value);
        }
        let crc = u64::from(crc32c(&bytes[..32]));
        put_at(&mut bytes, 32, crc);
        let bytes = bytes.freeze();
        for copy in 0..HEADS {
            self.below.write(self.head_at(zone, copy), bytes.clone(), WriteFlags::NONE).await?;
        }
        Ok(())
    }

    async fn flush_alone(&self) -> Result<(), DeviceError> {
        let before = self.state.borrow().clone();
        self.below.flush().await?;
        for (zone, before) in before.iter().enumerate().filter(|(_, zone)| zone.is_changed) {
            {
                let mut state = self.state.borrow_mut();
                let now = &mut state[zone];
                if now.generation != before.generation {
                    continue;
                }
                (now.durable, now.reset_pending) = (before.complete, false);
                now.is_changed = now.written != before.complete;
            }
            self.write_head(zone as u32).await?;
        }
        Ok(())
    }

    fn check_zone(&self, zone: u32) -> Result<(), DeviceError> {
        let problem = "there is no such zone";
        if zone < self.zones.count { Ok(()) } else { Err(DeviceError::Zone { zone, problem }) }
    }

    /// Takes the place for `blocks` at the write pointer.
    fn take(&self, zone: u32, blocks: u64) -> Result<(u64, u64), DeviceError> {
        let mut state = self.state.borrow_mut();
        let active = state.iter().filter(|zone| zone.written > 0 && !zone.is_full).count();
        let limits = [self.zones.open_max, self.zones.active_max].into_iter().filter(|limit| *limit > 0);
        let found = &mut state[zone as usize];
        if found.is_full {
            return Err(DeviceError::Zone { zone, problem: "it is full; reset it first" });
        }
        if found.written + blocks > self.zones.capacity_sectors / BLOCK_SECTORS {
            return Err(DeviceError::Zone { zone, problem: "the write passes its capacity" });
        }
        if found.written == 0 && limits.min().is_some_and(|limit| active >= limit as usize) {
            return Err(DeviceError::Zone { zone, problem: "too many zones are active; finish or reset one of them" });
        }
        let first = found.written;
        found.written += blocks;
        found.is_full = found.written == self.zones.capacity_sectors / BLOCK_SECTORS;
        found.is_changed = true;
        Ok((first, found.generation))
    }

    async fn store(
        &self,
        zone: u32,
        first: u64,
        generation: u64,
        data: &[u8],
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        let mut stored = Buf::zeroed(2 * data.len());
        let before = self.state.borrow()[zone as usize].chain;
        let mut chain = before;
        for (block, target) in data.chunks_exact(BLOCK).zip(stored.chunks_exact_mut(2 * BLOCK)) {
            target[..BLOCK].copy_from_slice(block);
            chain = chain_behind(chain, block);
            let crc = u64::from(crc32c(block));
            for (at, value) in [(0, TRAILER_MAGIC), (8, generation), (16, crc), (24, u64::from(chain))] {
                put_at(target, BLOCK + at, value);
            }
        }
        self.state.borrow_mut()[zone as usize].chain = chain;
        let result = self.below.write(self.stored_at(zone, generation, first), stored.freeze(), flags).await;
        let mut state = self.state.borrow_mut();
        let found = &mut state[zone as usize];
        match &result {
            Ok(()) => found.complete = first + (data.len() / BLOCK) as u64,
            Err(_) => (found.written, found.is_full, found.chain) = (first, false, before),
        }
        result
    }
}

/// The chain before the first block of a generation.
fn chain_start(generation: u64) -> u32 {
    crc32c(&generation.to_le_bytes())
}

fn chain_behind(before: u32, block: &[u8]) -> u32 {
    crc32c_append(before, block)
}

#[async_trait(?Send)]
impl BlockDevice for StoredZones {
    fn geometry(&self) -> Geometry {
        let below = self.below.geometry();
        Geometry {
            sectors: u64::from(self.zones.count) * self.zones.zone_sectors,
            block_bytes: BLOCK as u32,
            request_bytes_max: below.request_bytes_max / 2,
            zones: Some(self.zones),
        }
    }

    fn guarantees(&self) -> Guarantees {
        let below = self.below.guarantees();
        Guarantees { atomic_write_bytes: BLOCK as u32, ordered: false, discard: Discard::Ignored, ..below }
    }

    fn zoned(&self) -> Option<&dyn Zoned> {
        Some(self)
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry().check(at, buf.len() as u64)?;
        for (number, target) in buf.chunks_exact_mut(BLOCK).enumerate() {
            let sector = at + number as u64 * BLOCK_SECTORS;
            let zone = self.zones.zone_of(sector);
            let block = (sector - self.zones.start(zone)) / BLOCK_SECTORS;
            let Zone { generation, written, .. } = self.state.borrow()[zone as usize];
            if block < written {
                let read = self.below.read(self.stored_at(zone, generation, block), Buf::dirty(BLOCK)).await?;
                target.copy_from_slice(&read);
            } else {
                target.fill(0);
            }
        }
        Ok(buf)
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry().check(at, data.len() as u64)?;
        let zone = self.zones.zone_of(at);
        let pointer = self.zone(zone)?.pointer;
        if at != pointer {
            return Err(DeviceError::NotAtWritePointer { at, zone, pointer });
        }
        let (first, generation) = self.take(zone, (data.len() / BLOCK) as u64)?;
        self.store(zone, first, generation, &data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let _pass = self.heads.enter().await;
        self.flush_alone().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.geometry().check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)
    }

    fn describe(&self) -> String {
        format!("zones over {}", self.below.describe())
    }
}

#[async_trait(?Send)]
impl Zoned for StoredZones {
    fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        self.check_zone(zone)?;
        let Zone { written, is_full, .. } = self.state.borrow()[zone as usize];
        let start = self.zones.start(zone);
        Ok(match (is_full, written) {
            (true, _) => ZoneInfo { state: ZoneState::Full, pointer: start + self.zones.capacity_sectors },
            (_, 0) => ZoneInfo { state: ZoneState::Empty, pointer: start },
            _ => ZoneInfo { state: ZoneState::OpenedImplicitly, pointer: start + written * BLOCK_SECTORS },
        })
    }

    async fn append(&self, zone: u32, data: Data, flags: WriteFlags) -> Result<Sector, DeviceError> {
        self.check_zone(zone)?;
        let (first, generation) = self.take(zone, (data.len() / BLOCK) as u64)?;
        self.store(zone, first, generation, &data, flags).await?;
        Ok(self.zones.start(zone) + first * BLOCK_SECTORS)
    }

    async fn manage(&self, zone: u32, action: ZoneAction) -> Result<(), DeviceError> {
        self.check_zone(zone)?;
        let _pass = self.heads.enter().await;
        match action {
            ZoneAction::Open | ZoneAction::Close => return Ok(()),
            ZoneAction::Finish => {
                let mut state = self.state.borrow_mut();
                (state[zone as usize].is_full, state[zone as usize].is_changed) = (true, true);
            }
            ZoneAction::Reset => {
                // The place of the new generation is that of the one before the last: nothing may need it any more.
                if self.state.borrow()[zone as usize].reset_pending {
                    self.flush_alone().await?;
                }
                let mut state = self.state.borrow_mut();
                let found = &mut state[zone as usize];
                let generation = found.generation + 1;
                let chain = chain_start(generation);
                *found = Zone { generation, chain, reset_pending: true, is_changed: true, ..Zone::default() };
            }
        }
        self.write_head(zone).await
    }
}
