//! What a zoned store keeps in its two metadata zones. The page is `FORMAT.md`; a test compares its table with the record here.
//!
//! Invariants
//!   F1  Everything read is checked before it is trusted: magic, version, checksum, and that it belongs to this store.
//!   F2  A record is there whole or not at all: its checksum covers every byte of a copy, and there are two copies.

use crate::codec::{crc32c, get_at, put_at};
use crate::record;
use crate::units::SECTOR_BYTES;

/// Version of the format that is written.
pub const VERSION: u32 = 1;

pub const MAGIC: [u8; 8] = *b"SeekZone";

/// Unit of the places that can be written anywhere, and of the length of records: large enough for the blocks of any drive.
pub const BLOCK_BYTES: usize = 4096;
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;

/// Blocks at the front, and at the end, that can be written anywhere: what LFS has in fixed places.
pub const FRONT_BLOCKS: u64 = 16;
pub const END_BLOCKS: u64 = 1;
pub const FIXED_BLOCKS: u64 = FRONT_BLOCKS + END_BLOCKS;

/// The metadata zones are the first two.
pub const METADATA_ZONES: u32 = 2;

/// A span without a slot.
pub const NO_SLOT: u32 = u32::MAX;

/// [`Change::sectors`] of a span that may continue: its zone's write pointer says how far it is written.
pub const OPEN: u32 = u32::MAX;

/// Bit of [`RecordHead::flags`]: the record holds the whole state, and records before it are not needed.
pub const SNAPSHOT: u32 = 1;

record! {
    /// The head of each copy of a record. Changes, numbers of fixed blocks and the blocks follow.
    pub struct RecordHead {
        pub magic: [u8; 8],
        pub version: u32,
        pub crc: u32,
        pub uuid: [u8; 16],
        pub sequence: u64,
        pub flags: u32,
        pub copy: u32,
        pub bytes: u32,
        pub change_count: u32,
        pub block_count: u32,
        pub zone_count: u32,
        pub zone_sectors: u64,
        pub capacity_sectors: u64,
        pub span_sectors: u64,
        pub span_count: u32,
        pub reserved: u32,
    }
}

record! {
    /// A span is in another slot from now on, or in none, or does not continue where it is.
    pub struct Change {
        pub span: u32,
        pub slot: u32,
        pub sectors: u32,
    }
}

/// Offset of the checksum in a copy.
const CRC_AT: usize = 12;

/// What a record says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetadataRecord {
    pub head: RecordHead,
    pub changes: Vec<Change>,
    /// Fixed blocks by number, with their content.
    pub blocks: Vec<(u32, Box<[u8]>)>,
}

/// Bytes of one copy of a record.
pub fn copy_bytes(changes: usize, blocks: usize) -> usize {
    (RecordHead::BYTES + changes * Change::BYTES + blocks * 4).next_multiple_of(BLOCK_BYTES) + blocks * BLOCK_BYTES
}

impl MetadataRecord {
    /// Both copies, one after the other. The caller's `head` needs no counts, lengths and checksums.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = copy_bytes(self.changes.len(), self.blocks.len());
        let mut both = vec![0; 2 * bytes];
        for (copy, target) in both.chunks_exact_mut(bytes).enumerate() {
            let head = RecordHead {
                copy: copy as u32,
                crc: 0,
                bytes: bytes as u32,
                change_count: self.changes.len() as u32,
                block_count: self.blocks.len() as u32,
                ..self.head
            };
            head.encode(target);
            let mut at = RecordHead::BYTES;
            for change in &self.changes {
                change.encode(&mut target[at..]);
                at += Change::BYTES;
            }
            for (number, _) in &self.blocks {
                put_at(target, at, *number);
                at += 4;
            }
            at = at.next_multiple_of(BLOCK_BYTES);
            for (_, content) in &self.blocks {
                target[at..at + BLOCK_BYTES].copy_from_slice(content);
                at += BLOCK_BYTES;
            }
            let crc = crc32c(target);
            put_at(target, CRC_AT, crc);
        }
        both
    }

    /// The record whose copy `bytes` is; `None` when it is not intact (F1).
    pub fn decode(bytes: &[u8]) -> Option<MetadataRecord> {
        let head = head_of(bytes)?;
        if head.bytes as usize != bytes.len() {
            return None;
        }
        let mut zeroed = bytes.to_vec();
        put_at(&mut zeroed, CRC_AT, 0_u32);
        if crc32c(&zeroed) != head.crc {
            return None;
        }
        let (changes, blocks) = (head.change_count as usize, head.block_count as usize);
        let changes_at = RecordHead::BYTES;
        let numbers_at = changes_at + changes * Change::BYTES;
        let blocks_at = (numbers_at + blocks * 4).next_multiple_of(BLOCK_BYTES);
        let changes = (0..changes).map(|index| Change::decode(&bytes[changes_at + index * Change::BYTES..]));
        let blocks = (0..blocks).map(|index| {
            let at = blocks_at + index * BLOCK_BYTES;
            Some((get_at(bytes, numbers_at + index * 4)?, bytes.get(at..at + BLOCK_BYTES)?.into()))
        });
        Some(MetadataRecord { head, changes: changes.collect::<Option<_>>()?, blocks: blocks.collect::<Option<_>>()? })
    }
}

/// The head at the start of `bytes`, if it looks like one: its checksum is not compared, but its numbers fit together (F1).
pub fn head_of(bytes: &[u8]) -> Option<RecordHead> {
    let head = RecordHead::decode(bytes)?;
    let fits = (head.block_count as u64) <= FIXED_BLOCKS
        && copy_bytes(head.change_count as usize, head.block_count as usize) == head.bytes as usize;
    (head.magic == MAGIC && head.version == VERSION && head.copy < 2 && fits).then_some(head)
}
