//! Creates a virtual log disk, and recovers its map.
//!
//! The tail is where the anchor says, if the device was parked; otherwise it is the youngest piece that completes a
//! transaction and lies in the anchor's window, or the tail that the anchor names, if there is none. From the tail the
//! pieces are visited by age. So recovery reads a bounded amount: two slots of the anchor, one window, and every live
//! piece once. When an anchor is damaged, the window is the whole device.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::append::AppendLog;
use super::arms::Arms;
use super::core::{Core, Counts, State};
use super::format::{
    ABOVE_AT, ANCHORS, Anchor, FIXED_BYTES, FIXED_SECTORS, Key, NUMBER_MAX, OPEN, PARKED, Piece, RawPointer, Record,
    SUPERBLOCK, Superblock,
};
use super::landmarks;
use super::layout::{Layout, MapLog, Plan, back_sector, ring_cells};
use super::map_state::{MapState, TreeLog};
use super::options::{CommitUse, Options, Recovery, VldError};
use super::space::Space;
use super::tracks::Tracks;
use super::tree::Tree;
use crate::device::rescue::{rescue, rescue_as, rescue_right};
use crate::device::{Buf, Data, Device, DeviceError, WriteFlags, read_checked};
use crate::rt::{Event, Gate, Rt, cover};
use crate::units::{MIB, Nanos, SECTOR_BYTES, Sector};

/// Bytes per read while a window is searched.
const SCAN_BYTES: u64 = MIB;

/// Concurrent reads of pieces. More than any drive queues.
const READS_AT_ONCE: usize = 32;

/// Contents of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    pub uuid: [u8; 16],
    pub bytes: u64,
    pub block_bytes: u32,
    pub cell_bytes: u32,
    pub map_log: MapLog,
    pub pieces: u32,
    pub entries_per_piece: u32,
    /// Number of snapshots that there is room for.
    pub snapshots: u32,
    /// True when the tail is found without a search; an append-only log always is.
    pub is_parked: bool,
}

/// Looks for a virtual log disk on a device; `None` when there is none.
///
/// # Errors
/// When the device cannot be read, or holds a damaged one.
pub async fn probe(device: &Device) -> Result<Option<Info>, VldError> {
    let superblock = match superblocks_of_blocks(device).await {
        Ok(found) => found.superblock,
        Err(VldError::Nothing) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (anchor, is_whole) = newest_anchor(device, &superblock).await?;
    let is_parked = is_whole && anchor.is_some_and(|anchor| anchor.state == PARKED);
    let layout = layout_of(superblock)?;
    Ok(Some(Info {
        uuid: superblock.uuid,
        bytes: u64::from(layout.offered()) * u64::from(superblock.block_bytes),
        block_bytes: superblock.block_bytes,
        cell_bytes: superblock.cell_bytes,
        map_log: layout.map_log,
        pieces: layout.pieces,
        entries_per_piece: layout.entries_per_piece,
        snapshots: layout.snapshots,
        is_parked: layout.map_log == MapLog::Append || is_parked,
    }))
}

pub(super) fn layout_of(superblock: Superblock) -> Result<Layout, VldError> {
    Layout::new(superblock).ok_or(VldError::Corrupt {
        what: "superblock",
        at: Sector(SUPERBLOCK),
        why: "its numbers do not fit each other".to_string(),
    })
}

/// Writes superblocks, anchors, and an empty log.
pub(super) async fn format(device: &Device, plan: &Plan) -> Result<Superblock, VldError> {
    let superblock = Layout::plan(device.geometry(), plan)?;
    let around = landmarks::choose(device, superblock);
    format_as(device, Layout::plan_around(device.geometry(), plan, &around)?, &[]).await
}

/// The same with a given superblock, and in it the record of the owner above.
pub(super) async fn format_as(device: &Device, superblock: Superblock, above: &[u8]) -> Result<Superblock, VldError> {
    let layout = layout_of(superblock)?;
    let write = async |at: u64, block: Vec<u8>| {
        device.write(Sector(at), Data::from_slice(&block), WriteFlags::NONE).await.map_err(VldError::Device)
    };
    // First invalidates any old device, so that a power cut before the new one is complete leaves none.
    for at in layout.superblocks() {
        write(at, vec![0; FIXED_BYTES]).await?;
    }
    device.flush().await?;
    let anchor = Anchor {
        magic: super::format::ANCHOR_MAGIC,
        crc: 0,
        state: PARKED,
        uuid: superblock.uuid,
        generation: 1,
        tail_sequence: 0,
        tail_cell: 0,
        window_start: 0,
        window_blocks: 0,
    };
    for (slot, at) in ANCHORS.into_iter().enumerate() {
        write(at, Anchor { generation: slot as u64, ..anchor }.to_block()).await?;
    }
    if layout.map_log == MapLog::Append {
        // Records and checkpoints of an earlier device have another key; they are erased nevertheless.
        let start = layout.cell_sector(superblock.region_start);
        let bytes = superblock.region_cells * u64::from(superblock.cell_bytes);
        let step = SCAN_BYTES.min(u64::from(device.geometry().request_bytes_max));
        for from in (0..bytes).step_by(step as usize) {
            let zeroes = Data::zeroes(step.min(bytes - from) as usize);
            device.write(start + from / SECTOR_BYTES, zeroes, WriteFlags::NONE).await?;
        }
    }
    landmarks::set(device, &layout).await?;
    device.flush().await?;
    let [front, back] = layout.superblocks();
    write(back, superblock.to_block_with(above)).await?;
    device.flush().await?;
    write(front, superblock.to_block_with(above)).await?;
    device.flush().await?;
    Ok(superblock)
}

/// Both superblocks, as read.
pub(super) struct Superblocks {
    pub(super) superblock: Superblock,
    /// A good copy as stored on the device, with the record of the owner above.
    block: Buf,
    /// Bad copies, and what is wrong with them.
    pub(super) bad: Vec<(Sector, String)>,
}

impl Superblocks {
    pub(super) fn above(&self) -> &[u8] {
        &self.block[ABOVE_AT..]
    }

    /// What is wrong with the copies, a line each.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> + '_ {
        self.bad
            .iter()
            .map(|(at, why)| format!("the superblock at sector {at} is damaged: {why}; the other one is good"))
    }

    /// Rewrites the bad copy. The next flush makes it durable; until then, and if the write fails, the good one remains
    /// valid. Returns how many were written.
    pub(super) async fn mend(&self, device: &Device) -> u64 {
        let mut mended = 0;
        for (at, _) in &self.bad {
            let written = device.write(*at, Data::from_slice(&self.block), WriteFlags::NONE).await;
            mended += u64::from(written.is_ok());
        }
        mended
    }
}

/// The first good superblock, and which of the two is bad. One that cannot be read counts as damaged.
pub(super) async fn superblocks(device: &Device) -> Result<Superblocks, VldError> {
    let sectors = device.geometry().sectors;
    if sectors < FIXED_SECTORS {
        return Err(VldError::Nothing);
    }
    let mut why: Option<&'static str> = None;
    let mut unreadable = None;
    let mut look = async |at: u64| {
        let is_right = |block: &[u8]| Layout::read(block).is_ok();
        let mut read = rescue_right(device, Sector(at), FIXED_SECTORS, is_right).await?;
        Ok::<_, DeviceError>(match read.lost.pop() {
            Some((_, error)) => {
                let text = format!("it cannot be read: {error}");
                unreadable.get_or_insert(error);
                Err(text)
            }
            None => match Layout::read(&read.bytes) {
                Ok(superblock) if superblock.device_sectors > sectors => {
                    let text = "it is of a larger device; an image that was cut can be read when `truncate` makes it as long again";
                    why.get_or_insert(text);
                    Err(text.to_string())
                }
                Ok(superblock) => Ok((superblock, read.bytes)),
                Err(text) => {
                    why = why.or(text);
                    Err(text.unwrap_or("there is none").to_string())
                }
            },
        })
    };
    let mut looked = Vec::new();
    for at in [Some(SUPERBLOCK), back_sector(sectors)].into_iter().flatten() {
        looked.push((at, look(at).await?));
    }
    let found = looked
        .iter()
        .find_map(|(_, copy)| copy.as_ref().ok())
        .map(|(superblock, block)| (*superblock, Buf::from_slice(block)));
    let Some((superblock, block)) = found else {
        return Err(match (unreadable, why) {
            (Some(error), _) => VldError::Device(error),
            (None, None) => VldError::Nothing,
            (None, Some(why)) => VldError::Corrupt { what: "superblock", at: Sector(SUPERBLOCK), why: why.to_string() },
        });
    };
    // A device with larger blocks than the one that it was made on refuses the smallest requests.
    let smallest = u64::from(superblock.cell_bytes);
    device.geometry().check(Sector(smallest / SECTOR_BYTES), smallest)?;
    let mut bad = Vec::new();
    for at in layout_of(superblock)?.superblocks() {
        // A device that was enlarged does not have the second one at its end.
        let copy = match looked.iter().position(|(place, _)| *place == at) {
            Some(known) => looked.swap_remove(known).1,
            None => look(at).await?,
        };
        match copy {
            Ok((_, bytes)) if bytes[..] == block[..] => {}
            Ok(_) => bad.push((Sector(at), "it differs from the first one".to_string())),
            Err(text) => bad.push((Sector(at), text)),
        }
    }
    Ok(Superblocks { superblock, block, bad })
}

/// As [`superblocks`], for a device with a map of blocks.
pub(super) async fn superblocks_of_blocks(device: &Device) -> Result<Superblocks, VldError> {
    let found = superblocks(device).await?;
    // It belongs to a file system: do not read it as a disk.
    if found.superblock.is_above() { Err(VldError::Nothing) } else { Ok(found) }
}

/// The newest good anchor, and whether both slots are good. A slot is never torn, so a bad one may have been newer.
///
/// # Errors
/// When the device is gone. A slot that cannot be read counts as damaged: the search continues without it.
pub(super) async fn newest_anchor(
    device: &Device,
    superblock: &Superblock,
) -> Result<(Option<Anchor>, bool), DeviceError> {
    let mut newest: Option<Anchor> = None;
    let mut is_whole = true;
    for at in ANCHORS {
        let is_right = |block: &[u8]| Anchor::from_block(block, &superblock.uuid).is_some();
        let read = rescue_right(device, Sector(at), FIXED_SECTORS, is_right).await?;
        // All of an anchor is in its first sector.
        let readable = read.lost_in(Sector(at), 1).is_none();
        match Anchor::from_block(&read.bytes, &superblock.uuid).filter(|_| readable) {
            Some(found) => newest = newest.into_iter().chain([found]).max_by_key(|anchor| anchor.generation),
            None => is_whole = false,
        }
    }
    Ok((newest, is_whole))
}

/// Result of a recovery.
pub(super) struct RecoveredMap {
    pub(super) map: Vec<u32>,
    pub(super) log: MapState,
    /// Cells of pieces.
    pub(super) cells: Vec<u64>,
    pub(super) recovery: Recovery,
}

/// Finds the map. An unreadable place where the tail is searched may hold the tail, so going on could lose acknowledged
/// writes: that is an error, except with `read_only`, which shows the latest state that is readable.
pub(super) async fn recover(device: &Device, layout: &Layout, read_only: bool) -> Result<RecoveredMap, VldError> {
    let finder = Finder { device, layout, key: layout.superblock.key(), read_only };
    let mut found = match layout.map_log {
        MapLog::Tree => finder.tree().await?,
        MapLog::Append => finder.append().await?,
    };
    if layout.superblock.is_above() {
        return Ok(found); // The meaning of entries is unknown here.
    }
    finder.check_map(&found)?;
    found.recovery.mapped_blocks = found.map.iter().filter(|&&block| block != 0).count() as u64;
    Ok(found)
}

struct Finder<'a> {
    device: &'a Device,
    layout: &'a Layout,
    key: Key,
    read_only: bool,
}

/// A piece to visit: sequence first, so that the youngest is the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Visit {
    sequence: u64,
    index: u32,
    cell: u64,
    parent: Option<u32>,
}

impl Finder<'_> {
    fn corrupt(&self, what: &'static str, cell: u64, why: String) -> VldError {
        let at = Sector(cell.saturating_mul(self.layout.cell_sectors));
        VldError::Corrupt { what, at, why }
    }

    async fn tree(&self) -> Result<RecoveredMap, VldError> {
        let mut recovery = Recovery::default();
        let (anchor, is_whole) = newest_anchor(self.device, &self.layout.superblock).await?;
        let tail = self.tail(anchor, is_whole, &mut recovery).await?;
        let generation = anchor.map_or(1, |anchor| anchor.generation);
        let (tree, are_anchors_lost) = (Tree::new(self.layout.pieces), anchor.is_none());
        let park_is_due = !recovery.was_parked;
        let mut found = RecoveredMap {
            map: vec![0; self.layout.logical_blocks as usize],
            log: TreeLog::default().into(),
            cells: Vec::new(),
            recovery,
        };
        let mut log = TreeLog { tree, generation, are_anchors_lost, park_is_due, ..TreeLog::default() };
        if let Some(tail) = tail {
            self.check_number("tail of the log", tail.sequence, tail.cell)?;
            self.walk(&tail, &mut log.tree, &mut found).await?;
            // C4: an interrupted transaction used at most as many numbers as there are pieces.
            log.sequence = tail.sequence + u64::from(self.layout.pieces) + 1;
        }
        found.log = log.into();
        Ok(found)
    }

    /// The numbers of all that is written from now on are valid, too.
    fn check_number(&self, what: &'static str, sequence: u64, cell: u64) -> Result<(), VldError> {
        match sequence < NUMBER_MAX / 2 {
            true => Ok(()),
            false => Err(self.corrupt(what, cell, format!("it has number {sequence}, which cannot be"))),
        }
    }

    /// The tail of the log; `None` for one without a piece.
    async fn tail(
        &self,
        anchor: Option<Anchor>,
        is_whole: bool,
        recovery: &mut Recovery,
    ) -> Result<Option<Visit>, VldError> {
        let known = anchor.filter(|anchor| anchor.tail_sequence > 0);
        let parked = anchor.filter(|anchor| anchor.state == PARKED && is_whole);
        recovery.was_parked = parked.is_some();
        if parked.is_some() && known.is_none() {
            return Ok(None);
        }
        if let Some(anchor) = parked
            && let Some(piece) = self.read_piece(anchor.tail_cell).await?
            && piece.sequence == anchor.tail_sequence
            && piece.commits
        {
            cover("vlog: a parked log names its tail");
            return Ok(Some(visit(&piece, anchor.tail_cell)));
        }
        let window = match anchor {
            Some(anchor) if anchor.state == OPEN && is_whole => {
                let end = anchor.window_start.saturating_add(anchor.window_blocks);
                anchor.window_start..end.min(u64::from(self.layout.blocks))
            }
            // An anchor is damaged or wrong: search everywhere.
            _ => {
                cover("vlog: the tail is searched for everywhere");
                0..u64::from(self.layout.blocks)
            }
        };
        let youngest = self.scan(window, recovery).await?;
        match (youngest, known) {
            (Some(youngest), Some(anchor)) if youngest.sequence < anchor.tail_sequence => {
                self.anchored(anchor).await.map(Some)
            }
            (Some(youngest), _) => {
                cover("vlog: the tail is found by a search");
                Ok(Some(youngest))
            }
            (None, Some(anchor)) => self.anchored(anchor).await.map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The tail that the anchor names.
    async fn anchored(&self, anchor: Anchor) -> Result<Visit, VldError> {
        cover("vlog: the tail is the one that the anchor names");
        match self.read_piece(anchor.tail_cell).await? {
            Some(piece) if piece.sequence == anchor.tail_sequence && piece.commits => {
                Ok(visit(&piece, anchor.tail_cell))
            }
            _ => {
                let why = format!("the anchor says that number {} is the tail", anchor.tail_sequence);
                Err(self.corrupt("tail of the log", anchor.tail_cell, why))
            }
        }
    }

    /// The piece in a cell to which a pointer leads.
    async fn read_piece(&self, cell: u64) -> Result<Option<Piece>, VldError> {
        if cell >= self.layout.cells() {
            return Ok(None);
        }
        let is_right = |bytes: &[u8]| Piece::from_cell(bytes, &self.key, cell).is_some();
        let (at, sectors) = (self.layout.cell_sector(cell), self.layout.cell_sectors);
        let read = read_checked(self.device, at, sectors, is_right).await?;
        Ok(Piece::from_cell(&read, &self.key, cell))
    }

    /// The region of an append-only log is reserved, too, for the log.
    fn is_region(&self, at: Sector) -> bool {
        let start = self.layout.cell_sector(self.layout.superblock.region_start);
        let sectors = self.layout.superblock.region_cells * self.layout.cell_sectors;
        self.layout.map_log == MapLog::Append && (start..start + sectors).contains(&at)
    }

    /// Reads where the tail may be, in every reading of the device: where storage below is redundant, a place that one
    /// member has lost may still be readable. The usual reading comes first.
    async fn read_for_tail(&self, at: Sector, sectors: u64, recovery: &mut Recovery) -> Result<Vec<Buf>, VldError> {
        let mut read = rescue(self.device, at, sectors).await?;
        let mut all = Vec::new();
        for reading in (0..self.device.readings()).filter(|_| self.device.readings() > 1) {
            let Ok(other) = rescue_as(self.device, at, sectors, Some(reading)).await else { continue };
            read.lost.retain(|(range, _)| {
                let is_lost = other.lost_in(range.start, range.end - range.start).is_some();
                if !is_lost {
                    let place =
                        |sector: Sector| ((sector.0.clamp(at.0, at.0 + sectors) - at.0) * SECTOR_BYTES) as usize;
                    let own = place(range.start)..place(range.end);
                    read.bytes[own.clone()].copy_from_slice(&other.bytes[own]);
                }
                is_lost
            });
            all.push(other.bytes);
        }
        all.insert(0, read.bytes);
        // No piece is ever where superblocks and anchors are.
        let block_of = |sector: Sector| u32::try_from(sector.0 / self.layout.block_sectors).unwrap_or(u32::MAX);
        read.lost.retain(|(range, _)| !self.layout.is_reserved(block_of(range.start)) || self.is_region(range.start));
        recovery.sectors_lost += read.lost.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
        match read.lost.pop() {
            Some((_, error)) if !self.read_only => Err(VldError::Device(error)),
            _ => Ok(all),
        }
    }

    /// The youngest piece in `blocks` that completes a transaction.
    async fn scan(&self, blocks: std::ops::Range<u64>, recovery: &mut Recovery) -> Result<Option<Visit>, VldError> {
        let longest = u64::from(self.device.geometry().request_bytes_max).min(SCAN_BYTES);
        let step = (longest / u64::from(self.layout.block_bytes())).max(1);
        let bytes = self.layout.cell_bytes() as usize;
        let mut youngest: Option<Visit> = None;
        let mut at = blocks.start;
        while at < blocks.end {
            let count = step.min(blocks.end - at);
            let length = (count * u64::from(self.layout.block_bytes())) as usize;
            let first = self.layout.first_cell(at as u32);
            let start = self.layout.sector_of(at as u32);
            for read in self.read_for_tail(start, length as u64 / SECTOR_BYTES, recovery).await? {
                for (offset, cell) in read.chunks_exact(bytes).enumerate() {
                    // Most cells hold no piece; the magic number shows that without computing a seal.
                    let number = first + offset as u64;
                    if let Some(piece) = Piece::from_cell(cell, &self.key, number).filter(|piece| piece.commits) {
                        youngest = youngest.max(Some(visit(&piece, number)));
                    }
                }
            }
            recovery.blocks_scanned += count;
            at += count;
        }
        Ok(youngest)
    }

    /// Visits every live piece, youngest first: T2.
    async fn walk(&self, tail: &Visit, tree: &mut Tree, found: &mut RecoveredMap) -> Result<(), VldError> {
        let mut open: BTreeMap<Visit, ()> = BTreeMap::from([(*tail, ())]);
        let mut read: BTreeMap<Visit, Result<Option<Piece>, DeviceError>> = BTreeMap::new();
        let mut live = None;
        while let Some((next, ())) = open.pop_last() {
            if tree.node(next.index).is_some() {
                read.remove(&next);
                continue; // A younger one was seen.
            }
            if !read.contains_key(&next) {
                let ahead = open.keys().rev().filter(|visit| tree.node(visit.index).is_none());
                let ahead = ahead.filter(|visit| !read.contains_key(visit)).take(READS_AT_ONCE - 1).copied();
                let batch: Vec<Visit> = std::iter::once(next).chain(ahead).collect();
                let results = futures_util::future::join_all(batch.iter().map(|visit| self.read_raw(visit.cell))).await;
                found.recovery.pieces_read += batch.len() as u64;
                read.extend(batch.into_iter().zip(results));
            }
            let piece = match read.remove(&next) {
                Some(Ok(Some(piece))) if piece.index == next.index && piece.sequence == next.sequence => piece,
                Some(Err(error)) => return Err(VldError::Device(error)),
                _ => {
                    let range = self.layout.blocks_of_piece(next.index);
                    let why = format!(
                        "number {}, piece {} of the map, which has blocks {} to {}, is not there",
                        next.sequence,
                        next.index,
                        range.start,
                        range.end.saturating_sub(1)
                    );
                    return Err(self.corrupt("piece of the map", next.cell, why));
                }
            };
            live.get_or_insert(piece.live_pieces);
            self.take(&next, &piece, tree, found)?;
            for pointer in &piece.pointers {
                let RawPointer { sequence, cell, index } = *pointer;
                if sequence >= piece.sequence || index >= self.layout.pieces {
                    let why = format!("it points to piece {index}, number {sequence}, which cannot be");
                    return Err(self.corrupt("piece of the map", next.cell, why));
                }
                open.insert(Visit { sequence, index, cell, parent: Some(next.index) }, ());
            }
        }
        debug_assert_eq!(found.cells.len(), tree.live() as usize, "T3: each piece that lives has its cell taken");
        if live.is_some_and(|live| live != tree.live()) {
            let why = format!("it says that there are {} pieces, and {} are reached", live.unwrap_or(0), tree.live());
            return Err(self.corrupt("tail of the log", tail.cell, why));
        }
        tree.check().map_err(|why| self.corrupt("log", tail.cell, why))
    }

    async fn read_raw(&self, cell: u64) -> Result<Option<Piece>, DeviceError> {
        match self.read_piece(cell).await {
            Ok(piece) => Ok(piece),
            Err(VldError::Device(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn take(&self, visit: &Visit, piece: &Piece, tree: &mut Tree, found: &mut RecoveredMap) -> Result<(), VldError> {
        if visit.index >= self.layout.pieces {
            let why = format!("it says that it is piece {} of {}", visit.index, self.layout.pieces);
            return Err(self.corrupt("piece of the map", visit.cell, why));
        }
        if self.layout.is_reserved(self.layout.block_of(visit.cell)) {
            return Err(self.corrupt("piece of the map", visit.cell, "it is in a reserved block".to_string()));
        }
        // An older path to a piece may lead through a parent that has lost it: the first parent found has it.
        tree.found(visit.index, visit.sequence, visit.cell, visit.parent);
        found.cells.push(visit.cell);
        let range = self.layout.blocks_of_piece(visit.index);
        found.map[range.start as usize..range.end as usize].copy_from_slice(&piece.entries[..range.len()]);
        Ok(())
    }

    async fn append(&self) -> Result<RecoveredMap, VldError> {
        let mut log = AppendLog::default();
        let mut map = vec![0; self.layout.logical_blocks as usize];
        let mut recovery = Recovery { was_parked: false, ..Recovery::default() };
        let mut upto: BTreeMap<u32, u64> = BTreeMap::new();
        let region = self.region(&mut recovery).await?;
        let slots = 2 * u64::from(self.layout.pieces);
        let start = self.layout.superblock.region_start;
        let at = |cell: u64| {
            let bytes = self.layout.cell_bytes() as usize;
            let from = (cell - start) as usize * bytes;
            &region[from..from + bytes]
        };
        for cell in start..start + slots {
            let Some(piece) = Piece::from_cell(at(cell), &self.key, cell) else { continue };
            let (index, slot) = (((cell - start) / 2) as u32, ((cell - start) % 2) as u8);
            if piece.index != index || upto.get(&index).is_some_and(|&sequence| sequence >= piece.sequence) {
                continue;
            }
            upto.insert(index, piece.sequence);
            log.slots.insert(index, slot);
            let range = self.layout.blocks_of_piece(index);
            map[range.start as usize..range.end as usize].copy_from_slice(&piece.entries[..range.len()]);
            recovery.pieces_read += 1;
        }
        let mut records: BTreeMap<u64, Record> = BTreeMap::new();
        for cell in start + slots..start + slots + ring_cells(self.layout.pieces) {
            if let Some(record) = Record::from_cell(at(cell), &self.key, cell) {
                records.insert(record.sequence, record);
            }
        }
        log.sequence = upto.values().copied().max().unwrap_or(0);
        let commits: Vec<(u64, u64)> = records
            .values()
            .filter(|record| record.commits && record.transaction <= record.sequence)
            .map(|record| (record.transaction, record.sequence))
            .collect();
        for (first, last) in commits {
            // A1: a missing record of a complete transaction was overwritten, and checkpointed before that: A2.
            for record in records.range(first..=last).map(|(_, record)| record).filter(|r| r.transaction == first) {
                for &(logical, physical) in &record.changes {
                    if logical >= self.layout.logical_blocks {
                        let cell = AppendLog::ring_cell(self.layout, record.sequence);
                        let why = format!("it maps block {logical} of {}", self.layout.logical_blocks);
                        return Err(self.corrupt("record of the map log", cell, why));
                    }
                    let piece = self.layout.piece_of(logical).0;
                    if upto.get(&piece).is_none_or(|&sequence| sequence < record.sequence) {
                        map[logical as usize] = physical;
                        log.since.entry(piece).or_insert(first);
                    }
                }
            }
            log.sequence = log.sequence.max(last);
        }
        self.check_number("record of the map log", log.sequence, AppendLog::ring_cell(self.layout, log.sequence))?;
        Ok(RecoveredMap { map, log: log.into(), cells: Vec::new(), recovery })
    }

    /// The whole region of the append-only log.
    async fn region(&self, recovery: &mut Recovery) -> Result<Vec<u8>, VldError> {
        let bytes = self.layout.superblock.region_cells * u64::from(self.layout.cell_bytes());
        let start = self.layout.cell_sector(self.layout.superblock.region_start);
        let mut region = Vec::with_capacity(bytes as usize);
        while (region.len() as u64) < bytes {
            let length = SCAN_BYTES.min(bytes - region.len() as u64);
            let at = start + region.len() as u64 / SECTOR_BYTES;
            region.extend_from_slice(&self.read_for_tail(at, length / SECTOR_BYTES, recovery).await?[0]);
        }
        recovery.blocks_scanned += bytes.div_ceil(u64::from(self.layout.block_bytes()));
        Ok(region)
    }

    /// No block is mapped twice except for the same place of the disk in several snapshots; none is outside the device,
    /// and none holds a piece.
    fn check_map(&self, found: &RecoveredMap) -> Result<(), VldError> {
        let mut holders: Vec<u32> = vec![0; self.layout.blocks as usize];
        let mut problem = None;
        for &cell in &found.cells {
            holders[self.layout.block_of(cell) as usize] = u32::MAX;
        }
        for (logical, &block) in found.map.iter().enumerate().filter(|(_, block)| **block != 0) {
            let cell = self.layout.first_cell(block);
            if self.layout.is_reserved(block) {
                problem = Some((cell, format!("block {logical} is mapped to {block}, where no data may be")));
                continue;
            }
            let logical = logical as u32;
            let holder = std::mem::replace(&mut holders[block as usize], logical + 1);
            let is_shared =
                (1..u32::MAX).contains(&holder) && (holder - 1) % self.layout.span == logical % self.layout.span;
            if holder != 0 && !is_shared {
                problem = Some((cell, format!("block {block} has two uses, block {logical} is one of them")));
            }
        }
        match problem {
            None => Ok(()),
            Some((cell, why)) => Err(self.corrupt("map", cell, why)),
        }
    }
}

fn visit(piece: &Piece, cell: u64) -> Visit {
    Visit { sequence: piece.sequence, index: piece.index, cell, parent: None }
}

/// As [`recover`], with the time since `start`, when the search for the superblock began.
pub(super) async fn recover_timed(
    rt: &Rt,
    start: Nanos,
    device: &Device,
    superblock: Superblock,
    read_only: bool,
) -> Result<(Layout, RecoveredMap), VldError> {
    let layout = layout_of(superblock)?;
    if !read_only {
        landmarks::check(device, &layout).await?;
    }
    if !read_only && !device.guarantees().durable_on_completion {
        // C5. Where the last process was killed, what is read now may be in a volatile cache only.
        device.flush().await?;
    }
    let mut found = recover(device, &layout, read_only).await?;
    found.recovery.time = rt.now().saturating_sub(start);
    Ok((layout, found))
}

impl Core {
    /// The core of an opened virtual log on `below`. `fill` enters what recovery has found into the space and the state.
    pub(super) fn opened(
        rt: &Rt,
        below: Device,
        layout: Layout,
        options: Options,
        map_index: u32,
        log: MapState,
        fill: impl FnOnce(&Layout, &mut State),
    ) -> Core {
        let durable_on_completion = below.guarantees().durable_on_completion;
        let has_head = below.head().is_some();
        let commit_each_write = match options.commit {
            CommitUse::Auto => durable_on_completion || has_head,
            CommitUse::Each => true,
            CommitUse::Flush => false,
        };
        let space = Space::new(&layout, Tracks::new(&layout, below.head()));
        let mut state = State::new(&layout, space, &options);
        fill(&layout, &mut state);
        Core {
            rt: rt.clone(),
            key: layout.superblock.key(),
            arms: Arms::new(below.head().map_or(0, |head| head.arms())),
            below,
            options,
            commit_each_write,
            durable_on_completion,
            state: state.into(),
            log,
            map_index,
            snapshot_gate: Gate::new(),
            commit_gate: Gate::new(),
            provision_gate: Gate::new(),
            arrived: Event::new(),
            changed: Event::new(),
            activity: Rc::default(),
            unreadable_tracks: Default::default(),
            unreadable_blocks: Default::default(),
            counts: Counts::default(),
            layout,
        }
    }
}

/// Enters the recovered blocks and cells into the map of free space; returns the number of further references to each
/// block.
pub(super) fn occupy(map: &[u32], cells: &[u64], layout: &Layout, space: &mut Space) -> Vec<u8> {
    cells.iter().for_each(|&cell| space.take_cell(cell));
    let mut shares = vec![0; if layout.snapshots > 0 { layout.blocks as usize } else { 0 }];
    for &block in map.iter().filter(|&&block| block != 0) {
        match shares.get_mut(block as usize) {
            Some(shares) if !space.is_free(block) => *shares += 1,
            _ => space.take(block),
        }
    }
    shares
}
