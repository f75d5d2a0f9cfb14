//! The segment usage table and the list of orphans, as a mount loads them from a checkpoint.
//!
//! Format: FORMAT.md, "Internal files".
//!
//! Both can be derived from the rest of the volume, so that damage to them costs a recount and no file. What cannot be
//! read is doubted; a mount for writing and a repair recount it (V4) and rewrite it.

use super::Lfs;
use super::format::*;
use super::state::*;
use crate::device::Buf;
use crate::fs::logfs::tree::BlockId;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::Ino;

impl Lfs {
    pub(super) async fn load_tables(&self, expected_live: u64) -> FsResult<()> {
        self.load_usage(expected_live).await?;
        self.load_orphans().await
    }

    async fn load_usage(&self, expected_live: u64) -> FsResult<()> {
        let blocks = self.state.borrow().log.segments.table_blocks();
        let mut unread = Vec::new();
        for block in 0..blocks {
            let bytes = match self.run(|state| state.block(BlockId::data(USAGE_INO, block))).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => continue,
                Err(error) if error.is_of_one_place() => {
                    unread.push(block);
                    self.doubt_usage(format!("segment usage table: {error}"));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let loaded = self.state.borrow_mut().log.segments.load_block(block, &bytes);
            if let Err(segment) = loaded {
                unread.push(block);
                self.doubt_usage(format!(
                    "segment usage table: segment {segment}: it has more live bytes than it can hold"
                ));
            }
        }
        {
            let mut state = self.state.borrow_mut();
            let (segment, next_segment) = (state.log.end.segment, state.log.end.next_segment);
            state.log.segments.loaded(&unread);
            state.log.segments.take(segment);
            state.log.segments.take(next_segment);
        }
        let live = self.state.borrow().log.segments.live_bytes;
        if live != expected_live {
            self.doubt_usage(format!(
                "segment usage table: its segments hold {live} live bytes, the checkpoint says {expected_live}"
            ));
        }
        Ok(())
    }

    async fn load_orphans(&self) -> FsResult<()> {
        let slots = self.state.borrow().inodes.get(&ORPHAN_INO).map_or(0, |known| known.inode.size / 8) as usize;
        if slots as u64 > self.state.borrow().log.layout.ino_end() {
            return Err(FsError::corrupt("orphan list", "checkpoint", "it has more entries than there can be inodes"));
        }
        let (mut entries, mut unread) = (Vec::with_capacity(slots), Vec::new());
        for block in 0..slots.div_ceil(ORPHANS_PER_BLOCK) as u64 {
            let bytes = match self.run(|state| state.block(BlockId::data(ORPHAN_INO, block))).await {
                Ok(bytes) => bytes,
                Err(error) if error.is_of_one_place() => {
                    unread.push(block);
                    self.doubt_orphans(error);
                    None
                }
                Err(error) => return Err(error),
            };
            let bytes = bytes.unwrap_or_else(|| Buf::zeroed(BLOCK_BYTES).freeze());
            entries.extend(bytes.chunks_exact(8).map(|raw| Ino(crate::codec::get_at(raw, 0).unwrap_or(0))));
        }
        entries.truncate(slots);
        let (mut orphans, repeated) = Orphans::from_slots(entries);
        orphans.dirty_blocks.extend(unread);
        self.state.borrow_mut().log.orphans = orphans;
        for ino in repeated {
            self.doubt_orphans(format!("inode {ino} occurs twice"));
        }
        Ok(())
    }

    /// Records that the usage table cannot be trusted, and why.
    pub(super) fn doubt_usage(&self, why: String) {
        cover("lfs: a mount does not believe the usage table");
        let was_exact = std::mem::replace(&mut self.state.borrow_mut().log.exact, false);
        if was_exact {
            self.warn(why);
        }
    }

    /// Records that the list of orphans is not complete, and why.
    fn doubt_orphans(&self, why: impl std::fmt::Display) {
        cover("lfs: a mount does not believe the list of orphans");
        let was_known = std::mem::replace(&mut self.state.borrow_mut().log.orphans_known, false);
        if was_known {
            self.warn(format!("orphan list: {why}"));
        }
    }

    /// Whether a recount has to replace what a table says.
    pub(super) fn doubts_tables(&self) -> bool {
        let state = self.state.borrow();
        !state.log.exact || !state.log.orphans_known
    }

    /// Empties the tables with blocks whose places cannot be known, because an indirect block above them cannot be read. The
    /// next checkpoint writes such a table as a whole, elsewhere. A recount before that finds nothing of it alive.
    pub(super) async fn forget_unreachable_tables(&self) -> FsResult<()> {
        let (usage, orphans) = {
            let log = &self.state.borrow().log;
            (log.segments.table_blocks(), log.orphans.slots.len().div_ceil(ORPHANS_PER_BLOCK) as u64)
        };
        for (ino, blocks) in [(USAGE_INO, usage), (ORPHAN_INO, orphans)] {
            if self.can_find_blocks(ino, blocks).await? {
                continue;
            }
            cover("lfs: a table is rewritten because an indirect block of it is lost");
            let mut guard = self.state.borrow_mut();
            let state = &mut *guard;
            state.blocks.remove_file(ino);
            if let Some(known) = state.inodes.get_mut(&ino) {
                (0..POINTERS_IN_INODE).for_each(|slot| known.inode.set_pointer(slot, Pointer::Hole));
            }
            match ino {
                USAGE_INO => (0..blocks).for_each(|block| state.log.segments.touch(block * USAGES_PER_BLOCK)),
                _ => state.log.orphans.dirty_blocks.extend(0..blocks),
            }
        }
        Ok(())
    }

    async fn can_find_blocks(&self, ino: Ino, blocks: u64) -> FsResult<bool> {
        for block in 0..blocks {
            match self.run(|state| state.pointer(BlockId::data(ino, block))).await {
                Ok(_) => {}
                Err(error) if error.is_of_one_place() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
