//! Mounting: reads the inode map from the virtual log, and derives the free space from the inodes.
//!
//! Format: FORMAT.md, "Starting".
//!
//! `vlog` finds the pieces of the map. Then every inode is read, and every indirect block: the blocks that they point
//! to are used, all others are free. They are read by address, neighbours together and several at once, so that this
//! costs one sweep over the inodes and one for each level of indirect blocks.
//!
//! Invariants
//!   R1  No block is used twice, and none outside the area for blocks. Otherwise the volume is damaged: that is an
//!       error, or, read-only, a warning.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use futures_util::future::{LocalBoxFuture, join_all};

use super::format::*;
use super::owners::Owners;
use super::state::*;
use super::{BackgroundWork, CompactUse, Counters, Options, Vlfs};
use crate::codec;
use crate::device::rescue::rescue;
use crate::device::{Device, read_right};
use crate::fs::logfs::LogFs;
use crate::fs::logfs::backend::SpaceAccounts;
use crate::fs::logfs::books::ATTRIBUTES;
use crate::fs::logfs::file::root_key;
use crate::fs::logfs::tree::*;
use crate::fs::{FsError, FsResult};
use crate::rt::{Rt, cover};
use crate::units::{FixedMap, Ino, SECTOR_BYTES, Sector, counted};
use crate::vlog::{Garbage, Store, VldError};

/// WantedKind a volume says about itself.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    pub uuid: uuid::Uuid,
    pub label: String,
    pub version: u32,
    pub volume_bytes: u64,
    /// Number of inodes that the volume can have.
    pub inodes_max: u64,
    pub reserve_bytes: u64,
    pub capacity_bytes: u64,
    /// Time of mkfs, in seconds since 1970.
    pub created_seconds: i64,
    /// Closed properly: the start need not search for the tail of the log.
    pub clean: bool,
    /// Damage without consequences.
    pub notes: Vec<String>,
}

/// Reads what a volume says about itself, without mounting it.
///
/// # Errors
/// As [`super::mount`].
pub async fn info(device: &Device) -> FsResult<VolumeInfo> {
    let (volume, found) = find_volume(device).await?;
    let superblock = found.superblock;
    let layout = match crate::vlog::layout::Layout::new(superblock) {
        Some(layout) => layout,
        None => return Err(corrupt_volume(device, "the numbers in its superblock are inconsistent")),
    };
    Ok(VolumeInfo {
        uuid: uuid::Uuid::from_bytes(superblock.uuid),
        label: volume.label_text(),
        version: volume.version,
        volume_bytes: superblock.device_sectors * SECTOR_BYTES,
        inodes_max: superblock.logical_blocks,
        reserve_bytes: blocks_bytes(volume.reserve_blocks),
        capacity_bytes: capacity_bytes(&layout, usable_blocks(&layout), volume.reserve_blocks),
        created_seconds: volume.created_seconds,
        clean: found.is_parked,
        notes: found.damaged.into_iter().chain(found.notes).collect(),
    })
}

fn corrupt_volume(device: &Device, why: &str) -> FsError {
    FsError::corrupt("volume", device.describe(), why)
}

/// Translates an error of the virtual log into one of the file system.
pub(super) fn translate_error(device: &Device, error: VldError) -> FsError {
    match error {
        VldError::Device(error) => FsError::Device(error),
        VldError::Nothing => corrupt_volume(device, "there is no VLFS here"),
        VldError::Corrupt { what, at, why } => FsError::corrupt(what, format_args!("sector {at}"), why),
        VldError::Plan(error) => corrupt_volume(device, &error.to_string()),
    }
}

/// The superblock, and the record of this file system in it.
pub(super) async fn find_volume(device: &Device) -> FsResult<(VolumeRecord, crate::vlog::StoreInfo)> {
    let found = Store::info(device).await.map_err(|error| translate_error(device, error))?;
    let Some(volume) = VolumeRecord::from_bytes(&found.above) else {
        return Err(corrupt_volume(device, "its virtual log does not hold a VLFS"));
    };
    let superblock = &found.superblock;
    if volume.version != VERSION || volume.features_incompatible != 0 {
        let why = format!(
            "format version {} with features {:#x} needs another release; this one reads version {VERSION}",
            volume.version, volume.features_incompatible
        );
        return Err(corrupt_volume(device, &why));
    }
    if volume.reserve_blocks > superblock.device_sectors / BLOCK_SECTORS {
        return Err(corrupt_volume(device, "its reserve is larger than all of it"));
    }
    if superblock.block_bytes as usize != BLOCK_BYTES || superblock.logical_blocks < FIRST_FREE_INO {
        return Err(corrupt_volume(device, "its blocks or its inode map have an impossible size"));
    }
    Ok((volume, found))
}

/// Number of blocks that can be used.
fn usable_blocks(layout: &crate::vlog::layout::Layout) -> u64 {
    (0..layout.blocks).filter(|&block| !layout.is_reserved(block)).count() as u64
}

/// Bytes that files may fill: everything but the reserve, and the blocks that rewriting all of the map at once takes.
fn capacity_bytes(layout: &crate::vlog::layout::Layout, usable: u64, reserve: u64) -> u64 {
    blocks_bytes(usable.saturating_sub(layout.margin + u64::from(layout.pieces) + reserve))
}

/// The volume as it was when the power failed or it was closed. Nothing is written.
///
/// The caller reports a damaged superblock and the other notes of `info`.
pub(super) fn recover(rt: Rt, device: Device, options: Options) -> LocalBoxFuture<'static, FsResult<Rc<Vlfs>>> {
    Box::pin(recover_state(rt, device, options))
}

async fn recover_state(rt: Rt, device: Device, options: Options) -> FsResult<Rc<Vlfs>> {
    let (volume, _) = find_volume(&device).await?;
    let started = rt.now();
    let below = crate::vlog::Options {
        track_fill_reserve: options.track_fill_reserve,
        window: options.window,
        compact: false,
        order: false,
        discard: options.discard,
        read_only: options.read_only,
        ..crate::vlog::Options::default()
    };
    let store = Store::open(&rt, device.clone(), below).await.map_err(|error| translate_error(&device, error))?;
    let layout = store.layout();
    let usable = usable_blocks(layout);
    let reserve = volume.reserve_blocks.min(usable / 2);
    let dirty_most = (blocks_bytes(reserve) / 4).max(16 * BLOCK_BYTES as u64);
    let options = Options { dirty_bytes_max: options.dirty_bytes_max.min(dirty_most), ..options };
    let never_changes = Volume {
        ino_end: layout.logical_blocks.into(),
        capacity_bytes: capacity_bytes(layout, usable, reserve),
        hash_key: volume.hash_key,
        cache_data: options.cache_data,
        read_around_bytes: 0, // Inodes have cells of their own.
        cache_bytes: options.cache_bytes,
    };
    let lost = store.recovery().sectors_lost;
    let entries = store.entries();
    let has_head = store.has_head();
    let compact = if options.read_only { CompactUse::Never } else { options.compact };
    let owners = Owners::of(compact, has_head, store.layout().blocks);
    let log = Virtual {
        store,
        options,
        usable_blocks: usable,
        reserve_blocks: reserve,
        ahead: BTreeMap::new(),
        orphans: BTreeSet::new(),
        removed: Vec::new(),
        garbage: Garbage::default(),
        garbage_bytes: 0,
        owners,
        copies: BTreeSet::new(),
        aim: None,
        cells: FixedMap::default(),
        parts: BTreeMap::new(),
        next_batch: 1,
        effects: BTreeMap::new(),
        written: BTreeSet::new(),
        applied: 1,
        durable: 1,
        freeing: BTreeMap::new(),
        in_flight_bytes: 0,
        counters: Counters::default(),
    };
    let state = State::new(log, never_changes, options.read_only);
    let fs = LogFs::new(rt.clone(), device, state, BackgroundWork::default());
    if lost > 0 {
        let what = counted(lost, "sector");
        fs.warn(format!(
            "{what} cannot be read where the tail of the log may be; what is shown may be of an earlier moment"
        ));
    }
    let walk = Walk { fs: &fs, is_lenient: options.read_only };
    walk.run(entries).await?;
    fs.state.borrow_mut().log.counters.recovery_ns = rt.now().saturating_sub(started).0;
    Ok(fs)
}

/// Rewrites damaged superblocks. Returns the message for each, and whether it was rewritten.
pub(super) async fn mend_superblocks(device: &Device, damaged: Vec<String>) -> FsResult<Vec<(String, bool)>> {
    if damaged.is_empty() {
        return Ok(Vec::new());
    }
    let mended = Store::mend_superblocks(device).await.map_err(|error| translate_error(device, error))?;
    let is_mended = mended == damaged.len() as u64;
    let why = if is_mended { "" } else { ", and cannot be rewritten" };
    Ok(damaged.into_iter().map(|text| (format!("{text}{why}"), is_mended)).collect())
}

/// A mount must find a root directory.
pub(super) fn check_root(fs: &Vlfs) -> FsResult<()> {
    let has_root = fs.state.borrow().log.store.entry(Ino::ROOT.0 as u32) != 0;
    match has_root {
        true => Ok(()),
        false => Err(FsError::corrupt("volume", "inode map", "there is no root directory: mkfs did not complete")),
    }
}

/// Something to read, and its position in the tree.
#[derive(Clone, Copy)]
struct Wanted {
    at: Sector,
    sectors: u64,
    what: WantedKind,
}

#[derive(Clone, Copy)]
enum WantedKind {
    Inode(Ino, InodeSlot),
    Node(BlockId, u32),
    Parts(Ino, u32),
}

impl Wanted {
    /// Whether `stored` is what was written there, as far as it can tell.
    fn is_right(&self, stored: &[u8]) -> bool {
        match self.what {
            WantedKind::Inode(ino, slot) => {
                stored.get(slot.offset()..).and_then(Inode::unseal).is_some_and(|inode| inode.ino == ino.0)
            }
            WantedKind::Node(_, crc) | WantedKind::Parts(_, crc) => codec::crc32c(stored) == crc,
        }
    }
}

/// Sectors that are read with one request: as many as pass under the head in the time of a move elsewhere.
const SPAN_SECTORS: u64 = 128;

/// Most warnings listed: a damaged volume can have one for each of its pointers.
const WARNINGS_MAX: usize = 100;

/// Requests in parallel: more than any drive queues.
const READS_AT_ONCE: usize = 32;

struct Walk<'a> {
    fs: &'a Vlfs,
    /// Report damage as warnings, and continue.
    is_lenient: bool,
}

impl Walk<'_> {
    async fn run(&self, entries: Vec<(u32, u32)>) -> FsResult<()> {
        let mut wanted = Vec::with_capacity(entries.len());
        for (number, entry) in entries {
            let (ino, slot) = (Ino(number.into()), InodeSlot(entry.into()));
            if is_internal(ino) || (number != 1 && u64::from(number) < FIRST_FREE_INO) {
                self.problem(FsError::corrupt(
                    "inode map",
                    format_args!("entry {number}"),
                    "no file can have this number",
                ))?;
                continue;
            }
            if !Virtual::holds(&self.fs.state.borrow(), slot.sector(), 1) {
                let place = format_args!("entry of inode {ino}");
                self.problem(FsError::corrupt("inode map", place, "it leads to where nothing can be"))?;
                continue;
            }
            wanted.push(Wanted { at: slot.sector(), sectors: 1, what: WantedKind::Inode(ino, slot) });
        }
        while !wanted.is_empty() {
            wanted = self.sweep(wanted).await?;
        }
        Ok(())
    }

    /// Damage or a failing device: an error, or a warning.
    fn problem(&self, error: FsError) -> FsResult<()> {
        let may_go_on = match &error {
            FsError::Corrupt { .. } => self.is_lenient,
            FsError::Device(error) => self.is_lenient && error.is_of_medium(),
            _ => false,
        };
        if !may_go_on {
            return Err(error);
        }
        let said = self.fs.warnings.borrow().len();
        match said.cmp(&WARNINGS_MAX) {
            std::cmp::Ordering::Less => self.fs.warn(error.to_string()),
            std::cmp::Ordering::Equal => self.fs.warn("there is more damage than is listed here".to_string()),
            std::cmp::Ordering::Greater => {}
        }
        Ok(())
    }

    /// Reads everything requested, by address. Returns the addresses that this leads to.
    async fn sweep(&self, mut wanted: Vec<Wanted>) -> FsResult<Vec<Wanted>> {
        wanted.sort_by_key(|wanted| wanted.at);
        let mut next = Vec::new();
        let spans: Vec<&[Wanted]> =
            wanted.chunk_by(|one, two| one.at.0 / SPAN_SECTORS == two.at.0 / SPAN_SECTORS).collect();
        for batch in spans.chunks(READS_AT_ONCE) {
            let reads = batch.iter().map(|span| {
                let start = span.first().map_or(Sector::ZERO, |first| first.at);
                let end = span.iter().map(|wanted| wanted.at.0 + wanted.sectors).max().unwrap_or(start.0);
                let end = end.min(self.fs.device.geometry().sectors);
                async move { (start, rescue(&self.fs.device, start, end.saturating_sub(start.0)).await) }
            });
            for (span, (start, read)) in batch.iter().zip(join_all(reads).await) {
                // A read error concerns only the block that cannot be read, not those beside it.
                let read = read?;
                for wanted in *span {
                    let from = ((wanted.at.0 - start.0) * SECTOR_BYTES) as usize;
                    let mut stored = read.bytes.get(from..from + (wanted.sectors * SECTOR_BYTES) as usize);
                    let mut lost = read.lost_in(wanted.at, wanted.sectors);
                    let right;
                    if stored.is_some_and(|stored| lost.is_some() || !wanted.is_right(stored)) {
                        let is_right = |bytes: &[u8]| wanted.is_right(bytes);
                        right = read_right(&self.fs.device, wanted.at, wanted.sectors, is_right).await;
                        if right.is_some() {
                            (stored, lost) = (right.as_deref(), None);
                        }
                    }
                    let taken = match (stored, lost) {
                        (Some(_), Some(error)) => Err(FsError::Device(error.clone())),
                        (Some(stored), None) => self.take(wanted, stored, &mut next),
                        (None, _) => {
                            Err(FsError::corrupt("inode map", wanted.at, "it leads past the end of the device"))
                        }
                    };
                    taken.or_else(|error| self.problem(error))?;
                }
            }
        }
        Ok(next)
    }

    fn take(&self, wanted: &Wanted, stored: &[u8], next: &mut Vec<Wanted>) -> FsResult<()> {
        match wanted.what {
            WantedKind::Inode(ino, slot) => self.take_inode(ino, slot, stored, next),
            WantedKind::Node(id, crc) => self.take_node(id, wanted.at, crc, stored, next),
            WantedKind::Parts(ino, crc) => self.take_parts(ino, wanted.at, crc, stored),
        }
    }

    fn take_inode(&self, ino: Ino, slot: InodeSlot, stored: &[u8], next: &mut Vec<Wanted>) -> FsResult<()> {
        let inode = Inode::unseal(&stored[slot.offset()..]).filter(|inode| inode.ino == ino.0);
        let Some(inode) = inode else {
            let place = format_args!("sector {}", slot.sector());
            // Names still point to it; a lookup of one gets an error.
            return Err(FsError::corrupt("inode", place, format_args!("it is not inode {ino}, or damaged")));
        };
        {
            let mut guard = self.fs.state.borrow_mut();
            let state = &mut *guard;
            let cell = state.log.cell_of(slot);
            if !state.log.cells.contains_key(&cell) {
                let occupied = state.log.store.occupy_cell(cell);
                occupied.map_err(|why| FsError::corrupt("inode map", format_args!("inode {ino}, cell {cell}"), why))?;
            }
            state.log.count_slot(slot);
            state.inode_count += 1;
            state.generation = state.generation.max(inode.generation.into());
            state.log.counters.recovery_inodes += 1;
            if inode.links == 0 || inode.flags & INODE_CUT != 0 {
                cover("vlfs: a mount finds an orphan");
                state.log.orphans.insert(ino);
            }
        }
        if !inode.is_inline() {
            for slot in 0..POINTERS_IN_INODE {
                let id = BlockId { ino, key: root_key(slot) };
                let taken = self.take_pointer(id, inode.pointer(slot), next);
                taken.or_else(|error| self.problem(error))?;
            }
        }
        match inode.xattr_pointer() {
            Some(Pointer::Hole) => Ok(()),
            Some(Pointer::Mapped { at, sectors, crc }) => {
                self.occupy(at, BlockId { ino, key: ATTRIBUTES }, format_args!("attributes of inode {ino}"))?;
                if u64::from(sectors) > BLOCK_SECTORS {
                    next.push(Wanted { at, sectors: BLOCK_SECTORS, what: WantedKind::Parts(ino, crc) });
                }
                Ok(())
            }
            _ => Err(FsError::corrupt("inode", ino, "its pointer to extended attributes makes no sense")),
        }
    }

    fn take_pointer(&self, id: BlockId, pointer: Option<Pointer>, next: &mut Vec<Wanted>) -> FsResult<()> {
        match pointer {
            Some(Pointer::Hole) => Ok(()),
            Some(Pointer::Unwritten) => {
                self.fs.state.borrow_mut().unwritten_bytes += BLOCK_BYTES as u64;
                Ok(())
            }
            Some(Pointer::Mapped { at, sectors, crc }) if u64::from(sectors) == BLOCK_SECTORS => {
                self.occupy(at, id, format_args!("{id:?}"))?;
                if !id.key.is_data() {
                    next.push(Wanted { at, sectors: BLOCK_SECTORS, what: WantedKind::Node(id, crc) });
                }
                Ok(())
            }
            _ => Err(FsError::corrupt("block pointer", format_args!("{id:?}"), "its bits make no sense")),
        }
    }

    fn take_node(&self, id: BlockId, at: Sector, crc: u32, stored: &[u8], next: &mut Vec<Wanted>) -> FsResult<()> {
        self.fs.state.borrow_mut().log.counters.recovery_indirect_blocks += 1;
        if codec::crc32c(stored) != crc {
            return Err(FsError::corrupt("block", format_args!("{id:?}, sector {at}"), "its checksum does not match"));
        }
        for slot in 0..POINTERS_PER_BLOCK {
            let child = BlockId { ino: id.ino, key: id.key.child(slot) };
            let taken = self.take_pointer(child, pointer_in_block(stored, slot), next);
            taken.or_else(|error| self.problem(error))?;
        }
        Ok(())
    }

    fn take_parts(&self, ino: Ino, at: Sector, crc: u32, stored: &[u8]) -> FsResult<()> {
        let parts = Some(stored).filter(|stored| codec::crc32c(stored) == crc).and_then(parts_from_block);
        let Some(parts) = parts else {
            let place = format_args!("inode {ino}, sector {at}");
            return Err(FsError::corrupt("extended attributes", place, "the list of their parts is damaged"));
        };
        for part in parts {
            if let Pointer::Mapped { at, .. } = part {
                self.occupy(at, BlockId { ino, key: ATTRIBUTES }, format_args!("attributes of inode {ino}"))?;
            }
        }
        Ok(())
    }

    /// R1.
    fn occupy(&self, at: Sector, owner: BlockId, what: std::fmt::Arguments<'_>) -> FsResult<()> {
        let block = u32::try_from(at.0 / BLOCK_SECTORS).unwrap_or(u32::MAX);
        let occupied = match at.0.is_multiple_of(BLOCK_SECTORS) {
            true => self.fs.state.borrow().log.store.occupy_block(block),
            false => Err("a block cannot begin there"),
        };
        occupied.map_err(|why| FsError::corrupt("block pointer", format_args!("{what}, sector {at}"), why))?;
        self.fs.state.borrow_mut().log.owners.set(block, owner);
        Ok(())
    }
}
