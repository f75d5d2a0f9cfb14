//! A mounted volume in memory.
//!
//! All of it is one structure. It changes in synchronous steps, between which operations wait for the device. A step
//! that needs something that is not in memory ends with [`Stop`] before it has changed anything; its caller loads that
//! and starts the step again.
//!
//! Invariants
//!   S1  A step changes nothing before it has everything that it needs. It looks up first: groups before they are searched,
//!       inodes and indirect blocks before they are changed. In debug builds each step that needs something is checked.
//!   S2  The summary of a group, here and in the group's block, is the same after each step, as far as it was at mount.
//!   S3  An inode in memory is the current one; the inode's block gets a copy when it is to be written.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::backing::Backing;
use super::cache::{BufferKind, Cache};
use super::dir::index::Index;
use super::format::*;
use super::group::{self, GroupMut, Room};
use super::layout::Layout;
use super::soft::records::{Soft, SoftInode};
use super::unreadable::Unreadable;
use super::{Counters, Metadata, Options};
use crate::device::Data;
use crate::fs::inode_table::{InodeTable, Referenced};
use crate::fs::step::{self, Changes, CountsChanges};
pub(super) use crate::fs::step::{Searched, fail, need};
use crate::fs::{Attr, Entry, FileKind, FsError, FsResult, PERMISSIONS};
use crate::units::{FixedMap, Ino, WallTime};

/// What a step can need in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Need {
    Buffer(Load),
    /// The names of this directory.
    Index(InodeNo),
}

pub(super) type Stop = step::Stop<Need>;
pub(super) type Step<T> = step::Step<T, Need>;

impl From<Load> for Need {
    fn from(load: Load) -> Need {
        Need::Buffer(load)
    }
}

/// A buffer to be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Load {
    pub at: FragNo,
    pub frags: u32,
    pub kind: BufferKind,
}

/// State of sequential access to a file.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sequence {
    /// Block that was read last.
    pub read_last: u64,
    /// Blocks to read ahead.
    pub window: u64,
    /// Last block that has been read ahead.
    pub ahead_last: u64,
    /// First block of the cluster that is being written, and how many more may join it.
    pub cluster_first: u64,
    pub cluster_more: u64,
    /// Block that was written last, and its address.
    pub write_last: u64,
    pub write_at: FragNo,
}

/// An inode in memory.
pub(super) struct InodeMem {
    pub inode: Inode,
    /// It differs from its copy in the inode's block.
    pub dirty: bool,
    /// It is new, and its block has never had a copy.
    pub is_only_here: bool,
    pub sequence: Sequence,
    /// The names of a directory.
    pub index: Option<Box<Index>>,
    /// See [`State::index_uses`].
    pub index_used: u64,
    /// Accessed since the last eviction pass.
    pub referenced: bool,
    /// The state of the inode for soft updates.
    pub soft: Option<Box<SoftInode>>,
}

impl InodeMem {
    /// Whether it must stay in memory. Only memory knows an unlinked file in use.
    fn is_pinned(&self) -> bool {
        self.dirty || self.inode.nlink == 0 || self.soft.as_deref().is_some_and(|own| own.is_pinned(&self.inode))
    }
}

impl Referenced for InodeMem {
    fn referenced(&mut self) -> &mut bool {
        &mut self.referenced
    }
}

/// Everything that is in memory about a mounted volume.
pub(super) struct State {
    pub layout: Layout,
    pub options: Options,
    pub superblock: Superblock,
    /// The superblock as it was read, with the bytes behind its fields.
    pub raw_superblock: Vec<u8>,
    /// Time of the present step.
    pub now: WallTime,
    /// The clock has been put back, or an inode on the volume changed later than now.
    pub clock_is_behind: bool,
    /// Files whose last block has moved since the inode on the volume was written, and since when, unless that is kept: their
    /// old places may be another inode's there. Until they are written time does not go back, so that no inode that takes
    /// such a place looks older.
    pub moved_tails: BTreeMap<InodeNo, u64>,
    /// Files whose last block was copied elsewhere without writing the copy first, and since when. A sync that began before has written
    /// the old place only. Without soft updates, where an inode waits for what it leads to.
    pub copied_tails: BTreeMap<InodeNo, u64>,
    /// Old places of data that has moved, to which the volume still points for lack of space below. They are free after the
    /// next update that succeeds.
    pub left_behind: Vec<LeftBehind>,
    /// Directories that have grown since the volume was certain to have what leads to their ends. See `grown`.
    pub grown: BTreeMap<InodeNo, u64>,
    /// Blocks with names that an exchange could not write for lack of room below, by the inodes that have them.
    pub late_names: BTreeMap<InodeNo, BTreeSet<FragNo>>,
    /// Indexes of directories that tasks are building, each with a number of its own.
    pub indexing: BTreeSet<(InodeNo, u64)>,
    pub summaries: Vec<Csum>,
    pub totals: Totals,
    /// Summaries or superblock have changed since they were written.
    pub totals_dirty: bool,
    /// What each group has room for, as far as known.
    pub room: Vec<Room>,
    pub unreadable: Unreadable,
    pub cache: Cache,
    pub inodes: InodeTable<InodeNo, InodeMem>,
    /// Bytes that the names of directories take in memory.
    pub index_bytes: Rc<Cell<u64>>,
    /// How often a directory's names were used.
    pub index_uses: u64,
    /// Lookups not yet forgotten.
    pub users: FixedMap<InodeNo, u64>,
    /// Inodes in use that have never had a name, and may get one.
    pub linkable: BTreeSet<InodeNo>,
    /// Blocks and fragments reserved by operations in progress, all of them and for each file.
    pub promised_blocks: i64,
    pub promises: BTreeMap<InodeNo, i64>,
    /// An error of unknown effect: no more changes.
    pub stopped: Option<String>,
    /// When the youngest write had begun that found no space below, and the device's error.
    pub full_below: u64,
    pub full_below_error: Option<crate::device::DeviceError>,
    /// Flushes in progress by number, with the buffers that soft updates wait for, and when their writes had begun. These are
    /// durable when it ends. Until then nothing that waits for them may take an empty `Soft::unflushed` for the end of
    /// waiting (U7).
    pub flushes: BTreeMap<u64, Vec<(FragNo, u64)>>,
    /// Number of the flush that began last.
    pub flush_number: u64,
    /// Where there is storage below, when that is full.
    pub backing: Backing,
    pub read_only: bool,
    /// Of the inode that was made last.
    pub generation: u32,
    pub counters: Counters,
    /// With soft updates.
    pub soft: Option<Box<Soft>>,
    /// Of everything but buffers and what soft updates remember, which count their own (S1).
    pub changes: Changes,
}

impl CountsChanges for State {
    fn changes(&self) -> u64 {
        let soft = self.soft.as_deref().map_or(0, |soft| soft.changes.count());
        self.changes.count() + self.cache.changes.count() + soft
    }
}

/// See [`State::left_behind`].
pub(super) struct LeftBehind {
    /// Of the file.
    ino: InodeNo,
    since: u64,
    pub at: FragNo,
    pub frags: u32,
}

/// Most clean inodes kept in memory.
const CLEAN_INODES_MAX: usize = 16 * 1024;

/// Directories whose names were among so many used last keep them, so that one step finds all that it needs.
const INDEX_USES_KEPT: u64 = 64;

/// How often the hand of the clock goes on when too much is in memory: there may be many files between two directories.
const INDEX_EVICTIONS: usize = 64;

/// The number of the interface's root directory; the volume's is [`ROOT_INO`].
pub(super) fn inner(ino: Ino) -> Option<InodeNo> {
    match ino {
        Ino::ROOT => Some(ROOT_INO),
        Ino(number) if number > u64::from(ROOT_INO.0) => u32::try_from(number).ok().map(InodeNo),
        _ => None,
    }
}

pub(super) fn outer(ino: InodeNo) -> Ino {
    if ino == ROOT_INO { Ino::ROOT } else { Ino(ino.0.into()) }
}

impl State {
    pub(super) fn new(
        layout: Layout,
        options: Options,
        superblock: Superblock,
        raw_superblock: Vec<u8>,
        summaries: Vec<Csum>,
    ) -> State {
        let mut totals = Totals::default();
        summaries.iter().for_each(|summary| totals.add(summary));
        State {
            cache: Cache::new(layout.frag_bytes, layout.frag, options.cache_bytes),
            room: vec![Room::unknown(&layout); layout.groups as usize],
            unreadable: Unreadable::default(),
            layout,
            options,
            superblock,
            raw_superblock,
            now: WallTime::default(),
            clock_is_behind: false,
            moved_tails: BTreeMap::new(),
            copied_tails: BTreeMap::new(),
            left_behind: Vec::new(),
            grown: BTreeMap::new(),
            late_names: BTreeMap::new(),
            indexing: BTreeSet::new(),
            summaries,
            totals,
            totals_dirty: false,
            inodes: InodeTable::default(),
            index_bytes: Rc::default(),
            index_uses: 0,
            users: FixedMap::default(),
            linkable: BTreeSet::new(),
            promised_blocks: 0,
            promises: BTreeMap::new(),
            stopped: None,
            full_below: 0,
            full_below_error: None,
            flushes: BTreeMap::new(),
            flush_number: 0,
            backing: Backing::default(),
            read_only: options.read_only,
            generation: 0,
            counters: Counters::default(),
            soft: (options.metadata == Metadata::Softdep && !options.read_only).then(Box::default),
            changes: Changes::default(),
        }
    }

    // ---- Buffers ----

    /// The buffer at `at`.
    pub(super) fn buffer(&mut self, at: FragNo, frags: u32, kind: BufferKind) -> Step<Data> {
        let bytes = (frags * self.layout.frag_bytes) as usize;
        match self.cache.get(at) {
            // A shorter one is possible only when two files on a damaged volume share fragments.
            Some(data) if data.len() >= bytes => Ok(data.clone()),
            Some(data) => {
                let detail = format!("{bytes} bytes are wanted there, and {} are in use", data.len());
                fail(FsError::corrupt("block", format_args!("fragment {at}"), detail))
            }
            None => need(Load { at, frags, kind }),
        }
    }

    /// The bytes at `at`, to be changed, all of them; the caller has made sure that they are in memory.
    pub(super) fn buffer_mut(&mut self, at: FragNo) -> Step<&mut [u8]> {
        match self.cache.bytes_mut(at) {
            Some(bytes) => Ok(bytes),
            None => fail(FsError::corrupt("block", format_args!("fragment {at}"), "it is not in memory")),
        }
    }

    /// Changes a cylinder group. Its summary is taken over when `change` returns something; what it has room for in any
    /// case, so that a search that found nothing in it does not ask for it again.
    pub(super) fn change_group<T>(
        &mut self,
        group: GroupNo,
        change: impl FnOnce(&mut GroupMut<'_>) -> Option<T>,
    ) -> Step<Option<T>> {
        let at = self.layout.group_block(group);
        let frags = self.layout.group_block_frags();
        self.buffer(at, frags, BufferKind::Group(group))?;
        let Some(bytes) = self.cache.bytes_quietly(at) else { return Ok(None) };
        let Some(mut map) = GroupMut::new(&self.layout, bytes) else { return Ok(None) };
        let result = change(&mut map);
        self.room[group.index()] = map.room();
        let Some(result) = result else { return Ok(None) };
        map.head.time = self.now.seconds as u32;
        let summary = map.summary();
        drop(map);
        self.cache.mark_dirty(at);
        let old = std::mem::replace(&mut self.summaries[group.index()], summary);
        self.totals.replace(&old, &summary);
        debug_assert!(
            self.totals.nbfree >= summary.nbfree.into() && self.totals.nffree >= summary.nffree.into(),
            "the totals are the sums over all groups"
        );
        self.totals_dirty = true;
        Ok(Some(result))
    }

    /// Buffers that became dirty until then, of files or of the volume itself.
    pub(super) fn dirty_of_files(&self, of_files: bool, until: u64) -> Vec<FragNo> {
        let owner = |at: &FragNo| self.cache.peek(*at).map_or(InodeNo::NONE, |buffer| buffer.kind.owner());
        self.cache.dirty_until(until).into_iter().filter(|at| (owner(at) != InodeNo::NONE) == of_files).collect()
    }

    // ---- Inodes ----

    /// The inode `ino`, from memory.
    ///
    /// # Errors
    /// `Stale` when the number is not in use.
    pub(super) fn inode(&mut self, ino: InodeNo) -> Step<&mut InodeMem> {
        if !self.inodes.contains_key(&ino) {
            let inode = self.stored_inode(ino)?;
            if inode.mode == 0 {
                return fail(FsError::Stale);
            }
            self.check_inode(ino, &inode)?;
            self.clock_is_behind |= inode.ctime() > self.now;
            self.adopt_inode(ino, inode);
        }
        self.inodes.look_up(ino).ok_or(Stop::Fail(FsError::Stale))
    }

    /// The inode according to its block, used or not.
    pub(super) fn stored_inode(&mut self, ino: InodeNo) -> Step<Inode> {
        if ino < ROOT_INO || ino >= self.layout.ino_end() {
            return fail(FsError::Stale);
        }
        let (at, offset) = self.layout.inode_place(ino);
        let block = self.buffer(at, self.layout.frag, BufferKind::Inodes)?;
        match Inode::decode(&block[offset..]) {
            Some(inode) => Ok(inode),
            None => fail(FsError::Stale),
        }
    }

    fn check_inode(&self, ino: InodeNo, inode: &Inode) -> Step<()> {
        let at = format_args!("inode {ino}").to_string();
        let Some(kind) = inode.kind() else {
            return fail(FsError::corrupt("inode", at, format_args!("mode {:o} is of unknown kind", inode.mode)));
        };
        if inode.size > self.layout.addressable_bytes {
            return fail(FsError::corrupt("inode", at, format_args!("its size is {}", inode.size)));
        }
        if kind == FileKind::Directory && (inode.size == 0 || !inode.size.is_multiple_of(DIR_CHUNK_BYTES as u64)) {
            return fail(FsError::corrupt("directory", at, format_args!("its size is {}", inode.size)));
        }
        Ok(())
    }

    /// Puts an inode into memory.
    pub(super) fn adopt_inode(&mut self, ino: InodeNo, inode: Inode) -> &mut InodeMem {
        self.inodes.evict(CLEAN_INODES_MAX, |ino, known| known.is_pinned() || self.cache.is_pinned(ino));
        let soft = self.soft.is_some().then(|| Box::new(SoftInode::read(&inode)));
        let sequence = Sequence::default();
        self.indexing.retain(|&(other, _)| other != ino); // They may be of an earlier directory.
        self.inodes.insert(
            ino,
            InodeMem {
                inode,
                dirty: false,
                is_only_here: false,
                sequence,
                index: None,
                index_used: 0,
                referenced: true,
                soft,
            },
        )
    }

    /// Forgets directories while the names of all take more memory than clean blocks may. The step ends with that (S1).
    pub(super) fn evict_indexes(&mut self) {
        let (most, bytes, uses) = (self.options.cache_bytes, self.index_bytes.clone(), self.index_uses);
        let is_enough = || bytes.get() <= most;
        let is_recent = |known: &InodeMem| known.index_used + INDEX_USES_KEPT > uses;
        for _ in 0..INDEX_EVICTIONS {
            if is_enough() {
                return;
            }
            let is_needed = |ino, known: &InodeMem| is_recent(known) || known.is_pinned() || self.cache.is_pinned(ino);
            self.inodes.evict(0, |ino, known| known.index.is_none() || is_needed(ino, known) || is_enough());
        }
    }

    /// Forgets clean inodes and buffers, as after a mount.
    pub(super) fn drop_caches(&mut self) {
        self.unreadable = Unreadable::default(); // It may be readable again.
        self.cache.drop_clean();
        self.inodes.drop_clean(|ino, known| known.is_pinned() || self.cache.is_pinned(ino));
    }

    /// The inode, to be changed.
    pub(super) fn inode_mut(&mut self, ino: InodeNo) -> Step<&mut Inode> {
        self.inode(ino)?;
        self.changes.note();
        let known = self.inode(ino)?;
        known.dirty = true;
        Ok(&mut known.inode)
    }

    /// Copies the inode into its block, which becomes dirty. Returns the address of the block.
    pub(super) fn update_inode(&mut self, ino: InodeNo) -> Step<FragNo> {
        let (at, offset) = self.layout.inode_place(ino);
        self.buffer(at, self.layout.frag, BufferKind::Inodes)?;
        if self.soft.is_some() {
            return self.show_inode(ino, at, offset).map(|()| at);
        }
        let Some(known) = self.inodes.get_mut(&ino) else { return Ok(at) };
        let mut image = known.inode;
        // While a file grows it has an indirect block before it has anything below. The volume gets the two together: a
        // cut in between would leave what F4 excludes, and other programs that check FFS clear such a file.
        known.dirty = self.layout.drop_indirect_behind_end(&mut image);
        known.is_only_here = false;
        image.encode(&mut self.buffer_mut(at)?[offset..]);
        Ok(at)
    }

    /// Whether the inode is in memory, and its block has never had it.
    pub(super) fn is_only_here(&self, ino: InodeNo) -> bool {
        self.inodes.get(&ino).is_some_and(|known| match &known.soft {
            Some(own) => !own.has_been_shown(),
            None => known.is_only_here,
        })
    }

    /// The block in which the inode is to become free, in memory if it has the inode. An inode that is only here can go
    /// although its block cannot be read.
    pub(super) fn block_to_free(&mut self, ino: InodeNo) -> Step<FragNo> {
        let (at, _) = self.layout.inode_place(ino);
        if !self.is_only_here(ino) {
            self.buffer(at, self.layout.frag, BufferKind::Inodes)?;
        }
        Ok(at)
    }

    pub(super) fn dirty_inodes(&self) -> Vec<InodeNo> {
        self.inodes.numbers(|known| known.dirty)
    }

    pub(super) fn count_lookup(&mut self, ino: InodeNo) {
        self.changes.note();
        *self.users.entry(ino).or_insert(0) += 1;
    }

    pub(super) fn in_use(&self, ino: InodeNo) -> bool {
        self.users.contains_key(&ino)
    }

    pub(super) fn kind(&mut self, ino: InodeNo) -> Step<FileKind> {
        match self.inode(ino)?.inode.kind() {
            Some(kind) => Ok(kind),
            None => fail(FsError::Stale),
        }
    }

    pub(super) fn attr(&mut self, ino: InodeNo) -> Step<Attr> {
        let io_bytes = self.layout.block_bytes;
        let kind = self.kind(ino)?;
        let inode = self.inode(ino)?.inode;
        let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        Ok(Attr {
            ino: outer(ino),
            kind,
            permissions: inode.mode & PERMISSIONS,
            links: inode.nlink.into(),
            uid: inode.uid,
            gid: inode.gid,
            device: if is_device { inode.device() } else { 0 },
            size: inode.size,
            sectors: inode.blocks.into(),
            sectors_will_change: false,
            io_bytes,
            atime: inode.atime(),
            mtime: inode.mtime(),
            ctime: inode.ctime(),
            // The format has no time of birth.
            btime: inode.ctime(),
        })
    }

    /// The inode as an entry, without counting a lookup.
    pub(super) fn entry(&mut self, ino: InodeNo) -> Step<Entry> {
        let attr = self.attr(ino)?;
        let generation = u64::from(self.inode(ino)?.inode.generation);
        Ok(Entry { attr, generation })
    }

    // ---- Addresses of blocks ----

    /// Address of block `lbn` of a file; `None` for a hole.
    pub(super) fn block_at(&mut self, ino: InodeNo, lbn: u64) -> Step<Option<FragNo>> {
        let Some(path) = self.layout.path(lbn) else { return Ok(None) };
        let inode = &self.inode(ino)?.inode;
        let size = inode.size;
        if path.depth == 0 {
            let at = inode.db[path.slot];
            return self.check_pointer(ino, lbn, at, self.layout.block_frags(size, lbn));
        }
        let mut at = inode.ib[path.slot];
        for &slot in &path.slots[..path.depth] {
            let Some(indirect) = self.check_pointer(ino, lbn, at, self.layout.frag)? else { return Ok(None) };
            let block = self.buffer(indirect, self.layout.frag, BufferKind::Indirect { ino })?;
            at = pointer_in(&block, slot);
        }
        self.check_pointer(ino, lbn, at, self.layout.frag)
    }

    /// Refuses a pointer to a place where no file can have a block.
    pub(super) fn check_pointer(&self, ino: InodeNo, lbn: u64, at: FragNo, frags: u32) -> Step<Option<FragNo>> {
        if at == FragNo::NONE {
            return Ok(None);
        }
        if frags == 0 || !self.layout.is_data(at, frags) {
            let detail = format_args!("{frags} fragments at {at} cannot belong to a file").to_string();
            return fail(FsError::corrupt("block pointer", format_args!("inode {ino}, block {lbn}"), detail));
        }
        Ok(Some(at))
    }

    pub(super) fn data_kind(&mut self, ino: InodeNo, lbn: u64) -> Step<BufferKind> {
        Ok(match self.kind(ino)? {
            FileKind::Directory => BufferKind::Directory { ino, lbn },
            _ => BufferKind::File { ino, lbn },
        })
    }

    /// Frees fragments. Their content is forgotten.
    pub(super) fn free_frags(&mut self, at: FragNo, frags: u32) -> Step<()> {
        debug_assert!(self.layout.is_data(at, frags), "U2: what is freed is no metadata of the volume");
        let group = self.layout.group_of(at);
        let in_group = at - self.layout.group_base(group);
        let block = in_group / self.layout.frag;
        let freed = self.change_group(group, |map| {
            let freed = map.free_frags(in_group, frags);
            Some(freed.map(|()| map.is_block_free(block)))
        })?;
        self.cache.forget(at, frags);
        match freed {
            Some(Ok(is_free)) => {
                self.backing.note_freed(self.layout.block_of(at), is_free);
                Ok(())
            }
            // Freeing twice is damage; the space is free, as intended.
            _ => {
                self.counters.freed_twice += 1;
                Ok(())
            }
        }
    }

    /// Keeps fragments that the file has no longer, until the volume does not have them in it either.
    pub(super) fn leave_behind(&mut self, ino: InodeNo, at: FragNo, frags: u32) {
        debug_assert!(self.layout.is_data(at, frags), "U2: what is left behind is no metadata of the volume");
        let since = self.cache.tick();
        self.changes.note();
        self.left_behind.push(LeftBehind { ino, since, at, frags });
    }

    /// Frees the first fragments that were left behind before `until`, and not by any of `except`. Returns false when there are
    /// none.
    pub(super) fn free_left_behind(&mut self, until: u64, except: &BTreeSet<InodeNo>) -> Step<bool> {
        let is_free = |left: &LeftBehind| left.since <= until && !except.contains(&left.ino);
        let Some(index) = self.left_behind.iter().position(is_free) else { return Ok(false) };
        let LeftBehind { at, frags, .. } = self.left_behind[index];
        self.free_frags(at, frags)?;
        self.left_behind.remove(index);
        Ok(true)
    }

    /// Checks that changes are possible.
    pub(super) fn check_writable(&self) -> Step<()> {
        if let Some(error) = &self.stopped {
            return fail(FsError::Stopped(error.clone()));
        }
        if self.read_only { fail(FsError::ReadOnly) } else { Ok(()) }
    }
}

/// Whether the block of a group can be used.
pub(super) fn verify_group(layout: &Layout, group: GroupNo, bytes: &[u8]) -> Result<(), FsError> {
    group::verify(layout, group, bytes).and_then(|()| group::verify_counts(layout, bytes)).map_err(|detail| {
        let at = format_args!("group {group}, fragment {}", layout.group_block(group)).to_string();
        FsError::corrupt("cylinder group", at, detail)
    })
}

/// Blocks of inodes that could not be read in a pass over many inodes: one look at each is enough.
#[derive(Default)]
pub(super) struct Unread(BTreeSet<FragNo>);

impl Unread {
    pub(super) fn has(&self, state: &State, ino: InodeNo) -> bool {
        self.0.contains(&state.layout.inode_place(ino).0)
    }

    /// Remembers how the use of an inode's block has ended.
    pub(super) fn note(&mut self, state: &State, ino: InodeNo, result: &FsResult<()>) {
        if result.as_ref().is_err_and(FsError::is_of_one_place) {
            self.0.insert(state.layout.inode_place(ino).0);
        }
    }
}

/// Keeps in `first` an error that concerns one place only, such as a block of inodes that cannot be read: everything else
/// can reach the volume nevertheless.
///
/// # Errors
/// All others, such as those that have stopped the volume, or lack of space below.
pub(super) fn put_off(first: &mut FsResult<()>, result: FsResult<()>) -> FsResult<()> {
    if !result.as_ref().is_err_and(FsError::is_of_one_place) {
        return result;
    }
    if first.is_ok() {
        *first = result;
    }
    Ok(())
}
