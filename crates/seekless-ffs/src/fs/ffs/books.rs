//! The books: every counter is recounted from scratch and compared. Tests call this after every step.
//!
//! The recount is one synchronous pass over the volume in memory, so that it sees one moment. Blocks that are not in
//! memory are read from the device beside the cache, whatever room that has, and the pass begins again; blocks written
//! in the meantime are read again. An operation is several steps, between which the books need not balance, so the
//! recount waits until no task holds a lock exclusively. With soft updates, space that waits to be freed counts as
//! allocated. It shares no code with the check of an unmounted volume, except for the counts of a group, which follow
//! from its maps alone.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use super::Ffs;
use super::format::*;
use super::group;
use super::io::read_bytes;
use super::layout::Layout;
use super::soft::Waiting;
use super::state::*;
use crate::device::Data;
use crate::fs::FsResult;
use crate::units::SECTOR_BYTES;

/// How often one block is read before its continual change counts as wrong.
const READS_MAX: u32 = 50;

/// What has been read for a recount, by its first fragment, and how often. `None` while it has to be read again.
type Read = BTreeMap<FragNo, (Option<Data>, u32)>;

impl Ffs {
    /// Recounts everything. Returns the contradictions, one line each.
    pub(super) async fn recount(&self) -> FsResult<Vec<String>> {
        let written = Rc::new(RefCell::new(Vec::new()));
        self.state.borrow_mut().cache.watch(&written);
        let mut read = Read::new();
        loop {
            if let Some(number) = self.locks.held_alone() {
                drop(self.locks.share(number).await);
                continue;
            }
            forget_written(&mut read, &written.take(), self.state.borrow().layout.frag);
            let missing = {
                let state = self.state.borrow();
                if state.stopped.is_some() || state.read_only || self.closed.get() {
                    return Ok(state.soft_problems());
                }
                let mut recount = Recount::new(&state, &read);
                recount.run();
                if recount.missing.is_empty() {
                    return Ok([state.soft_problems(), recount.problems].concat());
                }
                recount.missing
            };
            for (at, frags) in missing {
                let times = read.get(&at).map_or(0, |(_, times)| *times);
                if times == READS_MAX {
                    return Ok(vec![format!("the block at {at} is never in memory, and always written")]);
                }
                let data = self.read_beside(at, frags).await?;
                read.insert(at, (Some(data), times + 1));
            }
        }
    }

    /// The content on the device, once no write to it is in flight. The caller notices writes that begin later.
    async fn read_beside(&self, at: FragNo, frags: u32) -> FsResult<Data> {
        loop {
            let waiting = self.progress.wait();
            if !self.state.borrow().cache.is_in_flight(at, frags) {
                break;
            }
            waiting.await;
        }
        let (sector, bytes) = {
            let layout = &self.state.borrow().layout;
            (layout.sector(at), (frags * layout.frag_bytes) as usize)
        };
        Ok(read_bytes(&self.device, sector, bytes).await?.freeze())
    }
}

/// Blocks written in the meantime have to be read again.
fn forget_written(read: &mut Read, written: &[Range<FragNo>], frag: u32) {
    for places in written {
        for (_, (data, _)) in read.range_mut(places.start.saturating_sub(frag)..places.end) {
            *data = None;
        }
    }
}

/// The blocks of a file.
struct Blocks {
    ino: InodeNo,
    size: u64,
    frags: u32,
    /// Address of each block that is not a hole.
    places: BTreeMap<u64, FragNo>,
}

struct Recount<'a> {
    state: &'a State,
    layout: &'a Layout,
    read: &'a Read,
    missing: BTreeMap<FragNo, u32>,
    waiting: Waiting,
    problems: Vec<String>,
    inodes: BTreeMap<InodeNo, Inode>,
    /// The owner of each fragment: an inode's number, or one of the next two.
    frags: Vec<InodeNo>,
    /// Names of each inode, `.` and `..` among them.
    names: BTreeMap<InodeNo, u32>,
}

const UNCLAIMED: InodeNo = InodeNo(0);
/// It waits to be freed.
const GIVEN_BACK: InodeNo = InodeNo(1);
const _: () = assert!(GIVEN_BACK.0 < ROOT_INO.0);

impl<'a> Recount<'a> {
    fn new(state: &'a State, read: &'a Read) -> Recount<'a> {
        let mut waiting = state.soft.as_deref().map(|soft| soft.waiting()).unwrap_or_default();
        for left in &state.left_behind {
            waiting.frags += i64::from(left.frags);
            waiting.known_frags.push((left.at, left.frags));
        }
        Recount {
            state,
            layout: &state.layout,
            read,
            missing: BTreeMap::new(),
            waiting,
            problems: Vec::new(),
            inodes: BTreeMap::new(),
            frags: vec![UNCLAIMED; state.layout.size as usize],
            names: BTreeMap::new(),
        }
    }

    /// The content at `at`: from memory, or read before; requested otherwise.
    fn block(&mut self, at: FragNo, frags: u32) -> Option<Data> {
        let bytes = (frags * self.layout.frag_bytes) as usize;
        let cached = self.state.cache.peek(at).map(|buffer| &buffer.data);
        if let Some(short) = cached.filter(|data| data.len() < bytes) {
            self.problems.push(format!("the block at {at} is {} bytes in memory, not {bytes}", short.len()));
            return None;
        }
        let read = self.read.get(&at).and_then(|(data, _)| data.as_ref());
        match cached.or_else(|| read.filter(|data| data.len() >= bytes)) {
            Some(data) => Some(data.clone()),
            None => {
                self.missing.insert(at, frags);
                None
            }
        }
    }

    fn same(&mut self, what: impl std::fmt::Display, said: impl Into<i64>, found: impl Into<i64>) {
        let (said, found) = (said.into(), found.into());
        if said != found {
            self.problems.push(format!("{what}: {said} by the books, {found} by the recount"));
        }
    }

    fn run(&mut self) {
        for first in InodeNo(0).until(self.layout.ino_end()).step_by(self.layout.inodes_per_block as usize) {
            let (at, _) = self.layout.inode_place(first);
            let Some(block) = self.block(at, self.layout.frag) else { continue };
            let end = (first + self.layout.inodes_per_block).min(self.layout.ino_end());
            for ino in first.max(ROOT_INO).until(end) {
                self.inode(ino, &block);
            }
        }
        let inodes: Vec<(InodeNo, Inode)> = self.inodes.iter().map(|(&ino, &inode)| (ino, inode)).collect();
        for &(ino, inode) in &inodes {
            self.blocks(ino, &inode);
        }
        self.groups();
        if !self.missing.is_empty() {
            return;
        }
        for &(ino, inode) in &inodes {
            let names = self.names.remove(&ino).unwrap_or(0);
            self.same(format_args!("links of inode {ino}"), inode.nlink, names);
            let is_needed = self.state.in_use(ino) || self.state.is_held(ino) || self.waiting.tasks > 0;
            if inode.nlink == 0 && !is_needed {
                self.problems.push(format!("inode {ino} has neither links nor users, and is not freed"));
            }
        }
        if let Some((ino, count)) = self.names.pop_first() {
            self.problems.push(format!("{count} names lead to inode {ino}, which is free"));
        }
        let freed_twice = self.state.counters.freed_twice;
        self.same("fragments that were freed twice", freed_twice as i64, 0);
        self.same("counts of blocks that cannot be", self.state.counters.miscounted as i64, 0);
    }

    /// Finds an inode in use, in memory or in its block (S3).
    fn inode(&mut self, ino: InodeNo, block: &[u8]) {
        let (_, offset) = self.layout.inode_place(ino);
        let known = self.state.inodes.get(&ino);
        if known.is_none() && block[offset..offset + Inode::BYTES].iter().all(|&byte| byte == 0) {
            return; // It has never been used.
        }
        let Some(stored) = Inode::decode(&block[offset..]) else { return };
        let inode = known.map_or(stored, |known| known.inode);
        if let Some(known) = known
            && !known.dirty
            && self.state.soft.is_none()
            && known.inode != stored
        {
            self.problems.push(format!("S3: inode {ino} is not dirty, and differs from its block"));
        }
        if inode.mode != 0 {
            self.inodes.insert(ino, inode);
        }
    }

    fn claim(&mut self, ino: InodeNo, at: FragNo, frags: u32) {
        if !self.layout.is_data(at, frags) {
            self.problems.push(format!("inode {ino} leads to {frags} fragments at {at}, where no file can be"));
            return;
        }
        for frag in at.run(frags) {
            let other = std::mem::replace(&mut self.frags[frag.index()], ino);
            if other != UNCLAIMED {
                self.problems.push(format!("U2: fragment {frag} is claimed twice: by inodes {other} and {ino}"));
            }
        }
    }

    fn blocks(&mut self, ino: InodeNo, inode: &Inode) {
        let mut found = Blocks { ino, size: inode.size, frags: 0, places: BTreeMap::new() };
        if !inode.has_no_blocks(self.layout.maxsymlinklen) {
            for (lbn, &at) in inode.db.iter().enumerate().filter(|(_, at)| **at != FragNo::NONE) {
                let length = self.layout.block_frags(inode.size, lbn as u64);
                if length == 0 {
                    self.problems.push(format!("inode {ino} has a block {lbn} beyond its end"));
                }
                self.claim(ino, at, length);
                found.frags += length;
                found.places.insert(lbn as u64, at);
            }
            for (slot, &at) in inode.ib.iter().enumerate().filter(|(_, at)| **at != FragNo::NONE) {
                self.indirect(&mut found, at, slot, self.layout.indirect_first(slot));
            }
        }
        let sectors = u64::from(found.frags) * u64::from(self.layout.frag_bytes) / SECTOR_BYTES;
        if self.missing.is_empty() {
            self.same(format_args!("sectors of inode {ino}"), inode.blocks, sectors as i64);
        }
        if inode.is_directory() && inode.nlink > 0 {
            self.names(&found);
        }
    }

    /// Claims an indirect block with `levels` levels below it, and everything that it points to; that begins with block
    /// `lbn`.
    fn indirect(&mut self, found: &mut Blocks, at: FragNo, levels: usize, lbn: u64) {
        let whole = self.layout.frag;
        self.claim(found.ino, at, whole);
        found.frags += whole;
        if !self.layout.is_data(at, whole) {
            return;
        }
        let Some(block) = self.block(at, whole) else { return };
        let span = self.layout.span(levels);
        for slot in 0..self.layout.pointers_per_block as usize {
            let first = lbn + slot as u64 * span;
            match pointer_in(&block, slot) {
                FragNo::NONE => {}
                below if levels > 0 => self.indirect(found, below, levels - 1, first),
                below => {
                    self.claim(found.ino, below, whole);
                    found.frags += whole;
                    found.places.insert(first, below);
                }
            }
        }
    }

    /// Counts the names in a directory, without ghosts.
    fn names(&mut self, dir: &Blocks) {
        let (ino, block_bytes) = (dir.ino, u64::from(self.layout.block_bytes));
        let is_complete = self.missing.is_empty();
        for lbn in 0..dir.size.div_ceil(block_bytes) {
            let frags = self.layout.block_frags(dir.size, lbn);
            let Some(&at) = dir.places.get(&lbn) else {
                if is_complete {
                    self.problems.push(format!("directory {ino} has a hole at block {lbn}"));
                }
                continue;
            };
            if !self.layout.is_data(at, frags) {
                continue;
            }
            let Some(block) = self.block(at, frags) else { continue };
            for (number, chunk) in block.chunks_exact(DIR_CHUNK_BYTES).enumerate() {
                let start = lbn * block_bytes + (number * DIR_CHUNK_BYTES) as u64;
                if start >= dir.size {
                    break;
                }
                let entries = match dirents(chunk) {
                    Ok(entries) => entries,
                    Err(detail) => {
                        self.problems.push(format!("D1: directory {ino}, chunk at {start}: {detail}"));
                        continue;
                    }
                };
                for entry in entries.iter().filter(|entry| entry.ino != InodeNo::NONE) {
                    if !self.waiting.ghosts.contains(&(ino, start + entry.offset as u64)) {
                        *self.names.entry(entry.ino).or_insert(0) += 1;
                    }
                }
            }
        }
    }

    /// The maps and counts of the groups, and the sums of these.
    fn groups(&mut self) {
        let known: BTreeSet<InodeNo> = self.waiting.known_inodes.iter().copied().collect();
        for (at, frags) in std::mem::take(&mut self.waiting.known_frags) {
            self.claim(GIVEN_BACK, at, frags);
        }
        let (mut frags_left, mut inodes_left) = (Vec::new(), Vec::new());
        let mut totals = Totals::default();
        let layout = self.layout;
        let heads =
            layout.group_numbers().map(|number| self.block(layout.group_block(number), layout.group_block_frags()));
        let heads: Vec<Option<Data>> = heads.collect();
        if !self.missing.is_empty() {
            return;
        }
        for (number, bytes) in layout.group_numbers().zip(heads) {
            let Some(bytes) = bytes else { continue };
            if let Err(detail) =
                group::verify(layout, number, &bytes).and_then(|()| group::verify_counts(layout, &bytes))
            {
                self.problems.push(format!("group {number}: {detail}"));
                continue;
            }
            let Some(head) = Group::decode(&bytes) else { continue };
            let Group { ndir, nbfree, nifree, nffree, .. } = head;
            let summary = Csum { ndir, nbfree, nifree, nffree };
            if summary != self.state.summaries[number.index()] {
                let said = self.state.summaries[number.index()];
                self.problems
                    .push(format!("S2: the summary of group {number} is {said:?}, and its block's {summary:?}"));
            }
            totals.add(&summary);
            let (base, bookkeeping) = (layout.group_base(number), layout.bookkeeping(number));
            let (free, used) = (group::free_map(layout, &bytes), group::inode_map(layout, &bytes));
            for frag in base.run(layout.group_frags(number)) {
                let is_free = group::bit(free, frag - base);
                match (is_free, bookkeeping.contains(&frag), self.frags[frag.index()]) {
                    (true, true, _) => self.problems.push(format!("G1: fragment {frag} is bookkeeping's, and free")),
                    (false, false, UNCLAIMED) => frags_left.push(frag),
                    (true, _, ino) if ino != UNCLAIMED => {
                        self.problems.push(format!("U2: fragment {frag} is of inode {ino}, and free"));
                    }
                    _ => {}
                }
            }
            let first = layout.first_ino(number);
            let mut directories = 0;
            for ino in first.until(first + layout.inodes_per_group).filter(|&ino| ino >= ROOT_INO) {
                let is_used = group::bit(used, ino - first);
                let found = self.inodes.get(&ino);
                directories += i64::from(found.is_some_and(Inode::is_directory));
                match (is_used, found.is_some(), known.contains(&ino)) {
                    (false, true, _) | (false, _, true) => {
                        self.problems.push(format!("U2: inode {ino} is in use, and free"));
                    }
                    (true, true, true) => self.problems.push(format!("inode {ino} is in use, and is given back")),
                    (true, false, _) => inodes_left.push((ino, known.contains(&ino))),
                    _ => {}
                }
            }
            // For a directory that waits to be freed, the group counts it until it is freed.
            let waits = self.waiting.inodes > 0;
            if i64::from(ndir) < directories || !waits && i64::from(ndir) != directories {
                self.problems.push(format!("group {number} has {ndir} directories, and {directories} by the recount"));
            }
        }
        if totals != self.state.totals {
            self.problems.push(format!("the totals are {:?}, and {totals:?} by the recount", self.state.totals));
        }
        self.left(&frags_left, &inodes_left);
    }

    /// Space that is allocated and unclaimed is what soft updates are freeing at this moment.
    fn left(&mut self, frags: &[FragNo], inodes: &[(InodeNo, bool)]) {
        let given = self.frags.iter().filter(|&&ino| ino == GIVEN_BACK).count();
        let (said, waiting) = (self.waiting.frags, given + frags.len());
        let shown = &frags[..frags.len().min(8)];
        self.same(format_args!("fragments to be given back (unclaimed: {shown:?})"), said, waiting as i64);
        let known = self.waiting.known_inodes.len();
        let listed = inodes.iter().filter(|(_, is_known)| *is_known).count();
        let shown = inodes.iter().filter(|(_, is_known)| !is_known).take(8).collect::<Vec<_>>();
        let text = format!("inodes to be given back (unclaimed: {shown:?})");
        self.same(text, self.waiting.inodes, inodes.len() as i64);
        self.same("inodes that records give back", known as i64, listed as i64);
        let is_idle = self.waiting.running == 0;
        if is_idle && (!frags.is_empty() || listed < inodes.len()) {
            self.problems
                .push(format!("fragments {frags:?} and inodes {inodes:?} are unclaimed, and nothing frees them"));
        }
    }
}
