//! The inodes in use: numbers, lookup counts, and a bounded number of open files to reach them.
//!
//! A host inode is identified by its device and inode number. While it is in use, a file is open on it (`O_PATH`, which
//! grants nothing and only holds the inode), so that its number cannot be reused and changes of its names do not
//! matter. When there are too many, the least recently used files are closed: the inode is then found again by file
//! handle or, where the process may not use those, and on file systems mounted inside, by the name under which it was last seen. Either way it is compared
//! with the expected one, and is `Stale` if it is another.
//!
//! An inode without a name stays open: otherwise it would be lost. An inode that another process deletes while its file
//! is closed is lost here, too.
//!
//! Numbers are the host's own, so that they are the same after every mount. The root is [`Ino::ROOT`]; where the host
//! itself has an inode 1, the two swap. Inodes of further devices (submounts, btrfs subvolumes) carry the device's
//! index in the upper bits, and where that does not fit, an otherwise unused number.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use lru::LruCache;
use rustc_hash::FxBuildHasher;
use rustix::fs::{OFlags, Statx};
use rustix::io::Errno;
use seekless::device::Counter;
use seekless::fs::{Entry, FsError, FsResult};
use seekless::units::{FixedMap, Ino, WallTime};

use super::open::HostRoot;
use super::sys::{self, FileHandle, Key};
use crate::reactor::File;

pub(super) struct Inodes {
    host_root: HostRoot,
    open_max: usize,
    /// Names of one file may be several inodes ([`super::links`]).
    names_may_part: bool,
    table: RefCell<Table>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    closed: Cell<u64>,
    opened_again: Cell<u64>,
    lost: Cell<u64>,
}

fn add_one(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

struct Table {
    nodes: FixedMap<Ino, Node>,
    by_key: FixedMap<Key, Ino>,
    /// Devices, in the order of their discovery; the root's is the first.
    devices: Vec<u64>,
    /// Files of the nodes that are [`Reach::Open`], least recently used first.
    open: LruCache<Ino, File, FxBuildHasher>,
    /// Nodes that are [`Reach::Handle`] or [`Reach::Name`].
    closed_count: usize,
    spare_numbers: u64,
}

struct Node {
    key: Key,
    generation: u64,
    lookups: u64,
    reach: Reach,
    /// Its last known name; kept only where file handles do not reach everything.
    name: Option<Name>,
    /// Number of closed nodes that are found by a name in this directory.
    dependents: u64,
    /// The state of the file when it was last opened, if every later change would be visible.
    version: Option<Version>,
    /// The first name under which a file with several links was found; see [`super::links`].
    first_name: Option<Name>,
    /// It was found under another one as well.
    has_names: bool,
    /// What lookups answer as its generation.
    told: u64,
}

/// Attributes that change with a file's data.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    size: u64,
    mtime: WallTime,
    ctime: WallTime,
}

/// Two changes of a file within this time may have the same time stamp: several ticks of the slowest kernel's clock
/// (100 Hz).
const TIME_STAMP_NANOS: i128 = 100_000_000;

/// How to reach a node's inode.
enum Reach {
    /// By the file in [`Table::open`].
    Open,
    /// By this file, which must stay open.
    Pinned(File),
    Handle(FileHandle),
    /// By [`Node::name`].
    Name,
    /// The host has reused its number for another inode, or it cannot be found.
    Gone,
}

#[derive(Clone, PartialEq, Eq)]
struct Name {
    directory: Ino,
    name: Box<[u8]>,
}

/// First of the numbers for inodes whose own number does not fit.
const SPARE_NUMBERS: u64 = 1 << 63;

/// Bits of a number below the device's index in [`Table::devices`].
const DEVICE_SHIFT: u32 = 48;

impl Inodes {
    pub(super) fn new(host_root: HostRoot, open_max: usize, names_may_part: bool) -> Inodes {
        let table = Table {
            nodes: FixedMap::default(),
            by_key: FixedMap::default(),
            devices: vec![host_root.key.device],
            open: LruCache::unbounded_with_hasher(FxBuildHasher),
            closed_count: 0,
            spare_numbers: SPARE_NUMBERS,
        };
        Inodes { host_root, open_max, names_may_part, table: RefCell::new(table), counts: Counts::default() }
    }

    pub(super) fn host_root(&self) -> &HostRoot {
        &self.host_root
    }

    /// Names are a way back to some inode: handles are of use only on the root's own file system.
    fn needs_names(&self) -> bool {
        self.host_root.handle_mount.is_none() || self.host_root.submounts
    }

    pub(super) fn counters(&self) -> Vec<Counter> {
        let table = self.table.borrow();
        let pinned = table.nodes.values().filter(|node| matches!(node.reach, Reach::Pinned(_))).count();
        vec![
            ("inodes_in_use", table.nodes.len() as u64),
            ("inodes_open", (table.open.len() + pinned) as u64),
            ("inodes_closed", self.counts.closed.get()),
            ("inodes_opened_again", self.counts.opened_again.get()),
            ("inodes_lost", self.counts.lost.get()),
        ]
    }

    /// A file open on `ino` with `O_PATH`.
    ///
    /// # Errors
    /// `Stale` when the inode is not in use, or cannot be found any more.
    pub(super) fn file(&self, ino: Ino) -> FsResult<File> {
        if ino == Ino::ROOT {
            return Ok(self.host_root.root.clone());
        }
        {
            let mut table = self.table.borrow_mut();
            if let Some(file) = table.open.get(&ino) {
                return Ok(file.clone());
            }
            if let Reach::Pinned(file) = &table.nodes.get(&ino).ok_or(FsError::Stale)?.reach {
                return Ok(file.clone());
            }
        }
        self.open_again(ino)
    }

    /// The name at which `ino` was found last, below the root; `None` where one on the way is not known.
    pub(super) fn name_of(&self, ino: Ino) -> Option<PathBuf> {
        let table = self.table.borrow();
        let (mut names, mut next) = (Vec::new(), ino);
        while next != Ino::ROOT {
            let name = table.nodes.get(&next)?.name.as_ref()?;
            names.push(OsStr::from_bytes(&name.name));
            next = name.directory;
            if names.len() > table.nodes.len() {
                return None; // Another process has rearranged the tree in the meantime.
            }
        }
        Some(names.into_iter().rev().collect())
    }

    /// Opens a closed node, after the closed directories on the path to it, from the top.
    fn open_again(&self, ino: Ino) -> FsResult<File> {
        let (mut directory, way) = self.way_to(&self.table.borrow(), ino)?;
        for ino in way {
            directory = Some(self.open_one_again(ino, directory)?);
        }
        directory.ok_or(FsError::Stale)
    }

    /// The closed nodes on the path to `ino`, from the top, itself included, and the open directory in which the first
    /// of them is found; none if it is not found by name.
    fn way_to(&self, table: &Table, ino: Ino) -> FsResult<(Option<File>, Vec<Ino>)> {
        let mut way = vec![ino];
        let mut next = ino;
        let directory = loop {
            let node = table.nodes.get(&next).ok_or(FsError::Stale)?;
            let (Reach::Name, Some(name)) = (&node.reach, &node.name) else { break None };
            if let Some(file) = self.open_file(table, name.directory) {
                break Some(file.clone());
            }
            next = name.directory;
            if way.contains(&next) {
                return Err(FsError::Stale); // Another process has rearranged the tree in the meantime.
            }
            way.push(next);
        };
        way.reverse();
        Ok((directory, way))
    }

    /// The file of `ino`, if it is open.
    fn open_file<'a>(&'a self, table: &'a Table, ino: Ino) -> Option<&'a File> {
        if ino == Ino::ROOT {
            return Some(&self.host_root.root);
        }
        match (table.open.peek(&ino), table.nodes.get(&ino).map(|node| &node.reach)) {
            (Some(file), _) | (None, Some(Reach::Pinned(file))) => Some(file),
            _ => None,
        }
    }

    fn open_one_again(&self, ino: Ino, directory: Option<File>) -> FsResult<File> {
        enum Way {
            Handle(FileHandle),
            Name(File, Box<[u8]>),
        }
        // A copy, since making room for another file changes the table.
        let way = {
            let table = self.table.borrow();
            let node = table.nodes.get(&ino).ok_or(FsError::Stale)?;
            match (&node.reach, &node.name, directory) {
                (Reach::Handle(handle), ..) => Some(Way::Handle(handle.clone())),
                (Reach::Name, Some(name), Some(directory)) => Some(Way::Name(directory, name.name.clone())),
                _ => None,
            }
        };
        let opened = match &way {
            Some(Way::Handle(handle)) => self.with_room(|| self.open_handle(handle)),
            Some(Way::Name(directory, name)) => self.with_room(|| self.host_root.open_place(directory, name)),
            None => Err(Errno::STALE),
        };
        let found = opened.and_then(|file| Ok((sys::stat(&file)?, file)));
        let mut table = self.table.borrow_mut();
        match found {
            Ok((stat, file)) if table.is_same(ino, &stat) => {
                add_one(&self.counts.opened_again);
                let file: File = Arc::new(file);
                table.set_open(ino, file.clone());
                self.close_some(&mut table, self.open_max);
                Ok(file)
            }
            // Another inode, or none, is there now.
            Ok(_) | Err(Errno::STALE | Errno::NOENT | Errno::NOTDIR) => {
                add_one(&self.counts.lost);
                table.lose(ino);
                Err(FsError::Stale)
            }
            Err(errno) => Err(sys::error(errno)),
        }
    }

    /// Runs `call`, which opens a file. When the process has too many open files, closes inodes and retries once.
    pub(super) fn with_room<T>(&self, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match call() {
            Err(Errno::MFILE | Errno::NFILE) => {
                {
                    let mut table = self.table.borrow_mut();
                    let half = table.open.len() / 2;
                    self.close_some(&mut table, half);
                }
                call()
            }
            result => result,
        }
    }

    /// Closes the least recently used files, down to `open_max`.
    fn close_some(&self, table: &mut Table, open_max: usize) {
        /// Limit, in one call, of candidates that turn out to be needed; it only bounds the time.
        const IN_VAIN_MAX: usize = 8;
        let mut in_vain = 0;
        while table.open.len() > open_max && in_vain < IN_VAIN_MAX {
            let Some((ino, file)) = table.open.pop_lru() else { return };
            match self.way_back(table, ino, &file) {
                Some(way_back) => {
                    add_one(&self.counts.closed);
                    table.set_closed(ino, way_back);
                }
                None => {
                    in_vain += 1;
                    if let Some(node) = table.nodes.get_mut(&ino) {
                        node.reach = Reach::Pinned(file);
                    }
                }
            }
        }
    }

    /// How to find `ino` again once `file` is closed; `None` when that is impossible.
    fn way_back(&self, table: &Table, ino: Ino, file: &File) -> Option<Reach> {
        let node = table.nodes.get(&ino)?;
        if sys::stat(file).ok()?.stx_nlink == 0 {
            return None;
        }
        if let Some(mount) = self.host_root.handle_mount
            && let Ok((handle, found_on)) = sys::name_to_handle(file)
            && found_on == mount
        {
            return Some(Reach::Handle(handle));
        }
        let name = node.name.as_ref()?;
        let directory = match self.open_file(table, name.directory) {
            Some(directory) => directory.clone(),
            None => self.open_for_now(table, name.directory)?,
        };
        let found = sys::stat_at(&*directory, &name.name).ok()?;
        (Key::of(&found) == node.key).then_some(Reach::Name)
    }

    /// Opens a closed directory for a single use.
    fn open_for_now(&self, table: &Table, ino: Ino) -> Option<File> {
        let (mut directory, way) = self.way_to(table, ino).ok()?;
        for ino in way {
            let node = table.nodes.get(&ino)?;
            let opened = match (&node.reach, &node.name, directory) {
                (Reach::Handle(handle), ..) => self.open_handle(handle),
                (Reach::Name, Some(name), Some(directory)) => self.host_root.open_place(&directory, &name.name),
                _ => return None,
            };
            let opened = opened.ok().filter(|file| sys::stat(file).is_ok_and(|stat| table.is_same(ino, &stat)))?;
            directory = Some(Arc::new(opened));
        }
        directory
    }

    fn open_handle(&self, handle: &FileHandle) -> Result<OwnedFd, Errno> {
        sys::open_by_handle(&self.host_root.mount, handle, OFlags::PATH | OFlags::NOFOLLOW)
    }

    /// Takes an inode found as `name` into use, and counts one lookup.
    pub(super) fn enter(&self, file: OwnedFd, stat: &Statx, name: Option<(Ino, &[u8])>) -> FsResult<Entry> {
        let key = Key::of(stat);
        if key == self.host_root.key {
            return Ok(Entry { attr: sys::attr(Ino::ROOT, stat)?, generation: sys::generation(stat) });
        }
        let mut table = self.table.borrow_mut();
        let known = table.by_key.get(&key).copied();
        let ino = match known {
            Some(ino) if table.is_same(ino, stat) => ino,
            Some(ino) => {
                // The host has reused the number for a new inode while the old one was closed here.
                add_one(&self.counts.lost);
                table.lose(ino);
                table.add(key, sys::generation(stat), self.host_root.key)
            }
            None => table.add(key, sys::generation(stat), self.host_root.key),
        };
        let node = table.nodes.get_mut(&ino).ok_or(FsError::Stale)?;
        let entry = Entry { attr: sys::attr(ino, stat)?, generation: node.told };
        node.lookups += 1;
        if let Some((directory, name)) = name
            && self.names_may_part
            && stat.stx_nlink > 1
        {
            let first = node.first_name.get_or_insert_with(|| Name { directory, name: name.into() });
            node.has_names |= first.directory != directory || *first.name != *name;
        }
        match node.reach {
            // By the name under which it was found last: the one before may be gone, and `HostRoot::path_of` tells it.
            Reach::Open => table.set_open(ino, Arc::new(file)),
            // It was pinned for lack of a name, and may have one now.
            Reach::Pinned(_) if self.needs_names() && name.is_some() => table.set_open(ino, Arc::new(file)),
            Reach::Pinned(_) => {}
            Reach::Handle(_) | Reach::Name | Reach::Gone => table.set_open(ino, Arc::new(file)),
        }
        if let Some((directory, name)) = name.filter(|_| self.needs_names()) {
            table.set_name(ino, directory, name);
        }
        self.close_some(&mut table, self.open_max);
        Ok(entry)
    }

    /// `ino` was opened and is `stat` now: a change may have given it another number.
    ///
    /// # Errors
    /// `Stale` when it is unknown which of its names the caller meant.
    pub(super) fn take_identity(&self, ino: Ino, stat: &Statx) -> FsResult<()> {
        let mut table = self.table.borrow_mut();
        let key = Key::of(stat);
        let Some(node) = table.nodes.get(&ino).filter(|node| node.key != key) else { return Ok(()) };
        let before = node.key;
        if node.has_names || table.by_key.contains_key(&key) {
            drop(table);
            self.part(ino);
            return Err(FsError::Stale);
        }
        if table.by_key.get(&before) == Some(&ino) {
            table.by_key.remove(&before);
        }
        table.by_key.insert(key, ino);
        if let Some(node) = table.nodes.get_mut(&ino) {
            (node.key, node.generation) = (key, sys::generation(stat));
        }
        Ok(())
    }

    /// Marks `ino` as lost: it is looked up again.
    pub(super) fn lose(&self, ino: Ino) {
        add_one(&self.counts.lost);
        self.table.borrow_mut().lose(ino);
    }

    /// Whether `ino` was found under more than one name.
    pub(super) fn has_names(&self, ino: Ino) -> bool {
        self.table.borrow().nodes.get(&ino).is_some_and(|node| node.has_names)
    }

    /// The place of `ino` is another inode now, or gone: it gets that of a name that is still what it denotes, for its readers, or
    /// is lost.
    pub(super) fn part(&self, ino: Ino) {
        let (key, names) = {
            let table = self.table.borrow();
            let Some(node) = table.nodes.get(&ino) else { return };
            (node.key, [node.first_name.clone(), node.name.clone()])
        };
        let found = names.into_iter().flatten().find_map(|name| {
            let directory = self.file(name.directory).ok()?;
            let file = self.with_room(|| self.host_root.open_place(&directory, &name.name)).ok()?;
            (Key::of(&sys::stat(&file).ok()?) == key).then_some(file)
        });
        let mut table = self.table.borrow_mut();
        match found {
            Some(file) => table.set_open(ino, Arc::new(file)),
            None => {
                add_one(&self.counts.lost);
                table.lose(ino);
            }
        }
    }

    /// The number of an inode, in use or not.
    pub(super) fn number(&self, key: Key) -> Ino {
        if key == self.host_root.key {
            return Ino::ROOT;
        }
        let mut table = self.table.borrow_mut();
        match table.by_key.get(&key) {
            Some(&ino) => ino,
            None => table.own_number(key, self.host_root.key).unwrap_or(Ino(key.ino)),
        }
    }

    /// The device of `ino`.
    pub(super) fn device(&self, ino: Ino) -> u64 {
        match self.table.borrow().nodes.get(&ino) {
            Some(node) if ino != Ino::ROOT => node.key.device,
            _ => self.host_root.key.device,
        }
    }

    /// Records that `ino` is opened at `now` with the attributes `stat`. True when its data has not changed since the
    /// last open, so that cached data is still valid.
    pub(super) fn unchanged(&self, ino: Ino, stat: &Statx, now: WallTime) -> bool {
        let (mtime, ctime) = (sys::wall_time(stat.stx_mtime), sys::wall_time(stat.stx_ctime));
        let version = Version { size: stat.stx_size, mtime, ctime };
        // A change shortly after one with the same time stamp would not be visible.
        let settled = now.nanos_since_epoch() - ctime.nanos_since_epoch() > TIME_STAMP_NANOS;
        let mut table = self.table.borrow_mut();
        match table.nodes.get_mut(&ino) {
            Some(node) => std::mem::replace(&mut node.version, Some(version).filter(|_| settled)) == Some(version),
            None => false,
        }
    }

    /// Takes back `lookups` lookups. Returns the file of an inode that is no longer in use.
    pub(super) fn forget(&self, ino: Ino, lookups: u64) -> Option<File> {
        let mut table = self.table.borrow_mut();
        let node = table.nodes.get_mut(&ino)?;
        node.lookups = node.lookups.saturating_sub(lookups);
        table.remove_unused(ino)
    }

    /// Keeps the inode called `name` in use when it loses that name: until then nothing else may be opened, which could close it.
    ///
    /// # Errors
    /// When there is no room to open it. It would be lost with its name.
    pub(super) fn hold(&self, directory: Ino, name: &[u8]) -> FsResult<()> {
        if self.table.borrow().closed_count == 0 {
            return Ok(());
        }
        let Some(ino) = self.find(directory, name) else { return Ok(()) };
        match self.file(ino) {
            // It is already lost.
            Ok(_) | Err(FsError::Stale | FsError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The inode in use that is called `name`.
    pub(super) fn find(&self, directory: Ino, name: &[u8]) -> Option<Ino> {
        let directory = self.file(directory).ok()?;
        let stat = sys::stat_at(&*directory, name).ok()?;
        self.table.borrow().by_key.get(&Key::of(&stat)).copied()
    }

    /// The inode that a rename is about to move, where names must be recorded.
    pub(super) fn named(&self, directory: Ino, name: &[u8]) -> Option<Ino> {
        if self.needs_names() { self.find(directory, name) } else { None }
    }

    /// `ino` has been renamed to `name`.
    pub(super) fn renamed(&self, ino: Option<Ino>, directory: Ino, name: &[u8]) {
        if let Some(ino) = ino {
            self.table.borrow_mut().set_name(ino, directory, name);
        }
    }

    /// Closes everything that can be closed, for a cold start.
    pub(super) fn close_all(&self) {
        self.close_some(&mut self.table.borrow_mut(), 0);
    }
}

impl Table {
    /// True when `stat` is of the inode that `ino` denotes.
    fn is_same(&self, ino: Ino, stat: &Statx) -> bool {
        self.nodes.get(&ino).is_some_and(|node| match node.reach {
            // An open inode cannot have lost its number.
            Reach::Open | Reach::Pinned(_) => node.key == Key::of(stat),
            Reach::Handle(_) | Reach::Name => node.key == Key::of(stat) && node.generation == sys::generation(stat),
            Reach::Gone => false,
        })
    }

    fn set_open(&mut self, ino: Ino, file: File) {
        self.leave_closed(ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.reach = Reach::Open;
            self.open.put(ino, file);
        }
    }

    fn set_closed(&mut self, ino: Ino, way_back: Reach) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        self.closed_count += 1;
        let directory = match (&way_back, &node.name) {
            (Reach::Name, Some(name)) => Some(name.directory),
            _ => None,
        };
        node.reach = way_back;
        if let Some(directory) = directory.and_then(|directory| self.nodes.get_mut(&directory)) {
            directory.dependents += 1;
        }
    }

    /// Removes `ino` from the closed nodes.
    fn leave_closed(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let was_named = matches!(node.reach, Reach::Name);
        if !was_named && !matches!(node.reach, Reach::Handle(_)) {
            return;
        }
        node.reach = Reach::Gone;
        self.closed_count -= 1;
        let directory = node.name.as_ref().filter(|_| was_named).map(|name| name.directory);
        if let Some(directory) = directory {
            if let Some(above) = self.nodes.get_mut(&directory) {
                above.dependents -= 1;
            }
            self.remove_unused(directory);
        }
    }

    /// Marks `ino` as lost.
    fn lose(&mut self, ino: Ino) {
        self.leave_closed(ino);
        self.open.pop(&ino);
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.reach = Reach::Gone;
            let key = node.key;
            if self.by_key.get(&key) == Some(&ino) {
                self.by_key.remove(&key);
            }
        }
    }

    fn set_name(&mut self, ino: Ino, directory: Ino, name: &[u8]) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let same = |old: &Name| old.directory == directory && *old.name == *name;
        if node.name.as_ref().is_some_and(same) {
            return;
        }
        let is_closed = matches!(node.reach, Reach::Name);
        let before = node.name.replace(Name { directory, name: name.into() });
        if is_closed {
            if let Some(above) = self.nodes.get_mut(&directory) {
                above.dependents += 1;
            }
            if let Some(before) = before {
                if let Some(above) = self.nodes.get_mut(&before.directory) {
                    above.dependents -= 1;
                }
                self.remove_unused(before.directory);
            }
        }
    }

    /// A new node for `key`.
    fn add(&mut self, key: Key, generation: u64, root: Key) -> Ino {
        let own = self.own_number(key, root).filter(|ino| !self.nodes.contains_key(ino));
        let ino = own.unwrap_or_else(|| {
            self.spare_numbers += 1;
            Ino(self.spare_numbers - 1)
        });
        let (reach, name, version) = (Reach::Gone, None, None);
        let (first_name, has_names, told) = (None, false, generation);
        let node =
            Node { key, generation, lookups: 0, reach, name, dependents: 0, version, first_name, has_names, told };
        self.nodes.insert(ino, node);
        self.by_key.insert(key, ino);
        ino
    }

    /// The number derived from the host's own, if possible.
    fn own_number(&mut self, key: Key, root: Key) -> Option<Ino> {
        if key.device == root.device {
            // The host's inode 1, if it has one that is not our root, takes the number that the root left free.
            let number = if key.ino == Ino::ROOT.0 { root.ino } else { key.ino };
            return Some(Ino(number)).filter(|ino| ino.0 != 0 && ino.0 < SPARE_NUMBERS);
        }
        let index = self.devices.iter().position(|&device| device == key.device).unwrap_or_else(|| {
            self.devices.push(key.device);
            self.devices.len() - 1
        });
        let fits = key.ino < 1 << DEVICE_SHIFT && (index as u64) < SPARE_NUMBERS >> DEVICE_SHIFT;
        fits.then_some(Ino((index as u64) << DEVICE_SHIFT | key.ino))
    }

    /// Removes `ino` when it is unused, and then the directories that were kept only for it. Returns its file.
    fn remove_unused(&mut self, ino: Ino) -> Option<File> {
        let mut next = Some(ino);
        let mut first = None;
        while let Some(ino) = next.take() {
            match self.nodes.get(&ino) {
                Some(node) if node.lookups == 0 && node.dependents == 0 => {}
                _ => break,
            }
            let Some(node) = self.nodes.remove(&ino) else { break };
            if self.by_key.get(&node.key) == Some(&ino) {
                self.by_key.remove(&node.key);
            }
            let file = match node.reach {
                Reach::Open => self.open.pop(&ino),
                Reach::Pinned(file) => Some(file),
                Reach::Handle(_) => {
                    self.closed_count -= 1;
                    None
                }
                Reach::Name => {
                    self.closed_count -= 1;
                    next = node.name.map(|name| name.directory);
                    if let Some(above) = next.and_then(|above| self.nodes.get_mut(&above)) {
                        above.dependents -= 1;
                    }
                    None
                }
                Reach::Gone => None,
            };
            first = first.or(file);
        }
        first
    }
}
