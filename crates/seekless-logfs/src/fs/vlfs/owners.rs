//! Back references: from each block of the volume to the pointer to it.

use super::CompactUse;
use crate::fs::logfs::tree::{BlockId, BlockKey};
use crate::units::Ino;

/// Back references: the owner of each block (M2). 12 bytes for each block of 4096, and only where tracks are emptied.
#[derive(Default)]
pub(super) struct Owners {
    of: Vec<Owner>,
}

/// A [`BlockId`] in 12 bytes; inode 0 is none.
#[derive(Clone, Copy, Default)]
struct Owner {
    ino: u32,
    key: [u32; 2],
}

impl Owners {
    pub(super) fn of(compact: CompactUse, has_head: bool, blocks: u32) -> Owners {
        let is_kept = match compact {
            CompactUse::Never => false,
            CompactUse::WithHead => has_head,
            CompactUse::Always => true,
        };
        Owners { of: if is_kept { vec![Owner::default(); blocks as usize] } else { Vec::new() } }
    }

    pub(super) fn are_kept(&self) -> bool {
        !self.of.is_empty()
    }

    pub(super) fn set(&mut self, block: u32, id: BlockId) {
        debug_assert!(
            (1..=u64::from(u32::MAX)).contains(&id.ino.0),
            "M2: the number of an owner has 32 bits, and 0 means none"
        );
        debug_assert!(!self.are_kept() || (block as usize) < self.of.len(), "M2: each block has room for its owner");
        if let Some(owner) = self.of.get_mut(block as usize) {
            *owner = Owner { ino: id.ino.0 as u32, key: [(id.key.0 >> 32) as u32, id.key.0 as u32] };
        }
    }

    pub(super) fn clear(&mut self, block: u32) {
        if let Some(owner) = self.of.get_mut(block as usize) {
            *owner = Owner::default();
        }
    }

    pub(super) fn get(&self, block: u32) -> Option<BlockId> {
        let owner = self.of.get(block as usize).filter(|owner| owner.ino != 0)?;
        let key = BlockKey(u64::from(owner.key[0]) << 32 | u64::from(owner.key[1]));
        Some(BlockId { ino: Ino(owner.ino.into()), key })
    }
}
