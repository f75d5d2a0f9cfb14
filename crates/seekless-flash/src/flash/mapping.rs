//! The page mapping: which place each logical unit is in, what is live, and which superblock is collected next.
//!
//! Writes fill one open superblock after another. A superblock is collected greedily: the one with the fewest live units. Only
//! what was written since the start is in memory; everything else follows from [`Start`].
//!
//! Invariants, which [`Mapping::check`] recounts
//!   F1  A place is live if and only if the unit that was written to it last is mapped to it.
//!   F2  The live count of a superblock is the number of its live places.
//!   F3  Every superblock is open, free, full, or the victim.
//!   F4  The free superblocks and the rest of the open one have room for what is still live in the victim.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::drive::{Fill, FlashError, Ssd, UNIT_BYTES};
use super::places::{CHUNK, Places};
use super::start::{NONE, Start};

/// Superblocks that no data needs: one is open, one is being collected, and one is free at least.
const RESERVE: u32 = 3;

/// Each takes some 50 bytes of memory.
const SUPERBLOCKS_MAX: u64 = 1 << 22;

#[derive(Clone, Debug)]
pub(super) struct Mapping {
    /// Units that the host sees.
    logical: u32,
    /// Units of a superblock.
    superblock: u32,
    start: Start,
    places: Places,
    blocks: Vec<Superblock>,
    open: u32,
    /// Next place in the open superblock.
    next: u32,
    free: VecDeque<u32>,
    /// Full superblocks by their live units, with the number as the tie-breaker.
    full: BTreeSet<(u32, u32)>,
    victim: Option<Victim>,
}

#[derive(Clone, Debug, Default)]
struct Superblock {
    live: u32,
    /// Which unit was written to each place since the superblock was opened last; `None` while it holds what it held at the
    /// start.
    owners: Option<Vec<u32>>,
    /// Its dies must erase their blocks before they program them.
    used: bool,
}

/// The superblock that is being collected.
#[derive(Clone, Copy, Debug)]
struct Victim {
    block: u32,
    next: u32,
}

/// What the garbage collection is to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CollectionPace {
    /// Live units to move before the host writes another.
    pub(super) units: u32,
}

impl Mapping {
    /// The drive's bytes for the host, and its spare space for the garbage collection.
    pub(super) fn new(drive: &Ssd, fill: Fill) -> Result<Mapping, FlashError> {
        let fits = |units: u64| u32::try_from(units).ok().filter(|units| *units < NONE);
        let too_large = || FlashError("a flash drive has at most 15 TiB".to_owned());
        let logical = fits(drive.bytes / UNIT_BYTES).ok_or_else(too_large)?;
        let superblock = fits(drive.cells.superblock_units()).ok_or_else(too_large)?;
        if logical == 0 {
            return Err(FlashError("a drive holds at least 4096 bytes".to_owned()));
        }
        let wanted = u64::from(logical) + u64::from(logical) * u64::from(drive.spare) / 10_000;
        // A collection is to gain a stripe at least, on average: otherwise stripes that a flush pads cost more than it gains.
        let stripe = drive.cells.stripe_units() as u32;
        let needed = u64::from(logical.div_ceil(superblock - stripe) + RESERVE);
        let blocks = wanted.div_ceil(u64::from(superblock)).max(needed);
        fits(blocks * u64::from(superblock)).ok_or_else(too_large)?;
        if blocks > SUPERBLOCKS_MAX {
            return Err(FlashError(format!(
                "{blocks} superblocks are too many; give a block more pages, or use more dies"
            )));
        }
        let blocks = blocks as u32;
        let start = Start::new(fill, logical, superblock, blocks - RESERVE + 1);
        let mut all = vec![Superblock::default(); blocks as usize];
        let mut full = BTreeSet::new();
        for block in 0..start.used() {
            let live = start.live(block);
            all[block as usize] = Superblock { live, owners: None, used: true };
            full.insert((live, block));
        }
        let mut free: VecDeque<u32> = (start.used()..blocks).collect();
        // A drive that was overwritten at random has used all of its superblocks.
        for block in free.iter().filter(|_| fill == Fill::Random) {
            all[*block as usize].used = true;
        }
        let open = free.pop_front().expect("the reserve is free");
        let mut mapping = Mapping {
            logical,
            superblock,
            start,
            places: Places::default(),
            blocks: all,
            open,
            next: 0,
            free,
            full,
            victim: None,
        };
        mapping.blocks[open as usize].owners = Some(Vec::new());
        Ok(mapping)
    }

    pub(super) fn superblock_units(&self) -> u32 {
        self.superblock
    }

    /// All units, with those that the host does not see.
    pub(super) fn physical_units(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(self.superblock)
    }

    /// Where a unit is; `None` when it was never written, or discarded.
    pub(super) fn place(&self, unit: u32) -> Option<u32> {
        let place = self.entry(unit);
        (place != NONE).then_some(place)
    }

    /// The entry of a unit in the table.
    fn entry(&self, unit: u32) -> u32 {
        self.places.get(&self.start, unit)
    }

    /// The place that the next unit gets, and whether its block must be erased before.
    pub(super) fn next_place(&self) -> (u32, bool) {
        (self.open * self.superblock + self.next, self.blocks[self.open as usize].used)
    }

    /// Puts a unit into the next place.
    pub(super) fn write(&mut self, unit: u32) {
        debug_assert!(unit < self.logical);
        self.forget(unit);
        let place = self.open * self.superblock + self.next;
        self.places.set(&self.start, unit, place);
        self.blocks[self.open as usize].live += 1;
        self.push_owner(unit);
    }

    /// Leaves the next place empty, because the drive programs whole stripes.
    pub(super) fn pad(&mut self) {
        self.push_owner(NONE);
    }

    /// The units hold nothing any more. Counting them one by one took minutes for all units of a drive that was overwritten at random; of
    /// many units, superblocks are counted once, by these units or by the others, whichever are fewer.
    pub(super) fn discard_all(&mut self, units: Range<u32>) {
        let others = self.logical - units.len() as u32;
        if units.len() < self.blocks.len() {
            units.clone().for_each(|unit| self.forget(unit));
        } else if units.len() as u32 <= others {
            let mut live: Vec<u32> = self.blocks.iter().map(|block| block.live).collect();
            self.for_each_place(units.clone(), |place| {
                let counted = &mut live[(place / self.superblock) as usize];
                assert!(*counted > 0, "F2: place {place} is live");
                *counted -= 1;
            });
            self.set_live(&live);
        } else {
            let mut live = vec![0; self.blocks.len()];
            for rest in [0..units.start, units.end..self.logical] {
                self.for_each_place(rest, |place| live[(place / self.superblock) as usize] += 1);
            }
            self.set_live(&live);
        }
        self.set_nowhere(units);
    }

    /// Calls `seen` with the place of each of the units that has one.
    fn for_each_place(&self, units: Range<u32>, mut seen: impl FnMut(u32)) {
        self.for_each_chunk(units, |_, units| units.filter_map(|unit| self.place(unit)).for_each(&mut seen));
    }

    /// Calls `seen` with each chunk in which any of the units can be, and with those units.
    fn for_each_chunk(&self, units: Range<u32>, mut seen: impl FnMut(u32, Range<u32>)) {
        let mut unit = units.start;
        while unit < units.end {
            let chunk = unit / CHUNK;
            let end = (chunk + 1).saturating_mul(CHUNK).min(units.end);
            // A fresh drive of any size is discarded in no time.
            if self.start.used() > 0 || self.places.has(chunk) {
                seen(chunk, unit..end);
            }
            unit = end;
        }
    }

    /// Takes the units, which are in no count any more, out of the table.
    fn set_nowhere(&mut self, units: Range<u32>) {
        let mut chunks = Vec::new();
        self.for_each_chunk(units, |chunk, units| chunks.push((chunk, units)));
        for (chunk, units) in chunks {
            if units.len() == CHUNK as usize {
                self.places.discard(chunk);
                continue;
            }
            for unit in units {
                if self.place(unit).is_some() {
                    self.places.set(&self.start, unit, NONE);
                }
            }
        }
    }

    /// Corrects the live units of each superblock.
    fn set_live(&mut self, live: &[u32]) {
        for (block, &live) in (0..).zip(live) {
            let before = std::mem::replace(&mut self.blocks[block as usize].live, live);
            if before != live && self.full.remove(&(before, block)) {
                self.full.insert((live, block));
                self.forget_owners(block);
            }
        }
    }

    /// How many live units to move now. The victim is to be empty when half a superblock of room is left, so that moved and
    /// new units mix evenly.
    pub(super) fn pace(&mut self) -> Option<CollectionPace> {
        let room = self.superblock - self.next + self.free.len() as u32 * self.superblock;
        if self.victim.is_none() {
            if room >= 2 * self.superblock {
                return None;
            }
            let &(live, block) = self.full.first()?;
            if live == self.superblock {
                return None; // Nothing is to be gained anywhere.
            }
            self.full.remove(&(live, block));
            self.victim = Some(Victim { block, next: 0 });
        }
        let victim = self.victim.expect("one was just chosen");
        let live = self.blocks[victim.block as usize].live;
        let units = match room.saturating_sub(live + self.superblock / 2) {
            0 => live,
            spare => live.div_ceil(spare),
        };
        Some(CollectionPace { units })
    }

    /// The next live unit of the victim, with its place; at its end the victim is free.
    pub(super) fn next_of_victim(&mut self) -> Option<(u32, u32)> {
        let Victim { block, mut next } = self.victim?;
        let mut found = None;
        while found.is_none() && next < self.superblock && self.blocks[block as usize].live > 0 {
            let place = block * self.superblock + next;
            let unit = match &self.blocks[block as usize].owners {
                Some(owners) => owners.get(next as usize).copied().unwrap_or(NONE),
                None => self.start.owner(place),
            };
            next += 1;
            found = (unit != NONE && self.entry(unit) == place).then_some((unit, place));
        }
        self.victim = Some(Victim { block, next });
        found
    }

    /// Frees the victim once nothing in it is live.
    pub(super) fn free_victim(&mut self) -> bool {
        match self.victim {
            Some(victim) if self.blocks[victim.block as usize].live == 0 => {
                self.blocks[victim.block as usize] = Superblock { live: 0, owners: Some(Vec::new()), used: true };
                self.free.push_back(victim.block);
                self.victim = None;
                true
            }
            _ => false,
        }
    }

    /// Takes a unit out of the count of its superblock, if it is in one.
    fn forget(&mut self, unit: u32) {
        let Some(place) = self.place(unit) else { return };
        let block = place / self.superblock;
        let live = self.blocks[block as usize].live;
        assert!(live > 0, "F2: superblock {block} has a live place");
        self.blocks[block as usize].live = live - 1;
        if self.full.remove(&(live, block)) {
            self.full.insert((live - 1, block));
            self.forget_owners(block);
        }
    }

    /// Of a full superblock with nothing live in it, no collection asks what was in which place. A drive that is larger than what is
    /// written to it would otherwise remember each write until its turn comes, which is for as long as it is large.
    fn forget_owners(&mut self, block: u32) {
        let superblock = &mut self.blocks[block as usize];
        if superblock.live == 0 {
            superblock.owners = Some(Vec::new());
        }
    }

    fn push_owner(&mut self, unit: u32) {
        let open = self.open;
        self.blocks[open as usize].owners.get_or_insert_default().push(unit);
        self.next += 1;
        if self.next == self.superblock {
            self.full.insert((self.blocks[open as usize].live, open));
            // It grew by doubling; it stays until the superblock is collected.
            self.blocks[open as usize].owners.get_or_insert_default().shrink_to_fit();
            self.forget_owners(open);
            self.open = self.free.pop_front().expect("F4: the garbage collection keeps a superblock free");
            self.next = 0;
            self.blocks[self.open as usize].owners = Some(Vec::new());
        }
    }

    /// Memory of the tables, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let owners: usize = self.blocks.iter().filter_map(|block| block.owners.as_ref()).map(Vec::capacity).sum();
        self.places.memory_bytes() + owners as u64 * 4
    }

    /// Recounts F1 to F3.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut live = vec![0; self.blocks.len()];
        for unit in 0..self.logical {
            if let Some(place) = self.place(unit) {
                let (block, within) = (place / self.superblock, place % self.superblock);
                let owner = match &self.blocks[block as usize].owners {
                    Some(owners) => owners[within as usize],
                    None => self.start.owner(place),
                };
                assert_eq!(owner, unit, "F1: the owner of place {place}");
                live[block as usize] += 1;
            }
        }
        let counted: Vec<u32> = self.blocks.iter().map(|block| block.live).collect();
        assert_eq!(counted, live, "F2");
        let full = self.full.iter().map(|(live, block)| {
            assert_eq!(*live, self.blocks[*block as usize].live, "F2: in the order of victims");
            *block
        });
        let mut all: Vec<u32> = full.chain(self.free.iter().copied()).chain([self.open]).collect();
        all.extend(self.victim.map(|victim| victim.block));
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..self.blocks.len() as u32), "F3");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Writes a unit as the controller does, with the collection that it needs.
    fn write(mapping: &mut Mapping, unit: u32) {
        if let Some(CollectionPace { units }) = mapping.pace() {
            for _ in 0..units {
                let Some((moved, _)) = mapping.next_of_victim() else { break };
                mapping.write(moved);
            }
            mapping.free_victim();
        }
        mapping.write(unit);
    }

    /// Aim: a discard of many units leaves what discards of each of them leave. Method: drives after random writes, and ranges of all lengths, in
    /// particular of everything, of all but a little and of about half; both ways go on being written to.
    #[test]
    fn many_units_are_discarded_as_one_by_one() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let fill = [Fill::Fresh, Fill::Sequential, Fill::Random][seed as usize % 3];
            let mut mapping = Mapping::new(&small(), fill).expect("a drive");
            let logical = mapping.logical;
            for _ in 0..rng.below(20_000) {
                write(&mut mapping, rng.below(u64::from(logical)) as u32);
            }
            let middle = logical / 2;
            let any = rng.below(u64::from(logical)) as u32;
            for units in [0..logical, 0..logical - 1, 7..logical, 0..middle + 1, middle..logical, any..any + 1, 0..any]
            {
                let (mut at_once, mut one_by_one) = (mapping.clone(), mapping.clone());
                at_once.discard_all(units.clone());
                units.clone().for_each(|unit| one_by_one.discard_all(unit..unit + 1));
                for _ in 0..2 {
                    at_once.check();
                    assert_eq!(at_once.full, one_by_one.full, "seed {seed}, {units:?}");
                    let places = |mapping: &Mapping| (0..logical).map(|unit| mapping.place(unit)).collect::<Vec<_>>();
                    assert!(places(&at_once) == places(&one_by_one), "seed {seed}, {units:?}");
                    let owners =
                        |mapping: &Mapping| mapping.blocks.iter().map(|it| it.owners.clone()).collect::<Vec<_>>();
                    assert!(owners(&at_once) == owners(&one_by_one), "seed {seed}, {units:?}");
                    for _ in 0..3000 {
                        let unit = rng.below(u64::from(logical)) as u32;
                        write(&mut at_once, unit);
                        write(&mut one_by_one, unit);
                    }
                }
            }
        }
    }

    /// A drive of 20 MiB of the catalogue's kind, whose last chunk is not whole, and which has fewer superblocks than a chunk has units.
    fn small() -> Ssd {
        let mut drive = *Ssd::named("nvme-a").expect("a drive");
        drive.bytes = (20 << 20) + 3 * UNIT_BYTES;
        (drive.cells.dies, drive.cells.channels, drive.cells.pages) = (8, 4, 4);
        drive
    }

    /// All of a terabyte that was overwritten at random is discarded in the time that its superblocks take: unit by unit, this test would take
    /// minutes.
    #[test]
    fn a_whole_drive_is_discarded_at_once() {
        let mut drive = *Ssd::named("nvme-a").expect("a drive");
        drive.bytes = 1 << 40;
        let mut mapping = Mapping::new(&drive, Fill::Random).expect("a drive");
        mapping.discard_all(0..mapping.logical);
        assert!(mapping.blocks.iter().all(|block| block.live == 0));
        assert_eq!((mapping.place(0), mapping.place(mapping.logical - 1)), (None, None));
    }
}
