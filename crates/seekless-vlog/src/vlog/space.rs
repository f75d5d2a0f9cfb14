//! What is free: by cell, by block, by track.
//!
//! Invariants
//!   S1  `free_blocks` counts the blocks without a used cell; `track_free` counts them track by track.
//!   S2  `empty` has the tracks whose usable blocks are all free, `partly` those of which some are; `empty_usable` counts
//!       the first by their usable blocks. Searching either takes time in proportion to what is in use, never to the
//!       size of the disk.
//!   S3  Where storage below is allocated on demand, a free block is *ready* if it is known to have some; see
//!       [`super::provision`]. Everywhere else, every free block is.
//!   S4  `spare_cells` counts the free cells of blocks with used ones.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::backing::Backing;
use super::layout::Layout;
use super::tracks::Tracks;

pub struct Space {
    pub tracks: Tracks,
    cells_per_block: u32,
    /// For each block, a bit for each cell in use.
    used: Vec<u8>,
    full: u8,
    free_blocks: u64,
    track_free: Vec<u32>,
    /// Usable blocks of each track.
    track_usable: Vec<u32>,
    empty: BTreeSet<u32>,
    partly: BTreeSet<u32>,
    empty_usable: BTreeMap<u32, u32>,
    /// Free blocks of each cylinder, and its partly used blocks.
    cylinder_free: Vec<u32>,
    cylinder_broken: Vec<u32>,
    spare_cells: u64,
    /// S3; `None` where every free block is ready.
    backing: Option<Backing>,
}

impl Space {
    /// Everything is free except reserved blocks.
    pub fn new(layout: &Layout, tracks: Tracks) -> Space {
        let full = ((1u16 << layout.cells_per_block) - 1) as u8;
        let mut space = Space {
            cells_per_block: layout.cells_per_block,
            used: vec![0; layout.blocks as usize],
            full,
            free_blocks: 0,
            track_free: vec![0; tracks.count() as usize],
            track_usable: vec![0; tracks.count() as usize],
            empty: BTreeSet::new(),
            partly: BTreeSet::new(),
            empty_usable: BTreeMap::new(),
            cylinder_free: vec![0; tracks.cylinder_count() as usize],
            cylinder_broken: vec![0; tracks.cylinder_count() as usize],
            spare_cells: 0,
            backing: None,
            tracks,
        };
        for track in 0..space.tracks.count() {
            let blocks = space.tracks.blocks(track);
            // Nearly all tracks have no reserved block, and a large disk has more blocks than can be asked one by one.
            let usable = match layout.has_reserved(&blocks) {
                true => blocks.clone().filter(|&block| !layout.is_reserved(block)).count(),
                false => blocks.len(),
            };
            let usable = usable as u32;
            space.track_usable[track as usize] = usable;
            space.track_free[track as usize] = usable;
            space.free_blocks += u64::from(usable);
            let cylinder = space.tracks.cylinder_of(track) as usize;
            space.cylinder_free[cylinder] += usable;
            if usable > 0 {
                space.empty.insert(track);
                *space.empty_usable.entry(usable).or_default() += 1;
            }
            if layout.has_reserved(&blocks) {
                for block in blocks.filter(|&block| layout.is_reserved(block)) {
                    space.used[block as usize] = full;
                }
            }
        }
        space
    }

    pub fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    pub fn is_free(&self, block: u32) -> bool {
        self.used[block as usize] == 0
    }

    pub fn is_cell_free(&self, cell: u64) -> bool {
        let (block, bit) = self.place(cell);
        self.used[block] & bit == 0
    }

    /// Some of its cells are used and some are not.
    pub fn is_broken(&self, block: u32) -> bool {
        let used = self.used[block as usize];
        used != 0 && used != self.full
    }

    pub fn track_free(&self, track: u32) -> u32 {
        self.track_free[track as usize]
    }

    /// Blocks of a track that can be used.
    pub fn track_usable(&self, track: u32) -> u32 {
        self.track_usable[track as usize]
    }

    pub fn cylinder_free(&self, cylinder: u32) -> u32 {
        self.cylinder_free[cylinder as usize]
    }

    /// True when a cylinder has a free cell.
    pub fn has_free_cell(&self, cylinder: u32) -> bool {
        self.cylinder_free[cylinder as usize] > 0 || self.cylinder_broken[cylinder as usize] > 0
    }

    pub fn is_empty(&self, track: u32) -> bool {
        self.empty.contains(&track)
    }

    pub fn empty_tracks(&self) -> usize {
        self.empty.len()
    }

    /// The first empty track from `track` on, wrapping at the end.
    pub fn next_empty(&self, track: u32) -> Option<u32> {
        self.empty.range(track..).next().or_else(|| self.empty.first()).copied()
    }

    /// Empty tracks of a range, in order.
    pub fn empty_in(&self, tracks: Range<u32>) -> impl Iterator<Item = u32> {
        self.empty.range(tracks).copied()
    }

    /// The most usable blocks that an empty track has.
    pub fn empty_usable_max(&self) -> Option<u32> {
        self.empty_usable.last_key_value().map(|(usable, _)| *usable)
    }

    /// Tracks with used and with free blocks, in order.
    pub fn partly_used(&self) -> impl Iterator<Item = u32> {
        self.partly.iter().copied()
    }

    /// From now on, a free block is ready only once it has been in use, or has been marked (S3).
    pub fn manage_backing(&mut self) {
        self.backing = Some(Backing::new(self.used.len(), self.tracks.count()));
    }

    pub fn is_managed(&self) -> bool {
        self.backing.is_some()
    }

    /// Whether only ready blocks may be taken, as is so at first; otherwise all free ones may.
    pub fn restrict(&mut self, is_strict: bool) {
        if let Some(backing) = &mut self.backing {
            backing.is_strict = is_strict;
        }
    }

    fn strict(&self) -> Option<&Backing> {
        self.backing.as_ref().filter(|backing| backing.is_strict)
    }

    /// The block is free, and may be taken.
    pub fn may_take(&self, block: u32) -> bool {
        self.is_free(block) && self.strict().is_none_or(|backing| backing.has(block))
    }

    /// Blocks of a track that may be taken.
    pub fn track_open(&self, track: u32) -> u32 {
        self.strict().map_or(self.track_free(track), |backing| backing.track_ready(track))
    }

    /// The first track from `track` on whose usable blocks may all be taken, wrapping at the end.
    pub fn next_open_empty(&self, track: u32) -> Option<u32> {
        self.strict().map_or_else(|| self.next_empty(track), |backing| backing.next_empty(track))
    }

    /// All blocks of a run, free or not, have storage below.
    pub fn are_backed(&self, mut run: Range<u32>) -> bool {
        self.backing.as_ref().is_none_or(|backing| run.all(|block| backing.has(block)))
    }

    /// The end of a run that was taken, and of the free blocks behind it on its track that are not ready.
    pub fn unbacked_end(&self, run: Range<u32>) -> u32 {
        let end = self.tracks.blocks(self.tracks.track_of(run.start)).end;
        (run.end..end).find(|&block| !self.is_free(block) || self.is_ready(block)).unwrap_or(end)
    }

    /// Free cells of blocks with used ones.
    pub fn spare_cells(&self) -> u64 {
        self.spare_cells
    }

    /// S3: a write to this free block finds storage below.
    pub fn is_ready(&self, block: u32) -> bool {
        self.is_free(block) && self.backing.as_ref().is_none_or(|backing| backing.has(block))
    }

    pub fn ready_blocks(&self) -> u64 {
        self.backing.as_ref().map_or(self.free_blocks, Backing::ready_blocks)
    }

    /// Ready blocks of a track.
    pub fn track_ready(&self, track: u32) -> u32 {
        self.backing.as_ref().map_or(self.track_free(track), |backing| backing.track_ready(track))
    }

    /// Runs of free blocks of a track that are not ready, as first block and length.
    pub fn unready_runs(&self, track: u32) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        if self.track_ready(track) == self.track_free(track) {
            return runs;
        }
        for block in self.tracks.blocks(track).filter(|&block| self.is_free(block) && !self.is_ready(block)) {
            match runs.last_mut() {
                Some((first, length)) if *first + *length == block => *length += 1,
                _ => runs.push((block, 1)),
            }
        }
        runs
    }

    /// Records whether a block has storage below (S3). One that is given back has, unless this is said afterwards.
    pub fn set_backed(&mut self, block: u32, is_backed: bool) {
        let (track, is_free) = (self.tracks.track_of(block), self.is_free(block));
        let Some(backing) = &mut self.backing else { return };
        if backing.set(block, is_backed) && is_free {
            backing.count(track, is_backed);
            self.sort_ready(track);
        }
    }

    /// Takes a whole block.
    pub fn take(&mut self, block: u32) {
        assert!(self.is_free(block), "block {block} is taken twice");
        self.set(block, self.full);
    }

    /// Frees a whole block.
    pub fn give(&mut self, block: u32) {
        assert_eq!(self.used[block as usize], self.full, "block {block} is given back twice");
        self.set(block, 0);
    }

    pub fn take_cell(&mut self, cell: u64) {
        assert!(self.is_cell_free(cell), "cell {cell} is taken twice");
        let (block, bit) = self.place(cell);
        self.set(block as u32, self.used[block] | bit);
    }

    pub fn give_cell(&mut self, cell: u64) {
        assert!(!self.is_cell_free(cell), "cell {cell} is given back twice");
        let (block, bit) = self.place(cell);
        self.set(block as u32, self.used[block] & !bit);
    }

    fn place(&self, cell: u64) -> (usize, u8) {
        let cells = u64::from(self.cells_per_block);
        ((cell / cells) as usize, 1 << (cell % cells))
    }

    /// Recounts everything from the bits of the cells (S1, S2).
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check(&self, layout: &Layout) -> Result<(), String> {
        let (mut free, mut cylinders) = (0, vec![(0, 0); self.cylinder_free.len()]);
        let mut empties: BTreeMap<u32, u32> = BTreeMap::new();
        for track in 0..self.tracks.count() {
            let blocks = self.tracks.blocks(track).filter(|&block| !layout.is_reserved(block));
            let (mut usable, mut track_free) = (0, 0);
            let cylinder = &mut cylinders[self.tracks.cylinder_of(track) as usize];
            for block in blocks {
                usable += 1;
                track_free += u32::from(self.is_free(block));
                cylinder.1 += u32::from(self.is_broken(block));
            }
            free += u64::from(track_free);
            cylinder.0 += track_free;
            let said = (self.track_free[track as usize], self.track_usable[track as usize]);
            if said != (track_free, usable) {
                return Err(format!(
                    "S1: track {track} has {said:?} blocks free and usable by the books, {:?} by the recount",
                    (track_free, usable)
                ));
            }
            if self.empty.contains(&track) != (usable > 0 && track_free == usable) {
                return Err(format!("S2: track {track} has {track_free} of {usable} blocks free"));
            }
            if self.partly.contains(&track) != (0 < track_free && track_free < usable) {
                return Err(format!("S2: track {track} has {track_free} of {usable} blocks free"));
            }
            if track_free == usable && usable > 0 {
                *empties.entry(usable).or_default() += 1;
            }
        }
        if empties != self.empty_usable {
            return Err(format!("S2: empty tracks by size are {:?}, {empties:?} by the recount", self.empty_usable));
        }
        if free != self.free_blocks {
            return Err(format!("S1: {} blocks are free by the books, {free} by the recount", self.free_blocks));
        }
        self.check_ready()?;
        let spare: u64 = self.used.iter().map(|&used| self.spare_of(used)).sum();
        if spare != self.spare_cells {
            return Err(format!("S4: {} cells are spare by the books, {spare} by the recount", self.spare_cells));
        }
        let said = self.cylinder_free.iter().copied().zip(self.cylinder_broken.iter().copied());
        match said.zip(&cylinders).position(|(said, &found)| said != found) {
            Some(cylinder) => {
                Err(format!("S1: cylinder {cylinder} has {:?} blocks free and broken", cylinders[cylinder]))
            }
            None => Ok(()),
        }
    }

    /// Recounts what is ready (S3).
    fn check_ready(&self) -> Result<(), String> {
        let mut sum = 0;
        for track in (0..self.tracks.count()).filter(|_| self.backing.is_some()) {
            let ready = self.tracks.blocks(track).filter(|&block| self.is_ready(block)).count() as u32;
            sum += u64::from(ready);
            let is_listed = self.backing.as_ref().and_then(|backing| backing.next_empty(track)) == Some(track);
            if ready != self.track_ready(track) || is_listed != (ready > 0 && ready == self.track_usable(track)) {
                let said = self.track_ready(track);
                return Err(format!("S3: track {track} has {said} ready blocks by the books, {ready} by the recount"));
            }
        }
        match self.backing.is_some() && sum != self.ready_blocks() {
            true => Err(format!("S3: {} blocks are ready by the books, {sum} by the recount", self.ready_blocks())),
            false => Ok(()),
        }
    }

    /// S1, S2, S3.
    fn set(&mut self, block: u32, used: u8) {
        debug_assert_eq!(used & !self.full, 0, "S1: a block has no more cells than its size allows");
        let before = std::mem::replace(&mut self.used[block as usize], used);
        let track = self.tracks.track_of(block);
        let cylinder = self.tracks.cylinder_of(track) as usize;
        let is_broken = |used: u8| u32::from(used != 0 && used != self.full);
        self.spare_cells = self.spare_cells + self.spare_of(used) - self.spare_of(before);
        self.cylinder_broken[cylinder] = self.cylinder_broken[cylinder] + is_broken(used) - is_broken(before);
        match (before == 0, used == 0) {
            (true, false) => {
                debug_assert!(self.free_blocks > 0, "S1: a block that was free is counted as free");
                debug_assert!(self.track_free[track as usize] > 0, "S1: and among those of its track");
                debug_assert!(self.cylinder_free[cylinder] > 0, "S1: and among those of its cylinder");
                self.free_blocks -= 1;
                self.track_free[track as usize] -= 1;
                self.cylinder_free[cylinder] -= 1;
                self.sort_in(track, self.track_free[track as usize] + 1);
                if let Some(backing) = self.backing.as_mut().filter(|backing| backing.has(block)) {
                    backing.count(track, false);
                    self.sort_ready(track);
                }
            }
            (false, true) => {
                self.free_blocks += 1;
                self.track_free[track as usize] += 1;
                self.cylinder_free[cylinder] += 1;
                debug_assert!(
                    self.track_free[track as usize] <= self.track_usable[track as usize],
                    "S1: only what is usable becomes free"
                );
                self.sort_in(track, self.track_free[track as usize] - 1);
                if let Some(backing) = &mut self.backing {
                    backing.set(block, true);
                    backing.count(track, true);
                    self.sort_ready(track);
                }
            }
            _ => {}
        }
        debug_assert!(
            u64::from(self.cylinder_free[cylinder]) <= self.free_blocks
                && self.track_free[track as usize] <= self.cylinder_free[cylinder],
            "S1: what is free on a track is free in its cylinder, and on the disk"
        );
    }

    /// Free cells of a block with such cells in use, if it has some (S4).
    fn spare_of(&self, used: u8) -> u64 {
        if used == 0 { 0 } else { u64::from(self.cells_per_block - used.count_ones()) }
    }

    /// S3, after the number of ready blocks of a track has changed.
    fn sort_ready(&mut self, track: u32) {
        let usable = self.track_usable[track as usize];
        if let Some(backing) = &mut self.backing {
            backing.sort_in(track, usable);
        }
    }

    /// S2, after the number of free blocks of a track has changed by one.
    fn sort_in(&mut self, track: u32, before: u32) {
        let (free, usable) = (self.track_free[track as usize], self.track_usable[track as usize]);
        if before == usable {
            let was_empty = self.empty.remove(&track);
            debug_assert!(was_empty, "S2: a track that is all free is among the empty ones");
            match self.empty_usable.get_mut(&usable) {
                Some(1) => drop(self.empty_usable.remove(&usable)),
                Some(count) => *count -= 1,
                None => unreachable!("S2: track {track} was counted when it became empty"),
            }
        } else if free == usable {
            let is_new = self.empty.insert(track);
            debug_assert!(is_new, "S2: a track becomes empty once");
            *self.empty_usable.entry(usable).or_default() += 1;
        }
        let is_partly = |free: u32| 0 < free && free < usable;
        match (is_partly(before), is_partly(free)) {
            (false, true) => drop(self.partly.insert(track)),
            (true, false) => drop(self.partly.remove(&track)),
            _ => {}
        }
        debug_assert_eq!(
            (self.empty.contains(&track), self.partly.contains(&track)),
            (free == usable, is_partly(free)),
            "S2: a track is listed by what is free on it"
        );
    }
}
