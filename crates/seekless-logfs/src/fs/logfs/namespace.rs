//! Names: lookup, create, link, unlink, rename, as steps on the volume.

use super::change::Change;
use super::demand::ReserveAccess;
use super::dir::Named;
use super::format::*;
use super::state::*;
use super::tree::*;
use super::{LogBackend, xattr};
use crate::device::Data;
use crate::fs::acl::{Inherited, inherit};
use crate::fs::{Entry, EntryName, FileKind, FsError, NewNode, NodeKind, RenameMode, WHITEOUT};
use crate::units::Ino;

/// Most links that a file can have.
const LINKS_MAX: u32 = 1 << 31;

/// Longest target of a symbolic link (Linux `PATH_MAX`, without its NUL).
const TARGET_BYTES_MAX: usize = 4095;

pub(in crate::fs) fn lookup<L: LogBackend>(state: &mut State<L>, parent: Ino, name: &[u8]) -> Step<Entry> {
    let mut change = Change::new(state);
    change.directory(parent)?;
    let Some(found) = change.find(parent, name)? else { return fail(FsError::NotFound) };
    let entry = state.entry(found.ino)?;
    state.count_lookup(found.ino);
    Ok(entry)
}

/// What a new name refers to.
pub(in crate::fs) enum NewFile<'a> {
    Node(NodeKind),
    Directory,
    Symlink(&'a [u8]),
}

/// Creates an inode and its first name.
pub(in crate::fs) fn make<L: LogBackend>(
    state: &mut State<L>,
    parent: Ino,
    name: &[u8],
    file: &NewFile<'_>,
    new: NewNode,
) -> Step<Entry> {
    let mut change = Change::new(state);
    let directory = change.directory_in_use(parent)?;
    let place = change.place_of(parent, name)?;
    if place.found()?.is_some() {
        return fail(FsError::Exists);
    }
    let kind = match file {
        NewFile::Node(node) => node.kind(),
        NewFile::Directory => FileKind::Directory,
        NewFile::Symlink(_) => FileKind::Symlink,
    };
    let ino = change.make_heir(&directory, kind, new)?;
    let inode = change.inode_mut(ino, InodeDirt::Namespace)?;
    inode.links = 1;
    match file {
        NewFile::Node(node) => inode.special = node.device(),
        NewFile::Directory => {
            inode.links = 2;
            change.add_link(parent)?;
        }
        NewFile::Symlink(target) => change.set_target(ino, target)?,
    }
    change.insert(&place, ino, kind)?;
    change.commit(ReserveAccess::User)?;
    state.count_lookup(ino);
    state.entry(ino)
}

/// Creates a regular file without a name. It is an orphan, so that a crash frees it.
pub(in crate::fs) fn make_unnamed<L: LogBackend>(
    state: &mut State<L>,
    parent: Ino,
    new: NewNode,
    linkable: bool,
) -> Step<Entry> {
    let mut change = Change::new(state);
    let directory = change.directory_in_use(parent)?;
    let ino = change.make_heir(&directory, FileKind::Regular, new)?;
    change.add_orphan(ino)?;
    change.commit(ReserveAccess::User)?;
    state.count_lookup(ino);
    if linkable {
        state.linkable.insert(ino);
    }
    state.entry(ino)
}

pub(in crate::fs) fn link<L: LogBackend>(state: &mut State<L>, ino: Ino, parent: Ino, name: &[u8]) -> Step<Entry> {
    let mut change = Change::new(state);
    let inode = *change.inode(ino)?;
    let kind = kind_of(&inode)?;
    if kind == FileKind::Directory {
        return fail(FsError::NotPermitted);
    }
    let is_first = inode.links == 0;
    if is_first && !change.state.linkable.contains(&ino) {
        // Its last name is gone; it must not come back from the orphans.
        return fail(FsError::NotFound);
    }
    change.directory_in_use(parent)?;
    let place = change.place_of(parent, name)?;
    if place.found()?.is_some() {
        return fail(FsError::Exists);
    }
    if is_first && change.state.inode(ino)?.reclaiming {
        // A file that is being truncated stays on the list of orphans until that is done, and is then removed from it.
        return need(Wait::Reclaim(ino));
    }
    change.add_link(ino)?;
    if is_first {
        change.remove_orphan(ino)?;
    }
    change.insert(&place, ino, kind)?;
    change.commit(ReserveAccess::User)?;
    state.linkable.remove(&ino);
    state.count_lookup(ino);
    state.entry(ino)
}

/// Removes a name. Returns the inode when it has neither names nor users, so that the caller frees it.
pub(in crate::fs) fn unlink<L: LogBackend>(state: &mut State<L>, parent: Ino, name: &[u8]) -> Step<Option<Ino>> {
    let mut change = Change::new(state);
    change.directory(parent)?;
    let place = change.place_of(parent, name)?;
    let Some(found) = place.found()? else { return fail(FsError::NotFound) };
    if found.kind == FileKind::Directory {
        return fail(FsError::IsDirectory);
    }
    change.remove(&place)?;
    let last = change.drop_link(found.ino)?;
    change.commit(ReserveAccess::FreesSpace)?;
    Ok((last && !state.in_use(found.ino)).then_some(found.ino))
}

/// As [`unlink`], for directories.
pub(in crate::fs) fn rmdir<L: LogBackend>(state: &mut State<L>, parent: Ino, name: &[u8]) -> Step<Option<Ino>> {
    let mut change = Change::new(state);
    change.directory(parent)?;
    let place = change.place_of(parent, name)?;
    let Some(found) = place.found()? else { return fail(FsError::NotFound) };
    change.check_empty_directory(found.ino)?;
    change.remove(&place)?;
    change.drop_directory(parent, found.ino)?;
    change.commit(ReserveAccess::FreesSpace)?;
    Ok((!state.in_use(found.ino)).then_some(found.ino))
}

/// Moves a name. Returns the replaced inode when it has neither names nor users left.
pub(in crate::fs) fn rename<L: LogBackend>(
    state: &mut State<L>,
    from: EntryName<'_>,
    to: EntryName<'_>,
    mode: RenameMode,
) -> Step<Option<Ino>> {
    let mut change = Change::new(state);
    change.directory(from.parent)?;
    let Some(source) = change.find(from.parent, from.name)? else { return fail(FsError::NotFound) };
    change.directory_in_use(to.parent)?;
    let target = change.find(to.parent, to.name)?;
    match (mode, &target) {
        (mode, Some(_)) if mode.spares_target() => return fail(FsError::Exists),
        (RenameMode::Exchange, None) => return fail(FsError::NotFound),
        _ => {}
    }
    if source.kind == FileKind::Directory {
        change.check_no_loop(source.ino, to.parent)?;
    }
    let replaced = match (mode, target) {
        // Two names of one file, or one name twice: POSIX requires no change.
        (_, Some(target)) if target.ino == source.ino => return Ok(None),
        (RenameMode::Exchange, Some(target)) => {
            if target.kind == FileKind::Directory {
                change.check_no_loop(target.ino, from.parent)?;
            }
            change.exchange(from, &source, to, &target)?;
            None
        }
        (_, target) => change.move_name(from, &source, to, target.as_ref(), mode.whiteout())?,
    };
    // A rename over an existing file frees space; one that adds a name or a whiteout may need some.
    let frees = replaced.is_some() && mode.whiteout().is_none();
    let access = if frees { ReserveAccess::FreesSpace } else { ReserveAccess::User };
    change.commit(access)?;
    Ok(replaced.filter(|&ino| !state.in_use(ino)))
}

pub(in crate::fs) fn readlink<L: LogBackend>(state: &mut State<L>, ino: Ino) -> Step<Vec<u8>> {
    let mut change = Change::new(state);
    let inode = *change.inode(ino)?;
    if kind_of(&inode)? != FileKind::Symlink {
        return fail(FsError::Invalid("not a symbolic link"));
    }
    let bytes = inode.size as usize;
    let corrupt = || FsError::corrupt("symbolic link", ino, format_args!("its target has {bytes} bytes"));
    if inode.is_inline() {
        return Ok(inode.map.get(..bytes).ok_or_else(corrupt)?.to_vec());
    }
    match change.block(BlockId::data(ino, 0))? {
        Some(block) if (1..=TARGET_BYTES_MAX).contains(&bytes) => Ok(block[..bytes].to_vec()),
        _ => fail(corrupt()),
    }
}

/// Links of a directory that has a name and no subdirectories.
const DIRECTORY_LINKS: u32 = 2;

/// Takes one link from the inode, and leaves at least `links_min`.
///
/// # Errors
/// `Corrupt` when it has no more than those, which only damage can cause.
fn take_link(inode: &mut Inode, links_min: u32) -> Step<()> {
    let links = inode.links;
    match links.checked_sub(1).filter(|&rest| rest >= links_min) {
        Some(rest) => inode.links = rest,
        None => {
            let text = format_args!("its link count is {links}, and it loses a link");
            return fail(FsError::corrupt("inode", inode.ino, text));
        }
    }
    Ok(())
}

impl<L: LogBackend> Change<'_, L> {
    /// A directory that can take new names.
    ///
    /// # Errors
    /// `NotFound` when it has been removed and exists only because a process uses it.
    fn directory_in_use(&mut self, dir: Ino) -> Step<Inode> {
        let inode = self.directory(dir)?;
        if inode.links == 0 { fail(FsError::NotFound) } else { Ok(inode) }
    }

    /// Creates an inode that inherits from `directory`, without a name and without links.
    fn make_heir(&mut self, directory: &Inode, kind: FileKind, new: NewNode) -> Step<Ino> {
        let parent = Ino(directory.ino);
        let default = xattr::default_list(self, parent)?;
        let Inherited { permissions, xattrs } = match inherit(default.as_deref(), kind, new) {
            Ok(inherited) => inherited,
            Err(detail) => return fail(xattr::bad_list(parent, detail)),
        };
        let ino = self.make_inode(kind, directory, NewNode { permissions, umask: 0, ..new })?;
        xattr::give(self, ino, &xattrs)?;
        Ok(ino)
    }

    fn set_target(&mut self, ino: Ino, target: &[u8]) -> Step<()> {
        if target.is_empty() || target.contains(&0) {
            return fail(FsError::Invalid("not a path"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return fail(FsError::NameTooLong);
        }
        let inode = self.inode_mut(ino, InodeDirt::Namespace)?;
        inode.size = target.len() as u64;
        if target.len() <= inode.map.len() {
            inode.flags |= INODE_INLINE;
            inode.map[..target.len()].copy_from_slice(target);
            return Ok(());
        }
        let mut block = Data::zeroes(BLOCK_BYTES);
        block.make_mut()[..target.len()].copy_from_slice(target);
        self.replace_block(BlockId::data(ino, 0), block)
    }

    fn add_link(&mut self, ino: Ino) -> Step<()> {
        let now = self.now();
        let inode = self.inode_mut(ino, InodeDirt::Namespace)?;
        if inode.links >= LINKS_MAX {
            return fail(FsError::TooManyLinks);
        }
        inode.links += 1;
        inode.set_ctime(now);
        Ok(())
    }

    /// Takes a link from a file. Returns true when it was the last; then the file is an orphan.
    fn drop_link(&mut self, ino: Ino) -> Step<bool> {
        let now = self.now();
        let inode = self.inode_mut(ino, InodeDirt::Namespace)?;
        take_link(inode, 0)?;
        inode.set_ctime(now);
        let last = inode.links == 0;
        if last {
            self.add_orphan(ino)?;
        }
        Ok(last)
    }

    /// Removes the last name of an empty directory.
    fn drop_directory(&mut self, parent: Ino, dir: Ino) -> Step<()> {
        let now = self.now();
        let inode = self.inode_mut(dir, InodeDirt::Namespace)?;
        inode.links = 0;
        inode.set_ctime(now);
        self.add_orphan(dir)?;
        take_link(self.inode_mut(parent, InodeDirt::Namespace)?, DIRECTORY_LINKS)
    }

    fn check_empty_directory(&mut self, dir: Ino) -> Step<()> {
        if self.directory(dir)?.special > 0 { fail(FsError::NotEmpty) } else { Ok(()) }
    }

    /// # Errors
    /// `Loop` when `dir` is `below` or one of its ancestors.
    fn check_no_loop(&mut self, dir: Ino, below: Ino) -> Step<()> {
        let mut ancestor = below;
        // A damaged volume could have a cycle of parents.
        for _ in 0..self.state.volume.ino_end {
            if ancestor == dir {
                return fail(FsError::Loop);
            }
            if ancestor == Ino::ROOT {
                return Ok(());
            }
            ancestor = Ino(self.directory(ancestor)?.parent);
        }
        fail(FsError::corrupt("directory", below, "its ancestors form a cycle"))
    }

    /// Moves `source` to `to`, over `target` if there is one, and leaves a `whiteout` behind if requested. Returns what
    /// was replaced, if that was its last link.
    fn move_name(
        &mut self,
        from: EntryName<'_>,
        source: &Named,
        to: EntryName<'_>,
        target: Option<&Named>,
        whiteout: Option<NewNode>,
    ) -> Step<Option<Ino>> {
        let is_directory = source.kind == FileKind::Directory;
        let mut replaced = None;
        if let Some(target) = target {
            match (is_directory, target.kind == FileKind::Directory) {
                (true, false) => return fail(FsError::NotDirectory),
                (false, true) => return fail(FsError::IsDirectory),
                (true, true) => {
                    self.check_empty_directory(target.ino)?;
                    self.drop_directory(to.parent, target.ino)?;
                    replaced = Some(target.ino);
                }
                (false, false) => replaced = self.drop_link(target.ino)?.then_some(target.ino),
            }
            self.replace(to, source.ino, source.kind)?;
        } else {
            let place = self.place_of(to.parent, to.name)?;
            self.insert(&place, source.ino, source.kind)?;
        }
        match whiteout {
            Some(new) => {
                let directory = self.directory(from.parent)?;
                let left = self.make_heir(&directory, WHITEOUT.kind(), new)?;
                let inode = self.inode_mut(left, InodeDirt::Namespace)?;
                (inode.links, inode.special) = (1, WHITEOUT.device());
                self.replace(from, left, WHITEOUT.kind())?;
            }
            None => {
                let place = self.place_of(from.parent, from.name)?;
                self.remove(&place)?;
            }
        }
        self.note_moved(source.ino, from.parent, to.parent)?;
        Ok(replaced)
    }

    fn exchange(&mut self, from: EntryName<'_>, source: &Named, to: EntryName<'_>, target: &Named) -> Step<()> {
        self.replace(to, source.ino, source.kind)?;
        self.replace(from, target.ino, target.kind)?;
        self.note_moved(source.ino, from.parent, to.parent)?;
        self.note_moved(target.ino, to.parent, from.parent)
    }

    /// Updates a moved inode's record of its parent.
    fn note_moved(&mut self, ino: Ino, from: Ino, to: Ino) -> Step<()> {
        let now = self.now();
        let inode = self.inode_mut(ino, InodeDirt::Namespace)?;
        inode.set_ctime(now);
        if kind_of(inode)? == FileKind::Directory && from != to {
            inode.parent = to.0;
            take_link(self.inode_mut(from, InodeDirt::Namespace)?, DIRECTORY_LINKS)?;
            self.add_link(to)?;
        }
        Ok(())
    }
}
