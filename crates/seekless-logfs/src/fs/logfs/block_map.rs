//! A map of blocks in order, made for neighbours: blocks of a file are mostly written, read and evicted in runs.
//!
//! The blocks whose keys differ in the last five bits alone are a *group*. A group is one entry of a tree, with a bit for
//! each block that is there and the values of those in order. So the tree has a small part of the entries that one for
//! each block would have, and a file of a single block takes no more memory than there.
//!
//! Invariants
//!   B1  A group has as many values as bits, and at least one.
//!   B2  `len` is the number of all bits.

use std::collections::{BTreeMap, btree_map};
use std::ops::RangeInclusive;

use super::tree::{BlockId, BlockKey};
use crate::units::Ino;

/// Blocks in a full group: one for each bit of a mask.
const GROUP_BLOCKS: u64 = u32::BITS as u64;

/// A group by its first block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct GroupId(BlockId);

impl GroupId {
    /// The group of a block, and the number of the block in it.
    fn of(id: BlockId) -> (GroupId, u32) {
        let number = id.key.0 % GROUP_BLOCKS;
        (GroupId(BlockId { ino: id.ino, key: BlockKey(id.key.0 - number) }), number as u32)
    }

    fn block(self, number: u32) -> BlockId {
        BlockId { ino: self.0.ino, key: BlockKey(self.0.key.0 + u64::from(number)) }
    }
}

struct Group<V> {
    present: u32,
    values: Vec<V>,
}

impl<V> Group<V> {
    fn has(&self, number: u32) -> bool {
        self.present >> number & 1 == 1
    }

    /// Where the value of a block is, or would be.
    fn index(&self, number: u32) -> usize {
        (self.present & ((1 << number) - 1)).count_ones() as usize
    }

    fn blocks(&self, id: GroupId) -> impl Iterator<Item = (BlockId, &V)> {
        bits(self.present).map(move |number| id.block(number)).zip(&self.values)
    }
}

/// The numbers of the bits that are set, in order.
fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let number = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(number)
    })
}

/// Values by block.
pub(in crate::fs) struct BlockMap<V> {
    groups: BTreeMap<GroupId, Group<V>>,
    len: usize,
}

impl<V> Default for BlockMap<V> {
    fn default() -> BlockMap<V> {
        BlockMap { groups: BTreeMap::new(), len: 0 }
    }
}

impl<V> BlockMap<V> {
    pub(in crate::fs) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::fs) fn contains(&self, id: BlockId) -> bool {
        let (group, number) = GroupId::of(id);
        self.groups.get(&group).is_some_and(|group| group.has(number))
    }

    pub(in crate::fs) fn get(&self, id: BlockId) -> Option<&V> {
        let (group, number) = GroupId::of(id);
        let group = self.groups.get(&group)?;
        group.has(number).then(|| &group.values[group.index(number)])
    }

    pub(in crate::fs) fn get_mut(&mut self, id: BlockId) -> Option<&mut V> {
        let (group, number) = GroupId::of(id);
        let group = self.groups.get_mut(&group)?;
        let index = group.has(number).then(|| group.index(number))?;
        Some(&mut group.values[index])
    }

    /// Adds a value. Returns the one that was there before.
    pub(in crate::fs) fn insert(&mut self, id: BlockId, value: V) -> Option<V> {
        let (group, number) = GroupId::of(id);
        match self.groups.entry(group) {
            btree_map::Entry::Vacant(vacant) => {
                vacant.insert(Group { present: 1 << number, values: vec![value] });
            }
            btree_map::Entry::Occupied(mut occupied) => {
                let group = occupied.get_mut();
                let index = group.index(number);
                if group.has(number) {
                    return Some(std::mem::replace(&mut group.values[index], value));
                }
                group.present |= 1 << number;
                group.values.insert(index, value);
            }
        }
        self.len += 1;
        None
    }

    pub(in crate::fs) fn remove(&mut self, id: BlockId) -> Option<V> {
        let (group, number) = GroupId::of(id);
        let btree_map::Entry::Occupied(mut occupied) = self.groups.entry(group) else { return None };
        let group = occupied.get_mut();
        let index = group.has(number).then(|| group.index(number))?;
        group.present &= !(1 << number);
        let value = group.values.remove(index);
        if group.present == 0 {
            occupied.remove();
        }
        self.len -= 1;
        Some(value)
    }

    pub(in crate::fs) fn iter(&self) -> impl Iterator<Item = (BlockId, &V)> {
        self.groups.iter().flat_map(|(id, group)| group.blocks(*id))
    }

    /// The blocks of a file whose keys are in `keys`.
    pub(in crate::fs) fn of_file(
        &self,
        ino: Ino,
        keys: RangeInclusive<BlockKey>,
    ) -> impl Iterator<Item = (BlockId, &V)> {
        let (first, last) = (BlockId { ino, key: *keys.start() }, BlockId { ino, key: *keys.end() });
        let groups = self.groups.range(GroupId::of(first).0..=GroupId::of(last).0);
        let blocks = groups.flat_map(|(id, group)| group.blocks(*id));
        blocks.filter(move |(id, _)| (first..=last).contains(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Aim: the map is a map in order. Method: random calls, compared with a tree that has an entry for each block; keys
    /// around borders of groups, of data and of indirect blocks, in three files.
    #[test]
    fn it_is_a_map_in_order() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let (mut map, mut tree) = (BlockMap::default(), BTreeMap::new());
            for step in 0..2_000u64 {
                let key = match rng.below(3) {
                    0 => BlockKey::data(rng.below(80)),
                    1 => BlockKey::data(4 * GROUP_BLOCKS * rng.below(3) + rng.below(3)),
                    _ => BlockKey::node(2, 1, rng.below(70)),
                };
                let id = BlockId { ino: Ino(5 + rng.below(3)), key };
                match rng.below(16) {
                    0..9 => assert_eq!(map.insert(id, step), tree.insert(id, step)),
                    9..14 => assert_eq!(map.remove(id), tree.remove(&id)),
                    14 => {
                        assert_eq!(map.get_mut(id), tree.get_mut(&id));
                        assert_eq!((map.get(id), map.contains(id)), (tree.get(&id), tree.contains_key(&id)));
                    }
                    _ => {
                        let keys = BlockKey(rng.below(60))..=[key, BlockKey(u64::MAX)][rng.below(2) as usize];
                        let range =
                            BlockId { ino: id.ino, key: *keys.start() }..=BlockId { ino: id.ino, key: *keys.end() };
                        if !range.is_empty() {
                            let of_tree = tree.range(range).map(|(&id, value)| (id, value));
                            assert!(map.of_file(id.ino, keys).eq(of_tree), "seed {seed}, step {step}");
                        }
                    }
                }
                assert_eq!(map.len(), tree.len(), "seed {seed}, step {step}");
            }
            assert!(map.iter().eq(tree.iter().map(|(&id, value)| (id, value))), "seed {seed}");
            assert!(map.groups.values().all(|group| group.values.len() == group.present.count_ones() as usize), "B1");
        }
    }
}
