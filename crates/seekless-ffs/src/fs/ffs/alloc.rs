//! Where new inodes and blocks go: the policy across cylinder groups [mc84 §3.3].
//!
//!   1. A directory goes to a group with at least average free inodes, the one with the fewest directories.
//!   2. A file's inode goes to its directory's group.
//!   3. Data goes to the inode's group; each further `maxbpg` blocks, and each indirect block with the data behind it,
//!      to a group with at least average free blocks.
//!   4. A block goes behind the previous one; after `maxcontig` of them, `rotdelay` further on.
//!   5. From a full group the search continues in others, at distances 1, 2, 4 ..., and finally in each in turn.
//!
//! Differences from 4.4BSD
//!   1. A write that will not find room for all of its blocks fails before it has changed anything.

use super::Ffs;
use super::cache::BufferKind;
use super::format::*;
use super::group::GroupMut;
use super::state::*;
use crate::device::Buf;
use crate::fs::FsError;
use crate::rt::cover;

/// A search in a group, with a preferred position in the group or none.
type Search<'a> = dyn Fn(&mut GroupMut<'_>, Option<u32>) -> Option<u32> + 'a;

/// Returns the part of a write's reservation that it did not use.
pub(super) struct Promise<'a> {
    pub ffs: &'a Ffs,
    /// The file that is written, by one task at a time.
    pub ino: InodeNo,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.ffs.state.try_borrow_mut() {
            let left = state.promises.remove(&self.ino).unwrap_or(0);
            debug_assert!(state.promised_blocks >= left, "what was promised is given back once");
            state.promised_blocks -= left;
        }
    }
}

impl State {
    /// Searches the groups, the preferred one first. Returns the group and what was found in it.
    ///
    /// The search begins again for each group that has to be read, and may find the earlier ones evicted: `possible` must not
    /// name again what has been looked at and has nothing.
    fn search_groups(
        &mut self,
        first: GroupNo,
        preferred: Option<u32>,
        possible: &dyn Fn(&State, GroupNo) -> bool,
        search: &Search<'_>,
    ) -> Step<Option<(GroupNo, u32)>> {
        let groups = self.layout.groups;
        let mut order = vec![(first, preferred)];
        let mut group = first.0;
        let mut distance = 1;
        while distance < groups {
            group = (group + distance) % groups;
            order.push((GroupNo(group), None));
            distance *= 2;
        }
        order.extend((2..groups).map(|offset| (GroupNo((first.0 + offset) % groups), None)));
        if self.unreadable.has_groups() {
            order.sort_by_key(|(group, _)| self.unreadable.rank(*group));
        }
        for (group, preferred) in order {
            if !possible(self, group) {
                continue;
            }
            if let Some(found) = self.change_group(group, |map| search(map, preferred))? {
                self.counters.group_overflows += u64::from(group != first);
                return Ok(Some((group, found)));
            }
        }
        Ok(None)
    }

    // ---- Inodes ----

    /// Allocates an inode number for a file in the directory `parent`.
    pub(super) fn take_inode(&mut self, parent: InodeNo, directory: bool) -> Step<InodeNo> {
        if self.totals.nifree <= 0 {
            return fail(FsError::NoSpace);
        }
        let wanted = if directory { self.layout.first_ino(self.directory_group()) } else { parent };
        let preferred = (wanted != InodeNo::NONE).then_some(self.layout.index_in_group(wanted));
        let first = self.layout.group_of_ino(wanted);
        let avoided = self.unreadable.inode_blocks();
        let search: &Search<'_> = &|map, preferred| map.take_inode(preferred, directory, &avoided);
        let has_more_than = |state: &State, group: GroupNo, count: u32| {
            state.summaries[group.index()].nifree > count && state.room[group.index()].inodes
        };
        // Only where some are certainly in readable blocks; at last anywhere.
        let is_certain =
            |state: &State, group| has_more_than(state, group, state.unreadable.inodes_in(&state.layout, group));
        let mut found = self.search_groups(first, preferred, &is_certain, search)?;
        if found.is_none() && !avoided.is_empty() {
            found = self.search_groups(first, preferred, &|state, group| has_more_than(state, group, 0), search)?;
        }
        let Some((group, index)) = found else { return fail(FsError::NoSpace) };
        let ino = self.layout.first_ino(group) + index;
        if ino <= ROOT_INO {
            let at = format_args!("group {group}").to_string();
            return fail(FsError::corrupt("cylinder group", at, "it says that a reserved inode is free"));
        }
        Ok(ino)
    }

    /// The group for a new directory.
    fn directory_group(&self) -> GroupNo {
        let average = self.totals.nifree / i64::from(self.layout.groups);
        let (mut best, mut fewest) = (GroupNo(0), self.layout.inodes_per_group);
        for (group, summary) in self.summaries.iter().enumerate() {
            if summary.ndir < fewest && i64::from(summary.nifree) >= average {
                (best, fewest) = (GroupNo(group as u32), summary.ndir);
            }
        }
        best
    }

    /// Frees an inode number.
    pub(super) fn give_inode(&mut self, ino: InodeNo, directory: bool) -> Step<()> {
        let (group, index) = (self.layout.group_of_ino(ino), self.layout.index_in_group(ino));
        let mut refused = None;
        self.change_group(group, |map| map.free_inode(index, directory).map_err(|why| refused = Some(why)).ok())?;
        match refused {
            None => Ok(()),
            Some(why) => fail(FsError::corrupt("cylinder group", format_args!("group {group}, inode {ino}"), why)),
        }
    }

    // ---- Blocks ----

    /// What is free in groups that can be read, as far as known.
    fn readable_totals(&self) -> Totals {
        let mut totals = self.totals;
        self.unreadable.groups().for_each(|group| totals.replace(&self.summaries[group.index()], &Csum::ZERO));
        totals
    }

    /// Fragments that ordinary users may still take.
    pub(super) fn frags_available(&self) -> i64 {
        self.frags_available_of(&self.readable_totals())
    }

    /// The same, with only these free. What cannot be read counts as part of the reserve.
    pub(super) fn frags_available_of(&self, readable: &Totals) -> i64 {
        let free = |totals: &Totals| totals.nbfree * i64::from(self.layout.frag) + totals.nffree;
        let kept = if self.options.use_reserve {
            0
        } else {
            i64::from(self.layout.dsize) * i64::from(self.layout.minfree) / 100
        };
        (free(&self.totals) - kept).min(free(readable)) - self.promised_blocks * i64::from(self.layout.frag)
    }

    /// Makes sure that `has_room` is true of what is free in groups that can be read, and reads others again if need be.
    ///
    /// # Errors
    /// `NoSpace`; that of a group, if what is free in groups that cannot be read would be enough.
    pub(super) fn require_room(&mut self, has_room: impl Fn(&State, &Totals) -> bool) -> Step<()> {
        while !has_room(self, &self.readable_totals()) {
            if !has_room(self, &self.totals) {
                return fail(FsError::NoSpace);
            }
            self.retry_unreadable()?;
        }
        Ok(())
    }

    /// Reads a group again that has free blocks and could not be read.
    ///
    /// # Errors
    /// `NoSpace` when there is none.
    pub(super) fn retry_unreadable(&mut self) -> Step<()> {
        let has_free = |group: &GroupNo| {
            let Csum { nbfree, nffree, .. } = self.summaries[group.index()];
            nbfree > 0 || nffree > 0
        };
        let oldest = self.unreadable.groups().filter(has_free).min_by_key(|&group| self.unreadable.rank(group));
        let Some(group) = oldest else { return fail(FsError::NoSpace) };
        let at = self.layout.group_block(group);
        self.buffer(at, self.layout.group_block_frags(), BufferKind::Group(group))?;
        self.unreadable.note(BufferKind::Group(group), at, true);
        Ok(())
    }

    /// Fragments that one new file can have, `pending` of them once waiting frees are done; its indirect blocks and its
    /// name take some besides. Counted in whole blocks, because a write reserves whole blocks.
    pub(super) fn frags_for_new_file(&self, pending: i64) -> i64 {
        const NAME_BLOCKS: i64 = 2;
        let frag = i64::from(self.layout.frag);
        let whole = self.readable_totals().nbfree - self.promised_blocks + pending / frag;
        let blocks = ((self.frags_available() + pending) / frag).min(whole) - NAME_BLOCKS;
        let direct = blocks.min(DIRECT as i64);
        // As many as `allocations` computes.
        let pointers = i64::from(self.layout.pointers_per_block);
        let more = (blocks - 2 - INDIRECT as i64) * pointers / (pointers + 1);
        direct.max(more).max(0) * frag
    }

    /// Reserves space so that `blocks` allocations of at most a block each for the file `ino` cannot fail. Each of them uses
    /// up its part: what the file has no longer counts as promised.
    ///
    /// # Errors
    /// As [`State::require_room`].
    pub(super) fn promise(&mut self, ino: InodeNo, blocks: i64) -> Step<()> {
        if blocks == 0 {
            return Ok(());
        }
        debug_assert!(blocks > 0, "a promise is one of blocks, and takes none away");
        let frag = i64::from(self.layout.frag);
        self.require_room(|state, free| {
            state.frags_available_of(free) >= blocks * frag && free.nbfree - state.promised_blocks >= blocks
        })?;
        if !self.are_backed(blocks) {
            return fail(FsError::NoSpace);
        }
        self.changes.note();
        self.promised_blocks += blocks;
        let other = self.promises.insert(ino, blocks);
        debug_assert_eq!(other, None, "one task at a time writes a file");
        Ok(())
    }

    /// The preferred address of block `lbn`. `before` are the pointers before it in the inode or the indirect block, in
    /// which it is number `index`.
    pub(super) fn preferred_block(&mut self, ino: InodeNo, lbn: u64, index: usize, before: &[FragNo]) -> FragNo {
        debug_assert!(index <= before.len(), "the pointers before a block are known, as far as there are any");
        let layout = &self.layout;
        let previous = index.checked_sub(1).and_then(|index| before.get(index)).copied().unwrap_or_default();
        let own = layout.group_of_ino(ino);
        if index.is_multiple_of(layout.maxbpg as usize) || previous == FragNo::NONE {
            if lbn < DIRECT as u64 {
                return layout.group_base(own) + layout.frag;
            }
            let start = if previous == FragNo::NONE {
                u64::from(own.0) + lbn / u64::from(layout.maxbpg)
            } else {
                u64::from(layout.group_of(previous).0) + 1
            };
            let start = (start % u64::from(layout.groups)) as u32;
            let average = self.totals.nbfree / i64::from(layout.groups);
            let roomy = |group: &GroupNo| i64::from(self.summaries[group.index()].nbfree) >= average;
            let Some(group) = (start..layout.groups).chain(0..=start).map(GroupNo).find(roomy) else {
                return FragNo::NONE;
            };
            self.superblock.cgrotor = group.0;
            return layout.group_base(group) + layout.frag;
        }
        // A pointer on a damaged volume may be any number.
        let Some(next) = previous.checked_add(layout.frag) else { return FragNo::NONE };
        let run = layout.maxcontig as usize;
        let run_is_full = index >= run && {
            let first = before[index - run];
            u64::from(first.0) + u64::from(layout.maxcontig) * u64::from(layout.frag) == u64::from(next.0)
        };
        let rotation = &layout.rotation;
        if !run_is_full || rotation.rotdelay == 0 {
            return next;
        }
        let [delay, rps, nsect, nspf] = [rotation.rotdelay, rotation.rps, rotation.nsect, rotation.nspf].map(u64::from);
        let skipped = delay.saturating_mul(rps).saturating_mul(nsect) / (nspf * 1000);
        let skipped = skipped.min(layout.frags_per_group.into()).next_multiple_of(layout.frag.into());
        FragNo(next.0.saturating_add(skipped as u32))
    }

    /// Allocates `frags` fragments, at `preferred` if possible.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn take_frags(&mut self, ino: InodeNo, preferred: FragNo, frags: u32) -> Step<FragNo> {
        let layout = &self.layout;
        debug_assert!((1..=layout.frag).contains(&frags), "F1: a block has one to all of its fragments");
        let whole = frags == layout.frag;
        let preferred = (preferred > FragNo::NONE && preferred < layout.end()).then_some(preferred);
        let (first, in_group) = match preferred {
            Some(at) => (layout.group_of(at), Some(layout.offset_in_group(at))),
            None => (layout.group_of_ino(ino), None),
        };
        let possible = |state: &State, group: GroupNo| {
            let Csum { nbfree, nffree, .. } = state.summaries[group.index()];
            (nbfree > 0 || !whole && nffree >= frags) && state.room[group.index()].run >= frags
        };
        let backed = match self.backing.is_full {
            true => self.take_backed(preferred, frags)?,
            false => None,
        };
        let found = match backed {
            Some(at) => Some((self.layout.group_of(at), self.layout.offset_in_group(at))),
            None => self.search_groups(first, in_group, &possible, &|map, preferred| {
                if whole { map.take_block(preferred) } else { map.take_frags(preferred, frags) }
            })?,
        };
        let Some((group, in_group)) = found else {
            cover("ffs: no group has room for a block");
            return fail(FsError::NoSpace);
        };
        if group != first {
            cover("ffs: a block goes to another cylinder group");
        }
        let at = self.layout.group_base(group) + in_group;
        if !self.layout.is_data(at, frags) {
            let place = format_args!("group {group}").to_string();
            let detail = format_args!("it says that fragment {at}, which holds metadata, is free").to_string();
            return fail(FsError::corrupt("cylinder group", place, detail));
        }
        if let Some(left) = self.promises.get_mut(&ino).filter(|left| **left > 0) {
            *left -= 1;
            debug_assert!(self.promised_blocks > 0, "what a file has left of its promise is promised");
            self.promised_blocks -= 1;
        }
        self.backing.note_taken(self.layout.block_of(at));
        self.counters.blocks_taken += 1;
        self.counters.blocks_as_wanted += u64::from(Some(at) == preferred);
        Ok(at)
    }

    /// Allocates `length` consecutive blocks behind `preferred`, if there are any.
    pub(super) fn take_cluster(&mut self, preferred: FragNo, length: u32) -> Step<Option<FragNo>> {
        if self.layout.contigsumsize == 0 || preferred == FragNo::NONE || preferred >= self.layout.end() {
            return Ok(None);
        }
        if self.backing.is_full {
            return Ok(None); // Where the blocks are, they have storage, or none will find any.
        }
        if self.readable_totals().nbfree - self.promised_blocks < i64::from(length) {
            return Ok(None); // The old blocks may be free only later.
        }
        let first = self.layout.group_of(preferred);
        let in_group = Some(self.layout.offset_in_group(preferred));
        let possible = |state: &State, group: GroupNo| {
            state.room[group.index()].cluster >= length && !state.unreadable.has_group(group)
        };
        debug_assert!(length > 0, "G3: a cluster that is looked for has blocks");
        let found =
            self.search_groups(first, in_group, &possible, &|map, preferred| map.take_cluster(preferred, length))?;
        let at = found.map(|(group, in_group)| self.layout.group_base(group) + in_group);
        if let Some(first) = at.map(|at| self.layout.block_of(at)) {
            first.until(first + length).for_each(|block| self.backing.note_taken(block));
        }
        Ok(at)
    }

    /// Extends the tail of a file in its place: `old` fragments at `at` become `new`. Returns whether there was room; if not,
    /// nothing has changed.
    pub(super) fn extend_tail(&mut self, ino: InodeNo, lbn: u64, at: FragNo, old: u32, new: u32) -> Step<bool> {
        let grown = self.grown_tail(ino, lbn, at, old, new)?;
        if self.backing.is_full && !self.backing.is_partly_used(self.layout.block_of(at)) {
            return Ok(false);
        }
        let group = self.layout.group_of(at);
        let in_group = self.layout.offset_in_group(at);
        let extended = self.change_group(group, |map| map.extend(in_group, old, new).then_some(()))?;
        if extended.is_some() {
            cover("ffs: a tail grows in its place");
            self.cache.replace(at, grown.freeze());
            self.note_taken(at);
            self.counters.tails_extended += 1;
        }
        Ok(extended.is_some())
    }

    /// Copies the tail of a file, `old` fragments at `at`, to another place with `new` fragments. Returns that place, to which
    /// nothing points yet; the old one is still allocated.
    pub(super) fn copy_tail(&mut self, ino: InodeNo, lbn: u64, at: FragNo, old: u32, new: u32) -> Step<FragNo> {
        let grown = self.grown_tail(ino, lbn, at, old, new)?;
        cover("ffs: a tail moves to grow");
        let kind = self.data_kind(ino, lbn)?;
        let inode = self.inode(ino)?.inode;
        let preferred = self.preferred_block(ino, lbn, lbn as usize, &inode.db);
        let (wanted, optim) = self.tail_request(new);
        let moved = self.take_frags(ino, preferred, wanted)?;
        self.superblock.optim = optim;
        if wanted > new {
            // A whole block was allocated, so that the next growth finds the fragments behind free.
            self.free_frags(moved + new, wanted - new)?;
        }
        self.cache.create(moved, grown.freeze(), kind);
        self.note_taken(moved);
        self.counters.tails_moved += 1;
        Ok(moved)
    }

    /// The bytes of a tail that grows, with zeroes at its end.
    fn grown_tail(&mut self, ino: InodeNo, lbn: u64, at: FragNo, old: u32, new: u32) -> Step<Buf> {
        debug_assert!(old < new && new <= self.layout.frag, "F1: a tail grows, up to a whole block");
        let kind = self.data_kind(ino, lbn)?;
        let frag_bytes = self.layout.frag_bytes as usize;
        let data = self.buffer(at, old, kind)?;
        let mut grown = Buf::zeroed(new as usize * frag_bytes);
        let kept = data.len().min(old as usize * frag_bytes);
        grown[..kept].copy_from_slice(&data[..kept]);
        Ok(grown)
    }

    /// How many fragments to request when a tail of `new` moves: a whole block to save time, or exactly what is needed
    /// to save space, depending on how fragmented the free space is. Also says which of the two is saved from then on.
    fn tail_request(&self, new: u32) -> (u32, u32) {
        let (dsize, minfree) = (i64::from(self.layout.dsize), i64::from(self.layout.minfree));
        let (loose, optim) = (self.totals.nffree, self.superblock.optim);
        match optim == OPTIM_SPACE {
            true if minfree >= 5 && loose <= dsize * minfree / (2 * 100) => (new, OPTIM_TIME),
            true => (new, OPTIM_SPACE),
            false if loose >= dsize * (minfree - 2) / 100 => (self.layout.frag, OPTIM_SPACE),
            false => (self.layout.frag, optim),
        }
    }

    /// Adds a new buffer of zeroes at `at`.
    pub(super) fn zero_buffer(&mut self, at: FragNo, frags: u32, kind: BufferKind) {
        let bytes = (frags * self.layout.frag_bytes) as usize;
        self.cache.create(at, Buf::zeroed(bytes).freeze(), kind);
    }
}
