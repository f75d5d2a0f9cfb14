//! Blocks in memory: dirty ones until they are in the log, clean ones as long as there is room.
//!
//! Clean blocks are evicted in clock order (second chance). Where the caller has file data in a cache of its own, such
//! as the kernel's, blocks that have been written are evicted after a short while, and their memory serves the next
//! writes: memory that a process has not used before costs more than writing to it. The choice never changes a result,
//! only the time it takes.

use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use super::block_map::BlockMap;
use super::format::{BLOCK_BYTES, POINTERS_PER_BLOCK};
use super::shared_buffers::SharedBuffers;
use super::tree::{BlockId, BlockKey, is_internal};
use crate::device::Data;
use crate::fs::step::Changes;
use crate::rt::cover;
use crate::units::Ino;

/// A block whose current content is not in the log yet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::fs) struct Dirty {
    /// Bytes by which the live data of the volume will grow when this block is written, at most.
    pub growth_bytes: u64,
    /// Dirty only because the cleaner moves it; no user changed it.
    pub cleaned: bool,
    /// It holds entries of a directory.
    pub of_directory: bool,
}

/// Clock entries, beside two for each block, that removed blocks may have left behind.
const CLOCK_SPARE: usize = 1024;

/// Part of the cache's size that it may use in addition, for memory that its blocks keep in use beyond their own bytes.
const SPARE_SHARE: usize = 4;

/// Most blocks that the caller has as well and that stay in memory after they were written: an append changes a file's last
/// block soon after it has been made durable.
const LEAVING_BLOCKS_MAX: usize = 256;

/// They take at most this part of the cache: the rest is for what is read, which must stay until the step that needs it has
/// been repeated.
const LEAVING_SHARE: usize = 4;

/// Where a block is listed for eviction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    No,
    /// On the clock list. Each block is there at most once.
    Clock,
    /// Among those that leave soon.
    Leaving,
}

struct Cached {
    data: Data,
    is_dirty: bool,
    referenced: bool,
    /// Its content is that of a user's change, not as read: a leaf of a directory was checked before the change.
    is_checked: bool,
    listed: Listed,
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
    /// Those of them that hold entries of directories.
    dirty_of_directories: u64,
    clock: VecDeque<BlockId>,
    /// Clean blocks that the caller has as well, the oldest first. A block may be here that was removed or changed since.
    leaving: VecDeque<BlockId>,
    clean_max: usize,
    leaving_max: usize,
    shared: SharedBuffers,
    /// Sum of `growth_bytes` over the dirty blocks.
    pub growth_bytes: u64,
    /// Of dirty blocks.
    pub changes: Changes,
}

impl Blocks {
    /// Keeps up to `clean_bytes_max` of clean blocks, besides every dirty one.
    pub(in crate::fs) fn new(clean_bytes_max: u64) -> Blocks {
        let clean_max = (clean_bytes_max as usize / BLOCK_BYTES).max(64);
        Blocks {
            blocks: BlockMap::default(),
            dirty: BlockMap::default(),
            dirty_data: 0,
            dirty_of_directories: 0,
            clock: VecDeque::new(),
            leaving: VecDeque::new(),
            clean_max,
            leaving_max: LEAVING_BLOCKS_MAX.min(clean_max / LEAVING_SHARE),
            shared: SharedBuffers::new(clean_max * BLOCK_BYTES / SPARE_SHARE),
            growth_bytes: 0,
            changes: Changes::default(),
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

    /// Whether the block is in memory as a user's change has left it.
    pub(in crate::fs) fn is_checked(&self, id: BlockId) -> bool {
        self.blocks.get(id).is_some_and(|cached| cached.is_checked)
    }

    /// Adds a block just read. A block that is already in memory is newer, and stays.
    pub(in crate::fs) fn insert_clean(&mut self, id: BlockId, data: Data) {
        debug_assert_eq!(data.len(), BLOCK_BYTES, "blocks in memory are whole");
        if !self.blocks.contains(id) {
            // What was read with it may be of no use.
            let data = if data.pinned_bytes() > BLOCK_BYTES { Data::from_slice(&data) } else { data };
            let (is_dirty, referenced, is_checked) = (false, false, false);
            self.blocks.insert(id, Cached { data, is_dirty, referenced, is_checked, listed: Listed::Clock });
            self.enter_clock(id);
            self.evict();
        }
    }

    pub(in crate::fs) fn insert_dirty(&mut self, id: BlockId, data: Data, dirty: Dirty) {
        debug_assert_eq!(data.len(), BLOCK_BYTES, "blocks in memory are whole");
        self.changes.note();
        self.growth_bytes += dirty.growth_bytes;
        self.dirty_of_directories += u64::from(dirty.of_directory);
        let is_checked = !dirty.cleaned;
        match self.blocks.get_mut(id) {
            None => {
                self.shared.enter(&data);
                let (is_dirty, referenced, listed) = (true, true, Listed::No);
                self.blocks.insert(id, Cached { data, is_dirty, referenced, is_checked, listed });
            }
            Some(cached) => {
                (cached.is_dirty, cached.referenced) = (true, true);
                let old = std::mem::replace(&mut cached.data, data);
                cached.is_checked |= is_checked;
                // The cleaner moves a block with the content that it has.
                if cached.data.buffer() != old.buffer() {
                    cached.is_checked = is_checked;
                    self.shared.enter(&cached.data);
                    self.leave_buffer(id, old);
                }
            }
        }
        match self.dirty.insert(id, dirty) {
            Some(old) => {
                self.growth_bytes -= old.growth_bytes;
                self.dirty_of_directories -= u64::from(old.of_directory);
            }
            None => self.dirty_data += u64::from(is_data(id)),
        }
        debug_assert!(self.dirty_data <= self.dirty.len() as u64, "dirty blocks of data are dirty blocks");
    }

    fn remove_dirty(&mut self, id: BlockId) {
        if let Some(dirty) = self.dirty.remove(id) {
            self.changes.note();
            debug_assert!(dirty.growth_bytes <= self.growth_bytes, "the sum is that of all dirty blocks");
            debug_assert!(!is_data(id) || self.dirty_data > 0, "dirty blocks of data are counted");
            debug_assert!(!dirty.of_directory || self.dirty_of_directories > 0, "those of directories are counted");
            self.growth_bytes -= dirty.growth_bytes;
            self.dirty_data -= u64::from(is_data(id));
            self.dirty_of_directories -= u64::from(dirty.of_directory);
        }
    }

    /// Bytes of a dirty block, to change them in place.
    pub(in crate::fs) fn dirty_bytes_mut(&mut self, id: BlockId) -> Option<&mut [u8]> {
        let cached = self.blocks.get_mut(id)?;
        if cached.is_dirty && cached.data.pinned_bytes() > BLOCK_BYTES {
            let own = Data::from_slice(&cached.data);
            let shared = std::mem::replace(&mut cached.data, own);
            self.leave_buffer(id, shared);
        }
        let cached = self.blocks.get_mut(id)?;
        self.changes.note();
        cached.is_dirty.then(|| cached.data.make_mut())
    }

    /// Whether a block in memory is a slice of the same buffer as `data`.
    pub(in crate::fs) fn has_buffer_of(&self, data: &Data) -> bool {
        self.shared.has(data)
    }

    /// The block no longer has the content `data`. Moves the others of its buffer out of it, if that is due.
    fn leave_buffer(&mut self, id: BlockId, data: Data) {
        if !self.shared.leave(&data) {
            return;
        }
        cover("logfs: what is left of a large write moves out of its buffer");
        // They are neighbours in the file as they are in the buffer.
        let before = (data.buffer_offset() / BLOCK_BYTES) as u64;
        let behind = ((data.pinned_bytes() - data.buffer_offset()) / BLOCK_BYTES) as u64;
        let keys = BlockKey(id.key.0.saturating_sub(before))..=BlockKey(id.key.0.saturating_add(behind));
        let neighbours = self.blocks.of_file(id.ino, keys);
        let left = neighbours.filter(|(_, cached)| cached.data.buffer() == data.buffer()).map(|(id, _)| id);
        for id in left.collect::<Vec<BlockId>>() {
            if let Some(cached) = self.blocks.get_mut(id) {
                let own = Data::from_slice(&cached.data);
                // The last one has none to move after it.
                let _ = self.shared.leave(&std::mem::replace(&mut cached.data, own));
            }
        }
    }

    /// The block has been written to the log. With `leaves`, the caller has it as well.
    pub(in crate::fs) fn mark_clean(&mut self, id: BlockId, leaves: bool) {
        let Some(cached) = self.blocks.get_mut(id) else { return };
        if !std::mem::replace(&mut cached.is_dirty, false) {
            return;
        }
        debug_assert!(self.dirty.contains(id), "a block that is dirty is listed");
        if cached.listed == Listed::No {
            cached.listed = if leaves { Listed::Leaving } else { Listed::Clock };
            match leaves {
                true => self.leaving.push_back(id),
                false => self.enter_clock(id),
            }
        }
        self.remove_dirty(id);
        self.evict();
    }

    pub(in crate::fs) fn remove(&mut self, id: BlockId) {
        if let Some(Cached { data, is_dirty, .. }) = self.blocks.remove(id) {
            debug_assert_eq!(is_dirty, self.dirty.contains(id), "a block that is dirty is listed");
            if is_dirty {
                self.remove_dirty(id);
            }
            self.leave_buffer(id, data);
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

    /// Whether a block of `ino` is in memory.
    pub(in crate::fs) fn has_file(&self, ino: Ino) -> bool {
        self.blocks.of_file(ino, ALL).next().is_some()
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

    pub(in crate::fs) fn dirty_of_directories(&self) -> u64 {
        self.dirty_of_directories
    }

    pub(in crate::fs) fn count(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub(in crate::fs) fn dirty_count(&self) -> u64 {
        self.dirty.len() as u64
    }

    /// Forgets every clean block but those of `keep`.
    pub(in crate::fs) fn drop_clean(&mut self, keep: impl Fn(Ino) -> bool) {
        let clean = self.blocks.iter().filter(|(id, cached)| !cached.is_dirty && !keep(id.ino));
        for id in clean.map(|(id, _)| id).collect::<Vec<BlockId>>() {
            self.remove(id);
        }
        let blocks = &self.blocks;
        self.clock.retain(|id| blocks.contains(*id));
    }

    /// Recounts the dirty blocks, and the buffers that blocks share.
    ///
    /// # Errors
    /// The count that is wrong.
    pub(in crate::fs) fn check(&self) -> Result<(), String> {
        let dirty = self.blocks.iter().filter(|(_, cached)| cached.is_dirty).map(|(id, _)| id);
        if !dirty.eq(self.dirty_ids()) {
            return Err("the list of dirty blocks does not have the dirty blocks".to_string());
        }
        if self.leaving.len() > self.leaving_max {
            return Err(format!("{} blocks leave soon, and at most {} may", self.leaving.len(), self.leaving_max));
        }
        self.shared.check(self.blocks.iter().map(|(_, cached)| &cached.data))?;
        let clock: BTreeSet<BlockId> = self.clock.iter().copied().collect();
        let leaving: BTreeSet<BlockId> = self.leaving.iter().copied().collect();
        let is_lost = |id: &BlockId, cached: &Cached| match cached.listed {
            Listed::No => !cached.is_dirty,
            Listed::Clock => !clock.contains(id),
            Listed::Leaving => !leaving.contains(id),
        };
        match self.blocks.iter().find(|(id, cached)| is_lost(id, cached)) {
            Some((id, cached)) => Err(format!("{id:?} is marked as {:?} for eviction, and is not", cached.listed)),
            None => Ok(()),
        }
    }

    fn enter_clock(&mut self, id: BlockId) {
        self.clock.push_back(id);
        // A removed block leaves its clock entry behind.
        if self.clock.len() > 2 * self.blocks.len() + CLOCK_SPARE {
            let (blocks, mut seen) = (&self.blocks, BTreeSet::new());
            let is_here = |cached: &Cached| cached.listed == Listed::Clock;
            self.clock.retain(|id| blocks.get(*id).is_some_and(is_here) && seen.insert(*id));
        }
    }

    fn evict(&mut self) {
        while self.leaving.len() > self.leaving_max {
            let Some(id) = self.leaving.pop_front() else { break };
            match self.blocks.get_mut(id) {
                Some(cached) if cached.listed == Listed::Leaving && cached.is_dirty => cached.listed = Listed::No,
                Some(cached) if cached.listed == Listed::Leaving => self.remove(id),
                _ => {}
            }
        }
        debug_assert!(self.dirty.len() <= self.blocks.len(), "a dirty block is in memory");
        let mut turns = self.clock.len() * 2;
        while self.blocks.len() - self.dirty.len() > self.clean_max && turns > 0 {
            turns -= 1;
            let Some(id) = self.clock.pop_front() else { return };
            match self.blocks.get_mut(id) {
                None => {}
                // It returns to the clock when it becomes clean.
                Some(cached) if cached.listed != Listed::Clock => {}
                Some(cached) if cached.is_dirty => cached.listed = Listed::No,
                Some(cached) if cached.referenced => {
                    cached.referenced = false;
                    self.clock.push_back(id);
                }
                Some(_) => self.remove(id),
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
            blocks.mark_clean(id, false);
            assert_eq!(blocks.check(), Ok(()), "round {round}");
            if round % 3 != 0 {
                blocks.remove(id);
            }
        }
        assert!(blocks.clock.len() <= 2 * 7 + CLOCK_SPARE + 1, "{} places for 7 blocks", blocks.clock.len());
    }

    const INO: Ino = Ino(20);

    /// Blocks `first..first + count` as one write has them.
    fn write(blocks: &mut Blocks, first: u64, count: usize) {
        let whole = Data::from_slice(&vec![first as u8; count * BLOCK_BYTES]);
        for number in 0..count {
            let data = whole.slice(number * BLOCK_BYTES..(number + 1) * BLOCK_BYTES);
            blocks.insert_dirty(BlockId::data(INO, first + number as u64), data, Dirty::default());
        }
    }

    fn addresses(blocks: &Blocks) -> Vec<*const u8> {
        blocks.blocks.iter().map(|(_, cached)| cached.data.as_ptr()).collect()
    }

    /// Aim: what is written in order is never copied, and what is in memory is what counts. Method: writes of 1 MiB one after
    /// another, each put into the log, through a cache of 4 MiB; of what stays, nothing moves.
    #[test]
    fn evicting_in_order_copies_nothing() {
        let mut blocks = Blocks::new(4 << 20);
        for write_number in 0..40 {
            let before = addresses(&blocks);
            write(&mut blocks, write_number * 256, 256);
            (0..256).for_each(|number| blocks.mark_clean(BlockId::data(INO, write_number * 256 + number), false));
            let after = addresses(&blocks);
            let stayed = &before[(before.len() + 256).saturating_sub(after.len())..];
            assert_eq!(&after[..stayed.len()], stayed, "write {write_number}");
            assert_eq!(blocks.check(), Ok(()));
            assert!(blocks.shared.spare_bytes() < 1 << 20, "at most a part of the oldest buffer");
        }
    }

    /// Aim: a block that the cleaner moves keeps its content, and counts once in its buffer. Method: all blocks of a write are
    /// put into the log and made dirty again with the content that they have, twice.
    #[test]
    fn moved_blocks_stay_in_their_buffer() {
        let mut blocks = Blocks::new(4 << 20);
        write(&mut blocks, 0, 8);
        let before = addresses(&blocks);
        for _ in 0..2 {
            for id in (0..8).map(|index| BlockId::data(INO, index)) {
                blocks.mark_clean(id, false);
                let data = blocks.peek(id).cloned().expect("cached");
                blocks.insert_dirty(id, data, Dirty { cleaned: true, ..Dirty::default() });
            }
        }
        assert_eq!(addresses(&blocks), before);
        assert_eq!(blocks.shared.spare_bytes(), 0);
        assert_eq!((blocks.check(), blocks.dirty_count()), (Ok(()), 8));
    }

    /// Aim: blocks that are left of large writes do not keep all of the memory. Method: of writes of 1 MiB all blocks but one
    /// in sixteen are removed, in three orders; contents stay.
    #[test]
    fn what_is_left_of_buffers_moves_out() {
        let orders: [fn(u64) -> u64; 3] = [|number| number, |number| 4095 - number, |number| number * 1337 % 4096];
        for order in orders {
            let mut blocks = Blocks::new(16 << 20);
            (0..16).for_each(|number| write(&mut blocks, number * 256, 256));
            for index in (0..4096).map(order).filter(|index| index % 16 != 3) {
                blocks.remove(BlockId::data(INO, index));
                let counted = blocks.blocks.len() * BLOCK_BYTES;
                assert!(blocks.shared.spare_bytes() <= counted / 3 + (4 << 20), "a third, and a quarter of the cache");
            }
            assert_eq!(blocks.check(), Ok(()));
            assert_eq!(blocks.blocks.len(), 256);
            for (id, cached) in blocks.blocks.iter() {
                assert!(cached.data.iter().all(|&byte| byte == (id.key.0 / 256 * 256) as u8), "{id:?}");
            }
        }
    }

    /// Aim: what the caller has as well takes little memory, and the last block of a file that is appended to stays. Method:
    /// blocks are written, changed again, removed and written once more, while one of them is written again and again; other
    /// blocks stay as they did.
    #[test]
    fn what_the_caller_has_leaves() {
        let mut blocks = Blocks::new(16 << 20);
        let write = |blocks: &mut Blocks, ino: u64, index: u64, leaves: bool| {
            let id = BlockId::data(Ino(ino), index);
            blocks.insert_dirty(id, Data::zeroes(BLOCK_BYTES), Dirty::default());
            blocks.mark_clean(id, leaves);
            assert_eq!(blocks.check(), Ok(()), "block {index} of {ino}");
        };
        (0..10).for_each(|index| write(&mut blocks, 17, index, false));
        let mut absent = 0;
        for round in 0..3_000u64 {
            absent += u64::from(blocks.peek(BlockId::data(Ino(19), 0)).is_none());
            write(&mut blocks, 19, 0, true);
            write(&mut blocks, 18, round % 700, true);
            if round % 3 == 0 {
                blocks.remove(BlockId::data(Ino(18), (round * 7) % 700));
            }
            let dirty = BlockId::data(Ino(18), round % 5);
            blocks.insert_dirty(dirty, Data::zeroes(BLOCK_BYTES), Dirty::default());
            if round % 2 == 0 {
                blocks.mark_clean(dirty, true);
            }
        }
        assert!(blocks.blocks.len() <= 10 + LEAVING_BLOCKS_MAX + 5, "{} blocks", blocks.blocks.len());
        assert!((0..10).all(|index| blocks.peek(BlockId::data(Ino(17), index)).is_some()));
        assert!(absent < 40, "the last block of a file was absent {absent} times");
    }

    /// Aim: a block that changes in place changes alone. Method: one block of a write of four.
    #[test]
    fn a_slice_is_copied_before_it_changes() {
        let mut blocks = Blocks::new(1 << 20);
        write(&mut blocks, 7, 4);
        blocks.dirty_bytes_mut(BlockId::data(INO, 8)).unwrap().fill(1);
        let first = |index| blocks.peek(BlockId::data(INO, index)).unwrap()[0];
        assert_eq!([7, 8, 9, 10].map(first), [7, 1, 7, 7]);
        assert_eq!((blocks.check(), blocks.shared.spare_bytes()), (Ok(()), BLOCK_BYTES));
        // The rest of the write takes its place again.
        write(&mut blocks, 7, 4);
        assert_eq!((blocks.check(), blocks.shared.spare_bytes()), (Ok(()), 0));
    }
}
