//! A cylinder group's block: the maps of its inodes and fragments, and the counts that are derived from them.
//!
//! Addresses in this file count from the start of the group. Nothing waits and nothing is read: the caller has the
//! block in memory, verified by [`verify`] and [`verify_counts`]. So the counts balance, and a wrong one is a bug here.
//! Only the count of directories cannot be derived from the maps, and is taken from the volume.
//!
//! Invariants
//!   G1  A bit of the fragment map is set when the fragment is free; fragments past the group's end are never free.
//!   G2  `frsum[n]` counts the free runs of n fragments inside blocks that are not free as a whole.
//!   G3  The cluster map has a bit for each block that is free as a whole; `clustersum[n]` counts maximal runs.
//!   G4  `btot` and `b` count free blocks by cylinder, and by cylinder and rotational position.

use std::collections::BTreeSet;

use super::format::*;
use super::layout::Layout;
use crate::codec;

/// Checks that the maps are where a group has room for them.
///
/// # Errors
/// What is wrong.
pub(super) fn verify(layout: &Layout, group: GroupNo, bytes: &[u8]) -> Result<(), String> {
    let Some(head) = Group::decode(bytes) else { return Err("it is cut off".into()) };
    if head.magic != GROUP_MAGIC {
        return Err(format!("its magic number is {:#x}, not {GROUP_MAGIC:#x}", head.magic));
    }
    if head.cgx != group {
        return Err(format!("it says that it is group {}", head.cgx));
    }
    let frags = layout.group_frags(group);
    if head.ndblk != frags {
        return Err(format!("it says that it has {} fragments, not {frags}", head.ndblk));
    }
    let end = u64::from(layout.cgsize);
    let maps = [
        ("iusedoff", head.iusedoff, u64::from(layout.inodes_per_group.div_ceil(8))),
        ("freeoff", head.freeoff, u64::from(layout.frags_per_group.div_ceil(8))),
    ];
    let clusters = [
        ("clustersumoff", head.clustersumoff, 4 * (u64::from(layout.contigsumsize) + 1)),
        ("clusteroff", head.clusteroff, u64::from((layout.frags_per_group / layout.frag).div_ceil(8))),
    ];
    // The first count of the cluster summary is never used, and may overlap the end of what comes before.
    let clusters = if layout.contigsumsize > 0 { &clusters[..] } else { &[] };
    // All systems lay them out in this order.
    let mut begin = Group::BYTES as u64 - 4;
    for &(name, at, length) in maps.iter().chain(clusters) {
        let first = if name == "clustersumoff" { begin.saturating_sub(4) } else { begin };
        if u64::from(at) < first || u64::from(at) + length > end {
            return Err(format!("field {name} is {at}, and {length} bytes there do not fit between {first} and {end}"));
        }
        begin = u64::from(at) + length;
    }
    // Runs are counted up to here; a block behind it would change counts that know nothing of it.
    let blocks = frags / layout.frag;
    if layout.contigsumsize > 0 && head.nclusterblks != blocks {
        return Err(format!("field nclusterblks is {}, not {blocks}", head.nclusterblks));
    }
    Ok(())
}

/// Checks that the counts of a verified group are those of its maps (G1 to G3), by recounting.
///
/// # Errors
/// What is wrong.
pub(super) fn verify_counts(layout: &Layout, bytes: &[u8]) -> Result<(), String> {
    let Some(head) = Group::decode(bytes) else { return Err("it is cut off".into()) };
    let (inodes, frags) = (inode_map(layout, bytes), free_map(layout, bytes));
    let mut right = bytes.to_vec();
    build(layout, &head, &mut right, head.ndir, |index| bit(inodes, index), |at| bit(frags, at));
    match difference(layout, &head, bytes, &right) {
        None if head.ndir > layout.inodes_per_group => Err(format!("it says that it has {} directories", head.ndir)),
        None => Ok(()),
        Some(what) => Err(format!("{what} do not agree with its maps")),
    }
}

/// The first difference between a group's block and the correct one that matters: in its maps or what follows from
/// them. Not all systems keep the tables by cylinder.
pub(super) fn difference(layout: &Layout, head: &Group, bytes: &[u8], right: &[u8]) -> Option<&'static str> {
    let expected = Group::decode(right)?;
    let counts = |head: &Group| (head.ndir, head.nbfree, head.nifree, head.nffree);
    let inodes = inode_map(layout, bytes) != inode_map(layout, right);
    let frags = free_map(layout, bytes) != free_map(layout, right);
    let tables = head.iusedoff as usize;
    let end = (layout.cgsize as usize).min(bytes.len()).max(tables);
    match () {
        () if inodes => Some("its used inodes"),
        () if frags => Some("its free fragments"),
        () if counts(head) != counts(&expected) => Some("its counts"),
        () if head.frsum != expected.frsum => Some("its counts of fragment runs"),
        () if bytes[tables..end] != right[tables..end] => Some("its clusters"),
        () => None,
    }
}

/// `count` changed by `change`.
///
/// # Panics
/// When the result is not a count: the group was verified, so the change is wrong.
fn balance(count: u32, change: i32, what: &str) -> u32 {
    count
        .checked_add_signed(change)
        .unwrap_or_else(|| panic!("a group's {what} cannot change from {count} by {change}"))
}

/// What a group has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    /// The longest run of free blocks; `contigsumsize` means possibly more.
    pub cluster: u32,
    /// The longest run of free fragments inside a block.
    pub run: u32,
    pub inodes: bool,
}

impl Room {
    /// For a group that has not been read: it is worth looking.
    pub(super) fn unknown(layout: &Layout) -> Room {
        Room { cluster: layout.contigsumsize, run: layout.frag, inodes: true }
    }
}

/// A verified group, to be changed.
pub(super) struct GroupMut<'a> {
    layout: &'a Layout,
    pub head: Group,
    bytes: &'a mut [u8],
}

/// Its head goes back into the block when all changes are made.
impl Drop for GroupMut<'_> {
    fn drop(&mut self) {
        self.head.encode(self.bytes);
    }
}

#[inline]
pub(super) fn bit(map: &[u8], index: u32) -> bool {
    map.get((index / 8) as usize).is_some_and(|byte| byte >> (index % 8) & 1 != 0)
}

#[inline]
pub(super) fn set_bit(map: &mut [u8], index: u32, value: bool) {
    debug_assert!(((index / 8) as usize) < map.len(), "G1: what is marked lies in its map");
    if let Some(byte) = map.get_mut((index / 8) as usize) {
        let mask = 1 << (index % 8);
        *byte = if value { *byte | mask } else { *byte & !mask };
    }
}

impl<'a> GroupMut<'a> {
    /// `bytes` have been verified; `None` when they have not been after all.
    pub(super) fn new(layout: &'a Layout, bytes: &'a mut [u8]) -> Option<GroupMut<'a>> {
        let head = Group::decode(bytes)?;
        Some(GroupMut { layout, head, bytes })
    }

    pub(super) fn summary(&self) -> Csum {
        let Group { ndir, nbfree, nifree, nffree, .. } = self.head;
        Csum { ndir, nbfree, nifree, nffree }
    }

    fn free_map(&mut self) -> &mut [u8] {
        let length = self.layout.frags_per_group.div_ceil(8) as usize;
        &mut self.bytes[self.head.freeoff as usize..][..length]
    }

    fn inode_map(&mut self) -> &mut [u8] {
        let length = self.layout.inodes_per_group.div_ceil(8) as usize;
        &mut self.bytes[self.head.iusedoff as usize..][..length]
    }

    fn cluster_map(&mut self) -> &mut [u8] {
        let length = (self.layout.frags_per_group / self.layout.frag).div_ceil(8) as usize;
        &mut self.bytes[self.head.clusteroff as usize..][..length]
    }

    fn add_clusters(&mut self, run: u32, change: i32) {
        let at = self.head.clustersumoff as usize + 4 * run.min(self.layout.contigsumsize) as usize;
        let count: u32 = codec::get_at(self.bytes, at).unwrap_or(0);
        codec::put_at(self.bytes, at, balance(count, change, "count of clusters (G3)"));
    }

    fn clusters(&self, run: u32) -> u32 {
        codec::get_at(self.bytes, self.head.clustersumoff as usize + 4 * run as usize).unwrap_or(0)
    }

    /// From the counts.
    pub(super) fn room(&self) -> Room {
        let frag = self.layout.frag;
        let has_run = |run: &u32| self.head.frsum.get(*run as usize).is_some_and(|&count| count > 0);
        let run = if self.head.nbfree > 0 { Some(frag) } else { (1..frag).rev().find(has_run) };
        let cluster = (1..=self.layout.contigsumsize).rev().find(|&run| self.clusters(run) > 0);
        Room { cluster: cluster.unwrap_or(0), run: run.unwrap_or(0), inodes: self.head.nifree > 0 }
    }

    /// The free fragments of block `block` as bits.
    fn block_bits(&mut self, block: u32) -> u8 {
        let frag = self.layout.frag;
        let at = block * frag;
        let byte = self.free_map().get((at / 8) as usize).copied().unwrap_or(0);
        (byte >> (at % 8)) & (0xff >> (8 - frag))
    }

    pub(super) fn is_block_free(&mut self, block: u32) -> bool {
        self.block_bits(block) == 0xff >> (8 - self.layout.frag)
    }

    fn set_block(&mut self, block: u32, free: bool) {
        let frag = self.layout.frag;
        debug_assert!(
            (block + 1) * frag <= self.layout.group_frags(self.head.cgx),
            "G1: a block that is marked as a whole is in the group as a whole"
        );
        let mask = (0xff_u8 >> (8 - frag)) << (block * frag % 8);
        if let Some(byte) = self.free_map().get_mut((block * frag / 8) as usize) {
            *byte = if free { *byte | mask } else { *byte & !mask };
        }
    }

    // ---- Inodes ----

    /// Allocates the inode `preferred`, or the next free one from where the last was allocated; one in the blocks `avoided` only if
    /// there is no other.
    pub(super) fn take_inode(
        &mut self,
        preferred: Option<u32>,
        directory: bool,
        avoided: &BTreeSet<FragNo>,
    ) -> Option<u32> {
        let (layout, first) = (self.layout, self.layout.first_ino(self.head.cgx));
        let is_avoided = |index: u32| !avoided.is_empty() && avoided.contains(&layout.inode_place(first + index).0);
        let count = self.layout.inodes_per_group;
        let found = match preferred {
            Some(index) if !bit(self.inode_map(), index) && !is_avoided(index) => index,
            _ => {
                let start = self.head.irotor.min(count - 1) / 8 * 8;
                let map = self.inode_map();
                let free = |index: &u32| !bit(map, *index);
                let all = || (start..count).chain(0..start);
                let found = all().find(|index| free(index) && !is_avoided(*index)).or_else(|| all().find(free))?;
                self.head.irotor = found;
                found
            }
        };
        set_bit(self.inode_map(), found, true);
        debug_assert!(bit(self.inode_map(), found), "an inode that is taken is marked as used");
        self.head.nifree = balance(self.head.nifree, -1, "count of free inodes");
        if directory {
            self.head.ndir = balance(self.head.ndir, 1, "count of directories");
        }
        Some(found)
    }

    /// # Errors
    /// What contradicts freeing the inode; then nothing has changed.
    pub(super) fn free_inode(&mut self, index: u32, directory: bool) -> Result<(), &'static str> {
        if !bit(self.inode_map(), index) {
            return Err("it says that an inode in use is free");
        }
        if directory && self.head.ndir == 0 {
            return Err("it says that it has no directories, and has one");
        }
        set_bit(self.inode_map(), index, false);
        self.head.irotor = self.head.irotor.min(index);
        self.head.nifree = balance(self.head.nifree, 1, "count of free inodes");
        debug_assert!(self.head.nifree <= self.layout.inodes_per_group, "a group has no more free inodes than inodes");
        self.head.ndir -= u32::from(directory);
        Ok(())
    }

    // ---- Blocks and fragments ----

    /// Allocates a whole block:
    ///   1. the one at `preferred`, if it is free;
    ///   2. with rotational tables, the one in the same cylinder that passes the head next;
    ///   3. the next free one from there on, or without preference from where the last was allocated.
    pub(super) fn take_block(&mut self, preferred: Option<u32>) -> Option<u32> {
        let start = match preferred {
            Some(at) => {
                let at = at / self.layout.frag * self.layout.frag;
                if self.is_block_free(at / self.layout.frag) {
                    return Some(self.claim_block(at));
                }
                if let Some(near) = self.rotationally_near(at) {
                    return Some(self.claim_block(near));
                }
                // Address 0 means no preference further down, as it always has.
                if at == 0 { self.head.frotor } else { at }
            }
            None => match self.head.rotor {
                0 => self.head.frotor,
                rotor => rotor,
            },
        };
        let found = self.search(start, self.layout.frag)?;
        self.head.rotor = found;
        Some(self.claim_block(found))
    }

    fn claim_block(&mut self, at: u32) -> u32 {
        let block = at / self.layout.frag;
        debug_assert!(at.is_multiple_of(self.layout.frag), "G3: a whole block begins where blocks do");
        debug_assert!(self.is_block_free(block), "G1: a block that is taken as a whole is free");
        self.set_block(block, false);
        self.count_block(at, false);
        debug_assert!(!self.is_block_free(block), "G1: what is taken is not free");
        at
    }

    /// Counts a block that was freed or allocated as a whole.
    fn count_block(&mut self, at: u32, free: bool) {
        let change = if free { 1 } else { -1 };
        self.head.nbfree = balance(self.head.nbfree, change, "count of free blocks");
        let blocks = self.layout.group_frags(self.head.cgx) / self.layout.frag;
        debug_assert!(self.head.nbfree <= blocks, "G3: a group has no more free blocks than blocks");
        self.count_cluster(at / self.layout.frag, free);
        self.count_position(at, change);
    }

    /// G4.
    fn count_position(&mut self, at: u32, change: i32) {
        let rotation = &self.layout.rotation;
        let cylinder = rotation.cylinder(at);
        if cylinder >= rotation.cpg {
            return;
        }
        let place = cylinder as usize * rotation.nrpos as usize + rotation.position(at) as usize;
        let (total, position) = (self.head.btotoff as usize + 4 * cylinder as usize, self.head.boff as usize);
        let position = position + 2 * place;
        // Newer systems leave these tables out; they then overlap what follows.
        let tables_end = self.head.iusedoff as usize;
        if self.head.btotoff as usize >= Group::BYTES - 4
            && total + 4 <= (self.head.boff as usize).min(self.bytes.len())
            && position + 2 <= tables_end.min(self.bytes.len())
        {
            // Not all systems keep these right; nothing relies on them.
            let count: u32 = codec::get_at(self.bytes, total).unwrap_or(0);
            if let Some(count) = count.checked_add_signed(change) {
                codec::put_at(self.bytes, total, count);
            }
            let count: u16 = codec::get_at(self.bytes, position).unwrap_or(0);
            if let Some(count) = count.checked_add_signed(change as i16) {
                codec::put_at(self.bytes, position, count);
            }
        }
    }

    fn count_cluster(&mut self, block: u32, free: bool) {
        let longest = self.layout.contigsumsize;
        if longest == 0 {
            return;
        }
        debug_assert!(bit(self.cluster_map(), block) != free, "G3: a block becomes free, or taken, once");
        set_bit(self.cluster_map(), block, free);
        let end = self.head.nclusterblks;
        let map = self.cluster_map();
        let forward =
            (block + 1..end.min(block.saturating_add(1 + longest))).take_while(|&next| bit(map, next)).count();
        let backward = (0..block).rev().take(longest as usize).take_while(|&next| bit(map, next)).count();
        let (forward, backward) = (forward as u32, backward as u32);
        let change = if free { 1 } else { -1 };
        self.add_clusters(forward + backward + 1, change);
        if backward > 0 {
            self.add_clusters(backward, -change);
        }
        if forward > 0 {
            self.add_clusters(forward, -change);
        }
    }

    /// A free block in the cylinder of `at`, the first to come under the head after it.
    fn rotationally_near(&mut self, at: u32) -> Option<u32> {
        let layout = self.layout;
        let rotation = &layout.rotation;
        if !rotation.has_tables() {
            return None;
        }
        let cylinder = rotation.cylinder(at);
        let blocks = layout.group_frags(self.head.cgx) / layout.frag;
        let in_cycle = cylinder % rotation.cpc;
        let cycle_first = u64::from(cylinder - in_cycle) * u64::from(rotation.spc)
            / (u64::from(rotation.nspf) * u64::from(layout.frag));
        let start = rotation.position(at);
        for position in (start..rotation.nrpos).chain(0..start) {
            let place = cylinder as usize * rotation.nrpos as usize + position as usize;
            let place = self.head.boff as usize + 2 * place;
            if codec::get_at::<u16>(self.bytes, place).unwrap_or(0) == 0 {
                continue;
            }
            let first = *rotation.first.get(in_cycle as usize * rotation.nrpos as usize + position as usize)?;
            let Ok(mut block) = u32::try_from(first) else { continue };
            loop {
                let candidate = cycle_first + u64::from(block);
                if candidate >= u64::from(blocks) {
                    break;
                }
                if self.is_block_free(candidate as u32) {
                    return Some(candidate as u32 * layout.frag);
                }
                match rotation.next.get(block as usize) {
                    Some(&distance) if distance > 0 => block += u32::from(distance),
                    _ => break,
                }
            }
        }
        None
    }

    /// Allocates `count` fragments, fewer than a block: from the smallest free run that is long enough, or else from a
    /// free block. The address is the group's start when the group's first fragments are meant.
    pub(super) fn take_frags(&mut self, preferred: Option<u32>, count: u32) -> Option<u32> {
        let frag = self.layout.frag;
        debug_assert!(0 < count && count < frag, "G2: a part of a block has fewer fragments than a block");
        let run = (count..frag).find(|&run| self.head.frsum[run as usize] > 0);
        let Some(run) = run else {
            if self.head.nbfree == 0 {
                return None;
            }
            let at = self.take_block(preferred)?;
            for rest in at + count..at + frag {
                set_bit(self.free_map(), rest, true);
            }
            self.count_frags((frag - count) as i32);
            self.count_run(frag - count, 1);
            return Some(at);
        };
        let start = match preferred {
            Some(at) if at > 0 => at,
            _ => self.head.frotor,
        };
        let at = self.search(start, run)?;
        debug_assert!((at..at + run).all(|one| bit(self.free_map(), one)), "G2: a run that is counted is free");
        debug_assert!(at / frag == (at + run - 1) / frag, "G2: a run of fragments lies in one block");
        for taken in at..at + count {
            set_bit(self.free_map(), taken, false);
        }
        debug_assert!(!(at..at + count).any(|one| bit(self.free_map(), one)), "G1: what is taken is not free");
        self.count_frags(-(count as i32));
        self.count_run(run, -1);
        if run > count {
            self.count_run(run - count, 1);
        }
        Some(at)
    }

    /// Allocates exactly these fragments, all in one block, if they are free.
    pub(super) fn take_exactly(&mut self, at: u32, count: u32) -> Option<()> {
        let frag = self.layout.frag;
        let block = at / frag;
        debug_assert!(0 < count && at % frag + count <= frag, "G2: fragments that are taken together lie in one block");
        let map = self.free_map();
        if (at..at + count).any(|one| !bit(map, one)) {
            return None;
        }
        if count == frag {
            self.claim_block(at);
            return Some(());
        }
        if self.is_block_free(block) {
            self.count_block(block * frag, false);
            self.count_frags(frag as i32);
        } else {
            self.count_runs(block, -1);
        }
        for taken in at..at + count {
            set_bit(self.free_map(), taken, false);
        }
        self.count_frags(-(count as i32));
        self.count_runs(block, 1);
        Some(())
    }

    /// Where `count` free fragments follow each other in the block at `at`, from there.
    pub(super) fn free_run(&mut self, at: u32, count: u32) -> Option<u32> {
        let frag = self.layout.frag;
        let bits = self.block_bits(at / frag);
        runs(bits, frag).find(|&(length, _)| length >= count).map(|(_, offset)| offset)
    }

    /// The first run of at most `most` blocks that are free as a whole and not left out, from block `first` on.
    pub(super) fn free_blocks_from(
        &mut self,
        first: u32,
        most: u32,
        is_left_out: impl Fn(u32) -> bool,
    ) -> Option<(u32, u32)> {
        let blocks = self.layout.group_frags(self.head.cgx) / self.layout.frag;
        let found = (first..blocks).find(|&block| self.is_block_free(block) && !is_left_out(block))?;
        let free = |block: &u32| self.is_block_free(*block) && !is_left_out(*block);
        Some((found, (found..blocks.min(found + most)).take_while(free).count() as u32))
    }

    fn count_run(&mut self, run: u32, change: i32) {
        if let Some(count) = self.head.frsum.get_mut(run as usize) {
            *count = balance(*count, change, "count of fragment runs (G2)");
        }
    }

    fn count_frags(&mut self, change: i32) {
        self.head.nffree = balance(self.head.nffree, change, "count of free fragments");
        let frags = self.layout.group_frags(self.head.cgx);
        debug_assert!(self.head.nffree <= frags, "G2: a group has no more free fragments than fragments");
    }

    /// Extends the `old` fragments at `at` to `new`, if those behind them are free and in the same block.
    pub(super) fn extend(&mut self, at: u32, old: u32, new: u32) -> bool {
        let frag = self.layout.frag;
        let block_end = at / frag * frag + frag;
        if new <= old || at + new > block_end {
            return false;
        }
        let map = self.free_map();
        let free = (at + old..block_end).take_while(|&next| bit(map, next)).count() as u32;
        if free < new - old {
            return false;
        }
        for taken in at + old..at + new {
            set_bit(self.free_map(), taken, false);
        }
        debug_assert!(!(at + old..at + new).any(|one| bit(self.free_map(), one)), "G1: what is taken is not free");
        self.count_run(free, -1);
        if free > new - old {
            self.count_run(free - (new - old), 1);
        }
        self.count_frags(-((new - old) as i32));
        true
    }

    /// Frees `count` fragments at `at`, all in one block.
    ///
    /// # Errors
    /// The first one that was free already; then nothing has changed.
    pub(super) fn free_frags(&mut self, at: u32, count: u32) -> Result<(), u32> {
        let frag = self.layout.frag;
        let block = at / frag;
        debug_assert!(
            count > 0 && at + count <= self.layout.group_frags(self.head.cgx),
            "G1: what is freed lies in the group"
        );
        let map = self.free_map();
        if let Some(free) = (at..at + count).find(|&one| bit(map, one)) {
            return Err(free);
        }
        if count == frag {
            debug_assert!(at.is_multiple_of(frag), "G3: a whole block begins where blocks do");
            self.set_block(block, true);
            self.count_block(at, true);
            return Ok(());
        }
        self.count_runs(block, -1);
        debug_assert!(at % frag + count <= frag, "G2: fragments that are freed together lie in one block");
        for freed in at..at + count {
            set_bit(self.free_map(), freed, true);
        }
        self.count_frags(count as i32);
        if self.is_block_free(block) {
            self.count_frags(-(frag as i32));
            self.count_block(block * frag, true);
        } else {
            self.count_runs(block, 1);
        }
        Ok(())
    }

    /// Adds the free runs of a block to the counts, or subtracts them.
    fn count_runs(&mut self, block: u32, change: i32) {
        let bits = self.block_bits(block);
        for (run, _) in runs(bits, self.layout.frag) {
            self.count_run(run, change);
        }
    }

    /// The first free run of exactly `run` fragments from `start` on, around the end of the group. A whole block counts
    /// as a run of a block's fragments.
    fn search(&mut self, start: u32, run: u32) -> Option<u32> {
        let frag = self.layout.frag;
        let blocks = self.layout.group_frags(self.head.cgx).div_ceil(frag);
        let per_byte = 8 / frag;
        // Searches begin at a byte of the map.
        let first = (start.min(self.layout.frags_per_group - 1) / 8) * per_byte;
        let found = (first..blocks).chain(0..first.min(blocks)).find_map(|block| {
            let bits = self.block_bits(block);
            if bits == 0 {
                return None;
            }
            runs(bits, frag).find(|&(length, _)| length == run).map(|(_, offset)| block * frag + offset)
        })?;
        debug_assert!(
            found + run <= self.layout.group_frags(self.head.cgx),
            "G1: what is behind the end is never free"
        );
        self.head.frotor = found / 8 * 8;
        Some(found)
    }

    /// Allocates `length` consecutive free blocks, the first such run from `preferred` on. A run before it is not used:
    /// the head would have to go back.
    pub(super) fn take_cluster(&mut self, preferred: Option<u32>, length: u32) -> Option<u32> {
        let frag = self.layout.frag;
        let start = preferred.map_or(0, |at| at / frag);
        let (mut run, mut found) = (0, None);
        for block in start..self.head.nclusterblks {
            run = if bit(self.cluster_map(), block) { run + 1 } else { 0 };
            if run == length {
                found = Some(block + 1 - length);
                break;
            }
        }
        let first = found?;
        debug_assert!(first >= start, "G3: a cluster is behind the preferred place: the head does not go back");
        if (first..first + length).any(|block| !self.is_block_free(block)) {
            return None; // The maps contradict each other.
        }
        for block in first..first + length {
            self.claim_block(block * frag);
        }
        Some(first * frag)
    }
}

/// The maximal runs of set bits among the lowest `frag`, each with its offset.
pub(super) fn runs(bits: u8, frag: u32) -> impl Iterator<Item = (u32, u32)> {
    debug_assert!((1..=FRAGS_MAX as u32).contains(&frag), "L1: the fragments of a block fit into a byte");
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < frag && bits >> at & 1 == 0 {
            at += 1;
        }
        let start = at;
        while at < frag && bits >> at & 1 != 0 {
            at += 1;
        }
        (at > start).then_some((at - start, start))
    })
}

/// The correct content of a group, for mkfs and fsck: a block from scratch.
///
/// `inode_used` and `frag_free` say what is in use; `template` provides what is kept of an existing block, or the
/// offsets of a new one.
pub(super) fn build(
    layout: &Layout,
    template: &Group,
    bytes: &mut [u8],
    directories: u32,
    inode_used: impl Fn(u32) -> bool,
    frag_free: impl Fn(u32) -> bool,
) {
    let frag = layout.frag;
    let frags = layout.group_frags(template.cgx);
    // Counts and maps are cleared; everything else in the block stays.
    let (clusters_at, clusters_end) = if layout.contigsumsize > 0 {
        let map_bytes = (layout.frags_per_group / frag).div_ceil(8);
        (template.clustersumoff as usize + 4, (template.clusteroff + map_bytes) as usize)
    } else {
        (0, 0)
    };
    for (from, to) in [
        (template.btotoff as usize, template.iusedoff as usize),
        (template.iusedoff as usize, template.iusedoff as usize + layout.inodes_per_group.div_ceil(8) as usize),
        (template.freeoff as usize, template.freeoff as usize + layout.frags_per_group.div_ceil(8) as usize),
        (clusters_at, clusters_end),
    ] {
        if (Group::BYTES - 4..=to).contains(&from) && to <= bytes.len() {
            bytes[from..to].fill(0);
        }
    }
    let Some(mut group) = GroupMut::new(layout, bytes) else { return };
    group.head = Group { nbfree: 0, nffree: 0, nifree: 0, ndir: directories, frsum: [0; FRAGS_MAX], ..*template };
    for index in 0..layout.inodes_per_group {
        if inode_used(index) {
            set_bit(group.inode_map(), index, true);
        } else {
            group.head.nifree += 1;
        }
    }
    for block in 0..frags.div_ceil(frag) {
        let free = (0..frag).filter(|offset| block * frag + offset < frags && frag_free(block * frag + offset));
        let bits: u8 = free.map(|offset| 1 << offset).sum();
        if bits == 0xff >> (8 - frag) {
            group.set_block(block, true);
            group.head.nbfree += 1;
            group.count_position(block * frag, 1);
            if layout.contigsumsize > 0 {
                set_bit(group.cluster_map(), block, true);
            }
            continue;
        }
        for (run, offset) in runs(bits, frag) {
            for at in offset..offset + run {
                set_bit(group.free_map(), block * frag + at, true);
            }
            group.head.nffree += run;
            group.count_run(run, 1);
        }
    }
    debug_assert!(
        group.head.nbfree * frag + group.head.nffree <= frags,
        "G2: a group has no more free fragments than fragments, in blocks and beside them"
    );
    if layout.contigsumsize == 0 {
        return;
    }
    let mut run = 0;
    for block in 0..=group.head.nclusterblks {
        if block < group.head.nclusterblks && bit(group.cluster_map(), block) {
            run += 1;
        } else if run > 0 {
            group.add_clusters(run, 1);
            run = 0;
        }
    }
}

/// The map of free fragments, for fsck.
pub(super) fn free_map<'a>(layout: &Layout, bytes: &'a [u8]) -> &'a [u8] {
    let head = Group::decode(bytes);
    let at = head.map_or(0, |head| head.freeoff as usize);
    bytes.get(at..at + layout.frags_per_group.div_ceil(8) as usize).unwrap_or(&[])
}

/// The map of used inodes.
pub(super) fn inode_map<'a>(layout: &Layout, bytes: &'a [u8]) -> &'a [u8] {
    let head = Group::decode(bytes);
    let at = head.map_or(0, |head| head.iusedoff as usize);
    bytes.get(at..at + layout.inodes_per_group.div_ceil(8) as usize).unwrap_or(&[])
}
