//! Bytes of a VLFS volume: the structures that are its own. The page is `FORMAT.md`; a test compares its tables with
//! the records here.
//!
//! The virtual log's structures are in `vlog::format`; inodes, pointers, directories and attributes are those that
//! `fs/lfs` has too.

use crate::codec::{get_at, put_at};
pub use crate::fs::logfs::format::*;
use crate::fs::logfs::volume_name::label_text;
use crate::record;

/// Format version that mkfs writes.
pub const VERSION: u32 = 1;

pub const MAGIC: [u8; 8] = *b"SeekVLFS";

record! {
    /// Parameters from mkfs, beside those in the virtual log's superblock. Both superblocks hold a copy, covered by
    /// their checksum.
    pub struct VolumeRecord {
        pub magic: [u8; 8],
        pub version: u32,
        pub reserved: u32,
        /// UTF-8, padded with zero bytes.
        pub label: [u8; 64],
        /// Key of the directory hash (SipHash-2-4).
        pub hash_key: [u64; 2],
        pub created_seconds: i64,
        /// Blocks that files cannot fill.
        pub reserve_blocks: u64,
        /// A reader that does not know one of these may still read and write.
        pub features_compatible: u32,
        /// A reader that does not know one of these must refuse.
        pub features_incompatible: u32,
    }
}

impl VolumeRecord {
    /// `None` when `bytes` do not start with a record of any version.
    pub fn from_bytes(bytes: &[u8]) -> Option<VolumeRecord> {
        VolumeRecord::decode(bytes).filter(|volume| volume.magic == MAGIC)
    }

    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; VolumeRecord::BYTES];
        self.encode(&mut bytes);
        bytes
    }

    pub fn label_text(&self) -> String {
        label_text(&self.label)
    }
}

/// In `flags` of an inode: blocks past the end are mapped, and are to be freed.
pub const INODE_CUT: u16 = 2;

/// The flags as they are stored, with the one that only memory keeps separately.
pub fn stored_flags(flags: u16, is_cut: bool) -> u16 {
    if is_cut { flags | INODE_CUT } else { flags & !INODE_CUT }
}

/// Most parts of extended attributes that are longer than a block: the list of pointers to them fills a block of its
/// own.
pub const PARTS_MAX: usize = (u8::MAX as usize * 512).div_ceil(BLOCK_BYTES);

const _: () = assert!(PARTS_MAX * Pointer::BYTES + 4 <= BLOCK_BYTES);

/// The block that lists the parts of extended attributes.
pub fn parts_to_block(parts: &[Pointer]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    put_at(&mut block, 0, parts.len() as u32);
    for (slot, part) in parts.iter().enumerate() {
        part.encode(&mut block[4 + slot * Pointer::BYTES..]);
    }
    block
}

/// `None` when `block` is not such a list.
pub fn parts_from_block(block: &[u8]) -> Option<Vec<Pointer>> {
    let count = get_at::<u32>(block, 0)? as usize;
    if count > PARTS_MAX {
        return None;
    }
    let part = |slot: usize| match Pointer::decode(block.get(4 + slot * Pointer::BYTES..)?) {
        Some(part @ Pointer::Mapped { sectors, .. }) if u64::from(sectors) <= BLOCK_SECTORS => Some(part),
        _ => None,
    };
    (0..count).map(part).collect()
}
