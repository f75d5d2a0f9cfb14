//! Phase 1: inodes and the blocks that they claim; and freeing both.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::format::*;
use super::super::group;
use super::unread::overlap;
use super::{Cause, Check};
use crate::fs::{FileKind, FsResult};
use crate::units::{SECTOR_BYTES, WallTime};

impl Check<'_> {
    pub(super) async fn check_inodes(&mut self) -> FsResult<()> {
        let per_block = self.layout.inodes_per_block;
        for first in InodeNo(0).until(self.layout.ino_end()).step_by(per_block as usize) {
            let (at, _) = self.layout.inode_place(first);
            let block = self.read(at, self.layout.frag).await?;
            let unread = self.note_inodes(first, at, block.len());
            for (index, raw) in block.chunks_exact(Inode::BYTES).enumerate() {
                let (ino, inode) = (first + index as u32, Inode::decode(raw));
                let place = index * Inode::BYTES;
                if overlap(&unread, &(place..place + Inode::BYTES)) {
                    continue;
                }
                if let Some(inode) = inode
                    && ino >= ROOT_INO
                {
                    self.check_inode(ino, inode).await?;
                }
            }
        }
        Ok(())
    }

    async fn check_inode(&mut self, ino: InodeNo, mut inode: Inode) -> FsResult<()> {
        if inode.mode == 0 {
            if inode.db != [FragNo::NONE; DIRECT] || inode.ib != [FragNo::NONE; INDIRECT] || inode.size != 0 {
                self.problem(format!("inode {ino} is free, but has a size or blocks; cleared"), Cause::Damage);
                *self.inode_mut(ino) = Inode { generation: inode.generation, ..Inode::FREE };
                // It stays among those to be written, and counts as free.
            }
            return Ok(());
        }
        let Some(kind) = inode.kind() else {
            self.problem(format!("inode {ino} has mode {:o}, which is of no kind; cleared", inode.mode), Cause::Damage);
            *self.inode_mut(ino) = Inode { generation: inode.generation, ..Inode::FREE };
            return Ok(());
        };
        if inode.size > self.layout.addressable_bytes {
            self.problem(format!("inode {ino} has size {}, which is too large; cleared", inode.size), Cause::Damage);
            *self.inode_mut(ino) = Inode { generation: inode.generation, ..Inode::FREE };
            return Ok(());
        }
        // A target that is not inline is one block. A link without a target is on the volume before it has its first
        // name, when an update comes in between, and after it has lost its last one, when its block is free and its
        // inode not yet. Whether it has a name decides whether it is damaged.
        let target_bytes = 0..=u64::from(self.layout.block_bytes);
        if kind == FileKind::Symlink && !target_bytes.contains(&inode.size) {
            self.problem(
                format!("symbolic link {ino} has size {}, which none has; cleared", inode.size),
                Cause::Damage,
            );
            *self.inode_mut(ino) = Inode { generation: inode.generation, ..Inode::FREE };
            return Ok(());
        }
        let mut changed = false;
        if kind == FileKind::Directory && !inode.size.is_multiple_of(DIR_CHUNK_BYTES as u64) {
            self.problem(
                format!("directory {ino} has size {}, no multiple of 512; rounded down", inode.size),
                Cause::Damage,
            );
            inode.size -= inode.size % DIR_CHUNK_BYTES as u64;
            changed = true;
        }
        let mut sectors = 0;
        if !inode.has_no_blocks(self.layout.maxsymlinklen) {
            changed |= self.check_blocks(ino, &mut inode, &mut sectors).await?;
            if kind == FileKind::Symlink && sectors == 0 && inode.size > 0 {
                self.problem(format!("symbolic link {ino} has no target; cleared"), Cause::Damage);
                *self.inode_mut(ino) = Inode { generation: inode.generation, ..Inode::FREE };
                return Ok(());
            }
        }
        if u64::from(inode.blocks) != sectors && !self.may_have_more(ino, &inode, sectors) {
            self.problem(
                format!("inode {ino} says that it has {} sectors, and has {sectors}; corrected", inode.blocks),
                Cause::Leak,
            );
            inode.blocks = sectors.min(u32::MAX.into()) as u32;
            changed = true;
        }
        self.inodes.insert(ino, inode);
        if changed {
            self.inodes_changed.insert(ino);
        }
        Ok(())
    }

    /// Whether blocks that cannot be found explain why the inode says that it has more than `sectors`.
    fn may_have_more(&self, ino: InodeNo, inode: &Inode, sectors: u64) -> bool {
        self.unread.files.contains(&ino) && u64::from(inode.blocks) > sectors
    }

    /// Claims all blocks of an inode. Returns whether the inode had to be changed.
    async fn check_blocks(&mut self, ino: InodeNo, inode: &mut Inode, sectors: &mut u64) -> FsResult<bool> {
        let mut changed = false;
        let per_frag = u64::from(self.layout.frag_bytes) / SECTOR_BYTES;
        for lbn in 0..DIRECT {
            let at = inode.db[lbn];
            let frags = self.layout.block_frags(inode.size, lbn as u64);
            if at == FragNo::NONE {
                continue;
            }
            if frags == 0 {
                self.problem(format!("inode {ino} has a block {lbn} beyond its end; dropped"), Cause::Damage);
            } else if !self.layout.is_data(at, frags) {
                self.problem(
                    format!("inode {ino}, block {lbn}: fragment {at} cannot belong to a file; dropped"),
                    Cause::Damage,
                );
            } else {
                self.claim(ino, at, frags);
                *sectors += u64::from(frags) * per_frag;
                continue;
            }
            inode.db[lbn] = FragNo::NONE;
            changed = true;
        }
        let blocks = inode.size.div_ceil(self.layout.block_bytes.into());
        for slot in 0..INDIRECT {
            let (at, first) = (inode.ib[slot], self.layout.indirect_first(slot));
            if at == FragNo::NONE {
                continue;
            }
            if first >= blocks {
                // An inode loses them together with its size, and gets them when its size is behind them.
                self.problem(format!("inode {ino} has an indirect block beyond its end; dropped"), Cause::Damage);
            } else if !self.layout.is_data(at, self.layout.frag) {
                self.problem(format!("inode {ino}: fragment {at} cannot be an indirect block; dropped"), Cause::Damage);
            } else {
                Box::pin(self.check_tree(ino, at, slot + 1, first, blocks, sectors)).await?;
                continue;
            }
            inode.ib[slot] = FragNo::NONE;
            changed = true;
        }
        Ok(changed)
    }

    /// Claims an indirect block and everything below it.
    async fn check_tree(
        &mut self,
        ino: InodeNo,
        at: FragNo,
        level: usize,
        first: u64,
        blocks: u64,
        sectors: &mut u64,
    ) -> FsResult<()> {
        let frag = self.layout.frag;
        let again = at.run(frag).any(|one| self.is_used(one));
        self.claim(ino, at, frag);
        let per_block = u64::from(self.layout.block_bytes) / SECTOR_BYTES;
        *sectors += per_block;
        if again {
            return Ok(()); // It has been walked already; possibly a cycle.
        }
        let mut block = self.read(at, frag).await?;
        self.note_pointers(ino, at, block.len());
        let span = self.layout.span(level - 1);
        let (mut behind, mut wrong) = (0, 0);
        for slot in 0..self.layout.pointers_per_block as usize {
            let child = pointer_in(&block, slot);
            let child_first = first + slot as u64 * span;
            if child == FragNo::NONE {
                continue;
            }
            if child_first >= blocks {
                behind += 1;
            } else if !self.layout.is_data(child, frag) {
                wrong += 1;
            } else {
                if level > 1 {
                    Box::pin(self.check_tree(ino, child, level - 1, child_first, blocks, sectors)).await?;
                } else {
                    self.claim(ino, child, frag);
                    *sectors += per_block;
                }
                continue;
            }
            put_pointer(&mut block, slot, FragNo::NONE);
        }
        if behind > 0 {
            // The file had grown, and only this block was written since.
            self.problem(
                format!("inode {ino}, indirect block {at}: {behind} blocks beyond the end of the file; dropped"),
                Cause::Leak,
            );
        }
        if wrong > 0 {
            self.problem(format!("inode {ino}, indirect block {at}: {wrong} invalid pointers; dropped"), Cause::Damage);
        }
        if behind + wrong > 0 {
            self.write(at, block);
        }
        Ok(())
    }

    pub(super) fn claim(&mut self, ino: InodeNo, at: FragNo, frags: u32) {
        for one in at.run(frags) {
            if let Some(owner) = self.changed_witnesses.get_mut(&one) {
                *owner = Some(ino);
            }
            if self.is_used(one) {
                self.twice.insert(one);
            }
            group::set_bit(&mut self.used, one.0, true);
            group::set_bit(&mut self.claimed, one.0, true);
        }
    }

    /// Gives each fragment that is claimed twice to one inode. When a file's tail has moved, and the inode on the
    /// volume still has its old place, that place may belong to another inode by now: to a directory or a symbolic
    /// link, whose places on the volume are never old ones, or to a file, which is younger. Content that is not a directory's or a
    /// link's shows that another inode has got the place: maps may lag behind an inode that could not be read for a while.
    pub(super) async fn share_out(&mut self) -> FsResult<()> {
        let mut claims: Vec<(bool, Reverse<WallTime>, InodeNo)> = Vec::new();
        for (&ino, inode) in &self.inodes {
            if inode.mode != 0 && !inode.has_no_blocks(self.layout.maxsymlinklen) {
                claims.push((inode.kind() == Some(FileKind::Regular), Reverse(inode.ctime()), ino));
            }
        }
        // Of two of the same age the one with the smaller number.
        claims.sort();
        let mut taken: BTreeSet<FragNo> = BTreeSet::new();
        for (_, _, ino) in claims {
            let Some(mut inode) = self.inodes.get(&ino).copied() else { continue };
            if self.yield_claims(ino, &mut inode, &mut taken).await? {
                *self.inode_mut(ino) = inode;
            }
        }
        Ok(())
    }

    /// Drops the blocks of an inode that another one keeps, and claims the others.
    async fn yield_claims(&mut self, ino: InodeNo, inode: &mut Inode, taken: &mut BTreeSet<FragNo>) -> FsResult<bool> {
        let (mut changed, mut kept) = (false, 0);
        let block_bytes = u64::from(self.layout.block_bytes);
        for lbn in 0..DIRECT {
            let (at, frags) = (inode.db[lbn], self.layout.block_frags(inode.size, lbn as u64));
            if at == FragNo::NONE {
                continue;
            }
            let is_tail = (lbn as u64 + 1) * block_bytes >= inode.size;
            let bytes = inode.size.saturating_sub(lbn as u64 * block_bytes).min(block_bytes) as usize;
            let own = self.own_frags(ino, at, frags, bytes, lbn == 0).await?;
            let keeps = if is_tail || own == frags { own } else { 0 };
            if keeps > 0 && !self.contested(at, keeps, taken) {
                kept += u64::from(keeps);
                if keeps < frags {
                    inode.size = lbn as u64 * block_bytes + u64::from(keeps * self.layout.frag_bytes);
                    let text = format!("directory {ino}: fragment {} belongs to another inode; cut there", at + keeps);
                    self.problem(text, Cause::Damage);
                    changed = true;
                }
                continue;
            }
            let cause = if is_tail && !inode.is_directory() { Cause::Crash } else { Cause::Damage };
            self.problem(format!("inode {ino}, block {lbn}: fragment {at} belongs to another inode; released"), cause);
            inode.db[lbn] = FragNo::NONE;
            if is_tail {
                inode.size = lbn as u64 * block_bytes;
            }
            changed = true;
        }
        for slot in 0..INDIRECT {
            let at = inode.ib[slot];
            if at == FragNo::NONE {
                continue;
            }
            if Box::pin(self.yield_tree(ino, at, slot + 1, taken, &mut kept)).await? {
                inode.ib[slot] = FragNo::NONE;
                changed = true;
            }
        }
        // Blocks below a tree that another inode has, too, were not counted before.
        let sectors = kept * u64::from(self.layout.frag_bytes) / SECTOR_BYTES;
        if u64::from(inode.blocks) != sectors && !self.may_have_more(ino, inode, sectors) {
            inode.blocks = sectors.min(u32::MAX.into()) as u32;
            changed = true;
        }
        Ok(changed)
    }

    /// As [`Check::yield_claims`], for a tree; counts the fragments that are kept. Returns whether its root is given
    /// up.
    async fn yield_tree(
        &mut self,
        ino: InodeNo,
        at: FragNo,
        level: usize,
        taken: &mut BTreeSet<FragNo>,
        kept: &mut u64,
    ) -> FsResult<bool> {
        let frag = self.layout.frag;
        if self.contested(at, frag, taken) {
            self.problem(format!("inode {ino}: indirect block {at} belongs to another inode; released"), Cause::Damage);
            return Ok(true);
        }
        *kept += u64::from(frag);
        let mut block = self.read(at, frag).await?;
        let mut changed = false;
        for slot in 0..self.layout.pointers_per_block as usize {
            let child = pointer_in(&block, slot);
            // A block that another inode has on another level holds no pointers; the next round drops the invalid ones.
            if child == FragNo::NONE || !self.layout.is_data(child, frag) {
                continue;
            }
            let gone = if level > 1 {
                Box::pin(self.yield_tree(ino, child, level - 1, taken, kept)).await?
            } else if self.own_frags(ino, child, frag, DIR_CHUNK_BYTES, false).await? == 0
                || self.contested(child, frag, taken)
            {
                self.problem(format!("inode {ino}: block {child} belongs to another inode; released"), Cause::Damage);
                true
            } else {
                *kept += u64::from(frag);
                false
            };
            if gone {
                put_pointer(&mut block, slot, FragNo::NONE);
                changed = true;
            }
        }
        if changed {
            self.write(at, block);
        }
        Ok(false)
    }

    /// How many of these fragments an inode may keep for what they hold: all, or those before the first that is claimed twice and,
    /// though it should, does not hold names of this directory, or the target of this link. The names are in the first `bytes` bytes.
    async fn own_frags(&self, ino: InodeNo, at: FragNo, frags: u32, bytes: usize, is_first: bool) -> FsResult<u32> {
        let is_twice = |one: FragNo| self.twice.contains(&one);
        let Some(inode) = self.inodes.get(&ino).filter(|_| at.run(frags).any(is_twice)) else { return Ok(frags) };
        match inode.kind() {
            Some(FileKind::Directory) => {}
            Some(FileKind::Symlink) if self.target_flaw(inode).await?.is_some() => return Ok(0),
            _ => return Ok(frags),
        }
        let block = self.read(at, frags).await?;
        let unread = self.unread.ranges(self.layout.sector(at), block.len());
        for start in (0..bytes.min(block.len()) / DIR_CHUNK_BYTES).map(|chunk| chunk * DIR_CHUNK_BYTES) {
            let (before, range) = (start as u32 / self.layout.frag_bytes, start..start + DIR_CHUNK_BYTES);
            if !is_twice(at + before) || overlap(&unread, &range) {
                continue;
            }
            let is_named = |entry: &Dirent<'_>| entry.name == b"." && entry.ino == ino;
            let begins = |entries: Vec<Dirent<'_>>| !(is_first && start == 0) || entries.first().is_some_and(is_named);
            if !dirents(&block[range]).is_ok_and(begins) {
                return Ok(before);
            }
        }
        Ok(frags)
    }

    /// Whether another inode has claimed any of these fragments that are claimed twice; if not, they are claimed now.
    fn contested(&self, at: FragNo, frags: u32, taken: &mut BTreeSet<FragNo>) -> bool {
        if at.run(frags).any(|one| taken.contains(&one)) {
            return true;
        }
        taken.extend(at.run(frags).filter(|one| self.twice.contains(one)));
        false
    }

    /// Frees an inode and its blocks.
    pub(super) async fn free_file(&mut self, ino: InodeNo) -> FsResult<()> {
        let Some(inode) = self.inodes.get(&ino).copied() else { return Ok(()) };
        if !inode.has_no_blocks(self.layout.maxsymlinklen) {
            for (lbn, &at) in inode.db.iter().enumerate() {
                let frags = self.layout.block_frags(inode.size, lbn as u64);
                if at != FragNo::NONE {
                    self.unclaim(at, frags);
                }
            }
            for (slot, &at) in inode.ib.iter().enumerate() {
                if at != FragNo::NONE {
                    self.free_tree(at, slot + 1).await?;
                }
            }
        }
        *self.inode_mut(ino) = Inode { generation: inode.generation, ..Inode::FREE };
        Ok(())
    }

    async fn free_tree(&mut self, at: FragNo, level: usize) -> FsResult<()> {
        let frag = self.layout.frag;
        if !self.layout.is_data(at, frag) || !self.is_used(at) {
            return Ok(()); // It has been freed already; possibly a cycle.
        }
        self.unclaim(at, frag);
        let block = self.read(at, frag).await?;
        for slot in 0..self.layout.pointers_per_block as usize {
            let child = pointer_in(&block, slot);
            if child == FragNo::NONE {
                continue;
            }
            if level > 1 {
                Box::pin(self.free_tree(child, level - 1)).await?;
            } else if self.layout.is_data(child, frag) {
                self.unclaim(child, frag);
            }
        }
        Ok(())
    }

    pub(super) fn unclaim(&mut self, at: FragNo, frags: u32) {
        for one in at.run(frags) {
            group::set_bit(&mut self.used, one.0, false);
        }
    }
}
