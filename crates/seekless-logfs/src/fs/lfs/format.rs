//! Bytes of an LFS volume: every structure, its encoder and its decoder. The page for readers is `FORMAT.md`.
//!
//! Everything that mkfs, mount, fsck and dump read or write goes through this file. Decoders accept any bytes and
//! return `None` or an error; they check only what a single structure can know about itself.

use crate::codec::{self, crc32c};
pub use crate::fs::logfs::format::*;
use crate::fs::logfs::format::{is_sealed, offset_of, seal};
use crate::fs::logfs::volume_name::label_text;
use crate::record;
use crate::units::{Ino, SECTOR_BYTES, Sector};

pub const VERSION: u32 = 1;

pub const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"SeekLFS1");
pub const CHECKPOINT_MAGIC: u64 = u64::from_le_bytes(*b"SeekCkpt");
pub const SUMMARY_MAGIC: u32 = u32::from_le_bytes(*b"SSum");

/// Sectors before the first segment: superblocks and checkpoints.
pub const HEAD_SECTORS: u64 = 128;
/// The first two superblock copies; the third fills the last block of the volume.
pub const SUPERBLOCK_SECTORS: [Sector; 2] = [Sector(0), Sector(96)];
/// The two checkpoint slots. Each holds two equal copies, one block each.
pub const CHECKPOINT_SECTORS: [Sector; 2] = [Sector(32), Sector(64)];

/// Internal files: their inodes live in the checkpoint.
pub const IMAP_INO: Ino = Ino(2);
pub const USAGE_INO: Ino = Ino(3);
pub const ORPHAN_INO: Ino = Ino(4);
record! {
    /// Parameters that never change after mkfs.
    pub struct Superblock {
        pub magic: u64,
        pub version: u32,
        /// CRC-32C of the block, this field counted as zero.
        pub crc: u32,
        pub uuid: [u8; 16],
        /// UTF-8, padded with zero bytes.
        pub label: [u8; 64],
        pub block_bytes: u32,
        pub segment_sectors: u32,
        pub segment_count: u64,
        pub first_segment: u64,
        pub volume_sectors: u64,
        /// Segments that files cannot fill, so that the cleaner always has room.
        pub reserve_segments: u32,
        /// Every partial segment starts and ends at a multiple of this many sectors.
        pub align_sectors: u32,
        /// Key of the directory hash (SipHash-2-4).
        pub hash_key: [u64; 2],
        pub created_seconds: i64,
        /// A reader that does not know one of these may still read and write.
        pub features_compatible: u32,
        /// A reader that does not know one of these must refuse.
        pub features_incompatible: u32,
        /// [`BlockDevice::arrangement`](crate::device::BlockDevice::arrangement) of the device; 0 where there is none, and in volumes of
        /// earlier builds.
        pub arrangement: u32,
    }
}

record! {
    /// A complete description of the volume at one moment, apart from what roll-forward adds.
    pub struct Checkpoint {
        pub magic: u64,
        /// CRC-32C of the block, this field counted as zero.
        pub crc: u32,
        pub flags: u32,
        pub uuid: [u8; 16],
        /// Counts checkpoints; the slot is `serial % 2`.
        pub serial: u64,
        pub seconds: i64,
        pub nanos: u32,
        /// CRC of the last partial segment before this position: the first link of the chain.
        pub log_chain: u32,
        /// Segment in which the log continues.
        pub log_segment: u64,
        pub log_offset: u32,
        pub reserved: u32,
        pub log_sequence: u64,
        /// Segment in which the log continues when `log_segment` is full.
        pub next_segment: u64,
        pub ino_cursor: u64,
        pub inode_count: u64,
        pub generation: u64,
        pub live_bytes: u64,
        pub unwritten_bytes: u64,
        pub imap: [u8; Inode::BYTES],
        pub usage: [u8; Inode::BYTES],
        pub orphans: [u8; Inode::BYTES],
    }
}

/// The volume was closed: nothing follows in the log.
pub const CHECKPOINT_CLEAN: u32 = 1;
/// The usage table is exact, and the log behind the checkpoint names every indirect block that it frees. A checkpoint
/// without this flag was written by a release that guaranteed neither, so a mount recounts.
pub const CHECKPOINT_EXACT: u32 = 2;
/// Sectors of a checkpoint inside the log.
pub const CHECKPOINT_SECTORS_IN_LOG: u64 = 2;

record! {
    /// Start of a partial segment: the atomic unit of the log.
    pub struct Summary {
        pub magic: u32,
        /// CRC-32C of the partial segment from the byte after this field to its end.
        pub crc: u32,
        /// CRC of the partial segment before this one in the log.
        pub chain: u32,
        pub flags: u32,
        pub uuid: [u8; 16],
        pub sequence: u64,
        /// Every partial segment up to this sequence number was durable when this one was assembled.
        pub durable_sequence: u64,
        pub segment: u64,
        /// Sectors from the start of the segment.
        pub offset: u32,
        /// Length of the partial segment with this summary.
        pub sectors: u32,
        /// Sectors of header and entries; the payload follows.
        pub summary_sectors: u32,
        pub entry_count: u32,
        pub next_segment: u64,
        /// Modification time of the youngest block in here, in nanoseconds since 1970.
        pub youngest: i64,
        pub ino_cursor: u64,
        pub inode_count: u64,
        pub generation: u64,
        pub unwritten_bytes: u64,
    }
}

/// First partial segment of a transaction.
pub const SUMMARY_FIRST: u32 = 1;
/// Last partial segment of a transaction, which commits it.
pub const SUMMARY_COMMIT: u32 = 2;
/// The transaction is a checkpoint.
pub const SUMMARY_CHECKPOINT: u32 = 4;

record! {
    /// One piece of the payload, or a change without payload.
    pub struct SummaryEntry {
        pub kind: u8,
        /// Of a block, the upper 8 bits of when it was written; 0 of everything else.
        pub written_high: u8,
        pub sectors: u16,
        pub count: u32,
        pub subject: u64,
        pub detail: u64,
    }
}

const _: () = assert!(Checkpoint::BYTES <= (CHECKPOINT_SECTORS_IN_LOG * SECTOR_BYTES) as usize);
const _: () = assert!(Superblock::BYTES <= BLOCK_BYTES);
const _: () = assert!(CHECKPOINT_SECTORS[1].0 + 2 * BLOCK_SECTORS <= SUPERBLOCK_SECTORS[1].0);

record! {
    /// State of one segment.
    pub struct Usage {
        pub live_bytes: u32,
        /// Serial of the first checkpoint in which the segment was empty; 0 while it is not empty, or never was used.
        pub empty_since: u32,
        /// Modification time of the youngest block, in nanoseconds since 1970.
        pub youngest: i64,
    }
}

pub const IMAP_ENTRIES_PER_BLOCK: u64 = (BLOCK_BYTES / 8) as u64;
pub const USAGES_PER_BLOCK: u64 = (BLOCK_BYTES / Usage::BYTES) as u64;

/// Bit of `features_incompatible`: entries of blocks say when a user wrote them.
pub const FEATURE_WRITTEN: u32 = 1;
pub const FEATURES_KNOWN: u32 = FEATURE_WRITTEN;

/// When a block was written: 1 and the time since the volume was made, in units of 2^20 nanoseconds. 40 bits; the
/// last number is that of all later times, too.
pub type Stamp = u64;

pub const STAMP_MAX: Stamp = (1 << 40) - 1;
pub const STAMP_SHIFT: u32 = 20;

/// A decoded [`SummaryEntry`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A block of a file; indirect blocks too.
    Block {
        ino: Ino,
        key: u64,
        sectors: u16,
        /// When a user wrote it, as a [`Stamp`]; 0 where that is not known.
        written: Stamp,
    },
    /// `count` inodes, two to a sector.
    Inodes {
        count: u32,
        sectors: u16,
    },
    /// The extended attributes of a file.
    Xattr {
        ino: Ino,
        sectors: u16,
    },
    /// A copy of the checkpoint that this transaction writes.
    Checkpoint {
        sectors: u16,
    },
    /// The inode number is free again.
    InodeFreed {
        ino: Ino,
    },
    OrphanAdded {
        ino: Ino,
    },
    OrphanRemoved {
        ino: Ino,
    },
    /// The blocks with keys `first..first + count` of the file became holes: data blocks, or indirect blocks of one level
    /// with all that was below them.
    Unmapped {
        ino: Ino,
        first: u64,
        count: u32,
    },
    /// Blocks `first..first + count` of the file became unwritten, where they were holes.
    Reserved {
        ino: Ino,
        first: u64,
        count: u32,
    },
    /// Live bytes that the segment lost in this transaction.
    SegmentFreed {
        segment: u64,
        bytes: u64,
    },
}

impl Item {
    const BLOCK: u8 = 1;
    const INODES: u8 = 2;
    const XATTR: u8 = 3;
    const CHECKPOINT: u8 = 4;
    const INODE_FREED: u8 = 16;
    const ORPHAN_ADDED: u8 = 17;
    const ORPHAN_REMOVED: u8 = 18;
    const UNMAPPED: u8 = 19;
    const RESERVED: u8 = 20;
    const SEGMENT_FREED: u8 = 21;

    /// The inode that the item is about, if it is about one.
    pub fn ino(self) -> Option<Ino> {
        match self {
            Item::Block { ino, .. }
            | Item::Xattr { ino, .. }
            | Item::InodeFreed { ino }
            | Item::OrphanAdded { ino }
            | Item::OrphanRemoved { ino }
            | Item::Unmapped { ino, .. }
            | Item::Reserved { ino, .. } => Some(ino),
            Item::Inodes { .. } | Item::Checkpoint { .. } | Item::SegmentFreed { .. } => None,
        }
    }

    /// Sectors of payload.
    pub fn sectors(self) -> u64 {
        match self {
            Item::Block { sectors, .. }
            | Item::Inodes { sectors, .. }
            | Item::Xattr { sectors, .. }
            | Item::Checkpoint { sectors } => u64::from(sectors),
            _ => 0,
        }
    }

    /// Live bytes of the payload just after it is written.
    pub fn live_bytes(self) -> u64 {
        match self {
            Item::Block { sectors, .. } | Item::Xattr { sectors, .. } => u64::from(sectors) * SECTOR_BYTES,
            Item::Inodes { count, .. } => u64::from(count) * Inode::BYTES as u64,
            _ => 0,
        }
    }

    pub fn to_entry(self) -> SummaryEntry {
        let entry = |kind, sectors, count, subject, detail| SummaryEntry {
            kind,
            written_high: 0,
            sectors,
            count,
            subject,
            detail,
        };
        match self {
            Item::Block { ino, key, sectors, written } => SummaryEntry {
                written_high: (written.min(STAMP_MAX) >> 32) as u8,
                ..entry(Self::BLOCK, sectors, written.min(STAMP_MAX) as u32, ino.0, key)
            },
            Item::Inodes { count, sectors } => entry(Self::INODES, sectors, count, 0, 0),
            Item::Xattr { ino, sectors } => entry(Self::XATTR, sectors, 0, ino.0, 0),
            Item::Checkpoint { sectors } => entry(Self::CHECKPOINT, sectors, 0, 0, 0),
            Item::InodeFreed { ino } => entry(Self::INODE_FREED, 0, 0, ino.0, 0),
            Item::OrphanAdded { ino } => entry(Self::ORPHAN_ADDED, 0, 0, ino.0, 0),
            Item::OrphanRemoved { ino } => entry(Self::ORPHAN_REMOVED, 0, 0, ino.0, 0),
            Item::Unmapped { ino, first, count } => entry(Self::UNMAPPED, 0, count, ino.0, first),
            Item::Reserved { ino, first, count } => entry(Self::RESERVED, 0, count, ino.0, first),
            Item::SegmentFreed { segment, bytes } => entry(Self::SEGMENT_FREED, 0, 0, segment, bytes),
        }
    }

    pub fn from_entry(entry: &SummaryEntry) -> Option<Item> {
        let (ino, sectors, count) = (Ino(entry.subject), entry.sectors, entry.count);
        let item = match entry.kind {
            Self::BLOCK if sectors > 0 => {
                let written = Stamp::from(entry.written_high) << 32 | Stamp::from(count);
                Item::Block { ino, key: entry.detail, sectors, written }
            }
            Self::INODES if u64::from(sectors) * INODES_PER_SECTOR >= u64::from(count) && count > 0 => {
                Item::Inodes { count, sectors }
            }
            Self::XATTR if sectors > 0 => Item::Xattr { ino, sectors },
            Self::CHECKPOINT if u64::from(sectors) == CHECKPOINT_SECTORS_IN_LOG => Item::Checkpoint { sectors },
            Self::INODE_FREED => Item::InodeFreed { ino },
            Self::ORPHAN_ADDED => Item::OrphanAdded { ino },
            Self::ORPHAN_REMOVED => Item::OrphanRemoved { ino },
            Self::UNMAPPED => Item::Unmapped { ino, first: entry.detail, count },
            Self::RESERVED => Item::Reserved { ino, first: entry.detail, count },
            Self::SEGMENT_FREED => Item::SegmentFreed { segment: entry.subject, bytes: entry.detail },
            _ => return None,
        };
        (item.to_entry() == *entry).then_some(item)
    }
}

impl Superblock {
    /// The superblock as the bytes of its block.
    pub fn to_block(self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        self.encode(&mut block);
        seal(&mut block, Self::FIELDS);
        block
    }

    /// `None` when `block` is not an intact superblock of a known version.
    pub fn from_block(block: &[u8]) -> Option<Superblock> {
        let superblock = Superblock::decode(block)?;
        (block.len() == BLOCK_BYTES && superblock.magic == SUPERBLOCK_MAGIC && is_sealed(block, Self::FIELDS))
            .then_some(superblock)
    }

    pub fn label_text(&self) -> String {
        label_text(&self.label)
    }
}

impl Checkpoint {
    /// The checkpoint as the bytes of one copy.
    pub fn to_block(self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        self.encode(&mut block);
        seal(&mut block, Self::FIELDS);
        block
    }

    /// `None` when `block` is not an intact checkpoint. Accepts a slot's copy, or the shorter copy in the log, which is
    /// the same bytes without the zeroes behind them.
    pub fn from_block(bytes: &[u8]) -> Option<Checkpoint> {
        if codec::get_at(bytes, 0) != Some(CHECKPOINT_MAGIC) {
            return None;
        }
        let padded: [u8; BLOCK_BYTES];
        let block = if bytes.len() == BLOCK_BYTES {
            bytes
        } else {
            let mut copy = [0; BLOCK_BYTES];
            copy.get_mut(..bytes.len())?.copy_from_slice(bytes);
            padded = copy;
            &padded
        };
        if is_sealed(block, Self::FIELDS) { Checkpoint::decode(block) } else { None }
    }
}

/// Where the bytes of a partial segment begin that its checksum covers.
pub const SUMMARY_CRC_FROM: usize = 8;

/// Seals a partial segment whose summary is encoded at the start of `partial`. Returns the checksum, which is
/// the next link of the chain.
pub fn seal_partial(partial: &mut [u8]) -> u32 {
    let crc = crc32c(&partial[SUMMARY_CRC_FROM..]);
    put_partial_crc(partial, crc);
    crc
}

/// Puts the checksum of the bytes from [`SUMMARY_CRC_FROM`] on into a partial segment.
pub fn put_partial_crc(partial: &mut [u8], crc: u32) {
    codec::put_at(partial, offset_of(Summary::FIELDS, "crc"), crc);
}

/// True when `partial`, all of a partial segment, is as it was sealed.
pub fn partial_is_sealed(partial: &[u8], summary: &Summary) -> bool {
    partial.len() > SUMMARY_CRC_FROM && crc32c(&partial[SUMMARY_CRC_FROM..]) == summary.crc
}

/// The entries of a partial segment, or `None` when a summary cannot hold them.
pub fn summary_items(partial: &[u8], summary: &Summary) -> Option<Vec<Item>> {
    let end = Summary::BYTES.checked_add((summary.entry_count as usize).checked_mul(SummaryEntry::BYTES)?)?;
    if end as u64 > u64::from(summary.summary_sectors) * SECTOR_BYTES || summary.summary_sectors > summary.sectors {
        return None;
    }
    let items: Option<Vec<Item>> = partial
        .get(Summary::BYTES..end)?
        .chunks_exact(SummaryEntry::BYTES)
        .map(|bytes| Item::from_entry(&SummaryEntry::decode(bytes)?))
        .collect();
    let items = items?;
    let payload: u64 = items.iter().map(|item| item.sectors()).sum();
    (u64::from(summary.summary_sectors) + payload <= u64::from(summary.sectors)).then_some(items)
}
