//! Laying a planned transaction down: addresses and bytes, and the volume in memory as it is once they are written.

use std::collections::{BTreeMap, BTreeSet};

use super::format::*;
use super::layout::*;
use super::payload_sum::PayloadSum;
use super::plan::*;
use super::state::*;
use crate::codec::crc32c;
use crate::device::{Buf, Data};
use crate::fs::logfs::backend::InodeMap;
use crate::units::{Ino, SECTOR_BYTES, Sector};

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

/// Gives everything in the plan its address and its bytes.
pub(super) fn lay_down(state: &mut State, scope: TransactionScope<'_>, plan: Plan) -> Transaction {
    let Plan { pieces, freed, partials } = plan;
    let is_checkpoint = matches!(scope, TransactionScope::Checkpoint { .. });
    if is_checkpoint {
        let (seen, now) = (state.log.deferred_seen, state.deferred_bytes());
        state.log.deferred_seen = now.max(seen - seen / 8);
    }
    let now = now_nanos(state);
    if let Some(victims) = &mut state.log.segments.victims {
        victims.set_now(now.into());
    }
    count_usage(state, &pieces, &partials, &freed, scope);
    move_end(state, &partials, now);
    if is_checkpoint {
        let serial = state.log.checkpoint_serial + 1;
        let kept = [state.log.end.segment, state.log.end.next_segment];
        state.log.segments.note_empty(serial, &kept);
        state.log.segments.serial = serial;
    }
    forget_pending(state, &pieces);

    let end_sequence = state.log.end.sequence + partials.len() as u64;
    let written = partials.iter().enumerate().map(|(number, partial)| {
        let mut flags = if number == 0 { SUMMARY_FIRST } else { 0 };
        flags |= if number + 1 == partials.len() { SUMMARY_COMMIT } else { 0 };
        flags |= if is_checkpoint { SUMMARY_CHECKPOINT } else { 0 };
        let laying = Laying { scope, end_sequence, partial, pieces: &pieces[partial.pieces.clone()] };
        laying.partial_segment(state, flags)
    });
    let partials = written.collect();
    debug_assert_eq!(state.log.end.sequence, end_sequence, "L1: each partial segment has a number");
    let checkpoint = is_checkpoint.then(|| lay_slot(state, scope, end_sequence));
    state.log.counters.transactions += 1;
    Transaction { partials, end_sequence, checkpoint }
}

/// A partial segment of a transaction that is being laid down.
struct Laying<'a> {
    scope: TransactionScope<'a>,
    /// Sequence number after the last partial segment of the transaction.
    end_sequence: u64,
    partial: &'a Planned,
    pieces: &'a [SummaryPiece],
}

impl Laying<'_> {
    /// The partial segment, sealed and in flight. The log ends behind it.
    fn partial_segment(&self, state: &mut State, flags: u32) -> PartialWrite {
        let partial = self.partial;
        let at = state.log.layout.segment_start(partial.segment) + partial.offset;
        let mut buf = Buf::dirty((partial.sectors * SECTOR_BYTES) as usize);
        let (head, payload) = buf.split_at_mut((partial.summary_sectors * SECTOR_BYTES) as usize);
        self.lay_entries(head);
        let sum = self.lay_payload(state, at + partial.summary_sectors, payload);
        let summary = self.summary(state, flags);
        summary.encode(head);
        let chain = sum.behind(&head[SUMMARY_CRC_FROM..]);
        put_partial_crc(&mut buf, chain);
        debug_assert!(partial_is_sealed(&buf, &Summary { crc: chain, ..summary }), "sums of sums are right");
        state.log.end.chain = chain;
        let write = PartialWrite { at, data: buf.freeze(), sequence: summary.sequence };
        state.log.end.sequence += 1;
        self.count(state, &write);
        state.in_flight.push(InFlight { at, data: write.data.clone(), sequence: write.sequence });
        write
    }

    fn lay_entries(&self, head: &mut [u8]) {
        head.fill(0);
        for (index, piece) in self.pieces.iter().enumerate() {
            piece.item.to_entry().encode(&mut head[Summary::BYTES + index * SummaryEntry::BYTES..]);
        }
    }

    /// Puts what the entries describe behind each other, and zeroes behind them. Returns the checksums of all of it.
    fn lay_payload(&self, state: &mut State, mut at: Sector, mut rest: &mut [u8]) -> PayloadSum {
        let mut sum = PayloadSum::default();
        for piece in self.pieces {
            let sectors = piece.item.sectors();
            let target = rest.split_off_mut(..(sectors * SECTOR_BYTES) as usize);
            let Some(target) = target else { unreachable!("A1: what is planned has room") };
            match self.lay_piece(state, &piece.source, at, target) {
                Some(crc) => sum.add_summed(target, crc),
                None => sum.add(target),
            }
            at = at + sectors;
        }
        rest.fill(0);
        sum.add(rest);
        sum
    }

    /// Puts one piece into its place. Returns the checksum of its bytes where it had to be known.
    fn lay_piece(&self, state: &mut State, source: &Source, at: Sector, target: &mut [u8]) -> Option<u32> {
        match source {
            Source::Record => {}
            Source::Block(block) => return Some(lay_block(state, block, at, target)),
            Source::Inodes(inodes) => lay_inodes(state, inodes, at, target),
            Source::Xattr(ino) => lay_xattr(state, *ino, at, target),
            Source::Checkpoint => {
                // The copy in the log cannot hold the checksum of the partial segment around it; the copy in the slot
                // does.
                let checkpoint = checkpoint_record(state, self.scope, 0, self.end_sequence);
                target.copy_from_slice(&checkpoint.to_block()[..target.len()]);
            }
        }
        None
    }

    /// The summary, without its checksum.
    fn summary(&self, state: &State, flags: u32) -> Summary {
        let partial = self.partial;
        Summary {
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
            entry_count: self.pieces.len() as u32,
            next_segment: partial.next_segment,
            youngest: partial.youngest,
            ino_cursor: state.ino_cursor,
            inode_count: state.inode_count,
            generation: state.generation,
            unwritten_bytes: state.log.unwritten_logged,
        }
    }

    fn count(&self, state: &mut State, write: &PartialWrite) {
        let bytes = write.data.len() as u64;
        let payload: u64 = self.pieces.iter().map(|piece| piece.item.sectors()).sum();
        state.log.counters.partial_segments += 1;
        state.log.counters.log_bytes += bytes;
        state.log.counters.log_summary_bytes += bytes - payload * SECTOR_BYTES;
        state.log.log_bytes_since_checkpoint += bytes;
        state.log.in_flight_bytes += bytes;
    }
}

/// The checkpoint at the end of the log, for its slot. What is written from now on belongs to the next one.
fn lay_slot(state: &mut State, scope: TransactionScope<'_>, end_sequence: u64) -> SlotWrite {
    let checkpoint = checkpoint_record(state, scope, state.log.end.chain, end_sequence);
    let slot = SlotWrite { serial: checkpoint.serial, block: checkpoint.to_block().into() };
    state.log.segments.dirty_blocks.clear();
    // By the next checkpoint the log may have left this segment, which may have been empty all along.
    state.log.segments.touch(state.log.end.segment);
    state.log.orphans.dirty_blocks.clear();
    let kept = [state.log.end.segment, state.log.end.next_segment];
    state.log.segments.clean_again(&kept);
    state.log.moving.clear();
    state.log.log_bytes_since_checkpoint = 0;
    slot
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
    scope: TransactionScope<'_>,
) {
    let old = [state.log.end.segment, state.log.end.next_segment];
    for &segment in &old {
        state.log.segments.take(segment); // Its block of the table changes, whether or not anything in it lives.
    }
    for partial in partials {
        if !old.contains(&partial.next_segment) {
            state.log.segments.take(partial.next_segment);
        }
        for piece in &pieces[partial.pieces.clone()] {
            let live = piece.item.live_bytes();
            if live > 0 {
                state.log.segments.add_live(partial.segment, live, partial.youngest);
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

fn count_kind(state: &mut State, piece: &SummaryPiece, bytes: u64, scope: TransactionScope<'_>) {
    let is_data = match &piece.source {
        Source::Block(block) => is_user_data(block.id),
        _ => false,
    };
    let cleaned = match &piece.source {
        Source::Block(block) => block.cleaned,
        _ => scope == TransactionScope::Cleaned,
    };
    let counters = &mut state.log.counters;
    match (cleaned, is_data) {
        (true, _) => counters.log_cleaned_bytes += bytes,
        (false, true) => counters.log_data_bytes += bytes,
        (false, false) => counters.log_metadata_bytes += bytes,
    }
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
                let records = known.deferred_free.records();
                debug_assert!(records <= state.log.hole_records, "A3: what is logged was waiting for it");
                state.log.hole_records -= records;
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
    let WrittenBlock { id, old, growth_bytes, .. } = *block;
    debug_assert!(state.blocks.dirty(id).is_some(), "A2: a transaction writes what has changed");
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
    state.point_to(id, pointer);
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
        // A block that a user has changed counts as a whole one until its stored size is known.
        let counted = old.used_bytes() + growth_bytes;
        debug_assert!(counted >= target.len() as u64, "S2: no block takes more than it was counted for");
        match (known.inode.bytes_used + target.len() as u64).checked_sub(counted) {
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
    state.dirty_attributes -= known.dirty_attributes();
    (known.xattr_dirty, known.xattr_growth) = (false, 0);
    state.count_attributes(ino);
}

fn checkpoint_record(state: &State, scope: TransactionScope<'_>, log_chain: u32, log_sequence: u64) -> Checkpoint {
    let internal = |ino: Ino| {
        let mut bytes = [0; Inode::BYTES];
        if let Some(known) = state.inodes.get(&ino) {
            known.inode.seal_into(&mut bytes);
        }
        bytes
    };
    let mut flags = if scope == (TransactionScope::Checkpoint { clean: true }) { CHECKPOINT_CLEAN } else { 0 };
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
