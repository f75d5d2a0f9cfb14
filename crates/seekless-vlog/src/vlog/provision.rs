//! Which blocks have storage below, where it is allocated on demand, as in an image file with holes.
//!
//! There a write to a block that has none can fail, at a time when others would need that write most: a deletion on a
//! full host frees nothing before its own blocks are written. So blocks are allocated below before eager writing may
//! choose them, and some are kept for changes that free space.
//!
//! Nothing on the device records which blocks have storage: a start knows of none, and asks again. What is freed has
//! been written, so it has storage until it is discarded.
//!
//! Space provisioned is bounded by what its owner asks for. Candidates come in the order in which eager writing would use
//! them; once the storage below is full, partly used tracks come first, since an earlier life may have left some there.
//!
//! A disk searches all of that once in a life, and only as far as it needs ([`Core::search`]): what earlier lives kept for
//! promises is all found when the same is promised again, one request after the other.

use std::rc::Rc;

use super::backing::Search;
use super::commit::DISCARD_BLOCKS_MIN;
use super::core::Core;
use super::format::FIXED_BYTES;
use super::space::Space;
use crate::device::DeviceError;
use crate::units::{SECTOR_BYTES, Sector};

/// A run of free blocks that finds no storage as a whole is halved down to this: what an earlier life discarded was at least
/// as long, and may be beside blocks that it kept.
const RUN_BLOCKS_MIN: u32 = DISCARD_BLOCKS_MIN;

/// Attempts that may fail in a visit to all tracks, to find what earlier lives have left.
const SEARCH_REFUSED_MAX: u32 = 1 << 16;

impl Core {
    /// Has storage below allocated before blocks are written, where it may have to be (S3 of the space); returns whether it
    /// may. A device with a head is a drive, which has all of its storage.
    pub(super) fn manage_backing(&self) -> bool {
        let is_managed = !self.options.read_only && self.below.head().is_none();
        if is_managed {
            let mut state = self.state.borrow_mut();
            state.space.manage_backing();
            // R2 of the room of a disk; an owner above takes only what it has provisioned.
            state.space.restrict(self.layout.superblock.is_above());
        }
        is_managed
    }

    /// Allocates storage below until `target` blocks are ready. On full storage, an owner above keeps `keep` of them, and a disk
    /// looks for so many everywhere, as long as it has not done so. Gives up after `refused_max` failures besides. Returns true if
    /// more is ready now than at the time of the call.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub(super) async fn provision(
        self: &Rc<Self>,
        target: u64,
        keep: u64,
        refused_max: u32,
    ) -> Result<bool, DeviceError> {
        let before = self.state.borrow().space.ready_blocks();
        let _pass = self.provision_gate.enter().await;
        {
            let mut state = self.state.borrow_mut();
            state.below.keep = keep;
            if state.space.ready_blocks() >= target {
                return Ok(state.space.ready_blocks() > before);
            }
        }
        let tried = self.provision_in_order(target).await?;
        if let Some(track) = tried {
            if !self.layout.superblock.is_above() {
                self.provision_beginning(track).await?;
                self.search(track, target, keep).await?;
            }
            if self.layout.superblock.is_above() || self.state.borrow().below.is_searched() {
                self.provision_anywhere(track, target, refused_max).await?;
            }
        }
        let mut state = self.state.borrow_mut();
        state.below.is_full = tried.is_some();
        if !self.layout.superblock.is_above() {
            state.space.restrict(tried.is_some());
        }
        let has_more = state.space.ready_blocks() > before;
        drop(state);
        // Of several requests that wait for room, each tries in its turn: without more room, none wakes the others.
        if has_more {
            self.changed.notify();
        }
        Ok(has_more)
    }

    /// Allocates storage for the tracks that eager writing would use next. Returns the track that found no room.
    async fn provision_in_order(&self, target: u64) -> Result<Option<u32>, DeviceError> {
        let (here, tracks) = {
            let state = self.state.borrow();
            (state.allocator.here_without_head(&state.space), state.space.tracks.count())
        };
        // The track in use, then empty ones, then all others.
        if !self.provision_track(here).await? {
            return Ok(Some(here));
        }
        let mut from = here + 1;
        let mut is_wrapped = false;
        loop {
            let next = {
                let state = self.state.borrow();
                if state.space.ready_blocks() >= target {
                    return Ok(None);
                }
                let end = if is_wrapped { here } else { tracks };
                state.space.empty_in(from.min(end)..end).find(|&track| is_wanted(&state.space, track))
            };
            match next {
                Some(track) if self.provision_track(track).await? => from = track + 1,
                Some(track) => return Ok(Some(track)),
                None if is_wrapped => break,
                None => (from, is_wrapped) = (0, true),
            }
        }
        for track in (here..tracks).chain(0..here) {
            if self.state.borrow().space.ready_blocks() >= target {
                break;
            }
            if !self.provision_track(track).await? {
                return Ok(Some(track));
            }
        }
        Ok(None)
    }

    /// Allocates storage for as much of the beginning of a track as there is room for, when there is none for all: a host
    /// may have allocated it already.
    async fn provision_beginning(&self, track: u32) -> Result<(), DeviceError> {
        let Some(&(mut first, length)) = self.state.borrow().space.unready_runs(track).first() else { return Ok(()) };
        let mut step = length / 2;
        while step > 0 {
            if self.provision_run(first, step).await? {
                first += step;
            }
            step /= 2;
        }
        Ok(())
    }

    /// Goes on with the search of this life for storage that earlier ones have left: for long runs of it until `target` blocks are
    /// ready, then, as what was kept ready may be shorter, for any until there are `keep`.
    async fn search(&self, refused: u32, target: u64, keep: u64) -> Result<(), DeviceError> {
        let begin = |run_blocks_min| {
            let (partly, empty) = self.candidates(refused, SEARCH_REFUSED_MAX);
            let tracks = partly.into_iter().chain(empty).rev().collect();
            Search { tracks, run_blocks_min, refusals_left: SEARCH_REFUSED_MAX }
        };
        loop {
            let ready = self.state.borrow().space.ready_blocks();
            let search = self.state.borrow_mut().below.search.take();
            let mut search = search.unwrap_or_else(|| begin(RUN_BLOCKS_MIN));
            if search.tracks.is_empty() && search.run_blocks_min > 1 {
                search = begin(1);
            }
            let is_enough = ready >= if search.run_blocks_min > 1 { target } else { keep };
            let next = if is_enough { None } else { search.tracks.pop() };
            let (run_blocks_min, refusals_left) = (search.run_blocks_min, search.refusals_left);
            self.state.borrow_mut().below.search = Some(search);
            let Some(track) = next else { return Ok(()) };
            let failures = self.search_track(track, refusals_left, run_blocks_min).await?;
            if let Some(search) = &mut self.state.borrow_mut().below.search {
                search.refusals_left -= failures;
                if search.refusals_left == 0 {
                    search.tracks.clear();
                }
            }
        }
    }

    /// Tracks with free blocks that are not ready: partly used ones, and so many empty ones behind the last that was tried.
    fn candidates(&self, refused: u32, empty_max: u32) -> (Vec<u32>, Vec<u32>) {
        let state = self.state.borrow();
        let last = if state.below.is_full { state.below.refused_last } else { refused };
        let wanted = |track: &u32| is_wanted(&state.space, *track);
        let partly: Vec<u32> = state.space.partly_used().filter(wanted).collect();
        let tracks = state.space.tracks.count();
        let after = state.space.empty_in(last + 1..tracks).chain(state.space.empty_in(0..last.min(tracks - 1) + 1));
        let empty: Vec<u32> = after.filter(wanted).take(empty_max as usize).collect();
        (partly, empty)
    }

    /// Looks for storage that is there, when there is no new one: in partly used tracks, then in empty ones, from where the last
    /// call ended.
    async fn provision_anywhere(&self, refused: u32, target: u64, refused_max: u32) -> Result<(), DeviceError> {
        let (partly, empty) = self.candidates(refused, refused_max);
        let mut failures = 0;
        for (track, is_empty) in
            partly.into_iter().map(|track| (track, false)).chain(empty.into_iter().map(|track| (track, true)))
        {
            if failures >= refused_max || self.state.borrow().space.ready_blocks() >= target {
                break;
            }
            failures += self.search_track(track, refused_max - failures, RUN_BLOCKS_MIN).await?;
            if is_empty {
                self.state.borrow_mut().below.refused_last = track;
            }
        }
        Ok(())
    }

    /// Looks for storage that is there in one track. Returns how many attempts failed, at most `refused_max`.
    async fn search_track(&self, track: u32, refused_max: u32, run_blocks_min: u32) -> Result<u32, DeviceError> {
        let mut failures = 0;
        let mut runs = self.state.borrow().space.unready_runs(track);
        while failures < refused_max
            && let Some((first, length)) = runs.pop()
        {
            if self.provision_run(first, length).await? {
                continue;
            }
            failures += 1;
            if length >= 2 * run_blocks_min {
                runs.push((first + length / 2, length - length / 2));
                runs.push((first, length / 2));
            }
        }
        Ok(failures)
    }

    /// Allocates storage for the free blocks of partly used tracks, as far as there is room.
    pub(super) async fn provision_holes(&self) -> Result<(), DeviceError> {
        let _pass = self.provision_gate.enter().await;
        let tracks: Vec<u32> = {
            let state = self.state.borrow();
            state.space.partly_used().filter(|&track| is_wanted(&state.space, track)).collect()
        };
        for track in tracks {
            if !self.provision_track(track).await? {
                break;
            }
        }
        Ok(())
    }

    /// Allocates storage for the free blocks of a track. False when there is no room.
    async fn provision_track(&self, track: u32) -> Result<bool, DeviceError> {
        let runs = self.state.borrow().space.unready_runs(track);
        for (first, length) in runs {
            if !self.provision_run(first, length).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Allocates storage for blocks that were free and not ready. False when there is no room.
    async fn provision_run(&self, first: u32, length: u32) -> Result<bool, DeviceError> {
        let sectors = u64::from(length) * self.layout.block_sectors;
        match self.below.provision(self.layout.sector_of(first), sectors).await {
            Ok(()) => {
                let mut state = self.state.borrow_mut();
                (first..first + length).for_each(|block| state.space.set_backed(block, true));
                Ok(true)
            }
            Err(DeviceError::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Allocates storage for what has a fixed place and is written again: a sparse copy of the device may have none there.
    ///
    /// # Errors
    /// Those of the device, except for a lack of space.
    pub(super) async fn provision_fixed(&self) -> Result<(), DeviceError> {
        let anchors = self.layout.anchors().map(|at| (Sector(at), FIXED_BYTES as u64 / SECTOR_BYTES));
        let region = self.layout.append_region();
        for (at, sectors) in anchors.into_iter().chain(region) {
            match self.below.provision(at, sectors).await {
                // A write that finds no room says so.
                Ok(()) | Err(DeviceError::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_wanted(space: &Space, track: u32) -> bool {
    space.track_ready(track) < space.track_free(track)
}
