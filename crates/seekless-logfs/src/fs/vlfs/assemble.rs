//! Assembling a batch: places for dirty data, and bytes that point to each other.
//!
//! Paper: [wa99 §3.3], of which only the idea is known. Format: FORMAT.md, "Batches and transactions".
//!
//! A batch is assembled in one synchronous step, so it is a snapshot: no operation is half in it. Data goes first, then
//! indirect blocks from the bottom up, then inodes. Eager writing chooses the places one after the other, so that a
//! small batch is one sweep of the head, and a large one fills empty tracks.
//!
//! Invariants
//!   A1  Every batch has every change of the name space made so far, and of each file either all changes or none.

use super::format::*;
use super::state::*;
use crate::device::{Buf, Data};
use crate::fs::FsError;
use crate::fs::logfs::backend::InodeMap;
use crate::fs::logfs::books::ATTRIBUTES;
pub(super) use crate::fs::logfs::state::Scope;
use crate::fs::logfs::tree::*;
use crate::units::{Ino, SECTOR_BYTES, Sector, sectors_for};
use crate::vlog::Aim;
use crate::vlog::eager::AllocPurpose;

/// Bytes for the device, and their address.
pub(super) type BlockWrite = (Sector, Data);

/// In the order in which the addresses were chosen.
type Laid = Vec<BlockWrite>;

/// What is to be written; the log's `effects` record what becomes true once it is written.
pub(super) struct Batch {
    pub number: u64,
    /// In the order in which their addresses were chosen, each as long as possible.
    pub writes: Vec<BlockWrite>,
}

/// Assembles the batch of `scope`, in places chosen for `purpose`; `None` when there is nothing to write.
///
/// # Errors
/// `NoSpace` when there are not enough free blocks, which S3 excludes. After an error nothing has changed.
pub(super) fn assemble(state: &mut State, scope: Scope<'_>, purpose: AllocPurpose) -> Step<Option<Batch>> {
    let inodes: Vec<Ino> = state.dirty_inodes_of(scope).collect();
    if inodes.is_empty() && state.log.removed.is_empty() {
        return Ok(None);
    }
    let mut aim = state.log.store.aim(state.log.aim.take());
    let mut places = Places::take(state, &inodes, purpose, &mut aim)?;
    state.log.aim = Some(aim);
    let number = state.log.next_batch;
    let mut laid: Laid = Vec::new();
    for &ino in &inodes {
        lay_file(state, ino, &mut places, &mut laid)?;
    }
    lay_inodes(state, &inodes, &places.cells, &mut laid);
    debug_assert!(inodes.is_sorted(), "dirty inodes come in order");
    // A number that was freed may already belong to another file.
    let removed = std::mem::take(&mut state.log.removed).into_iter().filter(|ino| inodes.binary_search(ino).is_err());
    let mut entries: Vec<(Ino, InodeSlot)> = removed.map(|ino| (ino, InodeSlot::NONE)).collect();
    for &ino in &inodes {
        entries.push((ino, state.inodes.get(&ino).map_or(InodeSlot::NONE, |known| known.slot)));
    }
    for &(ino, slot) in &entries {
        Virtual::set_imap_entry(state, ino, slot);
    }
    debug_assert!(places.blocks.is_empty(), "B2: what was taken for a batch is written with it");
    debug_assert!(!state.log.effects.contains_key(&number), "B1: a batch has a number of its own");
    debug_assert!(number >= state.log.applied, "B1: a batch is entered after it is put together");
    debug_assert!(
        state
            .dirty_inodes
            .iter()
            .all(|ino| { state.inodes.get(ino).is_none_or(|known| known.dirt != InodeDirt::Namespace) }),
        "A1: every change of the name space is in the batch"
    );
    let effect = Effect {
        entries,
        garbage: std::mem::take(&mut state.log.garbage),
        freed_bytes: std::mem::take(&mut state.log.garbage_bytes),
    };
    state.log.effects.insert(number, effect);
    state.log.next_batch += 1;
    state.log.counters.batches += 1;
    let writes = joined(laid);
    state.log.counters.device_writes += writes.len() as u64;
    for (at, data) in &writes {
        state.log.in_flight_bytes += data.len() as u64;
        state.in_flight.push(InFlight { at: *at, data: data.clone(), sequence: number });
    }
    Ok(Some(Batch { number, writes }))
}

/// Places that were taken for a batch.
struct Places {
    blocks: std::collections::VecDeque<u32>,
    /// Cells for the inodes; each takes as many as fit.
    cells: Vec<u64>,
}

impl Places {
    fn take(state: &State, inodes: &[Ino], purpose: AllocPurpose, aim: &mut Aim) -> Step<Places> {
        let store = &state.log.store;
        let layout = store.layout();
        let mut places = Places { blocks: Default::default(), cells: Vec::new() };
        let per_cell = inodes_per_cell(state);
        let mut cells = inodes.len().div_ceil(per_cell);
        let is_tight = state.log.is_tight();
        // Cells that fill most of a block get a block of their own.
        let whole = match is_tight {
            true => 0,
            false => (cells + layout.cells_per_block as usize / 4) / layout.cells_per_block as usize,
        };
        let wanted = blocks_of(state, inodes) + whole;
        let mut taken = 0;
        while taken < wanted {
            let Some(run) = store.take_run(aim, purpose, (wanted - taken) as u32) else { return places.give_up(state) };
            places.blocks.extend(run.first..run.first + run.blocks);
            taken += run.blocks as usize;
        }
        for _ in 0..whole {
            let Some(block) = places.blocks.pop_back() else { break };
            let first = layout.first_cell(block);
            for cell in first..first + u64::from(layout.cells_per_block) {
                match cells {
                    0 => store.give_cell(cell),
                    _ => {
                        places.cells.push(cell);
                        cells -= 1;
                    }
                }
            }
        }
        for _ in 0..cells {
            let Some(cell) = store.take_cell(aim, is_tight) else { return places.give_up(state) };
            places.cells.push(cell);
        }
        debug_assert_eq!(places.blocks.len(), blocks_of(state, inodes), "B2: each dirty block has a place");
        debug_assert_eq!(places.cells.len(), inodes.len().div_ceil(per_cell), "B3: each inode has a place in a cell");
        Ok(places)
    }

    /// Gives all places back.
    fn give_up(self, state: &State) -> Step<Places> {
        let store = &state.log.store;
        let layout = store.layout();
        for block in self.blocks {
            let first = layout.first_cell(block);
            (first..first + u64::from(layout.cells_per_block)).for_each(|cell| store.give_cell(cell));
        }
        self.cells.into_iter().for_each(|cell| store.give_cell(cell));
        fail(FsError::NoSpace)
    }

    fn next(&mut self) -> u32 {
        match self.blocks.pop_front() {
            Some(block) => block,
            None => unreachable!("as many were taken as are dirty"),
        }
    }
}

fn inodes_per_cell(state: &State) -> usize {
    state.log.store.layout().cell_bytes() as usize / Inode::BYTES
}

/// Number of blocks that the dirty blocks and attributes of these files take.
fn blocks_of(state: &State, inodes: &[Ino]) -> usize {
    let of = |ino: &Ino| {
        let attributes = match state.inodes.get(ino) {
            Some(known) if known.xattr_dirty => known.xattr.as_ref().map_or(0, |data| attribute_blocks(data.len())),
            _ => 0,
        };
        state.blocks.dirty_of(*ino).count() + attributes
    };
    inodes.iter().map(of).sum()
}

/// Number of blocks that attributes take: one, or as many as they fill and one for the list of them.
fn attribute_blocks(bytes: usize) -> usize {
    if bytes <= BLOCK_BYTES { 1 } else { bytes.div_ceil(BLOCK_BYTES) + 1 }
}

fn lay_file(state: &mut State, ino: Ino, places: &mut Places, laid: &mut Laid) -> Step<()> {
    // In the order of their names, data comes before indirect blocks, and these come from the bottom up.
    let ids: Vec<BlockId> = state.blocks.dirty_of(ino).map(|(id, _)| id).collect();
    for id in ids {
        lay_block(state, id, places.next(), laid);
    }
    let deferred_free = match state.inodes.get_mut(&ino) {
        Some(known) => std::mem::take(&mut known.deferred_free),
        None => Vec::new(),
    };
    debug_assert!(
        state.blocks.dirty_of(ino).next().is_none(),
        "A1: all changes of a file that is in a batch are in it"
    );
    release_deferred(state, deferred_free);
    lay_xattr(state, ino, places, laid);
    Ok(())
}

fn sector_of(block: u32) -> Sector {
    Sector(u64::from(block) * BLOCK_SECTORS)
}

fn lay_block(state: &mut State, id: BlockId, block: u32, laid: &mut Laid) {
    id.key.cover_written();
    let old = match state.pointer(id) {
        Ok(pointer) => pointer,
        Err(_) => unreachable!("S1: the holder of a dirty block is in memory"),
    };
    let data = match state.blocks.peek(id) {
        Some(data) => data.clone(),
        None => unreachable!("a block that was collected is in memory"),
    };
    let at = sector_of(block);
    let pointer = Pointer::to(at, &data);
    state.point_to(id, pointer);
    debug_assert!(!state.log.store.is_block_free(block), "B2: a batch goes to places that were taken for it");
    debug_assert!(
        !matches!(old, Pointer::Mapped { at: place, .. } if place == at),
        "B2: nothing is written over before it is free"
    );
    match old {
        Pointer::Unwritten => state.unwritten_bytes -= BLOCK_BYTES as u64,
        old => release(state, old),
    }
    match id.key.is_data() {
        true => state.log.counters.data_blocks += 1,
        false => state.log.counters.indirect_blocks += 1,
    }
    state.log.owners.set(block, id);
    state.mark_written(id);
    laid.push((at, data));
}

fn lay_xattr(state: &mut State, ino: Ino, places: &mut Places, laid: &mut Laid) {
    let Some(known) = state.inodes.get_mut(&ino).filter(|known| known.xattr_dirty) else { return };
    let old = known.inode.xattr_pointer().unwrap_or_default();
    state.dirty_attributes -= known.dirty_attributes();
    (known.xattr_dirty, known.xattr_growth) = (false, 0);
    let mut new = Pointer::Hole;
    let mut parts: Option<(Sector, Vec<u32>)> = None;
    let owners = &mut state.log.owners;
    let owner = BlockId { ino, key: ATTRIBUTES };
    let mut next = || {
        let block = places.next();
        owners.set(block, owner);
        block
    };
    if let Some(data) = known.xattr.clone() {
        if data.len() <= BLOCK_BYTES {
            new = put_sectors(next(), &data, laid);
        } else {
            let mut pointers = Vec::new();
            let mut blocks = Vec::new();
            for from in (0..data.len()).step_by(BLOCK_BYTES) {
                let block = next();
                blocks.push(block);
                pointers.push(put_sectors(block, &data.slice(from..(from + BLOCK_BYTES).min(data.len())), laid));
            }
            let list = parts_to_block(&pointers);
            let at = sector_of(next());
            let sectors = sectors_for(data.len() as u64) as u8;
            new = Pointer::Mapped { at, sectors, crc: crate::codec::crc32c(&list) };
            laid.push((at, Data::from_slice(&list)));
            parts = Some((at, blocks));
        }
    }
    new.encode(&mut known.inode.xattr);
    state.count_attributes(ino);
    release(state, old);
    if let Some((at, blocks)) = parts {
        state.log.parts.insert(at, blocks);
    }
}

/// Puts bytes, a whole number of sectors, into a block of their own.
fn put_sectors(block: u32, data: &Data, laid: &mut Laid) -> Pointer {
    let mut whole = Buf::zeroed(BLOCK_BYTES);
    whole[..data.len()].copy_from_slice(data);
    laid.push((sector_of(block), whole.freeze()));
    Pointer::to(sector_of(block), data)
}

fn lay_inodes(state: &mut State, inodes: &[Ino], cells: &[u64], laid: &mut Laid) {
    let layout = state.log.store.layout().clone();
    let per_cell = inodes_per_cell(state);
    let mut old = Vec::new();
    for (group, &cell) in inodes.chunks(per_cell).zip(cells) {
        let at = layout.cell_sector(cell);
        let mut bytes = Buf::zeroed(layout.cell_bytes() as usize);
        for (index, &ino) in group.iter().enumerate() {
            let slot = InodeSlot(at.0 * INODES_PER_SECTOR + index as u64);
            let Some(known) = state.inodes.get_mut(&ino) else { continue };
            known.inode.flags = stored_flags(known.inode.flags, known.reclaiming);
            known.inode.seal_into(&mut bytes[index * Inode::BYTES..(index + 1) * Inode::BYTES]);
            old.push(std::mem::replace(&mut known.slot, slot));
            known.dirt = InodeDirt::Clean;
            known.cleaned = false;
            known.unwritten_pending = 0;
            state.dirty_inodes.remove(&ino);
            state.log.count_slot(slot);
            state.log.counters.inodes += 1;
        }
        debug_assert!(
            state.log.cells.get(&cell).is_none_or(|&count| usize::from(count) <= per_cell),
            "B3: no more inodes are counted in a cell than it has room for"
        );
        state.log.counters.inode_cells += 1;
        laid.push((at, bytes.freeze()));
    }
    debug_assert_eq!(inodes.len().div_ceil(per_cell), cells.len(), "B3: each inode has a place in a cell");
    old.into_iter().for_each(|slot| release_slot(state, slot));
}

/// Adjacent writes.
struct WriteRun {
    at: Sector,
    parts: Vec<Data>,
    sectors: u64,
}

/// Joins adjacent writes. The order stays that in which the head passes them.
fn joined(laid: Laid) -> Vec<BlockWrite> {
    let total: usize = laid.iter().map(|(_, data)| data.len()).sum();
    let mut runs: Vec<WriteRun> = Vec::new();
    for (at, data) in laid {
        let sectors = data.len() as u64 / SECTOR_BYTES;
        match runs.last_mut() {
            Some(run) if run.at + run.sectors == at && run.sectors < JOINED_SECTORS_MAX => {
                run.parts.push(data);
                run.sectors += sectors;
            }
            _ => runs.push(WriteRun { at, parts: vec![data], sectors }),
        }
    }
    let join = |WriteRun { at, parts, sectors }| match &parts[..] {
        [one] => (at, one.clone()),
        _ => {
            let mut whole = Buf::dirty((sectors * SECTOR_BYTES) as usize);
            let mut from = 0;
            for part in &parts {
                whole[from..from + part.len()].copy_from_slice(part);
                from += part.len();
            }
            (at, whole.freeze())
        }
    };
    let writes: Vec<BlockWrite> = runs.into_iter().map(join).collect();
    debug_assert_eq!(
        writes.iter().map(|(_, data)| data.len()).sum::<usize>(),
        total,
        "A1: all that was laid is written"
    );
    writes
}

/// Longest write, 1 MiB: longer ones gain nothing, and hold up reads.
const JOINED_SECTORS_MAX: u64 = 2048;
