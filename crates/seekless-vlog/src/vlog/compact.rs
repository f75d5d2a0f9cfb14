//! Idle work: empties tracks, and puts blocks in order [wa99 §4.2].
//!
//! A step reads a part of a track, or writes a block, two pieces of the map or, when putting in order, a track. After
//! each step the work is abandoned if a request has arrived. A moved block is mapped, but both places are kept, and the
//! move becomes durable in later idle time: each moved block may belong to a different piece, and transactions of
//! requests do not write those. So a request waits for a little more than a revolution.
//!
//! Emptying takes the track with the fewest blocks in use and moves them into holes of other tracks, as long as those
//! have room for all of them. [wa99] takes a track at random and leaves this choice to later work. Pieces of the map on
//! the track are rewritten.
//!
//! Putting in order takes scattered stretches of the logical address space, each as long as a track, and writes each to
//! an empty track, so that sequential reads are fast. It uses up empty tracks, which writes need, and is wasted on
//! blocks that are only ever updated at random. So sequential reads pay for it: a stretch is put in order when most of
//! it was read sequentially since the last time.

//! A file system on the virtual log also empties tracks, when it learns that no request is pending. Only the file
//! system knows what its blocks hold, so it is asked as a [`Tenant`].

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use super::claim::Claim;
use super::core::{CommitScope, Core, count};
use super::eager::{AllocPurpose, Run};
use crate::device::{Buf, Data, DeviceError};

/// Empty tracks that putting in order must leave for writes.
const EMPTY_TRACKS_MIN: usize = 2;

/// Minimum number of requests to read a track: the drive reads ahead between them, and other requests get their turn.
const READ_PARTS: usize = 4;

/// Waits for idle time and uses it, as long as the device exists.
pub(super) fn start(core: &Rc<Core>) {
    let (rt, activity, weak) = (core.rt.clone(), core.activity.clone(), Rc::downgrade(core));
    let quiet = core.options.quiet;
    let work = async move {
        loop {
            let waits = activity.event.wait();
            waits.await;
            loop {
                let seen = activity.begun.get();
                rt.sleep(quiet).await;
                if activity.since(seen) {
                    continue;
                }
                match use_idle_time(&weak, seen).await {
                    None => return,
                    // A request is pending: wait until it is served.
                    Some(false) => {}
                    Some(true) => break,
                }
            }
        }
    };
    drop(core.rt.spawn(work));
}

/// Works until nothing is left to do (true) or a request arrives (false); `None` when the device is gone.
async fn use_idle_time(weak: &Weak<Core>, seen: u64) -> Option<bool> {
    loop {
        let core = weak.upgrade()?;
        if core.check_writable().is_err() {
            return None;
        }
        match step(&core, Some(seen)).await {
            Ok(Emptied::Interrupted) => return Some(false),
            // A request may have begun and ended during the step, and left work.
            _ if core.is_wanted(Some(seen)) => return Some(false),
            Ok(Emptied::Done) => {}
            Ok(Emptied::Nothing) => return Some(true),
            // The next request reports the error, if it matters.
            Err(_) => return Some(true),
        }
    }
}

/// All idle work at once; puts every scattered stretch in order, whether it was read or not.
pub(super) async fn settle(core: &Rc<Core>) -> Result<u64, DeviceError> {
    // Each track is emptied, and each stretch put in order, a few times at most.
    let steps_max = 8 * u64::from(core.state.borrow().space.tracks.count()) + 64;
    let mut steps = 0;
    while steps < steps_max && step(core, None).await? == Emptied::Done {
        steps += 1;
    }
    Ok(steps)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Emptied {
    Done,
    Nothing,
    Interrupted,
}

/// What must happen to a block so that its track becomes empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    Nothing,
    /// It is copied to a hole of another track.
    Copy,
    /// The tenant receives its bytes, and decides.
    Look,
}

/// The owner of the blocks on a track.
pub trait Tenant {
    /// A request is pending: idle time is over.
    fn is_wanted(&self) -> bool;

    /// Called again for each block when its turn comes.
    fn need(&self, block: u32) -> Need;

    /// A copy now exists: the tenant points to it, or gives it back. Until then, both places are in use.
    fn copied(&mut self, block: u32, to: &[Run]);

    /// Content of a block when the track was read.
    fn inspect(&mut self, block: u32, bytes: &[u8]);
}

/// The track that is being emptied. Writes avoid it unless there is no other place.
pub struct Emptying {
    core: Rc<Core>,
    pub track: u32,
}

impl Emptying {
    pub(super) fn begin(core: &Rc<Core>, track: u32) -> Emptying {
        let other = core.state.borrow_mut().allocator.avoid.replace(track);
        debug_assert_eq!(other, None, "one track is emptied at a time");
        Emptying { core: core.clone(), track }
    }

    /// True when nothing has been written there since.
    pub fn holds(&self) -> bool {
        self.core.state.borrow().allocator.avoid == Some(self.track)
    }
}

impl Drop for Emptying {
    fn drop(&mut self) {
        self.core.state.borrow_mut().allocator.avoid = None;
    }
}

/// The map of blocks as a tenant: a copy replaces its original, unless the block was rewritten in the meantime.
struct Mapped<'a> {
    core: &'a Core,
    seen: Option<u64>,
    /// Logical block of the last one asked for, plus 1.
    owner: std::cell::Cell<u32>,
}

impl Tenant for Mapped<'_> {
    fn is_wanted(&self) -> bool {
        self.core.is_wanted(self.seen)
    }

    fn need(&self, block: u32) -> Need {
        self.owner.set(self.core.state.borrow().owner[block as usize]);
        match self.owner.get() {
            0 => Need::Nothing,
            _ => Need::Copy,
        }
    }

    fn copied(&mut self, block: u32, to: &[Run]) {
        let mut state = self.core.state.borrow_mut();
        let logical = self.owner.get() - 1;
        debug_assert!(to.len() == 1 && to[0].blocks == 1, "V1: a block is copied to one block");
        for &run in to {
            match state.map[logical as usize] == block {
                true => {
                    state.relocate(logical, run.first);
                    count(&self.core.counts.blocks_moved, 1);
                }
                false => state.give_back(run),
            }
        }
    }

    fn inspect(&mut self, _: u32, _: &[u8]) {}
}

/// One track, or one stretch.
pub(super) async fn step(core: &Rc<Core>, seen: Option<u64>) -> Result<Emptied, DeviceError> {
    // A block that several maps share does not move.
    if !core.log.is_in_use() || core.layout.snapshots > 0 {
        return Ok(Emptied::Nothing);
    }
    // Moves left over from an interrupted step.
    if !core.commit_moved(seen).await? {
        return Ok(Emptied::Interrupted);
    }
    // A moved piece may break open a block of its own; one more block is for concurrent requests.
    let may = |track: u32| !core.unreadable_tracks.borrow().contains(&track);
    if let Some(track) = core.sparse_track(|used| used + 1, may) {
        return match core.empty(Emptying::begin(core, track), seen).await {
            // The other tracks may be readable.
            Err(error) if error.is_of_medium() && core.check_writable().is_ok() => {
                core.unreadable_tracks.borrow_mut().insert(track);
                Ok(Emptied::Done)
            }
            other => other,
        };
    }
    if core.options.order
        && let Some((first, blocks)) = core.scattered(seen.is_some())
    {
        return match core.put_in_order(first, blocks, seen).await {
            // The other stretches may be readable.
            Err(error) if error.is_of_medium() && core.check_writable().is_ok() => Ok(Emptied::Done),
            other => other,
        };
    }
    Ok(Emptied::Nothing)
}

impl Core {
    fn is_wanted(&self, seen: Option<u64>) -> bool {
        seen.is_some_and(|seen| self.activity.since(seen))
    }

    /// Makes moves durable, a few at a time; false when a request is pending.
    async fn commit_moved(self: &Rc<Self>, seen: Option<u64>) -> Result<bool, DeviceError> {
        while !self.state.borrow().moved.is_empty() {
            if self.is_wanted(seen) {
                return Ok(false);
            }
            let before = self.state.borrow().moved.len();
            self.commit_with(CommitScope::Few, &BTreeSet::new()).await?;
            debug_assert!(
                self.state.borrow().moved.len() < before,
                "V2: each transaction of idle work takes some moves"
            );
        }
        Ok(!self.is_wanted(seen))
    }

    /// The track to empty: the fewest blocks in use among those that `may` be emptied, and holes in other tracks for as
    /// many blocks as it `needs`.
    pub(super) fn sparse_track(&self, needs: impl Fn(u64) -> u64, may: impl Fn(u32) -> bool) -> Option<u32> {
        let state = self.state.borrow();
        let space = &state.space;
        let used = |track: u32| space.track_usable(track) - space.track_free(track);
        let holes: u64 = space.partly_used().map(|track| u64::from(space.track_free(track))).sum();
        let sparsest = space.partly_used().filter(|&track| may(track)).min_by_key(|&track| (used(track), track))?;
        let elsewhere = holes - u64::from(space.track_free(sparsest));
        (elsewhere >= needs(u64::from(used(sparsest)))).then_some(sparsest)
    }

    /// Moves everything out of a track.
    pub(super) async fn empty(self: &Rc<Self>, emptying: Emptying, seen: Option<u64>) -> Result<Emptied, DeviceError> {
        let track = emptying.track;
        let mut tenant = Mapped { core: self, seen, owner: Default::default() };
        match self.copy_out(&emptying, &mut tenant).await? {
            Emptied::Done => {}
            other => return Ok(other),
        }
        if !self.commit_moved(seen).await? {
            return Ok(Emptied::Interrupted);
        }
        for piece in self.pieces_in(track) {
            self.commit_with(CommitScope::Promised, &BTreeSet::from([piece])).await?;
            if self.is_wanted(seen) {
                return Ok(Emptied::Interrupted);
            }
        }
        // A reader may still use a block here, and a write to it may still be under way.
        if !self.state.borrow().space.is_empty(track) {
            return Ok(Emptied::Nothing);
        }
        count(&self.counts.tracks_emptied, 1);
        Ok(Emptied::Done)
    }

    /// Copies the blocks of a track to holes of others, and shows the tenant those that it wants to see. Pieces stay.
    pub(super) async fn copy_out(
        self: &Rc<Self>,
        emptying: &Emptying,
        tenant: &mut dyn Tenant,
    ) -> Result<Emptied, DeviceError> {
        let blocks = self.state.borrow().space.tracks.blocks(emptying.track);
        let live: Vec<u32> = blocks.filter(|&block| tenant.need(block) != Need::Nothing).collect();
        let (Some(&first), Some(&last)) = (live.first(), live.last()) else { return Ok(Emptied::Done) };
        let Some(data) = self.read_span(first, last, tenant).await? else { return Ok(Emptied::Interrupted) };
        for &block in &live {
            // Once this track is written, the bytes read from it may be stale.
            if tenant.is_wanted() || !emptying.holds() {
                return Ok(Emptied::Interrupted);
            }
            let at = (block - first) as usize * self.block_bytes();
            let part = data.slice(at..at + self.block_bytes());
            match tenant.need(block) {
                // It was overwritten in the meantime.
                Need::Nothing => continue,
                Need::Look => tenant.inspect(block, &part),
                Need::Copy => {
                    if !self.try_admit(Claim::Move { blocks: 1 }) {
                        return Ok(Emptied::Nothing);
                    }
                    match self.place(&part, AllocPurpose::FillHole, None).await {
                        Ok(runs) => {
                            let mut state = self.state.borrow_mut();
                            // While the copy was written, the block may have been freed, and its place been taken again, for
                            // the same owner even: then what was read is older, and nothing else shows it.
                            if state.allocator.avoid != Some(emptying.track) {
                                runs.into_iter().for_each(|run| state.give_back(run));
                                drop(state);
                                self.changed.notify();
                                return Ok(Emptied::Interrupted);
                            }
                            debug_assert!(
                                runs.iter().all(|run| state.space.tracks.track_of(run.first) != emptying.track),
                                "a block is copied out of the track that is being emptied"
                            );
                            drop(state);
                            tenant.copied(block, &runs);
                        }
                        // No hole is left: other writes have filled them.
                        Err(DeviceError::NoSpace { .. }) => return Ok(Emptied::Nothing),
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Ok(if tenant.is_wanted() { Emptied::Interrupted } else { Emptied::Done })
    }

    /// Live pieces on a track.
    pub(super) fn pieces_in(&self, track: u32) -> BTreeSet<u32> {
        let state = self.state.borrow();
        let blocks = state.space.tracks.blocks(track);
        let pieces = self.log.placed_pieces().into_iter();
        pieces.filter(|&(_, cell)| blocks.contains(&self.layout.block_of(cell))).map(|(index, _)| index).collect()
    }

    /// Reads from one block to another on the same track, a part at a time; `None` when the tenant is needed elsewhere.
    async fn read_span(&self, first: u32, last: u32, tenant: &dyn Tenant) -> Result<Option<Data>, DeviceError> {
        let bytes = (last - first + 1) as usize * self.block_bytes();
        let longest = self.below.geometry().request_bytes_max as usize / self.block_bytes();
        let part = bytes / self.block_bytes() / READ_PARTS;
        let longest = part.clamp(1, longest.max(1)) * self.block_bytes();
        let mut whole = Buf::dirty(bytes);
        let mut at = 0;
        while at < bytes {
            if tenant.is_wanted() {
                return Ok(None);
            }
            let length = longest.min(bytes - at);
            let block = first + (at / self.block_bytes()) as u32;
            let read = self.below.read(self.layout.sector_of(block), Buf::dirty(length)).await?;
            whole[at..at + length].copy_from_slice(&read);
            at += length;
        }
        Ok(Some(whole.freeze()))
    }

    /// A stretch to put in order, as long as an empty track: all of it mapped, with a break at a quarter of its blocks
    /// plus three or more. A stretch that was put in order when tracks had another length has at most two breaks. With
    /// `paid`, most of it must have been read in order. One with a block that could not be read must wait until that block is
    /// elsewhere.
    pub(super) fn scattered(&self, paid: bool) -> Option<(u32, u32)> {
        let state = self.state.borrow();
        if state.space.empty_tracks() <= EMPTY_TRACKS_MIN {
            return None;
        }
        let length = state.space.empty_usable_max()?;
        let free = state.space.free_blocks();
        if free < self.layout.margin + u64::from(length) {
            return None;
        }
        let unreadable = self.unreadable_blocks.borrow();
        let is_scattered = |first: u32| {
            let mut bad = unreadable.range(first..first + length);
            if bad.any(|(&logical, &place)| state.map[logical as usize] == place) {
                return false;
            }
            let places = &state.map[first as usize..(first + length) as usize];
            let breaks = places.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count() as u32;
            places.iter().all(|&place| place != 0) && breaks * 4 >= length && breaks > 2
        };
        let last = self.layout.logical_blocks.checked_sub(length)?;
        let found = if paid {
            let is_read = |first: u32| state.read_in_order.count(first..first + length) * 2 > length;
            let mut read = state.read_in_order.stretches(length).take_while(|&first| first <= last);
            read.find(|&first| is_read(first) && is_scattered(first))
        } else {
            (0..=last).step_by(length as usize).find(|&first| is_scattered(first))
        };
        found.map(|first| (first, length))
    }

    async fn put_in_order(self: &Rc<Self>, first: u32, blocks: u32, seen: Option<u64>) -> Result<Emptied, DeviceError> {
        // Pinned blocks are not reused: while the map shows the old place, the bytes read are current.
        let pinned = self.pinned(first, blocks as usize * self.block_bytes());
        self.put_places_in_order(first, &pinned.blocks, seen).await
    }

    async fn put_places_in_order(
        self: &Rc<Self>,
        first: u32,
        places: &[u32],
        seen: Option<u64>,
    ) -> Result<Emptied, DeviceError> {
        let blocks = places.len() as u32;
        let mut buf = Buf::dirty(blocks as usize * self.block_bytes());
        // Along the tracks, one block at a time.
        let mut parts: Vec<(u32, &mut [u8])> = (first..).zip(buf.chunks_exact_mut(self.block_bytes())).collect();
        parts.sort_by_key(|(logical, _)| places[(logical - first) as usize]);
        for (logical, part) in parts {
            let place = self.state.borrow().map[logical as usize];
            let read = self.read_mapped(logical, part, false).await;
            if read.as_ref().is_err_and(DeviceError::is_of_medium) {
                self.unreadable_blocks.borrow_mut().insert(logical, place);
            }
            read?;
            if self.is_wanted(seen) {
                return Ok(Emptied::Interrupted);
            }
        }
        if !self.try_admit(Claim::Move { blocks: u64::from(blocks) }) {
            return Ok(Emptied::Nothing);
        }
        let runs = match self.place(&buf.freeze(), AllocPurpose::Sequential, None).await {
            Ok(runs) => runs,
            Err(DeviceError::NoSpace { .. }) => return Ok(Emptied::Nothing),
            Err(error) => return Err(error),
        };
        {
            let mut state = self.state.borrow_mut();
            let targets = runs.iter().flat_map(|run| run.first..run.first + run.blocks);
            debug_assert_eq!(
                runs.iter().map(|run| run.blocks).sum::<u32>(),
                blocks,
                "V1: each block that is put in order has a new place"
            );
            state.read_in_order.clear(first..first + blocks);
            for ((offset, old), target) in places.iter().enumerate().zip(targets) {
                let logical = first + offset as u32;
                match state.map[logical as usize] == *old {
                    true => state.relocate(logical, target),
                    false => state.give_back(Run { first: target, blocks: 1 }),
                }
            }
        }
        count(&self.counts.extents_ordered, 1);
        Ok(if self.commit_moved(seen).await? { Emptied::Done } else { Emptied::Interrupted })
    }
}
