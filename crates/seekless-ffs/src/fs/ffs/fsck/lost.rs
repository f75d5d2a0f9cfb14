//! Reconnecting what has no name: `/lost+found`, and `/lost+found.1` and so on where that is no directory or cannot grow.
//! Inode 57 becomes `#00000057`, or `#00000057.1` and so on where another inode has that name.
//!
//! A directory that lacks room grows by a block, and a short last block moves to a whole one, as in `fsck_ffs`. Where
//! nothing can grow, the inode is left as it is: it keeps its content until there is room.

use std::collections::BTreeSet;

use super::super::format::*;
use super::super::group;
use super::{Cause, Check, Name};
use crate::codec;
use crate::device::DeviceError;
use crate::fs::{FileKind, FsResult};
use crate::units::SECTOR_BYTES;

/// Free blocks that a full host may refuse, which takes up to ten milliseconds for each, before only those with content are
/// tried, and the number of those that are looked at.
const REFUSED_MAX: u32 = 16;
const BLOCKS_LOOKED_AT: u32 = 1 << 16;

/// Directories tried.
const DIRECTORIES_MAX: u32 = 100;

/// Where the next name goes, so that not every name looks through all before it.
#[derive(Default)]
pub(super) struct LostAndFoundCursor {
    /// The directory: 0 is `/lost+found`.
    number: u32,
    /// Its blocks that are full.
    full_blocks: usize,
    /// Its names, once one was to be added.
    names: Option<BTreeSet<Vec<u8>>>,
    /// Blocks of the volume before this one are claimed.
    claimed_blocks: u32,
}

impl Check<'_> {
    /// Gives an inode a name in `/lost+found`. Returns false when there is no room.
    pub(super) async fn reconnect(&mut self, ino: InodeNo, kind: FileKind) -> FsResult<bool> {
        assert!(!self.unread.hides_names(), "it may have a name that cannot be read (rule 4 of unread.rs)");
        while self.lost.number < DIRECTORIES_MAX {
            let title = match self.lost.number {
                0 => "lost+found".to_string(),
                number => format!("lost+found.{number}"),
            };
            if let Some(lost) = self.lost_and_found(title.as_bytes()).await?
                && let name = self.unused_name(lost, ino)
                && let Some((block, entry)) =
                    self.enter(lost, self.lost.full_blocks, ino, dirent_type(kind), name.as_bytes()).await?
            {
                self.lost.full_blocks = block;
                self.lost.names.get_or_insert_default().insert(name.clone().into_bytes());
                self.problem(format!("inode {ino} has no name; it is /{title}/{name} now"), Cause::Leak);
                self.result.reconnected += 1;
                if kind == FileKind::Directory {
                    self.parents.insert(ino, entry);
                }
                *self.names.entry(ino).or_insert(0) += 1;
                return Ok(true);
            }
            (self.lost.number, self.lost.full_blocks) = (self.lost.number.saturating_add(1), 0);
            self.lost.names = None;
        }
        Ok(false)
    }

    /// A name for the inode that `lost` does not have, and did not have when the check began: a cut of the repair could leave
    /// an erased one beside the new one.
    fn unused_name(&mut self, lost: InodeNo, ino: InodeNo) -> String {
        let names = self.lost.names.get_or_insert_with(|| {
            let present = self.directories.get(&lost).into_iter().flatten().map(|name| &name.name);
            let erased = self.erased.iter().filter(|(directory, _)| *directory == lost).map(|(_, name)| name);
            present.chain(erased).cloned().collect()
        });
        let plain = format!("#{ino:08}");
        let mut name = plain.clone();
        for number in 1_u32.. {
            if !names.contains(name.as_bytes()) {
                break;
            }
            name = format!("{plain}.{number}");
        }
        name
    }

    /// Leaves an inode that has content, but no name, and for which there is no room.
    pub(super) fn leave(&mut self, ino: InodeNo) {
        let text = format!("inode {ino} has no name, and /lost+found has no room for it; make room and run fsck again");
        self.problem(text, Cause::NoRoom);
        self.left.insert(ino);
    }

    /// The directory `/title`, created if necessary. `None` when it is no directory, and when there is no room for one.
    async fn lost_and_found(&mut self, title: &[u8]) -> FsResult<Option<InodeNo>> {
        if self.erased.contains(&(ROOT_INO, title.to_vec())) {
            return Ok(None); // As in `unused_name`.
        }
        let root = self.directories.get(&ROOT_INO).map_or(&[][..], |names| names);
        if let Some(name) = root.iter().find(|name| name.name == title) {
            return Ok(self.inodes.get(&name.ino).is_some_and(Inode::is_directory).then_some(name.ino));
        }
        let (Some(ino), Some(at)) = (self.free_inode(), self.free_block().await?) else {
            self.lost.number = DIRECTORIES_MAX; // None of the others could be created either.
            return Ok(None);
        };
        self.claim_new(ino, at);
        let kind = dirent_type(FileKind::Directory);
        match self.enter(ROOT_INO, 0, ino, kind, title).await? {
            Some((_, entry)) => {
                self.make_lost_and_found(ino, at, entry);
                Ok(Some(ino))
            }
            None => {
                self.unclaim(at, self.layout.frag);
                self.lost.number = DIRECTORIES_MAX;
                Ok(None)
            }
        }
    }

    /// Puts a name into a directory, behind its first `full_blocks` blocks. Returns the number of the block and the
    /// entry, or `None` when there is no room.
    async fn enter(
        &mut self,
        directory: InodeNo,
        full_blocks: usize,
        ino: InodeNo,
        kind: u8,
        name: &[u8],
    ) -> FsResult<Option<(usize, Name)>> {
        let mut first = full_blocks;
        loop {
            let Some(inode) = self.inodes.get(&directory).copied() else { return Ok(None) };
            for (index, (at, frags)) in self.directory_blocks(&inode).await?.0.into_iter().enumerate().skip(first) {
                if at == FragNo::NONE {
                    continue;
                }
                let mut block = self.read(at, frags).await?;
                let rest = inode.size.saturating_sub(index as u64 * u64::from(self.layout.block_bytes));
                let bytes = rest.min(block.len() as u64) as usize;
                for start in (0..bytes / DIR_CHUNK_BYTES).map(|chunk| chunk * DIR_CHUNK_BYTES) {
                    let chunk = &mut block[start..start + DIR_CHUNK_BYTES];
                    if !add_entry(chunk, ino, kind, name) {
                        continue;
                    }
                    let entries = dirents(chunk).unwrap_or_default();
                    let offset = entries.iter().find(|entry| entry.name == name).map_or(0, |entry| entry.offset);
                    let offset = start + offset;
                    self.write(at, block);
                    let entry = Name { directory, at, frags, offset, ino, kind, name: name.to_vec() };
                    self.directories.entry(directory).or_default().push(entry.clone());
                    return Ok(Some((index, entry)));
                }
            }
            match self.extend(directory).await? {
                Some(index) => first = index,
                None => return Ok(None),
            }
        }
    }

    /// Makes the last block of a directory whole, in another place, or adds one. Returns its number, or `None` when the
    /// direct blocks are all there, or no block is free.
    async fn extend(&mut self, directory: InodeNo) -> FsResult<Option<usize>> {
        let Some(mut inode) = self.inodes.get(&directory).copied() else { return Ok(None) };
        let whole = u64::from(self.layout.block_bytes);
        let index = (inode.size / whole) as usize;
        let (used, frags) = ((inode.size % whole) as usize, self.layout.block_frags(inode.size, index as u64));
        let old = match inode.db.get(index) {
            Some(&old) if (old == FragNo::NONE) == (used == 0) => old,
            _ => return Ok(None),
        };
        let Some(new) = self.free_block().await? else { return Ok(None) };
        let mut block = if used > 0 { self.read(old, frags).await? } else { Vec::new() };
        if used > 0 && self.unread.touches(self.layout.sector(old), block.len() as u64 / SECTOR_BYTES) {
            return Ok(None); // Just now it could be read: its names stay where they are.
        }
        block.truncate(used);
        block.resize(whole as usize, 0);
        for chunk in block[used..].chunks_exact_mut(DIR_CHUNK_BYTES) {
            codec::put_at(chunk, 4, DIR_CHUNK_BYTES as u16);
        }
        self.claim_new(directory, new);
        self.write(new, block);
        self.fresh.insert(new);
        if used > 0 {
            self.unclaim(old, frags);
            self.changed.remove(&old);
            let names = self.directories.get_mut(&directory).into_iter().flatten();
            let others = self.parents.values_mut().chain(&mut self.marked);
            for name in names.chain(others).filter(|name| name.directory == directory && name.at == old) {
                (name.at, name.frags) = (new, self.layout.frag);
            }
        }
        let more = self.layout.frag - if used > 0 { frags } else { 0 };
        inode.blocks += more * (self.layout.frag_bytes / SECTOR_BYTES as u32);
        inode.db[index] = new;
        inode.size = (index as u64 + 1) * whole;
        *self.inode_mut(directory) = inode;
        Ok(Some(index))
    }

    fn make_lost_and_found(&mut self, ino: InodeNo, at: FragNo, entry: Name) {
        let frag = self.layout.frag;
        let mut block = vec![0; self.layout.block_bytes as usize];
        for chunk in block.chunks_exact_mut(DIR_CHUNK_BYTES) {
            codec::put_at(chunk, 4, DIR_CHUNK_BYTES as u16);
        }
        block[..DIR_CHUNK_BYTES].copy_from_slice(&first_chunk(ino, ROOT_INO));
        self.write(at, block);
        self.fresh.insert(at);
        let mut inode = Inode {
            mode: FileKind::Directory.mode_bits() as u16 | 0o700,
            nlink: 2,
            size: self.layout.block_bytes.into(),
            blocks: self.layout.block_bytes / SECTOR_BYTES as u32,
            generation: self.now.seconds as u32,
            ..Inode::FREE
        };
        inode.db[0] = at;
        inode.set_atime(self.now);
        inode.set_mtime(self.now);
        inode.set_ctime(self.now);
        *self.inode_mut(ino) = inode;
        let up = dirent_bytes(1);
        let dots = [(0, ino, &b"."[..]), (up, ROOT_INO, &b".."[..])].map(|(offset, target, name)| Name {
            directory: ino,
            at,
            frags: frag,
            offset,
            ino: target,
            kind: dirent_type(FileKind::Directory),
            name: name.to_vec(),
        });
        self.directories.insert(ino, dots.to_vec());
        self.parents.insert(ino, entry);
        // Its own entry and its name.
        *self.names.entry(ino).or_insert(0) += 2;
        if self.ups_counted {
            *self.names.entry(ROOT_INO).or_insert(0) += 1;
            self.inodes_changed.insert(ROOT_INO);
        }
    }

    /// An inode that is not in use; if possible one that is not in use on the volume either and has no names there,
    /// since these would be names of the new inode after a cut.
    fn free_inode(&self) -> Option<InodeNo> {
        let all = || (ROOT_INO + 1).until(self.layout.ino_end()).filter(|ino| !self.unread.inodes.contains(ino));
        let untouched = all().find(|ino| !self.inodes.contains_key(ino) && !self.dangling.contains(ino));
        untouched.or_else(|| all().find(|ino| self.inodes.get(ino).is_none_or(|inode| inode.mode == 0)))
    }

    /// A block that no file uses; if possible one that nothing on the volume points to either, since such a pointer
    /// would lead to the new content after a cut. Where the storage below is allocated on demand, the block has some.
    async fn free_block(&mut self) -> FsResult<Option<FragNo>> {
        let unclaimed = self.free_in(|check| &check.claimed, self.lost.claimed_blocks).await?;
        self.lost.claimed_blocks = unclaimed.map_or(self.layout.size / self.layout.frag, |at| at.0 / self.layout.frag);
        match unclaimed {
            Some(at) => Ok(Some(at)),
            None => self.free_in(|check| &check.used, 0).await,
        }
    }

    /// The first block from `first` on of which a map has no fragment, and which can be written. On a full host, many may
    /// have to be looked at; those with content have storage.
    async fn free_in(&self, map: impl Fn(&Self) -> &[u8], mut first: u32) -> FsResult<Option<FragNo>> {
        let frag = self.layout.frag;
        let sectors = u64::from(self.layout.block_bytes) / SECTOR_BYTES;
        let is_free = |at: FragNo| {
            !at.run(frag).any(|one| group::bit(map(self), one.0) || self.unread.is_held(one))
                && !self.unread.touches(self.layout.sector(at), sectors)
        };
        let mut refused = 0;
        for _ in 0..BLOCKS_LOOKED_AT {
            let mut all = (first..self.layout.size / frag).map(|block| FragNo(block * frag));
            let Some(at) = all.find(|&at| self.layout.is_data(at, frag) && is_free(at)) else { return Ok(None) };
            if !self.options.repair {
                return Ok(Some(at));
            }
            let (sector, bytes) = (self.layout.sector(at), self.layout.block_bytes as usize);
            if refused < REFUSED_MAX || self.read_derived(sector, bytes).await?.iter().any(|&byte| byte != 0) {
                match self.device.provision(sector, bytes as u64 / SECTOR_BYTES).await {
                    Ok(()) => return Ok(Some(at)),
                    Err(DeviceError::NoSpace { .. }) => refused += 1,
                    Err(error) if error.is_of_medium() => refused += 1,
                    Err(error) => return Err(error.into()),
                }
            }
            first = at.0 / frag + 1;
        }
        Ok(None)
    }

    /// Claims a whole block for new content. Repairs of what was there before are not written any more.
    fn claim_new(&mut self, ino: InodeNo, at: FragNo) {
        let frag = self.layout.frag;
        self.claim(ino, at, frag);
        for one in at.run(frag) {
            self.changed.remove(&one);
            self.fresh.remove(&one);
        }
        self.unread.give_up(self.layout.sector(at), self.layout.block_bytes as usize);
    }
}

/// Puts an entry into the first sufficiently large gap of a chunk. Returns false when there is none.
pub(super) fn add_entry(chunk: &mut [u8], ino: InodeNo, kind: u8, name: &[u8]) -> bool {
    let needed = dirent_bytes(name.len());
    let place = dirents(chunk).ok().and_then(|entries| {
        let entry = entries.into_iter().find(|entry| entry.record_bytes - entry.needed_bytes() >= needed)?;
        Some((entry.offset, entry.record_bytes, entry.needed_bytes()))
    });
    let Some((offset, record, used)) = place else { return false };
    if used > 0 {
        codec::put_at(chunk, offset + 4, used as u16);
    }
    put_dirent(chunk, offset + used, ino, record - used, kind, name);
    true
}
