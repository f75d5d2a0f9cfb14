//! What a file loses: truncating it, freeing it, turning whole blocks into holes.
//!
//! The caller holds the lock of the inode exclusively. The invariants are those of [`super::file`].

use std::ops::Range;

use super::cache::BufferKind;
use super::format::*;
use super::soft::Holder;
use super::state::*;
use super::{Ffs, Metadata};
use crate::device::Buf;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;

/// What a file loses, for soft updates.
#[derive(Default)]
struct Gathered {
    /// Fragments lost with a pointer in the inode.
    frags: Vec<(FragNo, u32)>,
    /// Slots of indirect blocks that stay, and what the file loses with each.
    slots: Vec<(Holder, Vec<(FragNo, u32)>)>,
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

/// The end of blocks that nothing points to any more. One that cannot be freed keeps no other from being freed.
struct Freeing {
    /// What pointed to these blocks has found no space below: on the volume it still does. Then they are left behind, since
    /// another file that got them would share them after a crash.
    is_held: bool,
    /// Limit of further blocks.
    left: u64,
    /// The group that could not be changed last: it is not asked again for each block.
    lost: Option<GroupNo>,
    first_error: Option<FsError>,
}

/// Blocks that no longer belong to a file.
#[derive(Default)]
struct Freed {
    direct: Vec<(FragNo, u32)>,
    /// Indirect blocks: address, level, first file block below it.
    trees: Vec<(FragNo, usize, u64)>,
    /// The old place of a changed tail.
    tail: Option<(FragNo, u32)>,
}

impl State {
    /// Truncates a file in memory. Returns what it has lost; that is still allocated.
    fn cut(&mut self, ino: InodeNo, size: u64) -> Step<Freed> {
        let inode = self.inode(ino)?.inode;
        let block = self.block_bytes();
        debug_assert!(size <= inode.size, "F4: a file that is cut does not get longer");
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
                *pointer = FragNo::NONE;
            }
        }
        for (first, pointer) in indirect_first.iter().zip(&mut inode.ib) {
            if *first >= keep {
                *pointer = FragNo::NONE;
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

    /// Frees fragments of a file; with `is_held`, once nothing on the volume points to them any more.
    fn release(&mut self, ino: InodeNo, at: FragNo, frags: u32, is_held: bool) -> Step<()> {
        if is_held {
            self.cache.forget(at, frags); // It needs no room below any more.
            self.leave_behind(ino, at, frags);
        } else {
            self.free_frags(at, frags)?;
        }
        // The inode may have left memory if the truncation failed.
        if self.inodes.contains_key(&ino) {
            self.count_frags(ino, -i64::from(frags))?;
        }
        Ok(())
    }

    /// The children of an indirect block from block `keep` on, each with its first file block.
    fn children_behind(
        &mut self,
        ino: InodeNo,
        at: FragNo,
        level: usize,
        first: u64,
        keep: u64,
    ) -> Step<Vec<(FragNo, u64)>> {
        let block = self.buffer(at, self.layout.frag, BufferKind::Indirect { ino })?;
        debug_assert!(level > 0, "an indirect block is above data");
        let span = self.layout.span(level - 1);
        let mut found = Vec::new();
        for slot in 0..self.layout.pointers_per_block as usize {
            let child_first = first + slot as u64 * span;
            let child = pointer_in(&block, slot);
            if child != FragNo::NONE && child_first + span > keep {
                found.push((child, child_first));
            }
        }
        Ok(found)
    }

    /// With soft updates: the file has lost these fragments, which are freed when that is durable.
    fn lose(&mut self, ino: InodeNo, in_inode: bool, holders: &[Holder], frags: Vec<(FragNo, u32)>) -> Step<()> {
        let total: i64 = frags.iter().map(|&(_, count)| i64::from(count)).sum();
        self.count_frags(ino, -total)?;
        self.free_later(ino, in_inode, holders, frags);
        Ok(())
    }

    /// With soft updates: truncates a file, which loses what was gathered for that.
    fn cut_and_lose(&mut self, ino: InodeNo, size: u64, gathered: &Gathered) -> Step<()> {
        for ((at, _), _) in &gathered.slots {
            self.buffer(*at, self.layout.frag, BufferKind::Indirect { ino })?;
        }
        let freed = self.cut(ino, size)?;
        for (holder, frags) in &gathered.slots {
            self.put_pointers(ino, holder.0, holder.1.clone(), FragNo::NONE)?;
            self.lose(ino, false, std::slice::from_ref(holder), frags.clone())?;
        }
        let frags = gathered.frags.iter().copied().chain(freed.tail).collect();
        self.lose(ino, true, &[], frags)
    }

    /// Removes the pointers to blocks from `keep` on from an indirect block. Returns them.
    fn clear_pointers(
        &mut self,
        ino: InodeNo,
        at: FragNo,
        level: usize,
        first: u64,
        keep: u64,
    ) -> Step<Vec<(FragNo, u64)>> {
        let found = self.children_behind(ino, at, level, first, keep)?;
        let block = self.buffer(at, self.layout.frag, BufferKind::Indirect { ino })?;
        let span = self.layout.span(level - 1);
        let gone: Vec<usize> = (0..self.layout.pointers_per_block as usize)
            .filter(|&slot| first + slot as u64 * span >= keep && pointer_in(&block, slot) != FragNo::NONE)
            .collect();
        drop(block);
        if !gone.is_empty() {
            let bytes = self.buffer_mut(at)?;
            for slot in gone {
                put_pointer(bytes, slot, FragNo::NONE);
            }
        }
        Ok(found)
    }

    /// Unmaps the whole blocks of `blocks` that have the same holder as the first of them. Returns the blocks, the
    /// indirect block that held them and the slots in it (`None`: the inode), and where to continue.
    fn unmap_some(&mut self, ino: InodeNo, blocks: Range<u64>) -> Step<(Vec<FragNo>, Option<Holder>, u64)> {
        debug_assert!(!blocks.is_empty(), "whole blocks are unmapped, at least one");
        let Some(path) = self.layout.path(blocks.start) else { return Ok((Vec::new(), None, blocks.end)) };
        let n = u64::from(self.layout.pointers_per_block);
        let frag = self.layout.frag;
        if path.depth == 0 {
            let end = blocks.end.min(DIRECT as u64);
            let inode = self.inode(ino)?.inode;
            let held = (blocks.start..end)
                .filter_map(|lbn| self.check_pointer(ino, lbn, inode.db[lbn as usize], frag).ok().flatten());
            let held: Vec<FragNo> = held.collect();
            if !held.is_empty() {
                self.inode_mut(ino)?.db[blocks.start as usize..end as usize].fill(FragNo::NONE);
            }
            return Ok((held, None, end));
        }
        let slot = path.slots[path.depth - 1] as u64;
        let end = blocks.end.min(blocks.start - slot + n);
        let mut at = self.inode(ino)?.inode.ib[path.slot];
        for &slot in &path.slots[..path.depth - 1] {
            let Some(indirect) = self.check_pointer(ino, blocks.start, at, frag)? else { break };
            at = pointer_in(&self.buffer(indirect, frag, BufferKind::Indirect { ino })?, slot);
        }
        let Some(holder) = self.check_pointer(ino, blocks.start, at, frag)? else {
            return Ok((Vec::new(), None, end));
        };
        let block = self.buffer(holder, frag, BufferKind::Indirect { ino })?;
        let slots = slot as usize..(slot + end - blocks.start) as usize;
        let held = slots.clone().map(|slot| pointer_in(&block, slot));
        let held: Vec<FragNo> = held.filter(|&at| self.layout.is_data(at, frag)).collect();
        drop(block);
        if !held.is_empty() {
            self.put_pointers(ino, holder, slots.clone(), FragNo::NONE)?;
        }
        Ok((held, Some((holder, slots)), end))
    }
}

impl Ffs {
    /// Truncates the file to `size`, which is before its end.
    ///
    /// On the volume, the inode loses its pointers before another file can get the blocks; so does each indirect block. This
    /// succeeds without space below.
    pub(super) async fn truncate(&self, ino: InodeNo, size: u64) -> FsResult<()> {
        debug_assert!(self.locks.is_alone(ino), "F4: a file gets shorter while no other operation uses it");
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
        // The volume knows nothing of what an inode that is only here has had.
        let is_only_here = self.state.borrow().is_only_here(ino);
        let written = if is_only_here { Ok(()) } else { self.write_inode_in_order(ino).await };
        let is_held = match written {
            Ok(()) => false,
            Err(FsError::NoSpace) => true,
            Err(error) => {
                // The inode on the volume may still have all of it.
                self.state.borrow_mut().counters.unfreed += 1;
                return Err(error);
            }
        };
        let mut freeing = self.begin_freeing(is_held);
        for (at, level, first) in freed.trees {
            self.free_tree(ino, at, level, first, keep, &mut freeing).await;
        }
        for (at, frags) in freed.direct.into_iter().chain(freed.tail) {
            self.free_part(ino, at, frags, &mut freeing).await;
        }
        self.end_freeing(freeing)
    }

    fn begin_freeing(&self, is_held: bool) -> Freeing {
        Freeing { is_held, left: self.state.borrow().layout.dsize.into(), lost: None, first_error: None }
    }

    /// What was not freed has no owner from now on: the volume is left to be checked.
    fn end_freeing(&self, freeing: Freeing) -> FsResult<()> {
        match freeing.first_error {
            None => Ok(()),
            Some(error) => {
                self.state.borrow_mut().counters.unfreed += 1;
                Err(error)
            }
        }
    }

    /// Frees fragments that nothing points to.
    async fn free_part(&self, ino: InodeNo, at: FragNo, frags: u32, freeing: &mut Freeing) {
        let group = self.state.borrow().layout.group_of(at);
        let is_held = freeing.is_held;
        if freeing.lost == Some(group) && !is_held {
            return;
        }
        if let Err(error) = self.step(|state| state.release(ino, at, frags, is_held)).await {
            freeing.lost = Some(group);
            freeing.first_error.get_or_insert(error);
        }
    }

    /// Frees the blocks from `keep` on below an indirect block, and the block itself if nothing is left.
    async fn free_tree(&self, ino: InodeNo, at: FragNo, level: usize, first: u64, keep: u64, freeing: &mut Freeing) {
        debug_assert!((1..=INDIRECT).contains(&level), "an indirect block is of one of three levels");
        cover_cut(level);
        let (children, holds) = match self.take_children(ino, at, level, first, keep, &mut freeing.left).await {
            Ok(taken) => taken,
            Err(error) => {
                freeing.first_error.get_or_insert(error);
                return; // With a damaged pointer, it may be another file's.
            }
        };
        let frag = self.state.borrow().layout.frag;
        // Unless nothing on the volume leads to the indirect block itself.
        let holds = holds && (freeing.is_held || first < keep);
        let is_held = std::mem::replace(&mut freeing.is_held, holds);
        for (child, child_first) in children {
            if level > 1 {
                Box::pin(self.free_tree(ino, child, level - 1, child_first, keep, freeing)).await;
            } else {
                self.free_part(ino, child, frag, freeing).await;
            }
        }
        freeing.is_held = is_held;
        if first >= keep {
            self.free_part(ino, at, frag, freeing).await;
        }
    }

    /// Removes the pointers to blocks from `keep` on from an indirect block, on the volume too. Returns them, without those
    /// that are left to the check; and whether the volume still has them for lack of space below.
    async fn take_children(
        &self,
        ino: InodeNo,
        at: FragNo,
        level: usize,
        first: u64,
        keep: u64,
        left: &mut u64,
    ) -> FsResult<(Vec<(FragNo, u64)>, bool)> {
        let mut children = self.step(|state| state.clear_pointers(ino, at, level, first, keep)).await?;
        count_blocks(ino, left, children.len())?;
        let written = if children.is_empty() { Ok(()) } else { self.write_in_order(at).await };
        let holds = match written {
            Ok(()) => false,
            Err(FsError::NoSpace) => true,
            Err(error) => return Err(error),
        };
        let state = self.state.borrow();
        let frag = state.layout.frag;
        children.retain(|&(child, child_first)| state.check_pointer(ino, child_first, child, frag).is_ok());
        Ok((children, holds))
    }

    /// All blocks of a file or directory that no longer has a name.
    pub(super) async fn gather_all(&self, ino: InodeNo) -> FsResult<Vec<(FragNo, u32)>> {
        Ok(self.gather(ino, 0).await?.frags)
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
        at: FragNo,
        level: usize,
        first: u64,
        keep: u64,
        gathered: &mut Gathered,
    ) -> FsResult<Vec<(FragNo, u32)>> {
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

    /// Turns whole blocks into holes.
    pub(super) async fn unmap(&self, ino: InodeNo, blocks: Range<u64>) -> FsResult<()> {
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
            let written = match holder {
                _ if held.is_empty() => Ok(()),
                Some((at, _)) => self.write_in_order(at).await,
                None => self.write_inode_in_order(ino).await,
            };
            let mut freeing = self.begin_freeing(written == Err(FsError::NoSpace));
            match written {
                Ok(()) | Err(FsError::NoSpace) => {
                    let frag = self.state.borrow().layout.frag;
                    for at in held {
                        self.free_part(ino, at, frag, &mut freeing).await;
                    }
                }
                Err(error) => freeing.first_error = Some(error),
            }
            self.end_freeing(freeing)?;
            next = further;
        }
        Ok(())
    }
}
