//! The data of files: writing, growing, holes. What a file loses is in `truncate.rs`.
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
use super::cache::BufferKind;
use super::dir::fill_with_empty_chunks;
use super::format::*;
use super::state::*;
use super::{Ffs, Metadata};
use crate::device::{Buf, Data};
use crate::fs::{AllocateMode, FileKind, FileRange, FsError, FsResult, SeekTo};
use crate::rt::cover;

/// Blocks that one step visits at most. It begins again when it lacks something in memory, and what it had may be
/// evicted by then.
const LOOKED_AT_MAX: u64 = 4096;

/// What remains to be done before block `lbn` of a file can be changed.
enum Ready {
    Yes,
    /// The pointer to a new indirect block was added: look again.
    Linked,
    /// Write the new indirect block here, then add the pointer to it.
    NewIndirect {
        at: FragNo,
        level: usize,
    },
}

/// What has become of a tail that grows.
enum Tail {
    /// It goes as far as its block does. If it has moved: its old place, which is still allocated.
    Grown(Option<(FragNo, u32)>),
    /// Nothing has changed yet, but there is a copy, which has to be written first.
    Copied(Moving),
}

/// The move of a tail whose old place the volume needs until it has the new one.
struct Moving {
    from: FragNo,
    /// Fragments at `from`.
    old: u32,
    to: FragNo,
    /// Fragments at `to`.
    new: u32,
    /// What is there.
    bytes: Data,
}

/// A pointer that is not set yet.
struct Vacancy {
    /// The indirect block that contains it; `None` for the inode.
    holder: Option<FragNo>,
    index: usize,
    /// All pointers before it, from which a near address is chosen.
    before: Vec<FragNo>,
}

impl State {
    pub(super) fn regular(&mut self, ino: InodeNo) -> Step<Inode> {
        match self.kind(ino)? {
            FileKind::Regular => Ok(self.inode(ino)?.inode),
            FileKind::Directory => fail(FsError::IsDirectory),
            _ => fail(FsError::Invalid("not a regular file")),
        }
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.layout.block_bytes.into()
    }

    /// Counts fragments that a file gets or loses. A count that is impossible is damage: it stays as it is, and the
    /// volume is left to be checked.
    pub(super) fn count_frags(&mut self, ino: InodeNo, change: i64) -> Step<()> {
        let sectors = change * i64::from(self.layout.frag_bytes / 512);
        let inode = self.inode_mut(ino)?;
        match u32::try_from(i64::from(inode.blocks) + sectors) {
            Ok(blocks) => inode.blocks = blocks,
            Err(_) => self.counters.miscounted += 1,
        }
        Ok(())
    }

    /// Refuses a write of file blocks `blocks` that cannot fit, before its blocks are visited.
    fn check_room(&mut self, ino: InodeNo, blocks: &Range<u64>) -> Step<()> {
        let inode = self.inode(ino)?.inode;
        let block = self.block_bytes();
        let present = u64::from(inode.blocks) * 512 / block;
        let missing = (blocks.end - blocks.start).saturating_sub(present);
        let frags = missing.saturating_mul(self.layout.frag.into());
        self.require_room(|state, free| missing <= 1 || frags <= state.frags_available_of(free).max(0) as u64)
    }

    /// Counts blocks that are missing, from the first one on, over a bounded range. Returns how many, and how far the
    /// count went.
    fn missing(&mut self, ino: InodeNo, blocks: Range<u64>) -> Step<(u64, u64)> {
        let end = self.inode(ino)?.inode.size.div_ceil(self.block_bytes()).min(blocks.end);
        let (mut lbn, mut missing) = (blocks.start, 0);
        for _ in 0..LOOKED_AT_MAX {
            if lbn >= end {
                // There is nothing behind the end to look up.
                return Ok((missing + blocks.end - lbn, blocks.end));
            }
            let (is_data, next) = self.data_or_skip(ino, lbn)?;
            let next = next.min(end);
            missing += if is_data { 0 } else { next - lbn };
            lbn = next;
        }
        Ok((missing, lbn))
    }

    /// How many allocations a write of file blocks `blocks` needs at most, of which `missing` are missing: these,
    /// indirect blocks, and a tail that has to move.
    fn allocations(&mut self, ino: InodeNo, blocks: &Range<u64>, missing: u64, new_size: u64) -> Step<i64> {
        let inode = self.inode(ino)?.inode;
        let block = self.block_bytes();
        let mut needed = missing as i64;
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
    /// directory with empty chunks (D1). The file then ends where that block does, or at `new_size`.
    ///
    /// A tail that the volume may need moves in two steps: the first makes a copy, and once that is written, the second, called
    /// with the copy, points to it.
    fn grow_tail(&mut self, ino: InodeNo, new_size: u64, copied: Option<&Moving>) -> Step<Tail> {
        let inode = self.inode(ino)?.inode;
        let block = self.block_bytes();
        if inode.size == 0 || new_size <= inode.size {
            return Ok(Tail::Grown(None));
        }
        let last = (inode.size - 1) / block;
        let (old, new) = (self.layout.block_frags(inode.size, last), self.layout.block_frags(new_size, last));
        let size = new_size.min((last + 1) * block);
        let Some(at) = self.block_at(ino, last)? else {
            // F3 does not hold here; then there is nothing to grow.
            self.inode_mut(ino)?.size = size;
            return Ok(Tail::Grown(None));
        };
        let mut now_at = at;
        if let Some(Moving { to, bytes, .. }) = copied {
            now_at = *to;
            if self.cache.peek(now_at).is_none() {
                let kind = self.data_kind(ino, last)?;
                self.cache.insert_clean(now_at, bytes.clone(), kind);
            }
        } else {
            let kind = self.data_kind(ino, last)?;
            let used = (inode.size - last * block) as usize;
            let end = old as usize * self.layout.frag_bytes as usize;
            let clean = used >= end || self.buffer(at, old, kind)?[used..end].iter().all(|&byte| byte == 0);
            let mut is_needed = false;
            if new > old && !self.extend_tail(ino, last, at, old, new)? {
                is_needed = self.needs_old_tail(ino, last, at)?;
                now_at = self.copy_tail(ino, last, at, old, new)?;
                if !is_needed && self.soft.is_none() {
                    let since = self.cache.tick();
                    self.copied_tails.insert(ino, since);
                }
            }
            if !clean {
                self.buffer_mut(now_at)?[used..end].fill(0); // F2
            }
            let size_in_block = (size - last * block) as usize;
            if matches!(kind, BufferKind::Directory { .. }) && used < size_in_block {
                // The tail and the inode can reach the volume before the first entry does.
                fill_with_empty_chunks(&mut self.buffer_mut(now_at)?[used..size_in_block]);
                self.note_grown(ino, now_at);
            }
            if is_needed {
                let bytes = self.buffer(now_at, new, kind)?;
                let (from, to) = (at, now_at);
                return Ok(Tail::Copied(Moving { from, old, to, new, bytes }));
            }
        }
        let inode = self.inode_mut(ino)?;
        if let Some(pointer) = inode.db.get_mut(last as usize) {
            *pointer = now_at;
        }
        inode.size = size;
        self.count_frags(ino, i64::from(new) - i64::from(old))?;
        Ok(Tail::Grown((now_at != at).then_some((at, old))))
    }

    /// Whether a crash may find the tail of a file only at `at`, until the inode on the volume has its new place.
    ///
    /// In 4.4BSD the tail of a file may be lost then, but not that of a directory. The check identifies a later owner of the
    /// place by its time, which says nothing when the clock is behind.
    fn needs_old_tail(&mut self, ino: InodeNo, lbn: u64, at: FragNo) -> Step<bool> {
        if self.options.metadata != Metadata::Sync {
            return Ok(false);
        }
        let is_directory = self.inode(ino)?.inode.is_directory();
        if is_directory || !self.options.keep_moved {
            return Ok(is_directory || self.clock_is_behind);
        }
        // The copy in the inode's block decides. An older one on the volume has no other place: an inode is written before an
        // old place of its blocks is free.
        Ok(!self.is_only_here(ino) && self.stored_inode(ino)?.db.get(lbn as usize) == Some(&at))
    }

    /// Prepares the indirect blocks above `lbn`, one at a time: a new one has to be on the volume, full of zeroes,
    /// before anything points to it. The step that adds the pointer does nothing else (S1).
    fn ready_indirect(&mut self, ino: InodeNo, lbn: u64, fresh: Option<(FragNo, usize)>) -> Step<Ready> {
        let Some(path) = self.layout.path(lbn) else { return fail(FsError::FileTooLarge) };
        let frag = self.layout.frag;
        let mut at = self.inode(ino)?.inode.ib.get(path.slot).copied().unwrap_or_default();
        let mut holder = None;
        for level in 0..path.depth {
            if at == FragNo::NONE {
                match fresh {
                    Some((new, of_level)) if of_level == level => {
                        match holder {
                            None => self.inode_mut(ino)?.ib[path.slot] = new,
                            Some((holder, slot)) => self.put_pointers(ino, holder, slot..slot + 1, new)?,
                        }
                        self.count_frags(ino, frag.into())?;
                        if self.inode(ino)?.inode.is_directory() {
                            cover("ffs: a directory gets an indirect block");
                        }
                        return Ok(Ready::Linked);
                    }
                    _ => {
                        let preferred = self.preferred_block(ino, lbn, 0, &[]);
                        let new = self.take_frags(ino, preferred, frag)?;
                        self.zero_buffer(new, frag, BufferKind::Indirect { ino });
                        self.note_new_indirect(ino, new);
                        return Ok(Ready::NewIndirect { at: new, level });
                    }
                }
            }
            let Some(indirect) = self.check_pointer(ino, lbn, at, frag)? else { return Ok(Ready::Yes) };
            let block = self.buffer(indirect, frag, BufferKind::Indirect { ino })?;
            holder = Some((indirect, path.slots[level]));
            at = pointer_in(&block, path.slots[level]);
        }
        Ok(Ready::Yes)
    }

    /// Stores `source` in block `lbn`, from byte `from` of it on; where `source` is `None`, only allocates the block.
    /// The indirect blocks exist, and the tail of the file has been extended as far as its block goes. Afterwards the
    /// file has at least `new_size` bytes. Returns the address of the block.
    pub(super) fn store(
        &mut self,
        ino: InodeNo,
        lbn: u64,
        from: usize,
        source: Option<&[u8]>,
        new_size: u64,
    ) -> Step<FragNo> {
        let inode = self.inode(ino)?.inode;
        let (block, frag_bytes) = (self.block_bytes(), self.layout.frag_bytes);
        debug_assert!(
            source.is_none_or(|source| (from + source.len()) as u64 <= block),
            "F1: what is stored in a block ends in it"
        );
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
            at = pointer_in(&self.buffer(at, self.layout.frag, BufferKind::Indirect { ino })?, slot);
        }
        debug_assert_ne!(at, FragNo::NONE, "the indirect blocks above a block are there before it");
        let data = self.buffer(at, self.layout.frag, BufferKind::Indirect { ino })?;
        let before = (0..self.layout.pointers_per_block as usize).map(|slot| pointer_in(&data, slot)).collect();
        Ok(Vacancy { holder: Some(at), index: path.slots[path.depth - 1], before })
    }

    /// Adds the `frags` fragments at `at` to the file.
    fn occupy(&mut self, ino: InodeNo, vacancy: &Vacancy, at: FragNo, frags: u32) -> Step<()> {
        debug_assert_eq!(vacancy.before[vacancy.index], FragNo::NONE, "F1: a block goes where the file has none");
        match vacancy.holder {
            None => self.inode_mut(ino)?.db[vacancy.index] = at,
            Some(holder) => self.put_pointers(ino, holder, vacancy.index..vacancy.index + 1, at)?,
        }
        self.count_frags(ino, frags.into())
    }

    /// Allocates block `lbn` in a hole before the end of a file, and zeroes it in memory. Nothing points to it yet.
    fn begin_hole(&mut self, ino: InodeNo, lbn: u64) -> Step<Option<(Vacancy, FragNo, u32)>> {
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

    /// Searches for data or a hole from block `lbn` on, over a bounded range.
    fn seek(&mut self, ino: InodeNo, lbn: u64, end: u64, seek: SeekTo) -> Step<Searched> {
        let mut lbn = lbn;
        for _ in 0..LOOKED_AT_MAX {
            if lbn >= end {
                return Ok(Searched::Found(end));
            }
            let (is_data, next) = self.data_or_skip(ino, lbn)?;
            if is_data == (seek == SeekTo::Data) {
                return Ok(Searched::Found(lbn));
            }
            lbn = next;
        }
        Ok(Searched::Until(lbn))
    }

    /// Whether the block is data, and the next one that may differ: where an indirect block is missing, everything that
    /// it would span is skipped.
    pub(super) fn data_or_skip(&mut self, ino: InodeNo, lbn: u64) -> Step<(bool, u64)> {
        let Some(path) = self.layout.path(lbn) else { return Ok((false, u64::MAX)) };
        let inode = self.inode(ino)?.inode;
        if path.depth == 0 {
            return Ok((inode.db[path.slot] != FragNo::NONE, lbn + 1));
        }
        let mut at = inode.ib[path.slot];
        let first = self.layout.indirect_first(path.slot);
        for level in 0..path.depth {
            let span = self.layout.span(path.depth - level);
            let Some(indirect) = self.check_pointer(ino, lbn, at, self.layout.frag)? else {
                return Ok((false, first + ((lbn - first) / span + 1) * span));
            };
            let block = self.buffer(indirect, self.layout.frag, BufferKind::Indirect { ino })?;
            at = pointer_in(&block, path.slots[level]);
        }
        Ok((at != FragNo::NONE, lbn + 1))
    }
}

impl Ffs {
    pub(super) async fn promise(&self, ino: InodeNo, blocks: Range<u64>, new_size: u64) -> FsResult<Promise<'_>> {
        let promise = async || {
            self.step(|state| state.check_room(ino, &blocks)).await?;
            let (mut missing, mut lbn) = (0, blocks.start);
            loop {
                let (more, further) = self.step(|state| state.missing(ino, lbn..blocks.end)).await?;
                (missing, lbn) = (missing + more, further);
                if lbn >= blocks.end {
                    break;
                }
                self.rt.yield_now().await; // The caller's lock keeps the file as it is.
            }
            let needed = self.step(|state| state.allocations(ino, &blocks, missing, new_size)).await?;
            if needed == 0 {
                return Ok(());
            }
            let _pass = self.backing_gate.enter().await;
            self.stock(ino, needed).await?;
            self.step(|state| state.promise(ino, needed)).await
        };
        self.with_space(promise).await?;
        Ok(Promise { ffs: self, ino })
    }

    /// Prepares everything for block `lbn` to be stored, except for the block itself.
    pub(super) async fn make_ready(&self, ino: InodeNo, lbn: u64, new_size: u64) -> FsResult<()> {
        // The tail of the file is extended first, so that only the last block is ever short (F1).
        loop {
            let block = u64::from(self.state.borrow().layout.block_bytes);
            let grown = self.step(|state| {
                let before = state.inode(ino)?.inode.size;
                let mut tail = state.grow_tail(ino, new_size, None)?;
                let grew = state.inode(ino)?.inode.size > before;
                if state.soft.is_some()
                    && let Tail::Grown(left) = &mut tail
                {
                    state.free_later(ino, true, &[], left.take().into_iter().collect());
                }
                Ok((tail, grew))
            });
            let (tail, mut grew) = grown.await?;
            match tail {
                Tail::Grown(None) => {}
                Tail::Grown(Some((at, frags))) => {
                    let freed = self.step(|state| {
                        if !state.options.keeps_moved() {
                            // The inode on the volume may still have the old place; 4.4BSD frees it at once. A crash before
                            // the inode is written can then find it in two files.
                            let since = state.cache.tick();
                            state.moved_tails.insert(ino, since);
                        }
                        state.free_frags(at, frags)
                    });
                    freed.await?;
                }
                Tail::Copied(moving) => {
                    self.move_tail(ino, new_size, &moving).await?;
                    grew = true;
                }
            }
            let size = self.state.borrow().inodes.get(&ino).map_or(0, |known| known.inode.size);
            if !grew || size.is_multiple_of(block) || size >= new_size {
                break;
            }
        }
        let mut fresh = None;
        loop {
            match self.step(|state| state.ready_indirect(ino, lbn, fresh)).await? {
                Ready::Yes => return Ok(()),
                Ready::Linked => fresh = None,
                Ready::NewIndirect { at, level } => {
                    if let Err(error) = self.write_in_order(at).await {
                        let frag = self.state.borrow().layout.frag;
                        self.step(|state| state.free_frags(at, frag)).await?;
                        return Err(error);
                    }
                    fresh = Some((at, level));
                }
            }
        }
    }

    /// Moves a tail to its copy: that is on the volume before the inode points to it, and the inode before the old place is
    /// free, so that a crash at any moment finds one of the two.
    ///
    /// # Errors
    /// `NoSpace` when there is none below for the copy. Then the file is as before.
    async fn move_tail(&self, ino: InodeNo, new_size: u64, moving: &Moving) -> FsResult<()> {
        let &Moving { from, old, to, new, .. } = moving;
        debug_assert!(to.0 + new <= from.0 || from.0 + old <= to.0, "U2: a tail and its copy share no fragment");
        let moved = match self.write_in_order(to).await {
            Ok(()) => self.step(|state| state.grow_tail(ino, new_size, Some(moving)).map(drop)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = moved {
            self.step(|state| state.free_frags(to, new)).await?;
            return Err(error);
        }
        match self.write_inode_in_order(ino).await {
            Ok(()) => self.step(|state| state.free_frags(from, old)).await,
            Err(FsError::NoSpace) => {
                self.state.borrow_mut().leave_behind(ino, from, old);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Fills a hole before the end of the file with zeroes that are on the volume before anything points to them: the
    /// zeroes of the hole are durable, and the place may hold another file's old bytes. Everything above is prepared.
    pub(super) async fn fill_hole(&self, ino: InodeNo, lbn: u64) -> FsResult<()> {
        if self.options.metadata != Metadata::Sync {
            return Ok(());
        }
        let Some((vacancy, at, frags)) = self.step(|state| state.begin_hole(ino, lbn)).await? else { return Ok(()) };
        if let Err(error) = self.write_in_order(at).await {
            self.step(|state| state.free_frags(at, frags)).await?;
            return Err(error);
        }
        let occupied = self.step(|state| {
            // These may have left memory in the time (S1).
            state.inode(ino)?;
            if let Some(holder) = vacancy.holder {
                state.buffer(holder, state.layout.frag, BufferKind::Indirect { ino })?;
            }
            state.occupy(ino, &vacancy, at, frags)
        });
        if let Err(error) = occupied.await {
            self.step(|state| state.free_frags(at, frags)).await?;
            return Err(error);
        }
        Ok(())
    }

    /// Runs what makes a file longer. When that fails, the file is as long as before, as in 4.4BSD, and indirect blocks behind
    /// its end, which point to nothing, are freed (F4). A directory keeps the empty chunks that it has got.
    async fn growing(&self, ino: InodeNo, grow: impl Future<Output = FsResult<()>>) -> FsResult<()> {
        let size = self.step(|state| Ok(state.inode(ino)?.inode.size)).await?;
        let grown = grow.await;
        if grown.is_err() {
            let inode = self.step(|state| Ok(state.inode(ino)?.inode)).await?;
            let size = if inode.is_directory() { inode.size } else { size.min(inode.size) };
            if size < inode.size || inode.ib != [FragNo::NONE; INDIRECT] {
                // What cannot be freed now is freed with the file.
                let _ = self.truncate(ino, size).await;
            }
        }
        grown
    }

    /// Stores `data` at `offset`, which may be behind the end.
    pub(super) async fn write_data(&self, ino: InodeNo, offset: u64, data: &[u8]) -> FsResult<()> {
        self.growing(ino, self.write_blocks(ino, offset, data)).await
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
        self.growing(ino, self.allocate_blocks(ino, last..last + 1, size, false)).await
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
            self.throttle().await?;
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
                self.growing(ino, self.allocate_blocks(ino, first..last + 1, end, true)).await?;
                match mode {
                    AllocateMode::Zero { .. } => self.zero_data(ino, range.offset..end.min(size)).await,
                    _ => Ok(()),
                }
            }
        }
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
                Searched::Found(found) => break found,
                Searched::Until(further) => lbn = further,
            }
        };
        match (found >= end, seek) {
            (true, SeekTo::Hole) => Ok(size),
            (true, SeekTo::Data) => Err(FsError::NoSuchOffset),
            (false, _) => Ok(offset.max(found * block)),
        }
    }
}
