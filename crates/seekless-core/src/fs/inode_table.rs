//! The inodes that a file system has in memory, and which of them to forget.
//!
//! A clock (second chance): the hand goes round the inodes; one that was looked up since the hand last passed stays for another
//! round, and so does one that is needed, for example because it is dirty. A forgotten inode is read again when it is looked up.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use crate::units::FixedMap;

/// Inodes that one call of [`InodeTable::evict`] looks at. When nearly all are needed, looking at every one for each that is
/// added would take a time that grows with the square of their number.
const TURNS: usize = 64;

/// An inode in memory, as the clock sees it.
pub trait Referenced {
    /// Whether it was looked up since the hand last passed.
    fn referenced(&mut self) -> &mut bool;
}

/// Inodes in memory by their number.
///
/// Each has memory of its own, so that adding and removing moves none of the others. Iteration is in the order of their
/// numbers.
pub struct InodeTable<K, V> {
    known: FixedMap<K, Box<V>>,
    /// The numbers of those that may be forgotten, in the order in which the hand comes to them. A number may be here whose
    /// inode is gone.
    clock: VecDeque<K>,
}

impl<K, V> Default for InodeTable<K, V> {
    fn default() -> InodeTable<K, V> {
        InodeTable { known: FixedMap::default(), clock: VecDeque::new() }
    }
}

impl<K: Ord + Copy + Hash, V: Referenced> InodeTable<K, V> {
    /// The inode, without a mark.
    pub fn get(&self, number: &K) -> Option<&V> {
        Some(self.known.get(number)?)
    }

    pub fn count(&self) -> usize {
        self.known.len()
    }

    pub fn contains_key(&self, number: &K) -> bool {
        self.known.contains_key(number)
    }

    /// The inode, which is marked as looked up.
    pub fn look_up(&mut self, number: K) -> Option<&mut V> {
        let inode = self.known.get_mut(&number)?;
        *inode.referenced() = true;
        Some(inode)
    }

    /// The inode, without a mark.
    pub fn get_mut(&mut self, number: &K) -> Option<&mut V> {
        Some(self.known.get_mut(number)?)
    }

    /// All inodes, without a mark.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let mut all: Vec<(&K, &V)> = self.known.iter().map(|(number, inode)| (number, &**inode)).collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter()
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(number, _)| number)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, inode)| inode)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let mut all: Vec<(&K, &mut V)> = self.known.iter_mut().map(|(number, inode)| (number, &mut **inode)).collect();
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, inode)| inode)
    }

    /// The numbers of inodes for which `is_wanted` is true, without a mark.
    pub fn numbers(&self, is_wanted: impl Fn(&V) -> bool) -> Vec<K> {
        let wanted = self.known.iter().filter(|(_, inode)| is_wanted(inode));
        let mut numbers: Vec<K> = wanted.map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Adds an inode that may be forgotten, or replaces it.
    pub fn insert(&mut self, number: K, inode: V) -> &mut V {
        match self.known.entry(number) {
            Entry::Occupied(known) => {
                let known = known.into_mut();
                **known = inode;
                known
            }
            Entry::Vacant(vacant) => {
                self.clock.push_back(number);
                vacant.insert(Box::new(inode))
            }
        }
    }

    /// Adds an inode that is never forgotten, or replaces it.
    pub fn insert_permanent(&mut self, number: K, inode: V) {
        self.known.insert(number, Box::new(inode));
    }

    pub fn remove(&mut self, number: &K) -> Option<V> {
        self.known.remove(number).map(|inode| *inode)
    }

    /// Forgets inodes that are not needed, a few at a time, while there are more than `target`.
    pub fn evict(&mut self, target: usize, is_needed: impl Fn(K, &V) -> bool) {
        for _ in 0..TURNS {
            if self.clock.len() <= target {
                return;
            }
            let Some(number) = self.clock.pop_front() else { return };
            let Some(inode) = self.known.get_mut(&number) else { continue };
            let was_referenced = std::mem::take(inode.referenced());
            if was_referenced || is_needed(number, inode) {
                self.clock.push_back(number);
            } else {
                self.known.remove(&number);
            }
        }
    }

    /// Forgets every inode that is not needed.
    pub fn drop_clean(&mut self, is_needed: impl Fn(K, &V) -> bool) {
        self.known.retain(|&number, inode| is_needed(number, inode));
        let known = &self.known;
        self.clock.retain(|number| known.contains_key(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[derive(Default)]
    struct Toy {
        referenced: bool,
        dirty: bool,
    }

    impl Referenced for Toy {
        fn referenced(&mut self) -> &mut bool {
            &mut self.referenced
        }
    }

    /// Of two that are in use alike, the one that was looked up stays.
    #[test]
    fn what_was_looked_up_stays_for_another_round() {
        let mut table = InodeTable::default();
        for number in 0..4 {
            table.insert(number, Toy::default());
        }
        table.look_up(0);
        table.evict(2, |_, toy| toy.dirty);
        assert_eq!(table.keys().copied().collect::<Vec<_>>(), [0, 3]);
    }

    /// Nothing that is needed or permanent goes, and the others stay within the target, once as many turns were made as there are
    /// inodes, whatever was added, replaced and removed in between.
    #[test]
    fn needed_inodes_stay() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut table: InodeTable<u64, Toy> = InodeTable::default();
            table.insert_permanent(0, Toy::default());
            for _ in 0..2_000 {
                let number = 1 + rng.below(300);
                match rng.below(4) {
                    0 => {
                        table.insert(number, Toy { dirty: rng.chance(1, 4), referenced: true });
                    }
                    1 => drop(table.remove(&number)),
                    2 => drop(table.look_up(number).map(|toy| toy.dirty = false)),
                    _ => {
                        let dirty = |table: &InodeTable<u64, Toy>| table.values().filter(|toy| toy.dirty).count();
                        let before = dirty(&table);
                        table.evict(20, |_, toy| toy.dirty);
                        assert_eq!(dirty(&table), before, "seed {seed}");
                    }
                }
                let missing = table.keys().find(|&&number| number != 0 && !table.clock.contains(&number));
                assert_eq!(missing, None, "seed {seed}: this can never be forgotten");
            }
            for _ in 0..2_000 / TURNS * 2 {
                table.evict(20, |_, toy| toy.dirty);
            }
            let clean = table.iter().filter(|(number, toy)| **number != 0 && !toy.dirty).count();
            assert!(clean <= 20 && table.contains_key(&0), "seed {seed}: {clean} clean inodes");
            table.drop_clean(|number, toy| number == 0 || toy.dirty);
            assert!(table.iter().all(|(&number, toy)| number == 0 || toy.dirty));
        }
    }
}
