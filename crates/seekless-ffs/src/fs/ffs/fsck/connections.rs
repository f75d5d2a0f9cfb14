//! Phases 3 and 4: directories that no name leads to, counts of links, and files without a name.

use std::collections::BTreeSet;

use super::super::format::*;
use super::super::group;
use super::{Cause, Check, Name};
use crate::codec;
use crate::fs::{FileKind, FsError, FsResult};
use crate::units::SECTOR_BYTES;

impl Check<'_> {
    pub(super) async fn check_connections(&mut self) -> FsResult<()> {
        self.break_rings().await?;
        let orphans: Vec<InodeNo> = self
            .directories
            .keys()
            .copied()
            .filter(|ino| *ino != ROOT_INO && !self.parents.contains_key(ino))
            .collect();
        for ino in orphans {
            self.settle_orphan(ino).await?;
        }
        // Now that each directory's parent is known, its `..` can be set.
        let places: Vec<(InodeNo, InodeNo)> = self
            .directories
            .keys()
            .map(|&ino| (ino, self.parents.get(&ino).map_or(ROOT_INO, |name| name.directory)))
            .collect();
        self.ups_counted = true;
        for (ino, parent) in places {
            *self.names.entry(parent).or_insert(0) += 1;
            let up = self.directories.get(&ino).and_then(|names| names.iter().find(|name| name.name == b".."));
            if let Some(up) = up.cloned()
                && up.ino != parent
            {
                let cause = if self.renamed.contains(&ino) { Cause::Leak } else { Cause::Crash };
                self.problem(format!("directory {ino}: `..` is inode {}, not {parent}; corrected", up.ino), cause);
                let mut block = self.read(up.at, up.frags).await?;
                codec::put_at(&mut block, up.offset, parent);
                self.write(up.at, block);
            }
        }
        Ok(())
    }

    /// Removes a name from each cycle of directories that contain each other.
    async fn break_rings(&mut self) -> FsResult<()> {
        let all: Vec<InodeNo> = self.directories.keys().copied().collect();
        let mut safe: BTreeSet<InodeNo> = BTreeSet::from([ROOT_INO]);
        for ino in all {
            let mut way = Vec::new();
            let mut here = ino;
            while !safe.contains(&here) {
                if way.contains(&here) {
                    self.problem(format!("directory {here} contains itself; its name is removed"), Cause::Damage);
                    if let Some(name) = self.parents.remove(&here) {
                        self.erase(&name).await?;
                        self.uncount_name(here)?;
                    }
                    break;
                }
                way.push(here);
                match self.parents.get(&here) {
                    Some(name) => here = name.directory,
                    None => break,
                }
            }
            safe.extend(way);
        }
        Ok(())
    }

    /// Frees a directory that no name leads to, or reconnects it.
    async fn settle_orphan(&mut self, ino: InodeNo) -> FsResult<()> {
        let Some(inode) = self.inodes.get(&ino).copied() else { return Ok(()) };
        let names = self.directories.get(&ino).cloned().unwrap_or_default();
        let children: Vec<Name> = names.into_iter().filter(|name| name.name != b"." && name.name != b"..").collect();
        let keep = !children.is_empty() && inode.nlink > 0 && self.options.reconnect;
        if keep && self.reconnect(ino, FileKind::Directory).await? {
            return Ok(());
        }
        self.problem(format!("directory {ino} has no name and {} entries; freed", children.len()), Cause::Leak);
        self.directories.remove(&ino);
        self.names.remove(&ino);
        self.free_file(ino).await?;
        for child in children {
            self.uncount_name(child.ino)?;
            if self.parents.get(&child.ino).is_some_and(|name| name.directory == ino) {
                self.parents.remove(&child.ino);
                Box::pin(self.settle_orphan(child.ino)).await?;
            }
        }
        Ok(())
    }

    /// A name of the inode is gone, which was counted when names were followed.
    ///
    /// # Errors
    /// `Corrupt` when it was not counted: conclusions from the counts would be wrong.
    fn uncount_name(&mut self, ino: InodeNo) -> FsResult<()> {
        match self.names.get_mut(&ino).and_then(|names| Some((names.checked_sub(1)?, names))) {
            Some((rest, names)) => *names = rest,
            None => {
                let detail = "it loses a name that the check has not counted";
                return Err(FsError::corrupt("file system", format_args!("inode {ino}"), detail));
            }
        }
        Ok(())
    }

    /// Reconnects an inode in `/lost+found`. Returns false when that is not possible.
    async fn reconnect(&mut self, ino: InodeNo, kind: FileKind) -> FsResult<bool> {
        let name = format!("#{ino:08}").into_bytes();
        let Some(lost) = self.lost_and_found().await? else { return Ok(false) };
        let Some(inode) = self.inodes.get(&lost).copied() else { return Ok(false) };
        let blocks = self.directory_blocks(&inode).await?;
        for (at, frags) in blocks {
            if at == FragNo::NONE {
                continue;
            }
            let mut block = self.read(at, frags).await?;
            for chunk in 0..block.len() / DIR_CHUNK_BYTES {
                let start = chunk * DIR_CHUNK_BYTES;
                let bytes = &mut block[start..start + DIR_CHUNK_BYTES];
                if !add_entry(bytes, ino, dirent_type(kind), &name) {
                    continue;
                }
                let place =
                    dirents(bytes).unwrap_or_default().iter().find(|entry| entry.name == name).map(|e| e.offset);
                self.write(at, block);
                let offset = start + place.unwrap_or(0);
                let entry = Name { directory: lost, at, frags, offset, ino, kind: dirent_type(kind), name };
                self.problem(format!("inode {ino} has no name; it is /lost+found/#{ino:08} now"), Cause::Leak);
                if kind == FileKind::Directory {
                    self.parents.insert(ino, entry.clone());
                }
                self.directories.entry(lost).or_default().push(entry);
                *self.names.entry(ino).or_insert(0) += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directory `/lost+found`, created if necessary.
    async fn lost_and_found(&mut self) -> FsResult<Option<InodeNo>> {
        const NAME: &[u8] = b"lost+found";
        let root = self.directories.get(&ROOT_INO).cloned().unwrap_or_default();
        if let Some(name) = root.iter().find(|name| name.name == NAME) {
            return Ok(self.inodes.get(&name.ino).is_some_and(Inode::is_directory).then_some(name.ino));
        }
        let (Some(ino), Some(at)) = (self.free_inode(), self.free_block()) else { return Ok(None) };
        let Some(root_inode) = self.inodes.get(&ROOT_INO).copied() else { return Ok(None) };
        for (place, frags) in self.directory_blocks(&root_inode).await? {
            let mut block = self.read(place, frags).await?;
            let bytes = block.len().min(root_inode.size as usize) / DIR_CHUNK_BYTES * DIR_CHUNK_BYTES;
            for start in (0..bytes).step_by(DIR_CHUNK_BYTES) {
                let chunk = &mut block[start..start + DIR_CHUNK_BYTES];
                if !add_entry(chunk, ino, dirent_type(FileKind::Directory), NAME) {
                    continue;
                }
                let offset =
                    dirents(chunk).unwrap_or_default().iter().find(|entry| entry.name == NAME).map(|e| e.offset);
                let offset = start + offset.unwrap_or(0);
                self.write(place, block);
                let kind = dirent_type(FileKind::Directory);
                let entry = Name { directory: ROOT_INO, at: place, frags, offset, ino, kind, name: NAME.to_vec() };
                self.make_lost_and_found(ino, at, entry);
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    fn make_lost_and_found(&mut self, ino: InodeNo, at: FragNo, entry: Name) {
        let frag = self.layout.frag;
        self.claim(ino, at, frag);
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
        self.directories.entry(ROOT_INO).or_default().push(entry.clone());
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
        let all = || (ROOT_INO + 1).until(self.layout.ino_end());
        let untouched = all().find(|ino| !self.inodes.contains_key(ino) && !self.dangling.contains(ino));
        untouched.or_else(|| all().find(|ino| self.inodes.get(ino).is_none_or(|inode| inode.mode == 0)))
    }

    /// A block that no file uses; if possible one that nothing on the volume points to either, since such a pointer
    /// would lead to the new content after a cut.
    fn free_block(&self) -> Option<FragNo> {
        let frag = self.layout.frag;
        let without = |map: &[u8]| {
            let is_free = |at: FragNo| !at.run(frag).any(|one| group::bit(map, one.0));
            let mut all = (0..self.layout.size / frag).map(|block| FragNo(block * frag));
            all.find(|&at| self.layout.is_data(at, frag) && is_free(at))
        };
        without(&self.claimed).or_else(|| without(&self.used))
    }

    pub(super) async fn check_links(&mut self) -> FsResult<()> {
        let all: Vec<(InodeNo, Inode)> = self.inodes.iter().map(|(&ino, inode)| (ino, *inode)).collect();
        for (ino, inode) in all {
            let (Some(kind), false) = (inode.kind(), inode.mode == 0) else { continue };
            let mut names = self.names.get(&ino).copied().unwrap_or(0);
            if names == 0 {
                let keep = inode.nlink > 0 && inode.size > 0 && self.options.reconnect;
                let keep = keep && self.target_flaw(&inode).await?.is_none();
                if keep && self.reconnect(ino, kind).await? {
                    names = 1;
                } else {
                    let text =
                        format!("inode {ino} has no name, {} links and {} bytes; freed", inode.nlink, inode.size);
                    self.problem(text, Cause::Leak);
                    self.free_file(ino).await?;
                    continue;
                }
            }
            if u32::from(inode.nlink) != names {
                let cause = if u32::from(inode.nlink) > names { Cause::Leak } else { Cause::Crash };
                self.problem(format!("inode {ino} has {} links, and {names} names; corrected", inode.nlink), cause);
                self.inode_mut(ino).nlink = names.min(LINKS_MAX.into()) as u16;
            }
        }
        // Directories created on the way have got their links since.
        let late: Vec<InodeNo> = self.inodes_changed.iter().copied().collect();
        for ino in late {
            let names = self.names.get(&ino).copied().unwrap_or(0);
            if let Some(inode) = self.inodes.get_mut(&ino)
                && inode.mode != 0
            {
                inode.nlink = names.min(LINKS_MAX.into()) as u16;
            }
        }
        Ok(())
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
