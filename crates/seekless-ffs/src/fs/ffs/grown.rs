//! Directories that have grown: what leads to a name is on the volume before the name is acknowledged.
//!
//! With synchronous metadata the writes are, in this order: 1) the new blocks, which have the name or empty chunks; 2) the
//! indirect blocks that lead to them; 3) the inode, with the new size. Until the inode is there, nothing reads what is behind
//! the old size. Indirect blocks are written separately, because the allocation of a block changes them only in memory.
//!
//! An operation may fail in between, for lack of space below. The directory has grown in memory then, and the next operation
//! uses the room. So the state remembers the size that the volume has for certain, until all three are written; the inode is
//! not even copied into its block before the first two are, because that block is written for other inodes, too.
//!
//! A block that has moved to where there is storage (`relocate`) is like a new one: names in it count when the volume leads there.

use super::cache::{Buffer, BufferKind};
use super::format::*;
use super::state::*;
use super::{Ffs, Metadata};
use crate::fs::{FsError, FsResult};

impl State {
    /// The directory, which has `size` bytes, is about to grow; or its block there has moved.
    pub(super) fn note_growing(&mut self, dir: InodeNo, size: u64) {
        if self.options.metadata == Metadata::Sync {
            let known = self.grown.entry(dir).or_insert(size);
            *known = size.min(*known);
        }
    }

    /// The directory whose names the block at `at` has, if the volume may not lead there.
    fn behind_growth(&self, at: FragNo) -> Option<InodeNo> {
        let BufferKind::Directory { ino, lbn } = self.cache.peek(at)?.kind else { return None };
        self.is_behind_growth(ino, lbn * self.block_bytes()).then_some(ino)
    }

    /// Whether the directory's place at `start` may be behind the size that the volume has.
    pub(super) fn is_behind_growth(&self, dir: InodeNo, start: u64) -> bool {
        self.grown.get(&dir).is_some_and(|&known| start >= known)
    }

    /// What has to be written before the inode of a directory that has grown: blocks, then indirect blocks, from the lowest
    /// level up.
    fn unwritten_growth(&mut self, dir: InodeNo) -> Step<Vec<FragNo>> {
        let Some(&known) = self.grown.get(&dir) else { return Ok(Vec::new()) };
        let inode = self.inode(dir)?.inode;
        let mut blocks = Vec::new();
        let mut levels: [Vec<FragNo>; INDIRECT] = Default::default();
        for lbn in known / self.block_bytes()..inode.size.div_ceil(self.block_bytes()) {
            blocks.extend(self.block_at(dir, lbn)?);
            let Some(path) = self.layout.path(lbn) else { continue };
            let mut at = inode.ib.get(path.slot).copied().unwrap_or_default();
            for level in 0..path.depth {
                if at == FragNo::NONE {
                    break;
                }
                let of_level = &mut levels[path.depth - 1 - level];
                if of_level.last() != Some(&at) {
                    of_level.push(at);
                }
                at = pointer_in(
                    &self.buffer(at, self.layout.frag, BufferKind::Indirect { ino: dir })?,
                    path.slots[level],
                );
            }
        }
        blocks.extend(levels.into_iter().flatten());
        // What is not in memory may have been written without a flush.
        blocks.retain(|&at| {
            let frags = self.layout.frag;
            let is_written = |buffer: &Buffer| buffer.dirty.is_none() && !buffer.volatile;
            self.cache.is_in_flight(at, frags) || !self.cache.peek(at).is_some_and(is_written)
        });
        Ok(blocks)
    }
}

impl Ffs {
    /// Writes a block of a directory in which names have changed, as [`Ffs::write_in_order`] does, and what leads to it, if the
    /// volume may not have that.
    pub(super) async fn write_names_in_order(&self, at: FragNo) -> FsResult<()> {
        let behind = self.state.borrow().behind_growth(at);
        self.write_in_order(at).await?;
        match behind {
            Some(dir) => self.write_inode_in_order(dir).await,
            None => Ok(()),
        }
    }

    /// The same as [`Ffs::write_in_order_or_later`] does.
    pub(super) async fn write_names_in_order_or_later(&self, at: FragNo) -> FsResult<()> {
        match self.write_names_in_order(at).await {
            Err(FsError::NoSpace) => Ok(()),
            result => result,
        }
    }

    /// Writes, in order, what leads to the end of a directory that has grown, except for its inode.
    ///
    /// # Errors
    /// `Stopped`, and `Device` when there is no space below.
    pub(super) async fn write_growth(&self, dir: InodeNo) -> FsResult<()> {
        if !self.state.borrow().grown.contains_key(&dir) {
            return Ok(());
        }
        for at in self.step(|state| state.unwritten_growth(dir)).await? {
            self.state.borrow_mut().counters.ordered_writes += 1;
            self.write_now(at).await?;
        }
        Ok(())
    }
}
