//! Mounting: loads the newest checkpoint of a volume that `find` has found, and rolls forward over the log behind it.
//!
//! Paper: [ro92 §4.2], [se93 §4]. Format: FORMAT.md, "Recovery".
//!
//! Invariants
//!   V1  A transaction is replayed whole or not at all: every partial segment of it must be intact, up to the one that
//!       commits it.
//!   V2  Replay ends at the first partial segment that is missing. When a later one proves that the missing one was
//!       durable, the volume is damaged, and mounting is an error: acknowledged data is not dropped silently.
//!   V3  A read-only mount of a damaged volume shows its latest verifiable state, and warns.
//!   V4  After replay, the usage table equals a recount. Where that cannot be known (another release may have counted
//!       wrongly, or the table is damaged), a mount recounts before it writes. Where something cannot be counted then, it does not write.
//!   V5  Replaying a record takes time and memory bounded by the size of the volume, whatever numbers are in the
//!       record.
//!   V6  Each partial segment that was read is followed by at most one with the next number. So the intact beginning of
//!       an unfinished transaction stays a part of the log, where clean segments are left, and the next transaction
//!       follows it. If the next transaction overwrote it, or skipped it where it does not fit, a mount from the older
//!       slot could mistake one for the other. Where too few are left, the start of it is erased instead, and the next
//!       transaction gets its number. It is not erased where it can be followed: a later partial segment that an earlier
//!       mount wrote behind it, and that declares it durable, would be evidence of damage (V2).

use futures_util::future::LocalBoxFuture;

use super::cleaner::FoundPartial;
use super::find::FoundVolume;
use super::format::*;
use super::layout::*;
use super::segment_reader::SegmentReader;
use super::segments::Segments;
use super::state::*;
use super::{Lfs, Options, durability_evidence};
use crate::device::{Buf, Data, DeviceError};
use crate::fs::logfs::backend::InodeMap;
use crate::fs::logfs::change::Change;
use crate::fs::logfs::demand::ReserveAccess;
use crate::fs::logfs::file;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Bytes of blocks in memory while the log is replayed, for each byte of the volume (V5): twice what can exist.
const MEMORY_PER_VOLUME: u64 = 2;

/// Indirect blocks that replay visits in one turn.
const VISITS_PER_TURN: u64 = 1 << 10;

/// The volume in memory at `checkpoint`, with the tables not loaded yet.
///
/// # Errors
/// `Corrupt` when the checkpoint contradicts the layout.
pub(super) fn state_at(layout: Layout, checkpoint: &Checkpoint, options: Options) -> FsResult<State> {
    let bad = |what: &str| FsError::corrupt("checkpoint", checkpoint.serial, what);
    let count = layout.segment_count();
    let log = LogEnd {
        segment: checkpoint.log_segment,
        offset: checkpoint.log_offset.into(),
        next_segment: checkpoint.next_segment,
        sequence: checkpoint.log_sequence,
        chain: checkpoint.log_chain,
    };
    if log.segment >= count || log.next_segment >= count || log.segment == log.next_segment {
        return Err(bad("the log continues outside the volume"));
    }
    if log.offset > layout.segment_sectors() || !log.offset.is_multiple_of(layout.align_sectors()) {
        return Err(bad("the log continues between blocks"));
    }
    let mut state = Segmented::state(layout, options, Segments::new(&layout), log);
    state.log.checkpoint_serial = checkpoint.serial;
    state.log.segments.serial = checkpoint.serial;
    state.log.exact = checkpoint.flags & CHECKPOINT_EXACT != 0;
    state.ino_cursor = checkpoint.ino_cursor.clamp(FIRST_FREE_INO, layout.ino_end());
    state.inode_count = checkpoint.inode_count;
    state.generation = checkpoint.generation;
    state.unwritten_bytes = checkpoint.unwritten_bytes;
    state.log.unwritten_logged = checkpoint.unwritten_bytes;
    for (ino, bytes) in
        [(IMAP_INO, &checkpoint.imap), (USAGE_INO, &checkpoint.usage), (ORPHAN_INO, &checkpoint.orphans)]
    {
        let inode = Inode::unseal(bytes).filter(|inode| inode.ino == ino.0);
        let Some(inode) = inode else { return Err(bad("an internal inode is damaged")) };
        state.inodes.insert_permanent(ino, InodeMem::new(inode, InodeSlot::NONE));
    }
    Ok(state)
}

/// How far recovery follows the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Follow {
    /// To its end; damage is an error.
    ToTheEnd,
    /// To its end, or to the damage in it.
    ToTheDamage,
    /// Not at all.
    Nowhere,
}

impl Lfs {
    /// Loads the tables of the checkpoint that the state was made from, and rolls forward. `starts_max` limits the
    /// search for evidence of damage, as in [`durability_evidence::find`].
    pub(super) fn recover<'a>(
        &'a self,
        found: &'a FoundVolume,
        from: &'a Checkpoint,
        follow: Follow,
        starts_max: usize,
    ) -> LocalBoxFuture<'a, FsResult<()>> {
        Box::pin(self.recover_state(found, from, follow, starts_max))
    }

    async fn recover_state(
        &self,
        found: &FoundVolume,
        from: &Checkpoint,
        follow: Follow,
        starts_max: usize,
    ) -> FsResult<()> {
        self.load_tables(from.live_bytes).await?;
        if follow != Follow::Nowhere {
            let mut reader = SegmentReader::default();
            let (end, lost) = self.roll_forward(&mut reader).await?;
            // Nothing follows on a volume that was closed, so there is no need to search far.
            let closed = from.flags & CHECKPOINT_CLEAN != 0 && found.lost_slot.is_none();
            let starts_max = if closed { 0 } else { starts_max };
            let evidence = durability_evidence::find(self, &mut reader, &end, starts_max).await?;
            let layout = self.state.borrow().log.layout;
            match evidence.map(|evidence| damage_error(&layout, &end, lost.as_ref(), &evidence)) {
                Some(error) if follow == Follow::ToTheEnd => return Err(error),
                Some(error) => self.warn(format!("{error}. Later changes are not shown")),
                None => {}
            }
        }
        let slot_serial = found.checkpoint.serial;
        let loaded = self.state.borrow().log.checkpoint_serial;
        if let Some(slot) = found.lost_slot.filter(|_| loaded <= slot_serial) {
            self.warn(format!(
                "checkpoint slot: sector {slot}: no intact copy is left, and the log holds no checkpoint after {loaded}. If \
                 the slot held a later one, the changes after {loaded} are lost"
            ));
        }
        if !self.state.borrow().end_is_plausible() {
            self.doubt_usage(
                "segment usage table: the segment where the log continues has too many live bytes".to_string(),
            );
        }
        let mut state = self.state.borrow_mut();
        state.log.written_sequence = state.log.end.sequence;
        state.log.durable_sequence = state.log.end.sequence;
        if loaded != slot_serial && (loaded + 1) % 2 == slot_serial % 2 {
            // The next checkpoint must not overwrite the only good one.
            cover("lfs: a serial is skipped to spare the only good slot");
            state.log.checkpoint_serial += 1;
            state.log.segments.serial += 1;
        }
        // G1: when a slot is lost, the other one alone needs anything, and the next checkpoint goes to the lost one.
        let older = found.older.map_or(slot_serial, |older| older.serial);
        state.log.slots = [slot_serial; 2];
        if older < slot_serial {
            state.log.slots[1 - (slot_serial % 2) as usize] = older;
        }
        let released = state.log.segments.let_go(older);
        released.into_iter().for_each(|segment| state.log.segments.put_back(segment, false));
        Ok(())
    }

    /// Replays what follows. Returns the end of the log, which may be within a transaction, and the device's error if
    /// something could not be read there.
    pub(super) async fn roll_forward(&self, reader: &mut SegmentReader) -> FsResult<(LogEnd, Option<DeviceError>)> {
        let mut lost = None;
        let layout = self.state.borrow().log.layout;
        let mut end = self.state.borrow().log.end;
        let mut transaction: Vec<(FoundPartial, Buf)> = Vec::new();
        loop {
            let Some((partial, bytes)) = reader.next(self, &layout, &end).await? else {
                if let Some((at, error)) = reader.lost_at(self, &layout, &end).await? {
                    self.warn(format!(
                        "the log may continue at sector {at}, which cannot be read ({error}); what was written there is lost"
                    ));
                    lost = Some(error);
                }
                break;
            };
            let summary = partial.summary;
            match (summary.flags & SUMMARY_FIRST != 0, transaction.is_empty()) {
                (true, false) => {
                    // An earlier mount has passed over the beginning of an unfinished transaction.
                    let mut state = self.state.borrow_mut();
                    for (partial, _) in transaction.drain(..) {
                        state.log.segments.take(partial.summary.next_segment); // G1
                    }
                }
                (false, true) => break, // A continuation without a beginning: no writer does that.
                (true, true) | (false, false) => {}
            }
            end = end_after(&summary);
            transaction.push((partial, bytes));
            if summary.flags & SUMMARY_COMMIT != 0 {
                cover("lfs: a transaction is replayed");
                self.replay(&transaction, end).await?;
                transaction.clear();
                self.state.borrow_mut().log.counters.replayed_transactions += 1;
            }
        }
        if !transaction.is_empty() {
            cover("lfs: the log ends within a transaction");
            let begun = transaction.iter().map(|(partial, _)| partial.summary.next_segment);
            self.state.borrow_mut().log.torn = Some((end, begun.collect()));
        }
        Ok((end, lost))
    }

    /// Moves the end of the log behind the intact beginning of an unfinished transaction (V6). On a volume without room
    /// for that and for the next checkpoint (S3), it stays in place, and the result is true: then its start is erased before anything
    /// else is written ([`Lfs::cut_behind_end`]).
    pub(super) fn pass_over_torn(&self) -> bool {
        let clean = self.clean_segments();
        let mut state = self.state.borrow_mut();
        let Some((end, segments)) = state.log.torn.take() else { return false };
        let checkpoint = state.log_need_bytes().div_ceil(state.log.layout.segment_bytes());
        if clean < state.cleaner_segments() + 3 + checkpoint + segments.len() as u64 {
            cover("lfs: the beginning of a transaction is written over");
            return true;
        }
        cover("lfs: the beginning of a transaction is passed over");
        segments.into_iter().for_each(|segment| state.log.segments.take(segment));
        (state.log.end, state.log.written_sequence, state.log.durable_sequence) = (end, end.sequence, end.sequence);
        false
    }

    /// Applies one whole transaction.
    async fn replay(&self, transaction: &[(FoundPartial, Buf)], end: LogEnd) -> FsResult<()> {
        let Some((last, last_bytes)) = transaction.last() else { return Ok(()) };
        if last.summary.flags & SUMMARY_CHECKPOINT != 0 {
            return self.adopt_checkpoint(last, last_bytes, end).await;
        }
        let items = || transaction.iter().flat_map(|(partial, bytes)| located(partial, bytes));
        let end_of_inodes = self.state.borrow().log.layout.ino_end();
        // Internal files change in checkpoints alone.
        let can_be = |ino: Ino| ino.0 > 0 && ino.0 < end_of_inodes && !is_internal(ino);
        if let Some(bad) = items().find(|located| located.item.ino().is_some_and(|ino| !can_be(ino))) {
            let detail = format_args!("it is about an inode that no file can have: {:?}", bad.item);
            return Err(FsError::corrupt("log record", bad.at, detail));
        }
        for located in items() {
            if let Item::InodeFreed { ino } = located.item {
                self.replay_freed(ino).await?;
            }
        }
        for located in items() {
            if let Item::Inodes { count, .. } = located.item {
                self.replay_inodes(count, &located).await?;
            }
        }
        for located in items() {
            match located.item {
                Item::Unmapped { ino, first, count } if BlockKey(first).is_data() => {
                    self.replay_holes(ino, first, count).await?;
                }
                // Those of a file come before its other records.
                Item::Unmapped { ino, first, count } => self.replay_dropped(ino, BlockKey(first), count).await?,
                Item::Reserved { ino, first, count } => {
                    self.replay_reserved(ino, first, count).await?;
                }
                _ => {}
            }
        }
        for located in items() {
            if let Item::Block { ino, key, .. } = located.item {
                self.replay_block(ino, BlockKey(key), &located).await?;
            }
        }
        for located in items() {
            if let Item::Block { ino, key, .. } = located.item {
                self.settle(BlockId { ino, key: BlockKey(key) });
            }
        }
        self.replay_counts(transaction, end)
    }

    /// The transaction is a checkpoint whose slot was never written, or is damaged: continue from there.
    async fn adopt_checkpoint(&self, last: &FoundPartial, bytes: &[u8], end: LogEnd) -> FsResult<()> {
        cover("lfs: the log holds a newer checkpoint than its slots");
        let payload = located(last, bytes).find(|located| matches!(located.item, Item::Checkpoint { .. }));
        let checkpoint = payload.and_then(|located| Checkpoint::from_block(located.payload));
        let Some(mut checkpoint) = checkpoint else {
            return Err(FsError::corrupt("log", last.start, "a checkpoint without content"));
        };
        checkpoint.log_chain = end.chain;
        let agrees = (checkpoint.log_segment, u64::from(checkpoint.log_offset), checkpoint.log_sequence)
            == (end.segment, end.offset, end.sequence);
        if !agrees || checkpoint.next_segment != end.next_segment {
            return Err(FsError::corrupt("log", last.start, "a checkpoint that does not know where it is"));
        }
        let (layout, options) = {
            let state = self.state.borrow();
            (state.log.layout, state.log.options)
        };
        let fresh = state_at(layout, &checkpoint, options)?;
        *self.state.borrow_mut() = fresh;
        self.load_tables(checkpoint.live_bytes).await
    }

    async fn replay_freed(&self, ino: Ino) -> FsResult<()> {
        cover("lfs: the end of a file is replayed");
        self.run(|state| {
            let mut change = Change::new(state);
            change.touch(imap_place(ino).0)?;
            change.commit(ReserveAccess::Internal)?;
            state.inodes.remove(&ino);
            state.dirty_inodes.remove(&ino);
            state.blocks.remove_file(ino);
            Segmented::set_imap_entry(state, ino, InodeSlot::NONE);
            Ok(())
        })
        .await
    }

    async fn replay_inodes(&self, count: u32, located: &Located<'_>) -> FsResult<()> {
        let end = self.state.borrow().log.layout.ino_end();
        for index in 0..u64::from(count) {
            let slot = InodeSlot::new(located.at + index / INODES_PER_SECTOR, index % INODES_PER_SECTOR);
            let inode = Inode::unseal(&located.payload[index as usize * Inode::BYTES..]);
            let inode = inode.filter(|inode| inode.ino < end && !is_internal(Ino(inode.ino)) && inode.ino > 0);
            let Some(inode) = inode else {
                return Err(FsError::corrupt("log", located.at, "an inode in it is damaged"));
            };
            let ino = Ino(inode.ino);
            self.run(|state| {
                let mut change = Change::new(state);
                change.touch(imap_place(ino).0)?;
                change.commit(ReserveAccess::Internal)?;
                state.inodes.insert(ino, InodeMem::new(inode, slot));
                Segmented::set_imap_entry(state, ino, slot);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Reserves space for data blocks. Those that the inode points to directly are already in the inode.
    ///
    /// The count comes from the record, so it is trusted only as far as there are blocks for it (V5).
    async fn replay_reserved(&self, ino: Ino, first: u64, count: u32) -> FsResult<()> {
        cover("lfs: space set aside is replayed");
        let end = first.saturating_add(count.into());
        let bad = |detail: &str| {
            let place = format_args!("inode {ino}, blocks {first} to {}", end.saturating_sub(1));
            Err(FsError::corrupt("log record", place, detail))
        };
        if end > FILE_BLOCKS_MAX {
            return bad("they are past the end of the largest file");
        }
        if u64::from(count) * BLOCK_BYTES as u64 > self.state.borrow().log.layout.capacity_bytes() {
            return bad("more is set aside than the volume can hold");
        }
        let mut visits = Visits::new(self);
        let mut index = first.max(DIRECT_POINTERS as u64);
        while index < end {
            let Holder::Node(node, _) = BlockKey::data(index).holder() else {
                index += 1;
                continue;
            };
            visits.count(self, BlockId { ino, key: node }).await?;
            let next = end.min(node.span().1);
            let set = self.run(|state| {
                let mut change = Change::new(state);
                for index in index..next {
                    change.set_pointer(BlockId::data(ino, index), Pointer::Unwritten)?;
                }
                change.commit(ReserveAccess::Internal)
            });
            match set.await {
                Ok(()) => index = next,
                // The file was removed later on.
                Err(FsError::Stale) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Unmaps data blocks. Without an indirect block there is nothing to unmap.
    async fn replay_holes(&self, ino: Ino, first: u64, count: u32) -> FsResult<()> {
        cover("lfs: a hole is replayed");
        let end = first.saturating_add(count.into());
        if end > FILE_BLOCKS_MAX {
            return Err(FsError::corrupt("log", format_args!("inode {ino}"), "a record past the largest file"));
        }
        let mut visits = Visits::new(self);
        let mut index = first.max(DIRECT_POINTERS as u64);
        while index < end {
            let Holder::Node(node, _) = BlockKey::data(index).holder() else {
                index += 1;
                continue;
            };
            visits.count(self, BlockId { ino, key: node }).await?;
            let step = self.run(|state| {
                let mut change = Change::new(state);
                let (exists, next) = file::exists_or_skip(&mut change, BlockId { ino, key: node })?;
                if !exists {
                    return Ok(next);
                }
                for index in index..end.min(next) {
                    let id = BlockId::data(ino, index);
                    if change.pointer(id)? != Pointer::Hole {
                        change.set_pointer(id, Pointer::Hole)?;
                    }
                }
                change.commit(ReserveAccess::Internal)?;
                Ok(next)
            });
            match step.await {
                Ok(next) => index = next,
                // The file was removed later on.
                Err(FsError::Stale) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Drops `count` indirect blocks of one level, with everything below them. Records of kind `SegmentFreed` say what
    /// that frees.
    async fn replay_dropped(&self, ino: Ino, first: BlockKey, count: u32) -> FsResult<()> {
        let last = BlockKey(first.0.saturating_add(u64::from(count.max(1)) - 1));
        if !first.is_valid() || !last.is_valid() || first.0 >> 56 != last.0 >> 56 {
            let detail = "a record of indirect blocks that cannot be";
            return Err(FsError::corrupt("log", format_args!("inode {ino}"), detail));
        }
        cover("lfs: a dropped indirect block is replayed");
        let (mut index, end) = (first.span().0, last.span().1);
        let is_gone = |key: BlockKey| {
            let (from, to) = key.span();
            key.is_valid() && key.level() <= first.level() && index <= from && to <= end
        };
        self.state.borrow_mut().blocks.remove_where(ino, is_gone);
        let mut visits = Visits::new(self);
        while index < end {
            let mut key = BlockKey::data(index);
            while key.level() < first.level() {
                let Holder::Node(node, _) = key.holder() else { break };
                key = node;
            }
            if matches!(key.holder(), Holder::Inode(_)) {
                index = key.span().1; // The inode that came with the record has its own pointers.
                continue;
            }
            let id = BlockId { ino, key };
            visits.count(self, id).await?;
            let step = self.run(|state| {
                let mut change = Change::new(state);
                let (exists, next) = file::exists_or_skip(&mut change, id)?;
                if exists {
                    change.set_pointer(id, Pointer::Hole)?;
                }
                change.commit(ReserveAccess::Internal)?;
                Ok(next)
            });
            match step.await {
                Ok(next) => index = next,
                Err(FsError::Stale) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// V5. Everything that replay creates is written by the next checkpoint, for which there was room when the log was
    /// written.
    fn check_memory(&self) -> FsResult<()> {
        let state = self.state.borrow();
        let bytes = state.blocks.dirty_count() * BLOCK_BYTES as u64;
        match bytes > MEMORY_PER_VOLUME * state.log.layout.superblock.volume_sectors * SECTOR_BYTES {
            true => Err(FsError::corrupt("log", "volume", "replaying it takes more blocks than the volume has")),
            false => Ok(()),
        }
    }

    async fn replay_pointer(&self, id: BlockId, pointer: Pointer) -> FsResult<()> {
        if matches!(id.key.holder(), Holder::Inode(_)) {
            return Ok(());
        }
        let set = self.run(|state| {
            let mut change = Change::new(state);
            change.set_pointer(id, pointer)?;
            change.commit(ReserveAccess::Internal)
        });
        match set.await {
            // The file was removed later on.
            Err(FsError::Stale) => Ok(()),
            other => other,
        }
    }

    async fn replay_block(&self, ino: Ino, key: BlockKey, located: &Located<'_>) -> FsResult<()> {
        if !key.is_valid() || located.payload.len() > BLOCK_BYTES {
            return Err(FsError::corrupt("log", located.at, "a block with an impossible place in its file"));
        }
        if !key.is_data() && located.payload.len() < BLOCK_BYTES {
            return Err(FsError::corrupt("log", located.at, "a part of an indirect block"));
        }
        let id = BlockId { ino, key };
        self.check_memory()?;
        if !key.is_data() {
            cover("lfs: an indirect block in the log is replayed");
            let data = Data::from_slice(located.payload);
            self.run(|state| {
                let mut change = Change::new(state);
                change.replace_block(id, data.clone())?;
                change.commit(ReserveAccess::Internal)
            })
            .await?;
        }
        self.replay_pointer(id, Pointer::to(located.at, located.payload)).await
    }

    /// An indirect block that the log holds as it is now need not be written by the next checkpoint, for which there may be
    /// no room (S3). Children come before parents.
    fn settle(&self, id: BlockId) {
        let mut state = self.state.borrow_mut();
        if !id.key.is_data() && !state.blocks.is_dirty_below(id) {
            state.mark_written(id);
        }
    }

    /// Updates the usage table, the orphans and the counts to their values after the transaction.
    fn replay_counts(&self, transaction: &[(FoundPartial, Buf)], end: LogEnd) -> FsResult<()> {
        let mut doubtful = None;
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        for (partial, _) in transaction {
            let summary = partial.summary;
            // G1: the slots need the segment to roll forward, whether or not anything in it is alive. The checkpoint
            // itself takes the first segment and its next.
            state.log.segments.take(summary.next_segment);
            let bytes: u64 = partial.items.iter().map(|item| item.live_bytes()).sum();
            let room = state.log.layout.segment_bytes() - state.log.segments.get(summary.segment).live_bytes;
            if bytes > room {
                doubtful = Some(summary.segment);
            } else if bytes > 0 {
                state.log.segments.add_live(summary.segment, bytes, summary.youngest);
            }
        }
        for item in transaction.iter().flat_map(|(partial, _)| &partial.items) {
            match *item {
                Item::SegmentFreed { segment, bytes } => {
                    if segment >= state.log.segments.count() {
                        let detail = "space is freed in it, and it does not exist";
                        return Err(FsError::corrupt("log", format_args!("segment {segment}"), detail));
                    }
                    if !state.log.segments.remove_live(segment, bytes) {
                        doubtful = Some(segment);
                    }
                }
                Item::OrphanAdded { ino } => {
                    state.log.orphans.add(ino);
                }
                Item::OrphanRemoved { ino } => {
                    state.log.orphans.remove(ino);
                }
                _ => {}
            }
        }
        if let Some((last, _)) = transaction.last() {
            let end_of_inodes = state.log.layout.ino_end();
            state.ino_cursor = last.summary.ino_cursor.clamp(FIRST_FREE_INO, end_of_inodes);
            state.inode_count = last.summary.inode_count;
            state.generation = last.summary.generation;
            state.unwritten_bytes = last.summary.unwritten_bytes;
            state.log.unwritten_logged = last.summary.unwritten_bytes;
        }
        state.log.end = end;
        drop(guard);
        if let Some(segment) = doubtful {
            self.doubt_usage(format!(
                "segment usage table: what the log adds to segment {segment} and frees in it is impossible"
            ));
        }
        Ok(())
    }
}

impl State {
    /// Whether the live bytes counted in the segment where the log continues can be right: nothing is alive behind its
    /// end (G3).
    pub(super) fn end_is_plausible(&self) -> bool {
        let end = self.log.end;
        self.log.segments.get(end.segment).live_bytes <= end.offset * SECTOR_BYTES
            && self.log.segments.get(end.next_segment).live_bytes == 0
    }
}

/// A piece of a partial segment.
struct Located<'a> {
    item: Item,
    at: Sector,
    payload: &'a [u8],
}

/// The indirect blocks that replay of one record visits (V5).
struct Visits {
    left: u64,
    last: Option<BlockId>,
}

impl Visits {
    /// Limit: as many as can exist, on the volume and created by replay.
    fn new(lfs: &Lfs) -> Visits {
        let sectors = lfs.state.borrow().log.layout.superblock.volume_sectors;
        Visits { left: (1 + MEMORY_PER_VOLUME) * sectors / BLOCK_SECTORS, last: None }
    }

    /// Counts `node`, unless it is the same as the last one. Other tasks get their turn now and then.
    async fn count(&mut self, lfs: &Lfs, node: BlockId) -> FsResult<()> {
        if self.last.replace(node) == Some(node) {
            return Ok(());
        }
        let all = {
            let mut state = lfs.state.borrow_mut();
            state.log.replay_visits += 1;
            state.log.replay_visits
        };
        if all.is_multiple_of(VISITS_PER_TURN) {
            lfs.rt.yield_now().await;
        }
        let Some(left) = self.left.checked_sub(1) else {
            let detail = "the file's indirect blocks form a cycle";
            return Err(FsError::corrupt("log record", format_args!("inode {}", node.ino), detail));
        };
        self.left = left;
        lfs.check_memory()
    }
}

fn located<'a>(partial: &'a FoundPartial, bytes: &'a [u8]) -> impl Iterator<Item = Located<'a>> + 'a {
    let mut sectors = u64::from(partial.summary.summary_sectors);
    partial.items.iter().map(move |&item| {
        let first = sectors;
        sectors += item.sectors();
        let payload = &bytes[(first * SECTOR_BYTES) as usize..(sectors * SECTOR_BYTES) as usize];
        Located { item, at: partial.start + first, payload }
    })
}

/// The end of the log after a partial segment.
pub(super) fn end_after(summary: &Summary) -> LogEnd {
    LogEnd {
        segment: summary.segment,
        offset: u64::from(summary.offset) + u64::from(summary.sectors),
        next_segment: summary.next_segment,
        sequence: summary.sequence + 1,
        chain: summary.crc,
    }
}

/// The error that the log continues behind its `end`; `lost` is the device's error there.
fn damage_error(
    layout: &Layout,
    end: &LogEnd,
    lost: Option<&DeviceError>,
    evidence: &durability_evidence::DurabilityEvidence,
) -> FsError {
    let at = layout.segment_start(end.segment) + end.offset;
    let what = match lost {
        Some(error) => format!("cannot be read ({error})"),
        None => "is missing or damaged".to_string(),
    };
    let detail = format_args!(
        "partial segment {} {what}, but number {} at sector {} says that it was written",
        end.sequence, evidence.sequence, evidence.at
    );
    FsError::corrupt("log", format_args!("sector {at}"), detail)
}
