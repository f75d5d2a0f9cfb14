//! The part of the volume in memory that belongs to the virtual log.
//!
//! Invariants
//!   B1  Batches are numbered. They reach the device in any order. Their entries are set in the order of their numbers,
//!       so that every transaction of the log is a past state of the volume in memory.
//!   B2  A place is freed by the batch that no longer points to it, and is free when that batch is durable.
//!   B3  `cells` counts, for each cell with inodes, those of its inodes that are the newest version, or will be when
//!       the batches in flight are written.

use std::collections::{BTreeMap, BTreeSet};

use super::format::*;
use super::owners::Owners;
use super::{Counters, Options};
pub(super) use crate::fs::logfs::state::*;
use crate::fs::logfs::tree::*;
use crate::rt::{Gate, cover};
use crate::units::{FixedMap, Ino, SECTOR_BYTES, Sector};
use crate::vlog::{Aim, Garbage, Store};

/// The volume in memory.
pub(super) type State = crate::fs::logfs::state::State<Virtual>;
pub(super) type InodeMem = crate::fs::logfs::state::InodeMem<Virtual>;

/// Events and gates of the log's tasks.
#[derive(Default)]
pub(super) struct BackgroundWork {
    pub commit_gate: Gate,
    /// Where the device has a head, one batch is written at a time: two would take the head from each other.
    pub write_gate: Gate,
    /// Held by the task that empties a track; closing the volume waits for it.
    pub compact_gate: Gate,
    /// Tracks that could not be emptied.
    pub stubborn: std::cell::RefCell<BTreeSet<u32>>,
}

/// Changes that a batch causes once it is written.
#[derive(Default)]
pub(super) struct Effect {
    pub entries: Vec<(Ino, InodeSlot)>,
    pub garbage: Garbage,
    /// Bytes of `freed_pending_bytes` that become free with it.
    pub freed_bytes: u64,
}

/// The virtual log below a volume.
pub(super) struct Virtual {
    pub store: Store,
    pub options: Options,
    /// Number of blocks that can be used.
    pub usable_blocks: u64,
    /// Blocks that are still free when files have filled all they may.
    pub reserve_blocks: u64,
    /// Entries that are newer than the log's, and the batch that writes each.
    pub ahead: BTreeMap<Ino, (InodeSlot, u64)>,
    /// Inodes without a name that are in use, or are being freed or truncated.
    pub orphans: BTreeSet<Ino>,
    /// Inodes that no longer exist, for the next batch.
    pub removed: Vec<Ino>,
    /// Places that the next batch no longer needs.
    pub garbage: Garbage,
    pub garbage_bytes: u64,
    /// B3.
    pub cells: FixedMap<u64, u8>,
    /// Blocks with the parts of long attributes, by the sector of their list, as far as it has been read or written.
    pub parts: BTreeMap<Sector, Vec<u32>>,
    /// The owner of each block, where tracks are emptied.
    pub owners: Owners,
    /// Copies of blocks that nothing points to yet.
    pub copies: BTreeSet<u32>,
    /// Position of the heads when all batches in flight are written.
    pub aim: Option<Aim>,
    /// Number of the next batch.
    pub next_batch: u64,
    /// Effects of the batches that are in flight, or written and waiting for earlier ones.
    pub effects: BTreeMap<u64, Effect>,
    /// Of these batches, the ones that are written.
    pub written: BTreeSet<u64>,
    /// Every batch before this one has been entered into the map.
    pub applied: u64,
    /// Every batch before this one is durable.
    pub durable: u64,
    /// Bytes that become free when the batch is durable.
    pub freeing: BTreeMap<u64, u64>,
    pub in_flight_bytes: u64,
    pub counters: Counters,
}

impl Virtual {
    pub(super) fn cell_of(&self, slot: InodeSlot) -> u64 {
        slot.sector().0 / self.store.layout().cell_sectors
    }

    pub(super) fn block_of(&self, at: Sector) -> u32 {
        (at.0 / BLOCK_SECTORS) as u32
    }

    /// Counts the inode at `slot`.
    pub(super) fn count_slot(&mut self, slot: InodeSlot) {
        *self.cells.entry(self.cell_of(slot)).or_insert(0) += 1;
    }

    /// True when the volume, or the storage below, is nearly as full as it can get, so that new inodes share cells with
    /// others.
    pub(super) fn is_tight(&self) -> bool {
        self.store.free_blocks() < self.tight_blocks() || self.store.is_full_below()
    }

    /// Below this number of free blocks, `is_tight` is true.
    pub(super) fn tight_blocks(&self) -> u64 {
        let layout = self.store.layout();
        layout.margin + u64::from(layout.pieces) + self.reserve_blocks + TIGHT_BLOCKS
    }

    /// Enters written batches into the map, in order (B1).
    pub(super) fn apply(&mut self) {
        while self.written.remove(&self.applied) {
            let Some(effect) = self.effects.remove(&self.applied) else {
                unreachable!("B1: a batch has its effect until it is applied")
            };
            debug_assert!(
                self.effects.first_key_value().is_none_or(|(&next, _)| next > self.applied),
                "B1: batches are entered in the order of their numbers"
            );
            for &(ino, slot) in &effect.entries {
                debug_assert!(u32::try_from(slot.0).is_ok(), "an entry of the map can name the place of an inode");
                self.store.set(ino.0 as u32, slot.0 as u32);
                if self.ahead.get(&ino).is_some_and(|&(_, batch)| batch == self.applied) {
                    self.ahead.remove(&ino);
                }
            }
            self.store.discard(effect.garbage);
            let other = self.freeing.insert(self.applied, effect.freed_bytes);
            debug_assert!(other.is_none(), "B2: a batch frees what it replaces once");
            debug_assert!(self.durable <= self.applied, "L1: what is durable has been entered");
            self.applied += 1;
            debug_assert!(self.applied <= self.next_batch, "B1: only what was put together is applied");
        }
    }
}

/// Blocks before a full volume at which it counts as tight.
const TIGHT_BLOCKS: u64 = 64;

/// The version of an inode at `slot` is no longer needed (B2, B3).
pub(super) fn release_slot(state: &mut State, slot: InodeSlot) {
    if slot.is_none() {
        return;
    }
    let log = &mut state.log;
    let cell = log.cell_of(slot);
    let Some(count) = log.cells.get_mut(&cell) else { unreachable!("B3: the place of an inode is counted") };
    debug_assert!(*count > 0, "B3: a cell that is counted has inodes");
    *count -= 1;
    if *count == 0 {
        log.cells.remove(&cell);
        cover("vlfs: a cell of inodes becomes free");
        debug_assert!(!log.store.is_cell_free(cell), "B2: what is given back is taken until then");
        log.garbage.cells.push(cell);
        let bytes = u64::from(log.store.layout().cell_bytes());
        log.garbage_bytes += bytes;
        state.freed_pending_bytes += bytes;
    }
}

/// The target of a pointer is no longer needed (B2).
pub(super) fn release(state: &mut State, pointer: Pointer) {
    let Pointer::Mapped { at, sectors, .. } = pointer else { return };
    let log = &mut state.log;
    let before = log.garbage.blocks.len();
    let block = log.block_of(at);
    debug_assert!(!log.store.is_block_free(block), "B2: what is given back is taken until then");
    debug_assert!(!log.owners.are_kept() || log.owners.get(block).is_some(), "M2: what a file leads to has an owner");
    log.garbage.blocks.push(block);
    log.owners.clear(block);
    if u64::from(sectors) > BLOCK_SECTORS
        && let Some(parts) = log.parts.remove(&at)
    {
        debug_assert!(
            parts.iter().all(|&part| !log.store.is_block_free(part)),
            "B2: what is given back is taken until then"
        );
        parts.iter().for_each(|&part| log.owners.clear(part));
        log.garbage.blocks.extend(parts);
    }
    let bytes = blocks_bytes((log.garbage.blocks.len() - before) as u64);
    log.garbage_bytes += bytes;
    state.freed_pending_bytes += bytes;
}

/// Frees what the next version of an inode, which is being written now, no longer needs.
pub(super) fn release_deferred(state: &mut State, deferred_free: Vec<Pointer>) {
    let bytes = blocks_bytes(deferred_free.len() as u64);
    debug_assert!(bytes <= state.freed_pending_bytes, "B2: what is freed now was unmapped before");
    state.freed_pending_bytes -= bytes;
    deferred_free.into_iter().for_each(|pointer| release(state, pointer));
}

/// Most blocks that a batch of everything dirty takes, with `more` dirty blocks and attributes.
pub(super) fn blocks_needed(state: &State, more: u64, more_attributes: DirtyAttributes) -> u64 {
    let layout = state.log.store.layout();
    let inodes_per_cell = u64::from(layout.cell_bytes()) / Inode::BYTES as u64;
    let cells = (state.dirty_inodes.len() as u64 + 4).div_ceil(inodes_per_cell);
    let mut attributes = state.dirty_attributes;
    attributes += more_attributes;
    // Each file's last block may be nearly empty, and there may be a list of blocks.
    let attributes = attributes.bytes.div_ceil(BLOCK_BYTES as u64) + 2 * attributes.files;
    // Each cell may need a new block of its own when no other block has room.
    let cells = if state.log.is_tight() {
        cells.div_ceil(u64::from(layout.cells_per_block)) + 1
    } else {
        cells.min(64) + cells.div_ceil(u64::from(layout.cells_per_block))
    };
    state.blocks.dirty_count() + more + cells + attributes
}

/// Blocks in the unit of used space, bytes.
pub(super) fn blocks_bytes(blocks: u64) -> u64 {
    blocks * BLOCK_SECTORS * SECTOR_BYTES
}
