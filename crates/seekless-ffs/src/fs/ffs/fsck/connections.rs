//! Phases 3 and 4: directories that no name leads to, counts of links, and files without a name.

use std::collections::BTreeSet;

use super::super::format::*;
use super::{Cause, Check, Name};
use crate::codec;
use crate::fs::{FileKind, FsError, FsResult};

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
            .filter(|ino| !self.left.contains(ino))
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

    /// Frees a directory that no name leads to, reconnects it, or leaves it.
    async fn settle_orphan(&mut self, ino: InodeNo) -> FsResult<()> {
        let Some(inode) = self.inodes.get(&ino).copied() else { return Ok(()) };
        let names = self.directories.get(&ino).cloned().unwrap_or_default();
        let children: Vec<Name> = names.into_iter().filter(|name| name.name != b"." && name.name != b"..").collect();
        if self.waits(ino, &inode) {
            return Ok(());
        }
        let keep = !children.is_empty() && inode.nlink > 0 && self.options.reconnect;
        if keep {
            if !self.reconnect(ino, FileKind::Directory).await? {
                self.leave(ino);
            }
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

    pub(super) async fn check_links(&mut self) -> FsResult<()> {
        let all: Vec<(InodeNo, Inode)> = self.inodes.iter().map(|(&ino, inode)| (ino, *inode)).collect();
        for (ino, inode) in all {
            let (Some(kind), false) = (inode.kind(), inode.mode == 0) else { continue };
            if self.left.contains(&ino) {
                continue;
            }
            let mut names = self.names.get(&ino).copied().unwrap_or(0);
            if names == 0 {
                if self.waits(ino, &inode) {
                    continue;
                }
                let keep = inode.nlink > 0 && inode.size > 0 && self.options.reconnect;
                let keep = keep && self.target_flaw(&inode).await?.is_none();
                if keep {
                    if !self.reconnect(ino, kind).await? {
                        self.leave(ino);
                        continue;
                    }
                    names = 1;
                } else {
                    let text =
                        format!("inode {ino} has no name, {} links and {} bytes; freed", inode.nlink, inode.size);
                    self.problem(text, Cause::Leak);
                    self.free_file(ino).await?;
                    continue;
                }
            }
            let is_more = u32::from(inode.nlink) > names;
            if u32::from(inode.nlink) != names && !(is_more && self.unread.hides_names()) {
                let cause = if is_more { Cause::Leak } else { Cause::Crash };
                self.problem(format!("inode {ino} has {} links, and {names} names; corrected", inode.nlink), cause);
                self.inode_mut(ino).nlink = names.min(LINKS_MAX.into()) as u16;
            }
        }
        // Directories created on the way have got their links since.
        let late: Vec<InodeNo> = self.inodes_changed.difference(&self.left).copied().collect();
        for ino in late {
            let names = self.names.get(&ino).copied().unwrap_or(0);
            if let Some(inode) = self.inodes.get_mut(&ino)
                && inode.mode != 0
            {
                let least = if self.unread.hides_names() { inode.nlink } else { 0 };
                inode.nlink = least.max(names.min(LINKS_MAX.into()) as u16);
            }
        }
        Ok(())
    }
}
