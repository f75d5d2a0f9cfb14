//! Runs steps: from a request to the volume in memory, and on to the blocks that the step needs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use futures_util::future::{LocalBoxFuture, join_all};

use super::format::*;
use super::state::*;
use super::tree::*;
use super::{LogBackend, LogFs, file};
use crate::device::{Buf, Data, DeviceError, WriteFlags, read_right};
use crate::fs::step;
use crate::fs::{FsError, FsResult};
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Attributes of one group of inodes take about as many sectors; further apart, one read for all costs more than a
/// revolution.
const ATTRIBUTES_BESIDE_SECTORS: u64 = INODE_GROUP_SECTORS * INODES_PER_SECTOR;

/// Number of recent reads of inodes with attributes before them that are kept: walking a tree reads a directory's inode
/// between those of two files.
const ATTRIBUTE_READS_KEPT: usize = 4;

/// How often a step on a full volume has everything written back. The first time frees all that was being freed when it
/// began; by then, other clients may have freed more and taken it.
const WAITS_FOR_LAST_ROOM_MAX: u32 = 64;

/// What is read for an inode: those beside it, and attributes.
struct InodeGroup {
    /// Sectors of attributes in front of the inodes.
    before: u64,
    /// Of the inodes.
    first: Sector,
    sectors: u64,
    /// An earlier read, which ended where this one begins, and had their attributes.
    read_before: Option<AttributesRead>,
}

impl InodeGroup {
    fn start(&self) -> Sector {
        Sector(self.first.0 - self.before)
    }
}

impl<L: LogBackend> LogFs<L> {
    /// Repeats `step` until it ends with a result, and loads what it asks for.
    pub(in crate::fs) async fn run<T>(&self, mut step: impl FnMut(&mut State<L>) -> Step<T>) -> FsResult<T> {
        let mut result = None;
        self.run_untyped(&mut |state| step(state).map(|value| result = Some(value))).await?;
        Ok(step::result(result))
    }

    /// Apart from [`LogFs::run`], so that it is compiled once and not for each step.
    async fn run_untyped(&self, step: &mut dyn FnMut(&mut State<L>) -> Step<()>) -> FsResult<()> {
        let attempt = || {
            let mut state = self.state.borrow_mut();
            state.now = self.rt.wall();
            step::attempt(&mut *state, &mut *step)
        };
        let mut waits_for_last_room = 0;
        // All of these are boxed, so that operations that find everything in memory are small, and loading is compiled once.
        step::complete(attempt, async |need| match need {
            Need::Load(load) => self.load(load).await.or_else(|error| self.look_elsewhere(load, error)),
            Need::Wait(Wait::LastRoom) if waits_for_last_room == WAITS_FOR_LAST_ROOM_MAX => Err(FsError::NoSpace),
            Need::Wait(Wait::LastRoom) => {
                waits_for_last_room += 1;
                L::wait(self, Wait::WriteBack).await
            }
            Need::Wait(Wait::Reclaim(ino)) => self.reclaim(ino).await,
            Need::Wait(wait) => L::wait(self, wait).await,
        })
        .await
    }

    /// What could not be loaded is passed over when it is a part of the inode map: a step that looks for a free number finds one
    /// in another part, and any other step asks for it again.
    ///
    /// # Errors
    /// `error`, if it is of anything else, or the part was passed over before.
    fn look_elsewhere(&self, load: Load, error: FsError) -> FsResult<()> {
        match load {
            Load::Block(id)
                if error.is_of_one_place() && self.state.borrow_mut().note_unusable_numbers(L::numbers_in(id)) =>
            {
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// As [`LogFs::run`], for operations of users: also starts writing back what they have made dirty.
    pub(in crate::fs) async fn operate<T>(&self, step: impl FnMut(&mut State<L>) -> Step<T>) -> FsResult<T> {
        self.count_operation();
        let result = self.run(step).await?;
        self.write_back_if_due()?;
        Ok(result)
    }

    /// Makes one file or everything durable, for a user.
    pub(in crate::fs) async fn sync_for_user(&self, file: Option<Ino>) -> FsResult<()> {
        self.count_operation();
        if self.state.borrow().read_only {
            return Ok(());
        }
        L::sync(&self.this(), file).await
    }

    pub(super) fn count_operation(&self) {
        self.operations.set(self.operations.get() + 1);
    }

    /// Frees the remaining blocks of a file that has been truncated or has lost its last name and user.
    pub(in crate::fs) fn reclaim(&self, ino: Ino) -> LocalBoxFuture<'_, FsResult<()>> {
        Box::pin(async move {
            loop {
                match self.run(|state| file::reclaim_step(state, ino)).await {
                    Ok(false) => {}
                    // Another task has done it.
                    Ok(true) | Err(FsError::Stale) => return self.write_back_if_due(),
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// Frees the blocks of a file that an operation has left with some to be freed, or without names and users. What cannot be freed for lack of
    /// room is left to the timer: the operation has been done.
    ///
    /// # Errors
    /// Others, of the device or of damage.
    pub(in crate::fs) async fn free_left(&self, ino: Ino) -> FsResult<()> {
        let freed = self.reclaim(ino).await;
        self.later_if_full(ino, freed)
    }

    /// Frees an orphan that a crash has left, likewise. An unreadable one stays an orphan, with a warning, and the check names the damage: the
    /// rest of the volume can be used.
    ///
    /// # Errors
    /// Those that concern more than this file.
    pub(in crate::fs) async fn free_orphan(&self, ino: Ino) -> FsResult<()> {
        // Where not all can be freed, the file must not grow over the rest.
        let marked = self.run(|state| {
            if is_internal(ino) {
                return fail(FsError::Stale);
            }
            state.inode(ino)?.reclaiming = true;
            Ok(())
        });
        let freed = match marked.await {
            Ok(()) => self.free_left(ino).await,
            // The list is wrong, which the check says. There is nothing to free.
            Err(FsError::Stale) => Ok(()),
            Err(error) => Err(error),
        };
        self.orphan_freed(ino, freed)
    }

    /// Tries again to free what there was no room for, until there is none again.
    pub(in crate::fs) async fn free_unfreed(&self) {
        loop {
            let Some(ino) = self.state.borrow_mut().unfreed.pop_first() else { return };
            // Another task may have freed it since.
            if !L::is_orphan(&self.state.borrow(), ino) {
                continue;
            }
            // An error that concerns more stops the volume.
            let _ = self.free_orphan(ino).await;
            if self.state.borrow().unfreed.contains(&ino) {
                return;
            }
        }
    }

    /// Notes a file whose blocks could not be freed for lack of room.
    pub(in crate::fs) fn later_if_full(&self, ino: Ino, freed: FsResult<()>) -> FsResult<()> {
        if freed == Err(FsError::NoSpace) {
            self.state.borrow_mut().unfreed.insert(ino);
            return Ok(());
        }
        freed
    }

    /// Turns the result of freeing an orphan into a warning where possible.
    fn orphan_freed(&self, ino: Ino, freed: FsResult<()>) -> FsResult<()> {
        let is_own = match &freed {
            Err(FsError::Corrupt { .. }) => true,
            Err(FsError::Device(error)) => error.is_of_medium(),
            _ => false,
        };
        match freed {
            Err(error) if is_own && self.state.borrow().stopped.is_none() => {
                self.warn(format!("inode {ino}, which was being removed or cut, cannot be freed: {error}"));
                Ok(())
            }
            other => other,
        }
    }

    /// Starts writing back once enough is dirty.
    pub(in crate::fs) fn write_back_if_due(&self) -> FsResult<()> {
        if self.state.borrow().has_batch() {
            self.write_back_wanted.notify();
        }
        Ok(())
    }

    // ---- Reading ----

    /// Loads one thing into memory, unless it has changed or arrived in the meantime; the step that asked looks again.
    pub(in crate::fs) fn load(&self, load: Load) -> LocalBoxFuture<'_, FsResult<()>> {
        Box::pin(async move {
            match load {
                Load::Block(id) if self.wait_for_leaf(id).await => Ok(()),
                Load::Block(id) => self.load_block(id).await,
                Load::Inode(ino) => self.load_inode(ino).await,
                Load::Xattr(ino) => self.load_xattr(ino).await,
            }
        })
    }

    /// Reads sectors of the log. What is still in flight is taken from memory, and only the rest is read: a write that waits for room
    /// below does not keep a read waiting.
    pub(in crate::fs) async fn read_log(&self, at: Sector, sectors: u64) -> FsResult<Buf> {
        let found = self.state.borrow().in_flight_at(at, sectors);
        match found {
            None => read_sectors(&self.device, at, sectors).await,
            Some(Some((data, from))) => Ok(Buf::from_slice(&data[from..from + (sectors * SECTOR_BYTES) as usize])),
            Some(None) => self.read_partly_in_flight(at, sectors).await,
        }
    }

    async fn read_partly_in_flight(&self, at: Sector, sectors: u64) -> FsResult<Buf> {
        let end = at + sectors;
        let offset = |sector: Sector| ((sector - at) * SECTOR_BYTES) as usize;
        let mut whole = Buf::dirty(offset(end));
        let mut covered = Vec::new();
        {
            let state = self.state.borrow();
            for flight in &state.in_flight {
                let flight_end = flight.at + flight.data.len() as u64 / SECTOR_BYTES;
                let (from, to) = (flight.at.max(at), flight_end.min(end));
                if from < to {
                    let within = ((from - flight.at) * SECTOR_BYTES) as usize;
                    let bytes = offset(to) - offset(from);
                    whole[offset(from)..offset(to)].copy_from_slice(&flight.data[within..within + bytes]);
                    covered.push((from, to));
                }
            }
        }
        covered.sort_unstable();
        covered.push((end, end));
        let mut next = at;
        for (from, to) in covered {
            if next < from {
                let read = read_sectors(&self.device, next, from - next).await?;
                whole[offset(next)..offset(from)].copy_from_slice(&read);
            }
            next = next.max(to);
        }
        debug_assert_eq!(next, end, "each sector is taken from memory or read");
        Ok(whole)
    }

    /// As [`LogFs::read_log_checked`], for content whose checksum is `crc`.
    pub(in crate::fs) async fn read_log_right(&self, at: Sector, sectors: u64, crc: u32) -> FsResult<Buf> {
        self.read_log_checked(at, sectors, |bytes| crate::codec::crc32c(bytes) == crc).await
    }

    /// As [`LogFs::read_log`], for content that can be verified: from another reading of the device when the default
    /// one returns wrong data, or none. The caller checks the result again.
    async fn read_log_checked(&self, at: Sector, sectors: u64, is_right: impl Fn(&[u8]) -> bool) -> FsResult<Buf> {
        let read = self.read_log(at, sectors).await;
        let is_doubtful = match &read {
            Ok(read) => !is_right(read),
            Err(FsError::Device(error)) => error.is_of_medium(),
            Err(_) => false,
        };
        if !is_doubtful || self.state.borrow().in_flight_at(at, sectors).is_some() {
            return read;
        }
        read_right(&self.device, at, sectors, is_right).await.map_or(read, Ok)
    }

    pub(super) async fn load_block(&self, id: BlockId) -> FsResult<()> {
        let wanted = self.peek_pointer(id)?;
        let Some(Pointer::Mapped { at, sectors, crc }) = wanted else { return Ok(()) };
        let stored = self.read_log_right(at, sectors.into(), crc).await?;
        let mut state = self.state.borrow_mut();
        state.block_reads += 1;
        // In the meantime the block may have been changed, moved or freed, and its old address overwritten.
        if !matches!(state.pointer(id), Ok(now) if Some(now) == wanted) {
            return Ok(());
        }
        if crate::codec::crc32c(&stored) != crc {
            return Err(FsError::corrupt("block", format_args!("{id:?}, sector {at}"), "its checksum does not match"));
        }
        debug_assert!(stored.len() <= BLOCK_BYTES, "a pointer that was checked leads to no more than a block");
        let block = if stored.len() == BLOCK_BYTES {
            stored
        } else {
            let mut block = Buf::dirty(BLOCK_BYTES);
            block[..stored.len()].copy_from_slice(&stored);
            block[stored.len()..].fill(0);
            block
        };
        state.blocks.insert_clean(id, block.freeze());
        Ok(())
    }

    /// The address of a block, when it is known without loading anything.
    fn peek_pointer(&self, id: BlockId) -> FsResult<Option<Pointer>> {
        match self.state.borrow_mut().pointer(id) {
            Ok(pointer) => Ok(Some(pointer)),
            Err(Stop::Fail(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Reads an inode, and with it those written beside it, which are probably needed next. While attributes are
    /// requested as well, the same read covers the attributes written with these inodes. A read for each file would
    /// cost a revolution, since they are stored just before what has just been read.
    async fn load_inode(&self, ino: Ino) -> FsResult<()> {
        let slot = match self.state.borrow_mut().inode_slot(ino) {
            Ok(slot) => slot,
            Err(Stop::Fail(error)) => return Err(error),
            Err(_) => return Ok(()),
        };
        // Attributes come with their groups.
        if !self.state.borrow().attributes_follow && self.load_window(ino, slot).await? {
            return Ok(());
        }
        let mut group = self.group_of(ino, slot);
        let stored = self.read_group(ino, slot, &mut group).await?;
        self.keep_group(ino, slot, &group, &stored)
    }

    /// What to read for the inode at `slot`: its group, as far as it is in the log.
    fn group_of(&self, ino: Ino, slot: InodeSlot) -> InodeGroup {
        let mut state = self.state.borrow_mut();
        let first = state.group_start(ino, slot.sector());
        let is_whole =
            |start: Sector, sectors| L::holds(&state, start, sectors) && state.in_flight_at(start, sectors).is_none();
        // Read from where they begin if this is the first inode of its group; those of earlier inodes are not
        // needed then.
        let mut before = match state.attributes_follow {
            true => L::attribute_sectors_before(&state, slot.sector()).saturating_sub(slot.sector().0 - first.0),
            false => 0,
        };
        // A group that is not aligned takes two reads; the first has brought the attributes for both.
        let mut read_before = None;
        if before > 0 {
            read_before = state.attributes_read.iter().find(|read| end_of(read.at, &read.data) == first).cloned();
            before = if read_before.is_some() { 0 } else { before };
        }
        let sectors = INODE_GROUP_SECTORS;
        match () {
            () if is_whole(Sector(first.0 - before), before + sectors) => {
                InodeGroup { before, first, sectors, read_before }
            }
            () if is_whole(first, sectors) => InodeGroup { before: 0, first, sectors, read_before },
            () => InodeGroup { before: 0, first: slot.sector(), sectors: 1, read_before },
        }
    }

    /// Reads `group`, or only the sector of the inode at `slot` where not all of it can be read.
    async fn read_group(&self, ino: Ino, slot: InodeSlot, group: &mut InodeGroup) -> FsResult<Data> {
        let is_ours = |sector: &[u8]| Inode::unseal(&sector[slot.offset()..]).is_some_and(|inode| inode.ino == ino.0);
        let mut stored = match self.read_log(group.start(), group.before + group.sectors).await {
            // The inode's own sector may be readable where those beside it are not, or in another reading.
            Err(FsError::Device(error)) if error.is_of_medium() => {
                (group.before, group.first) = (0, slot.sector());
                self.read_log_checked(group.first, 1, is_ours).await?
            }
            other => other?,
        };
        let place = ((slot.sector() - group.start()) * SECTOR_BYTES) as usize;
        let own = place..place + SECTOR_BYTES as usize;
        if !is_ours(&stored[own.clone()])
            && self.state.borrow().in_flight_at(slot.sector(), 1).is_none()
            && let Some(right) = read_right(&self.device, slot.sector(), 1, is_ours).await
        {
            stored[own].copy_from_slice(&right);
        }
        Ok(stored.freeze())
    }

    /// Enters the inodes of a group that was read: the one at `slot`, and those that are current and not in memory yet.
    fn keep_group(&self, ino: Ino, slot: InodeSlot, group: &InodeGroup, stored: &Data) -> FsResult<()> {
        let bytes = &stored[(group.before * SECTOR_BYTES) as usize..];
        let mut state = self.state.borrow_mut();
        state.inode_reads += 1;
        // Whether the files in this read had their attributes there. Directories seldom have any, which says nothing
        // about the files in them.
        let mut attributes_found = None;
        let mut with_attributes = |inode: Inode, slot| {
            let mut known = InodeMem::new(inode, slot);
            known.xattr = attributes_of(&inode, group.start(), stored)
                .or_else(|| group.read_before.as_ref().and_then(|read| attributes_of(&inode, read.at, &read.data)));
            if inode.kind() == Some(crate::fs::FileKind::Regular) {
                attributes_found = Some(known.xattr.is_some() || attributes_found == Some(true));
            }
            known
        };
        for (index, raw) in bytes.chunks_exact(Inode::BYTES).enumerate() {
            let here = InodeSlot(group.first.0 * INODES_PER_SECTOR + index as u64);
            let inode = Inode::unseal(raw);
            if here == slot {
                let still = matches!(state.inode_slot(ino), Ok(now) if now == slot);
                match inode {
                    _ if !still => {}
                    Some(inode) if inode.ino == ino.0 => {
                        let known = with_attributes(inode, slot);
                        state.insert_inode(ino, known);
                    }
                    _ => {
                        let place = format_args!("sector {}", slot.sector());
                        return Err(FsError::corrupt(
                            "inode",
                            place,
                            format_args!("it is not inode {ino}, or damaged"),
                        ));
                    }
                }
            } else if let Some(inode) = inode {
                // Only the map knows whether this version is the current one.
                let neighbour = Ino(inode.ino);
                if !state.inodes.contains_key(&neighbour) && matches!(state.inode_slot(neighbour), Ok(at) if at == here)
                {
                    let mut known = with_attributes(inode, here);
                    (known.referenced, known.ahead) = (false, true);
                    state.insert_inode(neighbour, known);
                }
            }
        }
        if group.before > 0 {
            let at = group.start();
            state.attributes_read.push_front(AttributesRead { at, data: stored.clone() });
            state.attributes_read.truncate(ATTRIBUTE_READS_KEPT);
            state.attributes_follow = attributes_found.unwrap_or(true);
        }
        Ok(())
    }

    /// Reads those of the inodes that are not in memory, all windows and groups at once. Errors are left to the callers
    /// that need the inode.
    pub(in crate::fs) async fn load_inodes(&self, inos: impl Iterator<Item = Ino>) {
        let mut missing: Vec<Ino> = inos.collect();
        self.state.borrow().retain_missing(&mut missing);
        let has_windows = !missing.is_empty() && self.state.borrow().volume.read_around_bytes > 0;
        self.load_groups(&missing, true).await;
        if has_windows {
            // What came with no window: too many were being read, or it is in another segment.
            self.state.borrow().retain_missing(&mut missing);
            self.load_groups(&missing, false).await;
        }
    }

    /// Reads inodes that are missing, one of each window, or of each group alone, at the same time.
    async fn load_groups(&self, missing: &[Ino], in_windows: bool) {
        let mut groups: BTreeMap<Sector, Ino> = BTreeMap::new();
        for &ino in missing {
            let group = self.run(|state| {
                let at = state.inode_slot(ino)?.sector();
                if let Some(start) = state.window_start(at).filter(|_| in_windows && !state.attributes_follow) {
                    return Ok((!groups.contains_key(&start)).then_some(start));
                }
                let before = groups.range(..=at).next_back();
                let is_known = before.is_some_and(|(&start, _)| at - start < INODE_GROUP_SECTORS);
                Ok(if is_known { None } else { Some(state.group_start(ino, at)) })
            });
            if let Ok(Some(start)) = group.await {
                groups.insert(start, ino);
            }
        }
        if groups.len() > 1 {
            join_all(groups.into_values().map(|ino| self.load_inode(ino))).await;
        }
    }

    /// Reads the attributes of a file, and also those of files written beside it that are in memory without theirs: the
    /// end of a segment separates many attributes from their inodes at once.
    async fn load_xattr(&self, ino: Ino) -> FsResult<()> {
        let pointer_now = |state: &mut State<L>| state.inode(ino).ok().and_then(|known| known.inode.xattr_pointer());
        let wanted = pointer_now(&mut self.state.borrow_mut());
        let Some(pointer) = wanted.filter(|pointer| pointer.is_mapped()) else { return Ok(()) };
        let beside = self.state.borrow().attributes_beside(ino, pointer);
        if let Some((first, sectors)) = beside {
            match self.read_log(first, sectors).await {
                Ok(stored) => self.state.borrow_mut().take_attributes(ino, first, &stored),
                // Those of this file alone may be readable.
                Err(FsError::Device(error)) if error.is_of_medium() => {}
                Err(error) => return Err(error),
            }
            // Otherwise the pointer has changed in the meantime, or the content there is not the file's.
            if !matches!(self.state.borrow_mut().inode(ino), Ok(known) if known.xattr.is_none()) {
                return Ok(());
            }
        }
        let stored = L::read_xattr(self, ino, pointer).await?;
        let mut state = self.state.borrow_mut();
        if pointer_now(&mut state) != wanted {
            return Ok(());
        }
        let Some(stored) = stored else {
            return Err(FsError::corrupt(
                "extended attributes",
                format_args!("inode {ino}"),
                "their checksum does not match",
            ));
        };
        if let Ok(known) = state.inode(ino)
            && known.xattr.is_none()
            && !known.xattr_dirty
        {
            known.xattr = Some(stored.freeze());
            state.count_attributes(ino);
        }
        state.expect_attributes(ino);
        Ok(())
    }
}

impl<L: LogBackend> State<L> {
    /// Sectors that hold the attributes of `ino` together with others that are needed: the first sector and the number,
    /// when there are others.
    fn attributes_beside(&self, ino: Ino, pointer: Pointer) -> Option<(Sector, u64)> {
        let Pointer::Mapped { at, sectors, .. } = pointer else { return None };
        let (mut first, mut end) = (at, at + u64::from(sectors));
        for known in numbers(group_around(ino)).filter_map(|number| self.inodes.get(&number)) {
            if known.xattr.is_none()
                && !known.xattr_dirty
                && let Some(Pointer::Mapped { at: other, sectors, .. }) = known.inode.xattr_pointer()
                && other.0.abs_diff(at.0) < ATTRIBUTES_BESIDE_SECTORS
            {
                first = first.min(other);
                end = end.max(other + u64::from(sectors));
            }
        }
        let count = end.0 - first.0;
        let is_more = count > u64::from(sectors) && count <= 2 * ATTRIBUTES_BESIDE_SECTORS;
        (is_more && L::holds(self, first, count) && self.in_flight_at(first, count).is_none()).then_some((first, count))
    }

    /// Gives inodes those of their attributes that are in what was read from `first` on.
    fn take_attributes(&mut self, ino: Ino, first: Sector, stored: &[u8]) {
        for number in numbers(group_around(ino)) {
            if let Some(known) = self.inodes.get_mut(&number)
                && known.xattr.is_none()
                && !known.xattr_dirty
            {
                known.xattr = attributes_of(&known.inode, first, stored);
                self.count_attributes(number);
            }
        }
        self.expect_attributes(ino);
    }

    /// A caller that asks for attributes stored before their inode will probably ask for those of the next inodes.
    fn expect_attributes(&mut self, ino: Ino) {
        if let Some(known) = self.inodes.get(&ino)
            && let Some(Pointer::Mapped { at, .. }) = known.inode.xattr_pointer()
            && let Some(distance) = known.slot.sector().0.checked_sub(at.0)
        {
            self.attributes_follow |= distance <= INODE_GROUP_SECTORS * (INODES_PER_SECTOR + 1);
        }
    }

    /// Data in flight to these sectors: all of it and the offset at which they begin, or only a part of them.
    pub(in crate::fs) fn in_flight_at(&self, at: Sector, sectors: u64) -> Option<Option<(Data, usize)>> {
        let mut overlaps = false;
        for flight in &self.in_flight {
            let flight_end = flight.at + flight.data.len() as u64 / SECTOR_BYTES;
            if flight.at <= at && at + sectors <= flight_end {
                return Some(Some((flight.data.clone(), ((at - flight.at) * SECTOR_BYTES) as usize)));
            }
            overlaps |= flight.at < at + sectors && at < flight_end;
        }
        overlaps.then_some(None)
    }
}

/// Reads `sectors` at `at`, in requests of the size and alignment that the device requires.
pub(in crate::fs) async fn read_sectors(device: &crate::device::Device, at: Sector, sectors: u64) -> FsResult<Buf> {
    Ok(crate::device::read_span(device, at, sectors, None).await?)
}

/// Writes `data` at `at` in requests of the size that the device requires.
pub(in crate::fs) async fn write_sectors(
    device: &crate::device::Device,
    at: Sector,
    data: Data,
    flags: WriteFlags,
) -> Result<(), DeviceError> {
    let most = device.geometry().request_bytes_max as usize;
    if data.len() <= most {
        return device.write(at, data, flags).await;
    }
    let writes = (0..data.len()).step_by(most).map(|from| {
        let piece = data.slice(from..(from + most).min(data.len()));
        device.write(at + from as u64 / SECTOR_BYTES, piece, flags)
    });
    join_all(writes).await.into_iter().collect()
}

fn numbers(range: RangeInclusive<Ino>) -> impl Iterator<Item = Ino> {
    (range.start().0..=range.end().0).map(Ino)
}

fn end_of(at: Sector, read: &[u8]) -> Sector {
    at + read.len() as u64 / SECTOR_BYTES
}

/// The attributes of `inode`, when they are among the sectors read from `at` on.
fn attributes_of(inode: &Inode, at: Sector, bytes: &[u8]) -> Option<Data> {
    let Some(Pointer::Mapped { at: wanted, sectors, crc }) = inode.xattr_pointer() else { return None };
    let from = usize::try_from(wanted.0.checked_sub(at.0)?.checked_mul(SECTOR_BYTES)?).ok()?;
    let found = bytes.get(from..from.checked_add(usize::from(sectors) * SECTOR_BYTES as usize)?)?;
    // A wrong checksum leads to another read, and then it is an error.
    (crate::codec::crc32c(found) == crc).then(|| Data::from_slice(found))
}
