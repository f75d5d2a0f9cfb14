//! Names: lookup, create, link, unlink, rename, with the writes that have to reach the volume in order.
//!
//! The order, as in 4.4BSD: an inode is on the volume before a name for it is, a name is gone before the inode is, and
//! a new name is there before an old one goes. A crash in between leaves link counts that are too high and inodes
//! without names, never a name without an inode. With soft updates nothing is written here; the required order is
//! recorded, and an old name stays in its block until the new one is durable (see `soft`).
//!
//! Locks. Each operation shares the lock of the tree, which rename holds exclusively. Then it locks exclusively the
//! directory that it changes, and then the inode. So no task waits for a directory while holding something below it,
//! except for rename, and no other operation runs concurrently with a rename.

use super::cache::BufferKind;
use super::dir::{Slot, fill_with_empty_chunks};
use super::format::*;
use super::rename::{NameIn, NamedInode, Renaming};
use super::soft::{After, Need};
use super::state::*;
use super::{Ffs, Metadata};
use crate::device::Data;
use crate::fs::{Entry, EntryName, FileKind, FsError, FsResult, NewNode, NodeKind, RenameMode};

/// Longest target of a symbolic link (Linux `PATH_MAX`, without its NUL).
const TARGET_BYTES_MAX: usize = 4095;

/// The lock of the tree of names; no inode has this number.
const TREE: InodeNo = InodeNo::NONE;

/// What a new name refers to.
pub(super) enum NewFile<'a> {
    Node(NodeKind),
    Directory,
    Symlink(&'a [u8]),
}

impl State {
    pub(super) fn lookup(&mut self, parent: InodeNo, name: &[u8]) -> Step<Entry> {
        let Some(found) = self.find(parent, name)? else { return fail(FsError::NotFound) };
        let entry = self.entry(found.ino).map_err(|stop| match stop {
            Stop::Fail(FsError::Stale) => Stop::Fail(self.dangling(parent, found.ino)),
            other => other,
        })?;
        self.check_way_up(parent, &entry)?;
        self.count_lookup(found.ino);
        Ok(entry)
    }

    /// Refuses a directory whose `..` is wrong: with damaged entries, directories could contain each other, and a walk
    /// along them would never end.
    pub(super) fn check_way_up(&mut self, parent: InodeNo, entry: &Entry) -> Step<()> {
        let Some(ino) = inner(entry.attr.ino).filter(|_| entry.attr.kind == FileKind::Directory) else { return Ok(()) };
        let up = self.find(ino, b"..")?.map(|found| found.ino);
        let own = self.find(ino, b".")?.map(|found| found.ino);
        if ino != ROOT_INO && up == Some(parent) && own == Some(ino) {
            return Ok(());
        }
        let detail = format_args!("it has a name in directory {parent}, but its `..` is another").to_string();
        fail(FsError::corrupt("directory", format_args!("inode {ino}"), detail))
    }

    fn dangling(&self, parent: InodeNo, ino: InodeNo) -> FsError {
        FsError::corrupt("directory", format_args!("inode {parent}"), format_args!("it names the unused inode {ino}"))
    }

    /// A directory that can take new names.
    ///
    /// # Errors
    /// `NotFound` when it has been removed and exists only because a process uses it.
    fn directory_in_use(&mut self, dir: InodeNo) -> Step<Inode> {
        self.index(dir)?;
        let inode = self.inode(dir)?.inode;
        if inode.nlink == 0 { fail(FsError::NotFound) } else { Ok(inode) }
    }

    /// # Errors
    /// `TooManyLinks`, also when the volume would count too many (U4); see [`Ffs::with_links`].
    pub(super) fn add_link(&mut self, ino: InodeNo) -> Step<()> {
        let now = self.now;
        let held = self.held_links(ino);
        let inode = self.inode_mut(ino)?;
        if u32::from(inode.nlink) + u32::from(held) >= u32::from(LINKS_MAX) {
            return fail(FsError::TooManyLinks);
        }
        inode.nlink += 1;
        inode.set_ctime(now);
        Ok(())
    }

    /// Whether a further name of the inode would be its first.
    ///
    /// # Errors
    /// `NotFound` when its last name is gone.
    fn check_linkable(&mut self, ino: InodeNo) -> Step<bool> {
        match (self.inode(ino)?.inode.nlink, self.linkable.contains(&ino)) {
            (0, false) => fail(FsError::NotFound),
            (links, _) => Ok(links == 0),
        }
    }

    /// # Errors
    /// `Corrupt` when the count is lower.
    pub(super) fn drop_links(&mut self, ino: InodeNo, count: u16) -> Step<()> {
        let now = self.now;
        let Some(left) = self.inode(ino)?.inode.nlink.checked_sub(count) else {
            let at = format_args!("inode {ino}").to_string();
            return fail(FsError::corrupt("inode", at, "it counts fewer links than it has names"));
        };
        let inode = self.inode_mut(ino)?;
        inode.nlink = left;
        inode.set_ctime(now);
        Ok(())
    }

    pub(super) fn touch_directory(&mut self, dir: InodeNo) -> Step<()> {
        let now = self.now;
        let inode = self.inode_mut(dir)?;
        inode.set_mtime(now);
        inode.set_ctime(now);
        Ok(())
    }

    /// Creates an inode in memory, in the directory `parent`.
    fn new_inode(&mut self, parent: InodeNo, kind: FileKind, new: NewNode) -> Step<InodeNo> {
        let above = self.inode(parent)?.inode;
        let ino = self.take_inode(parent, kind == FileKind::Directory)?;
        let permissions = if kind == FileKind::Symlink { new.permissions } else { new.masked() };
        let new = NewNode { permissions, ..new }.in_directory(kind, above.mode, above.gid);
        self.generation = self.generation.wrapping_add(1).max(self.now.seconds as u32);
        let mut inode = Inode {
            mode: kind.mode_bits() as u16 | new.permissions,
            nlink: 1,
            generation: self.generation,
            uid: new.uid,
            gid: new.gid,
            ..Inode::FREE
        };
        // Old programs look for owners here.
        inode.old_ids = [inode.uid as u16, inode.gid as u16];
        let now = self.now;
        inode.set_atime(now);
        inode.set_mtime(now);
        inode.set_ctime(now);
        let known = self.adopt_inode(ino, inode);
        (known.dirty, known.is_only_here) = (true, true);
        self.note_new_inode(ino);
        Ok(ino)
    }

    fn set_inline_target(&mut self, ino: InodeNo, target: &[u8]) -> Step<()> {
        let inode = self.inode_mut(ino)?;
        let mut bytes = [0; INLINE_BYTES];
        bytes[..target.len()].copy_from_slice(target);
        inode.set_inline(&bytes);
        inode.size = target.len() as u64;
        Ok(())
    }

    /// # Errors
    /// `NotEmpty`.
    pub(super) fn check_empty(&mut self, dir: InodeNo) -> Step<()> {
        if self.index(dir)?.is_empty() { Ok(()) } else { fail(FsError::NotEmpty) }
    }

    /// Whether what gets another parent has a `..` that can change, if it is a directory: that changes last, and must not be
    /// what fails.
    fn check_turnable(&mut self, moved: NamedInode) -> Step<()> {
        if !moved.is_directory() || self.find(moved.ino, b"..")?.is_some() {
            return Ok(());
        }
        fail(FsError::corrupt("directory", format_args!("inode {}", moved.ino), "it has no `..`"))
    }
}

impl State {
    /// Records for soft updates a name that has just been put into a directory.
    fn note_entered(&mut self, dir: InodeNo, name: &[u8], ino: InodeNo, needs: &[Need]) -> Step<u64> {
        if self.soft.is_none() {
            return Ok(0);
        }
        let Some(found) = self.find(dir, name)? else { return Ok(0) };
        Ok(self.note_added((dir, found.offset), name, ino, needs))
    }

    /// Makes an entry that refers to `old` refer to `new`. Returns the block to write; and with soft updates, which
    /// count `links` until it is durable, the record of that.
    pub(super) fn replace_entry(
        &mut self,
        NameIn { dir, name }: NameIn<'_>,
        new: (InodeNo, u8),
        old: (InodeNo, u8),
        after: &After<'_>,
        links: &[(InodeNo, u16)],
    ) -> Step<(FragNo, u64)> {
        self.keep_in_memory(links)?;
        let Some(found) = self.find(dir, name)? else { return fail(FsError::NotFound) };
        let at = self.change_entry(dir, name, new.0, new.1)?;
        Ok((at, self.note_changed((dir, found.offset), name, new.0, old, after, links.to_vec())))
    }

    /// Keeps the inodes in memory for soft updates.
    pub(super) fn keep_in_memory(&mut self, links: &[(InodeNo, u16)]) -> Step<()> {
        if self.soft.is_some() {
            for &(ino, _) in links {
                self.inode(ino)?;
            }
        }
        Ok(())
    }
}

fn check_target(target: &[u8]) -> FsResult<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(FsError::Invalid("not a path"));
    }
    if target.len() > TARGET_BYTES_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}

impl Ffs {
    pub(super) async fn look_up(&self, parent: InodeNo, name: &[u8]) -> FsResult<Entry> {
        let _dir = self.locks.share(parent).await;
        self.step(|state| state.lookup(parent, name)).await
    }

    /// Creates an inode and its first name.
    pub(super) async fn make(&self, parent: InodeNo, name: &[u8], file: NewFile<'_>, new: NewNode) -> FsResult<Entry> {
        let _tree = self.locks.share(TREE).await;
        let _dir = self.locks.alone(parent).await;
        let kind = match &file {
            NewFile::Node(node) => node.kind(),
            NewFile::Directory => FileKind::Directory,
            NewFile::Symlink(target) => {
                check_target(target)?;
                FileKind::Symlink
            }
        };
        let directory = kind == FileKind::Directory;
        let possible = self.step(|state| {
            state.check_writable()?;
            let above = state.directory_in_use(parent)?;
            if state.find(parent, name)?.is_some() {
                return fail(FsError::Exists);
            }
            if directory && above.nlink >= LINKS_MAX {
                return fail(FsError::TooManyLinks);
            }
            Ok(())
        });
        possible.await?;
        let ino = self.new_inode(parent, kind, new).await?;
        let _inode = self.locks.alone(ino).await;
        let made = async {
            if self.options.metadata == Metadata::Softdep {
                // Names wait for inodes: one whose block cannot be read would keep all names below it from the volume.
                self.step(|state| state.stored_inode(ino).map(drop)).await?;
            }
            self.fill_and_enter(parent, name, ino, kind, &file).await
        };
        let made = made.await;
        if let Err(error) = made {
            self.unmake(ino).await?;
            return Err(error);
        }
        self.step(|state| {
            let entry = state.entry(ino)?;
            state.count_lookup(ino);
            Ok(entry)
        })
        .await
    }

    /// Removes a new inode that did not get a name. The caller holds its lock.
    pub(super) async fn unmake(&self, ino: InodeNo) -> FsResult<()> {
        self.step(|state| {
            if let Some(known) = state.inodes.get_mut(&ino) {
                known.inode.nlink = 0;
            }
            Ok(())
        })
        .await?;
        self.free_inode(ino).await
    }

    /// Creates a regular file without a name. As with one that has lost its last name, the check frees it after a
    /// crash.
    pub(super) async fn make_unnamed(&self, parent: InodeNo, new: NewNode, linkable: bool) -> FsResult<Entry> {
        let _tree = self.locks.share(TREE).await;
        let _dir = self.locks.alone(parent).await;
        let possible = self.step(|state| {
            state.check_writable()?;
            state.directory_in_use(parent).map(drop)
        });
        possible.await?;
        let ino = self.new_inode(parent, FileKind::Regular, new).await?;
        let _inode = self.locks.alone(ino).await;
        let made = self.step(|state| {
            state.stored_inode(ino)?; // An inode whose block cannot be read would never reach the volume.
            state.inode_mut(ino)?.nlink = 0;
            let entry = state.entry(ino)?;
            state.count_lookup(ino);
            if linkable {
                state.linkable.insert(ino);
            }
            Ok(entry)
        });
        let made = made.await;
        if made.is_err() {
            self.unmake(ino).await?;
        }
        made
    }

    /// Creates an inode in memory, in the directory `parent`.
    pub(super) async fn new_inode(&self, parent: InodeNo, kind: FileKind, new: NewNode) -> FsResult<InodeNo> {
        self.with_space(async || self.step(|state| state.new_inode(parent, kind, new)).await).await
    }

    /// Gives a new inode its content, writes it to the volume, and then its name.
    async fn fill_and_enter(
        &self,
        parent: InodeNo,
        name: &[u8],
        ino: InodeNo,
        kind: FileKind,
        file: &NewFile<'_>,
    ) -> FsResult<()> {
        match file {
            NewFile::Node(node) => {
                let device = node.device();
                self.step(|state| {
                    state.inode_mut(ino)?.set_device(device);
                    Ok(())
                })
                .await?;
            }
            NewFile::Symlink(target) => {
                let inline = (target.len() as u64) < u64::from(self.state.borrow().layout.maxsymlinklen);
                if inline {
                    self.step(|state| state.set_inline_target(ino, target)).await?;
                } else {
                    // Before it gets space: an inode whose block cannot be read would never reach the volume.
                    self.step(|state| state.stored_inode(ino).map(drop)).await?;
                    self.write_data(ino, 0, target).await?;
                    self.write_first_block(ino).await?;
                }
            }
            NewFile::Directory => {
                self.step(|state| {
                    state.inode_mut(ino)?.nlink = 2;
                    Ok(())
                })
                .await?;
                self.write_inode_in_order(ino).await?;
                // The link of `..`, counted before the entry exists.
                self.with_links(parent, |state| state.add_link(parent)).await?;
                let filled = self.fill_directory(parent, ino).await;
                let entered = match filled {
                    Ok(()) => {
                        let needs = [Need::of(ino, dirent_type(kind)), Need { ino: parent, complete: false }];
                        self.enter(parent, name, (ino, dirent_type(kind)), &needs).await
                    }
                    Err(error) => Err(error),
                };
                if entered.is_err() {
                    self.step(|state| state.drop_links(parent, 1)).await?;
                }
                return entered.map(drop);
            }
        }
        self.write_inode_in_order(ino).await?;
        self.enter(parent, name, (ino, dirent_type(kind)), &[Need::of(ino, dirent_type(kind))]).await.map(drop)
    }

    async fn fill_directory(&self, parent: InodeNo, ino: InodeNo) -> FsResult<()> {
        self.write_inode_in_order(parent).await?;
        self.write_data(ino, 0, &first_chunk(ino, parent)).await?;
        self.write_first_block(ino).await?;
        self.write_inode_in_order(ino).await
    }

    /// Writes the first block of a new directory or long symbolic link, in order.
    async fn write_first_block(&self, ino: InodeNo) -> FsResult<()> {
        match self.step(|state| state.block_at(ino, 0)).await? {
            Some(at) => self.write_in_order(at).await,
            None => Ok(()),
        }
    }

    /// Puts a name into a directory, on the volume too; with soft updates, once `needs` are durable. Returns the record
    /// of that.
    pub(super) async fn enter(
        &self,
        dir: InodeNo,
        name: &[u8],
        (ino, kind): (InodeNo, u8),
        needs: &[Need],
    ) -> FsResult<u64> {
        self.drain_until(|state| !state.is_ghost(dir, name)).await?;
        let slot = self.step(|state| Ok(state.index(dir)?.slot_for(name))).await?;
        let (start, (at, record)) = match slot {
            Slot::Chunk(start) => {
                let entered = self.step(|state| {
                    let at = state.insert_entry(dir, start, name, ino, kind)?;
                    Ok((at, state.note_entered(dir, name, ino, needs)?))
                });
                (start, entered.await?)
            }
            Slot::Append => {
                let start = self.step(|state| Ok(state.inode(dir)?.inode.size)).await?;
                let mut chunk = [0; DIR_CHUNK_BYTES];
                fill_with_empty_chunks(&mut chunk);
                self.state.borrow_mut().note_growing(dir, start);
                self.write_data(dir, start, &chunk).await?;
                let entered = self.step(|state| {
                    let at = state.append_entry(dir, start, name, ino, kind)?;
                    Ok((at, state.note_entered(dir, name, ino, needs)?))
                });
                (start, entered.await?)
            }
        };
        self.step(|state| state.touch_directory(dir)).await?;
        let mut written = self.write_in_order(at).await;
        if written.is_ok() && self.state.borrow().is_behind_growth(dir, start) {
            written = self.write_inode_in_order(dir).await;
        }
        if written.is_err() {
            // The name is removed again, at least in memory. What found no room is its own block, of which the volume has the old
            // one until the next update, unless a part is written nevertheless; or what leads there, without which it has no such
            // place.
            self.step(|state| state.remove_entry(dir, name)).await?;
        }
        written.map(|()| record)
    }

    /// Removes a name from a directory, on the volume too. If that finds no space below, the name is back. With soft
    /// updates, the volume counts `links` until the name is gone there.
    async fn take_out(&self, dir: InodeNo, name: &[u8], links: &[(InodeNo, u16)]) -> FsResult<()> {
        let removed = self.step(|state| {
            state.keep_in_memory(links)?;
            let Some(found) = state.find(dir, name)? else { return fail(FsError::NotFound) };
            let at = state.remove_entry(dir, name)?;
            state.note_removed(dir, found.offset, name, links.to_vec());
            Ok((at, found))
        });
        let (at, found) = removed.await?;
        let written = self.write_in_order(at).await;
        if written.is_err() {
            // In the same place (D3): another block could be on the volume without this one, which has the name there too.
            self.step(|state| state.restore_entry(dir, name, &found)).await?;
            return written;
        }
        self.step(|state| state.touch_directory(dir)).await
    }

    pub(super) async fn link_inode(&self, ino: InodeNo, parent: InodeNo, name: &[u8]) -> FsResult<Entry> {
        let _tree = self.locks.share(TREE).await;
        let _dir = self.locks.alone(parent).await;
        let kind = self.step(|state| {
            state.check_writable()?;
            let kind = state.kind(ino)?;
            if kind == FileKind::Directory {
                return fail(FsError::NotPermitted);
            }
            state.check_linkable(ino)?;
            state.directory_in_use(parent)?;
            if state.find(parent, name)?.is_some() {
                return fail(FsError::Exists);
            }
            Ok(kind)
        });
        let kind = kind.await?;
        let _inode = self.locks.alone(ino).await;
        let is_first = self.with_links(ino, |state| {
            // Its last name may have gone during the wait.
            let is_first = state.check_linkable(ino)?;
            state.add_link(ino)?;
            Ok(is_first)
        });
        let written = match is_first.await? {
            // The inode must be on the volume before it has a name.
            true => self.write_inode_in_order(ino).await,
            false => self.write_inode_in_order_or_later(ino).await,
        };
        let kind = dirent_type(kind);
        let entered = match written {
            Ok(()) => self.enter(parent, name, (ino, kind), &[Need::of(ino, kind)]).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = entered {
            self.step(|state| state.drop_links(ino, 1)).await?;
            return Err(error);
        }
        self.step(|state| {
            let entry = state.entry(ino)?;
            state.linkable.remove(&ino);
            state.count_lookup(ino);
            Ok(entry)
        })
        .await
    }

    /// Removes a name of anything but a directory.
    pub(super) async fn unlink_name(&self, parent: InodeNo, name: &[u8]) -> FsResult<()> {
        let _tree = self.locks.share(TREE).await;
        let _dir = self.locks.alone(parent).await;
        let ino = self.step(|state| {
            state.check_writable()?;
            let Some(found) = state.find(parent, name)? else { return fail(FsError::NotFound) };
            if state.kind(found.ino)? == FileKind::Directory {
                return fail(FsError::IsDirectory);
            }
            Ok(found.ino)
        });
        let ino = ino.await?;
        let _inode = self.locks.alone(ino).await;
        self.settle_name(parent, name, false).await?;
        self.take_out(parent, name, &[(ino, 1)]).await?;
        self.step(|state| state.drop_links(ino, 1)).await?;
        self.free_if_unused(ino).await
    }

    pub(super) async fn remove_directory(&self, parent: InodeNo, name: &[u8]) -> FsResult<()> {
        let _tree = self.locks.share(TREE).await;
        let _dir = self.locks.alone(parent).await;
        let ino = self.step(|state| {
            state.check_writable()?;
            let Some(found) = state.find(parent, name)? else { return fail(FsError::NotFound) };
            if state.kind(found.ino)? != FileKind::Directory {
                return fail(FsError::NotDirectory);
            }
            Ok(found.ino)
        });
        let ino = ino.await?;
        let _inode = self.locks.alone(ino).await;
        self.step(|state| state.check_empty(ino)).await?;
        self.wait_for_ghosts(ino).await?;
        self.wait_for_old_names(ino).await?;
        self.settle_name(parent, name, false).await?;
        self.take_out(parent, name, &[(ino, 2), (parent, 1)]).await?;
        self.step(|state| state.drop_links(parent, 1)).await?;
        self.step(|state| state.drop_links(ino, 2)).await?;
        self.free_if_unused(ino).await
    }

    /// Moves a name. The inode with the new name is replaced, or the two are exchanged.
    pub(super) async fn move_name(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        let (Some(from_dir), Some(to_dir)) = (inner(from.parent), inner(to.parent)) else {
            return Err(FsError::Stale);
        };
        let _tree = self.locks.alone(TREE).await;
        let _one = self.locks.alone(from_dir.min(to_dir)).await;
        let _two = match from_dir == to_dir {
            true => None,
            false => Some(self.locks.alone(from_dir.max(to_dir)).await),
        };
        let found = self.step(|state| {
            state.check_writable()?;
            let Some(source) = state.find(from_dir, from.name)? else { return fail(FsError::NotFound) };
            state.directory_in_use(to_dir)?;
            let target = state.find(to_dir, to.name)?;
            match (mode, &target) {
                (mode, Some(_)) if mode.spares_target() => return fail(FsError::Exists),
                (RenameMode::Exchange, None) => return fail(FsError::NotFound),
                _ => {}
            }
            let kind = state.kind(source.ino)?;
            let target = match target {
                Some(found) => Some(NamedInode { ino: found.ino, kind: state.kind(found.ino)? }),
                None => None,
            };
            if from_dir != to_dir {
                state.check_turnable(NamedInode { ino: source.ino, kind })?;
                if let (RenameMode::Exchange, Some(target)) = (mode, target) {
                    state.check_turnable(target)?;
                }
            }
            Ok((NamedInode { ino: source.ino, kind }, target))
        });
        let (source, target) = found.await?;
        if source.is_directory() {
            self.check_no_loop(source.ino, to_dir).await?;
        }
        let (from, to) = (NameIn { dir: from_dir, name: from.name }, NameIn { dir: to_dir, name: to.name });
        match (mode, target) {
            (RenameMode::Exchange, Some(target)) => {
                if target.is_directory() {
                    self.check_no_loop(target.ino, from_dir).await?;
                }
                self.exchange((from, source), (to, target)).await
            }
            // Two names of one file: POSIX requires no change.
            (_, Some(target)) if target.ino == source.ino => Ok(()),
            (_, target) => {
                let renaming = Renaming { ffs: self, from, to, source, target, left: None };
                match mode.whiteout() {
                    Some(new) => self.replace_and_leave(renaming, new).await,
                    None => renaming.replace().await,
                }
            }
        }
    }

    /// One step for each ancestor, so that not all of them have to be in memory at once. The caller holds the lock of the tree.
    ///
    /// # Errors
    /// `Loop` when `dir` is `below` or one of its ancestors.
    async fn check_no_loop(&self, dir: InodeNo, below: InodeNo) -> FsResult<()> {
        let mut ancestor = below;
        // A damaged volume could have a cycle of parents.
        let inodes = self.state.borrow().layout.ino_end().0;
        for _ in 0..inodes {
            if ancestor == dir {
                return Err(FsError::Loop);
            }
            if ancestor == ROOT_INO {
                return Ok(());
            }
            ancestor = self.way_up(ancestor).await?.unwrap_or(ROOT_INO);
        }
        Err(FsError::corrupt("directory", format_args!("inode {below}"), "its ancestors form a cycle"))
    }

    /// What the directory's `..` refers to.
    pub(super) async fn way_up(&self, dir: InodeNo) -> FsResult<Option<InodeNo>> {
        self.step(|state| Ok(state.find(dir, b"..")?.map(|up| up.ino))).await
    }

    pub(super) async fn drop_all(&self, links: &[(InodeNo, u16)]) -> FsResult<()> {
        for &(ino, count) in links {
            self.step(|state| state.drop_links(ino, count)).await?;
        }
        Ok(())
    }

    pub(super) async fn read_target(&self, ino: InodeNo) -> FsResult<Vec<u8>> {
        let _inode = self.locks.share(ino).await;
        let target = self.step(|state| {
            if state.kind(ino)? != FileKind::Symlink {
                return fail(FsError::Invalid("not a symbolic link"));
            }
            let inode = state.inode(ino)?.inode;
            let bytes = inode.size as usize;
            let corrupt = || {
                FsError::corrupt("symbolic link", format_args!("inode {ino}"), format_args!("it is {bytes} bytes long"))
            };
            if bytes == 0 || inode.size > u64::from(state.layout.block_bytes) {
                return fail(corrupt());
            }
            if inode.has_no_blocks(state.layout.maxsymlinklen) {
                return Ok(Data::from_slice(&inode.inline()[..bytes]));
            }
            let frags = state.layout.block_frags(inode.size, 0);
            match state.block_at(ino, 0)? {
                Some(at) => Ok(state.buffer(at, frags, BufferKind::File { ino, lbn: 0 })?.slice(0..bytes)),
                None => fail(corrupt()),
            }
        });
        let target = target.await?.to_vec();
        if target.contains(&0) {
            let at = format_args!("inode {ino}").to_string();
            return Err(FsError::corrupt("symbolic link", at, "its target has a zero byte"));
        }
        Ok(target)
    }

    // ---- The end of inodes ----

    /// Frees an inode that has neither names nor users. The caller holds its lock.
    pub(super) async fn free_if_unused(&self, ino: InodeNo) -> FsResult<()> {
        debug_assert!(self.locks.is_alone(ino), "U2: an inode is freed while no other operation uses it");
        let unused = self.step(|state| {
            let unlinked = state.inode(ino)?.inode.nlink == 0;
            Ok(unlinked && !state.in_use(ino) && !state.is_held(ino))
        });
        if !unused.await? {
            return Ok(());
        }
        let freed = self.free_inode(ino).await;
        if let Err(FsError::Device(_)) = freed
            && let Some(soft) = self.state.borrow_mut().soft()
        {
            soft.free_again(ino);
        }
        freed
    }

    /// Frees an inode and its blocks.
    async fn free_inode(&self, ino: InodeNo) -> FsResult<()> {
        let (inode, has_blocks) = self
            .step(|state| {
                let inode = state.inode(ino)?.inode;
                Ok((inode, !inode.has_no_blocks(state.layout.maxsymlinklen)))
            })
            .await?;
        if self.options.metadata == Metadata::Softdep {
            let frags = if has_blocks { self.gather_all(ino).await? } else { Vec::new() };
            let freed = self.step(|state| {
                let at = state.block_to_free(ino)?;
                state.free_inode_later(ino, at, frags.clone())
            });
            freed.await?;
            // It is freed; the next sync reports space that cannot be freed.
            let _ = self.run_jobs().await;
            return Ok(());
        }
        if has_blocks && inode.size > 0 {
            self.truncate(ino, 0).await?;
        }
        let freed = self.step(|state| {
            state.block_to_free(ino)?;
            state.give_inode(ino, inode.is_directory())?;
            if !state.is_only_here(ino) {
                let known = state.inode_mut(ino)?;
                *known = Inode { generation: known.generation, ..Inode::FREE };
                state.update_inode(ino)?;
            }
            state.inodes.remove(&ino);
            state.grown.remove(&ino);
            state.late_names.remove(&ino);
            Ok(())
        });
        freed.await
    }

    /// Forgets lookups, and frees the inode if these were the last and it has no name.
    pub(super) async fn forget_lookups(&self, ino: InodeNo, lookups: u64) {
        let unused = {
            let mut state = self.state.borrow_mut();
            match state.users.get_mut(&ino) {
                Some(users) if *users > lookups => {
                    *users -= lookups;
                    false
                }
                Some(_) => {
                    state.users.remove(&ino);
                    state.linkable.remove(&ino);
                    let unlinked = state.inodes.get(&ino).is_some_and(|known| known.inode.nlink == 0);
                    unlinked && !state.read_only && state.stopped.is_none()
                }
                None => false,
            }
        };
        if unused {
            let _inode = self.locks.alone(ino).await;
            // An error stops the volume, or leaves the inode for the check; no caller waits for the result.
            let _ = self.free_if_unused(ino).await;
        }
    }

    /// Frees inodes without names, even those in use: the mount ends.
    ///
    /// # Errors
    /// The first one that [`put_off`] puts off; the other inodes are freed nevertheless.
    pub(super) async fn reclaim_unlinked(&self) -> FsResult<()> {
        let mut first = Ok(());
        let unlinked = self.state.borrow().inodes.numbers(|known| known.inode.nlink == 0);
        for ino in unlinked {
            let _inode = self.locks.alone(ino).await;
            {
                let mut state = self.state.borrow_mut();
                state.users.remove(&ino);
                state.linkable.remove(&ino);
            }
            match self.free_if_unused(ino).await {
                Ok(()) | Err(FsError::Stale) => {}
                freed => put_off(&mut first, freed)?,
            }
        }
        first
    }
}
