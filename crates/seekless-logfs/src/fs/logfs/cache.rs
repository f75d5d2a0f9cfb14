//! Blocks in memory: dirty ones until they are in the log, clean ones as long as there is room.
//!
//! Clean blocks are evicted in clock order (second chance). The choice never changes a result, only the time it takes.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use super::block_map::BlockMap;
use super::format::{BLOCK_BYTES, POINTERS_PER_BLOCK};
use super::is_internal;
use super::tree::{BlockId, BlockKey};
use crate::device::Data;
use crate::units::Ino;

/// A block whose current content is not in the log yet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::fs) struct Dirty {
    /// Bytes by which the live data of the volume will grow when this block is written.
    pub growth_bytes: u64,
    /// Dirty only because the cleaner moves it; no user changed it.
    pub cleaned: bool,
}

/// Clock entries, beside two for each block, that removed blocks may have left behind.
const CLOCK_SPARE: usize = 1024;

struct Cached {
    data: Data,
    is_dirty: bool,
    referenced: bool,
    /// The block is on the clock list. Each block is there at most once.
    in_clock: bool,
}

/// The keys of all blocks of a file.
const ALL: RangeInclusive<BlockKey> = BlockKey(0)..=BlockKey(u64::MAX);

fn is_data(id: BlockId) -> bool {
    id.key.is_data() && !is_internal(id.ino)
}

pub(in crate::fs) struct Blocks {
    blocks: BlockMap<Cached>,
    /// Those of them whose content is not in the log yet.
    dirty: BlockMap<Dirty>,
    /// Number of dirty blocks that are data of users' files and directories.
    dirty_data: u64,
    clock: VecDeque<BlockId>,
    clean_max: usize,
    /// Sum of `growth_bytes` over the dirty blocks.
    pub growth_bytes: u64,
}

impl Blocks {
    /// Keeps up to `clean_bytes_max` of clean blocks, besides every dirty one.
    pub(in crate::fs) fn new(clean_bytes_max: u64) -> Blocks {
        let clean_max = (clean_bytes_max as usize / BLOCK_BYTES).max(64);
        Blocks {
            blocks: BlockMap::default(),
            dirty: BlockMap::default(),
            dirty_data: 0,
            clock: VecDeque::new(),
            clean_max,
            growth_bytes: 0,
        }
    }

    pub(in crate::fs) fn get(&mut self, id: BlockId) -> Option<&Data> {
        let cached = self.blocks.get_mut(id)?;
        cached.referenced = true;
        Some(&cached.data)
    }

    /// As [`Blocks::get`], without counting as an access.
    pub(in crate::fs) fn peek(&self, id: BlockId) -> Option<&Data> {
        self.blocks.get(id).map(|cached| &cached.data)
    }

    pub(in crate::fs) fn dirty(&self, id: BlockId) -> Option<Dirty> {
        self.dirty.get(id).copied()
    }

    /// Adds a block just read. A block that is already in memory is newer, and stays.
    pub(in crate::fs) fn insert_clean(&mut self, id: BlockId, data: Data) {
        debug_assert_eq!(data.len(), BLOCK_BYTES);
        if !self.blocks.contains(id) {
            self.blocks.insert(id, Cached { data, is_dirty: false, referenced: false, in_clock: true });
            self.enter_clock(id);
            self.evict();
        }
    }

    pub(in crate::fs) fn insert_dirty(&mut self, id: BlockId, data: Data, dirty: Dirty) {
        debug_assert_eq!(data.len(), BLOCK_BYTES);
        self.growth_bytes += dirty.growth_bytes;
        match self.blocks.get_mut(id) {
            None => {
                self.blocks.insert(id, Cached { data, is_dirty: true, referenced: true, in_clock: false });
            }
            Some(cached) => (cached.data, cached.is_dirty, cached.referenced) = (data, true, true),
        }
        match self.dirty.insert(id, dirty) {
            Some(old) => self.growth_bytes -= old.growth_bytes,
            None => self.dirty_data += u64::from(is_data(id)),
        }
        debug_assert!(self.dirty_data <= self.dirty.len() as u64, "dirty blocks of data are dirty blocks");
    }

    fn remove_dirty(&mut self, id: BlockId) {
        if let Some(dirty) = self.dirty.remove(id) {
            self.growth_bytes -= dirty.growth_bytes;
            self.dirty_data -= u64::from(is_data(id));
        }
    }

    /// Bytes of a dirty block, to change them in place.
    pub(in crate::fs) fn dirty_bytes_mut(&mut self, id: BlockId) -> Option<&mut [u8]> {
        let cached = self.blocks.get_mut(id)?;
        cached.is_dirty.then(|| cached.data.make_mut())
    }

    /// The block has been put into the log.
    pub(in crate::fs) fn mark_clean(&mut self, id: BlockId) {
        if let Some(cached) = self.blocks.get_mut(id)
            && std::mem::replace(&mut cached.is_dirty, false)
        {
            if !std::mem::replace(&mut cached.in_clock, true) {
                self.enter_clock(id);
            }
            self.remove_dirty(id);
            self.evict();
        }
    }

    pub(in crate::fs) fn remove(&mut self, id: BlockId) {
        if self.blocks.remove(id).is_some_and(|cached| cached.is_dirty) {
            self.remove_dirty(id);
        }
    }

    /// Forgets every block of `ino`, dirty ones too: the file is gone.
    pub(in crate::fs) fn remove_file(&mut self, ino: Ino) {
        self.remove_where(ino, |_| true);
    }

    /// Forgets the blocks of `ino` for whose keys `is_gone` is true, dirty ones too.
    pub(in crate::fs) fn remove_where(&mut self, ino: Ino, is_gone: impl Fn(BlockKey) -> bool) {
        let ids: Vec<BlockId> = self.blocks.of_file(ino, ALL).map(|(id, _)| id).filter(|id| is_gone(id.key)).collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// Dirty blocks of `ino`, data first, then indirect blocks by tree and level.
    pub(in crate::fs) fn dirty_of(&self, ino: Ino) -> impl Iterator<Item = (BlockId, Dirty)> + '_ {
        self.dirty.of_file(ino, ALL).map(|(id, &dirty)| (id, dirty))
    }

    /// Whether a block that `node` points to is dirty.
    pub(in crate::fs) fn is_dirty_below(&self, node: BlockId) -> bool {
        let children = node.key.child(0)..=node.key.child(POINTERS_PER_BLOCK - 1);
        self.dirty.of_file(node.ino, children).next().is_some()
    }

    pub(in crate::fs) fn dirty_ids(&self) -> impl Iterator<Item = BlockId> + '_ {
        self.dirty.iter().map(|(id, _)| id)
    }

    pub(in crate::fs) fn dirty_data_count(&self) -> u64 {
        self.dirty_data
    }

    pub(in crate::fs) fn dirty_count(&self) -> u64 {
        self.dirty.len() as u64
    }

    /// Forgets every clean block but those of `keep`.
    pub(in crate::fs) fn drop_clean(&mut self, keep: impl Fn(Ino) -> bool) {
        self.blocks.retain(|id, cached| cached.is_dirty || keep(id.ino));
        let blocks = &self.blocks;
        self.clock.retain(|id| blocks.contains(*id));
    }

    /// Recounts the dirty blocks.
    ///
    /// # Errors
    /// The count that is wrong.
    pub(in crate::fs) fn check(&self) -> Result<(), String> {
        let dirty = self.blocks.iter().filter(|(_, cached)| cached.is_dirty).map(|(id, _)| id);
        if !dirty.eq(self.dirty_ids()) {
            return Err("the list of dirty blocks does not have the dirty blocks".to_string());
        }
        let clock: BTreeSet<BlockId> = self.clock.iter().copied().collect();
        let lost = self.blocks.iter().find(|(id, cached)| cached.in_clock && !clock.contains(id));
        match lost {
            Some((id, _)) => Err(format!("{id:?} is marked as on the clock list, and is not")),
            None => Ok(()),
        }
    }

    fn enter_clock(&mut self, id: BlockId) {
        self.clock.push_back(id);
        // A removed block leaves its clock entry behind.
        if self.clock.len() > 2 * self.blocks.len() + CLOCK_SPARE {
            let (blocks, mut seen) = (&self.blocks, BTreeSet::new());
            self.clock.retain(|id| blocks.get(*id).is_some_and(|cached| cached.in_clock) && seen.insert(*id));
        }
    }

    fn evict(&mut self) {
        let mut turns = self.clock.len() * 2;
        while self.blocks.len() - self.dirty.len() > self.clean_max && turns > 0 {
            turns -= 1;
            let Some(id) = self.clock.pop_front() else { return };
            match self.blocks.get_mut(id) {
                None => {}
                // It returns to the clock when it becomes clean.
                Some(cached) if cached.is_dirty => cached.in_clock = false,
                Some(cached) if cached.referenced => {
                    cached.referenced = false;
                    self.clock.push_back(id);
                }
                Some(_) => {
                    self.blocks.remove(id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: the clock does not grow with the age of the volume. Method: blocks that are written and removed, again and
    /// again, and never so many at once that any has to be evicted.
    #[test]
    fn the_clock_stays_small() {
        let mut blocks = Blocks::new(1 << 20);
        for round in 0..5_000u64 {
            let id = BlockId::data(Ino(20), round % 7);
            blocks.insert_dirty(id, Data::zeroes(BLOCK_BYTES), Dirty::default());
            blocks.mark_clean(id);
            assert_eq!(blocks.check(), Ok(()), "round {round}");
            if round % 3 != 0 {
                blocks.remove(id);
            }
        }
        assert!(blocks.clock.len() <= 2 * 7 + CLOCK_SPARE + 1, "{} places for 7 blocks", blocks.clock.len());
    }
}
