//! What RAID-1 and RAID-5 keep on their members besides data. The page is `FORMAT.md`; a test compares its tables
//! with the records here.
//!
//! Invariants
//!   F1  Everything read is checked before it is trusted: magic, version, checksum, and that it belongs to this array.
//!   F2  No structure exceeds its place, whatever numbers a superblock holds.

use crate::codec::{crc32c, get_at, put_at};
use crate::record;
use crate::units::SECTOR_BYTES;

/// Version of the format that is written.
pub const VERSION: u32 = 1;

/// Limit of members: the superblock has room for the states of this many.
pub const MEMBERS_MAX: usize = 64;

/// Unit in which metadata is written: large enough for the blocks of any drive.
pub const BLOCK_BYTES: u64 = 4096;
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES / SECTOR_BYTES;

/// Sectors of the two superblock slots.
pub const SUPERBLOCKS: [u64; 2] = [0, BLOCK_SECTORS];

/// First sector of the two copies of the bitmap.
pub const BITMAP_START: u64 = 2 * BLOCK_SECTORS;

/// First sector of copy 0 or 1 of a bitmap of `sectors`; of 2, the first behind them.
pub fn bitmap_start(copy: u64, sectors: u64) -> u64 {
    BITMAP_START + copy * sectors
}

pub const MAGIC: [u8; 8] = *b"SeekRAID";
pub const RECORD_MAGIC: [u8; 8] = *b"SeekRJnl";

record! {
    /// Parameters and state of the array.
    pub struct Superblock {
        pub magic: [u8; 8],
        pub version: u32,
        pub crc: u32,
        pub uuid: [u8; 16],
        pub generation: u64,
        pub level: u32,
        pub member_count: u32,
        pub slot: u32,
        pub flags: u32,
        pub unit_sectors: u64,
        pub row_count: u64,
        pub region_rows: u64,
        pub bitmap_sectors: u64,
        pub journal_start: u64,
        pub journal_sectors: u64,
        pub data_start: u64,
        pub journal_sequence: u64,
        pub journal_position: u64,
        pub bitmap_epoch: u64,
        pub rebuilt_rows: u64,
        pub states: [u8; 64],
        pub known: [u64; 480],
        pub failed_at: u64,
    }
}

const _: () = assert!(Superblock::BYTES <= BLOCK_BYTES as usize);

/// Limit of the ranges in [`Superblock::known`], each with its start and end.
pub const KNOWN_MAX: usize = 240;

/// Bits of [`Superblock::flags`].
pub const FLAG_JOURNAL_ALWAYS: u32 = 1;

record! {
    /// A sector of the bitmap: the bits of some regions.
    pub struct BitmapSector {
        pub crc: u32,
        pub index: u32,
        pub uuid_start: u64,
        pub epoch: u64,
        pub bits: [u64; 61],
    }
}

const _: () = assert!(BitmapSector::BYTES == SECTOR_BYTES as usize);

/// Regions covered by one sector of the bitmap.
pub const REGIONS_PER_SECTOR: u64 = 61 * 64;

record! {
    /// The head of a record of the journal.
    pub struct RecordHead {
        pub magic: [u8; 8],
        pub crc: u32,
        pub payload_crc: u32,
        pub uuid: [u8; 16],
        pub sequence: u64,
        pub head_sectors: u32,
        pub payload_sectors: u32,
        pub entry_count: u32,
        pub reserved: u32,
    }
}

record! {
    /// A write that a record of the journal contains.
    pub struct RecordEntry {
        pub at: u64,
        pub sectors: u32,
        pub member: u16,
        pub kind: u16,
    }
}

/// [`RecordEntry::kind`]: sectors of the payload, in order.
pub const KIND_DATA: u16 = 0;
/// [`RecordEntry::kind`]: zeroes, which take no payload.
pub const KIND_ZEROES: u16 = 1;

/// Offset of the checksum in a superblock, and in the head of a record.
const SUPERBLOCK_CRC: usize = 12;
const HEAD_CRC: usize = 8;

/// Checksum of `bytes` with the four bytes at `field` as zero.
fn crc_without(bytes: &[u8], field: usize) -> u32 {
    let mut copy = bytes.to_vec();
    put_at(&mut copy, field, 0u32);
    crc32c(&copy)
}

/// Why there is no superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoSuperblock {
    /// Nothing resembles one.
    Other,
    /// There is one, and this is wrong with it.
    Bad(String),
}

impl Superblock {
    /// The block as it is written.
    pub fn to_block(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES as usize];
        self.encode(&mut block);
        let crc = crc_without(&block, SUPERBLOCK_CRC);
        put_at(&mut block, SUPERBLOCK_CRC, crc);
        block
    }

    /// The superblock in `block`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn from_block(block: &[u8]) -> Result<Superblock, NoSuperblock> {
        let superblock = Superblock::decode(block).filter(|found| found.magic == MAGIC).ok_or(NoSuperblock::Other)?;
        if superblock.crc != crc_without(block, SUPERBLOCK_CRC) {
            return Err(NoSuperblock::Bad("its checksum is wrong".to_string()));
        }
        if superblock.version != VERSION {
            let found = superblock.version;
            return Err(NoSuperblock::Bad(format!(
                "it is of version {found}, and this program knows version {VERSION}"
            )));
        }
        superblock.check().map_err(NoSuperblock::Bad)?;
        Ok(superblock)
    }

    /// F2: the numbers are consistent. An intact checksum does not prove that this code wrote them.
    fn check(&self) -> Result<(), String> {
        let bad = |what: &str| Err(format!("its {what} cannot be"));
        let count = self.member_count as usize;
        if !(2..=MEMBERS_MAX).contains(&count) || self.slot >= self.member_count || !matches!(self.level, 1 | 5) {
            return bad("level, member count or slot");
        }
        if self.unit_sectors == 0 || self.row_count == 0 || self.region_rows == 0 {
            return bad("unit, row count or region");
        }
        // Counters that only increase, beyond any value that an array reaches.
        if [self.generation, self.journal_sequence, self.bitmap_epoch].iter().any(|&number| number > u64::MAX / 2) {
            return bad("generation, journal sequence or bitmap epoch");
        }
        let regions = self.row_count.div_ceil(self.region_rows);
        if self.bitmap_sectors > self.journal_start / 2
            || regions > self.bitmap_sectors.saturating_mul(REGIONS_PER_SECTOR)
        {
            return bad("bitmap size");
        }
        let ends = [
            bitmap_start(2, self.bitmap_sectors) <= self.journal_start,
            self.journal_start.checked_add(self.journal_sectors).is_some_and(|end| end <= self.data_start),
            self.journal_position <= self.journal_sectors,
            self.rebuilt_rows <= self.row_count,
        ];
        let size = u128::from(self.row_count) * u128::from(self.unit_sectors) * u128::from(self.member_count)
            + u128::from(self.data_start);
        if ends.contains(&false) || size * u128::from(SECTOR_BYTES) > u128::from(u64::MAX) {
            return bad("layout");
        }
        // In order, with gaps between them; the rest is zero.
        let end = self.row_count * self.unit_sectors;
        let mut least = 0;
        let ranges = self.known.chunks(2).take_while(|range| range[1] > 0).count();
        let (ranges, rest) = self.known.split_at(2 * ranges);
        for range in ranges.chunks(2) {
            if range[0] < least || range[0] >= range[1] || range[1] > end {
                return bad("ranges that are known");
            }
            least = range[1] + 1;
        }
        if rest.iter().any(|&number| number != 0) {
            return bad("ranges that are known");
        }
        match self.states[..count].iter().all(|&state| state <= 2) {
            true => Ok(()),
            false => bad("member states"),
        }
    }
}

impl BitmapSector {
    pub fn to_bytes(mut self) -> [u8; SECTOR_BYTES as usize] {
        let mut bytes = [0; SECTOR_BYTES as usize];
        self.encode(&mut bytes);
        self.crc = crc32c(&bytes[4..]);
        put_at(&mut bytes, 0, self.crc);
        bytes
    }

    /// The sector with this index and epoch, for the array whose UUID begins with `uuid_start`; `None` when it is
    /// damaged or of another array.
    pub fn from_bytes(bytes: &[u8], index: u64, epoch: u64, uuid_start: u64) -> Option<BitmapSector> {
        let sector = BitmapSector::decode(bytes)?;
        let is_good = sector.crc == crc32c(bytes.get(4..SECTOR_BYTES as usize)?)
            && u64::from(sector.index) == index
            && sector.epoch == epoch
            && sector.uuid_start == uuid_start;
        is_good.then_some(sector)
    }
}

/// The first half of a UUID, which identifies the array in bitmap sectors.
pub fn uuid_start(uuid: &[u8; 16]) -> u64 {
    get_at(uuid, 0).unwrap_or_default()
}

/// Sectors of the head of a record with this many entries.
pub fn head_sectors(entries: usize) -> u64 {
    let bytes = (RecordHead::BYTES + entries * RecordEntry::BYTES) as u64;
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_SECTORS
}

impl RecordHead {
    /// The head and its entries as they are written.
    pub fn to_bytes(self, entries: &[RecordEntry]) -> Vec<u8> {
        let mut bytes = vec![0; (u64::from(self.head_sectors) * SECTOR_BYTES) as usize];
        self.encode(&mut bytes);
        for (index, entry) in entries.iter().enumerate() {
            entry.encode(&mut bytes[RecordHead::BYTES + index * RecordEntry::BYTES..]);
        }
        let crc = crc_without(&bytes, HEAD_CRC);
        put_at(&mut bytes, HEAD_CRC, crc);
        bytes
    }

    /// The sizes in the first block of a head, if it claims to be record `sequence` of the array `uuid`. Nothing else
    /// is checked yet.
    pub fn peek(block: &[u8], uuid: &[u8; 16], sequence: u64) -> Option<RecordHead> {
        let head = RecordHead::decode(block)?;
        let is_right = head.magic == RECORD_MAGIC
            && head.uuid == *uuid
            && head.sequence == sequence
            && u64::from(head.head_sectors) == head_sectors(head.entry_count as usize);
        is_right.then_some(head)
    }

    /// The entries of a record whose head is `bytes` and whose payload follows, or `None` when either is damaged.
    pub fn entries(&self, bytes: &[u8], payload: &[u8]) -> Option<Vec<RecordEntry>> {
        if bytes.len() < RecordHead::BYTES
            || self.crc != crc_without(bytes, HEAD_CRC)
            || self.payload_crc != crc32c(payload)
        {
            return None;
        }
        let entries: Option<Vec<RecordEntry>> = (0..self.entry_count as usize)
            .map(|index| RecordEntry::decode(bytes.get(RecordHead::BYTES + index * RecordEntry::BYTES..)?))
            .collect();
        let entries = entries?;
        let data = entries.iter().filter(|entry| entry.kind == KIND_DATA).map(|entry| u64::from(entry.sectors));
        (data.sum::<u64>() * SECTOR_BYTES == payload.len() as u64).then_some(entries)
    }
}
