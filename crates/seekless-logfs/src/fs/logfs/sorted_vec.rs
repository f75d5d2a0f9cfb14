//! A map for what one change touches: mostly a few entries, or many that come in order.
//!
//! It takes no memory when empty and one small allocation for a few entries, where a tree allocates a node for eleven. Adding in
//! order is adding at the end, or just before the few entries behind.

/// Entries of most changes: a new name changes its directory's inode and makes one.
const FEW: usize = 2;

/// Values by key, in order.
pub(in crate::fs) struct SortedVec<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedVec<K, V> {
    fn default() -> SortedVec<K, V> {
        SortedVec(Vec::new())
    }
}

impl<K: Ord + Copy, V> SortedVec<K, V> {
    pub(in crate::fs) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::fs) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Where the key is, or would be.
    fn find(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |(key, _)| *key)
    }

    pub(in crate::fs) fn contains(&self, key: K) -> bool {
        self.find(key).is_ok()
    }

    pub(in crate::fs) fn get(&self, key: K) -> Option<&V> {
        let index = self.find(key).ok()?;
        Some(&self.0[index].1)
    }

    pub(in crate::fs) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let index = self.find(key).ok()?;
        Some(&mut self.0[index].1)
    }

    /// Adds a value. Returns the one that was there before.
    pub(in crate::fs) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(key) {
            Ok(index) => Some(std::mem::replace(&mut self.0[index].1, value)),
            Err(index) => {
                if self.0.capacity() == 0 {
                    self.0.reserve_exact(FEW);
                }
                self.0.insert(index, (key, value));
                None
            }
        }
    }

    pub(in crate::fs) fn remove(&mut self, key: K) -> Option<V> {
        let index = self.find(key).ok()?;
        Some(self.0.remove(index).1)
    }

    pub(in crate::fs) fn keys(&self) -> impl Iterator<Item = K> + '_ {
        self.0.iter().map(|(key, _)| *key)
    }

    pub(in crate::fs) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (*key, value))
    }

    pub(in crate::fs) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(in crate::fs) fn into_iter(self) -> impl Iterator<Item = (K, V)> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rng::Rng;

    /// Aim: it is a map in order. Method: random calls, compared with a tree.
    #[test]
    fn it_is_a_map_in_order() {
        let mut rng = Rng::new(1);
        let (mut map, mut tree) = (SortedVec::default(), BTreeMap::new());
        for step in 0..5_000u64 {
            let key = rng.below(60);
            match rng.below(4) {
                0 | 1 => assert_eq!(map.insert(key, step), tree.insert(key, step)),
                2 => assert_eq!(map.remove(key), tree.remove(&key)),
                _ => assert_eq!(map.get_mut(key), tree.get_mut(&key)),
            }
            assert_eq!((map.get(key), map.contains(key)), (tree.get(&key), tree.contains_key(&key)));
            assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
        }
        assert!(map.keys().eq(tree.keys().copied()) && map.values().eq(tree.values()));
        assert!(map.iter_mut().map(|(key, value)| (key, *value)).eq(tree.iter().map(|(&key, &value)| (key, value))));
        assert!(map.into_iter().eq(tree));
    }
}
