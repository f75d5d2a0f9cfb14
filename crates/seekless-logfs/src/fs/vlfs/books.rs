//! The books of this log, recounted from scratch and compared: blocks and cells, owners, and batches in progress. Tests
//! call this after every step; `fs/logfs/books` recounts the rest.
//!
//! A block or cell is used exactly when one of the following claims it, and none is claimed twice: a pointer of a file;
//! the address of an inode or of a piece of the map; an address that the next version of an inode or a batch frees; an
//! address that is free after the next transaction; and a copy that nothing points to yet. While a transaction is in
//! progress, no structure shows what it changes, so the recount waits for its end.

use std::collections::BTreeMap;

use futures_util::future::LocalBoxFuture;

use super::Vlfs;
use super::format::*;
use super::state::*;
use crate::codec::crc32c;
use crate::fs::FsResult;
use crate::fs::logfs::books::{ATTRIBUTES, Recount, recount};
use crate::fs::logfs::tree::*;
use crate::units::{Ino, Sector};
use crate::vlog::Garbage;

/// The owner of a block or a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    Piece(u32),
    Inodes,
    Block(BlockId),
    /// The next version of the inode frees it.
    DeferredFree(Ino),
    /// The named list frees it.
    Garbage(&'static str),
    Copy,
}

#[derive(Default)]
struct Claims {
    blocks: BTreeMap<u32, Claim>,
    cells: BTreeMap<u64, Claim>,
    problems: Vec<String>,
}

impl Claims {
    fn block(&mut self, block: u32, claim: Claim) {
        if let Some(other) = self.blocks.insert(block, claim) {
            self.problems.push(format!("B2: block {block} is claimed twice: {other:?}, {claim:?}"));
        }
    }

    fn cell(&mut self, cell: u64, claim: Claim) {
        if let Some(other) = self.cells.insert(cell, claim) {
            self.problems.push(format!("B2: cell {cell} is claimed twice: {other:?}, {claim:?}"));
        }
    }

    fn garbage(&mut self, garbage: &Garbage, of: &'static str) {
        garbage.blocks.iter().for_each(|&block| self.block(block, Claim::Garbage(of)));
        garbage.cells.iter().for_each(|&cell| self.cell(cell, Claim::Garbage(of)));
    }
}

impl Vlfs {
    /// Recounts everything. Returns the contradictions, one line each.
    pub(super) fn recount(&self) -> LocalBoxFuture<'_, FsResult<Vec<String>>> {
        Box::pin(async move {
            let store = self.state.borrow().log.store.clone();
            recount(self, async || store.quiet().await, run).await
        })
    }
}

fn run(recount: &mut Recount<'_, Virtual>) {
    let log = &recount.state.log;
    let mut map: BTreeMap<Ino, InodeSlot> =
        log.store.entries().into_iter().map(|(number, entry)| (Ino(number.into()), InodeSlot(entry.into()))).collect();
    map.extend(log.ahead.iter().map(|(&ino, &(slot, _))| (ino, slot)));
    map.retain(|ino, slot| !slot.is_none() || recount.state.inodes.contains_key(ino));
    for &ino in recount.state.inodes.keys() {
        map.entry(ino).or_insert(InodeSlot::NONE);
    }
    for (ino, slot) in map {
        recount.inode(ino, slot);
    }
    let mut claims = Claims::default();
    attributes(recount, &mut claims);
    if !recount.is_complete() {
        return;
    }
    recount.totals();
    pending(recount);
    batches(recount);
    places(recount, &mut claims);
    recount.problems.append(&mut claims.problems);
}

fn bytes_of(log: &Virtual, garbage: &Garbage) -> u64 {
    blocks_bytes(garbage.blocks.len() as u64) + garbage.cells.len() as u64 * u64::from(log.store.layout().cell_bytes())
}

/// The blocks with the parts of long attributes, which only a list points to.
fn attributes(recount: &mut Recount<'_, Virtual>, claims: &mut Claims) {
    let log = &recount.state.log;
    let mut lists = 0;
    for (id, pointer) in recount.claims.clone() {
        let Pointer::Mapped { at, sectors, crc } = pointer else { continue };
        claims.block(log.block_of(at), Claim::Block(id));
        if id.key != ATTRIBUTES || u64::from(sectors) <= BLOCK_SECTORS {
            continue;
        }
        let Some(list) = recount.stored(at, BLOCK_SECTORS, |data| crc32c(data) == crc) else { continue };
        let parts = parts_from_block(&list).unwrap_or_default().into_iter();
        let parts: Vec<u32> = parts
            .filter_map(|part| if let Pointer::Mapped { at, .. } = part { Some(log.block_of(at)) } else { None })
            .collect();
        parts.iter().for_each(|&block| claims.block(block, Claim::Block(id)));
        if let Some(known) = log.parts.get(&at) {
            lists += 1;
            if *known != parts {
                recount.problem(format!("the attributes of {} have parts at {parts:?}, not {known:?}", id.ino));
            }
        }
    }
    if recount.is_complete() {
        recount.same("lists of parts of attributes", log.parts.len() as u64, lists);
    }
}

/// Blocks that are to be freed and are not free yet.
fn pending(recount: &mut Recount<'_, Virtual>) {
    let log = &recount.state.log;
    recount.same("bytes that the next batch frees", log.garbage_bytes, bytes_of(log, &log.garbage));
    let deferred: usize = recount.state.inodes.values().map(|known| known.deferred_free.len()).sum();
    let mut pending = blocks_bytes(deferred as u64) + log.garbage_bytes;
    for (number, effect) in &log.effects {
        recount.same(&format!("bytes that batch {number} frees"), effect.freed_bytes, bytes_of(log, &effect.garbage));
        pending += effect.freed_bytes;
    }
    let freeing: u64 = log.freeing.values().sum();
    recount.same("bytes that the next transaction frees", freeing, bytes_of(log, &log.store.holdings().garbage));
    recount.same("bytes freed and in use", recount.state.freed_pending_bytes, pending + freeing);
}

/// B1, and the entries that are newer than the log's map.
fn batches(recount: &mut Recount<'_, Virtual>) {
    let log = &recount.state.log;
    let under_way = log.applied..log.next_batch;
    if !log.effects.keys().copied().eq(under_way.clone()) {
        recount.problem(format!("B1: batches {:?} have effects, of {under_way:?}", log.effects.keys()));
    }
    if !log.written.iter().all(|number| log.effects.contains_key(number)) || log.written.contains(&log.applied) {
        recount.problem(format!("B1: batches {:?} are written and wait, of {under_way:?}", log.written));
    }
    if log.durable > log.applied || log.freeing.keys().any(|number| !(log.durable..log.applied).contains(number)) {
        let freeing = log.freeing.keys();
        recount.problem(format!("L1: {freeing:?} wait for a transaction, of {}..{}", log.durable, log.applied));
    }
    for (&ino, &(slot, number)) in &log.ahead {
        let is_known = match log.effects.get(&number) {
            Some(effect) => effect.entries.contains(&(ino, slot)),
            None => number == log.next_batch && slot.is_none() && log.removed.contains(&ino),
        };
        if !is_known {
            recount
                .problem(format!("B1: the entry of inode {ino} is {slot:?} by batch {number}, which does not set it"));
        }
    }
    let bytes = recount.state.in_flight.iter().map(|flight| flight.data.len() as u64).sum();
    recount.same("bytes under way", log.in_flight_bytes, bytes);
}

/// B2, B3, M2: every used place is claimed, and every claimed place is used.
fn places(recount: &mut Recount<'_, Virtual>, claims: &mut Claims) {
    let log = &recount.state.log;
    let holdings = log.store.holdings();
    let mut inodes: BTreeMap<u64, u64> = BTreeMap::new();
    for &(_, slot) in &recount.slots {
        *inodes.entry(log.cell_of(slot)).or_insert(0) += 1;
    }
    let counted: BTreeMap<u64, u64> = log.cells.iter().map(|(&cell, &count)| (cell, count.into())).collect();
    for cell in inodes.keys().chain(counted.keys().filter(|cell| !inodes.contains_key(cell))) {
        let said = counted.get(cell).copied().unwrap_or(0);
        recount.same(&format!("B3: inodes in cell {cell}"), said, inodes.get(cell).copied().unwrap_or(0));
    }
    inodes.keys().for_each(|&cell| claims.cell(cell, Claim::Inodes));
    holdings.pieces.iter().for_each(|&(index, cell)| claims.cell(cell, Claim::Piece(index)));
    for (&ino, known) in recount.state.inodes.iter() {
        for &pointer in &known.deferred_free {
            if let Pointer::Mapped { at, .. } = pointer {
                claims.block(log.block_of(at), Claim::DeferredFree(ino));
            }
        }
    }
    claims.garbage(&log.garbage, "the next batch");
    log.effects.values().for_each(|effect| claims.garbage(&effect.garbage, "a batch"));
    claims.garbage(&holdings.garbage, "the next transaction");
    log.copies.iter().for_each(|&block| claims.block(block, Claim::Copy));

    let layout = log.store.layout();
    let mut unclaimed = Vec::new();
    for block in (0..layout.blocks).filter(|&block| !layout.is_reserved(block)) {
        let first = layout.first_cell(block);
        let cells = first..first + u64::from(layout.cells_per_block);
        let claim = claims.blocks.remove(&block);
        let (mut used, mut claimed) = (0, 0);
        for cell in cells.clone() {
            let is_used = !log.store.is_cell_free(cell);
            let of_cell = claims.cells.remove(&cell);
            used += u32::from(is_used);
            claimed += u32::from(of_cell.is_some());
            match (claim, of_cell) {
                (Some(one), Some(two)) => {
                    recount.problem(format!("B2: cell {cell} of block {block} is claimed twice: {one:?}, {two:?}"));
                }
                (one, two) if !is_used && (one.is_some() || two.is_some()) => {
                    let claim = one.or(two);
                    recount.problem(format!("B2: cell {cell} of block {block} is free, and claimed: {claim:?}"));
                }
                _ => {}
            }
        }
        if claim.is_none() && claimed == 0 && used == layout.cells_per_block {
            unclaimed.push(block);
        } else if claim.is_none() && used > claimed {
            recount.problem(format!("B2: {used} cells of block {block} are used, and {claimed} are claimed"));
        }
        owner(recount, block, claim);
    }
    // Copies in progress are known only by their number.
    let copying = holdings.copies.checked_sub(log.copies.len() as u64);
    if copying != Some(unclaimed.len() as u64) {
        recount
            .problem(format!("B2: blocks {unclaimed:?} are used and not claimed, and {copying:?} are being copied to"));
    }
    let lost = claims.blocks.keys().map(|&block| Sector(u64::from(block) * BLOCK_SECTORS));
    for at in lost.chain(claims.cells.keys().map(|&cell| layout.cell_sector(cell))) {
        recount.problem(format!("B2: something leads to sector {at}, where nothing can be"));
    }
    if let Err(problem) = log.store.check_invariants() {
        recount.problem(problem);
    }
}

/// M2. A block that an inode will free keeps its owner until then.
fn owner(recount: &mut Recount<'_, Virtual>, block: u32, claim: Option<Claim>) {
    let owners = &recount.state.log.owners;
    let owner = owners.get(block);
    let is_right = match claim {
        _ if !owners.are_kept() => true,
        Some(Claim::Block(id)) => owner == Some(id),
        Some(Claim::DeferredFree(ino)) => owner.is_some_and(|owner| owner.ino == ino),
        _ => owner.is_none(),
    };
    if !is_right {
        recount.problem(format!("M2: block {block} is of {owner:?}, and {claim:?} has it"));
    }
}
