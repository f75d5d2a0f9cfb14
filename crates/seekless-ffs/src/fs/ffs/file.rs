//! The data of files: reading, writing, truncating, growing, holes.
//!
//! The caller holds the lock of the inode: shared for reading, exclusively for everything else.
//!
//! Invariants
//!   F1  A block that is not the last of a short file is whole; the last one has the fragments that the size needs.
//!   F2  Bytes of the last block behind the end of the file are zero.
//!   F3  The last byte of a file is allocated: a file does not end with a hole.
//!   F4  No block lies behind the end of a file.

use std::ops::Range;

use super::alloc::Promise;
use super::cache::Kind;
use super::dir::fill_with_empty_chunks;
use super::format::*;
use super::soft::{DRAINS_MAX, Holder};
use super::state::*;
use super::{Ffs, Metadata};
use crate::codec;
use crate::device::{Buf, Data};
use crate::fs::{AllocateMode, FileKind, FileRange, FsError, FsResult, SeekTo};
use crate::rt::cover;

/// What remains to be done before block `lbn` of a file can be changed.
enum Ready {
    Yes,
    /// Write the new indirect block here, then add the pointer to it.
    NewIndirect {
        at: u32,
        level: usize,
    },
}

/// A pointer that is not set yet.
struct Vacancy {
    /// The indirect block that contains it; `None` for the inode.
    holder: Option<u32>,
    index: usize,
    /// All pointers before it, from which a near address is chosen.
    before: Vec<u32>,
}

/// What a file loses, for soft updates.
#[derive(Default)]
struct Gathered {
    /// Fragments lost with a pointer in the inode.
    frags: Vec<(u32, u32)>,
    /// Slots of indirect blocks that stay, and what the file loses with each.
    slots: Vec<(Holder, Vec<(u32, u32)>)>,
    /// Limit of further blocks.
    left: u64,
}

fn cover_cut(level: usize) {
    match level {
        1 => cover("ffs: a singly indirect block is cut"),
        2 => cover("ffs: a doubly indirect block is cut"),
        _ => cover("ffs: a triply indirect block is cut"),
    }
}

/// Counts blocks of a file. One with more blocks than the volume has is tangled: some of them are its own several
/// times, and a walk through all of them might never end.
fn count_blocks(ino: InodeNo, left: &mut u64, blocks: usize) -> FsResult<()> {
    match left.checked_sub(blocks as u64) {
        Some(less) => {
            *left = less;
            Ok(())
        }
        None => Err(FsError::corrupt("file", format_args!("inode {ino}"), "it has more blocks than the volume")),
    }
}

/// Blocks that no longer belong to a file.
#[derive(Default)]
struct Freed {
    direct: Vec<(u32, u32)>,
    /// Indirect blocks: address, level, first file block below it.
    trees: Vec<(u32, usize, u64)>,
    /// The old place of a changed tail.
    tail: Option<(u32, u32)>,
}

impl State {
    pub(super) fn regular(&mut self, ino: InodeNo) -> Step<Inode> {
        match self.kind(ino)? {
            FileKind::Regular => Ok(self.inode(ino)?.inode),
            FileKind::Directory => fail(FsError::IsDirectory),
            _ => fail(FsError::Invalid("not a regular file")),
        }
    }

    fn block_bytes(&self) -> u64 {
        self.layout.block_bytes.into()
    }

    /// Counts fragments that a file gets or loses. A count that is impossible is damage: it stays as it is, and the
    /// volume is left to be checked.
    fn count_frags(&mut self, ino: InodeNo, change: i64) -> Step<()> {
        let sectors = change * i64::from(self.layout.frag_bytes / 512);
        let inode = self.inode_mut(ino)?;
        match u32::try_from(i64::from(inode.blocks) + sectors) {
            Ok(blocks) => inode.blocks = blocks,
            Err(_) => self.counters.miscounted += 1,
        }
        Ok(())
    }

    /// How many allocations a write of file blocks `blocks` needs at most, including holes and indirect blocks.
    pub(super) fn allocations(&mut self, ino: InodeNo, blocks: Range<u64>, new_size: u64) -> Step<i64> {
        let inode = self.inode(ino)?.inode;
        let block = self.block_bytes();
        // A range that cannot fit is refused before its blocks are visited.
        let present = u64::from(inode.blocks) * 512 / block;
        let missing = (blocks.end - blocks.start).saturating_sub(present);
        if missing.saturating_mul(self.layout.frag.into()) > self.frags_available().max(0) as u64 && missing > 1 {
            return fail(FsError::NoSpace);
        }
        let mut needed = 0;
        let mut lbn = blocks.start;
        while lbn < blocks.end {
            // There is nothing behind the end to look up.
            if lbn * block >= inode.size {
                needed += (blocks.end - lbn) as i64;
                break;
            }
            if self.block_at(ino, lbn)?.is_none() {
                needed += 1;
            }
            lbn += 1;
        }
        if needed > 0 && blocks.end > DIRECT as u64 {
            let below = (blocks.end - blocks.start) / u64::from(self.layout.pointers_per_block) + 2;
            needed += below as i64 + INDIRECT as i64;
        }
        let tail_grows = inode.size > 0 && new_size > inode.size && {
            let last = (inode.size - 1) / block;
            self.layout.block_frags(new_size, last) > self.layout.block_frags(inode.size, last)
        };
        Ok(needed + i64::from(tail_grows))
    }

    /// Extends the last block of a file to the length that a file of `new_size` needs, with zeroes at its end, or in a
    /// directory with empty chunks (D1). The file then ends where that block does, or at `new_size`. Returns the old
    /// place of a tail that moved.
    fn grow_tail(&mut self, ino: InodeNo, new_size: u64) -> Step<Option<(u32, u32)>> {
        let inode = self.inode(ino)?.inode;
        let block = self.block_bytes();
        if inode.size == 0 || new_size <= inode.size {
            return Ok(None);
        }
        let last = (inode.size - 1) / block;
        let (old, new) = (self.layout.block_frags(inode.size, last), self.layout.block_frags(new_size, last));
        let size = new_size.min((last + 1) * block);
        let Some(at) = self.block_at(ino, last)? else {
            // F3 does not hold here; then there is nothing to grow.
            self.inode_mut(ino)?.size = size;
            return Ok(None);
        };
        let kind = self.data_kind(ino, last)?;
        let used = (inode.size - last * block) as usize;
        let end = old as usize * self.layout.frag_bytes as usize;
        let clean = used >= end || self.buffer(at, old, kind)?[used..end].iter().all(|&byte| byte == 0);
        let mut left = None;
        let mut now_at = at;
        if new > old {
            let (moved, old_place) = self.grow_frags(ino, last, at, old, new)?;
            (now_at, left) = (moved, old_place.map(|at| (at, old)));
        }
        if !clean {
            self.buffer_mut(now_at)?[used..end].fill(0); // F2
        }
        let size_in_block = (size - last * block) as usize;
        if matches!(kind, Kind::Directory { .. }) && used < size_in_block {
            // The tail and the inode can reach the volume before the first entry does.
            fill_with_empty_chunks(&mut self.buffer_mut(now_at)?[used..size_in_block]);
            self.note_grown(ino, now_at);
        }
        let inode = self.inode_mut(ino)?;
        if let Some(pointer) = inode.db.get_mut(last as usize) {
            *pointer = now_at;
        }
        inode.size = size;
        self.count_frags(ino, i64::from(new) - i64::from(old))?;
        Ok(left)
    }

    /// Prepares the indirect blocks above `lbn`, one at a time: a new one has to be on the volume, full of zeroes,
    /// before anything points to it.
    fn ready_indirect(&mut self, ino: InodeNo, lbn: u64, fresh: Option<(u32, usize)>) -> Step<Ready> {
        let Some(path) = self.layout.path(lbn) else { return fail(FsError::FileTooLarge) };
        let frag = self.layout.frag;
        let mut at = self.inode(ino)?.inode.ib.get(path.slot).copied().unwrap_or(0);
        let mut holder = None;
        for level in 0..path.depth {
            if at == 0 {
                match fresh {
                    Some((new, of_level)) if of_level == level => {
                        match holder {
                            None => self.inode_mut(ino)?.ib[path.slot] = new,
                            Some((holder, slot)) => self.put_pointers(ino, holder, slot..slot + 1, new)?,
                        }
                        self.count_frags(ino, frag.into())?;
                        at = new;
                    }
                    _ => {
                        let preferred = self.preferred_block(ino, lbn, 0, &[]);
                        let new = self.take_frags(ino, preferred, frag)?;
                        self.zero_buffer(new, frag, Kind::Indirect { ino });
                        self.note_new_indirect(ino, new);
                        return Ok(Ready::NewIndirect { at: new, level });
                    }
                }
            }
            let Some(indirect) = self.check_pointer(ino, lbn, at, frag)? else { return Ok(Ready::Yes) };
            let block = self.buffer(indirect, frag, Kind::Indirect { ino })?;
            holder = Some((indirect, path.slots[level]));
            at = pointer_in(&block, path.slots[level]);
        }
        Ok(Ready::Yes)
    }

    /// Stores `source` in block `lbn`, from byte `from` of it on; where `source` is `None`, only allocates the block.
    /// The indirect blocks exist, and the tail of the file has been extended as far as its block goes. Afterwards the
    /// file has at least `new_size` bytes. Returns the address of the block.
    fn store(&mut self, ino: InodeNo, lbn: u64, from: usize, source: Option<&[u8]>, new_size: u64) -> Step<u32> {
        let inode = self.inode(ino)?.inode;
        let (block, frag_bytes) = (self.block_bytes(), self.layout.frag_bytes);
        let kind = self.data_kind(ino, lbn)?;
        let frags = self.layout.block_frags(inode.size.max(new_size), lbn);
        let bytes = (frags * frag_bytes) as usize;
        let covered = source.is_some_and(|source| from == 0 && source.len() >= bytes.min(block as usize));
        let at = match self.block_at(ino, lbn)? {
            Some(at) => {
                if let Some(source) = source {
                    if covered && self.cache.peek(at).is_none_or(|buffer| buffer.data.len() != bytes) {
                        self.cache.create(at, Data::from_slice(&source[..bytes]), kind);
                    } else {
                        self.buffer(at, frags, kind)?;
                        self.buffer_mut(at)?[from..from + source.len()].copy_from_slice(source);
                    }
                }
                at
            }
            None => {
                let vacancy = self.vacancy(ino, lbn)?;
                let preferred = self.preferred_block(ino, lbn, vacancy.index, &vacancy.before);
                let at = self.take_frags(ino, preferred, frags)?;
                let mut fresh = Buf::zeroed(bytes);
                if let Some(source) = source {
                    fresh[from..from + source.len()].copy_from_slice(source);
                }
                self.cache.create(at, fresh.freeze(), kind);
                self.note_taken(at);
                self.occupy(ino, &vacancy, at, frags)?;
                at
            }
        };
        let inode = self.inode_mut(ino)?;
        inode.size = inode.size.max(new_size);
        Ok(at)
    }

    /// The position of the pointer to block `lbn`. The indirect blocks exist.
    fn vacancy(&mut self, ino: InodeNo, lbn: u64) -> Step<Vacancy> {
        let inode = self.inode(ino)?.inode;
        let path = self.layout.path(lbn).ok_or(FsError::FileTooLarge)?;
        if path.depth == 0 {
            return Ok(Vacancy { holder: None, index: path.slot, before: inode.db.to_vec() });
        }
        let mut at = inode.ib[path.slot];
        for &slot in &path.slots[..path.depth - 1] {
            at = pointer_in(&self.buffer(at, self.layout.frag, Kind::Indirect { ino })?, slot);
        }
        let data = self.buffer(at, self.layout.frag, Kind::Indirect { ino })?;
        let before = (0..self.layout.pointers_per_block as usize).map(|slot| pointer_in(&data, slot)).collect();
        Ok(Vacancy { holder: Some(at), index: path.slots[path.depth - 1], before })
    }

    /// Adds the `frags` fragments at `at` to the file.
    fn occupy(&mut self, ino: InodeNo, vacancy: &Vacancy, at: u32, frags: u32) -> Step<()> {
        match vacancy.holder {
            None => self.inode_mut(ino)?.db[vacancy.index] = at,
            Some(holder) => self.put_pointers(ino, holder, vacancy.index..vacancy.index + 1, at)?,
        }
        self.count_frags(ino, frags.into())
    }

    /// Allocates block `lbn` in a hole before the end of a file, and zeroes it in memory. Nothing points to it yet.
    fn begin_hole(&mut self, ino: InodeNo, lbn: u64) -> Step<Option<(Vacancy, u32, u32)>> {
        let inode = self.inode(ino)?.inode;
        if lbn >= inode.size.div_ceil(self.block_bytes()) || self.block_at(ino, lbn)?.is_some() {
            return Ok(None);
        }
        let kind = self.data_kind(ino, lbn)?;
        let frags = self.layout.block_frags(inode.size, lbn);
        let vacancy = self.vacancy(ino, lbn)?;
        let preferred = self.preferred_block(ino, lbn, vacancy.index, &vacancy.before);
        let at = self.take_frags(ino, preferred, frags)?;
        self.zero_buffer(at, frags, kind);
        self.note_taken(at);
        Ok(Some((vacancy, at, frags)))
    }

    /// Truncates a file in memory. Returns what it has lost; that is still allocated.
    fn cut(&mut self, ino: InodeNo, size: u64) -> Step<Freed> {
        let inode = self.inode(ino)?.inode;
        let block = self.block_bytes();
        let keep = size.div_ceil(block);
        let mut freed = Freed::default();
        // Everything is looked up before anything changes.
        if !size.is_multiple_of(block) {
            let last = size / block;
            let (old, new) = (self.layout.block_frags(inode.size, last), self.layout.block_frags(size, last));
            if let Some(at) = self.block_at(ino, last)? {
                let kind = self.data_kind(ino, last)?;
                let data = self.buffer(at, old, kind)?;
                let new_bytes = (new * self.layout.frag_bytes) as usize;
                let mut rest = Buf::from_slice(&data[..new_bytes]);
                rest[(size % block) as usize..].fill(0); // F2
                self.cache.replace(at, rest.freeze());
                if new < old {
                    freed.tail = Some((at + new, old - new));
                }
            }
        }
        self.parts_behind(ino, keep, &mut freed)?;
        let indirect_first = [0, 1, 2].map(|slot| self.layout.indirect_first(slot));
        let inode = self.inode_mut(ino)?;
        inode.size = size;
        for (lbn, pointer) in inode.db.iter_mut().enumerate() {
            if lbn as u64 >= keep {
                *pointer = 0;
            }
        }
        for (first, pointer) in indirect_first.iter().zip(&mut inode.ib) {
            if *first >= keep {
                *pointer = 0;
            }
        }
        Ok(freed)
    }

    /// The blocks of a file from block `keep` on that its inode points to.
    fn parts_behind(&mut self, ino: InodeNo, keep: u64, freed: &mut Freed) -> Step<()> {
        let inode = self.inode(ino)?.inode;
        let frag = self.layout.frag;
        for lbn in keep..DIRECT as u64 {
            let frags = self.layout.block_frags(inode.size, lbn);
            // Impossible pointers are left to the check.
            if let Ok(Some(at)) = self.check_pointer(ino, lbn, inode.db[lbn as usize], frags) {
                freed.direct.push((at, frags));
            }
        }
        for (slot, &at) in inode.ib.iter().enumerate() {
            let first = self.layout.indirect_first(slot);
            if first + self.layout.span(slot + 1) <= keep {
                continue;
            }
            if let Ok(Some(at)) = self.check_pointer(ino, first, at, frag) {
                freed.trees.push((at, slot + 1, first));
            }
        }
        Ok(())
    }

    /// Frees fragments of a file.
    fn release(&mut self, ino: InodeNo, at: u32, frags: u32) -> Step<()> {
        self.free_frags(at, frags)?;
        // The inode may have left memory if the truncation failed.
        if self.inodes.contains_key(&ino) {
            self.count_frags(ino, -i64::from(frags))?;
        }
        Ok(())
    }

    /// The children of an indirect block from block `keep` on, each with its first file block.
    fn children_behind(&mut self, ino: InodeNo, at: u32, level: usize, first: u64, keep: u64) -> Step<Vec<(u32, u64)>> {
        let block = self.buffer(at, self.layout.frag, Kind::Indirect { ino })?;
        let span = self.layout.span(level - 1);
        let mut found = Vec::new();
        for slot in 0..self.layout.pointers_per_block as usize {
            let child_first = first + slot as u64 * span;
            let child = pointer_in(&block, slot);
            if child != 0 && child_first + span > keep {
                found.push((child, child_first));
            }
        }
        Ok(found)
    }

    /// With soft updates: the file has lost these fragments, which are freed when that is durable.
    fn lose(&mut self, ino: InodeNo, in_inode: bool, holders: &[Holder], frags: Vec<(u32, u32)>) -> Step<()> {
        let total: i64 = frags.iter().map(|&(_, count)| i64::from(count)).sum();
        self.count_frags(ino, -total)?;
        self.free_later(ino, in_inode, holders, frags);
        Ok(())
    }

    /// With soft updates: truncates a file, which loses what was gathered for that.
    fn cut_and_lose(&mut self, ino: InodeNo, size: u64, gathered: &Gathered) -> Step<()> {
        for ((at, _), _) in &gathered.slots {
            self.buffer(*at, self.layout.frag, Kind::Indirect { ino })?;
        }
        let freed = self.cut(ino, size)?;
        for (holder, frags) in &gathered.slots {
            self.put_pointers(ino, holder.0, holder.1.clone(), 0)?;
            self.lose(ino, false, std::slice::from_ref(holder), frags.clone())?;
        }
        let frags = gathered.frags.iter().copied().chain(freed.tail).collect();
        self.lose(ino, true, &[], frags)
    }

    /// Removes the pointers to blocks from `keep` on from an indirect block. Returns them.
    fn clear_pointers(&mut self, ino: InodeNo, at: u32, level: usize, first: u64, keep: u64) -> Step<Vec<(u32, u64)>> {
        let found = self.children_behind(ino, at, level, first, keep)?;
        let block = self.buffer(at, self.layout.frag, Kind::Indirect { ino })?;
        let span = self.layout.span(level - 1);
        let gone: Vec<usize> = (0..self.layout.pointers_per_block as usize)
            .filter(|&slot| first + slot as u64 * span >= keep && pointer_in(&block, slot) != 0)
            .collect();
        drop(block);
        if !gone.is_empty() {
            let bytes = self.buffer_mut(at)?;
            for slot in gone {
                codec::put_at(bytes, 4 * slot, 0_u32);
            }
        }
        Ok(found)
    }

    /// Unmaps the whole blocks of `blocks` that have the same holder as the first of them. Returns the blocks, the
    /// indirect block that held them and the slots in it (`None`: the inode), and where to continue.
    fn unmap_some(&mut self, ino: InodeNo, blocks: Range<u64>) -> Step<(Vec<u32>, Option<Holder>, u64)> {
        let Some(path) = self.layout.path(blocks.start) else { return Ok((Vec::new(), None, blocks.end)) };
        let n = u64::from(self.layout.pointers_per_block);
        let frag = self.layout.frag;
        if path.depth == 0 {
            let end = blocks.end.min(DIRECT as u64);
            let inode = self.inode(ino)?.inode;
            let held = (blocks.start..end)
                .filter_map(|lbn| self.check_pointer(ino, lbn, inode.db[lbn as usize], frag).ok().flatten());
            let held: Vec<u32> = held.collect();
            if !held.is_empty() {
                self.inode_mut(ino)?.db[blocks.start as usize..end as usize].fill(0);
            }
            return Ok((held, None, end));
        }
        let slot = path.slots[path.depth - 1] as u64;
        let end = blocks.end.min(blocks.start - slot + n);
        let mut at = self.inode(ino)?.inode.ib[path.slot];
        for &slot in &path.slots[..path.depth - 1] {
            let Some(indirect) = self.check_pointer(ino, blocks.start, at, frag)? else { break };
            at = pointer_in(&self.buffer(indirect, frag, Kind::Indirect { ino })?, slot);
        }
        let Some(holder) = self.check_pointer(ino, blocks.start, at, frag)? else {
            return Ok((Vec::new(), None, end));
        };
        let block = self.buffer(holder, frag, Kind::Indirect { ino })?;
        let slots = slot as usize..(slot + end - blocks.start) as usize;
        let held = slots.clone().map(|slot| pointer_in(&block, slot));
        let held: Vec<u32> = held.filter(|&at| self.layout.is_data(at, frag)).collect();
        drop(block);
        if !held.is_empty() {
            self.put_pointers(ino, holder, slots.clone(), 0)?;
        }
        Ok((held, Some((holder, slots)), end))
    }

    /// Searches for data or a hole from block `lbn` on, over a bounded range. Returns the block, or how far the search
    /// went.
    fn seek(&mut self, ino: InodeNo, lbn: u64, end: u64, seek: SeekTo) -> Step<Result<u64, u64>> {
        const LOOKED_AT_MAX: u64 = 4096;
        let mut lbn = lbn;
        for _ in 0..LOOKED_AT_MAX {
            if lbn >= end {
                return Ok(Ok(end));
            }
            let (is_data, next) = self.data_or_skip(ino, lbn)?;
            if is_data == (seek == SeekTo::Data) {
                return Ok(Ok(lbn));
            }
            lbn = next;
        }
        Ok(Err(lbn))
    }

    /// Whether the block is data, and the next one that may differ: where an indirect block is missing, everything that
    /// it would span is skipped.
    fn data_or_skip(&mut self, ino: InodeNo, lbn: u64) -> Step<(bool, u64)> {
        let Some(path) = self.layout.path(lbn) else { return Ok((false, u64::MAX)) };
        let inode = self.inode(ino)?.inode;
        if path.depth == 0 {
            return Ok((inode.db[path.slot] != 0, lbn + 1));
        }
        let mut at = inode.ib[path.slot];
        let first = self.layout.indirect_first(path.slot);
        for level in 0..path.depth {
            let span = self.layout.span(path.depth - level);
            let Some(indirect) = self.check_pointer(ino, lbn, at, self.layout.frag)? else {
                return Ok((false, first + ((lbn - first) / span + 1) * span));
            };
            let block = self.buffer(indirect, self.layout.frag, Kind::Indirect { ino })?;
            at = pointer_in(&block, path.slots[level]);
        }
        Ok((at != 0, lbn + 1))
    }
}

impl Ffs {
    async fn promise(&self, ino: InodeNo, blocks: Range<u64>, new_size: u64) -> FsResult<Promise<'_>> {
        let promise = || {
            self.step(|state| {
                let needed = state.allocations(ino, blocks.clone(), new_size)?;
                state.promise(needed)?;
                Ok(needed)
            })
        };
        let mut promised = promise().await;
        for _ in 0..DRAINS_MAX {
            if !matches!(promised, Err(FsError::NoSpace)) {
                break;
            }
            self.drain().await?;
            promised = promise().await;
        }
        Ok(Promise { ffs: self, blocks: promised? })
    }

    /// Prepares everything for block `lbn` to be stored, except for the block itself.
    async fn make_ready(&self, ino: InodeNo, lbn: u64, new_size: u64) -> FsResult<()> {
        // The tail of the file is extended first, so that only the last block is ever short (F1).
        loop {
            let block = u64::from(self.state.borrow().layout.block_bytes);
            let grown = self.step(|state| {
                let before = state.inode(ino)?.inode.size;
                let mut left = state.grow_tail(ino, new_size)?;
                let grew = state.inode(ino)?.inode.size > before;
                if state.soft.is_some() {
                    state.free_later(ino, true, &[], left.take().into_iter().collect());
                }
                Ok((left, grew))
            });
            let (left, grew) = grown.await?;
            if let Some((at, frags)) = left {
                // The inode on the volume still has the old place. For a file, 4.4BSD frees it at once; a crash before
                // the inode is written can then find it in two files. A directory is too valuable for that. The check
                // identifies the later owner by its time, which says nothing when the clock is behind.
                let settles = self.step(|state| {
                    let settles = state.clock_is_behind || state.inode(ino)?.inode.is_directory();
                    if !settles {
                        let since = state.cache.tick();
                        state.moved_tails.insert(ino, since);
                    }
                    Ok(settles)
                });
                if settles.await? {
                    self.settle_tail(ino).await?;
                }
                self.step(|state| state.free_frags(at, frags)).await?;
            }
            let size = self.state.borrow().inodes.get(&ino).map_or(0, |known| known.inode.size);
            if !grew || size.is_multiple_of(block) || size >= new_size {
                break;
            }
        }
        let mut fresh = None;
        while let Ready::NewIndirect { at, level } = self.step(|state| state.ready_indirect(ino, lbn, fresh)).await? {
            if let Err(error) = self.write_in_order(at).await {
                let frag = self.state.borrow().layout.frag;
                self.step(|state| state.free_frags(at, frag)).await?;
                return Err(error);
            }
            fresh = Some((at, level));
        }
        Ok(())
    }

    /// Fills a hole before the end of the file with zeroes that are on the volume before anything points to them: the
    /// zeroes of the hole are durable, and the place may hold another file's old bytes. Everything above is prepared.
    async fn fill_hole(&self, ino: InodeNo, lbn: u64) -> FsResult<()> {
        if self.options.metadata != Metadata::Sync {
            return Ok(());
        }
        let Some((vacancy, at, frags)) = self.step(|state| state.begin_hole(ino, lbn)).await? else { return Ok(()) };
        if let Err(error) = self.write_in_order(at).await {
            self.step(|state| state.free_frags(at, frags)).await?;
            return Err(error);
        }
        self.step(|state| state.occupy(ino, &vacancy, at, frags)).await
    }

    /// Completes the growth of a file. When it has failed, indirect blocks behind the end point to nothing, and are
    /// freed (F4).
    async fn end_growth(&self, ino: InodeNo, grown: FsResult<()>) -> FsResult<()> {
        if grown.is_err() {
            let inode = self.step(|state| Ok(state.inode(ino)?.inode)).await?;
            if inode.ib != [0; INDIRECT] {
                // What cannot be freed now is freed with the file.
                let _ = self.truncate(ino, inode.size).await;
            }
        }
        grown
    }

    /// Stores `data` at `offset`, which may be behind the end.
    pub(super) async fn write_data(&self, ino: InodeNo, offset: u64, data: &[u8]) -> FsResult<()> {
        let written = self.write_blocks(ino, offset, data).await;
        self.end_growth(ino, written).await
    }

    async fn write_blocks(&self, ino: InodeNo, offset: u64, data: &[u8]) -> FsResult<()> {
        let end = offset + data.len() as u64;
        let block = u64::from(self.state.borrow().layout.block_bytes);
        let (first, last) = (offset / block, (end - 1) / block);
        let _promise = self.promise(ino, first..last + 1, end).await?;
        let clusters = self.step(|state| Ok(state.kind(ino)? == FileKind::Regular)).await?;
        for lbn in first..=last {
            let (from, to) = (offset.max(lbn * block), end.min((lbn + 1) * block));
            self.make_ready(ino, lbn, to).await?;
            let source = &data[(from - offset) as usize..(to - offset) as usize];
            let within = (from - lbn * block) as usize;
            if source.len() as u64 != block {
                self.fill_hole(ino, lbn).await?;
            }
            let at = self.step(|state| state.store(ino, lbn, within, Some(source), to)).await?;
            if clusters && to == (lbn + 1) * block {
                self.write_clustered(ino, lbn, at).await?;
            }
        }
        Ok(())
    }

    /// Makes the file `size` bytes long, with zeroes at its end.
    pub(super) async fn extend(&self, ino: InodeNo, size: u64) -> FsResult<()> {
        let last = (size - 1) / u64::from(self.state.borrow().layout.block_bytes);
        let extended = self.allocate_blocks(ino, last..last + 1, size, false).await;
        self.end_growth(ino, extended).await
    }

    /// Allocates the blocks that are missing, in a file that then has at least `end` bytes. `fills`: a hole before its
    /// end is filled with zeroes that are on the volume first.
    async fn allocate_blocks(&self, ino: InodeNo, blocks: Range<u64>, end: u64, fills: bool) -> FsResult<()> {
        let block = u64::from(self.state.borrow().layout.block_bytes);
        let _promise = self.promise(ino, blocks.clone(), end).await?;
        for lbn in blocks {
            let to = end.min((lbn + 1) * block);
            self.make_ready(ino, lbn, to).await?;
            if fills {
                self.fill_hole(ino, lbn).await?;
            }
            self.step(|state| state.store(ino, lbn, 0, None, to)).await?;
            if fills {
                self.throttle().await?;
            }
        }
        Ok(())
    }

    /// Truncates the file to `size`, which is before its end.
    ///
    /// On the volume, the inode loses its pointers before another file can get the blocks; so does each indirect block.
    pub(super) async fn truncate(&self, ino: InodeNo, size: u64) -> FsResult<()> {
        let block = u64::from(self.state.borrow().layout.block_bytes);
        if size > 0 {
            // F3: the new last block must be there.
            let last = (size - 1) / block;
            let hole = self.step(|state| Ok(state.block_at(ino, last)?.is_none())).await?;
            if hole {
                let _promise = self.promise(ino, last..last + 1, 0).await?;
                self.make_ready(ino, last, 0).await?;
                self.fill_hole(ino, last).await?;
                self.step(|state| state.store(ino, last, 0, None, 0)).await?;
            }
        }
        let keep = size.div_ceil(block);
        if self.options.metadata == Metadata::Softdep {
            let gathered = self.gather(ino, keep).await?;
            self.step(|state| state.cut_and_lose(ino, size, &gathered)).await?;
            // The file is truncated; the next sync reports space that cannot be freed.
            let _ = self.run_jobs().await;
            return Ok(());
        }
        let freed = self.step(|state| state.cut(ino, size)).await?;
        self.write_inode_in_order_or_later(ino).await?;
        let mut left = self.state.borrow().layout.dsize.into();
        for (at, level, first) in freed.trees {
            self.free_tree(ino, at, level, first, keep, &mut left).await?;
        }
        for (at, frags) in freed.direct.into_iter().chain(freed.tail) {
            self.step(|state| state.release(ino, at, frags)).await?;
        }
        Ok(())
    }

    /// Frees the blocks from `keep` on below an indirect block, and the block itself if nothing is left.
    async fn free_tree(
        &self,
        ino: InodeNo,
        at: u32,
        level: usize,
        first: u64,
        keep: u64,
        left: &mut u64,
    ) -> FsResult<()> {
        cover_cut(level);
        let children = self.step(|state| state.clear_pointers(ino, at, level, first, keep)).await?;
        count_blocks(ino, left, children.len())?;
        if !children.is_empty() {
            self.write_in_order_or_later(at).await?;
        }
        let frag = self.state.borrow().layout.frag;
        for (child, child_first) in children {
            if self.step(|state| Ok(state.check_pointer(ino, child_first, child, frag).is_err())).await? {
                continue; // Left to the check.
            }
            if level > 1 {
                Box::pin(self.free_tree(ino, child, level - 1, child_first, keep, left)).await?;
            } else {
                self.step(|state| state.release(ino, child, frag)).await?;
            }
        }
        if first >= keep {
            self.step(|state| state.release(ino, at, frag)).await?;
        }
        Ok(())
    }

    /// All blocks of a file or directory that no longer has a name.
    pub(super) async fn gather_all(&self, ino: InodeNo) -> FsResult<Vec<(u32, u32)>> {
        let gathered = self.gather(ino, 0).await?;
        self.step(|state| state.cut(ino, 0)).await?;
        Ok(gathered.frags)
    }

    /// Everything that a file has from block `keep` on, without its tail. Nothing changes yet: an unreadable block
    /// leaves the file as it was.
    async fn gather(&self, ino: InodeNo, keep: u64) -> FsResult<Gathered> {
        let freed = self.step(|state| {
            let mut freed = Freed::default();
            state.parts_behind(ino, keep, &mut freed)?;
            Ok(freed)
        });
        let freed = freed.await?;
        let left = self.state.borrow().layout.dsize.into();
        let mut gathered = Gathered { frags: freed.direct, slots: Vec::new(), left };
        for (at, level, first) in freed.trees {
            let below = self.gather_tree(ino, at, level, first, keep, &mut gathered).await?;
            gathered.frags.extend(below);
        }
        Ok(gathered)
    }

    /// What goes with the indirect block at `at`: everything below it and itself, or nothing if it stays; then the
    /// slots that it loses are added to those of `gathered`.
    async fn gather_tree(
        &self,
        ino: InodeNo,
        at: u32,
        level: usize,
        first: u64,
        keep: u64,
        gathered: &mut Gathered,
    ) -> FsResult<Vec<(u32, u32)>> {
        cover_cut(level);
        let (frag, pointers, span) = {
            let layout = &self.state.borrow().layout;
            (layout.frag, layout.pointers_per_block as usize, layout.span(level - 1))
        };
        let children = self.step(|state| state.children_behind(ino, at, level, first, keep)).await?;
        count_blocks(ino, &mut gathered.left, children.len())?;
        let mut below = Vec::new();
        for (child, child_first) in children {
            if self.step(|state| Ok(state.check_pointer(ino, child_first, child, frag).is_err())).await? {
                continue; // Left to the check.
            }
            if level > 1 {
                below.extend(Box::pin(self.gather_tree(ino, child, level - 1, child_first, keep, gathered)).await?);
            } else {
                below.push((child, frag));
            }
        }
        if first >= keep {
            below.push((at, frag));
            return Ok(below);
        }
        // The first slot of which nothing stays.
        let gone = ((keep - first).div_ceil(span) as usize).min(pointers)..pointers;
        if !gone.is_empty() && !below.is_empty() {
            gathered.slots.push(((at, gone), below));
        }
        Ok(Vec::new())
    }

    /// Writes zeroes over existing data; holes stay.
    async fn zero_data(&self, ino: InodeNo, range: Range<u64>) -> FsResult<()> {
        let block = u64::from(self.state.borrow().layout.block_bytes);
        let mut at = range.start;
        while at < range.end {
            let lbn = at / block;
            let to = range.end.min((lbn + 1) * block);
            let (from, length) = ((at - lbn * block) as usize, (to - at) as usize);
            let zeroed = self.step(|state| match state.block_at(ino, lbn)? {
                None => Ok(()),
                Some(_) => {
                    let size = state.inode(ino)?.inode.size;
                    state.store(ino, lbn, from, Some(&vec![0; length]), size.min(to)).map(drop)
                }
            });
            zeroed.await?;
            at = to;
        }
        Ok(())
    }

    pub(super) async fn allocate(&self, ino: InodeNo, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let block = u64::from(self.state.borrow().layout.block_bytes);
        let size = self.step(|state| Ok(state.regular(ino)?.size)).await?;
        let end = range.offset + range.bytes;
        match mode {
            AllocateMode::PunchHole => {
                let end = end.min(size);
                if range.offset >= end {
                    return Ok(());
                }
                // F3: the last block stays.
                let whole = range.offset.div_ceil(block)..(end / block).min((size - 1) / block);
                if whole.is_empty() {
                    return self.zero_data(ino, range.offset..end).await;
                }
                self.zero_data(ino, range.offset..whole.start * block).await?;
                self.zero_data(ino, whole.end * block..end).await?;
                self.unmap(ino, whole).await
            }
            AllocateMode::Allocate { keep_size } | AllocateMode::Zero { keep_size } => {
                if keep_size && end > size {
                    return Err(FsError::Unsupported); // F4
                }
                let (first, last) = (range.offset / block, (end - 1) / block);
                let allocated = self.allocate_blocks(ino, first..last + 1, end, true).await;
                self.end_growth(ino, allocated).await?;
                match mode {
                    AllocateMode::Zero { .. } => self.zero_data(ino, range.offset..end.min(size)).await,
                    _ => Ok(()),
                }
            }
        }
    }

    /// Turns whole blocks into holes.
    async fn unmap(&self, ino: InodeNo, blocks: Range<u64>) -> FsResult<()> {
        let mut next = blocks.start;
        while next < blocks.end {
            let skipped = self.step(|state| state.data_or_skip(ino, next)).await?;
            if !skipped.0 {
                next = skipped.1;
                continue;
            }
            let unmapped = self.step(|state| {
                let (mut held, holder, further) = state.unmap_some(ino, next..blocks.end)?;
                if state.soft.is_some() {
                    let frag = state.layout.frag;
                    let frags = held.drain(..).map(|at| (at, frag)).collect();
                    let in_indirect: Vec<Holder> = holder.iter().cloned().collect();
                    state.lose(ino, holder.is_none(), &in_indirect, frags)?;
                }
                Ok((held, holder, further))
            });
            let (held, holder, further) = unmapped.await?;
            if !held.is_empty() {
                match holder {
                    Some((at, _)) => self.write_in_order_or_later(at).await?,
                    None => self.write_inode_in_order_or_later(ino).await?,
                }
            }
            let frag = self.state.borrow().layout.frag;
            for at in held {
                self.step(|state| state.release(ino, at, frag)).await?;
            }
            next = further;
        }
        Ok(())
    }

    pub(super) async fn seek(&self, ino: InodeNo, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let size = self.step(|state| Ok(state.regular(ino)?.size)).await?;
        if offset >= size {
            return Err(FsError::NoSuchOffset);
        }
        let block = u64::from(self.state.borrow().layout.block_bytes);
        let end = size.div_ceil(block);
        let mut lbn = offset / block;
        let found = loop {
            match self.step(|state| state.seek(ino, lbn, end, seek)).await? {
                Ok(found) => break found,
                Err(further) => lbn = further,
            }
        };
        match (found >= end, seek) {
            (true, SeekTo::Hole) => Ok(size),
            (true, SeekTo::Data) => Err(FsError::NoSuchOffset),
            (false, _) => Ok(offset.max(found * block)),
        }
    }
}
