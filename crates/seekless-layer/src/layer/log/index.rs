//! The index of one file: which record holds which chunk.
//!
//! A tree of nodes with 256 entries, as deep as the file needs; its root is in the slot. A small file has no nodes. A
//! commit writes each changed node once, out of place, from the leaves up.
//!
//! Everything here is synchronous. [`Step::Load`] names a node that is not in memory; the caller reads it, passes it to
//! [`Index::insert`], and asks again.
//!
//! Invariants
//!   X1  All nodes above a changed node are in memory and changed.
//!   X2  An entry above a changed node is that of its last written state, or a hole.

use std::collections::BTreeMap;
use std::ops::Range;

use super::format::{DEPTH_MAX, Entry, NODE_ENTRIES, NODE_SHIFT, ROOT_ENTRIES};
use crate::rt::cover;

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    depth: u8,
    root: Vec<Entry>,
    nodes: BTreeMap<(u8, u64), IndexNode>,
}

#[derive(Clone, Debug)]
struct IndexNode {
    entries: Vec<Entry>,
    changed: bool,
}

/// A result, or the node that has to be loaded first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step<T> {
    Done(T),
    Load(NodeAt),
}

/// A node that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeAt {
    pub(super) level: u8,
    /// Number within its level.
    pub(super) number: u64,
    pub(super) entry: Entry,
}

impl NodeAt {
    /// The chunks below it.
    pub(super) fn chunks(&self) -> Range<u64> {
        let shift = NODE_SHIFT * u32::from(self.level);
        self.number << shift..(self.number + 1) << shift
    }
}

/// Number of the subtree of `level` levels that contains `chunk`.
fn at_level(chunk: u64, level: u8) -> u64 {
    chunk.checked_shr(NODE_SHIFT * u32::from(level)).unwrap_or(0)
}

fn place_in_node(number: u64) -> usize {
    number as usize % NODE_ENTRIES
}

impl Index {
    pub(super) fn new(depth: u8, root: Vec<Entry>) -> Index {
        Index { depth, root, nodes: BTreeMap::new() }
    }

    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    /// The entries for the slot. Valid only when no node is changed.
    pub(super) fn root(&self) -> &[Entry] {
        debug_assert!(self.nodes.values().all(|node| !node.changed), "X2: the root leads to what is written");
        &self.root
    }

    /// True when chunk number `chunk` can be indexed.
    pub(super) fn has_room(chunk: u64) -> bool {
        at_level(chunk, DEPTH_MAX) < ROOT_ENTRIES as u64
    }

    /// Adds a node that [`Step::Load`] asked for.
    pub(super) fn insert(&mut self, at: NodeAt, mut entries: Vec<Entry>) {
        debug_assert!((1..=self.depth).contains(&at.level), "X1: a node lies between the root and the chunks");
        entries.resize(NODE_ENTRIES, Entry::HOLE);
        self.nodes.entry((at.level, at.number)).or_insert(IndexNode { entries, changed: false });
    }

    /// The record of `chunk`.
    pub(super) fn get(&self, chunk: u64) -> Step<Entry> {
        let Some(mut entry) = self.root.get(at_level(chunk, self.depth) as usize).copied() else {
            return Step::Done(Entry::HOLE);
        };
        for level in (1..=self.depth).rev() {
            let number = at_level(chunk, level);
            match self.nodes.get(&(level, number)) {
                Some(node) => entry = node.entries[place_in_node(at_level(chunk, level - 1))],
                None if entry.is_hole() => return Step::Done(Entry::HOLE),
                None => return Step::Load(NodeAt { level, number, entry }),
            }
        }
        Step::Done(entry)
    }

    /// The first chunk, at or after `from`, that has a record.
    pub(super) fn next(&self, mut from: u64) -> Step<Option<(u64, Entry)>> {
        'search: loop {
            let Some(mut entry) = self.root.get(at_level(from, self.depth) as usize).copied() else {
                return Step::Done(None);
            };
            for level in (1..=self.depth).rev() {
                let number = at_level(from, level);
                match self.nodes.get(&(level, number)) {
                    Some(node) => entry = node.entries[place_in_node(at_level(from, level - 1))],
                    None if entry.is_hole() => {
                        from = (number + 1) << (NODE_SHIFT * u32::from(level));
                        continue 'search;
                    }
                    None => return Step::Load(NodeAt { level, number, entry }),
                }
            }
            if !entry.is_hole() {
                return Step::Done(Some((from, entry)));
            }
            from += 1;
        }
    }

    /// Makes `entry` the record of `chunk`, and returns the previous one.
    pub(super) fn set(&mut self, chunk: u64, entry: Entry) -> Step<Entry> {
        let before = match self.get(chunk) {
            Step::Done(before) => before,
            load => return load,
        };
        if before == entry {
            return Step::Done(before);
        }
        while at_level(chunk, self.depth) >= ROOT_ENTRIES as u64 {
            self.grow();
        }
        let root_place = at_level(chunk, self.depth) as usize;
        if self.root.len() <= root_place {
            self.root.resize(root_place + 1, Entry::HOLE);
        }
        // A node missing now has no entry: `get` has loaded all the others.
        for level in (1..=self.depth).rev() {
            let blank = || IndexNode { entries: vec![Entry::HOLE; NODE_ENTRIES], changed: true };
            let node = self.nodes.entry((level, at_level(chunk, level))).or_insert_with(blank);
            node.changed = true; // X1
        }
        debug_assert!(
            (1..=self.depth).all(|level| self.nodes.contains_key(&(level, at_level(chunk, level)))),
            "X1: all nodes above a changed entry are in memory"
        );
        debug_assert!(
            (1..=self.depth)
                .all(|level| self.nodes.get(&(level, at_level(chunk, level))).is_none_or(|node| node.changed)),
            "X1: all nodes above a changed entry are changed"
        );
        *self.entry_mut(0, chunk) = entry;
        Step::Done(before)
    }

    /// Adds a level: the root becomes its first node.
    fn grow(&mut self) {
        assert!(self.depth < DEPTH_MAX, "the caller has asked `has_room`");
        cover("layer: an index gets another level");
        let is_empty = self.nodes.is_empty() && self.root.iter().all(Entry::is_hole);
        self.depth += 1;
        let mut entries = std::mem::take(&mut self.root);
        if !is_empty {
            entries.resize(NODE_ENTRIES, Entry::HOLE);
            self.nodes.insert((self.depth, 0), IndexNode { entries, changed: true });
            self.root.push(Entry::HOLE);
        }
    }

    /// The entry for number `number` in `level`, where level 0 are the chunks. The node above is in memory.
    fn entry_mut(&mut self, level: u8, number: u64) -> &mut Entry {
        if level == self.depth {
            return &mut self.root[number as usize];
        }
        let above = self.nodes.get_mut(&(level + 1, number >> NODE_SHIFT));
        match above {
            Some(node) => &mut node.entries[place_in_node(number)],
            None => unreachable!("X1"),
        }
    }

    /// The changed nodes of `level`, each with its entries. A node without entries is removed instead of being written,
    /// and its old record is in the second result.
    pub(super) fn changed(&mut self, level: u8) -> (Vec<(u64, Vec<Entry>)>, Vec<Entry>) {
        let range = (level, 0)..=(level, u64::MAX);
        let changed = self.nodes.range(range).filter(|(_, node)| node.changed);
        let changed: Vec<(u64, Vec<Entry>)> =
            changed.map(|((_, number), node)| (*number, node.entries.clone())).collect();
        let (empty, full): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|(_, entries)| entries.iter().all(Entry::is_hole));
        let mut dropped = Vec::new();
        for (number, _) in empty {
            self.nodes.remove(&(level, number));
            dropped.push(std::mem::replace(self.entry_mut(level, number), Entry::HOLE));
        }
        debug_assert!(
            level == self.depth
                || full.iter().all(|(number, _)| {
                    self.nodes.get(&(level + 1, number >> NODE_SHIFT)).is_some_and(|above| above.changed)
                }),
            "X1: the node above a changed one is changed"
        );
        (full, dropped)
    }

    /// Records that the node has been written as `entry`. Returns its previous record.
    pub(super) fn written(&mut self, level: u8, number: u64, entry: Entry) -> Entry {
        debug_assert!(
            self.nodes.get(&(level, number)).is_some_and(|node| node.changed),
            "X2: a node is written because it has changed"
        );
        debug_assert!(!entry.is_hole(), "X2: a node that is written has a record");
        if let Some(node) = self.nodes.get_mut(&(level, number)) {
            node.changed = false;
        }
        std::mem::replace(self.entry_mut(level, number), entry)
    }

    /// Marks a node for rewriting by the next commit; it and the nodes above it are in memory.
    pub(super) fn rewrite(&mut self, level: u8, number: u64) {
        debug_assert!(
            (level..=self.depth)
                .all(|above| { self.nodes.contains_key(&(above, number >> (NODE_SHIFT * u32::from(above - level)))) }),
            "X1: a node that is rewritten is in memory, with all above it"
        );
        for above in level..=self.depth {
            let number = number >> (NODE_SHIFT * u32::from(above - level));
            if let Some(node) = self.nodes.get_mut(&(above, number)) {
                node.changed = true; // X1
            }
        }
    }

    /// Every stored record of a node that is in memory.
    pub(super) fn node_entries(&self) -> Vec<(u8, u64, Entry)> {
        let mut all = Vec::new();
        for &(level, number) in self.nodes.keys() {
            let entry = match level == self.depth {
                true => self.root.get(number as usize).copied(),
                false => {
                    self.nodes.get(&(level + 1, number >> NODE_SHIFT)).map(|above| above.entries[place_in_node(number)])
                }
            };
            all.extend(entry.filter(|entry| !entry.is_hole()).map(|entry| (level, number, entry)));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// A store of written nodes, as a file would be.
    struct Bench {
        index: Index,
        store: BTreeMap<u64, Vec<Entry>>,
        next: u64,
    }

    fn record(number: u64) -> Entry {
        Entry { offset: 1024 + number * 64, bytes: 64, crc: number as u32 }
    }

    impl Bench {
        fn with<T>(&mut self, mut ask: impl FnMut(&mut Index) -> Step<T>) -> T {
            loop {
                match ask(&mut self.index) {
                    Step::Done(answer) => return answer,
                    Step::Load(at) => self.index.insert(at, self.store[&at.entry.offset].clone()),
                }
            }
        }

        /// Writes all changed nodes, and reads the index again from the store.
        fn commit(&mut self) {
            for level in 1..=self.index.depth() {
                let (changed, dropped) = self.index.changed(level);
                let mut old = dropped;
                for (number, entries) in changed {
                    let entry = record(self.next);
                    self.next += 1;
                    self.store.insert(entry.offset, entries);
                    old.push(self.index.written(level, number, entry));
                }
                for entry in old.into_iter().filter(|entry| !entry.is_hole()) {
                    assert!(self.store.remove(&entry.offset).is_some(), "each record is dropped once");
                }
            }
            self.index = Index::new(self.index.depth(), self.index.root().to_vec());
        }
    }

    /// Aim: the index behaves as a map. Method: random changes near and far on it and on a plain map, with commits in
    /// between; at the end no dropped record is left.
    #[test]
    fn an_index_is_a_map() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let mut bench = Bench { index: Index::default(), store: BTreeMap::new(), next: 1 << 40 };
            let mut plain = BTreeMap::new();
            let far = [30, 7_000, 3_000_000, 1 << 47][seed as usize % 4];
            for number in 0..300 {
                let chunk = if rng.chance(2, 3) { rng.below(40) } else { rng.below(far) };
                let entry = if rng.chance(1, 4) { Entry::HOLE } else { record(number) };
                let before = bench.with(|index| index.set(chunk, entry));
                assert_eq!(before, plain.insert(chunk, entry).unwrap_or(Entry::HOLE));
                if rng.chance(1, 20) {
                    bench.commit();
                }
            }
            for (&chunk, &entry) in &plain {
                assert_eq!(bench.with(|index| index.get(chunk)), entry, "seed {seed}, chunk {chunk}");
            }
            let mut from = 0;
            for (&chunk, &entry) in plain.iter().filter(|(_, entry)| !entry.is_hole()) {
                assert_eq!(bench.with(|index| index.next(from)), Some((chunk, entry)), "seed {seed}");
                from = chunk + 1;
            }
            assert_eq!(bench.with(|index| index.next(from)), None);
            for &chunk in plain.keys() {
                bench.with(|index| index.set(chunk, Entry::HOLE));
            }
            bench.commit();
            assert!(bench.store.is_empty(), "seed {seed}: {:?}", bench.store.keys());
        }
    }
}
