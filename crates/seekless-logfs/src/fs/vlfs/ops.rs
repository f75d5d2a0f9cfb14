//! The virtual log as `fs/logfs` uses it: the implementation of its trait.

use std::collections::BTreeSet;
use std::rc::Rc;

use async_trait::async_trait;

use super::assemble::Scope;
use super::format::*;
use super::state::*;
use super::storage::{kept_for_frees, pieces_needed};
use super::{BackgroundWork, Vlfs};
use crate::codec;
use crate::device::{Buf, Counter};
use crate::fs::logfs::LogTypes;
use crate::fs::logfs::backend::{Figures, InodeMap, LogBackend, SpaceAccounts};
use crate::fs::logfs::demand::{Demand, Hole, PENDING_MARGIN_BYTES, ReserveAccess};
use crate::fs::logfs::group_commit::GroupLog;
use crate::fs::logfs::tree::*;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::{Ino, Nanos, SECTOR_BYTES, Sector, human_bytes};

impl LogTypes for Virtual {
    const NAME: &'static str = "vlfs";

    /// Addresses that the inode's next version no longer needs.
    type DeferredFree = Vec<Pointer>;
    type BackgroundWork = BackgroundWork;
}

impl InodeMap for Virtual {
    fn imap_entry(state: &mut State, ino: Ino) -> Step<InodeSlot> {
        let slot = match state.log.ahead.get(&ino) {
            Some(&(slot, _)) => slot,
            None => InodeSlot(u32::try_from(ino.0).map_or(0, |number| state.log.store.entry(number)).into()),
        };
        if !slot.is_none() && !Self::holds(state, slot.sector(), 1) {
            let detail = format_args!("it points to sector {}, where nothing can be", slot.sector());
            return fail(FsError::corrupt("inode map", format_args!("entry of inode {ino}"), detail));
        }
        Ok(slot)
    }

    fn set_imap_entry(state: &mut State, ino: Ino, slot: InodeSlot) {
        state.log.ahead.insert(ino, (slot, state.log.next_batch));
    }

    fn imap_block(_: Ino) -> Option<BlockId> {
        None // The map is in memory.
    }

    fn inode_freed(state: &mut State, ino: Ino, known: InodeMem) {
        release_deferred(state, known.deferred_free);
        release(state, known.inode.xattr_pointer().unwrap_or_default());
        if !known.slot.is_none() {
            release_slot(state, known.slot);
            Self::set_imap_entry(state, ino, InodeSlot::NONE);
            state.log.removed.push(ino);
        }
    }

    fn set_orphan(state: &mut State, ino: Ino, is_orphan: bool) {
        match is_orphan {
            true => state.log.orphans.insert(ino),
            false => state.log.orphans.remove(&ino),
        };
    }

    fn is_orphan(state: &State, ino: Ino) -> bool {
        state.log.orphans.contains(&ino)
    }

    fn orphans(state: &State) -> Vec<Ino> {
        state.log.orphans.iter().copied().collect()
    }
}

impl SpaceAccounts for Virtual {
    fn holds(state: &State, at: Sector, sectors: u64) -> bool {
        let layout = state.log.store.layout();
        let (first, end) = (at.0 / layout.block_sectors, at.0.saturating_add(sectors).div_ceil(layout.block_sectors));
        end <= u64::from(layout.blocks) && (first..end).all(|block| !layout.is_reserved(block as u32))
    }

    fn knows_attribute_places(state: &State, pointer: Pointer) -> bool {
        match pointer {
            Pointer::Mapped { at, sectors, .. } => {
                u64::from(sectors) <= BLOCK_SECTORS || state.log.parts.contains_key(&at)
            }
            _ => true,
        }
    }

    fn used_bytes(state: &State) -> u64 {
        let inodes = (state.dirty_inodes.len() * Inode::BYTES) as u64;
        debug_assert!(
            state.log.store.free_blocks() + state.log.copies.len() as u64 <= state.log.usable_blocks,
            "what is free, or a copy, is one of the usable blocks"
        );
        let used = state.log.usable_blocks - state.log.store.free_blocks() - state.log.copies.len() as u64;
        let dirty = state.blocks.growth_bytes + state.dirty_attributes.growth_bytes + inodes;
        blocks_bytes(used) + state.unwritten_bytes + dirty
    }

    fn check_room(state: &State, demand: &Demand, access: ReserveAccess) -> Step<()> {
        let is_user = access == ReserveAccess::User;
        if is_user && !state.stalled.is_empty() {
            return fail(FsError::NoSpace);
        }
        let waits = state.freed_pending_bytes > 0 || state.log.durable < state.log.next_batch;
        let is_dirty = !state.dirty_inodes.is_empty() || !state.log.removed.is_empty();
        let used = Self::used_bytes(state) + demand.growth.max(0) as u64 + PENDING_MARGIN_BYTES;
        if demand.growth > 0 && is_user && used > state.volume.capacity_bytes {
            // Freed space counts as used until a transaction commits.
            cover("vlfs: a change finds the volume full, or what was freed not free yet");
            return if waits { need(Wait::LastRoom) } else { fail(FsError::NoSpace) };
        }
        let makes_data = is_user || access == ReserveAccess::FreesSpace && demand.has_file_data;
        if makes_data && state.dirty_bytes() > Self::dirty_bytes_max(state) {
            return need(Wait::WriteBack);
        }
        // S3: the batch of everything dirty fits, and the pieces of its transaction.
        let kept = match makes_data {
            true => state.log.store.layout().margin + state.log.reserve_blocks / 4,
            false => state.log.store.layout().margin,
        };
        if state.log.store.free_blocks() < blocks_needed(state, demand.blocks, demand.attributes) + kept {
            return if waits || is_dirty { need(Wait::WriteBack) } else { fail(FsError::NoSpace) };
        }
        // P1: the same, for storage below.
        let kept = pieces_needed(state) + if makes_data { kept_for_frees(&state.log) } else { 0 };
        if state.log.store.ready_blocks() < blocks_needed(state, demand.blocks, demand.attributes) + kept {
            let may_free = state.log.store.is_full_below() && (waits || is_dirty);
            return need(if may_free { Wait::WriteBack } else { Wait::Provision });
        }
        Ok(())
    }

    fn defer_free(state: &mut State, ino: Ino, freed: Vec<Pointer>, _: Vec<Hole>) {
        debug_assert!(freed.iter().all(|place| place.is_mapped()), "B2: only places are freed");
        let Some(known) = state.inodes.get_mut(&ino) else { return };
        state.freed_pending_bytes += (freed.len() * BLOCK_BYTES) as u64;
        known.deferred_free.extend(freed);
    }

    fn keeps_blocks(_: Ino) -> bool {
        false
    }

    fn batch_bytes(state: &State) -> u64 {
        BATCH_BYTES.min(state.log.options.dirty_bytes_max)
    }

    fn dirty_bytes_max(state: &State) -> u64 {
        state.log.options.dirty_bytes_max
    }

    fn attribute_sectors_before(_: &State, _: Sector) -> u64 {
        0
    }
}

impl Figures for Virtual {
    fn describe(state: &State) -> String {
        format!("vlfs ({})", human_bytes(blocks_bytes(state.log.store.layout().blocks.into())))
    }

    fn counters(state: &State) -> Vec<Counter> {
        let c = &state.log.counters;
        let mut counters = vec![
            ("batches", c.batches),
            ("data_blocks_written", c.data_blocks),
            ("indirect_blocks_written", c.indirect_blocks),
            ("inodes_written", c.inodes),
            ("inode_cells_written", c.inode_cells),
            ("device_writes", c.device_writes),
            ("blocks_moved", c.blocks_moved),
            ("block_reads", state.block_reads),
            ("inode_reads", state.inode_reads),
            ("recovery_inodes", c.recovery_inodes),
            ("recovery_indirect_blocks", c.recovery_indirect_blocks),
            ("recovery_ns", c.recovery_ns),
            ("blocks_free", state.log.store.free_blocks()),
            ("blocks", state.log.usable_blocks),
        ];
        counters.extend(state.in_memory());
        counters.extend(state.log.store.counters());
        counters
    }
}

#[async_trait(?Send)]
impl LogBackend for Virtual {
    async fn read_xattr(fs: &Vlfs, ino: Ino, pointer: Pointer) -> FsResult<Option<Buf>> {
        let Pointer::Mapped { at, sectors, crc } = pointer else { return Ok(None) };
        let holds = |at: Sector, sectors: u64| Self::holds(&fs.state.borrow(), at, sectors);
        let outside = |at: Sector| FsError::corrupt("extended attributes", at, "nothing can be there");
        let in_block = u64::from(sectors).min(BLOCK_SECTORS);
        if !holds(at, in_block) {
            return Err(outside(at));
        }
        let stored = fs.read_log_right(at, in_block, crc).await?;
        if codec::crc32c(&stored) != crc {
            return Ok(None);
        }
        if u64::from(sectors) <= BLOCK_SECTORS {
            return Ok(Some(stored));
        }
        let Some(parts) = parts_from_block(&stored) else {
            return Err(FsError::corrupt("extended attributes", at, "their list of parts makes no sense"));
        };
        let mut blocks = Vec::new();
        for part in &parts {
            let &Pointer::Mapped { at: part_at, sectors, .. } = part else { continue };
            if !holds(part_at, sectors.into()) {
                return Err(outside(part_at));
            }
            blocks.push((part_at.0 / BLOCK_SECTORS) as u32);
        }
        {
            let mut state = fs.state.borrow_mut();
            // While the list was read, the file may have left this place, and another one may have come there.
            if state.inodes.get(&ino).is_some_and(|known| known.inode.xattr_pointer() == Some(pointer)) {
                state.log.parts.insert(at, blocks);
            }
        }
        let mut whole = Vec::new();
        for part in parts {
            let Pointer::Mapped { at: part_at, sectors, crc } = part else { continue };
            let bytes = fs.read_log_right(part_at, sectors.into(), crc).await?;
            if codec::crc32c(&bytes) != crc {
                return Ok(None);
            }
            whole.extend_from_slice(&bytes);
        }
        if whole.len() as u64 != u64::from(sectors) * SECTOR_BYTES {
            return Err(FsError::corrupt("extended attributes", at, "their parts do not make up the whole"));
        }
        Ok(Some(Buf::from_slice(&whole)))
    }

    async fn wait(fs: &Vlfs, wait: Wait) -> FsResult<()> {
        match wait {
            Wait::Reclaim(ino) => fs.reclaim(ino).await,
            Wait::Provision => fs.provision().await,
            Wait::WriteBack | Wait::LastRoom | Wait::InFlight | Wait::Clean => fs.make_room().await,
        }
    }

    async fn sync(fs: &Rc<Vlfs>, file: Option<Ino>) -> FsResult<()> {
        match file {
            None => fs.sync(Scope::Everything).await,
            Some(file) => fs.group_commit.commit(&fs.rt, fs, file).await,
        }
    }

    /// Runs in a task of its own, to the end of a step, when the caller goes away: data in flight must not arrive at an
    /// address that has been given to another owner since.
    async fn idle(fs: &Rc<Vlfs>, until: Nanos) -> FsResult<bool> {
        let this = fs.clone();
        fs.rt.spawn(async move { this.compact(until).await }).await
    }

    async fn check(fs: &Rc<Vlfs>) -> FsResult<Vec<String>> {
        fs.recount().await
    }

    async fn close(fs: &Rc<Vlfs>) -> FsResult<()> {
        fs.end_writing().await
    }
}

impl GroupLog for Rc<Vlfs> {
    /// Where neither a head nor flushes make commits wait for each other, the data of one group are written during the
    /// transaction of another.
    fn turns(&self) -> u64 {
        let is_parallel = self.device.head().is_none() && self.device.guarantees().durable_on_completion;
        if is_parallel { 2 } else { 1 }
    }

    async fn start_transaction(&self, files: &BTreeSet<Ino>) -> FsResult<u64> {
        self.submit(Scope::Files(files))
    }

    async fn until_durable(&self, number: u64) -> FsResult<()> {
        self.make_durable(number).await
    }
}

/// Number of dirty bytes that is worth a batch: a few tracks.
const BATCH_BYTES: u64 = 1 << 20;
