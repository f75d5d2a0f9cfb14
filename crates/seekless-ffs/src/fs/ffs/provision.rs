//! Storage below that is allocated on demand, as in an image file with holes, on a host that has no room for more.
//!
//! While the host has room, nothing is asked, and the policy alone decides where blocks go. Once it has refused a write, a
//! change is accepted only if it fits into blocks that have storage. Such blocks are free ones that
//!
//!   1. were freed in this life, because they had been written;
//!   2. a sweep of the volume finds: an earlier life has freed them, or the host has room again.
//!
//! The device confirms each of them, by provisioning it, before it counts as ready. A mount may find a full
//! host: the first change of a life provisions a few blocks to learn that.
//!
//! Invariant
//!   P1  On a full host, the ready blocks that are free as a whole are enough for everything promised since it is known
//!       to be full.

use super::Ffs;
use super::backing::Blocks;
use super::format::*;
use super::group::GroupMut;
use super::state::*;
use crate::device::DeviceError;
use crate::fs::{FsError, FsResult};
use crate::rng::Rng;
use crate::units::{Nanos, SECTOR_BYTES};

/// Attempts that a full host may refuse, for one change. The first change looks for what earlier lives have left.
const REFUSED_MAX: u32 = 8;
const REFUSED_FIRST_MAX: u32 = 1 << 10;

/// Time after which a search ends with the next refusal: btrfs takes up to ten milliseconds for each.
const SEARCH_TIME: Nanos = Nanos::from_secs(1);

/// Blocks that the sweep provisions at a time. Runs that are refused as a whole are tried in parts by the next sweep.
const SWEEPS: [u32; 3] = [32, 4, 1];

/// Blocks that are provisioned at the beginning of a life, in the group of the first change, and in groups without blocks in use.
const PROBED_HERE: u32 = 4;
const PROBED_ELSEWHERE: u32 = 4;

/// Partly used blocks in which a short run of fragments is looked for.
const PARTLY_USED_TRIED: usize = 8;

impl State {
    /// Fragments whose bytes have been written, or refused.
    pub(super) fn note_backing(&mut self, at: FragNo, bytes: usize, was_refused: bool) {
        let frags = (bytes as u32).div_ceil(self.layout.frag_bytes).max(1);
        let (first, last) = (self.layout.block_of(at), self.layout.block_of(at + (frags - 1)));
        first.until(last + 1).for_each(|block| self.backing.note_written(block, was_refused));
    }

    /// Where the storage below is full, few buffers that may have none there are written at a time, `unsure` of them now, those
    /// first that have not been refused yet. When so many have been `refused`, no more are tried. Returns whether others wait for
    /// those.
    pub(super) fn hold_back(&self, places: &mut Vec<FragNo>, unsure: &mut Vec<FragNo>, refused: usize) -> bool {
        if !self.backing.is_full {
            return false;
        }
        let (mut held, sure) = std::mem::take(places).into_iter().partition(|&at| self.is_unsure(at));
        *places = sure;
        if refused >= REFUSED_MAX as usize {
            return false;
        }
        unsure.retain(|&at| self.cache.is_in_flight(at, 1));
        if unsure.is_empty() {
            held.sort_by_key(|&at| self.cache.has_failed_since(&[at], 0));
            let later = held.split_off(held.len().min(REFUSED_MAX as usize));
            unsure.clone_from(&held);
            places.append(&mut held);
            held = later;
        }
        !held.is_empty()
    }

    /// Whether a buffer holds data that may have no storage.
    fn is_unsure(&self, at: FragNo) -> bool {
        let is_data = self.cache.peek(at).is_some_and(|buffer| buffer.kind.is_file_data());
        let may_be_new = self.soft.as_deref().is_none_or(|soft| soft.is_fresh(at));
        is_data && may_be_new && !self.backing.is_partly_used(self.layout.block_of(at))
    }

    /// A group cannot be read: where its free blocks have storage is no longer known.
    pub(super) fn forget_storage_in(&mut self, group: GroupNo) {
        let (first, end) = self.blocks_of(group);
        self.backing.forget(first..end);
    }

    /// The first block of a group, and that of the next one.
    fn blocks_of(&self, group: GroupNo) -> (BlockNo, BlockNo) {
        let base = self.layout.group_base(group);
        (self.layout.block_of(base), BlockNo((base.0 + self.layout.frags_per_group).div_ceil(self.layout.frag)))
    }

    /// P1: whether so many more blocks may be promised.
    pub(super) fn are_backed(&self, blocks: i64) -> bool {
        !self.backing.is_full || self.backing.ready.len() as i64 >= self.promised_blocks + blocks
    }

    /// Allocates fragments that have storage, if any are known.
    pub(super) fn take_backed(&mut self, preferred: Option<FragNo>, frags: u32) -> Step<Option<FragNo>> {
        let near = preferred.map_or(BlockNo::default(), |at| self.layout.block_of(at));
        if frags < self.layout.frag {
            let partly: Vec<BlockNo> = {
                let known = &self.backing.partly_used;
                known.range(near..).chain(known.range(..near)).take(PARTLY_USED_TRIED).copied().collect()
            };
            for block in partly {
                let mut found = None;
                self.look_at(block, |map, at| found = map.free_run(at, frags))?;
                if let Some(offset) = found {
                    return self.take_exactly(self.layout.block_start(block) + offset, frags);
                }
            }
        }
        while let Some(block) = self.backing.ready_from(near) {
            let taken = self.take_exactly(self.layout.block_start(block), frags)?;
            if taken.is_some() {
                return Ok(taken);
            }
            debug_assert!(false, "P1: block {block} is ready, and not free");
            self.backing.ready.remove(&block);
        }
        Ok(None)
    }

    fn take_exactly(&mut self, at: FragNo, frags: u32) -> Step<Option<FragNo>> {
        let (group, in_group) = (self.layout.group_of(at), self.layout.offset_in_group(at));
        Ok(self.change_group(group, |map| map.take_exactly(in_group, frags))?.map(|()| at))
    }

    /// Looks at a block in its group, which gets its position there and does not change.
    fn look_at(&mut self, block: BlockNo, look: impl FnOnce(&mut GroupMut<'_>, u32)) -> Step<()> {
        let at = self.layout.block_start(block);
        let (group, in_group) = (self.layout.group_of(at), self.layout.offset_in_group(at));
        self.change_group(group, |map| {
            look(map, in_group);
            None::<()>
        })?;
        Ok(())
    }

    /// The next run of freed blocks that are free as a whole, at most `most` of them. Others are forgotten, and those in groups
    /// that cannot be read: the sweep finds them once they can.
    fn next_freed(&mut self, most: u32) -> Step<Option<Blocks>> {
        loop {
            let Some(&first) = self.backing.freed.first() else { return Ok(None) };
            if self.unreadable.has_group(self.layout.group_of(self.layout.block_start(first))) {
                self.backing.freed.remove(&first);
                continue;
            }
            let count = (0..most).take_while(|index| self.backing.freed.contains(&(first + *index))).count() as u32;
            let free = self.free_blocks(Blocks { first, count })?;
            if free > 0 {
                return Ok(Some(Blocks { first, count: free }));
            }
            self.backing.freed.remove(&first);
        }
    }

    /// How many of these blocks are free as a whole, from the first one on, in one group.
    fn free_blocks(&mut self, blocks: Blocks) -> Step<u32> {
        let mut free = 0;
        let frag = self.layout.frag;
        self.look_at(blocks.first, |map, at| {
            free = (0..blocks.count).take_while(|index| map.is_block_free(at / frag + index)).count() as u32;
        })?;
        Ok(free)
    }

    /// Free blocks that say whether the storage below is full.
    fn places_to_probe(&mut self, ino: InodeNo) -> Vec<BlockNo> {
        let frag = self.layout.frag;
        let seed = self.now.seconds as u64 ^ (self.totals.nbfree as u64) << 20 ^ (self.totals.nifree as u64) << 40;
        let mut rng = Rng::new(seed);
        let mut places = Vec::new();
        let own = self.layout.group_of_ino(ino);
        if self.cache.peek(self.layout.group_block(own)).is_some() {
            let base = self.layout.block_of(self.layout.group_base(own));
            let blocks = self.layout.group_frags(own) / frag;
            for _ in 0..PROBED_HERE {
                let from = rng.below(blocks.into()) as u32;
                // A block that cannot be looked at tells nothing.
                let _ = self.look_at(base, |map, _| {
                    places.extend(map.free_blocks_from(from, 1, |_| false).map(|(first, _)| base + first));
                });
            }
        }
        let unused: Vec<GroupNo> = self.layout.group_numbers().filter(|&group| self.is_unused(group)).collect();
        if !unused.is_empty() {
            for _ in 0..PROBED_ELSEWHERE {
                let group = *rng.pick(&unused);
                let block = self.layout.block_of(self.layout.group_base(group))
                    + rng.below((self.layout.group_frags(group) / frag).into()) as u32;
                places.extend(self.layout.is_data(self.layout.block_start(block), frag).then_some(block));
            }
        }
        places
    }

    /// Whether all blocks for data of a group are free.
    fn is_unused(&self, group: GroupNo) -> bool {
        let used = self.layout.bookkeeping(group);
        let Csum { nbfree, nffree, .. } = self.summaries[group.index()];
        let free = u64::from(nbfree) * u64::from(self.layout.frag) + u64::from(nffree);
        free + u64::from(used.end.0 - used.start.0) == u64::from(self.layout.group_frags(group))
    }

    /// The next run of free blocks that the sweep has not looked at, in groups that can be read. `None` at the end of the volume.
    fn next_swept(&mut self) -> Step<Option<Blocks>> {
        let frag = self.layout.frag;
        loop {
            let at = self.layout.block_start(self.backing.swept);
            if at >= self.layout.end() {
                return Ok(None);
            }
            let group = self.layout.group_of(at);
            let (_, next_group) = self.blocks_of(group);
            if self.summaries[group.index()].nbfree == 0 || self.unreadable.has_group(group) {
                self.backing.swept = next_group;
                continue;
            }
            let (most, base) = (SWEEPS[self.backing.sweep], self.layout.block_of(self.layout.group_base(group)));
            let ready = std::mem::take(&mut self.backing.ready);
            let mut found = None;
            let looked = self.look_at(self.layout.block_of(at), |map, at| {
                found = map.free_blocks_from(at / frag, most, |block| ready.contains(&(base + block)))
            });
            self.backing.ready = ready;
            looked?;
            match found {
                Some((first, count)) => return Ok(Some(Blocks { first: base + first, count })),
                None => self.backing.swept = next_group,
            }
        }
    }
}

impl Ffs {
    /// Has storage ready for so many blocks more, where the storage below is full. No other change may be promised anything in
    /// the time.
    ///
    /// # Errors
    /// `NoSpace`, and those of the device.
    pub(super) async fn stock(&self, ino: InodeNo, blocks: i64) -> FsResult<()> {
        debug_assert!(self.backing_gate.is_held(), "P1: changes are promised blocks one after the other");
        self.probe(ino).await?;
        if self.state.borrow().are_backed(blocks) {
            return Ok(());
        }
        let most = if std::mem::replace(&mut self.state.borrow_mut().backing.was_full, true) {
            REFUSED_MAX
        } else {
            REFUSED_FIRST_MAX
        };
        let begun = self.rt.now();
        let (mut refused, mut ends, mut parts) = (0, 0, Vec::new());
        while !self.state.borrow().are_backed(blocks) {
            if refused == most || refused > 0 && self.rt.now() - begun > SEARCH_TIME {
                return Err(FsError::NoSpace);
            }
            let freed = match parts.pop() {
                Some(part) => Some(part),
                None => self.step(|state| state.next_freed(SWEEPS[0])).await?,
            };
            if let Some(run) = freed {
                if self.provision(run, false).await? {
                    continue;
                }
                refused += 1;
                if run.count > 1 {
                    let half = run.count / 2;
                    parts.push(Blocks { first: run.first + half, count: run.count - half });
                    parts.push(Blocks { first: run.first, count: half });
                }
                continue;
            }
            match self.step(|state| state.next_swept()).await? {
                Some(run) => {
                    self.state.borrow_mut().backing.swept = run.first + run.count;
                    refused += u32::from(!self.provision(run, true).await?);
                }
                None => {
                    if ends == 0 {
                        self.retry_one_group().await?;
                    }
                    let mut state = self.state.borrow_mut();
                    state.backing.sweep = (state.backing.sweep + 1) % SWEEPS.len();
                    state.backing.swept = BlockNo::default();
                    ends += 1;
                    if ends > SWEEPS.len() {
                        return Err(FsError::NoSpace);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads one of the groups again that could not be read, so that the sweep looks at it if it can.
    async fn retry_one_group(&self) -> FsResult<()> {
        match self.step(State::retry_unreadable).await {
            Err(error) if !error.is_of_one_place() && error != FsError::NoSpace => Err(error),
            _ => Ok(()),
        }
    }

    /// Provisions free blocks, which are then ready. False when there is no room.
    async fn provision(&self, blocks: Blocks, is_swept: bool) -> FsResult<bool> {
        let is_provisioned = self.provision_at(blocks.first, blocks.count).await?;
        // Others may have been allocated in the time, or the group has become unreadable.
        let free = match self.step(|state| state.free_blocks(blocks)).await {
            Err(error) if error.is_of_one_place() => 0,
            free => free?,
        };
        let backing = &mut self.state.borrow_mut().backing;
        for block in blocks.first.until(blocks.first + blocks.count) {
            backing.freed.remove(&block);
        }
        match is_provisioned {
            true => backing.found(Blocks { count: free, ..blocks }, is_swept),
            false => backing.found_full(),
        }
        Ok(is_provisioned)
    }

    /// Learns whether the storage below is full, with the first change of a life: provisions some free blocks here and there,
    /// other ones in each life. Nothing is read for that. A group without blocks in use is known from its summary.
    async fn probe(&self, ino: InodeNo) -> FsResult<()> {
        if std::mem::replace(&mut self.state.borrow_mut().backing.has_probed, true) {
            return Ok(());
        }
        let places = self.state.borrow_mut().places_to_probe(ino);
        for place in places {
            if !self.provision_at(place, 1).await? {
                self.state.borrow_mut().backing.found_full();
                break;
            }
        }
        Ok(())
    }

    /// False when there is no room.
    async fn provision_at(&self, block: BlockNo, count: u32) -> FsResult<bool> {
        let (sector, sectors) = {
            let layout = &self.state.borrow().layout;
            let bytes = u64::from(count) * u64::from(layout.block_bytes);
            (layout.sector(layout.block_start(block)), bytes / SECTOR_BYTES)
        };
        match self.device.provision(sector, sectors).await {
            Ok(()) => Ok(true),
            Err(DeviceError::NoSpace { .. }) => Ok(false),
            Err(error) => Err(FsError::Device(error)),
        }
    }
}
