//! A map of blocks in order, made for neighbours: blocks of a file are mostly written, read and evicted in runs.
//!
//! The blocks whose keys differ in the last five bits alone are a *group*. A group is one entry of a tree, with a bit for
//! each block that is there and the values of those in order. So the tree has far fewer entries than one with an entry
//! for each block, and a file of a single block takes no more memory than it would there.
//!
//! Invariants
//!   B1  A group has as many values as bits, and at least one if it has a place.
//!   B2  `len` is the number of all bits.
//!   B3  Every group is at one place or free, and `recent` knows no other place of it.

use std::cell::Cell;
use std::collections::BTreeMap;
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

impl<V> Default for Group<V> {
    fn default() -> Group<V> {
        Group { present: 0, values: Vec::new() }
    }
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

/// An empty group keeps room for so many values: what a vector takes at first.
const KEPT_VALUES: usize = 4;

/// Number of groups that are found without the tree.
const RECENT: usize = 16;

/// Values by block.
pub(in crate::fs) struct BlockMap<V> {
    /// Where the groups are, in order.
    places: BTreeMap<GroupId, usize>,
    /// The groups, and empty ones for those to come.
    groups: Vec<Group<V>>,
    free: Vec<usize>,
    /// Groups that were asked for lately, each in the slot that follows from its name. Callers go through neighbours, with
    /// the indirect block above them and the inode's block of the map, and evict others in between.
    recent: [Cell<Option<(GroupId, usize)>>; RECENT],
    len: usize,
}

impl<V> Default for BlockMap<V> {
    fn default() -> BlockMap<V> {
        BlockMap { places: BTreeMap::new(), groups: Vec::new(), free: Vec::new(), recent: Default::default(), len: 0 }
    }
}

impl<V> BlockMap<V> {
    pub(in crate::fs) fn len(&self) -> usize {
        self.len
    }

    fn recent(&self, id: GroupId) -> &Cell<Option<(GroupId, usize)>> {
        let BlockId { ino, key } = id.0;
        &self.recent[((ino.0 ^ (key.0 / GROUP_BLOCKS) ^ (key.0 >> 56)) % RECENT as u64) as usize]
    }

    fn place(&self, id: GroupId) -> Option<usize> {
        match self.recent(id).get() {
            Some((known, place)) if known == id => Some(place),
            _ => {
                let place = *self.places.get(&id)?;
                self.recent(id).set(Some((id, place)));
                Some(place)
            }
        }
    }

    /// The place of a block's group, and the index of the block in it.
    fn find(&self, id: BlockId) -> Option<(usize, usize)> {
        let (group, number) = GroupId::of(id);
        let place = self.place(group)?;
        let group = &self.groups[place];
        group.has(number).then(|| (place, group.index(number)))
    }

    pub(in crate::fs) fn contains(&self, id: BlockId) -> bool {
        self.find(id).is_some()
    }

    pub(in crate::fs) fn get(&self, id: BlockId) -> Option<&V> {
        let (place, index) = self.find(id)?;
        Some(&self.groups[place].values[index])
    }

    pub(in crate::fs) fn get_mut(&mut self, id: BlockId) -> Option<&mut V> {
        let (place, index) = self.find(id)?;
        Some(&mut self.groups[place].values[index])
    }

    /// Adds a value. Returns the one that was there before.
    pub(in crate::fs) fn insert(&mut self, id: BlockId, value: V) -> Option<V> {
        let (group_id, number) = GroupId::of(id);
        let place = self.place(group_id).unwrap_or_else(|| self.add_group(group_id));
        let group = &mut self.groups[place];
        let index = group.index(number);
        if group.has(number) {
            return Some(std::mem::replace(&mut group.values[index], value));
        }
        group.present |= 1 << number;
        group.values.insert(index, value);
        debug_assert_eq!(group.values.len(), group.present.count_ones() as usize, "B1: a value for each bit");
        self.len += 1;
        None
    }

    fn add_group(&mut self, id: GroupId) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.groups.push(Group::default());
            self.groups.len() - 1
        });
        debug_assert_eq!(self.groups[place].present, 0, "B3: a free group is empty");
        let before = self.places.insert(id, place);
        debug_assert!(before.is_none(), "B3: a group is at one place");
        self.recent(id).set(Some((id, place)));
        place
    }

    pub(in crate::fs) fn remove(&mut self, id: BlockId) -> Option<V> {
        let (place, index) = self.find(id)?;
        let (group_id, number) = GroupId::of(id);
        let group = &mut self.groups[place];
        group.present &= !(1 << number);
        let value = group.values.remove(index);
        debug_assert_eq!(group.values.len(), group.present.count_ones() as usize, "B1: a value for each bit");
        if group.present == 0 {
            // The next file of one block takes its memory.
            if group.values.capacity() > KEPT_VALUES {
                *group = Group::default();
            }
            self.free.push(place);
            self.places.remove(&group_id);
            self.recent(group_id).set(None);
        }
        debug_assert!(self.len > 0, "B2: the number of all blocks counts this one");
        self.len -= 1;
        Some(value)
    }

    pub(in crate::fs) fn iter(&self) -> impl Iterator<Item = (BlockId, &V)> {
        self.places.iter().flat_map(|(&id, &place)| self.groups[place].blocks(id))
    }

    /// The blocks of a file whose keys are in `keys`.
    pub(in crate::fs) fn of_file(
        &self,
        ino: Ino,
        keys: RangeInclusive<BlockKey>,
    ) -> impl Iterator<Item = (BlockId, &V)> {
        let (first, last) = (BlockId { ino, key: *keys.start() }, BlockId { ino, key: *keys.end() });
        let groups = self.places.range(GroupId::of(first).0..=GroupId::of(last).0);
        let blocks = groups.flat_map(|(&id, &place)| self.groups[place].blocks(id));
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
                let id = BlockId { ino: Ino(4 + rng.below(3)), key };
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
            assert_eq!(map.places.len() + map.free.len(), map.groups.len(), "B3, seed {seed}");
            let bits = |place: &usize| map.groups[*place].present.count_ones() as usize;
            assert!(map.places.values().all(|place| map.groups[*place].values.len() == bits(place)), "B1, seed {seed}");
            assert!(map.places.values().all(|place| bits(place) > 0), "B1, seed {seed}");
        }
    }
}
