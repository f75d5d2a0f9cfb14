//! Eager writing: which free place comes soonest under a head [wa99 §2, §4.2].
//!
//! Policy for a block of data, on a device that tells where its head is:
//!   1. the track that is being filled in the head's cylinder, until only a set share of it is free; it is not filled
//!      again until it has been empty;
//!   2. another empty track of this cylinder, the one reached soonest;
//!   3. the next cylinder with a track as in 1 or 2, in one direction only and from the last to the first, so that the
//!      head is not trapped where everything is full; but only where the seek, shared by all blocks that go to that
//!      track, costs less than 4;
//!   4. no track is empty: the free block reached soonest on any track of this cylinder, or of the next one that has
//!      any, again in one direction, where that is sooner.
//!
//! \[wa99\] describes 1 and 2 with its model of the compactor, and 4 with its models of one track and one cylinder; that
//! 4 takes over when empty tracks run out is our reading. So is the moment to leave a cylinder: the last free blocks of
//! a cylinder have the longest waits.
//!
//! The head's cylinder counts as *here* as long as it is in the window of the log, where its tail must be. Reads move
//! the heads out of the window; then *here* is where data went last. Otherwise both writes of an update would go to
//! where a read was and move the window there, which costs two long seeks more than going back.
//!
//! A piece of the map goes to the soonest free cell in the same way, preferably on tracks already in use, so that empty
//! tracks stay empty.
//!
//! Several arms each have their own cylinders and their own sweep: each idle arm offers the place that it would choose,
//! and the soonest is taken, as in EW-Array \[zh02\].
//!
//! Without a head, data follows data in address order: through a stretch that was empty, then the next empty one, and
//! when there is none, any free block. Pieces fill blocks of their own. Where storage below is full, or the owner above says
//! so, only blocks that are ready count as free: those with storage below (S3 of [`super::space`]).

use std::collections::BTreeMap;
use std::ops::Range;

use super::layout::Layout;
use super::space::Space;
use crate::device::HeadView;
use crate::units::{Nanos, Sector};

/// Consecutive blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub first: u32,
    pub blocks: u32,
}

/// Purpose of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocPurpose {
    /// Data of a request.
    Data,
    /// Data that the compactor moves: into holes, never into an empty track.
    FillHole,
    /// Data to be placed in order: the start of an empty track.
    Sequential,
}

/// The head at some moment.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    pub view: &'a dyn HeadView,
    pub now: Nanos,
    /// Arms in use, whose future position is unknown. Arms beyond the end are not in use.
    pub busy: &'a [bool],
}

impl Head<'_> {
    fn is_busy(&self, arm: u32) -> bool {
        self.busy.get(arm as usize).copied().unwrap_or(false)
    }
}

pub struct EagerAllocator {
    /// Share of a track that is left free when it is filled, in hundredths of a per cent.
    track_fill_reserve: u32,
    /// The track that is being filled in each cylinder.
    filling: BTreeMap<u32, u32>,
    /// Address for the next block, without a head.
    cursor: u32,
    /// The block that is being filled with pieces, without a head.
    piece_block: Option<u32>,
    /// Where the last spare cell was.
    spare: u32,
    /// Track that the compactor is emptying: not allocated.
    pub avoid: Option<u32>,
    /// Blocks in which the tail of the log may be without a new anchor.
    pub window: Option<Range<u32>>,
    /// The cylinder to which data went last.
    last: Option<u32>,
}

impl EagerAllocator {
    /// `track_fill_reserve`: share of a track that is left free when it is filled, in hundredths of a per cent.
    pub fn new(track_fill_reserve: u32) -> EagerAllocator {
        EagerAllocator {
            track_fill_reserve,
            filling: BTreeMap::new(),
            cursor: 0,
            piece_block: None,
            spare: 0,
            avoid: None,
            window: None,
            last: None,
        }
    }

    /// Up to `count` consecutive free blocks, where they are written soonest. Does not allocate them.
    ///
    /// Data also goes to unsuitable places when there is no other; then nothing is avoided any more.
    pub fn run(
        &mut self,
        space: &Space,
        layout: &Layout,
        head: Option<Head<'_>>,
        purpose: AllocPurpose,
        count: u32,
    ) -> Option<Run> {
        let mut found = self.find(space, layout, head, purpose, count);
        if found.is_none() && purpose == AllocPurpose::Data && self.avoid.take().is_some() {
            found = self.find(space, layout, head, purpose, count);
        }
        debug_assert!(
            found.is_none_or(|run| (1..=count.max(1)).contains(&run.blocks)),
            "V3: no more blocks are chosen than were asked for, and at least one"
        );
        debug_assert!(
            found.is_none_or(|run| (run.first..run.first + run.blocks).all(|block| space.may_take(block))),
            "V1: what is chosen is free, and ready where it has to be (S3)"
        );
        debug_assert!(
            found.is_none_or(|run| !self.avoids(space.tracks.track_of(run.first))),
            "a track that is being emptied takes nothing"
        );
        debug_assert!(
            purpose != AllocPurpose::FillHole
                || found.is_none_or(|run| !space.is_empty(space.tracks.track_of(run.first))),
            "what moves out of a track does not begin an empty one"
        );
        found
    }

    fn find(
        &mut self,
        space: &Space,
        layout: &Layout,
        head: Option<Head<'_>>,
        purpose: AllocPurpose,
        count: u32,
    ) -> Option<Run> {
        let Some(head) = head else {
            return self.without_head(space, purpose, count);
        };
        let mut best: Option<(Nanos, Run)> = None;
        for arm in (0..space.tracks.arm_count()).filter(|&arm| !head.is_busy(arm)) {
            let arm_view = ArmView { space, layout, head, arm };
            let here = self.here(&arm_view);
            let found = match purpose {
                AllocPurpose::Data => self.data(&arm_view, here, count),
                AllocPurpose::FillHole => self.hole(&arm_view, here, count),
                AllocPurpose::Sequential => self.empty(&arm_view, here, count),
            };
            let Some(run) = found else { continue };
            let wait = arm_view.wait(layout.sector_of(run.first), layout.block_sectors);
            if best.is_none_or(|(least, _)| wait < least) {
                best = Some((wait, run));
            }
        }
        let (_, run) = best?;
        self.last = Some(space.tracks.cylinder_of(space.tracks.track_of(run.first)));
        Some(run)
    }

    /// The cylinder from which the sweep continues.
    fn here(&self, arm_view: &ArmView<'_>) -> u32 {
        let tracks = &arm_view.space.tracks;
        let head = arm_view.cylinder();
        let last = self.last.filter(|last| tracks.cylinders(arm_view.arm).contains(last)).unwrap_or(head);
        let Some(window) = &self.window else { return head };
        let (first, end) = (tracks.tracks(head).start, tracks.tracks(head).end - 1);
        let blocks = tracks.blocks(first).start..tracks.blocks(end).end;
        if blocks.start < window.end && window.start < blocks.end { head } else { last }
    }

    /// The start of an empty track.
    fn empty(&self, arm_view: &ArmView<'_>, here: u32, count: u32) -> Option<Run> {
        let space = arm_view.space;
        let near = space.empty_in(space.tracks.tracks(here)).find(|&track| !self.avoids(track));
        let track = near.or_else(|| self.next_empty(arm_view, here))?;
        let first = space.tracks.blocks(track).find(|&block| space.is_free(block))?;
        debug_assert!(space.is_empty(track), "S2: a track that is listed as empty is");
        Some(extend(space, Run { first, blocks: count }, space.tracks.blocks(track).end))
    }

    /// The arm's next empty track behind a cylinder.
    fn next_empty(&self, arm_view: &ArmView<'_>, here: u32) -> Option<u32> {
        let (space, all) = (arm_view.space, arm_view.tracks());
        let from = space.tracks.tracks(here).end;
        let mut empties = space.empty_in(from..all.end).chain(space.empty_in(all.start..from));
        empties.find(|&track| !self.avoids(track))
    }

    /// The free cell that is written soonest; see [`EagerAllocator::run`].
    pub fn cell(&mut self, space: &Space, layout: &Layout, head: Option<Head<'_>>) -> Option<u64> {
        let mut found = self.find_cell(space, layout, head);
        if found.is_none() && self.avoid.take().is_some() {
            found = self.find_cell(space, layout, head);
        }
        debug_assert!(found.is_none_or(|cell| space.is_cell_free(cell)), "T3: the cell that is chosen is free");
        found
    }

    fn find_cell(&mut self, space: &Space, layout: &Layout, head: Option<Head<'_>>) -> Option<u64> {
        let Some(head) = head else {
            return self.cell_without_head(space, layout);
        };
        let arms = (0..space.tracks.arm_count()).filter(|&arm| !head.is_busy(arm));
        let found = arms.filter_map(|arm| self.cell_of_arm(&ArmView { space, layout, head, arm }));
        found.min().map(|(_, cell)| cell)
    }

    fn cell_of_arm(&self, arm_view: &ArmView<'_>) -> Option<(Nanos, u64)> {
        let space = arm_view.space;
        let soonest = |cylinder: u32, is_empty: bool| {
            let tracks = space.tracks.tracks(cylinder).filter(|&track| !self.avoids(track));
            tracks
                .filter(|&track| space.is_empty(track) == is_empty)
                .filter_map(|track| arm_view.soonest_cell(track))
                .min()
        };
        let here = self.here(arm_view);
        let cylinders = || arm_view.sweep(here).filter(|&cylinder| space.has_free_cell(cylinder));
        // An empty cylinder under the head is as good as any, except while a track is being emptied: its pieces would
        // then move from one empty track to the next without end.
        let own = || soonest(here, false).or_else(|| soonest(here, true).filter(|_| self.avoid.is_none()));
        let used = cylinders().map(|cylinder| if cylinder == here { own() } else { soonest(cylinder, false) });
        while_sooner(used).or_else(|| cylinders().find_map(|cylinder| soonest(cylinder, true)))
    }

    /// A free cell in a partly used block, anywhere: this leaves the most blocks free.
    pub fn spare_cell(&mut self, space: &Space, layout: &Layout) -> Option<u64> {
        let from = self.spare.min(layout.blocks - 1);
        let block = (from..layout.blocks).chain(0..from).find(|&block| space.is_broken(block))?;
        self.spare = block;
        debug_assert!(!layout.is_reserved(block), "a block that is partly used is one for data and pieces");
        let first = layout.first_cell(block);
        (first..first + u64::from(layout.cells_per_block)).find(|&cell| space.is_cell_free(cell))
    }

    pub(super) fn avoids(&self, track: u32) -> bool {
        self.avoid == Some(track)
    }

    /// Blocks that a track can take before it counts as filled.
    fn room(&self, space: &Space, track: u32) -> u32 {
        space.track_free(track).saturating_sub(kept(space, track, self.track_fill_reserve))
    }

    fn has_room(&self, space: &Space, track: u32) -> bool {
        !self.avoids(track) && self.room(space, track) > 0
    }

    fn data(&mut self, arm_view: &ArmView<'_>, here: u32, count: u32) -> Option<Run> {
        let (space, track_fill_reserve) = (arm_view.space, self.track_fill_reserve);
        self.filling.retain(|_, track| space.track_free(*track) > kept(space, *track, track_fill_reserve));
        let track = match self.fillable(arm_view, here) {
            Some(track) => track,
            None => {
                let near = self.greedy(arm_view, here, count);
                let far = self.next_fillable(arm_view, here);
                match (near, far) {
                    (Some(near), Some(far)) if self.is_sooner(arm_view, near, far) => return Some(near),
                    (_, Some(far)) => far,
                    (near, None) => return near,
                }
            }
        };
        self.filling.insert(space.tracks.cylinder_of(track), track);
        let (_, first) = arm_view.soonest_block(track)?;
        let room = self.room(space, track);
        Some(extend(space, Run { first, blocks: count.min(room) }, space.tracks.blocks(track).end))
    }

    /// 1 and 2 of the policy: the track of a cylinder to fill.
    fn fillable(&self, arm_view: &ArmView<'_>, cylinder: u32) -> Option<u32> {
        let space = arm_view.space;
        let filling = self.filling.get(&cylinder).copied().filter(|&track| self.has_room(space, track));
        filling.or_else(|| {
            let empties = space.empty_in(space.tracks.tracks(cylinder)).filter(|&track| !self.avoids(track));
            empties
                .filter_map(|track| arm_view.soonest_block(track).map(|(wait, _)| (wait, track)))
                .min()
                .map(|(_, track)| track)
        })
    }

    /// 3 of the policy: the track to fill in the next cylinder that has one.
    fn next_fillable(&self, arm_view: &ArmView<'_>, here: u32) -> Option<u32> {
        let tracks = &arm_view.space.tracks;
        let cylinders = tracks.cylinders(arm_view.arm);
        let length = cylinders.len() as u32;
        let empty = self.next_empty(arm_view, here).map(|track| tracks.cylinder_of(track));
        let distance = |cylinder: u32| (cylinder + length - here) % length;
        let open = self
            .filling
            .range(cylinders)
            .filter(|&(&cylinder, &track)| cylinder != here && self.has_room(arm_view.space, track));
        let next = open.map(|(&cylinder, _)| cylinder).chain(empty).min_by_key(|&cylinder| distance(cylinder));
        self.fillable(arm_view, next?)
    }

    /// True when the wait of each block at `near` is shorter than its share of the way to a track that is then filled:
    /// beyond the wait where everything is free.
    fn is_sooner(&self, arm_view: &ArmView<'_>, near: Run, track: u32) -> bool {
        let Some((far, _)) = arm_view.soonest_block(track) else { return true };
        let least = arm_view.least();
        let share = |wait: Nanos, blocks: u32| wait.saturating_sub(least).0 / u64::from(blocks.max(1));
        let near_wait = arm_view.wait(arm_view.layout.sector_of(near.first), arm_view.layout.block_sectors);
        share(near_wait, near.blocks) < share(far, self.room(arm_view.space, track))
    }

    /// 4 of the policy.
    fn greedy(&self, arm_view: &ArmView<'_>, here: u32, count: u32) -> Option<Run> {
        self.sweep(arm_view, here, count, |_| true)
    }

    fn hole(&self, arm_view: &ArmView<'_>, here: u32, count: u32) -> Option<Run> {
        self.sweep(arm_view, here, count, |track| !arm_view.space.is_empty(track))
    }

    /// The soonest free block from a cylinder upwards, on tracks accepted by `good`.
    fn sweep(&self, arm_view: &ArmView<'_>, here: u32, count: u32, good: impl Fn(u32) -> bool) -> Option<Run> {
        let space = arm_view.space;
        let cylinders = arm_view.sweep(here).filter(|&cylinder| space.cylinder_free(cylinder) > 0);
        let soonest = cylinders.map(|cylinder| {
            let tracks = space.tracks.tracks(cylinder).filter(|&track| !self.avoids(track) && good(track));
            tracks.filter_map(|track| arm_view.soonest_block(track)).min()
        });
        let (_, first) = while_sooner(soonest)?;
        let end = space.tracks.blocks(space.tracks.track_of(first)).end;
        Some(extend(space, Run { first, blocks: count }, end))
    }

    /// The track that is filled next, without a head, while it has room.
    pub(super) fn here_without_head(&self, space: &Space) -> u32 {
        space.tracks.track_of(self.cursor)
    }

    fn without_head(&mut self, space: &Space, purpose: AllocPurpose, count: u32) -> Option<Run> {
        let tracks = &space.tracks;
        let here = tracks.track_of(self.cursor);
        let in_track = |track: u32, from: u32| {
            let blocks = tracks.blocks(track);
            let first = (from.max(blocks.start)..blocks.end).find(|&block| space.may_take(block))?;
            Some(extend(space, Run { first, blocks: count }, blocks.end))
        };
        let good = |track: u32| match purpose {
            AllocPurpose::Data => true,
            AllocPurpose::FillHole => !space.is_empty(track),
            AllocPurpose::Sequential => space.is_empty(track),
        };
        let usable = |track: u32| !self.avoids(track) && space.track_open(track) > 0 && good(track);
        let mut found = None;
        if purpose == AllocPurpose::Data {
            if usable(here) {
                found = in_track(here, self.cursor);
            }
            if found.is_none() {
                let next = space.next_open_empty((here + 1) % tracks.count()).filter(|&track| !self.avoids(track));
                found = next.and_then(|track| in_track(track, 0));
            }
        }
        let found = found.or_else(|| {
            let all = (here..tracks.count()).chain(0..here + 1);
            all.filter(|&track| usable(track)).find_map(|track| in_track(track, 0))
        })?;
        if purpose == AllocPurpose::Data {
            self.cursor = found.first + found.blocks;
            if self.cursor >= tracks.blocks(tracks.count() - 1).end {
                self.cursor = 0;
            }
        }
        Some(found)
    }

    fn cell_without_head(&mut self, space: &Space, layout: &Layout) -> Option<u64> {
        let free_in = |block: u32| {
            let first = layout.first_cell(block);
            (first..first + u64::from(layout.cells_per_block)).find(|&cell| space.is_cell_free(cell))
        };
        let near = |block: &u32| !self.avoids(space.tracks.track_of(*block));
        let begun = self.piece_block.filter(|&block| space.is_broken(block)).filter(near);
        if let Some(cell) = begun.and_then(free_in) {
            return Some(cell);
        }
        // While a track is being emptied, no other empty one is started, as with a head.
        let hole = if self.avoid.is_some() { self.without_head(space, AllocPurpose::FillHole, 1) } else { None };
        if let Some(run) = hole.or_else(|| self.without_head(space, AllocPurpose::Data, 1)) {
            self.piece_block = Some(run.first);
            return free_in(run.first);
        }
        // Everything is taken except the other cells of blocks with pieces.
        (0..layout.blocks).filter(|&block| space.is_broken(block)).find_map(free_in)
    }
}

/// Blocks that a track keeps free when it is filled.
fn kept(space: &Space, track: u32, track_fill_reserve: u32) -> u32 {
    (u64::from(space.track_usable(track)) * u64::from(track_fill_reserve) / 10_000) as u32
}

/// `run`, extended as far as its blocks are free and before `end`.
fn extend(space: &Space, run: Run, end: u32) -> Run {
    let wanted = run.first..run.first.saturating_add(run.blocks.max(1)).min(end);
    let blocks = wanted.take_while(|&block| space.may_take(block)).count() as u32;
    Run { blocks, ..run }
}

/// The first place of a sweep, or a later one as long as each is sooner than the one before. (Free space in the next
/// cylinder is not counted: crediting it with half a millisecond makes an update on the ST19101 of [wa99] slower.)
fn while_sooner<T: Ord>(places: impl Iterator<Item = Option<T>>) -> Option<T> {
    let mut best: Option<T> = None;
    for place in places {
        match (&best, place) {
            (None, place) => best = place,
            (Some(least), Some(place)) if place < *least => best = Some(place),
            (Some(_), _) => break,
        }
    }
    best
}

/// Evaluates places from the current position of an arm's heads.
struct ArmView<'a> {
    space: &'a Space,
    layout: &'a Layout,
    head: Head<'a>,
    arm: u32,
}

impl ArmView<'_> {
    /// The cylinder over which the heads of the arm are.
    fn cylinder(&self) -> u32 {
        let tracks = &self.space.tracks;
        let cylinder = tracks.cylinder_of(tracks.track_of(self.block()));
        let own = tracks.cylinders(self.arm);
        // The sectors behind the last whole block of a drive are unusable, but heads may be there.
        cylinder.clamp(own.start, own.end - 1)
    }

    /// The first block of the track under the heads of the arm.
    fn block(&self) -> u32 {
        let (first, _) = self.head.view.current_track(self.arm);
        let block = u32::try_from(first.0.div_ceil(self.layout.block_sectors)).unwrap_or(u32::MAX);
        block.min(self.layout.blocks - 1)
    }

    /// Tracks of the arm.
    fn tracks(&self) -> Range<u32> {
        let own = self.space.tracks.cylinders(self.arm);
        self.space.tracks.tracks(own.start).start..self.space.tracks.tracks(own.end - 1).end
    }

    /// All cylinders of the arm, one way from `here`, wrapping at the end.
    fn sweep(&self, here: u32) -> impl Iterator<Item = u32> {
        let own = self.space.tracks.cylinders(self.arm);
        (here..own.end).chain(own.start..here)
    }

    /// Wait of a write on the track under the head if all of that track is free.
    fn least(&self) -> Nanos {
        let tracks = &self.space.tracks;
        let blocks = tracks.blocks(tracks.track_of(self.block()));
        let wait = |block: u64| self.wait(self.layout.sector_of(block as u32), self.layout.block_sectors);
        soonest(blocks.start.into()..blocks.end.into(), wait, |_| true).map_or(Nanos::ZERO, wait)
    }

    fn wait(&self, sector: Sector, sectors: u64) -> Nanos {
        self.head.view.write_access(self.head.now, sector, sectors as u32)
    }

    /// The free block of a track that is reached soonest, and when.
    fn soonest_block(&self, track: u32) -> Option<(Nanos, u32)> {
        if self.space.track_free(track) == 0 {
            return None;
        }
        let blocks = self.space.tracks.blocks(track);
        let wait = |block: u64| self.wait(self.layout.sector_of(block as u32), self.layout.block_sectors);
        let range = u64::from(blocks.start)..u64::from(blocks.end);
        let block = soonest(range, wait, |block| self.space.is_free(block as u32))?;
        Some((wait(block), block as u32))
    }

    /// The free cell of a track that is reached soonest, and when.
    fn soonest_cell(&self, track: u32) -> Option<(Nanos, u64)> {
        let blocks = self.space.tracks.blocks(track);
        let wait = |cell: u64| self.wait(self.layout.cell_sector(cell), self.layout.cell_sectors);
        let range = self.layout.first_cell(blocks.start)..self.layout.first_cell(blocks.end);
        let cell = soonest(range, wait, |cell| self.space.is_cell_free(cell))?;
        Some((wait(cell), cell))
    }
}

/// The first free one of `range` to come under the head.
///
/// The waits along a track rise up to the place before the head's arrival, and rise again from there; so bisection
/// finds the place of arrival.
fn soonest(range: Range<u64>, wait: impl Fn(u64) -> Nanos, free: impl Fn(u64) -> bool) -> Option<u64> {
    let at_first = wait(range.start);
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if wait(middle) < at_first { high = middle } else { low = middle + 1 }
    }
    (low..range.end).chain(range.start..low).find(|&place| free(place))
}
