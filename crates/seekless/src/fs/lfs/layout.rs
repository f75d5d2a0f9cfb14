//! Where things are: segments on the volume, and blocks in the tree of a file.

use std::fmt;

use super::format::*;
use crate::fs::{FsError, FsResult};
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Number of a segment, from 0.
pub type SegmentNo = u64;

/// Shape of a volume, from its superblock.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub superblock: Superblock,
}

impl Layout {
    /// Checks what mkfs promises, so that the arithmetic below can rely on it.
    ///
    /// # Errors
    /// `Corrupt`, naming the field.
    pub fn new(superblock: Superblock, device_sectors: u64) -> FsResult<Layout> {
        let s = &superblock;
        let bad = |field: &str, found: u64| {
            Err(FsError::corrupt("superblock", Sector(0), format_args!("{field} is {found}, which cannot be")))
        };
        if s.version != VERSION {
            return Err(FsError::corrupt(
                "superblock",
                Sector(0),
                format_args!("format version {} needs another release; this one reads version {VERSION}", s.version),
            ));
        }
        if s.features_incompatible != 0 {
            return Err(FsError::corrupt(
                "superblock",
                Sector(0),
                format_args!("the volume uses features {:#x} that this release does not know", s.features_incompatible),
            ));
        }
        if s.block_bytes as usize != BLOCK_BYTES {
            return bad("block_bytes", s.block_bytes.into());
        }
        let align = u64::from(s.align_sectors);
        if !align.is_power_of_two() || align > BLOCK_SECTORS {
            return bad("align_sectors", align);
        }
        let segment = u64::from(s.segment_sectors);
        if !(SEGMENT_SECTORS_MIN..=SEGMENT_SECTORS_MAX).contains(&segment) || !segment.is_multiple_of(BLOCK_SECTORS) {
            return bad("segment_sectors", segment);
        }
        if s.segment_count < SEGMENT_COUNT_MIN || s.segment_count > SEGMENT_COUNT_MAX {
            return bad("segment_count", s.segment_count);
        }
        if s.first_segment < HEAD_SECTORS || !s.first_segment.is_multiple_of(BLOCK_SECTORS) {
            return bad("first_segment", s.first_segment);
        }
        let end = s.segment_count.checked_mul(segment).and_then(|sectors| sectors.checked_add(s.first_segment));
        match end.and_then(|end| end.checked_add(BLOCK_SECTORS)) {
            Some(end) if end <= s.volume_sectors => {}
            _ => return bad("volume_sectors", s.volume_sectors),
        }
        if s.volume_sectors > device_sectors {
            return Err(FsError::corrupt(
                "volume",
                Sector(device_sectors),
                format_args!("it ends here, but was made with {} sectors: the image is cut short", s.volume_sectors),
            ));
        }
        if u64::from(s.reserve_segments) * 2 > s.segment_count {
            return bad("reserve_segments", s.reserve_segments.into());
        }
        Ok(Layout { superblock })
    }

    pub fn segment_sectors(&self) -> u64 {
        u64::from(self.superblock.segment_sectors)
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_sectors() * SECTOR_BYTES
    }

    pub fn segment_count(&self) -> u64 {
        self.superblock.segment_count
    }

    pub fn align_sectors(&self) -> u64 {
        u64::from(self.superblock.align_sectors)
    }

    /// First sector of `segment`.
    pub fn segment_start(&self, segment: SegmentNo) -> Sector {
        Sector(self.superblock.first_segment + segment * self.segment_sectors())
    }

    /// The segment that holds `sector`, if one does.
    pub fn segment_of(&self, sector: Sector) -> Option<SegmentNo> {
        let segment = sector.0.checked_sub(self.superblock.first_segment)? / self.segment_sectors();
        (segment < self.segment_count()).then_some(segment)
    }

    /// True when the log can hold something at these sectors.
    pub fn holds(&self, at: Sector, sectors: u64) -> bool {
        match (self.segment_of(at), at.0.checked_add(sectors)) {
            (Some(segment), Some(end)) => end <= self.segment_start(segment).0 + self.segment_sectors(),
            _ => false,
        }
    }

    /// Bytes that files and their metadata may keep alive: everything but the reserve, and but what a segment
    /// loses to summaries (24 bytes for a block of 4096, and a sector for a partial segment) and to the blocks
    /// that do not fit at its end.
    pub fn capacity_bytes(&self) -> u64 {
        let segments = self.segment_count() - u64::from(self.superblock.reserve_segments);
        let lost = self.segment_bytes() / 128 + 2 * BLOCK_BYTES as u64;
        segments * (self.segment_bytes() - lost)
    }

    /// Inode numbers end here: one for every block of the volume, at least.
    pub fn ino_end(&self) -> u64 {
        (self.superblock.volume_sectors / BLOCK_SECTORS).max(FIRST_FREE_INO * 2)
    }

    pub fn superblock_backup(&self) -> Sector {
        Sector(self.superblock.volume_sectors - BLOCK_SECTORS)
    }
}

/// The largest single item, the extended attributes of a file, must fit well.
pub const SEGMENT_SECTORS_MIN: u64 = 256;
pub const SEGMENT_SECTORS_MAX: u64 = 1 << 16;
pub const SEGMENT_COUNT_MIN: u64 = 64;
/// So that the usage table of 16 bytes a segment stays in memory.
pub const SEGMENT_COUNT_MAX: u64 = 1 << 22;

/// Address of an inode: the log in units of 256 bytes. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct InodeSlot(pub u64);

impl InodeSlot {
    pub const NONE: InodeSlot = InodeSlot(0);

    pub fn new(sector: Sector, index: u64) -> InodeSlot {
        InodeSlot(sector.0 * INODES_PER_SECTOR + index)
    }

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    pub fn sector(self) -> Sector {
        Sector(self.0 / INODES_PER_SECTOR)
    }

    /// Byte offset of the inode in its sector.
    pub fn offset(self) -> usize {
        (self.0 % INODES_PER_SECTOR) as usize * Inode::BYTES
    }
}

/// Name of a block in a file: a data block by its index, or an indirect block by its place in the tree.
///
/// Data block `i` is key `i`. Indirect block `n` of level `l` in tree `t` is `t << 60 | l << 56 | n`; tree `t`
/// has `t` levels of indirect blocks, and level 1 points at data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

/// What holds the pointer to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// Slot of the inode's map.
    Inode(usize),
    /// Slot of an indirect block.
    Node(BlockKey, usize),
}

const FANOUT: u64 = POINTERS_PER_BLOCK as u64;
/// Data blocks below one pointer at each level: 1, 341, 341² ...
const SPAN: [u64; TREES + 1] = [1, FANOUT, FANOUT.pow(2), FANOUT.pow(3), FANOUT.pow(4)];
/// First data block of each tree, and past the last.
const BASE: [u64; TREES + 1] = {
    let mut base = [DIRECT_POINTERS as u64; TREES + 1];
    let mut tree = 1;
    while tree <= TREES {
        base[tree] = base[tree - 1] + SPAN[tree];
        tree += 1;
    }
    base
};
/// Blocks that a file can have: 55 TB.
pub const FILE_BLOCKS_MAX: u64 = BASE[TREES];
pub const FILE_BYTES_MAX: u64 = FILE_BLOCKS_MAX * BLOCK_BYTES as u64;

impl BlockKey {
    pub fn data(index: u64) -> BlockKey {
        debug_assert!(index < FILE_BLOCKS_MAX);
        BlockKey(index)
    }

    pub fn node(tree: usize, level: usize, number: u64) -> BlockKey {
        BlockKey((tree as u64) << 60 | (level as u64) << 56 | number)
    }

    pub fn is_data(self) -> bool {
        self.0 >> 56 == 0
    }

    /// Level above data: 0 for data.
    pub fn level(self) -> usize {
        (self.0 >> 56 & 0xf) as usize
    }

    fn tree(self) -> usize {
        (self.0 >> 60) as usize
    }

    fn number(self) -> u64 {
        self.0 & ((1 << 56) - 1)
    }

    /// True for keys that [`BlockKey::data`] and [`BlockKey::node`] can make.
    pub fn is_valid(self) -> bool {
        if self.is_data() {
            return self.0 < FILE_BLOCKS_MAX;
        }
        let (tree, level) = (self.tree(), self.level());
        (1..=TREES).contains(&tree) && (1..=tree).contains(&level) && self.number() < SPAN[tree] / SPAN[level]
    }

    pub fn holder(self) -> Holder {
        if self.is_data() {
            let index = self.0;
            if index < DIRECT_POINTERS as u64 {
                return Holder::Inode(index as usize);
            }
            let tree = (1..=TREES).find(|&tree| index < BASE[tree]).unwrap_or(TREES);
            let within = index - BASE[tree - 1];
            return Holder::Node(BlockKey::node(tree, 1, within / FANOUT), (within % FANOUT) as usize);
        }
        let (tree, level, number) = (self.tree(), self.level(), self.number());
        if level == tree {
            Holder::Inode(DIRECT_POINTERS + tree - 1)
        } else {
            Holder::Node(BlockKey::node(tree, level + 1, number / FANOUT), (number % FANOUT) as usize)
        }
    }

    /// The block that slot `slot` of this indirect block points at.
    pub fn child(self, slot: usize) -> BlockKey {
        let (tree, level) = (self.tree(), self.level());
        let number = self.number() * FANOUT + slot as u64;
        if level == 1 { BlockKey(BASE[tree - 1] + number) } else { BlockKey::node(tree, level - 1, number) }
    }

    /// Data blocks below this indirect block: the first, and past the last.
    pub fn span(self) -> (u64, u64) {
        if self.is_data() {
            return (self.0, self.0 + 1);
        }
        let first = BASE[self.tree() - 1] + self.number() * SPAN[self.level()];
        (first, first + SPAN[self.level()])
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_data() {
            write!(f, "block {}", self.0)
        } else {
            write!(f, "indirect block {} of level {} in tree {}", self.number(), self.level(), self.tree())
        }
    }
}

/// A block of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    pub ino: Ino,
    pub key: BlockKey,
}

impl BlockId {
    pub fn data(ino: Ino, index: u64) -> BlockId {
        BlockId { ino, key: BlockKey::data(index) }
    }
}

impl fmt::Debug for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.key, self.ino)
    }
}

/// The block of the inode map that holds `ino`'s entry, and the entry's byte offset in it.
pub fn imap_place(ino: Ino) -> (BlockId, usize) {
    let block = BlockId::data(IMAP_INO, ino.0 / IMAP_ENTRIES_PER_BLOCK);
    (block, (ino.0 % IMAP_ENTRIES_PER_BLOCK) as usize * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key is its holder's child, and spans fit: checked around every border of every tree.
    #[test]
    fn holder_and_child_are_inverse() {
        let borders = BASE.iter().chain(&SPAN).flat_map(|&border| [border.saturating_sub(1), border, border + 1]);
        for index in borders.filter(|&index| index < FILE_BLOCKS_MAX) {
            let mut key = BlockKey::data(index);
            loop {
                assert!(key.is_valid());
                let (first, end) = key.span();
                assert!((first..end).contains(&index), "{key:?} spans {first}..{end}, not {index}");
                match key.holder() {
                    Holder::Inode(slot) => {
                        assert!(slot < POINTERS_IN_INODE);
                        break;
                    }
                    Holder::Node(node, slot) => {
                        assert_eq!(node.child(slot), key);
                        key = node;
                    }
                }
            }
        }
    }
}
