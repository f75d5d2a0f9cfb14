//! Bytes of an LFS volume: every structure, its encoder and its decoder. The page for readers is `FORMAT.md`.
//!
//! Everything that mkfs, mount, fsck and dump read or write goes through this file. Decoders take any bytes and
//! answer with `None` or an error; they check what a single structure can know about itself, and nothing more.

use super::layout::FILE_BYTES_MAX;
use crate::codec::{self, crc32c, crc32c_append};
use crate::fs::FileKind;
use crate::record;
use crate::units::{Ino, SECTOR_BYTES, Sector, WallTime};

/// Bytes of a file block, an indirect block and every other metadata block.
pub const BLOCK_BYTES: usize = 4096;
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;

pub const VERSION: u32 = 1;

pub const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"SeekLFS1");
pub const CHECKPOINT_MAGIC: u64 = u64::from_le_bytes(*b"SeekCkpt");
pub const SUMMARY_MAGIC: u32 = u32::from_le_bytes(*b"SSum");
pub const INODE_MAGIC: u32 = u32::from_le_bytes(*b"SIno");
pub const LEAF_MAGIC: u32 = u32::from_le_bytes(*b"SDir");

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
/// First inode number that a user's file can have, besides the root.
pub const FIRST_FREE_INO: u64 = 16;

record! {
    /// What never changes after mkfs.
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
        /// Where the log goes on.
        pub log_segment: u64,
        pub log_offset: u32,
        pub reserved: u32,
        pub log_sequence: u64,
        /// Where the log goes on when `log_segment` is full.
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
    /// What one piece of the payload is, or a change without payload.
    pub struct SummaryEntry {
        pub kind: u8,
        pub reserved: u8,
        pub sectors: u16,
        pub count: u32,
        pub subject: u64,
        pub detail: u64,
    }
}

record! {
    /// An inode.
    pub struct Inode {
        pub magic: u32,
        /// CRC-32C of the inode, this field counted as zero.
        pub crc: u32,
        pub ino: u64,
        pub generation: u32,
        /// Type and permissions as in Unix.
        pub mode: u16,
        pub flags: u16,
        pub links: u32,
        pub uid: u32,
        pub gid: u32,
        /// Device number of a device node; number of entries of a directory.
        pub special: u32,
        pub size: u64,
        /// Bytes of storage that the file's blocks use.
        pub bytes_used: u64,
        pub atime_seconds: i64,
        pub atime_nanos: u32,
        pub mtime_seconds: i64,
        pub mtime_nanos: u32,
        pub ctime_seconds: i64,
        pub ctime_nanos: u32,
        pub btime_seconds: i64,
        pub btime_nanos: u32,
        /// Of a directory: the directory that holds it. The root is its own parent.
        pub parent: u64,
        pub xattr: [u8; Pointer::BYTES],
        /// Block pointers, or the target of a short symbolic link.
        pub map: [u8; POINTERS_IN_INODE * Pointer::BYTES],
    }
}

/// The target of the symbolic link is in `map`.
pub const INODE_INLINE: u16 = 1;

pub const DIRECT_POINTERS: usize = 7;
/// Indirect trees of one to four levels.
pub const TREES: usize = 4;
pub const POINTERS_IN_INODE: usize = DIRECT_POINTERS + TREES;
pub const POINTERS_PER_BLOCK: usize = BLOCK_BYTES / Pointer::BYTES;
pub const INODES_PER_SECTOR: u64 = SECTOR_BYTES / Inode::BYTES as u64;
/// Inodes are written in groups of up to this many sectors.
pub const INODE_GROUP_SECTORS: u64 = 8;

const _: () = assert!(Inode::BYTES == 256);
const _: () = assert!(POINTERS_PER_BLOCK == 341);
const _: () = assert!(Checkpoint::BYTES <= (CHECKPOINT_SECTORS_IN_LOG * SECTOR_BYTES) as usize);
const _: () = assert!(Superblock::BYTES <= BLOCK_BYTES);
const _: () = assert!(CHECKPOINT_SECTORS[1].0 + 2 * BLOCK_SECTORS <= SUPERBLOCK_SECTORS[1].0);

record! {
    /// Where a block is. All zero is a hole.
    pub struct RawPointer {
        /// Bits 0-47 sector, 48-55 length in sectors, 56-63 state.
        pub place: u64,
        pub crc: u32,
    }
}

record! {
    /// State of one segment.
    pub struct Usage {
        pub live_bytes: u32,
        /// Serial of the first checkpoint in which it was empty; 0 while it is not, or never was.
        pub empty_since: u32,
        /// Modification time of the youngest block, in nanoseconds since 1970.
        pub youngest: i64,
    }
}

pub const IMAP_ENTRIES_PER_BLOCK: u64 = (BLOCK_BYTES / 8) as u64;
pub const USAGES_PER_BLOCK: u64 = (BLOCK_BYTES / Usage::BYTES) as u64;

record! {
    /// Start of a directory block; entries follow, ordered by hash.
    pub struct Leaf {
        pub magic: u32,
        pub depth: u32,
        pub prefix: u64,
        pub entry_count: u16,
        /// Bytes in use, this header included.
        pub used_bytes: u16,
        pub reserved: u32,
    }
}

record! {
    /// A directory entry; the name follows.
    pub struct LeafEntry {
        pub ino: u64,
        pub hash: u64,
        pub kind: u8,
        pub name_bytes: u8,
    }
}

pub const NAME_BYTES_MAX: usize = 255;

const STATE_MAPPED: u64 = 1;
const STATE_UNWRITTEN: u64 = 2;
const SECTOR_MASK: u64 = (1 << 48) - 1;

/// Where a block of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pointer {
    #[default]
    Hole,
    /// Reads as zeroes, but its space is set aside: writing will not fail for want of it.
    Unwritten,
    Mapped {
        at: Sector,
        /// 1..=255
        sectors: u8,
        crc: u32,
    },
}

impl Pointer {
    pub const BYTES: usize = RawPointer::BYTES;

    /// `None` when the bytes are no pointer that was ever written.
    pub fn decode(bytes: &[u8]) -> Option<Pointer> {
        let raw = RawPointer::decode(bytes)?;
        let (at, sectors) = (Sector(raw.place & SECTOR_MASK), (raw.place >> 48) as u8);
        match raw.place >> 56 {
            0 if raw.place == 0 && raw.crc == 0 => Some(Pointer::Hole),
            STATE_UNWRITTEN if raw.place == STATE_UNWRITTEN << 56 && raw.crc == 0 => Some(Pointer::Unwritten),
            STATE_MAPPED if sectors > 0 => Some(Pointer::Mapped { at, sectors, crc: raw.crc }),
            _ => None,
        }
    }

    pub fn encode(self, bytes: &mut [u8]) {
        let raw = match self {
            Pointer::Hole => RawPointer { place: 0, crc: 0 },
            Pointer::Unwritten => RawPointer { place: STATE_UNWRITTEN << 56, crc: 0 },
            Pointer::Mapped { at, sectors, crc } => {
                assert!(at.0 <= SECTOR_MASK);
                RawPointer { place: STATE_MAPPED << 56 | u64::from(sectors) << 48 | at.0, crc }
            }
        };
        raw.encode(bytes);
    }

    /// The pointer to `bytes`, a whole number of sectors stored at `at`.
    pub fn to(at: Sector, bytes: &[u8]) -> Pointer {
        let sectors = bytes.len() as u64 / SECTOR_BYTES;
        assert!((1..=255).contains(&sectors));
        Pointer::Mapped { at, sectors: sectors as u8, crc: crc32c(bytes) }
    }

    pub fn is_mapped(self) -> bool {
        matches!(self, Pointer::Mapped { .. })
    }

    /// Bytes of the log that it keeps alive.
    pub fn live_bytes(self) -> u64 {
        match self {
            Pointer::Mapped { sectors, .. } => u64::from(sectors) * SECTOR_BYTES,
            _ => 0,
        }
    }

    /// Bytes that count as used by the file: what is written, or set aside.
    pub fn used_bytes(self) -> u64 {
        match self {
            Pointer::Hole => 0,
            Pointer::Unwritten => BLOCK_BYTES as u64,
            Pointer::Mapped { .. } => self.live_bytes(),
        }
    }
}

/// The pointer in `slot` of an indirect block.
pub fn pointer_in_block(block: &[u8], slot: usize) -> Option<Pointer> {
    Pointer::decode(block.get(slot * Pointer::BYTES..)?)
}

pub fn set_pointer_in_block(block: &mut [u8], slot: usize, pointer: Pointer) {
    assert!(slot < POINTERS_PER_BLOCK);
    pointer.encode(&mut block[slot * Pointer::BYTES..]);
}

/// What an [`SummaryEntry`] says, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item {
    /// A block of a file, an indirect block included.
    Block {
        ino: Ino,
        key: u64,
        sectors: u16,
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
    /// A copy of the checkpoint that this transaction is.
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
    /// Blocks `first..first + count` of the file became holes.
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

    /// Bytes of the payload that are alive when it has just been written.
    pub fn live_bytes(self) -> u64 {
        match self {
            Item::Block { sectors, .. } | Item::Xattr { sectors, .. } => u64::from(sectors) * SECTOR_BYTES,
            Item::Inodes { count, .. } => u64::from(count) * Inode::BYTES as u64,
            _ => 0,
        }
    }

    pub fn to_entry(self) -> SummaryEntry {
        let entry =
            |kind, sectors, count, subject, detail| SummaryEntry { kind, reserved: 0, sectors, count, subject, detail };
        match self {
            Item::Block { ino, key, sectors } => entry(Self::BLOCK, sectors, 0, ino.0, key),
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
            Self::BLOCK if sectors > 0 => Item::Block { ino, key: entry.detail, sectors },
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

/// CRC of `block` with the four bytes at `crc_offset` counted as zero.
fn crc_without_field(block: &[u8], crc_offset: usize) -> u32 {
    let crc = crc32c(&block[..crc_offset]);
    let crc = crc32c_append(crc, &[0; 4]);
    crc32c_append(crc, &block[crc_offset + 4..])
}

fn offset_of(fields: &[codec::Field], name: &str) -> usize {
    match fields.iter().find(|field| field.name == name) {
        Some(field) => field.offset,
        None => unreachable!("every record that is sealed has a field of that name"),
    }
}

fn seal(block: &mut [u8], fields: &[codec::Field]) {
    let offset = offset_of(fields, "crc");
    let crc = crc_without_field(block, offset);
    codec::put_at(block, offset, crc);
}

fn is_sealed(block: &[u8], fields: &[codec::Field]) -> bool {
    let offset = offset_of(fields, "crc");
    codec::get_at::<u32>(block, offset) == Some(crc_without_field(block, offset))
}

impl Superblock {
    /// The superblock as its block is on the device.
    pub fn to_block(self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        self.encode(&mut block);
        seal(&mut block, Self::FIELDS);
        block
    }

    /// `None` when `block` is no intact superblock of any version.
    pub fn from_block(block: &[u8]) -> Option<Superblock> {
        let superblock = Superblock::decode(block)?;
        (block.len() == BLOCK_BYTES && superblock.magic == SUPERBLOCK_MAGIC && is_sealed(block, Self::FIELDS))
            .then_some(superblock)
    }

    pub fn label_text(&self) -> String {
        let end = self.label.iter().position(|&byte| byte == 0).unwrap_or(self.label.len());
        String::from_utf8_lossy(&self.label[..end]).into_owned()
    }
}

impl Checkpoint {
    /// The checkpoint as one of its copies is on the device.
    pub fn to_block(self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        self.encode(&mut block);
        seal(&mut block, Self::FIELDS);
        block
    }

    /// `None` when `block` is no intact checkpoint. Takes a slot's copy, or the shorter copy in the log, which
    /// is the same bytes without the zeroes behind them.
    pub fn from_block(bytes: &[u8]) -> Option<Checkpoint> {
        let mut block = [0; BLOCK_BYTES];
        block.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let checkpoint = Checkpoint::decode(&block)?;
        (checkpoint.magic == CHECKPOINT_MAGIC && is_sealed(&block, Self::FIELDS)).then_some(checkpoint)
    }
}

impl Inode {
    /// Writes the inode with its checksum to the start of `bytes`.
    pub fn seal_into(&self, bytes: &mut [u8]) {
        self.encode(bytes);
        seal(&mut bytes[..Inode::BYTES], Self::FIELDS);
    }

    /// `None` when `bytes` do not start with an intact inode, of a size that a file can have.
    pub fn unseal(bytes: &[u8]) -> Option<Inode> {
        let inode = Inode::decode(bytes).filter(|inode| inode.size <= FILE_BYTES_MAX)?;
        (inode.magic == INODE_MAGIC && is_sealed(&bytes[..Inode::BYTES], Self::FIELDS)).then_some(inode)
    }

    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(u32::from(self.mode))
    }

    /// The pointer in slot `slot` of the map.
    pub fn pointer(&self, slot: usize) -> Option<Pointer> {
        Pointer::decode(&self.map[slot * Pointer::BYTES..])
    }

    pub fn set_pointer(&mut self, slot: usize, pointer: Pointer) {
        pointer.encode(&mut self.map[slot * Pointer::BYTES..]);
    }

    pub fn xattr_pointer(&self) -> Option<Pointer> {
        Pointer::decode(&self.xattr)
    }

    pub fn atime(&self) -> WallTime {
        WallTime { seconds: self.atime_seconds, nanos: self.atime_nanos }
    }

    pub fn mtime(&self) -> WallTime {
        WallTime { seconds: self.mtime_seconds, nanos: self.mtime_nanos }
    }

    pub fn ctime(&self) -> WallTime {
        WallTime { seconds: self.ctime_seconds, nanos: self.ctime_nanos }
    }

    pub fn btime(&self) -> WallTime {
        WallTime { seconds: self.btime_seconds, nanos: self.btime_nanos }
    }

    pub fn set_atime(&mut self, time: WallTime) {
        (self.atime_seconds, self.atime_nanos) = (time.seconds, time.nanos);
    }

    pub fn set_mtime(&mut self, time: WallTime) {
        (self.mtime_seconds, self.mtime_nanos) = (time.seconds, time.nanos);
    }

    pub fn set_ctime(&mut self, time: WallTime) {
        (self.ctime_seconds, self.ctime_nanos) = (time.seconds, time.nanos);
    }

    pub fn set_btime(&mut self, time: WallTime) {
        (self.btime_seconds, self.btime_nanos) = (time.seconds, time.nanos);
    }

    /// Modification time as the segment usage table counts it.
    pub fn mtime_nanos_since_epoch(&self) -> i64 {
        self.mtime().nanos_since_epoch().clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

/// Bytes of a partial segment that its checksum covers.
const SUMMARY_CRC_FROM: usize = 8;

/// Seals a partial segment whose summary is encoded at the start of `partial`. Returns the checksum, which is
/// the next link of the chain.
pub fn seal_partial(partial: &mut [u8]) -> u32 {
    let crc = crc32c(&partial[SUMMARY_CRC_FROM..]);
    codec::put_at(partial, offset_of(Summary::FIELDS, "crc"), crc);
    crc
}

/// True when `partial`, all of a partial segment, is as it was sealed.
pub fn partial_is_sealed(partial: &[u8], summary: &Summary) -> bool {
    partial.len() > SUMMARY_CRC_FROM && crc32c(&partial[SUMMARY_CRC_FROM..]) == summary.crc
}

/// The entries of a partial segment, or `None` when they are not what a summary can hold.
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
