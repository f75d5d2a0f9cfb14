//! Which cached blocks share memory: a large write is cached as the blocks that it consists of, without a copy, and
//! then a single remaining block keeps the memory of all in use.
//!
//! Memory of a buffer without a cached block is *spare*. The remaining blocks of a buffer move out of it, each into
//! memory of its own, when a quarter of the buffer or more is spare, and all buffers together have more spare memory
//! than the cache grants. Data that is written in order is evicted in order, so hardly any of its memory is ever spare,
//! and nothing is copied. In any case, the cache takes at most that grant and a third more than its blocks count, and
//! copies at most three blocks for each that was replaced or evicted.

use std::collections::hash_map::Entry;

use super::format::BLOCK_BYTES;
use crate::device::{BufferId, Data};
use crate::units::FixedMap;

/// The buffers that cached blocks are slices of, except those that hold no more than a block.
pub(in crate::fs) struct SharedBuffers {
    /// Number of cached blocks in each.
    blocks: FixedMap<BufferId, usize>,
    spare_bytes: usize,
    spare_bytes_max: usize,
}

/// Whether so much of a buffer is spare that blocks are better in memory of their own.
fn is_sparse(spare_bytes: usize, buffer_bytes: usize) -> bool {
    4 * spare_bytes >= buffer_bytes
}

/// Bytes of the buffer of `data` that are in no block when `blocks` are cached. Cached blocks are different parts of it, so
/// they are no more than it has.
fn spare_of(data: &Data, blocks: usize) -> usize {
    match blocks {
        0 => 0,
        blocks => data.pinned_bytes() - blocks * BLOCK_BYTES,
    }
}

impl SharedBuffers {
    /// Grants `spare_bytes_max`.
    pub(in crate::fs) fn new(spare_bytes_max: usize) -> SharedBuffers {
        SharedBuffers { blocks: FixedMap::default(), spare_bytes: 0, spare_bytes_max }
    }

    /// Whether a cached block is a slice of the same buffer as `data`.
    pub(in crate::fs) fn has(&self, data: &Data) -> bool {
        self.blocks.contains_key(&data.buffer())
    }

    /// Bytes that the cached blocks keep in use and do not consist of.
    #[cfg(test)]
    pub(in crate::fs) fn spare_bytes(&self) -> usize {
        self.spare_bytes
    }

    /// A block with this content is cached from now on.
    pub(in crate::fs) fn enter(&mut self, data: &Data) {
        if data.pinned_bytes() <= BLOCK_BYTES {
            return;
        }
        let blocks = self.blocks.entry(data.buffer()).or_insert(0);
        debug_assert!(spare_of(data, *blocks) <= self.spare_bytes, "the sum is that of all buffers");
        self.spare_bytes -= spare_of(data, *blocks);
        *blocks += 1;
        self.spare_bytes += spare_of(data, *blocks);
    }

    /// A block with this content is no longer cached. True when the others of its buffer are to move out of it.
    #[must_use]
    pub(in crate::fs) fn leave(&mut self, data: &Data) -> bool {
        if data.pinned_bytes() <= BLOCK_BYTES {
            return false;
        }
        let Entry::Occupied(mut occupied) = self.blocks.entry(data.buffer()) else {
            unreachable!("a block leaves the buffer that it has entered");
        };
        let blocks = occupied.get_mut();
        debug_assert!(*blocks > 0, "a buffer in the table has a block");
        debug_assert!(spare_of(data, *blocks) <= self.spare_bytes, "the sum is that of all buffers");
        self.spare_bytes -= spare_of(data, *blocks);
        *blocks -= 1;
        let left = *blocks;
        if left == 0 {
            occupied.remove();
        }
        let spare = spare_of(data, left);
        self.spare_bytes += spare;
        self.spare_bytes > self.spare_bytes_max && left > 0 && is_sparse(spare, data.pinned_bytes())
    }

    /// Recounts from all cached blocks.
    ///
    /// # Errors
    /// What is wrong.
    pub(in crate::fs) fn check<'a>(&self, cached: impl Iterator<Item = &'a Data>) -> Result<(), String> {
        let mut found: FixedMap<BufferId, (usize, &Data)> = FixedMap::default();
        for data in cached.filter(|data| data.pinned_bytes() > BLOCK_BYTES) {
            found.entry(data.buffer()).or_insert((0, data)).0 += 1;
        }
        let spare: usize = found.values().map(|(blocks, data)| spare_of(data, *blocks)).sum();
        let is_right = |(buffer, (blocks, _)): (&BufferId, &(usize, &Data))| self.blocks.get(buffer) == Some(blocks);
        if found.len() != self.blocks.len() || !found.iter().all(is_right) {
            return Err("the buffers of cached blocks are counted wrongly".to_string());
        }
        if spare != self.spare_bytes {
            return Err(format!(
                "{} bytes of buffers are spare by the books, {spare} by the recount",
                self.spare_bytes
            ));
        }
        Ok(())
    }
}
