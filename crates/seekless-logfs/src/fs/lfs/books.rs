//! The books: every counter is recounted from scratch and compared. Tests call this after every step.
//!
//! `fs/logfs/books` recounts what every log counts. This file recounts what belongs to this log: segments, and what the
//! slots need.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::LocalBoxFuture;

use super::Lfs;
use super::Options;
use super::assemble::{TransactionScope, assemble};
use super::find;
use super::format::*;
use super::layout::*;
use super::recovery::{self, Follow};
use super::segment_reader::SegmentReader;
use super::segments::Segment;
use super::state::*;
use crate::codec::crc32c;
use crate::device::fault::FaultDevice;
use crate::device::{Data, Device};
use crate::fs::logfs::books::{ATTRIBUTES, Recount, recount};
use crate::fs::{FsError, FsResult};
use crate::units::{Ino, Sector};

impl Lfs {
    /// Recounts everything. Returns the contradictions, one line each.
    pub(super) fn recount(&self) -> LocalBoxFuture<'_, FsResult<Vec<String>>> {
        Box::pin(async move {
            let problems = recount(self, async || (), run).await?;
            {
                let state = self.state.borrow();
                if state.stopped.is_some() || state.read_only {
                    return Ok(problems);
                }
            }
            Ok([problems, self.check_slots().await?].concat())
        })
    }

    /// G1, checked on the device: recovery from either slot succeeds where nothing can be read that is clean or ready, and
    /// leads to nothing there. S3: it leaves room for the checkpoint of a mount, in segments that have storage below.
    async fn check_slots(&self) -> FsResult<Vec<String>> {
        let moment = |state: &State| (state.log.checkpoint_serial, state.log.end.sequence, state.log.written_sequence);
        let (before, free, ready, layout) = {
            let state = self.state.borrow();
            let free: BTreeSet<SegmentNo> =
                state.log.segments.clean.union(&state.log.segments.ready).copied().collect();
            // Before it is written to, none has got storage.
            let has_begun = state.log.segments.victims.is_some();
            let ready = if has_begun { state.log.segments.ready.clone() } else { free.clone() };
            (moment(&state), free, ready, state.log.layout)
        };
        let without_free = FaultDevice::new(&self.rt, self.device.clone(), 0);
        let mut left = free.iter().copied().peekable();
        while let Some(first) = left.next() {
            let mut last = first;
            while let Some(next) = left.next_if_eq(&(last + 1)) {
                last = next;
            }
            without_free.lose(layout.segment_start(first)..layout.segment_start(last) + layout.segment_sectors());
        }
        let found = find::find_volume(&self.device).await?;
        let mut problems = Vec::new();
        for checkpoint in [Some(found.checkpoint), found.older].into_iter().flatten() {
            let serial = checkpoint.serial;
            // The older slot counts when the newest is lost.
            let left = find::FoundVolume {
                layout,
                checkpoint,
                older: found.older.filter(|older| older.serial < serial),
                lost_slot: None,
                damaged: Vec::new(),
                torn: Vec::new(),
            };
            let (needed, room) = match self.needed_by(without_free.clone(), &left, &ready).await {
                Ok(needed) => needed,
                Err(error) => {
                    problems.push(format!("G1: checkpoint {serial} in its slot needs what is free: {error}"));
                    continue;
                }
            };
            if let Some((clean, need)) = room {
                problems.push(format!(
                    "S3: a mount from checkpoint {serial} finds {clean} clean segments with storage, too few for its own checkpoint of \
                     some {need} bytes"
                ));
            }
            for segment in needed.intersection(&free) {
                problems.push(format!("G1: segment {segment} is free, and checkpoint {serial} in its slot needs it"));
            }
        }
        // When the log has moved on in the meantime, it may have written to what was free at the start.
        if moment(&self.state.borrow()) != before {
            problems.clear();
        }
        Ok(problems)
    }

    /// The segments that recovery of `device` leads to. And if the checkpoint of a mount would not fit, how many segments
    /// are clean then, and most bytes of it.
    async fn needed_by(
        &self,
        device: Device,
        left: &find::FoundVolume,
        ready: &BTreeSet<SegmentNo>,
    ) -> FsResult<(BTreeSet<SegmentNo>, Option<(u64, u64)>)> {
        let options = Options { read_only: true, ..self.state.borrow().log.options };
        let slot = Lfs::at(self.rt.clone(), device, options, left, &left.checkpoint)?;
        let (layout, mut end) = {
            let state = slot.state.borrow();
            (state.log.layout, state.log.end)
        };
        let mut needed = BTreeSet::from([end.segment, end.next_segment]);
        let mut reader = SegmentReader::default();
        while let Some((partial, _)) = reader.next(&slot, &layout, &end).await? {
            end = recovery::end_after(&partial.summary);
            needed.extend([end.segment, end.next_segment]);
        }
        slot.recover(left, &left.checkpoint, Follow::ToTheEnd, 0).await?;
        {
            let state = slot.state.borrow();
            let is_alive = |(_, segment): &(SegmentNo, &Segment)| segment.live_bytes > 0;
            needed.extend(state.log.segments.iter().filter(is_alive).map(|(number, _)| number));
        }
        Ok((needed, slot.lacks_room_to_begin(ready).await?))
    }

    /// Whether the first checkpoint of a recovered volume lacks room: the clean segments, and most bytes of it.
    async fn lacks_room_to_begin(&self, with_storage: &BTreeSet<SegmentNo>) -> FsResult<Option<(u64, u64)>> {
        self.pass_over_torn();
        let lack = {
            let state = &mut *self.state.borrow_mut();
            let clean = std::mem::take(&mut state.log.segments.clean);
            state.log.segments.ready.extend(clean.intersection(with_storage));
            (state.log.segments.ready.len() as u64, state.log_need_bytes())
        };
        loop {
            let assembled = assemble(&mut self.state.borrow_mut(), TransactionScope::Checkpoint { clean: false });
            match assembled {
                Ok(_) => return Ok(None),
                Err(Stop::Need(Need::Load(load))) => self.load(load).await?,
                Err(Stop::Need(Need::Wait(wait))) => unreachable!("assembling waits for nothing, not for {wait:?}"),
                Err(Stop::Fail(FsError::NoSpace)) => return Ok(Some(lack)),
                Err(Stop::Fail(error)) => return Err(error),
            }
        }
    }
}

/// Recounted live bytes of each segment.
type Live = BTreeMap<SegmentNo, u64>;

fn run(recount: &mut Recount<'_, Segmented>) {
    let state = recount.state;
    let mut inodes: BTreeSet<Ino> = state.inodes.keys().copied().filter(|&ino| !is_internal(ino)).collect();
    for ino in [IMAP_INO, USAGE_INO, ORPHAN_INO] {
        let Some(known) = state.inodes.get(&ino) else { continue };
        for (block, bytes) in recount.tree(ino, &known.inode).1 {
            if ino == IMAP_INO {
                let slots = bytes.chunks_exact(8).map(|raw| crate::codec::get_at::<u64>(raw, 0).unwrap_or(0));
                let first = block * IMAP_ENTRIES_PER_BLOCK;
                inodes.extend(slots.zip(first..).filter(|(slot, _)| *slot != 0).map(|(_, number)| Ino(number)));
            }
        }
    }
    for ino in inodes {
        let (block, offset) = imap_place(ino);
        let entry = match block_of_map(recount, block) {
            Some(bytes) => InodeSlot(crate::codec::get_at(&bytes, offset).unwrap_or(0)),
            None => InodeSlot::NONE,
        };
        recount.inode(ino, entry);
    }
    if !recount.is_complete() {
        return;
    }
    recount.totals();
    let (mut live, mut trees) = (Live::new(), Live::new());
    let segment_of = |at: Sector| state.log.layout.segment_of(at).unwrap_or(SegmentNo::MAX);
    for &(id, pointer) in &recount.claims {
        if let Pointer::Mapped { at, .. } = pointer {
            *live.entry(segment_of(at)).or_insert(0) += pointer.live_bytes();
            if id.key != ATTRIBUTES && (!id.key.is_data() || is_internal(id.ino)) {
                *trees.entry(segment_of(at)).or_insert(0) += pointer.live_bytes();
            }
        }
    }
    for &(_, slot) in &recount.slots {
        *live.entry(segment_of(slot.sector())).or_insert(0) += Inode::BYTES as u64;
    }
    let deferred = state.inodes.values().map(|known| &known.deferred_free.freed).chain([&state.log.freed]);
    let mut pending = 0;
    for (&segment, &bytes) in deferred.flatten() {
        *live.entry(segment).or_insert(0) += bytes;
        pending += bytes;
    }
    let holes = state.inodes.values().map(|known| known.deferred_free.records()).sum::<u64>();
    recount.same("records of holes", state.log.hole_records, holes);
    recount.same("bytes freed and not logged", state.freed_pending_bytes, pending);
    for (segment, bytes) in trees {
        let known = state.log.segments.get(segment).tree_bytes;
        if known < bytes {
            recount.problem(format!(
                "G1: segment {segment} holds {bytes} bytes of indirect blocks and internal files, and {known} by the books"
            ));
        }
    }
    segments(recount, live);
}

/// A block of the inode map.
fn block_of_map(recount: &mut Recount<'_, Segmented>, id: BlockId) -> Option<Data> {
    let state = recount.state;
    if let Some(data) = state.blocks.peek(id) {
        return Some(data.clone());
    }
    let pointer = match id.key.holder() {
        Holder::Inode(slot) => state.inodes.get(&id.ino)?.inode.pointer(slot),
        Holder::Node(node, slot) => pointer_in_block(&block_of_map(recount, BlockId { ino: id.ino, key: node })?, slot),
    };
    match pointer? {
        Pointer::Mapped { at, sectors, crc } => recount.stored(at, sectors.into(), |data| crc32c(data) == crc),
        _ => None,
    }
}

fn segments(recount: &mut Recount<'_, Segmented>, mut live: Live) {
    let (log, mut total) = (&recount.state.log, 0);
    let (segments, end) = (&log.segments, [log.end.segment, log.end.next_segment]);
    let newest = log.checkpoint_serial.max(log.slots[0]).max(log.slots[1]);
    for (number, segment) in segments.iter() {
        let found = live.remove(&number).unwrap_or(0);
        total += segment.live_bytes;
        if segment.live_bytes != found {
            let said = segment.live_bytes;
            recount
                .problem(format!("G2: segment {number} holds {said} live bytes by the books, {found} by the recount"));
        }
        let (clean, ready) = (segments.clean.contains(&number), segments.ready.contains(&number));
        let (leaving, empty) = (segments.leaving.contains(&number), segments.empty.get(&number));
        let sets = u64::from(clean) + u64::from(ready) + u64::from(leaving) + u64::from(empty.is_some());
        if sets > 1 || sets == 1 && (segment.live_bytes > 0 || end.contains(&number)) {
            recount.problem(format!(
                "G3: segment {number} with {} live bytes is clean: {clean}, ready: {ready}, leaving: {leaving}, empty: \
                 {empty:?}",
                segment.live_bytes
            ));
        }
        if (clean || ready) && segment.empty_since > log.slots[0].min(log.slots[1]) {
            let since = segment.empty_since;
            recount.problem(format!("G1: segment {number} is free, and empty since {since} of {:?}", log.slots));
        }
        if segment.empty_since > newest + 1 {
            recount.problem(format!("segment {number} is empty since {}, and that is to come", segment.empty_since));
        }
    }
    if let Some(segment) = segments.early.keys().find(|segment| !segments.is_free(**segment)) {
        recount.problem(format!("G1: segment {segment} became clean early, and is not clean"));
    }
    recount.same("live bytes", segments.live_bytes, total);
    let is_used = |segment: &Segment| segment.live_bytes > 0;
    recount.same(
        "segments in use",
        segments.used(),
        segments.iter().filter(|(_, segment)| is_used(segment)).count() as u64,
    );
    let waits = |(number, segment): &(SegmentNo, &Segment)| {
        !is_used(segment) && !segments.is_free(*number) && !end.contains(number)
    };
    recount.same("segments that wait", segments.waiting(end), segments.iter().filter(waits).count() as u64);
    victims(recount);
    if let Some(&segment) = live.keys().next() {
        recount.problem(format!("a pointer leads to segment {segment}, which does not exist"));
    }
}

/// K1: the policy knows the segments that could be cleaned.
fn victims(recount: &mut Recount<'_, Segmented>) {
    let log = &recount.state.log;
    let Some(victims) = &log.segments.victims else { return };
    let (end, leaving) = ([log.end.segment, log.end.next_segment], victims.leaving());
    let can_be_cleaned = |number: &SegmentNo| {
        !end.contains(number)
            && ![&log.segments.cleaned, &log.segments.immovable].iter().any(|set| set.contains(number))
            && !leaving.contains(number)
    };
    let used = log.segments.iter().filter(|(number, segment)| segment.live_bytes > 0 && can_be_cleaned(number));
    let expected: Vec<(SegmentNo, u64)> = used.map(|(number, segment)| (number, segment.live_bytes)).collect();
    match victims.known() {
        Ok(known) if known == expected => {}
        Ok(known) => {
            let differs = known.iter().zip(&expected).find(|(one, other)| one != other);
            recount.problem(format!(
                "K1: the policy knows {} segments of {}: {differs:?}",
                known.len(),
                expected.len()
            ));
        }
        Err(why) => recount.problem(format!("K1: {why}")),
    }
}
