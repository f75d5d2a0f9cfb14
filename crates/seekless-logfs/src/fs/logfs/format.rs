//! Structures that files are made of, in every log: inodes, pointers, directory blocks. The format page of each log
//! lists them.
//!
//! Decoders accept any bytes and return `None` or an error; they check only what a single structure can know about
//! itself.

use crate::codec::{self, crc32c, crc32c_append};
use crate::fs::FileKind;
use crate::record;
use crate::units::{SECTOR_BYTES, Sector, WallTime};

/// Bytes of a file block, an indirect block and every other metadata block.
pub const BLOCK_BYTES: usize = 4096;
pub const BLOCK_SECTORS: u64 = BLOCK_BYTES as u64 / SECTOR_BYTES;

pub const INODE_MAGIC: u32 = u32::from_le_bytes(*b"SIno");
pub const LEAF_MAGIC: u32 = u32::from_le_bytes(*b"SDir");

/// First inode number that a user's file can have, besides the root.
pub const FIRST_FREE_INO: u64 = 16;

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
        /// For a directory: the directory that holds it. The root is its own parent.
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
pub(super) const FANOUT: u64 = POINTERS_PER_BLOCK as u64;
/// Data blocks below one pointer at each level: 1, 341, 341² ...
pub(super) const SPAN: [u64; TREES + 1] = [1, FANOUT, FANOUT.pow(2), FANOUT.pow(3), FANOUT.pow(4)];
/// First data block of each tree, and past the last.
pub(super) const BASE: [u64; TREES + 1] = {
    let mut base = [DIRECT_POINTERS as u64; TREES + 1];
    let mut tree = 1;
    while tree <= TREES {
        base[tree] = base[tree - 1] + SPAN[tree];
        tree += 1;
    }
    base
};
/// Most blocks of a file: 55 TB.
pub const FILE_BLOCKS_MAX: u64 = BASE[TREES];
pub const FILE_BYTES_MAX: u64 = FILE_BLOCKS_MAX * BLOCK_BYTES as u64;

pub const INODES_PER_SECTOR: u64 = SECTOR_BYTES / Inode::BYTES as u64;
/// Inodes are written in groups of up to this many sectors.
pub const INODE_GROUP_SECTORS: u64 = 8;

const _: () = assert!(Inode::BYTES == 256);
const _: () = assert!(POINTERS_PER_BLOCK == 341);

record! {
    /// Address of a block. All zero is a hole.
    pub struct RawPointer {
        /// Bits 0-47 sector, 48-55 length in sectors, 56-63 state.
        pub place: u64,
        pub crc: u32,
    }
}

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

/// Address of a block of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Pointer {
    #[default]
    Hole,
    /// Reads as zeroes, but its space is reserved: a write cannot fail with `NoSpace`.
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

    /// `None` when no writer can have produced these bytes.
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
                assert!(at.0 <= SECTOR_MASK, "an address fits into a pointer");
                RawPointer { place: STATE_MAPPED << 56 | u64::from(sectors) << 48 | at.0, crc }
            }
        };
        raw.encode(bytes);
    }

    /// The pointer to `bytes`, a whole number of sectors stored at `at`.
    pub fn to(at: Sector, bytes: &[u8]) -> Pointer {
        Pointer::summed(at, bytes.len(), crc32c(bytes))
    }

    /// The pointer to `bytes` bytes, a whole number of sectors stored at `at`, whose checksum is `crc`.
    pub fn summed(at: Sector, bytes: usize, crc: u32) -> Pointer {
        let sectors = bytes as u64 / SECTOR_BYTES;
        assert!((1..=255).contains(&sectors), "a length fits into a pointer");
        Pointer::Mapped { at, sectors: sectors as u8, crc }
    }

    pub fn is_mapped(self) -> bool {
        matches!(self, Pointer::Mapped { .. })
    }

    /// Bytes of the log that the pointer keeps alive.
    pub fn live_bytes(self) -> u64 {
        match self {
            Pointer::Mapped { sectors, .. } => u64::from(sectors) * SECTOR_BYTES,
            _ => 0,
        }
    }

    /// Bytes that count as used by the file: stored or reserved.
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
    assert!(slot < POINTERS_PER_BLOCK, "a slot is one of its block");
    pointer.encode(&mut block[slot * Pointer::BYTES..]);
}

/// CRC of `block` with the four bytes at `crc_offset` counted as zero.
fn crc_without_field(block: &[u8], crc_offset: usize) -> u32 {
    let crc = crc32c(&block[..crc_offset]);
    let crc = crc32c_append(crc, &[0; 4]);
    crc32c_append(crc, &block[crc_offset + 4..])
}

pub(in crate::fs) fn offset_of(fields: &[codec::Field], name: &str) -> usize {
    match fields.iter().find(|field| field.name == name) {
        Some(field) => field.offset,
        None => unreachable!("every record that is sealed has a field of that name"),
    }
}

pub(in crate::fs) fn seal(block: &mut [u8], fields: &[codec::Field]) {
    let offset = offset_of(fields, "crc");
    let crc = crc_without_field(block, offset);
    codec::put_at(block, offset, crc);
}

pub(in crate::fs) fn is_sealed(block: &[u8], fields: &[codec::Field]) -> bool {
    let offset = offset_of(fields, "crc");
    codec::get_at::<u32>(block, offset) == Some(crc_without_field(block, offset))
}

impl Inode {
    /// Writes the inode with its checksum to the start of `bytes`.
    pub fn seal_into(&self, bytes: &mut [u8]) {
        self.encode(bytes);
        seal(&mut bytes[..Inode::BYTES], Self::FIELDS);
    }

    /// `None` when `bytes` do not start with an intact inode whose size a file can have.
    pub fn unseal(bytes: &[u8]) -> Option<Inode> {
        // What is compared first is what most other bytes do not have.
        let bytes = bytes.get(..Inode::BYTES)?;
        if codec::get_at(bytes, 0) != Some(INODE_MAGIC) || !is_sealed(bytes, Self::FIELDS) {
            return None;
        }
        Inode::decode(bytes).filter(|inode| inode.size <= FILE_BYTES_MAX)
    }

    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(u32::from(self.mode))
    }

    /// Whether the map holds the target of a symbolic link instead of pointers. On other files the flag means nothing.
    pub fn is_inline(&self) -> bool {
        self.flags & INODE_INLINE != 0 && self.kind() == Some(FileKind::Symlink)
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

    /// Modification time in the unit of the segment usage table.
    pub fn mtime_nanos_since_epoch(&self) -> i64 {
        self.mtime().nanos_since_epoch().clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}
