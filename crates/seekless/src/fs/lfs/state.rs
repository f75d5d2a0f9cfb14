//! The volume in memory.
//!
//! All of it is one structure, changed only in synchronous steps, so nothing in here is ever seen half changed.
//! A step that needs something that is not in memory ends with [`Stop::Load`], having changed nothing; its
//! caller loads that and starts the step again. So no lock is held while a device works, and there is no lock.
//!
//! Invariants
//!   S1  Whatever is needed to write a dirty block or inode is in memory: the inode, the indirect blocks above
//!       it, its block of the inode map. They count as dirty themselves.
//!   S2  live + unwritten + growth never exceeds the volume's capacity.
//!   S3  What is dirty always fits into the clean segments, with those left over that the cleaner needs.

use std::collections::{BTreeMap, BTreeSet};

use super::cache::Blocks;
use super::format::*;
use super::layout::*;
use super::segments::Segments;
use super::{Counters, Options};
use crate::codec;
use crate::device::Data;
use crate::fs::{Attr, Entry, FileKind, FsError};
use crate::units::{FixedMap, Ino, SECTOR_BYTES, WallTime};

/// Why a step did not end with a result.
#[derive(Debug)]
pub(super) enum Stop {
    Fail(FsError),
    /// Bring this into memory and start again.
    Load(Load),
    /// Wait for this and start again.
    Wait(Wait),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    Block(BlockId),
    Inode(Ino),
    Xattr(Ino),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Too much is dirty.
    WriteBack,
    /// There are too few clean segments.
    Clean,
    /// Clean segments have no storage below them yet.
    Provision,
    /// Blocks past the end of this file are being freed.
    Reclaim(Ino),
}

pub(super) type Step<T> = Result<T, Stop>;

impl From<FsError> for Stop {
    fn from(error: FsError) -> Stop {
        Stop::Fail(error)
    }
}

pub(super) fn fail<T>(error: FsError) -> Step<T> {
    Err(Stop::Fail(error))
}

/// What has changed in an inode since it was last written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) enum InodeDirt {
    #[default]
    Clean,
    /// Only what concerns this file alone.
    Own,
    /// Something that has to reach the log together with changes of other inodes.
    Namespace,
}

/// An inode in memory.
#[derive(Clone)]
pub(super) struct InodeMem {
    pub inode: Inode,
    /// Where the last written version is.
    pub slot: InodeSlot,
    pub dirt: InodeDirt,
    /// Dirty only because the cleaner moves it or blocks of it.
    pub cleaned: bool,
    /// Extended attributes as stored, when they are in memory.
    pub xattr: Option<Data>,
    pub xattr_dirty: bool,
    /// Bytes by which live data grows when the dirty attributes are written.
    pub xattr_growth: u64,
    /// Holes made since the inode was last written, for roll-forward.
    pub holes: Vec<Item>,
    /// Live bytes taken from segments since the inode was last written.
    pub freed: BTreeMap<SegmentNo, u64>,
    /// By how much the bytes set aside for this file have changed since the inode was last written.
    pub unwritten_pending: i64,
    /// Blocks past the end are still mapped and are being freed.
    pub reclaiming: bool,
    /// Sequence number of the partial segment in which it was last written.
    pub sequence: u64,
    pub referenced: bool,
}

impl InodeMem {
    pub(super) fn new(inode: Inode, slot: InodeSlot) -> InodeMem {
        InodeMem {
            inode,
            slot,
            dirt: InodeDirt::Clean,
            cleaned: false,
            xattr: None,
            xattr_dirty: false,
            xattr_growth: 0,
            holes: Vec::new(),
            freed: BTreeMap::new(),
            unwritten_pending: 0,
            reclaiming: false,
            sequence: 0,
            referenced: true,
        }
    }
}

/// Where the log goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnd {
    pub segment: SegmentNo,
    /// Sectors of it that are taken.
    pub offset: u64,
    pub next_segment: SegmentNo,
    /// Number of the next partial segment.
    pub sequence: u64,
    pub chain: u32,
}

/// A partial segment on its way to the device. Until it is there, reads are served from here.
pub(super) struct InFlight {
    pub at: crate::units::Sector,
    pub data: Data,
    pub sequence: u64,
}

/// The orphans: inodes without a name that are still in use, or being freed.
#[derive(Default)]
pub(super) struct Orphans {
    pub slots: Vec<Ino>,
    index: BTreeMap<Ino, usize>,
    free: BTreeSet<usize>,
    pub dirty_blocks: BTreeSet<u64>,
}

/// Entries in a block of the orphan file.
pub(super) const ORPHANS_PER_BLOCK: usize = BLOCK_BYTES / 8;

impl Orphans {
    pub(super) fn contains(&self, ino: Ino) -> bool {
        self.index.contains_key(&ino)
    }

    pub(super) fn list(&self) -> Vec<Ino> {
        self.index.keys().copied().collect()
    }

    /// Returns false when it was there already.
    pub(super) fn add(&mut self, ino: Ino) -> bool {
        if self.contains(ino) {
            return false;
        }
        let slot = self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(Ino(0));
            self.slots.len() - 1
        });
        self.slots[slot] = ino;
        self.index.insert(ino, slot);
        self.dirty_blocks.insert((slot / ORPHANS_PER_BLOCK) as u64);
        true
    }

    /// Returns false when it was not there.
    pub(super) fn remove(&mut self, ino: Ino) -> bool {
        let Some(slot) = self.index.remove(&ino) else { return false };
        self.slots[slot] = Ino(0);
        self.free.insert(slot);
        self.dirty_blocks.insert((slot / ORPHANS_PER_BLOCK) as u64);
        true
    }

    /// One block of the orphan file as it is stored.
    pub(super) fn store_block(&self, block: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let first = block as usize * ORPHANS_PER_BLOCK;
        for (ino, raw) in self.slots[first..].iter().zip(bytes.chunks_exact_mut(8)) {
            codec::put_at(raw, 0, ino.0);
        }
    }

    /// Rebuilds the table from the blocks of the orphan file.
    ///
    /// # Errors
    /// The inode number that is there twice.
    pub(super) fn from_slots(slots: Vec<Ino>) -> Result<Orphans, Ino> {
        let mut orphans = Orphans { slots, ..Orphans::default() };
        for (slot, &ino) in orphans.slots.iter().enumerate() {
            if ino == Ino(0) {
                orphans.free.insert(slot);
            } else if orphans.index.insert(ino, slot).is_some() {
                return Err(ino);
            }
        }
        Ok(orphans)
    }
}

/// Everything that is known about a mounted volume.
pub(super) struct State {
    pub layout: Layout,
    pub options: Options,
    /// Time of the present step.
    pub now: WallTime,
    pub inodes: BTreeMap<Ino, InodeMem>,
    /// Inodes that differ from the log, internal ones aside.
    pub dirty_inodes: BTreeSet<Ino>,
    inode_clock: std::collections::VecDeque<Ino>,
    /// Lookups not yet forgotten.
    pub users: FixedMap<Ino, u64>,
    pub blocks: Blocks,
    pub segments: Segments,
    pub orphans: Orphans,
    pub log: LogEnd,
    /// Name-space records for the next transaction.
    pub records: Vec<Item>,
    /// Live bytes that removed inodes took from segments, for the next transaction.
    pub freed: BTreeMap<SegmentNo, u64>,
    pub ino_cursor: u64,
    pub inode_count: u64,
    /// Counts created inodes.
    pub generation: u64,
    /// Bytes set aside by unwritten blocks.
    pub unwritten_bytes: u64,
    /// The same as the log has it: without files whose changes are not in it yet.
    pub unwritten_logged: u64,
    /// Bytes of blocks unmapped since they were last counted as freed in the log.
    pub freed_pending_bytes: u64,
    pub xattr_growth_bytes: u64,
    /// Clean segments that only the cleaner may use.
    pub cleaner_segments: u64,
    /// Serial number of the newest checkpoint that is durable.
    pub checkpoint_serial: u64,
    pub in_flight: Vec<InFlight>,
    pub in_flight_bytes: u64,
    /// Partial segments for which the storage below had no room, by number, and how many times storage had been
    /// wanted when that was last tried.
    pub stalled: BTreeMap<u64, u64>,
    /// Every partial segment before this one has been written to the device.
    pub written_sequence: u64,
    /// Every partial segment before this one is durable.
    pub durable_sequence: u64,
    /// Bytes appended to the log since the last checkpoint.
    pub log_bytes_since_checkpoint: u64,
    /// An error of unknown effect: nothing changes any more.
    pub stopped: Option<String>,
    pub read_only: bool,
    pub counters: Counters,
    /// Depth at which a directory's last leaf was found; only a hint.
    pub leaf_depth: FixedMap<Ino, u8>,
    /// Where sequential reading of a file would go on; only a hint.
    pub read_ahead: FixedMap<Ino, u64>,
    /// Who asks for inodes asks for their attributes, too; only a hint.
    pub attributes_follow: bool,
}

/// Inodes kept in memory although nobody changes them.
const CLEAN_INODES_MAX: usize = 16 * 1024;

impl State {
    pub(super) fn new(layout: Layout, options: Options, segments: Segments, log: LogEnd) -> State {
        // Of the reserve a third is for the cleaner and at most a quarter for what is dirty and on its way, so that
        // both always fit.
        let reserve = u64::from(layout.superblock.reserve_segments);
        let dirty_most = (reserve / 8).max(1) * layout.segment_bytes();
        let options = Options { dirty_bytes_max: options.dirty_bytes_max.min(dirty_most), ..options };
        State {
            layout,
            now: WallTime::default(),
            inodes: BTreeMap::new(),
            dirty_inodes: BTreeSet::new(),
            inode_clock: Default::default(),
            users: FixedMap::default(),
            blocks: Blocks::new(options.cache_bytes),
            segments,
            orphans: Orphans::default(),
            records: Vec::new(),
            freed: BTreeMap::new(),
            ino_cursor: FIRST_FREE_INO,
            inode_count: 0,
            generation: 0,
            unwritten_bytes: 0,
            unwritten_logged: 0,
            freed_pending_bytes: 0,
            xattr_growth_bytes: 0,
            cleaner_segments: (reserve / 3).clamp(3, (64 << 20) / layout.segment_bytes() + 3),
            checkpoint_serial: 0,
            in_flight: Vec::new(),
            in_flight_bytes: 0,
            stalled: BTreeMap::new(),
            written_sequence: log.sequence,
            durable_sequence: log.sequence,
            log_bytes_since_checkpoint: 0,
            stopped: None,
            read_only: options.read_only,
            counters: Counters::default(),
            leaf_depth: FixedMap::default(),
            read_ahead: FixedMap::default(),
            attributes_follow: false,
            options,
            log,
        }
    }

    pub(super) fn is_internal(ino: Ino) -> bool {
        matches!(ino, IMAP_INO | USAGE_INO | ORPHAN_INO)
    }

    /// The inode, from memory.
    ///
    /// # Errors
    /// `Stale` when the number is not in use.
    pub(super) fn inode(&mut self, ino: Ino) -> Step<&mut InodeMem> {
        if !self.inodes.contains_key(&ino) {
            self.inode_slot(ino)?;
            return Err(Stop::Load(Load::Inode(ino)));
        }
        match self.inodes.get_mut(&ino) {
            Some(inode) => {
                inode.referenced = true;
                Ok(inode)
            }
            None => fail(FsError::Stale),
        }
    }

    /// Where the inode map says the inode is.
    pub(super) fn inode_slot(&mut self, ino: Ino) -> Step<InodeSlot> {
        if ino.0 >= self.layout.ino_end() || Self::is_internal(ino) || ino.0 == 0 {
            return fail(FsError::Stale);
        }
        match self.imap_entry(ino)? {
            InodeSlot::NONE => fail(FsError::Stale),
            slot => Ok(slot),
        }
    }

    /// The entry of the inode map; none where the number is free.
    pub(super) fn imap_entry(&mut self, ino: Ino) -> Step<InodeSlot> {
        let (block, offset) = imap_place(ino);
        let Some(data) = self.block(block)? else { return Ok(InodeSlot::NONE) };
        let slot = InodeSlot(codec::get_at(&data, offset).unwrap_or(0));
        if !slot.is_none() && !self.layout.holds(slot.sector(), 1) {
            let detail = format_args!("entry of inode {ino} points to sector {}, outside the log", slot.sector());
            return fail(FsError::corrupt("inode map", format_args!("{block:?}"), detail));
        }
        Ok(slot)
    }

    /// Changes the entry of a block that S1 keeps in memory.
    pub(super) fn set_imap_entry(&mut self, ino: Ino, slot: InodeSlot) {
        let (block, offset) = imap_place(ino);
        match self.blocks.dirty_bytes_mut(block) {
            Some(bytes) => codec::put_at(bytes, offset, slot.0),
            None => unreachable!("S1: the map's block of a dirty inode is dirty"),
        }
    }

    /// Where a block of a file is in the log.
    pub(super) fn pointer(&mut self, id: BlockId) -> Step<Pointer> {
        let pointer = match id.key.holder() {
            Holder::Inode(slot) => self.inode(id.ino)?.inode.pointer(slot),
            Holder::Node(node, slot) => {
                let node = BlockId { ino: id.ino, key: node };
                match self.block(node)? {
                    None => Some(Pointer::Hole),
                    Some(block) => pointer_in_block(&block, slot),
                }
            }
        };
        self.check_pointer(id, pointer)
    }

    /// Refuses a pointer that no writer can have made.
    pub(super) fn check_pointer(&self, id: BlockId, pointer: Option<Pointer>) -> Step<Pointer> {
        match pointer {
            Some(Pointer::Mapped { at, sectors, .. })
                if u64::from(sectors) > BLOCK_SECTORS || !self.layout.holds(at, sectors.into()) =>
            {
                let detail = format_args!("it points to {sectors} sectors at {at}, outside the log");
                fail(FsError::corrupt("block pointer", format_args!("{id:?}"), detail))
            }
            Some(pointer) => Ok(pointer),
            None => fail(FsError::corrupt("block pointer", format_args!("{id:?}"), "its bits make no sense")),
        }
    }

    /// A block of a file; `None` where it is a hole.
    pub(super) fn block(&mut self, id: BlockId) -> Step<Option<Data>> {
        if let Some(data) = self.blocks.get(id) {
            return Ok(Some(data.clone()));
        }
        match self.pointer(id)? {
            Pointer::Mapped { .. } => Err(Stop::Load(Load::Block(id))),
            _ => Ok(None),
        }
    }

    /// Adds an inode just read; one that is there already is newer, and stays.
    pub(super) fn insert_inode(&mut self, ino: Ino, inode: InodeMem) {
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.inodes.entry(ino) {
            vacant.insert(inode);
            self.inode_clock.push_back(ino);
            self.evict_inodes();
        }
    }

    fn evict_inodes(&mut self) {
        // A few turns at a time: when nearly all are in use, looking at every one each time would take forever.
        let mut turns = 64;
        while self.inode_clock.len() > CLEAN_INODES_MAX && turns > 0 {
            turns -= 1;
            let Some(ino) = self.inode_clock.pop_front() else { return };
            // Writing an indirect block will need its inode (S1).
            let is_needed = self.blocks.dirty_of(ino).next().is_some();
            match self.inodes.get_mut(&ino) {
                None => {}
                Some(inode) if is_needed || inode.dirt != InodeDirt::Clean || inode.referenced || inode.reclaiming => {
                    inode.referenced = false;
                    self.inode_clock.push_back(ino);
                }
                Some(_) => {
                    self.inodes.remove(&ino);
                }
            }
        }
    }

    /// Puts a new inode where eviction will find it.
    pub(super) fn adopt_inode(&mut self, ino: Ino, inode: InodeMem) {
        if self.inodes.insert(ino, inode).is_none() {
            self.inode_clock.push_back(ino);
        }
    }

    /// Forgets every clean inode and block, as if the volume had just been mounted.
    pub(super) fn drop_caches(&mut self) {
        self.blocks.drop_clean(|ino| ino == USAGE_INO || ino == ORPHAN_INO);
        let blocks = &self.blocks;
        self.inodes.retain(|&ino, inode| {
            let is_needed = Self::is_internal(ino) || blocks.dirty_of(ino).next().is_some();
            is_needed || inode.dirt != InodeDirt::Clean || inode.reclaiming
        });
        let inodes = &self.inodes;
        self.inode_clock.retain(|ino| inodes.contains_key(ino));
        self.leaf_depth.clear();
        self.read_ahead.clear();
        self.attributes_follow = false;
    }

    pub(super) fn count_lookup(&mut self, ino: Ino) {
        *self.users.entry(ino).or_insert(0) += 1;
    }

    pub(super) fn in_use(&self, ino: Ino) -> bool {
        self.users.contains_key(&ino)
    }

    /// The log now has this change of the bytes that a file sets aside.
    pub(super) fn log_unwritten(&mut self, delta: i64) {
        self.unwritten_logged = self.unwritten_logged.saturating_add_signed(delta);
    }

    /// Attributes of an inode in memory.
    pub(super) fn attr(&mut self, ino: Ino) -> Step<Attr> {
        let io_bytes = BLOCK_BYTES as u32;
        let inode = self.inode(ino)?.inode;
        let kind = kind_of(&inode)?;
        let is_directory = kind == FileKind::Directory;
        Ok(Attr {
            ino,
            kind,
            permissions: inode.mode & 0o7777,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            device: if is_directory { 0 } else { inode.special },
            // The offsets of a directory's blocks are those of a sparse tree, and mean nothing to people.
            size: if is_directory { inode.bytes_used } else { inode.size },
            sectors: inode.bytes_used / SECTOR_BYTES,
            io_bytes,
            atime: inode.atime(),
            mtime: inode.mtime(),
            ctime: inode.ctime(),
            btime: inode.btime(),
        })
    }

    /// The inode as an entry, without counting a lookup.
    pub(super) fn entry(&mut self, ino: Ino) -> Step<Entry> {
        let attr = self.attr(ino)?;
        let generation = u64::from(self.inode(ino)?.inode.generation);
        Ok(Entry { attr, generation })
    }

    /// Live, set aside, and about to be written: what counts against the capacity.
    pub(super) fn used_bytes(&self) -> u64 {
        let inodes = (self.dirty_inodes.len() * Inode::BYTES) as u64;
        let blocks = self.blocks.growth_bytes + self.xattr_growth_bytes;
        self.segments.live_bytes + self.unwritten_bytes + blocks + inodes
    }

    /// Bytes of log that a checkpoint would take now, at most.
    pub(super) fn log_need_bytes(&self) -> u64 {
        const ENTRY_BYTES: usize = SummaryEntry::BYTES;
        const PER_BLOCK: u64 = (BLOCK_BYTES + ENTRY_BYTES) as u64;
        const PER_INODE: u64 = (Inode::BYTES + ENTRY_BYTES) as u64;
        // Every change makes a block of the usage table dirty or two, and in the worst case all.
        let tables = self.segments.table_blocks() + self.orphans.dirty_blocks.len() as u64;
        let blocks = self.blocks.dirty_count() + tables + tables / POINTERS_PER_BLOCK as u64 + 2;
        let inodes = self.dirty_inodes.len() as u64 + 1;
        let freed = (self.freed.len() as u64 + self.blocks.dirty_count()).min(self.segments.count());
        let records = self.records.len() as u64 + freed;
        let bytes = blocks * PER_BLOCK + inodes * PER_INODE + records * ENTRY_BYTES as u64 + self.xattr_growth_bytes;
        // What summaries are rounded up by, and what is lost at the end of a segment.
        bytes + bytes / 16 + 2 * BLOCK_BYTES as u64
    }

    /// Bytes that wait for the next transaction.
    pub(super) fn dirty_bytes(&self) -> u64 {
        (self.blocks.dirty_data_count() * BLOCK_BYTES as u64) + (self.dirty_inodes.len() * Inode::BYTES) as u64
    }

    /// Bytes that wait for the next checkpoint: indirect blocks and the inode map.
    pub(super) fn deferred_bytes(&self) -> u64 {
        (self.blocks.dirty_count() - self.blocks.dirty_data_count()) * BLOCK_BYTES as u64
    }
}

/// The kind of file that an inode is.
pub(super) fn kind_of(inode: &Inode) -> Step<FileKind> {
    match inode.kind() {
        Some(kind) => Ok(kind),
        None => fail(FsError::corrupt("inode", inode.ino, format_args!("mode {:o} is of no kind", inode.mode))),
    }
}
