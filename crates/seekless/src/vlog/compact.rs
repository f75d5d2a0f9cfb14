//! What is done while nobody asks for anything: emptying tracks, and putting blocks in order [wa99 §4.2].
//!
//! A step is the reading of a track at most, or the writing of one, or a block; after each it is looked whether somebody
//! wants something, and then the work is left as it is: what has been moved is mapped, and becomes durable with the next
//! transaction. So a request waits for two or three revolutions at worst.
//!
//! Emptying takes the track with the fewest blocks in use and moves them into holes of other tracks, as long as those
//! have room for all of them. [wa99] takes one at random and leaves this to later work. Pieces of the map that lie there
//! are written anew.
//!
//! Putting in order takes stretches of the logical address space as long as a track, which were written here and there,
//! and writes each to an empty track, so that who reads them in order finds them so. It takes empty tracks, which writes
//! want, and is wasted on what is only ever updated here and there. So a reading in order pays for one putting in order:
//! a stretch is put in order when most of it was read in order since it last was.

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use super::core::{Core, Log, count};
use super::eager::Want;
use crate::device::{Buf, DeviceError};

/// Empty tracks that putting in order leaves for writes.
const EMPTY_TRACKS_MIN: usize = 2;

/// Waits for idle time and uses it, as long as the device is there.
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
                    // Somebody wants something: wait until he has it.
                    Some(false) => {}
                    Some(true) => break,
                }
            }
        }
    };
    drop(core.rt.spawn(work));
}

/// Works until there is nothing left to do (true) or somebody wants something (false); `None` when the device is gone.
async fn use_idle_time(weak: &Weak<Core>, seen: u64) -> Option<bool> {
    loop {
        let core = weak.upgrade()?;
        if core.check_writable().is_err() {
            return None;
        }
        match step(&core, Some(seen)).await {
            Ok(Step::Done) if !core.is_wanted(Some(seen)) => {}
            Ok(Step::Done) => return Some(false),
            Ok(Step::Nothing) => return Some(true),
            Ok(Step::Interrupted) => return Some(false),
            // Whoever asks next is told, if it matters.
            Err(_) => return Some(true),
        }
    }
}

/// All that is to be done, at once; everything is put in order that is not, whether anybody has read it or not.
pub(super) async fn settle(core: &Rc<Core>) -> Result<u64, DeviceError> {
    // Each track is emptied, and each stretch put in order, some few times at most.
    let steps_max = 8 * u64::from(core.state.borrow().space.tracks.count()) + 64;
    let mut steps = 0;
    while steps < steps_max && step(core, None).await? == Step::Done {
        steps += 1;
    }
    Ok(steps)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Done,
    Nothing,
    Interrupted,
}

/// One track, or one stretch.
async fn step(core: &Rc<Core>, seen: Option<u64>) -> Result<Step, DeviceError> {
    if !core.is_in_use() {
        return Ok(Step::Nothing);
    }
    if let Some(track) = core.sparse_track() {
        core.state.borrow_mut().chooser.avoid = Some(track);
        let emptied = core.empty(track, seen).await;
        core.state.borrow_mut().chooser.avoid = None;
        return emptied;
    }
    if core.options.order
        && let Some((first, blocks)) = core.scattered(seen.is_some())
    {
        return core.put_in_order(first, blocks, seen).await;
    }
    Ok(Step::Nothing)
}

impl Core {
    fn is_wanted(&self, seen: Option<u64>) -> bool {
        seen.is_some_and(|seen| self.activity.since(seen))
    }

    /// Something was written since the start, or since it was put away; otherwise nothing is to be written now.
    fn is_in_use(&self) -> bool {
        match &self.state.borrow().log {
            Log::Tree(log) => log.window.is_some(),
            Log::Append(_) => true,
        }
    }

    /// The track to empty: fewest blocks in use, and room for them in the holes of others.
    fn sparse_track(&self) -> Option<u32> {
        let state = self.state.borrow();
        let space = &state.space;
        let used = |track: u32| space.track_usable(track) - space.track_free(track);
        let partly = (0..space.tracks.count()).filter(|&track| used(track) > 0 && space.track_free(track) > 0);
        let partly: Vec<u32> = partly.collect();
        let holes: u64 = partly.iter().map(|&track| u64::from(space.track_free(track))).sum();
        let sparsest = partly.into_iter().min_by_key(|&track| (used(track), track))?;
        let elsewhere = holes - u64::from(space.track_free(sparsest));
        // A piece that moves may break a block of its own, and one block is for what happens meanwhile.
        (elsewhere > u64::from(used(sparsest))).then_some(sparsest)
    }

    async fn empty(self: &Rc<Self>, track: u32, seen: Option<u64>) -> Result<Step, DeviceError> {
        let blocks = self.state.borrow().space.tracks.blocks(track);
        let live: Vec<u32> = {
            let state = self.state.borrow();
            blocks.clone().filter(|&block| state.owner[block as usize] != 0).collect()
        };
        let data = match (live.first(), live.last()) {
            (Some(&first), Some(&last)) => Some((first, self.read_span(first, last).await?)),
            _ => None,
        };
        for &block in &live {
            // Once something is written to this track, what was read of it may not be what is there.
            if self.is_wanted(seen) || self.state.borrow().chooser.avoid != Some(track) {
                return Ok(Step::Interrupted);
            }
            let Some((first, data)) = &data else { break };
            let owner = self.state.borrow().owner[block as usize];
            if owner == 0 {
                continue; // It was overwritten meanwhile.
            }
            if !self.try_admit(1) {
                return Ok(Step::Nothing);
            }
            let at = (block - first) as usize * self.block_bytes();
            let part = data.slice(at..at + self.block_bytes());
            match self.place(&part, Want::Hole).await {
                Ok(runs) => self.move_to(owner - 1, block, &runs),
                // No hole is left: somebody else has filled them.
                Err(DeviceError::NoSpace { .. }) => return Ok(Step::Nothing),
                Err(error) => return Err(error),
            }
        }
        if self.is_wanted(seen) {
            return Ok(Step::Interrupted);
        }
        let pieces = self.pieces_in(track);
        self.commit_moving(&pieces).await?;
        // Somebody may still read what was here, or write here what was under way before.
        if !self.state.borrow().space.is_empty(track) {
            return Ok(Step::Nothing);
        }
        count(&self.counts.tracks_emptied, 1);
        Ok(Step::Done)
    }

    /// Maps a logical block that was copied from `old` to where the copy is, unless it was written meanwhile.
    fn move_to(&self, logical: u32, old: u32, runs: &[super::eager::Run]) {
        let mut state = self.state.borrow_mut();
        for &run in runs {
            match state.map[logical as usize] == old {
                true => {
                    state.set(logical, run.first);
                    count(&self.counts.blocks_moved, 1);
                }
                false => state.give_back(run),
            }
        }
    }

    /// Live pieces on a track.
    fn pieces_in(&self, track: u32) -> BTreeSet<u32> {
        let state = self.state.borrow();
        let Log::Tree(log) = &state.log else { return BTreeSet::new() };
        let blocks = state.space.tracks.blocks(track);
        let nodes = log.tree.nodes().filter(|(_, node)| blocks.contains(&self.layout.block_of(node.cell)));
        nodes.map(|(index, _)| index).collect()
    }

    /// Everything from one block to another, which are on one track.
    async fn read_span(&self, first: u32, last: u32) -> Result<crate::device::Data, DeviceError> {
        let bytes = (last - first + 1) as usize * self.block_bytes();
        let longest = self.below.geometry().request_bytes_max as usize / self.block_bytes() * self.block_bytes();
        let mut whole = Buf::dirty(bytes);
        let mut at = 0;
        while at < bytes {
            let length = longest.max(self.block_bytes()).min(bytes - at);
            let block = first + (at / self.block_bytes()) as u32;
            let read = self.below.read(self.layout.sector_of(block), Buf::dirty(length)).await?;
            whole[at..at + length].copy_from_slice(&read);
            at += length;
        }
        Ok(whole.freeze())
    }

    /// A stretch to put in order, as long as an empty track: all of it mapped, and at least every fourth block, and three,
    /// away from the one before. A stretch that was put in order when tracks were longer or shorter has two such at most.
    /// Where it has to be `paid` for, most of it was read in order.
    fn scattered(&self, paid: bool) -> Option<(u32, u32)> {
        let state = self.state.borrow();
        if state.space.empty_tracks() <= EMPTY_TRACKS_MIN {
            return None;
        }
        let empties = state.space.empty_in(0..state.space.tracks.count());
        let length = empties.map(|track| state.space.track_usable(track)).max()?;
        let free = state.space.free_blocks();
        if free < self.layout.margin + u64::from(length) {
            return None;
        }
        let is_scattered = |first: u32| {
            let places = &state.map[first as usize..(first + length) as usize];
            let breaks = places.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count() as u32;
            places.iter().all(|&place| place != 0) && breaks * 4 >= length && breaks > 2
        };
        let is_read = |first: u32| {
            let read = state.read_in_order.get(first as usize..(first + length) as usize).unwrap_or_default();
            read.iter().filter(|&&read| read).count() * 2 > length as usize
        };
        let last = self.layout.logical_blocks.checked_sub(length)?;
        let mut stretches = (0..=last).step_by(length as usize);
        stretches.find(|&first| (!paid || is_read(first)) && is_scattered(first)).map(|first| (first, length))
    }

    async fn put_in_order(self: &Rc<Self>, first: u32, blocks: u32, seen: Option<u64>) -> Result<Step, DeviceError> {
        let places: Vec<u32> = self.state.borrow().map[first as usize..(first + blocks) as usize].to_vec();
        // Nothing else is written there meanwhile: who finds the old place in the map finds what was read.
        places.iter().for_each(|&block| self.state.borrow_mut().pin(block));
        let result = self.put_places_in_order(first, &places, seen).await;
        places.iter().for_each(|&block| self.state.borrow_mut().unpin(block));
        self.changed.notify();
        result
    }

    async fn put_places_in_order(
        self: &Rc<Self>,
        first: u32,
        places: &[u32],
        seen: Option<u64>,
    ) -> Result<Step, DeviceError> {
        let blocks = places.len() as u32;
        let mut buf = Buf::dirty(blocks as usize * self.block_bytes());
        // Along the tracks, one block at a time.
        let mut parts: Vec<(u32, &mut [u8])> = (first..).zip(buf.chunks_exact_mut(self.block_bytes())).collect();
        parts.sort_by_key(|(logical, _)| places[(logical - first) as usize]);
        for (logical, part) in parts {
            self.read_mapped(logical, part, false).await?;
            if self.is_wanted(seen) {
                return Ok(Step::Interrupted);
            }
        }
        if !self.try_admit(u64::from(blocks)) {
            return Ok(Step::Nothing);
        }
        let runs = match self.place(&buf.freeze(), Want::Order).await {
            Ok(runs) => runs,
            Err(DeviceError::NoSpace { .. }) => return Ok(Step::Nothing),
            Err(error) => return Err(error),
        };
        {
            let mut state = self.state.borrow_mut();
            let targets = runs.iter().flat_map(|run| run.first..run.first + run.blocks);
            if let Some(read) = state.read_in_order.get_mut(first as usize..(first + blocks) as usize) {
                read.fill(false);
            }
            for ((offset, old), target) in places.iter().enumerate().zip(targets) {
                let logical = first + offset as u32;
                match state.map[logical as usize] == *old {
                    true => state.set(logical, target),
                    false => state.give_back(super::eager::Run { first: target, blocks: 1 }),
                }
            }
        }
        self.commit().await?;
        count(&self.counts.extents_ordered, 1);
        Ok(if self.is_wanted(seen) { Step::Interrupted } else { Step::Done })
    }
}
