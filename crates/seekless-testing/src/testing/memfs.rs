//! `MemFs`: the model. A file system in memory, as simple as possible, that defines the right answers for every other
//! file system.
//!
//! Each operation is a plain function on one [`State`] and takes effect at once. What it does to names, link
//! counts, times and lifetimes follows POSIX, and Linux where POSIX leaves a choice:
//!
//! * a changed directory gets new mtime and ctime; an inode whose links, attributes or name change gets a new ctime; a
//!   changed file gets new mtime and ctime, even when `setattr` sets its current size;
//! * reads do not change atime (as with the mount option `noatime`);
//! * new files in a set-group-id directory take its group, and new directories also its set-group-id bit;
//! * any change of data, size or owner of a file removes its `security.capability`;
//! * access-control lists and permission bits agree, as [`crate::fs::acl`] says;
//! * inode numbers are never reused.

mod attributes;
mod rename;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use async_trait::async_trait;

use super::Contents;
use super::contents::PAGE_BYTES;
use crate::device::Data;
use crate::fs::acl::{Inherited, XATTR_ACL_DEFAULT, inherit};
use crate::fs::*;
use crate::rt::Rt;
use crate::units::{Ino, SECTOR_BYTES, WallTime, human_bytes};

/// Longest name, as on Linux (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// Longest symbolic link, as on Linux (`PATH_MAX` less the final NUL).
const TARGET_BYTES_MAX: usize = 4095;

/// Largest file, the limit of the kernel's `loff_t`.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Inodes that `statfs` reports; memory runs out long before.
const INODES: u64 = 1 << 32;

/// How a [`MemFs`] behaves where file systems differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemFsOptions {
    pub open_protocol: OpenProtocol,
    /// Capacity for file content, in bytes of whole pages; more gives `NoSpace`.
    pub capacity_bytes: u64,
    /// Keep access-control lists instead of refusing them.
    pub access_lists: bool,
    /// Files that may be open at once; one more gives `EMFILE`.
    pub open_files_max: Option<usize>,
    /// Give new inodes the numbers of those that ended, as most file systems of a host do.
    pub reuses_numbers: bool,
}

impl Default for MemFsOptions {
    fn default() -> MemFsOptions {
        MemFsOptions {
            open_protocol: OpenProtocol::ZeroMessage,
            capacity_bytes: 1 << 30,
            access_lists: true,
            open_files_max: None,
            reuses_numbers: false,
        }
    }
}

/// Content of an inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Regular(Contents),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special(NodeKind),
}

fn kind_of(body: &Body) -> FileKind {
    match body {
        Body::Regular(_) => FileKind::Regular,
        Body::Directory(_) => FileKind::Directory,
        Body::Symlink(_) => FileKind::Symlink,
        Body::Special(special) => special.kind(),
    }
}

/// Names of a directory, each with the cookie that continues a listing after it. A name keeps its cookie as long as it
/// exists, whatever it names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directory {
    pub entries: BTreeMap<Vec<u8>, (Ino, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
    pub parent: Ino,
}

const COOKIE_SELF: u64 = 1;
const COOKIE_PARENT: u64 = 2;
const COOKIE_FIRST: u64 = 3;

impl Directory {
    fn new(parent: Ino) -> Directory {
        Directory { entries: BTreeMap::new(), by_cookie: BTreeMap::new(), next_cookie: COOKIE_FIRST, parent }
    }

    /// Makes `name` refer to `ino`, whether or not it exists.
    fn set(&mut self, name: &[u8], ino: Ino) {
        if let Some(slot) = self.entries.get_mut(name) {
            slot.0 = ino;
            return;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.entries.insert(name.to_vec(), (ino, cookie));
        self.by_cookie.insert(cookie, name.to_vec());
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some((_, cookie)) = self.entries.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }
}

/// One inode of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub body: Body,
    pub permissions: u16,
    /// Number of names; for a directory 2 plus one for each subdirectory, and 0 once it is removed.
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: WallTime,
    pub mtime: WallTime,
    pub ctime: WallTime,
    pub btime: WallTime,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lookups: u64,
    handles: u64,
    /// It has never had a name, and may get one.
    linkable: bool,
}

impl Node {
    fn new(body: Body, new: NewNode, now: WallTime) -> Node {
        let links = if matches!(body, Body::Directory(_)) { 2 } else { 1 };
        let NewNode { permissions, uid, gid, umask: _ } = new;
        let (atime, mtime, ctime, btime) = (now, now, now, now);
        let xattrs = BTreeMap::new();
        Node {
            body,
            permissions: permissions & PERMISSIONS,
            links,
            uid,
            gid,
            atime,
            mtime,
            ctime,
            btime,
            xattrs,
            lookups: 0,
            handles: 0,
            linkable: false,
        }
    }

    pub fn kind(&self) -> FileKind {
        kind_of(&self.body)
    }

    pub fn attr(&self, ino: Ino) -> Attr {
        let (size, sectors, device) = match &self.body {
            Body::Regular(contents) => (contents.size(), contents.allocated_bytes() / SECTOR_BYTES, 0),
            Body::Directory(directory) => (directory.entries.len() as u64, 0, 0),
            Body::Symlink(target) => (target.len() as u64, 0, 0),
            Body::Special(special) => (0, 0, special.device()),
        };
        let Node { permissions, links, uid, gid, atime, mtime, ctime, btime, .. } = *self;
        let (kind, io_bytes) = (self.kind(), PAGE_BYTES as u32);
        let sectors_will_change = false;
        Attr {
            ino,
            kind,
            permissions,
            links,
            uid,
            gid,
            device,
            size,
            sectors,
            sectors_will_change,
            io_bytes,
            atime,
            mtime,
            ctime,
            btime,
        }
    }

    fn directory(&self) -> FsResult<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    fn directory_mut(&mut self) -> FsResult<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(FsError::NotDirectory),
        }
    }

    fn contents(&self) -> FsResult<&Contents> {
        match &self.body {
            Body::Regular(contents) => Ok(contents),
            Body::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    fn contents_mut(&mut self) -> FsResult<&mut Contents> {
        match &mut self.body {
            Body::Regular(contents) => Ok(contents),
            Body::Directory(_) => Err(FsError::IsDirectory),
            _ => Err(FsError::Invalid("not a regular file")),
        }
    }

    /// The effects of a change of data, size or owner.
    fn kill_privileges(&mut self, also_set_id_bits: bool) {
        if self.kind() != FileKind::Directory {
            self.xattrs.remove(XATTR_CAPABILITY);
            if also_set_id_bits {
                self.permissions = without_privileges(self.permissions);
            }
        }
    }
}

/// The state of the file system.
struct State {
    nodes: BTreeMap<Ino, Node>,
    next_ino: u64,
    reuses_numbers: bool,
    handles: BTreeMap<Handle, Ino>,
    /// Those of `handles` that can write.
    writing: BTreeSet<Handle>,
    next_handle: u64,
    pages_used: u64,
    pages_max: u64,
    touched: BTreeSet<Ino>,
    forgets_too_many: u64,
}

/// The model file system. Clones of the `Rc` share one state.
pub struct MemFs {
    rt: Rt,
    options: MemFsOptions,
    state: RefCell<State>,
    /// How often [`FileSystem::other_writers`] was asked.
    writers_asked: Cell<u64>,
    writer_begins_at: Cell<Option<u64>>,
}

impl MemFs {
    /// An empty file system that opens without messages.
    pub fn new(rt: &Rt) -> Rc<MemFs> {
        MemFs::with_options(rt, MemFsOptions::default())
    }

    pub fn with_options(rt: &Rt, options: MemFsOptions) -> Rc<MemFs> {
        let new = NewNode { permissions: 0o755, umask: 0, uid: 0, gid: 0 };
        let root = Node::new(Body::Directory(Directory::new(Ino::ROOT)), new, rt.wall());
        let state = State {
            nodes: BTreeMap::from([(Ino::ROOT, root)]),
            next_ino: Ino::ROOT.0 + 1,
            reuses_numbers: options.reuses_numbers,
            handles: BTreeMap::new(),
            writing: BTreeSet::new(),
            next_handle: 1,
            pages_used: 0,
            pages_max: options.capacity_bytes / PAGE_BYTES,
            touched: BTreeSet::from([Ino::ROOT]),
            forgets_too_many: 0,
        };
        Rc::new(MemFs {
            rt: rt.clone(),
            options,
            state: RefCell::new(state),
            writers_asked: Cell::default(),
            writer_begins_at: Cell::default(),
        })
    }

    /// The inode `ino` as it is now, even if it no longer has a name.
    pub fn node(&self, ino: Ino) -> Option<Node> {
        self.state.borrow().nodes.get(&ino).cloned()
    }

    /// Inodes that changed or ended since the last call, in order.
    pub fn take_touched(&self) -> BTreeSet<Ino> {
        std::mem::take(&mut self.state.borrow_mut().touched)
    }

    /// The `number`th answer of [`FileSystem::other_writers`] from now on, from 1, is that another program writes.
    pub fn let_a_writer_begin_at(&self, number: u64) {
        self.writer_begins_at.set(Some(self.writers_asked.get() + number));
    }

    /// Inodes in use without a name, and handles and lookups that were not given back: all zero once every user has
    /// gone, unless a user is at fault.
    pub fn leaks(&self) -> Leaks {
        let state = self.state.borrow();
        Leaks {
            orphans: state.nodes.values().filter(|node| node.links == 0).count() as u64,
            handles: state.handles.len() as u64,
            lookups: state.nodes.iter().filter(|(ino, _)| **ino != Ino::ROOT).map(|(_, node)| node.lookups).sum(),
            forgets_too_many: state.forgets_too_many,
        }
    }

    fn check_room_to_open(&self) -> FsResult<()> {
        const EMFILE: i32 = 24;
        let open = self.state.borrow().handles.len();
        match self.options.open_files_max.is_some_and(|most| open >= most) {
            true => Err(FsError::Host(EMFILE)),
            false => Ok(()),
        }
    }

    fn now(&self) -> WallTime {
        self.rt.wall()
    }
}

/// See [`MemFs::leaks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Leaks {
    pub orphans: u64,
    pub handles: u64,
    pub lookups: u64,
    /// Lookups given back that had never been counted.
    pub forgets_too_many: u64,
}

fn check_name(name: &[u8]) -> FsResult<()> {
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(FsError::Invalid("not a name"));
    }
    if name.len() > NAME_BYTES_MAX { Err(FsError::NameTooLong) } else { Ok(()) }
}

/// End of the range, or an error.
fn range_end(offset: u64, bytes: u64) -> FsResult<u64> {
    offset.checked_add(bytes).filter(|&end| end <= FILE_BYTES_MAX).ok_or(FsError::FileTooLarge)
}

impl State {
    fn node(&self, ino: Ino) -> FsResult<&Node> {
        self.nodes.get(&ino).ok_or(FsError::Stale)
    }

    fn node_mut(&mut self, ino: Ino) -> FsResult<&mut Node> {
        self.touched.insert(ino);
        self.nodes.get_mut(&ino).ok_or(FsError::Stale)
    }

    fn check_handle(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        match handle {
            Some(handle) if self.handles.get(&handle) != Some(&ino) => Err(FsError::BadHandle),
            _ => Ok(()),
        }
    }

    /// The inode that `place` names.
    fn child(&self, place: EntryName<'_>) -> FsResult<Ino> {
        let directory = self.node(place.parent)?.directory()?;
        check_name(place.name)?;
        directory.entries.get(place.name).map(|&(ino, _)| ino).ok_or(FsError::NotFound)
    }

    /// Checks that a new name can be made at `place`.
    fn check_vacant(&self, place: EntryName<'_>) -> FsResult<()> {
        match self.child(place) {
            Ok(_) => Err(FsError::Exists),
            Err(FsError::NotFound) if self.node(place.parent)?.links == 0 => Err(FsError::NotFound),
            Err(FsError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn entry(&mut self, ino: Ino) -> FsResult<Entry> {
        let node = self.nodes.get_mut(&ino).ok_or(FsError::Stale)?;
        node.lookups += 1;
        Ok(Entry { attr: node.attr(ino), generation: 1 })
    }

    fn open(&mut self, ino: Ino, flags: OpenFlags) -> FsResult<Handle> {
        self.nodes.get_mut(&ino).ok_or(FsError::Stale)?.handles += 1;
        let handle = Handle(self.next_handle);
        self.next_handle += 1;
        self.handles.insert(handle, ino);
        if flags.write {
            self.writing.insert(handle);
        }
        Ok(handle)
    }

    /// Frees `ino` when its last user has gone.
    fn reap(&mut self, ino: Ino) {
        let unused = |node: &Node| node.links == 0 && node.lookups == 0 && node.handles == 0;
        if self.nodes.get(&ino).is_some_and(unused)
            && let Some(node) = self.nodes.remove(&ino)
        {
            self.touched.insert(ino);
            if let Body::Regular(contents) = node.body {
                self.pages_used -= contents.allocated_bytes() / PAGE_BYTES;
            }
        }
    }

    fn changed_directory(&mut self, ino: Ino, now: WallTime) -> FsResult<()> {
        let node = self.node_mut(ino)?;
        (node.mtime, node.ctime) = (now, now);
        Ok(())
    }

    /// A node with the inheritance from the directory `parent`.
    fn heir(&self, parent: Ino, body: Body, mut new: NewNode, now: WallTime) -> FsResult<Node> {
        let parent = self.node(parent)?;
        let kind = kind_of(&body);
        let inherited = inherit(parent.xattrs.get(XATTR_ACL_DEFAULT).map(Vec::as_slice), kind, new);
        let Inherited { permissions, xattrs } = inherited.map_err(FsError::Invalid)?;
        new.permissions = permissions;
        let new = new.in_directory(kind, parent.permissions, parent.gid);
        let mut node = Node::new(body, new, now);
        node.xattrs.extend(xattrs.into_iter().map(|(name, value)| (name.to_vec(), value)));
        Ok(node)
    }

    fn add(&mut self, node: Node) -> Ino {
        let mut older = (Ino::ROOT.0 + 1..self.next_ino).map(Ino);
        let ended = self.reuses_numbers.then(|| older.find(|ino| !self.nodes.contains_key(ino))).flatten();
        let ino = ended.unwrap_or(Ino(self.next_ino));
        self.next_ino += u64::from(ended.is_none());
        self.nodes.insert(ino, node);
        self.touched.insert(ino);
        ino
    }

    /// Makes a regular file without a name.
    fn make_unnamed(&mut self, parent: Ino, new: NewNode, linkable: bool, now: WallTime) -> FsResult<Ino> {
        self.node(parent)?.directory()?;
        if self.node(parent)?.links == 0 {
            return Err(FsError::NotFound);
        }
        let node = self.heir(parent, Body::Regular(Contents::default()), new, now)?;
        Ok(self.add(Node { links: 0, linkable, ..node }))
    }

    fn make(&mut self, place: EntryName<'_>, body: Body, new: NewNode, now: WallTime) -> FsResult<Ino> {
        self.check_vacant(place)?;
        let is_directory = matches!(body, Body::Directory(_));
        let node = self.heir(place.parent, body, new, now)?;
        let ino = self.add(node);
        let parent = self.node_mut(place.parent)?;
        parent.links += u32::from(is_directory);
        parent.directory_mut()?.set(place.name, ino);
        self.changed_directory(place.parent, now)?;
        Ok(ino)
    }

    /// Removes one name of `ino`; a directory has only one.
    fn drop_name(&mut self, ino: Ino, now: WallTime) -> FsResult<()> {
        let node = self.node_mut(ino)?;
        node.links = if node.kind() == FileKind::Directory { 0 } else { node.links - 1 };
        node.ctime = now;
        self.reap(ino);
        Ok(())
    }

    fn link(&mut self, ino: Ino, place: EntryName<'_>, now: WallTime) -> FsResult<()> {
        let node = self.node(ino)?;
        if node.kind() == FileKind::Directory {
            return Err(FsError::NotPermitted);
        }
        if node.links == 0 && !node.linkable {
            return Err(FsError::NotFound);
        }
        let links = node.links.checked_add(1).ok_or(FsError::TooManyLinks)?;
        self.check_vacant(place)?;
        self.node_mut(place.parent)?.directory_mut()?.set(place.name, ino);
        let node = self.node_mut(ino)?;
        (node.links, node.ctime, node.linkable) = (links, now, false);
        self.changed_directory(place.parent, now)
    }

    fn unlink(&mut self, place: EntryName<'_>, now: WallTime) -> FsResult<()> {
        let ino = self.child(place)?;
        if self.node(ino)?.kind() == FileKind::Directory {
            return Err(FsError::IsDirectory);
        }
        self.node_mut(place.parent)?.directory_mut()?.remove(place.name);
        self.changed_directory(place.parent, now)?;
        self.drop_name(ino, now)
    }

    fn rmdir(&mut self, place: EntryName<'_>, now: WallTime) -> FsResult<()> {
        let ino = self.child(place)?;
        if !self.node(ino)?.directory()?.entries.is_empty() {
            return Err(FsError::NotEmpty);
        }
        let parent = self.node_mut(place.parent)?;
        parent.links -= 1;
        parent.directory_mut()?.remove(place.name);
        self.changed_directory(place.parent, now)?;
        self.drop_name(ino, now)
    }

    /// Changes the content of `ino`, keeping count of pages.
    fn change_contents<T>(&mut self, ino: Ino, change: impl FnOnce(&mut Contents) -> T) -> FsResult<T> {
        let contents = self.node_mut(ino)?.contents_mut()?;
        let before = contents.allocated_bytes() / PAGE_BYTES;
        let result = change(contents);
        let after = contents.allocated_bytes() / PAGE_BYTES;
        self.pages_used = self.pages_used - before + after;
        Ok(result)
    }

    /// Checks that there is room for the bytes `start..end` of `ino`.
    fn check_room(&self, ino: Ino, start: u64, end: u64) -> FsResult<()> {
        let missing = self.node(ino)?.contents()?.pages_missing(start..end);
        if missing > self.pages_max.saturating_sub(self.pages_used) { Err(FsError::NoSpace) } else { Ok(()) }
    }

    fn write(&mut self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, now: WallTime) -> FsResult<()> {
        self.node(ino)?.contents()?;
        let end = range_end(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        self.check_room(ino, offset, end)?;
        self.change_contents(ino, |contents| contents.write(offset, data))?;
        let node = self.node_mut(ino)?;
        (node.mtime, node.ctime) = (now, now);
        node.kill_privileges(mode.kill_privileges);
        Ok(())
    }

    fn setattr(&mut self, ino: Ino, changes: SetAttr, now: WallTime) -> FsResult<Attr> {
        self.node(ino)?;
        if let Some(size) = changes.size {
            self.node(ino)?.contents()?;
            range_end(size, 0)?;
            self.change_contents(ino, |contents| contents.resize(size))?;
        }
        let time = |time| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let node = self.node_mut(ino)?;
        if changes != SetAttr::default() {
            node.ctime = changes.ctime.unwrap_or(now);
        }
        if changes.size.is_some() {
            node.mtime = now;
        }
        if changes.size.is_some() || changes.uid.is_some() || changes.gid.is_some() {
            node.kill_privileges(changes.kill_privileges);
        }
        if let Some(permissions) = changes.permissions {
            node.chmod(permissions & PERMISSIONS)?;
        }
        node.uid = changes.uid.unwrap_or(node.uid);
        node.gid = changes.gid.unwrap_or(node.gid);
        node.atime = changes.atime.map_or(node.atime, time);
        node.mtime = changes.mtime.map_or(node.mtime, time);
        Ok(node.attr(ino))
    }

    fn fallocate(&mut self, ino: Ino, range: FileRange, mode: AllocateMode, now: WallTime) -> FsResult<()> {
        self.node(ino)?.contents()?;
        if range.bytes == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        let (start, end) = (range.offset, range_end(range.offset, range.bytes)?);
        if mode != AllocateMode::PunchHole {
            self.check_room(ino, start, end)?;
        }
        self.change_contents(ino, |contents| {
            if !matches!(mode, AllocateMode::Allocate { .. }) {
                contents.punch(start..end);
            }
            if let AllocateMode::Allocate { keep_size } | AllocateMode::Zero { keep_size } = mode {
                contents.allocate(start..end);
                contents.grow(if keep_size { 0 } else { end });
            }
        })?;
        let node = self.node_mut(ino)?;
        (node.mtime, node.ctime) = (now, now);
        node.kill_privileges(false);
        Ok(())
    }

    fn readdir(&mut self, ino: Ino, cookie: u64, attributes: bool, sink: &mut dyn DirSink) -> FsResult<()> {
        let directory = self.node(ino)?.directory()?;
        let dots = [(COOKIE_SELF, &b"."[..], ino), (COOKIE_PARENT, &b".."[..], directory.parent)];
        for (own, name, ino) in dots {
            let entry = DirEntry { ino, kind: FileKind::Directory, name, cookie: own, entry: None };
            if own > cookie && !sink.add(&entry) {
                return Ok(());
            }
        }
        let mut taken = Vec::new();
        for (&own, name) in directory.by_cookie.range(cookie.saturating_add(1)..) {
            let Some(&(ino, _)) = directory.entries.get(name) else { continue };
            let node = self.node(ino)?;
            let entry = attributes.then(|| Entry { attr: node.attr(ino), generation: 1 });
            if !sink.add(&DirEntry { ino, kind: node.kind(), name, cookie: own, entry }) {
                break;
            }
            taken.push(ino);
        }
        for ino in taken.into_iter().filter(|_| attributes) {
            self.entry(ino)?;
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl FileSystem for MemFs {
    fn traits(&self) -> FsTraits {
        let MemFsOptions { open_protocol, access_lists, open_files_max, .. } = self.options;
        FsTraits {
            name: "memfs",
            open_protocol,
            exclusive: true,
            name_bytes_max: NAME_BYTES_MAX as u32,
            read_only: false,
            access_lists,
            outside_files: false,
            appends_at_end: false,
            open_files_max,
        }
    }

    async fn lookup(&self, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let mut state = self.state.borrow_mut();
        let ino = state.child(EntryName { parent, name })?;
        state.entry(ino)
    }

    async fn forget(&self, ino: Ino, lookups: u64) {
        let mut state = self.state.borrow_mut();
        let counted = state.nodes.get_mut(&ino).map_or(0, |node| {
            let counted = node.lookups.min(lookups);
            node.lookups -= counted;
            counted
        });
        state.forgets_too_many = state.forgets_too_many.saturating_add(lookups - counted);
        state.reap(ino);
    }

    async fn getattr(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Attr> {
        let state = self.state.borrow();
        state.check_handle(ino, handle)?;
        Ok(state.node(ino)?.attr(ino))
    }

    async fn setattr(&self, ino: Ino, handle: Option<Handle>, changes: SetAttr) -> FsResult<Attr> {
        let mut state = self.state.borrow_mut();
        state.check_handle(ino, handle)?;
        state.setattr(ino, changes, self.now())
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.state.borrow().node(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(FsError::Invalid("not a symbolic link")),
        }
    }

    async fn create(&self, parent: Ino, name: &[u8], new: NewNode, flags: OpenFlags) -> FsResult<(Entry, Opened)> {
        self.check_room_to_open()?;
        let mut state = self.state.borrow_mut();
        let ino = state.make(EntryName { parent, name }, Body::Regular(Contents::default()), new, self.now())?;
        let handle = match self.options.open_protocol {
            OpenProtocol::Handles => Some(state.open(ino, flags)?),
            OpenProtocol::ZeroMessage => None,
        };
        Ok((state.entry(ino)?, Opened { handle, keep_cache: true }))
    }

    async fn tmpfile(&self, parent: Ino, new: NewNode, flags: OpenFlags, linkable: bool) -> FsResult<(Entry, Opened)> {
        self.check_room_to_open()?;
        let mut state = self.state.borrow_mut();
        let ino = state.make_unnamed(parent, new, linkable, self.now())?;
        let handle = match self.options.open_protocol {
            OpenProtocol::Handles => Some(state.open(ino, flags)?),
            OpenProtocol::ZeroMessage => None,
        };
        Ok((state.entry(ino)?, Opened { handle, keep_cache: true }))
    }

    async fn mknod(&self, parent: Ino, name: &[u8], kind: NodeKind, new: NewNode) -> FsResult<Entry> {
        let body = match kind {
            NodeKind::Regular => Body::Regular(Contents::default()),
            special => Body::Special(special),
        };
        let mut state = self.state.borrow_mut();
        let ino = state.make(EntryName { parent, name }, body, new, self.now())?;
        state.entry(ino)
    }

    async fn mkdir(&self, parent: Ino, name: &[u8], new: NewNode) -> FsResult<Entry> {
        let mut state = self.state.borrow_mut();
        let ino = state.make(EntryName { parent, name }, Body::Directory(Directory::new(parent)), new, self.now())?;
        state.entry(ino)
    }

    async fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], new: NewNode) -> FsResult<Entry> {
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::Invalid("not the target of a symbolic link"));
        }
        if target.len() > TARGET_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let new = NewNode { permissions: 0o777, ..new };
        let mut state = self.state.borrow_mut();
        let ino = state.make(EntryName { parent, name }, Body::Symlink(target.to_vec()), new, self.now())?;
        state.entry(ino)
    }

    async fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Entry> {
        let mut state = self.state.borrow_mut();
        state.link(ino, EntryName { parent, name }, self.now())?;
        state.entry(ino)
    }

    async fn unlink(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.state.borrow_mut().unlink(EntryName { parent, name }, self.now())
    }

    async fn rmdir(&self, parent: Ino, name: &[u8]) -> FsResult<()> {
        self.state.borrow_mut().rmdir(EntryName { parent, name }, self.now())
    }

    async fn rename(&self, from: EntryName<'_>, to: EntryName<'_>, mode: RenameMode) -> FsResult<()> {
        self.state.borrow_mut().rename(from, to, mode, self.now())
    }

    async fn open(&self, ino: Ino, flags: OpenFlags) -> FsResult<Opened> {
        if self.options.open_protocol == OpenProtocol::ZeroMessage {
            return Err(FsError::Unsupported);
        }
        self.check_room_to_open()?;
        let mut state = self.state.borrow_mut();
        state.node(ino)?;
        if flags.truncate {
            let cut = SetAttr { size: Some(0), kill_privileges: true, ..SetAttr::default() };
            state.setattr(ino, cut, self.now())?;
        }
        Ok(Opened { handle: Some(state.open(ino, flags)?), keep_cache: true })
    }

    /// Handles of this interface count as those of other programs, so that a test can be one.
    async fn other_writers(&self, ino: Ino, handle: Option<Handle>) -> FsResult<Writers> {
        let state = self.state.borrow();
        state.check_handle(ino, handle)?;
        let asked = self.writers_asked.get() + 1;
        self.writers_asked.set(asked);
        let is_writing = |writing: &Handle| state.handles.get(writing) == Some(&ino) && Some(*writing) != handle;
        let has_writer = self.writer_begins_at.get() == Some(asked) || state.writing.iter().any(is_writing);
        Ok(if has_writer { Writers::Some } else { Writers::None })
    }

    async fn release(&self, ino: Ino, handle: Handle) -> FsResult<()> {
        let mut state = self.state.borrow_mut();
        state.check_handle(ino, Some(handle))?;
        state.handles.remove(&handle);
        state.writing.remove(&handle);
        if let Some(node) = state.nodes.get_mut(&ino) {
            node.handles -= 1;
        }
        state.reap(ino);
        Ok(())
    }

    async fn read(&self, ino: Ino, handle: Option<Handle>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        let state = self.state.borrow();
        state.check_handle(ino, handle)?;
        Ok(state.node(ino)?.contents()?.read(offset, u64::from(bytes)))
    }

    async fn write(&self, ino: Ino, handle: Option<Handle>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        let mut state = self.state.borrow_mut();
        state.check_handle(ino, handle)?;
        state.write(ino, offset, &data, mode, self.now())
    }

    async fn fallocate(&self, ino: Ino, handle: Option<Handle>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        let mut state = self.state.borrow_mut();
        state.check_handle(ino, handle)?;
        state.fallocate(ino, range, mode, self.now())
    }

    async fn lseek(&self, ino: Ino, handle: Option<Handle>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let state = self.state.borrow();
        state.check_handle(ino, handle)?;
        let contents = state.node(ino)?.contents()?;
        let found = match seek {
            SeekTo::Data => contents.next_data(offset),
            SeekTo::Hole => contents.next_hole(offset),
        };
        found.ok_or(FsError::NoSuchOffset)
    }

    async fn readdir(
        &self,
        ino: Ino,
        handle: Option<Handle>,
        cookie: u64,
        attributes: bool,
        sink: &mut dyn DirSink,
    ) -> FsResult<()> {
        let mut state = self.state.borrow_mut();
        state.check_handle(ino, handle)?;
        state.readdir(ino, cookie, attributes, sink)
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.attribute(ino, name)
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.set_attribute(ino, name, value, mode)
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self.state.borrow().node(ino)?.xattrs.keys().cloned().collect())
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_attribute(ino, name)
    }

    async fn fsync(&self, ino: Ino, handle: Option<Handle>, _data_only: bool) -> FsResult<()> {
        let state = self.state.borrow();
        state.check_handle(ino, handle)?;
        state.node(ino).map(drop)
    }

    async fn fsyncdir(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        let state = self.state.borrow();
        state.check_handle(ino, handle)?;
        state.node(ino)?.directory().map(drop)
    }

    async fn syncfs(&self) -> FsResult<()> {
        Ok(())
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let state = self.state.borrow();
        let free = state.pages_max - state.pages_used;
        Ok(StatFs {
            block_bytes: PAGE_BYTES as u32,
            blocks: state.pages_max,
            blocks_free: free,
            blocks_available: free,
            inodes: INODES,
            inodes_free: INODES.saturating_sub(state.nodes.len() as u64),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    async fn close(&self) -> FsResult<()> {
        Ok(())
    }

    fn counters(&self) -> Vec<crate::device::Counter> {
        let state = self.state.borrow();
        vec![
            ("inodes", state.nodes.len() as u64),
            ("handles", state.handles.len() as u64),
            ("bytes_used", state.pages_used * PAGE_BYTES),
        ]
    }

    fn describe(&self) -> String {
        format!("memfs ({})", human_bytes(self.options.capacity_bytes))
    }
}

#[cfg(test)]
mod tests;
