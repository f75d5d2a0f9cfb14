//! How the cleaner moves live data: it finds what is alive in segments, and then makes it dirty, as if a user had written it,
//! and writes it to the end of the log, the oldest first [ro92 §3.4].
//!
//! Both take slices, between which others are served (`slices`). A slice is written before the next one is dirty, because a
//! sync in between writes all that is dirty.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::rc::Rc;

use super::Lfs;
use super::assemble::TransactionScope;
use super::format::*;
use super::layout::*;
use super::partials::{partial_otherwise, partials_in};
use super::plan::{age_class, now_nanos};
use super::slices::{Begun, SMALL_BYTES};
use super::state::*;
use super::victims::Victims;
use crate::device::rescue::rescue;
use crate::device::{Buf, Data};
use crate::fs::logfs::change::{Change, ReserveAccess};
use crate::fs::logfs::tree::Holder;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::{Ino, Nanos, SECTOR_BYTES, Sector};

/// What a pass has found alive, and not moved yet.
#[derive(Default)]
pub(super) struct FoundLive {
    items: Vec<Found>,
    /// Live bytes of the segments that were looked through.
    live_bytes: u64,
    /// Indirect blocks that moving it would make dirty.
    above: BTreeSet<BlockId>,
}

impl FoundLive {
    /// A segment with so many live bytes is looked through.
    pub(super) fn add_segment(&mut self, live_bytes: u64) {
        self.live_bytes += live_bytes;
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Bytes that will be dirty once it is moved, without summaries.
    pub(super) fn dirty_bytes(&self) -> u64 {
        self.live_bytes + self.above.len() as u64 * BLOCK_BYTES as u64
    }

    /// Notes the indirect blocks above a block that are not dirty: below a dirty one all others are (S1).
    fn note_above(&mut self, state: &State, id: BlockId) {
        let mut key = id.key;
        while let Holder::Node(node, _) = key.holder() {
            let above = BlockId { ino: id.ino, key: node };
            if state.blocks.dirty(above).is_some() || !self.above.insert(above) {
                break;
            }
            key = node;
        }
    }
}

/// Something alive in a segment.
struct Found {
    segment: SegmentNo,
    /// The use of the segment in which it was found.
    uses: u64,
    at: Sector,
    live_bytes: u64,
    live: Live,
}

enum Live {
    Block {
        id: BlockId,
        /// What it holds; `None` where memory has something newer.
        data: Option<Data>,
        /// When a user wrote it, if that is known.
        written: Option<i64>,
    },
    Inode {
        slot: InodeSlot,
        inode: Box<Inode>,
    },
    Xattr {
        ino: Ino,
        payload: Data,
    },
}

/// The state of the volume when a sync begins.
pub(super) struct SyncBegun {
    at: Nanos,
    cleaner_rests: bool,
    counters: [u64; 2],
    log_bytes: u64,
}

impl Lfs {
    // ---- What is alive ----

    /// Finds what is alive in a segment.
    pub(super) async fn find_live(&self, segment: SegmentNo, found: &mut FoundLive) -> FsResult<()> {
        let uses = |state: &State| state.log.segments.get(segment).uses;
        let (layout, use_read) = {
            let state = self.state.borrow();
            if is_in_flight(&state, segment) || state.log.end.next_segment == segment {
                return Ok(()); // What can be read is not what it holds.
            }
            (state.log.layout, uses(&state))
        };
        let bytes = self.read_segment(&layout, segment).await?;
        if uses(&self.state.borrow()) != use_read {
            return Ok(());
        }
        {
            let mut state = self.state.borrow_mut();
            state.log.counters.cleaner_segments_read += 1;
            state.log.counters.cleaner_read_bytes += bytes.len() as u64;
        }
        let partials = partials_in(&layout, segment, &bytes);
        let is_user_data = |item: &Item| match *item {
            Item::Block { ino, key, .. } => BlockKey(key).is_data() && !is_internal(Ino(ino.0)),
            _ => true,
        };
        // To the end of the segment, where no partial segment with a block has room.
        let read: u64 = partials.iter().map(|partial| u64::from(partial.summary.sectors)).sum();
        if layout.segment_sectors() - read < (1 + BLOCK_SECTORS).next_multiple_of(layout.align_sectors())
            && partials.iter().flat_map(|partial| &partial.items).all(is_user_data)
        {
            self.state.borrow_mut().log.segments.has_no_tree(segment);
        }
        for partial in partials {
            let mut at = partial.start + u64::from(partial.summary.summary_sectors);
            for item in partial.items {
                if uses(&self.state.borrow()) != use_read {
                    return Ok(()); // Users have emptied it in the meantime.
                }
                let offset = ((at - layout.segment_start(segment)) * SECTOR_BYTES) as usize;
                let end = offset + (item.sectors() * SECTOR_BYTES) as usize;
                debug_assert!(end <= bytes.len(), "what a summary that was checked names lies in its segment");
                let payload = &bytes[offset..end];
                let found_at = |at, live_bytes, live| Found { segment, uses: use_read, at, live_bytes, live };
                match item {
                    Item::Block { ino, key, written, .. } => {
                        let id = BlockId { ino, key: BlockKey(key) };
                        if let Some(data) = self.find_block(id, at, payload).await? {
                            let live = Live::Block { id, data, written: layout.time_of(written) };
                            found.items.push(found_at(at, item.live_bytes(), live));
                            found.note_above(&self.state.borrow(), id);
                        }
                    }
                    Item::Inodes { count, .. } => {
                        for index in 0..u64::from(count) {
                            let slot = InodeSlot::new(at + index / INODES_PER_SECTOR, index % INODES_PER_SECTOR);
                            let raw = &payload[index as usize * Inode::BYTES..];
                            if let Some(inode) = self.find_inode(slot, raw).await? {
                                found.items.push(found_at(at, Inode::BYTES as u64, Live::Inode { slot, inode }));
                            }
                        }
                    }
                    Item::Xattr { ino, .. } => {
                        if self.has_xattr_at(ino, at).await? {
                            let live = Live::Xattr { ino, payload: Data::from_slice(payload) };
                            found.items.push(found_at(at, item.live_bytes(), live));
                        }
                    }
                    _ => {}
                }
                at = at + item.sectors();
            }
        }
        Ok(())
    }

    /// Reads a whole segment. Where the intact part is less than the live part, the other readings of the device are
    /// tried for the rest. Blocks that no reading returns stay where they are, as damaged blocks do; all others move.
    async fn read_segment(&self, layout: &Layout, segment: SegmentNo) -> FsResult<Buf> {
        let mut bytes = self.read_in_slices(layout, segment).await?;
        while self.device.readings() > 1 {
            let partials = partials_in(layout, segment, &bytes);
            let found: u64 = partials.iter().flat_map(|partial| &partial.items).map(|item| item.live_bytes()).sum();
            if found >= self.state.borrow().log.segments.get(segment).live_bytes {
                break;
            }
            let sectors: u64 = partials.iter().map(|partial| u64::from(partial.summary.sectors)).sum();
            let next = partials.last().map(|partial| partial.summary.sequence + 1);
            let follows = |summary: &Summary| next.is_none_or(|next| summary.sequence == next);
            let Some(right) = partial_otherwise(&self.device, layout, segment, sectors, follows).await else { break };
            let from = (sectors * SECTOR_BYTES) as usize;
            bytes[from..from + right.len()].copy_from_slice(&right);
        }
        Ok(bytes)
    }

    async fn read_in_slices(&self, layout: &Layout, segment: SegmentNo) -> FsResult<Buf> {
        let (start, all) = (layout.segment_start(segment), layout.segment_sectors());
        let mut whole: Option<Buf> = None;
        let mut read = 0;
        while read < all {
            let most = (self.work.slices.next(&self.work.slices.reads) / SECTOR_BYTES).max(1);
            // Whole units of the volume.
            let sectors = most.next_multiple_of(layout.align_sectors()).min(all - read);
            self.let_users_pass().await;
            let begun = self.begin_slice();
            let piece = rescue(&self.device, start + read, sectors).await?.bytes;
            self.work.slices.done(&self.work.slices.reads, begun, sectors * SECTOR_BYTES, self.rt.now());
            if sectors == all {
                return Ok(piece);
            }
            let whole = whole.get_or_insert_with(|| Buf::dirty((all * SECTOR_BYTES) as usize));
            let from = (read * SECTOR_BYTES) as usize;
            whole[from..from + piece.len()].copy_from_slice(&piece);
            read += sectors;
        }
        match whole {
            Some(whole) => Ok(whole),
            None => unreachable!("a segment has sectors"),
        }
    }

    /// Whether a block is alive at `at`, and what it holds.
    async fn find_block(&self, id: BlockId, at: Sector, payload: &[u8]) -> FsResult<Option<Option<Data>>> {
        if !id.key.is_valid() {
            return Ok(None);
        }
        let found = self.run(|state| {
            let Pointer::Mapped { at: now_at, crc, .. } = state.pointer(id)? else { return Ok(None) };
            if now_at != at {
                return Ok(None);
            }
            if let Some(known) = state.blocks.peek(id) {
                return Ok(Some(state.blocks.dirty(id).is_none().then(|| known.clone())));
            }
            if crate::codec::crc32c(payload) != crc {
                // It stays where it is, and so does its segment; a reader of the block gets the error.
                return Ok(None);
            }
            let mut block = Buf::dirty(BLOCK_BYTES);
            block[..payload.len()].copy_from_slice(payload);
            block[payload.len()..].fill(0);
            Ok(Some(Some(block.freeze())))
        });
        leave_lost(found.await)
    }

    /// The inode in these bytes, if it is alive in `slot`.
    async fn find_inode(&self, slot: InodeSlot, raw: &[u8]) -> FsResult<Option<Box<Inode>>> {
        let Some(inode) = Inode::unseal(raw) else { return Ok(None) };
        let ino = Ino(inode.ino);
        let is_alive = leave_lost(self.run(|state| Ok(state.inode_slot(ino)? == slot)).await)?;
        Ok(is_alive.then(|| Box::new(inode)))
    }

    /// Whether the attributes of a file are those at `at`.
    async fn has_xattr_at(&self, ino: Ino, at: Sector) -> FsResult<bool> {
        let is_alive = self.run(|state| {
            let known = state.inode(ino)?;
            let stored = known.inode.xattr_pointer();
            Ok(!known.xattr_dirty && matches!(stored, Some(Pointer::Mapped { at: now_at, .. }) if now_at == at))
        });
        leave_lost(is_alive.await)
    }

    // ---- Moving it ----

    /// Moves what a pass has found, and waits until it is durable.
    pub(super) async fn move_found(self: &Rc<Self>, mut found: FoundLive) -> FsResult<()> {
        self.sort_found(&mut found.items);
        let mut rest = found.items.into_iter().peekable();
        loop {
            self.let_users_pass().await;
            let most = self.work.slices.next(&self.work.slices.writes);
            let (mut moved, mut is_full) = (0, false);
            while moved < most
                && let Some(item) = rest.next_if(|item| moved == 0 || moved + item.live_bytes <= most)
            {
                if !self.state.borrow().has_room_to_move(moved, item.live_bytes) {
                    cover("lfs: a pass ends in the middle of a victim");
                    is_full = true;
                    break;
                }
                moved += self.make_dirty(item).await?;
            }
            {
                let state = self.state.borrow();
                debug_assert!(
                    state.log_need_bytes() <= state.log.segments.ready.len() as u64 * state.log.layout.segment_bytes(),
                    "C3: the checkpoint after a pass fits"
                );
            }
            let log_bytes = || self.state.borrow().log.counters.log_bytes;
            let (begun, before) = (self.begin_slice(), log_bytes());
            let submitted = self.submit_loading(TransactionScope::Cleaned).await?;
            // With what users have changed in these files.
            let written = log_bytes() - before;
            self.make_durable(submitted.end_sequence).await?;
            self.work.slices.done(&self.work.slices.writes, begun, written, self.rt.now());
            if is_full || rest.peek().is_none() {
                return Ok(());
            }
            cover("lfs: a pass writes several slices");
        }
    }

    /// Puts it into the order in which it goes to the log: where the policy sorts, by age, and of an age as in the files.
    /// A transaction sorts what is in it; this divides it among several.
    fn sort_found(&self, items: &mut [Found]) {
        let state = self.state.borrow();
        let sorts = state.log.segments.victims.as_ref().is_some_and(Victims::sorts);
        let now = now_nanos(&state);
        items.sort_by_cached_key(|item| match item.live {
            Live::Block { id, written, .. } => {
                let written = written.unwrap_or_else(|| state.log.segments.get(item.segment).youngest);
                let class = if sorts { age_class(now, written) } else { 0 };
                (false, Reverse(class), id.ino, id.key)
            }
            // After all data, in the order of the log.
            Live::Inode { .. } | Live::Xattr { .. } => (true, Reverse(0), Ino(0), BlockKey(0)),
        });
    }

    /// Makes it dirty, if it is still alive. Returns the bytes that move.
    async fn make_dirty(&self, found: Found) -> FsResult<u64> {
        let Found { segment, uses, at, live, .. } = found;
        if self.state.borrow().log.segments.get(segment).uses != uses {
            return Ok(0); // Users have emptied it in the meantime.
        }
        match live {
            Live::Block { id, data, written } => self.move_block(id, at, data, written).await,
            Live::Inode { slot, inode } => self.move_inode(slot, &inode).await,
            Live::Xattr { ino, payload } => self.move_xattr(ino, at, &payload).await,
        }
    }

    async fn move_block(&self, id: BlockId, at: Sector, data: Option<Data>, written: Option<i64>) -> FsResult<u64> {
        let moved = self.run(|state| {
            let pointer = state.pointer(id)?;
            let Pointer::Mapped { at: now_at, .. } = pointer else { return Ok(0) };
            if now_at != at {
                return Ok(0);
            }
            if state.blocks.peek(id).is_none() {
                // What was newer in memory is on the volume by now.
                let Some(data) = &data else { return Ok(0) };
                state.blocks.insert_clean(id, data.clone());
            }
            cover("lfs: the cleaner moves a block");
            let mut change = Change::new(state);
            change.touch(id)?;
            change.commit(ReserveAccess::Internal)?;
            if let Some(written) = written {
                state.log.moving.insert(id, written);
            }
            Ok(pointer.live_bytes())
        });
        leave_lost(moved.await)
    }

    async fn move_inode(&self, slot: InodeSlot, inode: &Inode) -> FsResult<u64> {
        let ino = Ino(inode.ino);
        let moved = self.run(|state| {
            if state.inode_slot(ino)? != slot {
                return Ok(0);
            }
            cover("lfs: the cleaner moves an inode");
            state.insert_inode(ino, InodeMem::new(*inode, slot));
            let mut change = Change::new(state);
            change.inode_mut(ino, InodeDirt::Own)?;
            change.commit(ReserveAccess::Internal)?;
            Ok(Inode::BYTES as u64)
        });
        leave_lost(moved.await)
    }

    async fn move_xattr(&self, ino: Ino, at: Sector, payload: &Data) -> FsResult<u64> {
        let moved = self.run(|state| {
            let known = state.inode(ino)?;
            match known.inode.xattr_pointer() {
                Some(Pointer::Mapped { at: now_at, crc, .. })
                    if now_at == at && !known.xattr_dirty && crate::codec::crc32c(payload) == crc =>
                {
                    cover("lfs: the cleaner moves attributes");
                    known.xattr = Some(payload.clone());
                    let same = known.xattr.clone();
                    let mut change = Change::new(state);
                    change.set_xattr(ino, same)?;
                    change.commit(ReserveAccess::Internal)?;
                    Ok(payload.len() as u64)
                }
                _ => Ok(0),
            }
        });
        leave_lost(moved.await)
    }

    /// Makes the live blocks of a segment dirty.
    #[cfg(test)]
    pub(super) async fn move_segment(&self, segment: SegmentNo) -> FsResult<()> {
        let mut found = FoundLive::default();
        self.find_live(segment, &mut found).await?;
        for item in found.items {
            self.make_dirty(item).await?;
        }
        Ok(())
    }

    // ---- How long it takes ----

    /// Waits for what users have sent to the device by now: a disk would rather go on with a segment that it is reading.
    async fn let_users_pass(&self) {
        #[cfg(test)]
        if std::env::var("NOSL").is_ok() {
            return;
        }
        let sent = self.state.borrow().log.end.sequence;
        loop {
            let progress = self.log_progress.wait();
            {
                let state = self.state.borrow();
                let is_over = state.log.written_sequence >= sent || state.stopped.is_some();
                // What waits for room below may wait for this pass.
                if is_over || !state.stalled.is_empty() {
                    return;
                }
            }
            progress.await;
        }
    }

    fn begin_slice(&self) -> Begun {
        self.work.slices.begin(self.rt.now(), !self.state.borrow().in_flight.is_empty())
    }

    /// What disturbs a sync.
    fn disturbances(&self) -> [u64; 2] {
        let counters = &self.state.borrow().log.counters;
        [counters.cleaner_passes, counters.checkpoints]
    }

    pub(super) fn begin_sync(&self) -> SyncBegun {
        SyncBegun {
            at: self.rt.now(),
            cleaner_rests: !self.work.cleaner_gate.is_held() && !self.work.checkpoint_gate.is_held(),
            counters: self.disturbances(),
            log_bytes: self.state.borrow().log.counters.log_bytes,
        }
    }

    /// A sync of users has ended.
    pub(super) fn note_sync(&self, begun: SyncBegun) {
        let written = self.state.borrow().log.counters.log_bytes - begun.log_bytes;
        let is_small = (1..=SMALL_BYTES).contains(&written);
        let is_alone = begun.cleaner_rests && self.disturbances() == begun.counters;
        let took = (is_small && is_alone).then(|| self.rt.now().saturating_sub(begun.at));
        self.work.slices.synced(took);
    }
}

/// A removed file has no live blocks. Damaged and unreadable blocks stay where they are, and so do their segments:
/// readers of these blocks get the error, and other segments can still be cleaned.
fn leave_lost<T: Default>(result: FsResult<T>) -> FsResult<T> {
    match result {
        Err(FsError::Stale | FsError::Corrupt { .. }) => Ok(T::default()),
        Err(FsError::Device(error)) if error.is_of_medium() => Ok(T::default()),
        other => other,
    }
}

fn is_in_flight(state: &State, segment: SegmentNo) -> bool {
    state.in_flight.iter().any(|flight| state.log.layout.segment_of(flight.at) == Some(segment))
}
