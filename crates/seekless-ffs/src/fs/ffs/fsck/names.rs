//! Phase 2: directories, their entries, and the inodes that these name.

use std::collections::BTreeSet;

use super::super::format::*;
use super::lost::add_entry;
use super::unread::overlap;
use super::{Cause, Check, Name};
use crate::codec;
use crate::fs::{FileKind, FsError, FsResult, WHITEOUT};

impl Check<'_> {
    /// Addresses of the blocks of a directory, with their fragments, up to the first hole, or up to an address that cannot be read.
    /// Also says whether it is the latter.
    pub(super) async fn directory_blocks(&self, inode: &Inode) -> FsResult<(Vec<(FragNo, u32)>, bool)> {
        let blocks = inode.size.div_ceil(self.layout.block_bytes.into());
        let mut found = Vec::new();
        // More would be a directory of gigabytes; pointers beyond that are damage.
        const BLOCKS_MAX: u64 = 1 << 20;
        let mut held: Option<(FragNo, Vec<u8>)> = None;
        for lbn in 0..blocks.min(BLOCKS_MAX) {
            let frags = self.layout.block_frags(inode.size, lbn);
            let Some(path) = self.layout.path(lbn) else { break };
            let mut at = if path.depth == 0 { inode.db[path.slot] } else { inode.ib[path.slot] };
            for &slot in &path.slots[..path.depth] {
                if at == FragNo::NONE {
                    break;
                }
                if held.as_ref().is_none_or(|(held, _)| *held != at) {
                    held = Some((at, self.read(at, self.layout.frag).await?));
                }
                let unread = self.unread.ranges(self.layout.sector(at), self.layout.block_bytes as usize);
                if overlap(&unread, &(slot * 4..slot * 4 + 4)) {
                    return Ok((found, true));
                }
                at = held.as_ref().map_or(FragNo::NONE, |(_, block)| pointer_in(block, slot));
            }
            found.push((at, frags));
            if at == FragNo::NONE {
                break; // It ends here, whatever its size.
            }
        }
        Ok((found, false))
    }

    /// Reads all directories. Returns false when one had to be truncated.
    pub(super) async fn read_directories(&mut self) -> FsResult<bool> {
        self.require_root()?;
        match self.inodes.get(&ROOT_INO) {
            Some(root) if root.is_directory() => {}
            _ => {
                let detail = "it is no directory; without a root nothing can be mended";
                return Err(FsError::corrupt("root directory", format_args!("inode {ROOT_INO}"), detail));
            }
        }
        let directories: Vec<InodeNo> =
            self.inodes.iter().filter(|(_, inode)| inode.is_directory()).map(|(&ino, _)| ino).collect();
        let mut settled = true;
        for ino in directories {
            settled &= self.read_directory(ino).await?;
        }
        Ok(settled)
    }

    /// Reads the entries of a directory, and repairs its chunks. Returns false when it had to be truncated.
    async fn read_directory(&mut self, ino: InodeNo) -> FsResult<bool> {
        let Some(inode) = self.inodes.get(&ino).copied() else { return Ok(true) };
        let mut names: Vec<Name> = Vec::new();
        let mut again: Vec<Name> = Vec::new();
        let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
        let mut start = 0;
        let (blocks, is_cut_short) = self.directory_blocks(&inode).await?;
        let mut is_left = false;
        for (index, (at, frags)) in blocks.into_iter().enumerate() {
            if at == FragNo::NONE {
                self.problem(format!("directory {ino} has a hole at byte {start}; cut there"), Cause::Damage);
                self.inode_mut(ino).size = start;
                return Ok(false);
            }
            let mut block = self.read(at, frags).await?;
            let bytes = (inode.size - start).min(block.len() as u64) as usize;
            let mut changed = false;
            let unread = self.note_names(ino, at, start, bytes);
            is_left |= !unread.is_empty();
            for within in (0..bytes / DIR_CHUNK_BYTES).map(|chunk| chunk * DIR_CHUNK_BYTES) {
                let chunk = &mut block[within..within + DIR_CHUNK_BYTES];
                let first = index == 0 && within == 0;
                if overlap(&unread, &(within..within + DIR_CHUNK_BYTES)) {
                    continue;
                }
                changed |= self.mend_chunk(ino, start + within as u64, chunk, first);
                let Ok(entries) = dirents(chunk) else { continue };
                for entry in entries.into_iter().filter(|entry| entry.ino != InodeNo::NONE) {
                    let fresh = seen.insert(entry.name.to_vec());
                    let list = if fresh { &mut names } else { &mut again };
                    list.push(Name {
                        directory: ino,
                        at,
                        frags,
                        offset: within + entry.offset,
                        ino: entry.ino,
                        kind: entry.kind,
                        name: entry.name.to_vec(),
                    });
                }
            }
            if changed {
                self.write(at, block);
            }
            start += bytes as u64;
        }
        if is_cut_short {
            self.note_hidden_names();
            is_left = true;
        }
        if names.is_empty() && !is_left {
            if ino == ROOT_INO {
                let detail = "it holds nothing; without a root nothing can be mended";
                return Err(FsError::corrupt("root directory", format_args!("inode {ROOT_INO}"), detail));
            }
            // A new directory is on the volume before its first chunk is.
            self.problem(format!("directory {ino} has no entries, not even `.`; freed"), Cause::Leak);
            return self.free_file(ino).await.map(|()| true);
        }
        self.directories.insert(ino, names);
        for name in again {
            let shown = String::from_utf8_lossy(&name.name).into_owned();
            self.problem(
                format!("directory {ino} has the name {shown:?} twice; the later one is removed"),
                Cause::Damage,
            );
            self.erase(&name).await?;
        }
        Ok(true)
    }

    /// Repairs a chunk of entries. Returns whether that was necessary.
    fn mend_chunk(&mut self, ino: InodeNo, start: u64, chunk: &mut [u8], first: bool) -> bool {
        let mut changed = false;
        if let Err(detail) = dirents(chunk) {
            self.problem(
                format!("directory {ino}, byte {start}: {detail}; what is behind it is dropped"),
                Cause::Damage,
            );
            salvage(chunk);
            changed = true;
        }
        let is_begun = || {
            let entries = dirents(chunk).ok()?;
            let (one, two) = (entries.first()?, entries.get(1)?);
            Some(one.name == b"." && one.ino == ino && two.name == b".." && two.ino != InodeNo::NONE)
        };
        if first && is_begun() != Some(true) {
            self.problem(format!("directory {ino} does not begin with `.` and `..`; mended"), Cause::Damage);
            let kept: Vec<(InodeNo, u8, Vec<u8>)> = dirents(chunk)
                .unwrap_or_default()
                .iter()
                .filter(|entry| entry.ino != InodeNo::NONE && entry.name != b"." && entry.name != b"..")
                .map(|entry| (entry.ino, entry.kind, entry.name.to_vec()))
                .collect();
            let parent = dirents(chunk)
                .unwrap_or_default()
                .iter()
                .find(|entry| entry.name == b".." && entry.ino != InodeNo::NONE)
                .map_or(ROOT_INO, |entry| entry.ino);
            chunk.copy_from_slice(&first_chunk(ino, parent));
            for (ino, kind, name) in kept {
                add_entry(chunk, ino, kind, &name);
            }
            changed = true;
        }
        changed
    }

    /// Counts names, and removes those of inodes that do not exist.
    pub(super) async fn follow_names(&mut self) -> FsResult<()> {
        let all: Vec<Name> = self.directories.values().flatten().cloned().collect();
        let mut leaving = Vec::new();
        for name in all {
            if name.name == b"." {
                *self.names.entry(name.ino).or_insert(0) += 1;
                continue;
            }
            if name.name == b".." {
                continue; // Counted when the directory's parent is known.
            }
            if self.unread.inodes.contains(&name.ino) {
                self.keep_unread(&name);
                continue;
            }
            let target = self.inodes.get(&name.ino).filter(|inode| inode.mode != 0).copied();
            let shown = String::from_utf8_lossy(&name.name).into_owned();
            let Name { directory, ino, .. } = name;
            let Some(target) = target else {
                self.problem(
                    format!("directory {directory}: {shown:?} names inode {ino}, which is not in use; removed"),
                    Cause::Crash,
                );
                self.dangling.insert(ino);
                self.erase(&name).await?;
                continue;
            };
            if let Some(flaw) = self.target_flaw(&target).await? {
                self.problem(
                    format!("directory {directory}: {shown:?} names symbolic link {ino}, {flaw}; removed"),
                    Cause::Damage,
                );
                self.erase(&name).await?;
                continue;
            }
            if target.is_directory() {
                if is_rename_mark(name.kind) {
                    // A rename had come this far; the inode with the old name no longer keeps it.
                    self.problem(format!("directory {directory}: {shown:?} is marked as moved; settled"), Cause::Leak);
                    self.marked.push(name.clone());
                }
                let earlier = self.parents.get(&ino).cloned();
                if ino == ROOT_INO || earlier.is_some() {
                    // A crash while a directory is renamed leaves both names.
                    let (gone, kept) = match earlier {
                        Some(earlier) if ino != ROOT_INO && is_newer(&name, &earlier) => (earlier, Some(name)),
                        _ => (name, None),
                    };
                    self.renamed.insert(ino);
                    if ino != ROOT_INO && gone.kind == DIRENT_LEFT {
                        leaving.push(gone);
                    } else {
                        self.remove_second(&gone).await?;
                    }
                    if let Some(kept) = kept {
                        self.parents.insert(ino, kept);
                    }
                    continue;
                }
                self.parents.insert(ino, name);
            }
            *self.names.entry(ino).or_insert(0) += 1;
        }
        if !leaving.is_empty() {
            let named = |ino: &InodeNo| self.names.get(ino).is_some_and(|&names| names > 0);
            let unnamed = self.inodes.iter().filter(|(ino, inode)| inode.is_whiteout() && !named(ino));
            let unnamed: Vec<InodeNo> = unnamed.map(|(&ino, _)| ino).collect();
            let mut whiteouts = unnamed.into_iter();
            for name in leaving {
                self.finish_leaving(name, whiteouts.next()).await?;
            }
        }
        self.check_types().await
    }

    /// Removes the second name of a directory.
    async fn remove_second(&mut self, name: &Name) -> FsResult<()> {
        let (shown, ino) = (String::from_utf8_lossy(&name.name).into_owned(), name.ino);
        let text = format!("directory {}: {shown:?} is a second name of directory {ino}; removed", name.directory);
        self.problem(text, if ino == ROOT_INO { Cause::Damage } else { Cause::Leak });
        self.erase(name).await
    }

    /// The old name of a directory that has its new one becomes the whiteout that the rename made. Any whiteout without a
    /// name is as good as another.
    async fn finish_leaving(&mut self, name: Name, whiteout: Option<InodeNo>) -> FsResult<()> {
        let Some(whiteout) = whiteout else { return self.remove_second(&name).await };
        let (shown, ino) = (String::from_utf8_lossy(&name.name).into_owned(), name.ino);
        let text = format!(
            "directory {}: {shown:?} is a second name of directory {ino}, the old one; now it is the whiteout {whiteout}",
            name.directory
        );
        self.problem(text, Cause::Leak);
        let kind = dirent_type(WHITEOUT.kind());
        let entries = self.directories.get_mut(&name.directory).into_iter().flatten();
        for entry in entries.filter(|entry| (entry.at, entry.offset) == (name.at, name.offset)) {
            (entry.ino, entry.kind) = (whiteout, kind);
        }
        *self.names.entry(whiteout).or_insert(0) += 1;
        let mut block = self.read(name.at, name.frags).await?;
        codec::put_at(&mut block, name.offset, whiteout);
        block[name.offset + 6] = kind;
        self.write(name.at, block);
        Ok(())
    }

    /// What makes the target of a symbolic link impossible: it is empty, or cannot be a path, because writes in the
    /// wrong order have left other bytes in its block. That is damage only for a link with a name (see `check_inode`).
    /// A target that cannot be read may be right.
    pub(super) async fn target_flaw(&self, inode: &Inode) -> FsResult<Option<&'static str>> {
        if inode.kind() != Some(FileKind::Symlink) {
            return Ok(None);
        }
        let bytes = inode.size as usize;
        if bytes == 0 {
            return Ok(Some("which has size 0"));
        }
        let has_zero = if inode.has_no_blocks(self.layout.maxsymlinklen) {
            inode.inline().iter().take(bytes).any(|&byte| byte == 0)
        } else if inode.db[0] == FragNo::NONE {
            true
        } else {
            let frags = self.layout.block_frags(inode.size, 0);
            let block = self.read(inode.db[0], frags).await?;
            let unread = self.unread.ranges(self.layout.sector(inode.db[0]), block.len());
            unread.is_empty() && block.iter().take(bytes).any(|&byte| byte == 0)
        };
        Ok(has_zero.then_some("whose target has a zero byte"))
    }

    /// Compares the types in entries with those of the inodes. Some systems leave them out.
    async fn check_types(&mut self) -> FsResult<()> {
        let all: Vec<Name> = self.directories.values().flatten().cloned().collect();
        for name in all {
            let kind = match &name.name[..] {
                // Its target is determined later, but will be a directory.
                b"." | b".." => Some(FileKind::Directory),
                _ => self.inodes.get(&name.ino).and_then(Inode::kind),
            };
            let Some(kind) = kind.map(dirent_type) else { continue };
            if name.kind != kind && name.kind != 0 && !is_rename_mark(name.kind) {
                let (shown, found) = (String::from_utf8_lossy(&name.name).into_owned(), name.kind);
                let text = format!(
                    "directory {}: {shown:?} has type {found}, and its inode {kind}; corrected",
                    name.directory
                );
                self.problem(text, Cause::Damage);
                let mut block = self.read(name.at, name.frags).await?;
                block[name.offset + 6] = kind;
                self.write(name.at, block);
            }
        }
        Ok(())
    }

    /// Removes a name from its directory.
    pub(super) async fn erase(&mut self, name: &Name) -> FsResult<()> {
        if let Some(names) = self.directories.get_mut(&name.directory) {
            names.retain(|other| (other.at, other.offset) != (name.at, name.offset));
        }
        self.erased.insert((name.directory, name.name.clone()));
        let mut block = self.read(name.at, name.frags).await?;
        codec::put_at(&mut block, name.offset, InodeNo::NONE);
        self.write(name.at, block);
        Ok(())
    }
}

/// Whether of two names of a directory, `name` is the one that a rename made.
fn is_newer(name: &Name, other: &Name) -> bool {
    name.kind == DIRENT_MOVED || other.kind == DIRENT_LEFT && name.kind != DIRENT_LEFT
}

/// Keeps the entries of a chunk up to the first invalid one.
fn salvage(chunk: &mut [u8]) {
    let mut offset = 0;
    let mut last = None;
    while offset < chunk.len() {
        match dirent_at(chunk, offset) {
            Ok(entry) => {
                last = Some(offset);
                offset += entry.record_bytes;
            }
            Err(_) => break,
        }
    }
    match last {
        Some(last) => {
            let length = (chunk.len() - last) as u16;
            codec::put_at(chunk, last + 4, length);
        }
        None => {
            chunk.fill(0);
            let length = chunk.len() as u16;
            codec::put_at(chunk, 4, length);
        }
    }
}
