//! Names of the blocks of a file, and their positions in its tree.

use std::fmt;

use super::format::*;
use crate::rt::cover;
use crate::units::{Ino, Sector};

/// Internal files of a log, if it has any: their inodes are not in the inode map.
pub(in crate::fs) fn is_internal(ino: Ino) -> bool {
    (2..=4).contains(&ino.0)
}

/// Address of an inode, in units of 256 bytes of the log. 0 is none.
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

/// Name of a block in a file: a data block by its index, or an indirect block by its position in the tree.
///
/// Data block `i` is key `i`. Indirect block `n` of level `l` in tree `t` is `t << 60 | l << 56 | n`; tree `t`
/// has `t` levels of indirect blocks, and level 1 points at data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey(pub u64);

/// The holder of the pointer to a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// Slot of the inode's map.
    Inode(usize),
    /// Slot of an indirect block.
    Node(BlockKey, usize),
}

/// Number of indirect blocks of a file whose first `data_blocks` blocks are stored or reserved, and no others.
pub fn indirect_blocks(data_blocks: u64) -> u64 {
    let of_tree = |tree: usize| {
        let within = data_blocks.clamp(BASE[tree - 1], BASE[tree]) - BASE[tree - 1];
        (1..=tree).map(|level| within.div_ceil(SPAN[level])).sum::<u64>()
    };
    (1..=TREES).map(of_tree).sum()
}

impl BlockKey {
    pub fn data(index: u64) -> BlockKey {
        debug_assert!(index < FILE_BLOCKS_MAX, "a block of a file is not past the largest file");
        BlockKey(index)
    }

    pub fn node(tree: usize, level: usize, number: u64) -> BlockKey {
        BlockKey((tree as u64) << 60 | (level as u64) << 56 | number)
    }

    pub fn is_data(self) -> bool {
        self.0 >> 56 == 0
    }

    /// Records for coverage tests that a block with this key is written.
    pub(in crate::fs) fn cover_written(self) {
        match self.level() {
            0 => {}
            1 => cover("logfs: an indirect block of level 1 is written"),
            2 => cover("logfs: an indirect block of level 2 is written"),
            _ => cover("logfs: an indirect block of level 3 is written"),
        }
    }

    /// Level above the data: 0 for data.
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

    /// The block that slot `slot` of this indirect block points to.
    pub fn child(self, slot: usize) -> BlockKey {
        let (tree, level) = (self.tree(), self.level());
        let number = self.number() * FANOUT + slot as u64;
        if level == 1 { BlockKey(BASE[tree - 1] + number) } else { BlockKey::node(tree, level - 1, number) }
    }

    /// Data blocks below this indirect block: the first one, and the first one past them.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula agrees with a count of each block's holders.
    #[test]
    fn indirect_blocks_are_counted() {
        let mut holders = std::collections::BTreeSet::new();
        for index in 0..2 * FANOUT.pow(2) + 1_000 {
            assert_eq!(indirect_blocks(index), holders.len() as u64, "{index} blocks");
            let mut key = BlockKey::data(index);
            while let Holder::Node(node, _) = key.holder() {
                holders.insert(node.0);
                key = node;
            }
        }
        assert_eq!(indirect_blocks(FILE_BLOCKS_MAX + 1), indirect_blocks(FILE_BLOCKS_MAX));
    }

    /// Every key is its holder's child, and spans fit: checked around every boundary of every tree.
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
