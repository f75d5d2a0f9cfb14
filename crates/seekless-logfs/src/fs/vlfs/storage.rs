//! Storage below, where it is allocated on demand, as in an image file with holes: allocated before changes that need it
//! are accepted, so that what is dirty finds room whatever becomes of the host, and files can be deleted when it is full.
//!
//! Invariants
//!   P1  A change is accepted only if enough blocks are ready for the batch of everything dirty and for the pieces of its
//!       transaction. Changes that make data leave [`kept_for_frees`] more, which changes that free space may use.

use super::Vlfs;
use super::state::*;
use crate::fs::{FsError, FsResult};

/// Most blocks that are kept ready for changes that free space. The reserve of the smallest volumes has as many.
const KEPT_BLOCKS_MAX: u64 = 256;

/// Blocks of one change: a request of 1 MiB with its indirect blocks, or the longest attributes.
const CHANGE_BLOCKS: u64 = 320;

/// Attempts on full storage. A large volume has a million stretches.
const REFUSED_MAX: u32 = 64;

/// The same for a mount: an earlier one may have allocated storage anywhere.
const REFUSED_AT_MOUNT_MAX: u32 = 1 << 16;

impl Vlfs {
    /// Begins to allocate storage before it is used, enough to delete files.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub(super) async fn provision_at_mount(&self) -> FsResult<()> {
        let store = self.state.borrow().log.store.clone();
        store.manage_backing().await?;
        let kept = {
            let state = self.state.borrow();
            kept_when_full(&state)
        };
        store.provision(kept, kept, REFUSED_AT_MOUNT_MAX).await?;
        Ok(())
    }

    /// Allocates storage below for some more changes.
    ///
    /// # Errors
    /// `NoSpace` when the storage below is full, and device errors.
    pub(super) async fn provision(&self) -> FsResult<()> {
        let (store, target, kept, was_full) = {
            let state = self.state.borrow();
            let dirty_most = state.log.options.dirty_bytes_max.div_ceil(blocks_bytes(1));
            let needed = blocks_needed(&state, 0, DirtyAttributes::default()) + pieces_needed(&state);
            let kept = kept_when_full(&state);
            let store = state.log.store.clone();
            let was_full = store.is_full_below();
            // One change can be larger than all of that.
            let target = (needed + 2 * dirty_most + kept).max(store.ready_blocks()) + CHANGE_BLOCKS;
            (store, target, kept, was_full)
        };
        let has_more = store.provision(target, kept, REFUSED_MAX).await?;
        // The first time, what is being freed may help.
        if has_more || store.is_full_below() && !was_full { Ok(()) } else { Err(FsError::NoSpace) }
    }
}

/// Blocks kept ready for changes that free space (P1).
pub(super) fn kept_for_frees(log: &Virtual) -> u64 {
    (log.reserve_blocks / 4).min(KEPT_BLOCKS_MAX)
}

/// Blocks that stay ready when the storage below is full.
fn kept_when_full(state: &State) -> u64 {
    kept_for_frees(&state.log) + pieces_needed(state) + CHANGE_BLOCKS.min(kept_for_frees(&state.log))
}

/// Blocks that the pieces of the next transaction take at most: those of all entries that change, and as many again that
/// they displace in the log.
pub(super) fn pieces_needed(state: &State) -> u64 {
    let log = &state.log;
    let layout = log.store.layout();
    let entries = state.dirty_inodes.len() + log.removed.len() + log.ahead.len() + log.store.pending_entries();
    let pieces = 2 * (entries as u64 + 4);
    (pieces.div_ceil(u64::from(layout.cells_per_block)) + 2).min(layout.margin)
}
