//! The log of segments as `fs/logfs` uses it: the implementation of its trait.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use async_trait::async_trait;

use super::cleaner::WORKING_SEGMENTS;
use super::format::*;
use super::layout::*;
use super::state::*;
use super::{BackgroundWork, Lfs};
use crate::codec;
use crate::device::{Buf, Counter};
use crate::fs::logfs::LogTypes;
use crate::fs::logfs::backend::{Figures, InodeMap, LogBackend, SpaceAccounts};
use crate::fs::logfs::demand::{Demand, Hole, PENDING_MARGIN_BYTES, ReserveAccess};
use crate::fs::logfs::group_commit::GroupLog;
use crate::fs::logfs::state::Scope;
use crate::fs::{FsError, FsResult, LogUsage};
use crate::rt::cover;
use crate::units::{Ino, Nanos, SECTOR_BYTES, Sector, human_bytes};

impl LogTypes for Segmented {
    const NAME: &'static str = "lfs";

    type DeferredFree = DeferredFree;
    type BackgroundWork = BackgroundWork;
}

impl InodeMap for Segmented {
    fn imap_entry(state: &mut State, ino: Ino) -> Step<InodeSlot> {
        let (block, offset) = imap_place(ino);
        let Some(data) = state.block(block)? else { return Ok(InodeSlot::NONE) };
        let slot = InodeSlot(codec::get_at(&data, offset).unwrap_or(0));
        if !slot.is_none() && !state.log.layout.holds(slot.sector(), 1) {
            let detail = format_args!("entry of inode {ino} points to sector {}, outside the log", slot.sector());
            return fail(FsError::corrupt("inode map", format_args!("{block:?}"), detail));
        }
        Ok(slot)
    }

    fn numbers_in(id: BlockId) -> Range<u64> {
        let (first, end) = if id.ino == IMAP_INO { id.key.span() } else { (0, 0) };
        first.saturating_mul(IMAP_ENTRIES_PER_BLOCK)..end.saturating_mul(IMAP_ENTRIES_PER_BLOCK)
    }

    fn known_slots(state: &State, numbers: Range<u64>) -> Vec<(Ino, InodeSlot)> {
        let numbers = numbers.start.max(FIRST_FREE_INO)..numbers.end.min(state.volume.ino_end);
        let mut slots = Vec::new();
        let mut number = numbers.start;
        while number < numbers.end {
            let (block, offset) = imap_place(Ino(number));
            let end = numbers.end.min((number / IMAP_ENTRIES_PER_BLOCK + 1) * IMAP_ENTRIES_PER_BLOCK);
            if let Some(data) = state.blocks.peek(block) {
                let entries = data[offset..].chunks_exact(8).zip(number..end);
                let entries = entries.map(|(raw, ino)| (Ino(ino), InodeSlot(codec::get_at(raw, 0).unwrap_or(0))));
                let is_in_log = |slot: InodeSlot| !slot.is_none() && state.log.layout.holds(slot.sector(), 1);
                slots.extend(entries.filter(|(_, slot)| is_in_log(*slot)));
            }
            number = end;
        }
        slots
    }

    fn set_imap_entry(state: &mut State, ino: Ino, slot: InodeSlot) {
        let (block, offset) = imap_place(ino);
        match state.blocks.dirty_bytes_mut(block) {
            Some(bytes) => codec::put_at(bytes, offset, slot.0),
            None => unreachable!("S1: the map's block of a dirty inode is dirty"),
        }
    }

    fn imap_block(ino: Ino) -> Option<BlockId> {
        Some(imap_place(ino).0)
    }

    fn inode_freed(state: &mut State, ino: Ino, known: InodeMem) {
        let records = known.deferred_free.records();
        debug_assert!(records <= state.log.hole_records, "A3: what waits for its file is counted");
        state.log.hole_records -= records;
        for (segment, bytes) in known.deferred_free.freed {
            *state.log.freed.entry(segment).or_insert(0) += bytes;
        }
        for pointer in [known.inode.xattr_pointer().unwrap_or_default()] {
            if let Pointer::Mapped { at, .. } = pointer
                && let Some(segment) = state.log.layout.segment_of(at)
            {
                *state.log.freed.entry(segment).or_insert(0) += pointer.live_bytes();
                state.freed_pending_bytes += pointer.live_bytes();
            }
        }
        if !known.slot.is_none() {
            if let Some(segment) = state.log.layout.segment_of(known.slot.sector()) {
                *state.log.freed.entry(segment).or_insert(0) += Inode::BYTES as u64;
                state.freed_pending_bytes += Inode::BYTES as u64;
            }
            Segmented::set_imap_entry(state, ino, InodeSlot::NONE);
            state.log.records.push(Item::InodeFreed { ino });
        }
        log_unwritten(state, known.unwritten_pending);
    }

    fn set_orphan(state: &mut State, ino: Ino, is_orphan: bool) {
        if is_orphan && state.log.orphans.add(ino) {
            state.log.records.push(Item::OrphanAdded { ino });
        } else if !is_orphan && state.log.orphans.remove(ino) {
            state.log.records.push(Item::OrphanRemoved { ino });
        }
    }

    fn is_orphan(state: &State, ino: Ino) -> bool {
        state.log.orphans.contains(ino)
    }

    fn orphans(state: &State) -> Vec<Ino> {
        state.log.orphans.list()
    }
}

impl SpaceAccounts for Segmented {
    fn holds(state: &State, at: Sector, sectors: u64) -> bool {
        state.log.layout.holds(at, sectors)
    }

    fn used_bytes(state: &State) -> u64 {
        let inodes = (state.dirty_inodes.len() * Inode::BYTES) as u64;
        let blocks = state.blocks.growth_bytes + state.dirty_attributes.growth_bytes;
        state.log.segments.live_bytes + state.unwritten_bytes + blocks + inodes
    }

    fn check_room(state: &State, demand: &Demand, access: ReserveAccess) -> Step<()> {
        if access == ReserveAccess::User && !state.stalled.is_empty() {
            return fail(FsError::NoSpace);
        }
        let waits = access != ReserveAccess::Internal && !state.log.options.overlap && state.stalled.is_empty();
        if waits && state.log.in_flight_bytes > 0 {
            return need(Wait::InFlight);
        }
        if demand.growth > 0 && access == ReserveAccess::User {
            let used = Segmented::used_bytes(state) + demand.growth as u64 + PENDING_MARGIN_BYTES;
            if used > state.log.layout.capacity_bytes() {
                // Unmapped blocks count as used until a transaction frees them.
                return if state.freed_pending_bytes > 0 {
                    need(Wait::LastRoom)
                } else {
                    cover("lfs: a change finds the volume full");
                    fail(FsError::NoSpace)
                };
            }
        }
        let is_much = state.dirty_bytes() > Segmented::dirty_bytes_max(state)
            || state.deferred_bytes() > state.log.deferred_bytes_max;
        let makes_data = access == ReserveAccess::User || access == ReserveAccess::FreesSpace && demand.has_file_data;
        if makes_data && is_much {
            return need(Wait::WriteBack);
        }
        let blocks = demand.blocks * (BLOCK_BYTES + 64) as u64;
        let needed = state.log_need_bytes_with(demand.attributes) + blocks + 64 * SECTOR_BYTES;
        let need_segments = needed.div_ceil(state.log.layout.segment_bytes());
        let kept = match access {
            ReserveAccess::User => {
                let grows = state.log_need_most_bytes().saturating_sub(state.log_need_bytes());
                grows.div_ceil(state.log.layout.segment_bytes()) + state.cleaner_segments() // C4
            }
            ReserveAccess::FreesSpace if demand.has_file_data => WORKING_SEGMENTS + 1,
            _ => 1,
        };
        let (ready, clean) = (state.log.segments.ready.len() as u64, state.log.segments.clean.len() as u64);
        if !state.log.segments.early.is_empty() && !state.log.segments.are_surely_ready(need_segments + 1) {
            // A mount after a crash would have no room for its checkpoint if the storage below were full by then. One more
            // segment makes up for what is lost at the ends of the others.
            return need(if state.log.segments.has_surely_clean() { Wait::Provision } else { Wait::Clean });
        }
        if ready >= need_segments + kept {
            state.log.waits_for_room.set(0);
            Ok(())
        } else if ready + clean >= need_segments + kept {
            need(Wait::Provision)
        } else {
            need(Wait::Clean)
        }
    }

    fn defer_free(state: &mut State, ino: Ino, freed: Vec<Pointer>, holes: Vec<Hole>) {
        let Some(known) = state.inodes.get_mut(&ino) else { return };
        let before = known.deferred_free.records();
        for hole in holes {
            known.deferred_free.add_hole(hole);
        }
        state.log.hole_records = state.log.hole_records - before + known.deferred_free.records();
        for pointer in freed {
            if let Pointer::Mapped { at, .. } = pointer
                && let Some(segment) = state.log.layout.segment_of(at)
            {
                *known.deferred_free.freed.entry(segment).or_insert(0) += pointer.live_bytes();
                state.freed_pending_bytes += pointer.live_bytes();
            }
        }
        // G2: all of it is alive until a transaction frees it. Pointers that lead in circles free it again and again.
        if state.freed_pending_bytes > state.log.segments.live_bytes {
            let why = format!(
                "more bytes are freed than are live, most recently of inode {ino}: the volume is damaged, check it"
            );
            state.stopped.get_or_insert(why);
        }
    }

    fn keeps_blocks(ino: Ino) -> bool {
        ino == USAGE_INO || ino == ORPHAN_INO
    }

    fn batch_bytes(state: &State) -> u64 {
        let volume = state.log.layout.superblock.volume_sectors * SECTOR_BYTES;
        (volume / 512).min(1 << 20).max(state.log.layout.segment_bytes()).min(state.log.options.dirty_bytes_max)
    }

    fn dirty_bytes_max(state: &State) -> u64 {
        state.log.options.dirty_bytes_max
    }

    /// One sector for each inode of a group, as long as it is in the same segment.
    fn attribute_sectors_before(state: &State, start: Sector) -> u64 {
        let layout = &state.log.layout;
        let segment_start = layout.segment_of(start).map_or(start, |segment| layout.segment_start(segment));
        (INODE_GROUP_SECTORS * INODES_PER_SECTOR).min(start.0 - segment_start.0)
    }
}

impl Figures for Segmented {
    fn describe(state: &State) -> String {
        format!("lfs (segment {})", human_bytes(state.log.layout.segment_bytes()))
    }

    fn counters(state: &State) -> Vec<Counter> {
        let c = &state.log.counters;
        let new = (c.log_data_bytes + c.log_metadata_bytes).max(1);
        let mut counters = vec![
            ("transactions", c.transactions),
            ("partial_segments", c.partial_segments),
            ("checkpoints", c.checkpoints),
            ("flushes", c.flushes),
            ("log_bytes", c.log_bytes),
            ("log_data_bytes", c.log_data_bytes),
            ("log_metadata_bytes", c.log_metadata_bytes),
            ("log_cleaned_bytes", c.log_cleaned_bytes),
            ("log_summary_bytes", c.log_summary_bytes),
            ("log_unfilled_bytes", c.log_unfilled_bytes),
            ("cleaner_passes", c.cleaner_passes),
            ("cleaner_segments_read", c.cleaner_segments_read),
            ("cleaner_segments_empty", state.log.segments.cleaned_empty),
            ("cleaner_segments_early", c.cleaner_segments_early),
            ("cleaner_read_bytes", c.cleaner_read_bytes),
            // (read + moved + new) / new [ro92 §3.4], in thousandths.
            ("write_cost_permille", (c.cleaner_read_bytes + c.log_cleaned_bytes + new) * 1000 / new),
            ("discarded_segments", c.discarded_segments),
            ("replayed_transactions", c.replayed_transactions),
            ("block_reads", state.block_reads),
            ("inode_reads", state.inode_reads),
            ("segments_clean", (state.log.segments.ready.len() + state.log.segments.clean.len()) as u64),
            ("segments_waiting", state.log.segments.waiting([state.log.end.segment, state.log.end.next_segment])),
            ("segments", state.log.segments.count()),
            ("segment_bytes", state.log.layout.segment_bytes()),
            ("live_bytes", state.log.segments.live_bytes),
        ];
        counters.extend(state.in_memory());
        counters
    }

    fn log_usage(state: &State) -> Option<LogUsage> {
        let (segments, segment_bytes) = (&state.log.segments, state.log.layout.segment_bytes());
        let mut by_live = [0; LogUsage::BINS];
        for (_, segment) in segments.iter().filter(|(_, segment)| segment.live_bytes > 0) {
            by_live[LogUsage::bin(segment.live_bytes, segment_bytes)] += 1;
        }
        let clean = (segments.ready.len() + segments.clean.len()) as u64;
        let empty = segments.count() - clean - segments.used();
        Some(LogUsage { segment_bytes, clean, empty, live_bytes: segments.live_bytes, by_live })
    }
}

#[async_trait(?Send)]
impl LogBackend for Segmented {
    async fn read_xattr(fs: &Lfs, _: Ino, pointer: Pointer) -> FsResult<Option<Buf>> {
        let Pointer::Mapped { at, sectors, crc } = pointer else { return Ok(None) };
        if !fs.state.borrow().log.layout.holds(at, sectors.into()) {
            return Err(FsError::corrupt("extended attributes", at, "their pointer leads outside the log"));
        }
        let stored = fs.read_log_right(at, sectors.into(), crc).await?;
        Ok((codec::crc32c(&stored) == crc).then_some(stored))
    }

    async fn wait(fs: &Lfs, wait: Wait) -> FsResult<()> {
        match wait {
            Wait::WriteBack | Wait::LastRoom => fs.write_back_some().await,
            Wait::InFlight => fs.wait_for_flight().await,
            Wait::Clean => fs.wait_for_clean().await,
            Wait::Provision => fs.provision().await,
            Wait::Reclaim(ino) => fs.reclaim(ino).await,
        }
    }

    async fn sync(fs: &Rc<Lfs>, file: Option<Ino>) -> FsResult<()> {
        match file {
            None => fs.sync(Scope::Everything).await,
            // Where a flush is needed, fsyncs share flushes, and their writes are on their way at once. Groups are no better there: on
            // a file on ext4, 2, 4 and 8 writers were 5 % and 6 % faster with them, and 11 % slower.
            Some(file) if !fs.device.guarantees().durable_on_completion => {
                fs.sync(Scope::Files(&BTreeSet::from([file]))).await
            }
            Some(file) => fs.group_commit.commit(&fs.rt, fs, file).await,
        }
    }

    /// Runs in a task of its own, to the end of a pass, when the caller goes away: a checkpoint may be on its way to its
    /// slot, and the next one would be written there under the same number.
    async fn idle(fs: &Rc<Lfs>, until: Nanos) -> FsResult<bool> {
        let this = fs.clone();
        fs.rt.spawn(async move { this.clean_idle(until).await }).await
    }

    async fn check(fs: &Rc<Lfs>) -> FsResult<Vec<String>> {
        fs.recount().await
    }

    async fn close(fs: &Rc<Lfs>) -> FsResult<()> {
        fs.end_writing().await
    }
}

impl GroupLog for Rc<Lfs> {
    /// A transaction is one sequential write: nothing of the next group could be written while it waits for something else.
    fn turns(&self) -> u64 {
        1
    }

    async fn start_transaction(&self, files: &BTreeSet<Ino>) -> FsResult<u64> {
        Ok(self.submit_loading(Scope::Files(files)).await?.end_sequence)
    }

    async fn until_durable(&self, number: u64) -> FsResult<()> {
        self.make_durable(number).await
    }
}
