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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{AddAssign, RangeInclusive, SubAssign};

use super::cache::Blocks;
use super::format::*;
use super::metadata_ahead::MetadataAhead;
use super::read_ahead::ReadAhead;
use super::tree::*;
use crate::device::Data;
use crate::fs::inode_table::{InodeTable, Referenced};
use crate::fs::step::{self, Changes, CountsChanges};
pub(in crate::fs) use crate::fs::step::{Searched, fail, need};
use crate::fs::{FileKind, FsError};
use crate::units::{FixedMap, Ino, Sector, WallTime};

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

/// What a log stores in the state and beside it.
pub(in crate::fs) trait LogTypes: Sized + 'static {
    const NAME: &'static str;

    /// What the log has to know of a changed inode besides its content: addresses that its next version no longer
    /// needs.
    type DeferredFree: Clone + Default;
    /// State of the log's own work outside of steps.
    type BackgroundWork;
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

impl<L: LogTypes> InodeMem<L> {
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

impl<L: LogTypes> InodeMem<L> {
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

impl<L: LogTypes> Referenced for InodeMem<L> {
    fn referenced(&mut self) -> &mut bool {
        &mut self.referenced
    }
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
    pub(super) unusable_numbers: BTreeMap<u64, u64>,
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

impl<L: LogTypes> State<L> {
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
    pub(super) files: VecDeque<(Ino, u64)>,
    pub(super) bytes: u64,
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
