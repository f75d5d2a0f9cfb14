//! What is known about the storage of free blocks, once the storage below has been full. See `provision`.
//!
//! Invariant
//!   P2  A fragment of a ready block that is free has storage.

use std::collections::BTreeSet;
use std::ops::Range;

use super::numbers::BlockNo;
use crate::rt::cover;

/// Blocks that the sweep has provisioned without a refusal, after which the host counts as having room: 2 MiB of 8 KiB.
const GRANTED_MAX: u32 = 256;

/// Freed blocks that are remembered. The sweep finds others.
const FREED_MAX: usize = 1 << 16;

/// Consecutive blocks of the volume, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Blocks {
    pub first: BlockNo,
    pub count: u32,
}

/// What is known about the storage of free blocks.
#[derive(Default)]
pub(super) struct Backing {
    /// The storage below has refused something, and has not shown since that it has room.
    pub is_full: bool,
    /// It has been full before in this life.
    pub was_full: bool,
    /// Free blocks with storage: free as a whole, and partly used.
    pub ready: BTreeSet<BlockNo>,
    pub partly_used: BTreeSet<BlockNo>,
    /// Blocks of which fragments were freed in this life.
    pub freed: BTreeSet<BlockNo>,
    /// Blocks whose write was refused.
    refused: BTreeSet<BlockNo>,
    /// The present sweep, and the block that it has come to.
    pub sweep: usize,
    pub swept: BlockNo,
    granted: u32,
    /// Whether this life knows how the storage below is.
    pub has_probed: bool,
}

impl Backing {
    /// A write of this block has been refused, or has succeeded.
    pub(super) fn note_written(&mut self, block: BlockNo, was_refused: bool) {
        if was_refused {
            self.found_full();
            self.refused.insert(block);
            self.ready.remove(&block);
            self.partly_used.remove(&block);
        } else if !self.refused.is_empty() {
            self.refused.remove(&block);
        }
    }

    /// P2: whether the free fragments of a block in use have storage.
    pub(super) fn is_partly_used(&self, block: BlockNo) -> bool {
        self.partly_used.contains(&block)
    }

    pub(super) fn found_full(&mut self) {
        if !self.is_full {
            cover("ffs: the storage below is full");
        }
        (self.is_full, self.granted) = (true, 0);
    }

    /// Fragments of this block have become free.
    pub(super) fn note_freed(&mut self, block: BlockNo, is_free: bool) {
        if self.refused.contains(&block) {
            self.partly_used.remove(&block);
            if is_free {
                self.refused.remove(&block);
            }
        } else if self.partly_used.contains(&block) {
            if is_free {
                self.partly_used.remove(&block);
                self.ready.insert(block);
            }
        } else if self.freed.len() < FREED_MAX {
            self.freed.insert(block);
        }
    }

    /// Fragments of this block have been allocated.
    pub(super) fn note_taken(&mut self, block: BlockNo) {
        if self.ready.remove(&block) {
            self.partly_used.insert(block);
        }
        self.freed.remove(&block);
    }

    /// Whether these blocks have storage is no longer known.
    pub(super) fn forget(&mut self, blocks: Range<BlockNo>) {
        for known in [&mut self.ready, &mut self.partly_used] {
            let mut later = known.split_off(&blocks.start);
            known.append(&mut later.split_off(&blocks.end));
        }
    }

    /// The first ready block from `preferred` on, around the end of the volume.
    pub(super) fn ready_from(&self, preferred: BlockNo) -> Option<BlockNo> {
        self.ready.range(preferred..).next().or_else(|| self.ready.first()).copied()
    }

    /// The device has provisioned free blocks, which the sweep found or not.
    pub(super) fn found(&mut self, blocks: Blocks, is_swept: bool) {
        let Blocks { first, count } = blocks;
        match is_swept {
            true => cover("ffs: a free block of an earlier life has storage"),
            false => cover("ffs: a freed block has storage"),
        }
        self.ready.extend(first.until(first + count));
        self.granted += if is_swept { count } else { 0 };
        if self.granted >= GRANTED_MAX {
            cover("ffs: the storage below has room again");
            self.is_full = false;
            self.freed.append(&mut self.ready);
            self.partly_used.clear();
        }
    }
}
