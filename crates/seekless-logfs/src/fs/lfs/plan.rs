//! Planning a transaction: what is written, what that frees, and where it goes. Nothing changes, except that tables become dirty.
//!
//! Paper: [ro92 §3.2, §3.3]. Format: FORMAT.md, "Partial segments" and "Transactions".

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::format::*;
use super::layout::*;
use super::state::*;
use super::victims::Victims;
use crate::device::Data;
use crate::fs::logfs::cache::Dirty;
use crate::fs::logfs::change::Change;
use crate::fs::logfs::demand::{Hole, ReserveAccess};
use crate::fs::logfs::state::Scope;
use crate::fs::{FileKind, FsError};
use crate::units::{Ino, sectors_for};

/// What a transaction contains, besides every change of the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TransactionScope<'a> {
    /// Changes by users.
    Changes(Scope<'a>),
    /// Blocks that the cleaner has collected, in the order of their age.
    Cleaned,
    /// Everything, the tables, and the checkpoint itself.
    Checkpoint { clean: bool },
}

impl<'a> From<Scope<'a>> for TransactionScope<'a> {
    fn from(scope: Scope<'a>) -> TransactionScope<'a> {
        TransactionScope::Changes(scope)
    }
}

/// One entry of a summary, and where its payload comes from.
pub(super) struct SummaryPiece {
    pub item: Item,
    pub source: Source,
}

pub(super) enum Source {
    Record,
    Block(WrittenBlock),
    Inodes(Vec<Ino>),
    Xattr(Ino),
    Checkpoint,
}

/// A dirty block that the transaction writes.
#[derive(Clone, Copy)]
pub(super) struct WrittenBlock {
    pub id: BlockId,
    /// Where it is until then.
    pub old: Pointer,
    /// As of [`Dirty`].
    pub growth_bytes: u64,
    /// Dirty only because the cleaner moves it.
    pub cleaned: bool,
}

impl WrittenBlock {
    /// Lists a dirty block, and what writing it frees.
    fn collect(
        state: &mut State,
        id: BlockId,
        dirty: Dirty,
        freed: &mut BTreeMap<SegmentNo, u64>,
    ) -> Step<WrittenBlock> {
        debug_assert!(state.blocks.dirty(id).is_some(), "A2: a transaction writes what has changed");
        let old = state.pointer(id)?;
        free_pointer(&state.log.layout, old, freed);
        let Dirty { growth_bytes, cleaned, .. } = dirty;
        Ok(WrittenBlock { id, old, growth_bytes, cleaned })
    }
}

/// A partial segment before it has bytes.
pub(super) struct Planned {
    pub segment: SegmentNo,
    pub next_segment: SegmentNo,
    pub offset: u64,
    pub sectors: u64,
    pub summary_sectors: u64,
    /// Its pieces, among those of the plan.
    pub pieces: Range<usize>,
    /// When the youngest of its pieces was written by a user.
    pub youngest: i64,
}

/// The plan of a transaction.
pub(super) struct Plan {
    pub pieces: Vec<SummaryPiece>,
    /// Bytes that the transaction frees in each segment.
    pub freed: BTreeMap<SegmentNo, u64>,
    pub partials: Vec<Planned>,
}

/// The plan of the transaction of `scope`; `None` when there is nothing to write.
///
/// # Errors
/// Those of `assemble`.
pub(super) fn plan(state: &mut State, scope: TransactionScope<'_>) -> Step<Option<Plan>> {
    let inodes = chosen_inodes(state, scope);
    let is_checkpoint = matches!(scope, TransactionScope::Checkpoint { .. });
    if inodes.is_empty() && state.log.records.is_empty() && state.log.freed.is_empty() && !is_checkpoint {
        return Ok(None);
    }
    if is_checkpoint {
        let blocks = state.log.segments.dirty_blocks.clone();
        prepare_tables(state, &blocks)?;
    }
    loop {
        let (mut pieces, freed) = collect(state, is_checkpoint, &inodes)?;
        let records = freed.iter().map(|(&segment, &bytes)| Item::SegmentFreed { segment, bytes });
        pieces.extend(records.map(|item| SummaryPiece { item, source: Source::Record }));
        if is_checkpoint {
            let sectors = CHECKPOINT_SECTORS_IN_LOG as u16;
            pieces.push(SummaryPiece { item: Item::Checkpoint { sectors }, source: Source::Checkpoint });
        }
        let partials = place(state, &pieces)?;
        if is_checkpoint {
            // The table must include the effect of this transaction.
            let written = partials.iter().flat_map(|partial| [partial.segment, partial.next_segment]);
            let left = [state.log.end.segment, state.log.end.next_segment];
            let touched = written.chain(freed.keys().copied()).chain(left).map(|segment| segment / USAGES_PER_BLOCK);
            let touched: BTreeSet<u64> = touched.collect();
            let table = |block: &u64| BlockId::data(USAGE_INO, *block);
            let missing: BTreeSet<u64> =
                touched.into_iter().filter(|block| state.blocks.dirty(table(block)).is_none()).collect();
            if !missing.is_empty() {
                prepare_tables(state, &missing)?;
                continue;
            }
        }
        return Ok(Some(Plan { pieces, freed, partials }));
    }
}

fn chosen_inodes(state: &State, scope: TransactionScope<'_>) -> Vec<Ino> {
    let dirt = |ino: &Ino| state.inodes.get(ino).map_or(InodeDirt::Clean, |known| known.dirt);
    let mut chosen: BTreeSet<Ino> = match scope {
        TransactionScope::Changes(scope) => state.dirty_inodes_of(scope).collect(),
        TransactionScope::Checkpoint { .. } => state.dirty_inodes.clone(),
        TransactionScope::Cleaned => state
            .dirty_inodes
            .iter()
            .copied()
            .filter(|ino| state.inodes.get(ino).is_some_and(|known| known.moved) || dirt(ino) == InodeDirt::Namespace)
            .collect(),
    };
    if let TransactionScope::Checkpoint { .. } = scope {
        // A file whose data is already in the log may still have indirect blocks to write.
        chosen.extend(state.blocks.dirty_ids().map(|id| id.ino).filter(|&ino| !is_internal(ino)));
    }
    let mut chosen: Vec<Ino> = chosen.into_iter().collect();
    if scope == TransactionScope::Cleaned {
        // As for the blocks of a file.
        chosen.sort_by_key(|ino| state.inodes.get(ino).map_or(0, |known| known.inode.mtime_nanos_since_epoch()));
    }
    chosen
}

/// Makes the changed blocks of the usage table and of the orphan file dirty. Their contents are filled in later.
fn prepare_tables(state: &mut State, usage_blocks: &BTreeSet<u64>) -> Step<()> {
    let orphan_blocks: Vec<u64> = state.log.orphans.dirty_blocks.iter().copied().collect();
    let orphan_bytes = state.log.orphans.slots.len() as u64 * 8;
    let mut change = Change::new(state);
    change.inode_mut(ORPHAN_INO, InodeDirt::Own)?.size = orphan_bytes;
    for &block in usage_blocks {
        change.replace_block(BlockId::data(USAGE_INO, block), Data::zeroes(BLOCK_BYTES))?;
    }
    for &block in &orphan_blocks {
        change.replace_block(BlockId::data(ORPHAN_INO, block), Data::zeroes(BLOCK_BYTES))?;
    }
    change.commit(ReserveAccess::Internal)
}

/// Lists what has to be written, children before parents, and the space that this frees.
fn collect(
    state: &mut State,
    is_checkpoint: bool,
    inodes: &[Ino],
) -> Step<(Vec<SummaryPiece>, BTreeMap<SegmentNo, u64>)> {
    let with_indirect = is_checkpoint || state.log.options.indirect_in_log;
    let mut pieces: Vec<SummaryPiece> = Vec::new();
    let mut freed = state.log.freed.clone();
    pieces.extend(state.log.records.iter().map(|&item| SummaryPiece { item, source: Source::Record }));
    collect_moved(state, inodes, &mut pieces, &mut freed)?;
    // Where one read brings many inodes, they are behind the data of all files.
    let together = state.log.options.read_around_bytes > 0;
    for &ino in inodes.iter().filter(|_| together) {
        collect_file(state, ino, with_indirect, &mut pieces, &mut freed)?;
    }
    for group in inodes.chunks((INODE_GROUP_SECTORS * INODES_PER_SECTOR) as usize) {
        for &ino in group.iter().filter(|_| !together) {
            collect_file(state, ino, with_indirect, &mut pieces, &mut freed)?;
        }
        // All of them just before the inodes, so that one read brings both.
        for &ino in group {
            collect_xattr(state, ino, &mut pieces, &mut freed)?;
        }
        let count = group.len() as u32;
        let sectors = u64::from(count).div_ceil(INODES_PER_SECTOR) as u16;
        pieces.push(SummaryPiece { item: Item::Inodes { count, sectors }, source: Source::Inodes(group.to_vec()) });
    }
    if is_checkpoint {
        // The usage table comes last because it counts the other tables.
        for ino in [IMAP_INO, ORPHAN_INO, USAGE_INO] {
            collect_blocks(state, ino, true, &mut pieces, &mut freed)?;
        }
    }
    Ok((pieces, freed))
}

fn collect_file(
    state: &mut State,
    ino: Ino,
    with_indirect: bool,
    pieces: &mut Vec<SummaryPiece>,
    freed: &mut BTreeMap<SegmentNo, u64>,
) -> Step<()> {
    collect_blocks(state, ino, with_indirect, pieces, freed)?;
    let layout = state.log.layout;
    let known = state.inode(ino)?;
    let holes = known.deferred_free.nodes.iter().chain(&known.deferred_free.holes);
    pieces.extend(holes.map(|&hole| SummaryPiece { item: record_of(ino, hole), source: Source::Record }));
    for (&segment, &bytes) in &known.deferred_free.freed {
        *freed.entry(segment).or_insert(0) += bytes;
    }
    if !known.slot.is_none()
        && let Some(segment) = layout.segment_of(known.slot.sector())
    {
        *freed.entry(segment).or_insert(0) += Inode::BYTES as u64;
    }
    Ok(())
}

fn collect_xattr(
    state: &mut State,
    ino: Ino,
    pieces: &mut Vec<SummaryPiece>,
    freed: &mut BTreeMap<SegmentNo, u64>,
) -> Step<()> {
    let layout = state.log.layout;
    let known = state.inode(ino)?;
    if known.xattr_dirty {
        free_pointer(&layout, known.inode.xattr_pointer().unwrap_or_default(), freed);
        if let Some(data) = &known.xattr {
            let sectors = sectors_for(data.len() as u64) as u16;
            pieces.push(SummaryPiece { item: Item::Xattr { ino, sectors }, source: Source::Xattr(ino) });
        }
    }
    Ok(())
}

fn collect_blocks(
    state: &mut State,
    ino: Ino,
    with_indirect: bool,
    pieces: &mut Vec<SummaryPiece>,
    freed: &mut BTreeMap<SegmentNo, u64>,
) -> Step<()> {
    let layout = state.log.layout;
    let inode = state.inode(ino)?.inode;
    let is_listed =
        |&(id, dirty): &(BlockId, Dirty)| (with_indirect || id.key.is_data()) && !is_moved(id, dirty.cleaned);
    let blocks: Vec<(BlockId, Dirty)> = state.blocks.dirty_of(ino).filter(is_listed).collect();
    let written = layout.stamp(now_nanos(state));
    pieces.reserve(blocks.len());
    for (id, dirty) in blocks {
        let block = WrittenBlock::collect(state, id, dirty, freed)?;
        let sectors = stored_sectors(&inode, id.key) as u16;
        let written = if is_user_data(id) { written } else { 0 };
        pieces.push(SummaryPiece {
            item: Item::Block { ino, key: id.key.0, sectors, written },
            source: Source::Block(block),
        });
    }
    Ok(())
}

/// Lists the blocks of file data that are only moved. A policy that sorts has the oldest first: what was written at about
/// the same time dies at about the same time [ro92 §3.4].
fn collect_moved(
    state: &mut State,
    inodes: &[Ino],
    pieces: &mut Vec<SummaryPiece>,
    freed: &mut BTreeMap<SegmentNo, u64>,
) -> Step<()> {
    let layout = state.log.layout;
    let now = now_nanos(state);
    let mut moved: Vec<(u32, (BlockId, Dirty), i64)> = Vec::new();
    for &ino in inodes {
        let is_listed = |&(id, dirty): &(BlockId, Dirty)| is_moved(id, dirty.cleaned);
        let blocks: Vec<(BlockId, Dirty)> = state.blocks.dirty_of(ino).filter(is_listed).collect();
        for (id, dirty) in blocks {
            let written = written_before(state, id).unwrap_or(now);
            moved.push((age_class(now, written), (id, dirty), written));
        }
    }
    if state.log.segments.victims.as_ref().is_some_and(Victims::sorts) {
        // Blocks of an age stay in the order of their files.
        moved.sort_by_key(|&(class, ..)| std::cmp::Reverse(class));
    }
    for (_, (id, dirty), written) in moved {
        let block = WrittenBlock::collect(state, id, dirty, freed)?;
        // What was the last block of a file keeps its length, though the file may have grown past it.
        let sectors = match block.old {
            Pointer::Mapped { sectors, .. } => sectors.into(),
            _ => stored_sectors(&state.inode(id.ino)?.inode, id.key) as u16,
        };
        let item = Item::Block { ino: id.ino, key: id.key.0, sectors, written: layout.stamp(written) };
        pieces.push(SummaryPiece { item, source: Source::Block(block) });
    }
    Ok(())
}

/// A block of file data that is dirty only because the cleaner moves it.
fn is_moved(id: BlockId, cleaned: bool) -> bool {
    is_user_data(id) && cleaned
}

/// When a user wrote a block that is moved: its own time, or that of the youngest block in its segment.
fn written_before(state: &mut State, id: BlockId) -> Option<i64> {
    if let Some(&written) = state.log.moving.get(&id) {
        return Some(written);
    }
    let Ok(Pointer::Mapped { at, .. }) = state.pointer(id) else { return None };
    let from = state.log.layout.segment_of(at)?;
    Some(state.log.segments.get(from).youngest)
}

pub(super) fn now_nanos(state: &State) -> i64 {
    state.now.nanos_since_epoch().clamp(0, i128::from(i64::MAX)) as i64
}

/// Ages in steps of half a power of two.
fn age_class(now: i64, written: i64) -> u32 {
    let age = (now.saturating_sub(written).max(0) as u64 >> STAMP_SHIFT) + 2;
    let power = age.ilog2();
    2 * power + (age >> (power - 1) & 1) as u32
}

/// The log record of a hole.
fn record_of(ino: Ino, hole: Hole) -> Item {
    let Hole { first, count, reserved } = hole;
    if reserved { Item::Reserved { ino, first, count } } else { Item::Unmapped { ino, first, count } }
}

fn free_pointer(layout: &Layout, pointer: Pointer, freed: &mut BTreeMap<SegmentNo, u64>) {
    if let Pointer::Mapped { at, .. } = pointer
        && let Some(segment) = layout.segment_of(at)
    {
        *freed.entry(segment).or_insert(0) += pointer.live_bytes();
    }
}

/// Sectors of the log that a block takes: fewer than a whole block for the last one of a file.
fn stored_sectors(inode: &Inode, key: BlockKey) -> u64 {
    let is_file = matches!(inode.kind(), Some(FileKind::Regular | FileKind::Symlink));
    if !is_file || !key.is_data() {
        return BLOCK_SECTORS;
    }
    let rest = inode.size.saturating_sub(key.0 * BLOCK_BYTES as u64);
    sectors_for(rest.min(BLOCK_BYTES as u64)).max(1)
}

/// Divides the pieces among partial segments, from the end of the log onwards.
fn place(state: &mut State, pieces: &[SummaryPiece]) -> Step<Vec<Planned>> {
    let layout = state.log.layout;
    let now = now_nanos(state);
    let (mut segment, mut offset, mut next_segment) =
        (state.log.end.segment, state.log.end.offset, state.log.end.next_segment);
    debug_assert!(offset <= layout.segment_sectors(), "A1: the log ends in its segment");
    debug_assert_ne!(segment, next_segment, "A1: the log goes on in another segment");
    let mut taken = vec![segment, next_segment];
    let mut planned: Vec<Planned> = Vec::new();
    let mut first = 0;
    while first < pieces.len() {
        let room = layout.segment_sectors() - offset;
        let is_fresh = offset == 0;
        let (mut end, mut payload) = (first, 0);
        let (mut sectors, mut summary_sectors) = (0, 0);
        while end < pieces.len() {
            let summary = sectors_for((Summary::BYTES + (end + 1 - first) * SummaryEntry::BYTES) as u64);
            let total = (summary + payload + pieces[end].item.sectors()).next_multiple_of(layout.align_sectors());
            if total > room {
                break;
            }
            payload += pieces[end].item.sectors();
            (sectors, summary_sectors) = (total, summary);
            end += 1;
        }
        if end > first {
            let youngest = youngest_of(state, &pieces[first..end], now);
            let pieces = first..end;
            planned.push(Planned { segment, next_segment, offset, sectors, summary_sectors, pieces, youngest });
            first = end;
        }
        if end < pieces.len() {
            assert!(sectors > 0 || !is_fresh, "every item fits into an empty segment");
            segment = next_segment;
            offset = 0;
            match state.log.segments.next_ready(segment, &taken) {
                Some(ready) => next_segment = ready,
                None => return fail(FsError::NoSpace),
            }
            taken.push(next_segment);
        }
    }
    debug_assert!(
        planned.windows(2).all(|pair| pair[0].pieces.end == pair[1].pieces.start),
        "A1: each piece is in one partial segment, in order"
    );
    debug_assert_eq!(planned.last().map_or(0, |last| last.pieces.end), pieces.len(), "A1: each piece has a place");
    debug_assert!(
        planned.iter().all(|partial| partial.offset + partial.sectors <= layout.segment_sectors()),
        "A1: a partial segment lies in one segment"
    );
    Ok(planned)
}

/// When the youngest of some pieces was written by a user. Where there is data its age alone counts, because inodes are
/// written with every change of their file. What is only moved is as old as the segment that it comes from.
fn youngest_of(state: &mut State, pieces: &[SummaryPiece], now: i64) -> i64 {
    let mut youngest = None;
    for piece in pieces {
        let Source::Block(WrittenBlock { id, cleaned, .. }) = piece.source else { continue };
        if !is_user_data(id) {
            continue;
        }
        let before = if is_moved(id, cleaned) { written_before(state, id) } else { None };
        youngest = youngest.max(Some(before.unwrap_or(now)));
    }
    let all_moved = |piece: &SummaryPiece| match &piece.source {
        Source::Inodes(inodes) => inodes.iter().all(|ino| state.inodes.get(ino).is_some_and(|known| known.cleaned)),
        Source::Xattr(ino) => state.inodes.get(ino).is_some_and(|known| known.cleaned),
        Source::Record => true,
        Source::Block(_) | Source::Checkpoint => false,
    };
    match youngest {
        Some(youngest) => youngest.min(now),
        None if pieces.iter().all(all_moved) => oldest_place(state, pieces).unwrap_or(now).min(now),
        None => now,
    }
}

/// The age of moved inodes without data: that of the youngest segment that they come from.
fn oldest_place(state: &State, pieces: &[SummaryPiece]) -> Option<i64> {
    let inodes = pieces.iter().filter_map(|piece| match &piece.source {
        Source::Inodes(inodes) => Some(inodes.iter()),
        _ => None,
    });
    let slots = inodes.flatten().filter_map(|ino| state.inodes.get(ino)).filter(|known| !known.slot.is_none());
    let segments = slots.filter_map(|known| state.log.layout.segment_of(known.slot.sector()));
    segments.map(|segment| state.log.segments.get(segment).youngest).max()
}

/// A block of a file of users, not of a table or an indirect block.
pub(super) fn is_user_data(id: BlockId) -> bool {
    id.key.is_data() && !is_internal(id.ino)
}
