//! Assembling a transaction: from the dirty data in memory to partial segments ready for the device.
//!
//! Paper: [ro92 §3.2, §3.3]. Format: FORMAT.md, "Partial segments" and "Transactions".
//!
//! The whole transaction is assembled in one synchronous step, so it is a snapshot: no operation is half in it. The
//! step first plans everything (what is written, what that frees, where it goes) without changing anything. Then it
//! assigns addresses and lays out bytes, children before parents.
//!
//! Invariants
//!   A1  Every transaction holds every change of the name space made so far, and of each file either all changes or
//!       none.
//!   A2  Indirect blocks and the tables reach the log at checkpoints only (unless `indirect=log`). Between checkpoints
//!       the summaries say where blocks are, and which indirect blocks were dropped.
//!   A3  A transaction frees exactly the places that were unmapped since the last transaction, each once.

use std::collections::{BTreeMap, BTreeSet};

use super::format::*;
use super::layout::*;
use super::payload_sum::PayloadSum;
use super::state::*;
use super::victims::Victims;
use crate::codec::crc32c;
use crate::device::{Buf, Data};
use crate::fs::logfs::backend::InodeMap;
use crate::fs::logfs::cache::Dirty;
use crate::fs::logfs::change::{Change, Hole, ReserveAccess};
use crate::fs::{FileKind, FsError};
use crate::units::{Ino, SECTOR_BYTES, Sector, sectors_for};

/// What a transaction contains, besides every change of the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scope {
    Everything,
    /// One file.
    File(Ino),
    /// Blocks that the cleaner has collected, in the order of their age.
    Cleaned,
    /// Everything, the tables, and the checkpoint itself.
    Checkpoint {
        clean: bool,
    },
}

/// A checkpoint, as it is written into its slot.
pub(super) struct SlotWrite {
    pub serial: u64,
    pub block: Box<[u8; BLOCK_BYTES]>,
}

/// A partial segment, as it is written.
#[derive(Clone, Debug)]
pub(super) struct PartialWrite {
    pub at: Sector,
    pub data: Data,
    /// Its number in the log.
    pub sequence: u64,
}

/// Partial segments to write, in log order.
pub(super) struct Transaction {
    pub partials: Vec<PartialWrite>,
    /// Sequence number after the last of them.
    pub end_sequence: u64,
    /// The block for the checkpoint slot.
    pub checkpoint: Option<SlotWrite>,
}

/// One entry of a summary, and where its payload comes from.
struct SummaryPiece {
    item: Item,
    source: Source,
}

enum Source {
    Record,
    Block(WrittenBlock),
    Inodes(Vec<Ino>),
    Xattr(Ino),
    Checkpoint,
}

/// A dirty block that the transaction writes.
#[derive(Clone, Copy)]
struct WrittenBlock {
    id: BlockId,
    /// Where it is until then.
    old: Pointer,
    /// Dirty only because the cleaner moves it.
    cleaned: bool,
}

impl WrittenBlock {
    /// Lists a dirty block, and what writing it frees.
    fn collect(
        state: &mut State,
        id: BlockId,
        dirty: Dirty,
        freed: &mut BTreeMap<SegmentNo, u64>,
    ) -> Step<WrittenBlock> {
        let old = state.pointer(id)?;
        free_pointer(&state.log.layout, old, freed);
        Ok(WrittenBlock { id, old, cleaned: dirty.cleaned })
    }
}

/// A partial segment before it has bytes.
struct Planned {
    segment: SegmentNo,
    next_segment: SegmentNo,
    offset: u64,
    sectors: u64,
    summary_sectors: u64,
    /// Pieces `first..end`.
    first: usize,
    end: usize,
}

/// The plan of a transaction.
struct Plan {
    pieces: Vec<SummaryPiece>,
    freed: BTreeMap<SegmentNo, u64>,
    partials: Vec<Planned>,
}

/// Assembles the transaction of `scope`; `None` when there is nothing to write.
///
/// # Errors
/// `Load` when a block of the tables is not in memory; `NoSpace` when there are not enough clean segments, which S3
/// excludes. After an error nothing has changed, except that more may be dirty.
pub(super) fn assemble(state: &mut State, scope: Scope) -> Step<Option<Transaction>> {
    let inodes = chosen_inodes(state, scope);
    let is_checkpoint = matches!(scope, Scope::Checkpoint { .. });
    if inodes.is_empty() && state.log.records.is_empty() && state.log.freed.is_empty() && !is_checkpoint {
        return Ok(None);
    }
    let plan = plan(state, scope, &inodes)?;
    Ok(Some(lay_down(state, scope, plan)))
}

fn chosen_inodes(state: &State, scope: Scope) -> Vec<Ino> {
    let dirt = |ino: &Ino| state.inodes.get(ino).map_or(InodeDirt::Clean, |known| known.dirt);
    let mut chosen: BTreeSet<Ino> = match scope {
        Scope::Everything | Scope::Checkpoint { .. } => state.dirty_inodes.clone(),
        Scope::File(file) => {
            state.dirty_inodes.iter().copied().filter(|ino| *ino == file || dirt(ino) == InodeDirt::Namespace).collect()
        }
        Scope::Cleaned => state
            .dirty_inodes
            .iter()
            .copied()
            .filter(|ino| state.inodes.get(ino).is_some_and(|known| known.moved) || dirt(ino) == InodeDirt::Namespace)
            .collect(),
    };
    if let Scope::Checkpoint { .. } = scope {
        // A file whose data is already in the log may still have indirect blocks to write.
        chosen.extend(state.blocks.dirty_ids().map(|id| id.ino).filter(|&ino| !is_internal(ino)));
    }
    let mut chosen: Vec<Ino> = chosen.into_iter().collect();
    if scope == Scope::Cleaned {
        // As for the blocks of a file.
        chosen.sort_by_key(|ino| state.inodes.get(ino).map_or(0, |known| known.inode.mtime_nanos_since_epoch()));
    }
    chosen
}

fn plan(state: &mut State, scope: Scope, inodes: &[Ino]) -> Step<Plan> {
    let is_checkpoint = matches!(scope, Scope::Checkpoint { .. });
    if is_checkpoint {
        let blocks = state.log.segments.dirty_blocks.clone();
        prepare_tables(state, &blocks)?;
    }
    loop {
        let (mut pieces, freed) = collect(state, is_checkpoint, inodes)?;
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
        return Ok(Plan { pieces, freed, partials });
    }
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
        let sectors = stored_sectors(&state.inode(id.ino)?.inode, id.key) as u16;
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

fn now_nanos(state: &State) -> i64 {
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
fn place(state: &State, pieces: &[SummaryPiece]) -> Step<Vec<Planned>> {
    let layout = &state.log.layout;
    let (mut segment, mut offset, mut next_segment) =
        (state.log.end.segment, state.log.end.offset, state.log.end.next_segment);
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
            planned.push(Planned { segment, next_segment, offset, sectors, summary_sectors, first, end });
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
        planned.windows(2).all(|pair| pair[0].end == pair[1].first),
        "A1: each piece is in one partial segment, in order"
    );
    debug_assert!(
        planned.iter().all(|partial| partial.offset + partial.sectors <= layout.segment_sectors()),
        "A1: a partial segment lies in one segment"
    );
    Ok(planned)
}

fn lay_down(state: &mut State, scope: Scope, plan: Plan) -> Transaction {
    let Plan { pieces, freed, partials } = plan;
    let checkpoint_serial = match scope {
        Scope::Checkpoint { .. } => {
            let (seen, now) = (state.log.deferred_seen, state.deferred_bytes());
            state.log.deferred_seen = now.max(seen - seen / 8);
            Some(state.log.checkpoint_serial + 1)
        }
        _ => None,
    };
    let now = now_nanos(state);
    let youngest: Vec<i64> =
        partials.iter().map(|partial| youngest_of(state, &pieces[partial.first..partial.end], now)).collect();
    if let Some(victims) = &mut state.log.segments.victims {
        victims.set_now(now.into());
    }
    count_usage(state, &pieces, &partials, &freed, &youngest, scope);
    move_end(state, &partials, now);
    if let Some(serial) = checkpoint_serial {
        let kept = [state.log.end.segment, state.log.end.next_segment];
        state.log.segments.note_empty(serial, &kept);
        state.log.segments.serial = serial;
    }
    forget_pending(state, &pieces);

    let mut transaction = Transaction { partials: Vec::new(), end_sequence: 0, checkpoint: None };
    let count = partials.len();
    let end_sequence = state.log.end.sequence + count as u64;
    for (number, partial) in partials.iter().enumerate() {
        let mut flags = if number == 0 { SUMMARY_FIRST } else { 0 };
        flags |= if number + 1 == count { SUMMARY_COMMIT } else { 0 };
        flags |= if checkpoint_serial.is_some() { SUMMARY_CHECKPOINT } else { 0 };
        let start = state.log.layout.segment_start(partial.segment) + partial.offset;
        let mut buf = Buf::dirty((partial.sectors * SECTOR_BYTES) as usize);
        let payload_from = (partial.summary_sectors * SECTOR_BYTES) as usize;
        buf[..payload_from].fill(0);
        let mut sum = PayloadSum::default();
        let mut at = partial.summary_sectors;
        let written = &pieces[partial.first..partial.end];
        for (index, piece) in written.iter().enumerate() {
            let entry_at = Summary::BYTES + index * SummaryEntry::BYTES;
            piece.item.to_entry().encode(&mut buf[entry_at..]);
            let bytes = (at * SECTOR_BYTES) as usize;
            let end = bytes + (piece.item.sectors() * SECTOR_BYTES) as usize;
            let target = &mut buf[bytes..end];
            match &piece.source {
                Source::Record => {}
                Source::Block(block) => {
                    let crc = lay_block(state, block, start + at, target);
                    sum.add_summed(target, crc);
                }
                Source::Inodes(inodes) => {
                    lay_inodes(state, inodes, start + at, target);
                    sum.add(target);
                }
                Source::Xattr(ino) => {
                    lay_xattr(state, *ino, start + at, target);
                    sum.add(target);
                }
                Source::Checkpoint => {
                    // The copy in the log cannot hold the checksum of the partial segment around it; the copy in the
                    // slot does.
                    let checkpoint = checkpoint_record(state, scope, 0, end_sequence);
                    target.copy_from_slice(&checkpoint.to_block()[..target.len()]);
                    sum.add(target);
                }
            }
            at += piece.item.sectors();
        }
        let padding = &mut buf[(at * SECTOR_BYTES) as usize..];
        padding.fill(0);
        sum.add(padding);
        let summary = Summary {
            magic: SUMMARY_MAGIC,
            crc: 0,
            chain: state.log.end.chain,
            flags,
            uuid: state.log.layout.superblock.uuid,
            sequence: state.log.end.sequence,
            durable_sequence: state.log.durable_sequence,
            segment: partial.segment,
            offset: partial.offset as u32,
            sectors: partial.sectors as u32,
            summary_sectors: partial.summary_sectors as u32,
            entry_count: (partial.end - partial.first) as u32,
            next_segment: partial.next_segment,
            youngest: youngest[number],
            ino_cursor: state.ino_cursor,
            inode_count: state.inode_count,
            generation: state.generation,
            unwritten_bytes: state.log.unwritten_logged,
        };
        summary.encode(&mut buf);
        state.log.end.chain = sum.behind(&buf[SUMMARY_CRC_FROM..payload_from]);
        put_partial_crc(&mut buf, state.log.end.chain);
        debug_assert!(
            partial_is_sealed(&buf, &Summary { crc: state.log.end.chain, ..summary }),
            "sums of sums are right"
        );
        let sequence = state.log.end.sequence;
        state.log.end.sequence += 1;
        let data = buf.freeze();
        state.log.counters.partial_segments += 1;
        state.log.counters.log_bytes += data.len() as u64;
        let payload = written.iter().map(|piece| piece.item.sectors()).sum::<u64>();
        state.log.counters.log_summary_bytes += (partial.sectors - payload) * SECTOR_BYTES;
        state.log.log_bytes_since_checkpoint += data.len() as u64;
        state.log.in_flight_bytes += data.len() as u64;
        state.in_flight.push(InFlight { at: start, data: data.clone(), sequence });
        transaction.partials.push(PartialWrite { at: start, data, sequence });
    }
    transaction.end_sequence = end_sequence;
    if let Some(serial) = checkpoint_serial {
        let checkpoint = checkpoint_record(state, scope, state.log.end.chain, end_sequence);
        transaction.checkpoint = Some(SlotWrite { serial, block: checkpoint.to_block().into() });
        state.log.segments.dirty_blocks.clear();
        // By the next checkpoint the log may have left this segment, which may have been empty all along.
        state.log.segments.touch(state.log.end.segment);
        state.log.orphans.dirty_blocks.clear();
        let kept = [state.log.end.segment, state.log.end.next_segment];
        state.log.segments.clean_again(&kept);
        state.log.moving.clear();
        state.log.log_bytes_since_checkpoint = 0;
    }
    state.log.counters.transactions += 1;
    transaction
}

/// Moves the end of the log behind `partials`.
fn move_end(state: &mut State, partials: &[Planned], now: i64) {
    let Some(last) = partials.last() else { return };
    let mut from = (state.log.end.segment, state.log.end.offset);
    for partial in partials {
        if partial.segment != from.0 {
            state.log.counters.log_unfilled_bytes += (state.log.layout.segment_sectors() - from.1) * SECTOR_BYTES;
        }
        from = (partial.segment, partial.offset + partial.sectors);
    }
    let written: BTreeSet<SegmentNo> =
        partials.iter().map(|partial| partial.segment).chain([state.log.end.segment]).collect();
    state.log.end.segment = last.segment;
    state.log.end.offset = last.offset + last.sectors;
    state.log.end.next_segment = last.next_segment;
    for partial in partials.iter().filter(|partial| partial.offset == 0) {
        state.log.segments.opened(partial.segment, now);
    }
    for segment in written.into_iter().filter(|segment| *segment != last.segment) {
        state.log.segments.left(segment, now);
    }
}

/// Updates the usage table to its state after the transaction is written.
fn count_usage(
    state: &mut State,
    pieces: &[SummaryPiece],
    partials: &[Planned],
    freed: &BTreeMap<SegmentNo, u64>,
    youngest: &[i64],
    scope: Scope,
) {
    let old = [state.log.end.segment, state.log.end.next_segment];
    for &segment in &old {
        state.log.segments.take(segment); // Its block of the table changes, whether or not anything in it lives.
    }
    for (partial, &youngest) in partials.iter().zip(youngest) {
        if !old.contains(&partial.next_segment) {
            state.log.segments.take(partial.next_segment);
        }
        for piece in &pieces[partial.first..partial.end] {
            let live = piece.item.live_bytes();
            if live > 0 {
                state.log.segments.add_live(partial.segment, live, youngest);
                count_kind(state, piece, live, scope);
            }
            if let Source::Block(WrittenBlock { id, old, .. }) = piece.source
                && !is_user_data(id)
            {
                state.log.segments.add_tree(partial.segment, live);
                if let Pointer::Mapped { at, .. } = old
                    && let Some(from) = state.log.layout.segment_of(at)
                {
                    state.log.segments.remove_tree(from, old.live_bytes());
                }
            }
        }
    }
    let end_sequence = state.log.end.sequence + partials.len() as u64;
    for (&segment, &bytes) in freed {
        if !state.log.segments.remove_live(segment, bytes) {
            contradiction(state, &format!("segment {segment} records fewer live bytes than are freed from it"));
        }
        state.log.segments.note_emptied(segment, end_sequence);
    }
}

fn is_user_data(id: BlockId) -> bool {
    id.key.is_data() && !is_internal(id.ino)
}

fn count_kind(state: &mut State, piece: &SummaryPiece, bytes: u64, scope: Scope) {
    let is_data = match &piece.source {
        Source::Block(block) => is_user_data(block.id),
        _ => false,
    };
    let cleaned = match &piece.source {
        Source::Block(block) => block.cleaned,
        _ => scope == Scope::Cleaned,
    };
    let counters = &mut state.log.counters;
    match (cleaned, is_data) {
        (true, _) => counters.log_cleaned_bytes += bytes,
        (false, true) => counters.log_data_bytes += bytes,
        (false, false) => counters.log_metadata_bytes += bytes,
    }
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

/// Clears the records that were pending for this transaction.
fn forget_pending(state: &mut State, pieces: &[SummaryPiece]) {
    let mut counted: u64 = std::mem::take(&mut state.log.freed).values().sum();
    state.log.records.clear();
    for piece in pieces {
        let Source::Inodes(inodes) = &piece.source else { continue };
        for ino in inodes {
            if let Some(known) = state.inodes.get_mut(ino) {
                counted += std::mem::take(&mut known.deferred_free.freed).values().sum::<u64>();
                known.deferred_free.holes.clear();
                known.deferred_free.nodes.clear();
            }
        }
    }
    for ino in [IMAP_INO, USAGE_INO, ORPHAN_INO] {
        assert!(state.inodes.get(&ino).is_none_or(|known| known.deferred_free.freed.is_empty()), "tables never shrink");
    }
    assert!(counted <= state.freed_pending_bytes, "A3: what is counted as freed was unmapped before");
    state.freed_pending_bytes -= counted;
}

/// Puts a block into its place, and its address into what points to it. Returns the checksum of its bytes there.
fn lay_block(state: &mut State, block: &WrittenBlock, at: Sector, target: &mut [u8]) -> u32 {
    let WrittenBlock { id, old, .. } = *block;
    if id.ino == USAGE_INO && id.key.is_data() {
        if let Some(bytes) = state.blocks.dirty_bytes_mut(id) {
            state.log.segments.store_block(id.key.0, bytes);
        }
    } else if id.ino == ORPHAN_INO
        && id.key.is_data()
        && let Some(bytes) = state.blocks.dirty_bytes_mut(id)
    {
        state.log.orphans.store_block(id.key.0, bytes);
    }
    state.log.moving.remove(&id);
    id.key.cover_written();
    match state.blocks.peek(id) {
        Some(data) => target.copy_from_slice(&data[..target.len()]),
        None => unreachable!("a block that was collected is in memory"),
    }
    let crc = crc32c(target);
    let pointer = Pointer::summed(at, target.len(), crc);
    match id.key.holder() {
        Holder::Inode(slot) => {
            if let Some(known) = state.inodes.get_mut(&id.ino) {
                known.inode.set_pointer(slot, pointer);
            }
        }
        Holder::Node(node, slot) => match state.blocks.dirty_bytes_mut(BlockId { ino: id.ino, key: node }) {
            Some(bytes) => set_pointer_in_block(bytes, slot, pointer),
            None => unreachable!("S1: the holder of a dirty block is dirty"),
        },
    }
    if old == Pointer::Unwritten {
        match state.unwritten_bytes.checked_sub(BLOCK_BYTES as u64) {
            Some(rest) => state.unwritten_bytes = rest,
            None => contradiction(state, "more bytes are given back than are set aside"),
        }
        // The log already has this reservation, or gets it with the inode in this transaction.
        if let Some(known) = state.inodes.get_mut(&id.ino) {
            known.unwritten_pending -= BLOCK_BYTES as i64;
        }
    }
    if id.key.is_data()
        && let Some(known) = state.inodes.get_mut(&id.ino)
    {
        // A dirty block counts as a whole one until its stored size is known.
        match known.inode.bytes_used.checked_sub((BLOCK_BYTES - target.len()) as u64) {
            Some(rest) => known.inode.bytes_used = rest,
            None => contradiction(state, &format!("inode {} uses more bytes than it says", id.ino)),
        }
    }
    state.mark_written(id);
    crc
}

fn lay_inodes(state: &mut State, inodes: &[Ino], at: Sector, target: &mut [u8]) {
    target.fill(0);
    for (index, &ino) in inodes.iter().enumerate() {
        let slot = InodeSlot::new(at + index as u64 / INODES_PER_SECTOR, index as u64 % INODES_PER_SECTOR);
        if let Some(known) = state.inodes.get_mut(&ino) {
            if known.xattr_dirty && known.xattr.is_none() {
                known.inode.xattr = [0; Pointer::BYTES];
                known.xattr_dirty = false;
            }
            known.inode.seal_into(&mut target[index * Inode::BYTES..(index + 1) * Inode::BYTES]);
            known.slot = slot;
            known.dirt = InodeDirt::Clean;
            (known.cleaned, known.moved) = (false, false);
            let delta = std::mem::take(&mut known.unwritten_pending);
            log_unwritten(state, delta);
        }
        state.dirty_inodes.remove(&ino);
        Segmented::set_imap_entry(state, ino, slot);
    }
}

fn lay_xattr(state: &mut State, ino: Ino, at: Sector, target: &mut [u8]) {
    target.fill(0);
    let Some(known) = state.inodes.get_mut(&ino) else { return };
    if let Some(data) = &known.xattr {
        target.copy_from_slice(data);
    }
    Pointer::to(at, target).encode(&mut known.inode.xattr);
    known.xattr_dirty = false;
    state.xattr_growth_bytes -= std::mem::take(&mut known.xattr_growth);
}

fn checkpoint_record(state: &State, scope: Scope, log_chain: u32, log_sequence: u64) -> Checkpoint {
    let internal = |ino: Ino| {
        let mut bytes = [0; Inode::BYTES];
        if let Some(known) = state.inodes.get(&ino) {
            known.inode.seal_into(&mut bytes);
        }
        bytes
    };
    let mut flags = if scope == (Scope::Checkpoint { clean: true }) { CHECKPOINT_CLEAN } else { 0 };
    flags |= if state.log.exact { CHECKPOINT_EXACT } else { 0 };
    Checkpoint {
        magic: CHECKPOINT_MAGIC,
        crc: 0,
        flags,
        uuid: state.log.layout.superblock.uuid,
        serial: state.log.checkpoint_serial + 1,
        seconds: state.now.seconds,
        nanos: state.now.nanos,
        log_chain,
        log_segment: state.log.end.segment,
        log_offset: state.log.end.offset as u32,
        reserved: 0,
        log_sequence,
        next_segment: state.log.end.next_segment,
        ino_cursor: state.ino_cursor,
        inode_count: state.inode_count,
        generation: state.generation,
        live_bytes: state.log.segments.live_bytes,
        unwritten_bytes: state.log.unwritten_logged,
        imap: internal(IMAP_INO),
        usage: internal(USAGE_INO),
        orphans: internal(ORPHAN_INO),
    }
}
