//! The books: everything that is counted, counted again from scratch and compared. For tests, which ask after every step.
//!
//! The recount is one synchronous pass over the volume in memory, so that it sees one moment; what it has to read it asks for,
//! and begins again. It shares no code with the check of a volume that is not mounted.

use std::collections::{BTreeMap, BTreeSet};

use super::Lfs;
use super::Options;
use super::find;
use super::format::*;
use super::layout::*;
use super::recovery::{self, SegmentReader};
use super::state::*;
use crate::codec::crc32c;
use crate::device::Data;
use crate::fs::FsResult;
use crate::fs::logfs::file::root_key;
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// What has been read for the recount, by its place.
type Read = BTreeMap<Sector, Data>;

impl Lfs {
    /// Recounts everything. Returns what does not agree, a line each.
    pub(super) async fn recount(&self) -> FsResult<Vec<String>> {
        let mut read = Read::new();
        loop {
            let (missing, problems) = {
                let state = self.state.borrow();
                if state.stopped.is_some() || state.read_only {
                    return Ok(Vec::new());
                }
                let mut recount = Recount::new(&state, &read);
                recount.run();
                (recount.missing, recount.problems)
            };
            if missing.is_empty() {
                return Ok([problems, self.check_slots().await?].concat());
            }
            for (at, sectors) in missing {
                read.insert(at, self.read_log(at, sectors).await?.freeze());
            }
        }
    }

    /// G1, from the device: what the checkpoint in either slot needs is neither clean nor ready.
    async fn check_slots(&self) -> FsResult<Vec<String>> {
        let moment = |state: &State| (state.log.checkpoint_serial, state.log.end.sequence, state.log.written_sequence);
        let (before, free) = {
            let state = self.state.borrow();
            let free: BTreeSet<SegmentNo> =
                state.log.segments.clean.union(&state.log.segments.ready).copied().collect();
            (moment(&state), free)
        };
        let found = find::find_volume(&self.device).await?;
        let mut problems = Vec::new();
        for checkpoint in [Some(found.checkpoint), found.older].into_iter().flatten() {
            let options = Options { read_only: true, ..Options::default() };
            let slot = Lfs::at(self.rt.clone(), self.device.clone(), options, &found, &checkpoint)?;
            slot.load_tables(checkpoint.live_bytes).await?;
            let (layout, mut end, mut needed) = {
                let state = slot.state.borrow();
                let live = state.log.segments.iter().filter(|(_, segment)| segment.live_bytes > 0);
                (state.log.layout, state.log.end, live.map(|(number, _)| number).collect::<BTreeSet<SegmentNo>>())
            };
            needed.extend([end.segment, end.next_segment]);
            let mut reader = SegmentReader::default();
            while let Some((partial, _)) = reader.next(&slot, &layout, &end).await? {
                end = recovery::end_after(&partial.summary);
                needed.extend([end.segment, end.next_segment]);
            }
            for segment in needed.intersection(&free) {
                let serial = checkpoint.serial;
                problems.push(format!("G1: segment {segment} is free, and checkpoint {serial} in its slot needs it"));
            }
        }
        // While the log goes on, what was free at the start may be written.
        if moment(&self.state.borrow()) != before {
            problems.clear();
        }
        Ok(problems)
    }
}

struct Recount<'a> {
    state: &'a State,
    read: &'a Read,
    missing: Vec<(Sector, u64)>,
    problems: Vec<String>,
    live: BTreeMap<SegmentNo, u64>,
    unwritten: u64,
    growth: u64,
}

impl<'a> Recount<'a> {
    fn new(state: &'a State, read: &'a Read) -> Recount<'a> {
        let (missing, problems, live) = (Vec::new(), Vec::new(), BTreeMap::new());
        Recount { state, read, missing, problems, live, unwritten: 0, growth: 0 }
    }

    fn same(&mut self, what: &str, said: impl Into<u64>, found: u64) {
        let said = said.into();
        if said != found {
            self.problems.push(format!("{what}: {said} by the books, {found} by the recount"));
        }
    }

    fn run(&mut self) {
        let mut inodes: BTreeSet<Ino> = self.state.inodes.keys().copied().filter(|&ino| !is_internal(ino)).collect();
        for ino in [IMAP_INO, USAGE_INO, ORPHAN_INO] {
            let Some(known) = self.state.inodes.get(&ino) else { continue };
            for (block, bytes) in self.tree(ino, &known.inode).1 {
                if ino == IMAP_INO {
                    let slots = bytes.chunks_exact(8).map(|raw| crate::codec::get_at::<u64>(raw, 0).unwrap_or(0));
                    let first = block * IMAP_ENTRIES_PER_BLOCK;
                    inodes.extend(slots.zip(first..).filter(|(slot, _)| *slot != 0).map(|(_, number)| Ino(number)));
                }
            }
        }
        let mut count = 0;
        for &ino in &inodes {
            count += u64::from(self.inode(ino));
        }
        if !self.missing.is_empty() {
            return;
        }
        self.problems.extend(self.state.blocks.check().err());
        self.same("inodes", self.state.inode_count, count);
        self.same("bytes set aside", self.state.unwritten_bytes, self.unwritten);
        self.same("growth of dirty blocks", self.state.blocks.growth_bytes, self.growth);
        let growth = self.state.inodes.values().map(|known| known.xattr_growth).sum();
        self.same("growth of attributes", self.state.xattr_growth_bytes, growth);
        let debts = self.state.inodes.values().map(|known| &known.debt.freed).chain([&self.state.log.freed]);
        let mut pending = 0;
        for (&segment, &bytes) in debts.flatten() {
            *self.live.entry(segment).or_insert(0) += bytes;
            pending += bytes;
        }
        self.same("bytes freed and not logged", self.state.freed_pending_bytes, pending);
        for ino in self.state.log.orphans.list() {
            if !inodes.contains(&ino) {
                self.problems.push(format!("orphan {ino} does not exist"));
            }
        }
        self.segments();
    }

    fn segments(&mut self) {
        let (log, mut total) = (&self.state.log, 0);
        let (segments, end) = (&log.segments, [log.end.segment, log.end.next_segment]);
        let newest = log.checkpoint_serial.max(log.slots[0]).max(log.slots[1]);
        for (number, segment) in segments.iter() {
            let found = self.live.remove(&number).unwrap_or(0);
            total += segment.live_bytes;
            if segment.live_bytes != found {
                let said = segment.live_bytes;
                self.problems
                    .push(format!("G2: segment {number} holds {said} live bytes by the books, {found} by the recount"));
            }
            let (clean, ready) = (segments.clean.contains(&number), segments.ready.contains(&number));
            let empty = segments.empty.get(&number);
            let sets = u64::from(clean) + u64::from(ready) + u64::from(empty.is_some());
            if sets > 1 || sets == 1 && (segment.live_bytes > 0 || end.contains(&number)) {
                self.problems.push(format!(
                    "G3: segment {number} with {} live bytes is clean: {clean}, ready: {ready}, empty: {empty:?}",
                    segment.live_bytes
                ));
            }
            if (clean || ready) && segment.empty_since > log.slots[0].min(log.slots[1]) {
                let since = segment.empty_since;
                self.problems.push(format!("G1: segment {number} is free, and empty since {since} of {:?}", log.slots));
            }
            if segment.empty_since > newest + 1 {
                self.problems
                    .push(format!("segment {number} is empty since {}, and that is to come", segment.empty_since));
            }
        }
        self.same("live bytes", segments.live_bytes, total);
        if let Some(&segment) = self.live.keys().next() {
            self.problems.push(format!("a pointer leads to segment {segment}, which does not exist"));
        }
    }

    fn claim(&mut self, pointer: Pointer) {
        if let Pointer::Mapped { at, .. } = pointer {
            let segment = self.state.log.layout.segment_of(at).unwrap_or(SegmentNo::MAX);
            *self.live.entry(segment).or_insert(0) += pointer.live_bytes();
        }
    }

    /// What is stored at `at`; asked for when it has not been read, or not since it changed.
    fn stored(&mut self, at: Sector, sectors: u64, is_it: impl Fn(&[u8]) -> bool) -> Option<Data> {
        match self.read.get(&at).filter(|data| data.len() as u64 == sectors * SECTOR_BYTES && is_it(data)) {
            Some(data) => Some(data.clone()),
            None => {
                self.missing.push((at, sectors));
                None
            }
        }
    }

    /// Counts one inode and all that it leads to. Returns false where there is none yet.
    fn inode(&mut self, ino: Ino) -> bool {
        let known = self.state.inodes.get(&ino);
        let (block, offset) = imap_place(ino);
        let entry = match self.block(block) {
            Some(bytes) => InodeSlot(crate::codec::get_at(&bytes, offset).unwrap_or(0)),
            None => InodeSlot::NONE,
        };
        if let Some(known) = known
            && known.slot != entry
        {
            self.problems.push(format!("inode {ino} is at {:?}, and the map says {entry:?}", known.slot));
        }
        if !entry.is_none() {
            let segment = self.state.log.layout.segment_of(entry.sector()).unwrap_or(SegmentNo::MAX);
            *self.live.entry(segment).or_insert(0) += Inode::BYTES as u64;
        }
        let inode = match known {
            Some(known) => known.inode,
            None => {
                let unsealed = |data: &[u8]| Inode::unseal(&data[entry.offset()..]).filter(|inode| inode.ino == ino.0);
                let Some(data) = self.stored(entry.sector(), 1, |data| unsealed(data).is_some()) else { return true };
                match unsealed(&data) {
                    Some(inode) => inode,
                    None => return true,
                }
            }
        };
        let pointer = inode.xattr_pointer().unwrap_or_default();
        self.claim(pointer);
        let (mut used, _) = if !inode.is_inline() { self.tree(ino, &inode) } else { Default::default() };
        used += match known {
            Some(known) if known.xattr_dirty => known.xattr.as_ref().map_or(0, |data| data.len() as u64),
            _ => pointer.live_bytes(),
        };
        if self.missing.is_empty() {
            self.same(&format!("bytes that inode {ino} uses"), inode.bytes_used, used);
        }
        let is_orphan = self.state.log.orphans.contains(ino);
        if inode.links == 0 && !is_orphan {
            self.problems.push(format!("inode {ino} has no links and is no orphan"));
        }
        if known.is_some_and(|known| known.reclaiming) && !is_orphan {
            self.problems.push(format!("inode {ino} is being cut and is no orphan"));
        }
        if known.is_some_and(|known| known.dirt != InodeDirt::Clean) && !self.state.dirty_inodes.contains(&ino) {
            self.problems.push(format!("inode {ino} is dirty, and not on the list of those"));
        }
        true
    }

    /// A block of the inode map.
    fn block(&mut self, id: BlockId) -> Option<Data> {
        if let Some(data) = self.state.blocks.peek(id) {
            return Some(data.clone());
        }
        let pointer = match id.key.holder() {
            Holder::Inode(slot) => self.state.inodes.get(&id.ino)?.inode.pointer(slot),
            Holder::Node(node, slot) => pointer_in_block(&self.block(BlockId { ino: id.ino, key: node })?, slot),
        };
        match pointer? {
            Pointer::Mapped { at, sectors, crc } => self.stored(at, sectors.into(), |data| crc32c(data) == crc),
            _ => None,
        }
    }

    /// Counts a tree. Returns the bytes that its data uses, and the blocks of a file that is internal.
    fn tree(&mut self, ino: Ino, inode: &Inode) -> (u64, Vec<(u64, Data)>) {
        let (mut used, mut blocks) = (0, Vec::new());
        let mut open: Vec<(BlockId, Pointer)> = (0..POINTERS_IN_INODE)
            .map(|slot| (BlockId { ino, key: root_key(slot) }, inode.pointer(slot).unwrap_or_default()))
            .collect();
        while let Some((id, pointer)) = open.pop() {
            let cached = self.state.blocks.peek(id).cloned();
            let dirty = self.state.blocks.dirty(id);
            self.claim(pointer);
            if let Some(dirty) = dirty {
                let growth = match pointer {
                    Pointer::Hole => BLOCK_BYTES as u64,
                    Pointer::Unwritten => 0,
                    mapped => BLOCK_BYTES as u64 - mapped.live_bytes(),
                };
                self.same(&format!("growth of {id:?}"), dirty.growth_bytes, growth);
                self.growth += growth;
            } else if pointer == Pointer::Hole && cached.is_some() {
                self.problems.push(format!("{id:?} is in memory, clean, and a hole in the log"));
            }
            if id.key.is_data() {
                used += pointer.used_bytes() + dirty.map_or(0, |dirty| dirty.growth_bytes);
                self.unwritten += if pointer == Pointer::Unwritten { BLOCK_BYTES as u64 } else { 0 };
                if !is_internal(ino) {
                    continue;
                }
            }
            let bytes = match (cached, pointer) {
                (Some(data), _) => data,
                (None, Pointer::Mapped { at, sectors, crc }) => {
                    match self.stored(at, sectors.into(), |data| crc32c(data) == crc) {
                        Some(data) => data,
                        None => continue,
                    }
                }
                _ => continue,
            };
            if id.key.is_data() {
                blocks.push((id.key.0, bytes));
                continue;
            }
            for slot in 0..POINTERS_PER_BLOCK {
                let child = BlockId { ino, key: id.key.child(slot) };
                let pointer = pointer_in_block(&bytes, slot).unwrap_or_default();
                if pointer != Pointer::Hole || self.state.blocks.peek(child).is_some() {
                    open.push((child, pointer));
                }
            }
        }
        (used, blocks)
    }
}
