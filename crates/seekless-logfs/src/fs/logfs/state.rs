//! The volume in memory.
//!
//! All of it is one structure, changed only in synchronous steps, so no task sees a partial change. A step that needs
//! something that is not in memory ends with [`Stop::Need`], having changed nothing, which debug builds check; its caller loads
//! that and starts the step again. So no lock is held while a device works, and there is no lock.
//!
//! Invariants
//!   S1  Everything needed to write a dirty block or inode is in memory: the inode, the indirect blocks above it, its
//!       block of the inode map. They count as dirty themselves.
//!   S2  live + unwritten + growth never exceeds the volume's capacity.
//!   S3  The dirty data always fits into the free space of the log, with as much left over as the log itself needs.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{AddAssign, Range, RangeInclusive, SubAssign};

use super::cache::Blocks;
use super::format::*;
use super::metadata_ahead::MetadataAhead;
use super::read_ahead::ReadAhead;
use super::tree::*;
use super::{LogBackend, LogTypes};
use crate::device::{Counter, Data, DeviceError};
use crate::fs::inode_table::{InodeTable, Referenced};
use crate::fs::step::{self, Changes, CountsChanges};
pub(in crate::fs) use crate::fs::step::{Searched, fail, need};
use crate::fs::{Attr, Entry, FileKind, FsError, PERMISSIONS};
use crate::units::{FixedMap, Ino, SECTOR_BYTES, Sector, WallTime};

/// What a step can need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) enum Need {
    /// This in memory.
    Load(Load),
    /// That this has happened.
    Wait(Wait),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) enum Load {
    Block(BlockId),
    Inode(Ino),
    Xattr(Ino),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) enum Wait {
    /// Too much is dirty.
    WriteBack,
    /// The volume is full until the space that is being freed is written.
    LastRoom,
    /// Earlier changes are on their way to the device, and the mount does not overlap with that.
    InFlight,
    /// There are too few clean segments.
    Clean,
    /// Clean segments have no storage below them yet.
    Provision,
    /// Blocks past the end of this file are being freed.
    Reclaim(Ino),
}

/// What becomes durable together, besides every change of the name space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) enum Scope<'a> {
    Everything,
    /// These files.
    Files(&'a BTreeSet<Ino>),
}

pub(in crate::fs) type Stop = step::Stop<Need>;
pub(in crate::fs) type Step<T> = step::Step<T, Need>;

impl From<Load> for Need {
    fn from(load: Load) -> Need {
        Need::Load(load)
    }
}

impl From<Wait> for Need {
    fn from(wait: Wait) -> Need {
        Need::Wait(wait)
    }
}

/// What has changed in an inode since it was last written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(in crate::fs) enum InodeDirt {
    #[default]
    Clean,
    /// Only what concerns this inode alone.
    Own,
    /// Something that has to reach the log together with changes of other inodes.
    Namespace,
}

/// An inode in memory.
#[derive(Clone)]
pub(in crate::fs) struct InodeMem<L: LogTypes> {
    pub inode: Inode,
    /// Address of the last written version.
    pub slot: InodeSlot,
    pub dirt: InodeDirt,
    /// Dirty only because the cleaner moves it or blocks of it.
    pub cleaned: bool,
    /// The cleaner has moved it or blocks of it since it was last written.
    pub moved: bool,
    /// Extended attributes as stored, when they are in memory.
    pub xattr: Option<Data>,
    pub xattr_dirty: bool,
    /// Bytes by which live data grows when the dirty attributes are written.
    pub xattr_growth: u64,
    /// What the log has to know when the inode is written.
    pub deferred_free: L::DeferredFree,
    /// Change of the bytes reserved for this file since the inode was last written.
    pub unwritten_pending: i64,
    /// Blocks past the end are still mapped and are being freed.
    pub reclaiming: bool,
    pub referenced: bool,
    /// It came with another inode, and was not needed yet.
    pub ahead: bool,
}

impl<L: LogBackend> InodeMem<L> {
    pub(in crate::fs) fn new(inode: Inode, slot: InodeSlot) -> InodeMem<L> {
        InodeMem {
            inode,
            slot,
            dirt: InodeDirt::Clean,
            cleaned: false,
            moved: false,
            xattr: None,
            xattr_dirty: false,
            xattr_growth: 0,
            deferred_free: L::DeferredFree::default(),
            unwritten_pending: 0,
            reclaiming: false,
            referenced: true,
            ahead: false,
        }
    }
}

/// Attributes that wait to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::fs) struct DirtyAttributes {
    /// Files that have some.
    pub files: u64,
    /// Their bytes, padded to sectors: all of this is written, even what has not changed.
    pub bytes: u64,
    /// Bytes by which live data grows when they are written.
    pub growth_bytes: u64,
}

impl AddAssign for DirtyAttributes {
    fn add_assign(&mut self, more: DirtyAttributes) {
        self.files += more.files;
        self.bytes += more.bytes;
        self.growth_bytes += more.growth_bytes;
    }
}

impl SubAssign for DirtyAttributes {
    fn sub_assign(&mut self, less: DirtyAttributes) {
        debug_assert!(self.bytes >= less.bytes && self.files >= less.files, "S3: what is written was counted as dirty");
        self.files -= less.files;
        self.bytes -= less.bytes;
        self.growth_bytes -= less.growth_bytes;
    }
}

impl<L: LogBackend> InodeMem<L> {
    /// What this file's attributes count for while they wait to be written.
    pub(in crate::fs) fn dirty_attributes(&self) -> DirtyAttributes {
        match &self.xattr {
            Some(data) if self.xattr_dirty => {
                DirtyAttributes { files: 1, bytes: data.len() as u64, growth_bytes: self.xattr_growth }
            }
            _ => DirtyAttributes::default(),
        }
    }
}

impl<L: LogBackend> Referenced for InodeMem<L> {
    fn referenced(&mut self) -> &mut bool {
        &mut self.referenced
    }
}

/// Whether an inode must stay in memory: writing an indirect block needs its inode (S1).
fn is_needed<L: LogBackend>(blocks: &Blocks, ino: Ino, inode: &InodeMem<L>) -> bool {
    inode.dirt != InodeDirt::Clean || inode.reclaiming || blocks.dirty_of(ino).next().is_some()
}

/// Data in flight to the device. Until it arrives, reads are served from here.
pub(in crate::fs) struct InFlight {
    pub at: crate::units::Sector,
    pub data: Data,
    pub sequence: u64,
}

/// Parameters of a volume that never change while it is mounted.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct Volume {
    /// First number past all inode numbers.
    pub ino_end: u64,
    /// Bytes of live data and metadata that files may use.
    pub capacity_bytes: u64,
    /// Key of the directory hash.
    pub hash_key: [u64; 2],
    /// Keep file data that is read in memory.
    pub cache_data: bool,
    /// Clean blocks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// Most bytes that are read for a missing inode: all inodes there come with it. 0: its group alone.
    pub read_around_bytes: u64,
}

/// Everything that is in memory about a mounted volume.
pub(in crate::fs) struct State<L: LogTypes> {
    /// The log's own part.
    pub log: L,
    pub volume: Volume,
    /// Time of the present step.
    pub now: WallTime,
    pub inodes: InodeTable<Ino, InodeMem<L>>,
    /// Inodes that differ from the log, except internal ones.
    pub dirty_inodes: BTreeSet<Ino>,
    /// Lookups not yet forgotten.
    pub users: FixedMap<Ino, u64>,
    /// Inodes in use that have never had a name, and may get one.
    pub linkable: BTreeSet<Ino>,
    /// Files that have blocks to be freed for which there was no room: the timer tries again.
    pub unfreed: BTreeSet<Ino>,
    pub blocks: Blocks,
    pub ino_cursor: u64,
    /// Numbers that steps have tried since one was found last.
    pub ino_tried: u64,
    /// Inode numbers that are not given out because their blocks of the map cannot be read: the end of each range, by its
    /// start. Ranges do not overlap.
    unusable_numbers: BTreeMap<u64, u64>,
    pub inode_count: u64,
    /// Counts created inodes.
    pub generation: u64,
    /// Bytes reserved by unwritten blocks.
    pub unwritten_bytes: u64,
    /// Bytes of unmapped blocks that the log has not yet counted as freed.
    pub freed_pending_bytes: u64,
    /// All of them.
    pub dirty_attributes: DirtyAttributes,
    pub clean_attributes: CleanAttributes,
    pub in_flight: Vec<InFlight>,
    /// Parts of the log for which the storage below had no space, by number, and how many retries had been requested
    /// when each was last tried.
    pub stalled: BTreeMap<u64, u64>,
    /// An error of unknown effect: no more changes.
    pub stopped: Option<String>,
    pub read_only: bool,
    pub block_reads: u64,
    pub inode_reads: u64,
    /// Depth at which a directory's last leaf was found; only a hint.
    pub leaf_depth: FixedMap<Ino, u8>,
    pub read_ahead: ReadAhead,
    pub metadata_ahead: MetadataAhead,
    /// Readers of inodes are likely to read their attributes too; only a hint.
    pub attributes_follow: bool,
    /// The latest reads that had attributes in them, and their addresses, the latest first; only a hint, since the
    /// checksums in inodes tell whether the content is still there.
    pub attributes_read: VecDeque<AttributesRead>,
    /// Of everything but blocks, which count their own.
    pub changes: Changes,
}

impl<L: LogTypes> CountsChanges for State<L> {
    fn changes(&self) -> u64 {
        self.changes.count() + self.blocks.changes.count()
    }
}

/// A read that had attributes in it.
#[derive(Clone)]
pub(in crate::fs) struct AttributesRead {
    pub at: Sector,
    pub data: Data,
}

/// Attributes in memory that are in the log, too, the oldest first. A file may be here more than once, or have lost its attributes
/// since, so that `bytes` is an upper bound.
#[derive(Default)]
pub(in crate::fs) struct CleanAttributes {
    files: VecDeque<(Ino, u64)>,
    bytes: u64,
}

/// Clean attributes take at most this part of the memory for blocks. With the least a step has all that it needs, of some files.
const CLEAN_ATTRIBUTES_SHARE: u64 = 4;
const CLEAN_ATTRIBUTES_BYTES_LEAST: u64 = 1 << 20;

/// Most clean inodes kept in memory.
const CLEAN_INODES_MAX: usize = 16 * 1024;

impl<L: LogBackend> State<L> {
    pub(in crate::fs) fn new(log: L, volume: Volume, read_only: bool) -> State<L> {
        State {
            log,
            now: WallTime::default(),
            inodes: InodeTable::default(),
            dirty_inodes: BTreeSet::new(),
            users: FixedMap::default(),
            linkable: BTreeSet::new(),
            unfreed: BTreeSet::new(),
            blocks: Blocks::new(volume.cache_bytes),
            ino_cursor: FIRST_FREE_INO,
            ino_tried: 0,
            unusable_numbers: BTreeMap::new(),
            inode_count: 0,
            generation: 0,
            unwritten_bytes: 0,
            freed_pending_bytes: 0,
            dirty_attributes: DirtyAttributes::default(),
            clean_attributes: CleanAttributes::default(),
            in_flight: Vec::new(),
            stalled: BTreeMap::new(),
            stopped: None,
            read_only,
            block_reads: 0,
            inode_reads: 0,
            leaf_depth: FixedMap::default(),
            read_ahead: ReadAhead::default(),
            metadata_ahead: MetadataAhead::default(),
            attributes_follow: false,
            attributes_read: VecDeque::new(),
            changes: Changes::default(),
            volume,
        }
    }

    /// Amount in memory now, and how much of it is not in the log yet.
    pub(in crate::fs) fn in_memory(&self) -> [Counter; 4] {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        [
            ("cache_bytes", bytes(self.blocks.count())),
            ("cache_dirty_bytes", bytes(self.blocks.dirty_count())),
            ("cache_inodes", self.inodes.count() as u64),
            ("cache_dirty_inodes", self.dirty_inodes.len() as u64),
        ]
    }

    /// Refuses every change from now on, because of `error`.
    pub(in crate::fs) fn stop(&mut self, error: &DeviceError) {
        self.stopped.get_or_insert_with(|| error.to_string());
    }

    /// The inode, from memory.
    ///
    /// # Errors
    /// `Stale` when the number is not in use.
    pub(in crate::fs) fn inode(&mut self, ino: Ino) -> Step<&mut InodeMem<L>> {
        if !self.inodes.contains_key(&ino) {
            self.inode_slot(ino)?;
            return need(Load::Inode(ino));
        }
        let Some(known) = self.inodes.look_up(ino) else { return fail(FsError::Stale) };
        if std::mem::take(&mut known.ahead) {
            self.metadata_ahead.used();
        }
        Ok(known)
    }

    /// Leaves those that are not in memory.
    pub(in crate::fs) fn retain_missing(&self, inos: &mut Vec<Ino>) {
        inos.retain(|ino| !self.inodes.contains_key(ino));
    }

    /// Notes inode numbers whose entries in the map cannot be read, until the volume is mounted again. Returns false when all of
    /// them were noted before. Two ranges are nested or apart, as the blocks of the map are.
    pub(in crate::fs) fn note_unusable_numbers(&mut self, numbers: Range<u64>) -> bool {
        if numbers.is_empty() || self.unusable_until(numbers.start).is_some_and(|end| end >= numbers.end) {
            return false;
        }
        self.unusable_numbers.retain(|start, _| !numbers.contains(start));
        self.unusable_numbers.insert(numbers.start, numbers.end);
        true
    }

    /// Where the numbers end that are not given out, if `number` is among them.
    pub(in crate::fs) fn unusable_until(&self, number: u64) -> Option<u64> {
        let (_, &end) = self.unusable_numbers.range(..=number).next_back()?;
        (number < end).then_some(end)
    }

    /// Address of the inode in the inode map.
    pub(in crate::fs) fn inode_slot(&mut self, ino: Ino) -> Step<InodeSlot> {
        if ino.0 >= self.volume.ino_end || is_internal(ino) || ino.0 == 0 {
            return fail(FsError::Stale);
        }
        match L::imap_entry(self, ino)? {
            InodeSlot::NONE => fail(FsError::Stale),
            slot => Ok(slot),
        }
    }

    /// Where the group of inodes begins that was written together with this one, as far as the map in memory shows it: a group
    /// begins at any sector where data is written between groups. Otherwise groups follow each other, and each begins at a
    /// multiple of its length.
    pub(in crate::fs) fn group_start(&mut self, ino: Ino, at: Sector) -> Sector {
        let reach = INODE_GROUP_SECTORS - 1;
        let (mut low, mut high) = (at, at);
        let around = group_around(ino);
        for number in around.start().0..=around.end().0 {
            if let Ok(slot) = self.inode_slot(Ino(number))
                && slot.sector().0.abs_diff(at.0) <= reach
            {
                (low, high) = (low.min(slot.sector()), high.max(slot.sector()));
            }
        }
        debug_assert!(low <= at && at <= high, "an inode is in its own group");
        let aligned = Sector(at.0 / INODE_GROUP_SECTORS * INODE_GROUP_SECTORS);
        match () {
            () if high - low > reach => aligned,
            () if low >= aligned && high - aligned <= reach => aligned,
            () => low,
        }
    }

    /// Address of a block of a file in the log.
    pub(in crate::fs) fn pointer(&mut self, id: BlockId) -> Step<Pointer> {
        let pointer = match id.key.holder() {
            Holder::Inode(slot) => self.inode(id.ino)?.inode.pointer(slot),
            Holder::Node(node, slot) => self.pointer_in(BlockId { ino: id.ino, key: node }, slot)?,
        };
        self.check_pointer(id, pointer)
    }

    /// The pointer in a slot of an indirect block: a hole, where there is no such block.
    pub(in crate::fs) fn pointer_in(&mut self, node: BlockId, slot: usize) -> Step<Option<Pointer>> {
        if let Some(block) = self.blocks.get(node) {
            return Ok(pointer_in_block(block, slot));
        }
        match self.pointer(node)? {
            Pointer::Mapped { .. } => need(Load::Block(node)),
            _ => Ok(Some(Pointer::Hole)),
        }
    }

    /// A dirty block is at a new address: updates the pointer in its holder, which is dirty too (S1).
    pub(in crate::fs) fn point_to(&mut self, id: BlockId, pointer: Pointer) {
        debug_assert!(self.inodes.contains_key(&id.ino), "S1: the inode of a dirty block is in memory");
        match id.key.holder() {
            Holder::Inode(slot) => {
                if let Some(known) = self.inodes.get_mut(&id.ino) {
                    known.inode.set_pointer(slot, pointer);
                }
            }
            Holder::Node(node, slot) => match self.blocks.dirty_bytes_mut(BlockId { ino: id.ino, key: node }) {
                Some(bytes) => set_pointer_in_block(bytes, slot, pointer),
                None => unreachable!("S1: the holder of a dirty block is dirty"),
            },
        }
    }

    /// Refuses a pointer that no writer can have produced.
    pub(in crate::fs) fn check_pointer(&self, id: BlockId, pointer: Option<Pointer>) -> Step<Pointer> {
        match pointer {
            Some(Pointer::Mapped { at, sectors, .. })
                if u64::from(sectors) > BLOCK_SECTORS || !L::holds(self, at, sectors.into()) =>
            {
                let detail = format_args!("it points to {sectors} sectors at {at}, outside the log");
                fail(FsError::corrupt("block pointer", format_args!("{id:?}"), detail))
            }
            Some(pointer) => Ok(pointer),
            None => fail(FsError::corrupt("block pointer", format_args!("{id:?}"), "its bits make no sense")),
        }
    }

    /// A block of a file; `None` where it is a hole.
    pub(in crate::fs) fn block(&mut self, id: BlockId) -> Step<Option<Data>> {
        if let Some(data) = self.blocks.get(id) {
            return Ok(Some(data.clone()));
        }
        match self.pointer(id)? {
            Pointer::Mapped { .. } => need(Load::Block(id)),
            _ => Ok(None),
        }
    }

    /// Whether the holder of the pointer to a block can be changed without reading anything (S1).
    pub(in crate::fs) fn can_lead_to(&self, id: BlockId) -> bool {
        match id.key.holder() {
            Holder::Inode(_) => self.inodes.contains_key(&id.ino),
            Holder::Node(node, _) => self.blocks.dirty(BlockId { ino: id.ino, key: node }).is_some(),
        }
    }

    /// The block is in the log.
    pub(in crate::fs) fn mark_written(&mut self, id: BlockId) {
        debug_assert!(self.blocks.dirty(id).is_some(), "S1: what is written was dirty");
        debug_assert!(self.can_lead_to(id), "S1: what leads to a block that is written has its new address");
        let is_of_file = || self.inodes.get(&id.ino).is_some_and(|known| known.inode.kind() == Some(FileKind::Regular));
        let leaves = !self.volume.cache_data && id.key.is_data() && !is_internal(id.ino) && is_of_file();
        self.blocks.mark_clean(id, leaves);
    }

    /// Adds an inode just read; one that is already in memory is newer, and stays.
    pub(in crate::fs) fn insert_inode(&mut self, ino: Ino, inode: InodeMem<L>) {
        debug_assert!(inode.dirt == InodeDirt::Clean, "S1: an inode that was read is as the log has it");
        if !self.inodes.contains_key(&ino) {
            self.inodes.insert(ino, inode);
            self.count_attributes(ino);
            self.evict_inodes();
        }
    }

    /// Bytes that count against the capacity once what is being freed is written.
    pub(in crate::fs) fn used_after_frees(&self) -> u64 {
        let used = L::used_bytes(self);
        debug_assert!(self.freed_pending_bytes <= used, "A3: what is being freed counts as used");
        used - self.freed_pending_bytes
    }

    /// The attributes of `ino` have just been read or written. Forgets the oldest ones where there are too many.
    pub(in crate::fs) fn count_attributes(&mut self, ino: Ino) {
        let Some(data) = self.inodes.get(&ino).and_then(|known| known.xattr.as_ref()) else { return };
        let bytes = data.len() as u64;
        if bytes == 0 {
            return; // The last one was removed.
        }
        self.clean_attributes.files.push_back((ino, bytes));
        self.clean_attributes.bytes += bytes;
        let most = (self.volume.cache_bytes / CLEAN_ATTRIBUTES_SHARE).max(CLEAN_ATTRIBUTES_BYTES_LEAST);
        while self.clean_attributes.bytes > most
            && let Some((oldest, bytes)) = self.clean_attributes.files.pop_front()
        {
            debug_assert!(bytes <= self.clean_attributes.bytes, "the sum is that of all files in the list");
            self.clean_attributes.bytes -= bytes;
            // Dirty ones count again when they are written.
            if let Some(known) = self.inodes.get_mut(&oldest).filter(|known| !known.xattr_dirty) {
                known.xattr = None;
            }
        }
    }

    /// Forgets clean inodes where too many are in memory.
    pub(in crate::fs) fn evict_inodes(&mut self) {
        let (blocks, unused) = (&self.blocks, Cell::new(0));
        self.inodes.evict(CLEAN_INODES_MAX, |ino, inode| {
            let is_needed = is_needed(blocks, ino, inode);
            unused.set(unused.get() + usize::from(inode.ahead && !is_needed));
            is_needed
        });
        self.metadata_ahead.unused(unused.get());
    }

    /// Forgets every clean inode and block, as after a mount.
    pub(in crate::fs) fn drop_caches(&mut self) {
        self.blocks.drop_clean(L::keeps_blocks);
        let blocks = &self.blocks;
        self.inodes.drop_clean(|ino, inode| is_internal(ino) || is_needed(blocks, ino, inode));
        self.leaf_depth.clear();
        self.read_ahead.clear();
        self.metadata_ahead.clear();
        self.attributes_follow = false;
    }

    pub(in crate::fs) fn count_lookup(&mut self, ino: Ino) {
        self.changes.note();
        *self.users.entry(ino).or_insert(0) += 1;
    }

    pub(in crate::fs) fn in_use(&self, ino: Ino) -> bool {
        self.users.contains_key(&ino)
    }

    /// Attributes of an inode in memory.
    pub(in crate::fs) fn attr(&mut self, ino: Ino) -> Step<Attr> {
        let io_bytes = BLOCK_BYTES as u32;
        let inode = self.inode(ino)?.inode;
        let kind = kind_of(&inode)?;
        let is_directory = kind == FileKind::Directory;
        Ok(Attr {
            ino,
            kind,
            permissions: inode.mode & PERMISSIONS,
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            device: if is_directory { 0 } else { inode.special },
            // The offsets of a directory's blocks are those of a sparse tree, and mean nothing to users.
            size: if is_directory { inode.bytes_used } else { inode.size },
            sectors: inode.bytes_used / SECTOR_BYTES,
            sectors_will_change: false,
            io_bytes,
            atime: inode.atime(),
            mtime: inode.mtime(),
            ctime: inode.ctime(),
            btime: inode.btime(),
        })
    }

    /// The inode as an entry, without counting a lookup.
    pub(in crate::fs) fn entry(&mut self, ino: Ino) -> Step<Entry> {
        let attr = self.attr(ino)?;
        let generation = u64::from(self.inode(ino)?.inode.generation);
        Ok(Entry { attr, generation })
    }

    /// The changed inodes of `scope`, in order.
    pub(in crate::fs) fn dirty_inodes_of(&self, scope: Scope<'_>) -> impl Iterator<Item = Ino> {
        let dirt = |ino: &Ino| self.inodes.get(ino).map_or(InodeDirt::Clean, |known| known.dirt);
        self.dirty_inodes.iter().copied().filter(move |ino| match scope {
            Scope::Everything => true,
            Scope::Files(files) => files.contains(ino) || dirt(ino) == InodeDirt::Namespace,
        })
    }

    /// Bytes that wait for the next transaction.
    pub(in crate::fs) fn dirty_bytes(&self) -> u64 {
        let inodes = (self.dirty_inodes.len() * Inode::BYTES) as u64;
        self.blocks.dirty_data_count() * BLOCK_BYTES as u64 + inodes + self.dirty_attributes.bytes
    }

    /// Whether enough waits for the next transaction to be worth one.
    ///
    /// Names of a directory are in the order of their hashes, so in a large one each new name changes another block. If
    /// most dirty blocks are of this kind, they wait for more names: all that a block gains until then is written once.
    pub(in crate::fs) fn has_batch(&self) -> bool {
        let (dirty, of_directories) = (self.dirty_bytes(), self.blocks.dirty_of_directories() * BLOCK_BYTES as u64);
        let is_worth_waiting = of_directories > dirty / 2 && dirty < L::dirty_bytes_max(self) / 2;
        dirty >= L::batch_bytes(self) && !is_worth_waiting
    }

    /// Bytes that wait for the next checkpoint: indirect blocks and the inode map.
    pub(in crate::fs) fn deferred_bytes(&self) -> u64 {
        (self.blocks.dirty_count() - self.blocks.dirty_data_count()) * BLOCK_BYTES as u64
    }
}

/// Numbers of files that were probably written together with `ino`.
pub(in crate::fs) fn group_around(ino: Ino) -> RangeInclusive<Ino> {
    let reach = INODE_GROUP_SECTORS * INODES_PER_SECTOR - 1;
    Ino(ino.0.saturating_sub(reach))..=Ino(ino.0.saturating_add(reach))
}

/// The kind of file that an inode is.
pub(in crate::fs) fn kind_of(inode: &Inode) -> Step<FileKind> {
    match inode.kind() {
        Some(kind) => Ok(kind),
        None => fail(FsError::corrupt("inode", inode.ino, format_args!("mode {:o} is of unknown kind", inode.mode))),
    }
}
