//! File contents and attributes: read, write, truncate, allocate, seek, as steps on the volume.

use std::ops::Range;

use super::change::Change;
use super::demand::ReserveAccess;
use super::format::*;
use super::read_ahead::ReadSpan;
use super::state::*;
use super::tree::*;
use super::xattr::drop_capabilities;
use super::{LogBackend, xattr};
use crate::device::Data;
use crate::fs::{
    AllocateMode, Attr, FileKind, FileRange, FsError, SeekTo, SetAttr, SetTime, WriteMode, mode_with,
    without_privileges,
};
use crate::units::{Ino, SECTOR_BYTES, Sector};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Most blocks that one step of freeing or allocating visits, so that other operations get their turn.
pub(in crate::fs) const BLOCKS_PER_STEP: u64 = 4 * POINTERS_PER_BLOCK as u64;

/// A run of blocks that one device request can read.
#[derive(Clone, Debug)]
pub(in crate::fs) struct ReadExtent {
    pub at: Sector,
    pub sectors: u64,
    /// Its blocks, in order.
    pub blocks: Vec<ReadBlock>,
}

/// A block that is read from the log.
#[derive(Clone, Copy, Debug)]
pub(in crate::fs) struct ReadBlock {
    /// Its index in the file.
    pub index: u64,
    pub sectors: u8,
    pub crc: u32,
}

impl ReadBlock {
    pub(super) fn bytes(self) -> usize {
        usize::from(self.sectors) * SECTOR_BYTES as usize
    }
}

/// A part of what a read returns.
#[derive(Clone, Debug)]
pub(in crate::fs) enum ReadPiece {
    Ready(Data),
    /// Bytes `from..to` of a block that is in extent `extent`.
    FromExtent {
        extent: usize,
        block: usize,
        from: usize,
        to: usize,
    },
}

impl ReadPiece {
    /// Its length.
    fn bytes(&self) -> usize {
        match self {
            ReadPiece::Ready(data) => data.len(),
            ReadPiece::FromExtent { from, to, .. } => to - from,
        }
    }
}

/// The plan of a read: its extents, and the parts of its result.
#[derive(Default, Debug)]
pub(in crate::fs) struct ReadPlan {
    pub pieces: Vec<ReadPiece>,
    pub extents: Vec<ReadExtent>,
    /// A task is reading some of these blocks ahead: wait for it, and plan again.
    pub waits: bool,
    /// None when nothing is to be read.
    pub span: Option<ReadSpan>,
}

fn regular<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino) -> Step<Inode> {
    let inode = *change.inode(ino)?;
    match kind_of(&inode)? {
        FileKind::Regular => Ok(inode),
        FileKind::Directory => fail(FsError::IsDirectory),
        _ => fail(FsError::Invalid("not a regular file")),
    }
}

/// The largest extent that is read with one request.
const EXTENT_BYTES_MAX: u64 = 1 << 20;

/// Plans a read of up to `bytes` at `offset`. With `ahead`, if the caller reads in order and the device has to read
/// anyway, the plan includes blocks behind these that need no request of their own.
pub(in crate::fs) fn plan_read<L: LogBackend>(
    state: &mut State<L>,
    ino: Ino,
    offset: u64,
    bytes: u64,
    ahead: bool,
) -> Step<ReadPlan> {
    let mut change = Change::new(state);
    let inode = regular(&mut change, ino)?;
    let end = inode.size.min(offset.saturating_add(bytes));
    let mut plan = ReadPlan::default();
    if offset >= end {
        return Ok(plan);
    }
    let (first, last) = (offset / BLOCK, (end - 1) / BLOCK);
    for index in first..=last {
        let from = (offset.max(index * BLOCK) - index * BLOCK) as usize;
        let to = (end.min((index + 1) * BLOCK) - index * BLOCK) as usize;
        let piece = plan_block(&mut change, &mut plan.extents, ino, index, true)?;
        plan.pieces.push(match piece {
            Planned::Data(data) => ReadPiece::Ready(data.slice(from..to)),
            Planned::Hole => ReadPiece::Ready(Data::zeroes(to - from)),
            Planned::Read { extent, block } => {
                plan.waits |= change.state.read_ahead.is_in_flight(ino, index);
                ReadPiece::FromExtent { extent, block, from, to }
            }
        });
    }
    debug_assert_eq!(
        plan.pieces.iter().map(ReadPiece::bytes).sum::<usize>() as u64,
        end - offset,
        "the pieces of a read are all of it"
    );
    let file_end = inode.size.div_ceil(BLOCK);
    let mut ahead_end = last + 1;
    if ahead && !plan.waits && !plan.extents.is_empty() {
        let cache_blocks = change.state.volume.cache_bytes / BLOCK;
        let behind = change.state.read_ahead.blocks_behind(ino, offset, last + 1 - first, cache_blocks);
        for index in last + 1..file_end.min(last + 1 + behind) {
            // A block that is cached, being read, a hole, or not adjacent ends the read-ahead, and so does one whose
            // pointer would need another read.
            if change.state.read_ahead.is_in_flight(ino, index) {
                break;
            }
            match plan_block(&mut change, &mut plan.extents, ino, index, false) {
                Ok(Planned::Read { .. }) => ahead_end = index + 1,
                _ => break,
            }
        }
    }
    plan.span = Some(ReadSpan { ino, offset, end, blocks_start: first, blocks_end: last + 1, ahead_end, file_end });
    Ok(plan)
}

/// Plans to read those of `blocks` that are not in memory.
pub(in crate::fs) fn plan_ahead<L: LogBackend>(
    state: &mut State<L>,
    ino: Ino,
    blocks: Range<u64>,
) -> Step<Vec<ReadExtent>> {
    let mut change = Change::new(state);
    let inode = regular(&mut change, ino)?;
    let mut extents = Vec::new();
    for index in blocks.start..blocks.end.min(inode.size.div_ceil(BLOCK)) {
        plan_block(&mut change, &mut extents, ino, index, true)?;
    }
    Ok(extents)
}

enum Planned {
    Data(Data),
    Hole,
    Read { extent: usize, block: usize },
}

fn plan_block<L: LogBackend>(
    change: &mut Change<'_, L>,
    extents: &mut Vec<ReadExtent>,
    ino: Ino,
    index: u64,
    fresh: bool,
) -> Step<Planned> {
    let id = BlockId::data(ino, index);
    if let Some(data) = change.state.blocks.get(id) {
        return Ok(Planned::Data(data.clone()));
    }
    let Pointer::Mapped { at, sectors, crc } = change.pointer(id)? else { return Ok(Planned::Hole) };
    let block = ReadBlock { index, sectors, crc };
    let goes_on = extents.last().is_some_and(|extent| {
        extent.at + extent.sectors == at && (extent.sectors + u64::from(sectors)) * SECTOR_BYTES <= EXTENT_BYTES_MAX
    });
    match extents.last_mut() {
        Some(extent) if goes_on => {
            extent.sectors += u64::from(sectors);
            extent.blocks.push(block);
        }
        _ if fresh => extents.push(ReadExtent { at, sectors: sectors.into(), blocks: vec![block] }),
        _ => return Ok(Planned::Hole),
    }
    let extent = extents.len() - 1;
    Ok(Planned::Read { extent, block: extents[extent].blocks.len() - 1 })
}

/// Stores `data` at `offset`.
pub(in crate::fs) fn write<L: LogBackend>(
    state: &mut State<L>,
    ino: Ino,
    offset: u64,
    data: &Data,
    mode: WriteMode,
) -> Step<()> {
    let mut change = Change::new(state);
    let inode = regular(&mut change, ino)?;
    let end = match offset.checked_add(data.len() as u64) {
        Some(end) if end <= FILE_BYTES_MAX => end,
        _ => return fail(FsError::FileTooLarge),
    };
    if data.is_empty() {
        return Ok(());
    }
    wait_for_reclaim(&change, ino, end)?;
    drop_capabilities(&mut change, ino)?;
    let is_shared = is_shareable(&change, offset, data);
    for index in offset / BLOCK..=(end - 1) / BLOCK {
        let block_start = index * BLOCK;
        let (from, to) = (offset.max(block_start), end.min(block_start + BLOCK));
        let source = &data[(from - offset) as usize..(to - offset) as usize];
        let (from, to) = ((from - block_start) as usize, (to - block_start) as usize);
        let id = BlockId::data(ino, index);
        if from == 0 && to == BLOCK_BYTES && is_shared {
            let start = (block_start - offset) as usize;
            change.replace_block(id, data.slice(start..start + BLOCK_BYTES))?;
            continue;
        }
        // Bytes past the end of the file are zero in every block, so a block there need not be read.
        if (from == 0 && to == BLOCK_BYTES) || block_start >= inode.size {
            let mut whole = crate::device::Buf::dirty(BLOCK_BYTES);
            whole[..from].fill(0);
            whole[from..to].copy_from_slice(source);
            whole[to..].fill(0);
            change.replace_block(id, whole.freeze())?;
        } else {
            change.block_mut(id)?[from..to].copy_from_slice(source);
        }
    }
    let now = change.now();
    let inode = change.inode_mut(ino, InodeDirt::Own)?;
    inode.size = inode.size.max(end);
    inode.set_mtime(now);
    inode.set_ctime(now);
    if mode.kill_privileges {
        kill_privileges(inode);
    }
    change.commit(ReserveAccess::User)
}

/// Whether the blocks that `data` covers as a whole are kept as slices of it, without a copy: when little else is kept in
/// memory with them, and none of them is already there. So the blocks of one buffer are neighbours in one file.
fn is_shareable<L: LogBackend>(change: &Change<'_, L>, offset: u64, data: &Data) -> bool {
    let (first, end) = (offset.div_ceil(BLOCK), (offset + data.len() as u64) / BLOCK);
    if end <= first {
        return false;
    }
    let Some(spare_bytes) = data.pinned_bytes().checked_sub(((end - first) * BLOCK) as usize) else {
        return true; // Zeroes, which take no memory.
    };
    // A quarter is what a buffer of three blocks takes beside them.
    let is_dense = spare_bytes * 4 <= data.pinned_bytes();
    is_dense && !change.state.blocks.has_buffer_of(data)
}

fn kill_privileges(inode: &mut Inode) {
    inode.mode = mode_with(inode.mode, without_privileges(inode.mode));
}

/// While blocks past the end are being freed, the file cannot grow over them.
fn wait_for_reclaim<L: LogBackend>(change: &Change<'_, L>, ino: Ino, end: u64) -> Step<()> {
    match change.state.inodes.get(&ino) {
        Some(known) if known.reclaiming && end > known.inode.size => need(Wait::Reclaim(ino)),
        _ => Ok(()),
    }
}

/// Attributes after a change of them.
pub(in crate::fs) struct ChangedAttr {
    pub attr: Attr,
    /// Blocks past the end still have to be freed.
    pub must_reclaim: bool,
}

/// Changes attributes.
pub(in crate::fs) fn setattr<L: LogBackend>(state: &mut State<L>, ino: Ino, changes: &SetAttr) -> Step<ChangedAttr> {
    let mut change = Change::new(state);
    change.inode(ino)?;
    if changes.size.is_some() || changes.uid.is_some() || changes.gid.is_some() {
        drop_capabilities(&mut change, ino)?;
    }
    let mut must_reclaim = false;
    let mut access = ReserveAccess::User;
    if let Some(size) = changes.size {
        let inode = regular(&mut change, ino)?;
        if size > FILE_BYTES_MAX {
            return fail(FsError::FileTooLarge);
        }
        wait_for_reclaim(&change, ino, size)?;
        // Also the same size frees what is reserved past it, as on ext4 and XFS.
        if size < inode.size || size == inode.size && reserves_past_end(&mut change, ino, &inode)? {
            must_reclaim = truncate(&mut change, ino, &inode, size)?;
            if must_reclaim || change.unmaps(ino) {
                access = ReserveAccess::FreesSpace;
            }
        }
        let now = change.now();
        let inode = change.inode_mut(ino, InodeDirt::Own)?;
        inode.size = size;
        inode.set_mtime(now);
        inode.set_ctime(now);
    }
    let now = change.now();
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::At(time) => time,
    };
    if changes.kill_privileges {
        kill_privileges(change.inode_mut(ino, InodeDirt::Own)?);
    }
    if let Some(permissions) = changes.permissions {
        xattr::chmod(&mut change, ino, permissions)?;
    }
    let inode = change.inode_mut(ino, InodeDirt::Own)?;
    inode.uid = changes.uid.unwrap_or(inode.uid);
    inode.gid = changes.gid.unwrap_or(inode.gid);
    if let Some(atime) = changes.atime {
        inode.set_atime(time(atime));
    }
    if let Some(mtime) = changes.mtime {
        inode.set_mtime(time(mtime));
    }
    inode.set_ctime(changes.ctime.unwrap_or(now));
    change.commit(access)?;
    Ok(ChangedAttr { attr: state.attr(ino)?, must_reclaim })
}

/// Truncates the file to `size`: zeroes the rest of the last block, and unmaps the blocks behind it if there are few.
/// Returns true when there are many; then the inode is marked, and on the list of orphans, until they are freed.
fn truncate<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino, inode: &Inode, size: u64) -> Step<bool> {
    debug_assert!(size <= inode.size, "a file that is truncated does not get longer");
    let within = (size % BLOCK) as usize;
    if within > 0 && size < inode.size {
        let id = BlockId::data(ino, size / BLOCK);
        if change.block_exists(id)? {
            change.block_mut(id)?[within..].fill(0);
        }
    }
    let (first, end) = (size.div_ceil(BLOCK), inode.size.div_ceil(BLOCK));
    if first == end && !reserves_past_end(change, ino, inode)? {
        return Ok(false);
    }
    // Reserved space past the old end goes too, as POSIX requires for allocated files.
    let end = if inode.bytes_used > 0 { end.max(last_mapped_bound(change, inode)) } else { end };
    if end - first.min(end) <= DIRECT_POINTERS as u64 && end <= DIRECT_POINTERS as u64 {
        for index in first..end {
            change.unmap(BlockId::data(ino, index))?;
        }
        return Ok(false);
    }
    change.set_reclaiming(ino, true)?;
    change.add_orphan(ino)?;
    Ok(true)
}

/// Whether blocks past the end are mapped, as an allocation that keeps the size leaves them, or indirect blocks are there for them.
fn reserves_past_end<L: LogBackend>(change: &mut Change<'_, L>, ino: Ino, inode: &Inode) -> Step<bool> {
    if inode.is_inline() || inode.bytes_used == 0 {
        return Ok(false);
    }
    let (first, end) = (inode.size.div_ceil(BLOCK), last_mapped_bound(change, inode));
    let mut index = first;
    while index < end {
        let id = BlockId::data(ino, index);
        // An indirect block that lies behind the end as a whole goes, too, also when all below it was punched: so the search ends.
        let mut key = id.key;
        while let Holder::Node(node, _) = key.holder()
            && node.span().0 >= first
        {
            if change.block_exists(BlockId { ino, key: node })? {
                return Ok(true);
            }
            key = node;
        }
        if change.pointer(id)? != Pointer::Hole {
            return Ok(true);
        }
        let (exists, next) = exists_or_skip(change, id)?;
        if exists {
            return Ok(true);
        }
        index = next;
    }
    Ok(false)
}

/// First block past the last one that can be mapped, judged by the top of the tree alone.
fn last_mapped_bound<L: LogBackend>(change: &Change<'_, L>, inode: &Inode) -> u64 {
    let used = |slot: usize| {
        let root = BlockId { ino: Ino(inode.ino), key: root_key(slot) };
        inode.pointer(slot) != Some(Pointer::Hole) || change.state.blocks.peek(root).is_some()
    };
    (0..POINTERS_IN_INODE).rev().find(|&slot| used(slot)).map_or(0, |slot| root_key(slot).span().1)
}

/// One step of freeing the blocks past the end of a file, or all of a file that has neither links nor users. Returns
/// true when everything is freed.
pub(in crate::fs) fn reclaim_step<L: LogBackend>(state: &mut State<L>, ino: Ino) -> Step<bool> {
    let mut change = Change::new(state);
    let inode = *change.inode(ino)?;
    let gone = inode.links == 0 && !change.state.in_use(ino);
    if !gone && !change.state.inodes.get(&ino).is_some_and(|known| known.reclaiming) {
        return Ok(true); // Another task has done it, and what is past the end now is what a user has allocated since.
    }
    let keep = if gone { 0 } else { inode.size.div_ceil(BLOCK) };
    let is_inline = inode.is_inline();
    let mut budget = BLOCKS_PER_STEP;
    if !is_inline {
        let has_cached = change.state.blocks.has_file(ino);
        for slot in (0..POINTERS_IN_INODE).rev() {
            if !has_cached && inode.pointer(slot) == Some(Pointer::Hole) {
                continue;
            }
            let key = root_key(slot);
            if !free_below(&mut change, BlockId { ino, key }, keep, &mut budget)? {
                change.commit(ReserveAccess::FreesSpace)?;
                return Ok(false);
            }
        }
    }
    if gone {
        change.free_inode(ino)?;
    } else {
        change.set_reclaiming(ino, false)?;
        if inode.links > 0 {
            change.remove_orphan(ino)?;
        }
    }
    change.commit(ReserveAccess::FreesSpace)?;
    Ok(true)
}

/// The block that slot `slot` of an inode points to.
pub(in crate::fs) fn root_key(slot: usize) -> BlockKey {
    if slot < DIRECT_POINTERS {
        BlockKey::data(slot as u64)
    } else {
        let tree = slot - DIRECT_POINTERS + 1;
        BlockKey::node(tree, tree, 0)
    }
}

/// Unmaps the data blocks from `keep` on below `id`, from the last one backwards, and the indirect blocks that become
/// empty. Returns false when the budget of blocks is used up, or before more is read: one path of indirect blocks in memory is enough,
/// however many the file has.
fn free_below<L: LogBackend>(change: &mut Change<'_, L>, id: BlockId, keep: u64, budget: &mut u64) -> Step<bool> {
    let (first, end) = id.key.span();
    if end <= keep {
        return Ok(true);
    }
    if *budget == 0 {
        return Ok(false);
    }
    *budget -= 1;
    if id.key.is_data() {
        change.unmap(id)?;
        return Ok(true);
    }
    let block = match change.block(id) {
        Err(Stop::Need(_)) if change.unmaps(id.ino) => return Ok(false),
        block => block?,
    };
    let Some(block) = block else { return Ok(true) };
    for slot in (0..POINTERS_PER_BLOCK).rev() {
        let child = BlockId { ino: id.ino, key: id.key.child(slot) };
        let mapped = pointer_in_block(&block, slot) != Some(Pointer::Hole);
        let in_memory = change.state.blocks.peek(child).is_some();
        if (mapped || in_memory) && !free_below(change, child, keep, budget)? {
            return Ok(false);
        }
    }
    if first >= keep {
        change.unmap(id)?;
    }
    Ok(true)
}

/// Allocates, punches or zeroes one part of `range`, beginning at its start. Returns the offset up to which it is done;
/// the caller continues there.
pub(in crate::fs) fn fallocate_step<L: LogBackend>(
    state: &mut State<L>,
    ino: Ino,
    range: FileRange,
    mode: AllocateMode,
) -> Step<u64> {
    let mut change = Change::new(state);
    let inode = regular(&mut change, ino)?;
    let end = match range.offset.checked_add(range.bytes) {
        Some(end) if end <= FILE_BYTES_MAX => end,
        _ => return fail(FsError::FileTooLarge),
    };
    if range.bytes == 0 {
        return fail(FsError::Invalid("a range of no bytes"));
    }
    let grows = !matches!(mode, AllocateMode::PunchHole);
    if grows {
        wait_for_reclaim(&change, ino, end)?;
        // Fail at once when the request cannot succeed, rather than fill the volume first.
        let state = &*change.state;
        let fits = |used: u64| {
            let has_it = range.bytes <= inode.bytes_used;
            has_it || used + (range.bytes - inode.bytes_used) <= state.volume.capacity_bytes
        };
        if !fits(L::used_bytes(state)) {
            return match fits(state.used_after_frees()) {
                true => need(Wait::LastRoom),
                false => fail(FsError::NoSpace),
            };
        }
    }
    drop_capabilities(&mut change, ino)?;
    let first = range.offset / BLOCK;
    let last = (end - 1) / BLOCK;
    let punch_end = if grows { end } else { end.min(inode.size.next_multiple_of(BLOCK)) };
    let mut index = first;
    for _ in 0..BLOCKS_PER_STEP {
        if index > last {
            break;
        }
        let id = BlockId::data(ino, index);
        if !grows && change.pointer(id)? == Pointer::Hole {
            // Where there is nothing, an empty file of the largest size has billions of blocks.
            let (exists, next) = exists_or_skip(&mut change, id)?;
            if !exists {
                index = next;
                continue;
            }
        }
        let (start, block_end) = (index * BLOCK, (index + 1) * BLOCK);
        let has_end = start < inode.size && end >= inode.size;
        let whole = range.offset <= start && (end >= block_end || (has_end && !grows));
        match mode {
            AllocateMode::Allocate { .. } => {
                change.reserve(id)?;
            }
            AllocateMode::PunchHole | AllocateMode::Zero { .. } if whole => {
                change.unmap(id)?;
                if grows {
                    change.reserve(id)?;
                }
            }
            AllocateMode::PunchHole | AllocateMode::Zero { .. } => {
                if change.block_exists(id)? {
                    let from = (range.offset.max(start) - start) as usize;
                    let to = (punch_end.min(block_end).max(start) - start) as usize;
                    if from < to {
                        change.block_mut(id)?[from..to].fill(0);
                    }
                } else if grows {
                    change.reserve(id)?;
                }
            }
        }
        index += 1;
    }
    let done = if index > last { end } else { index * BLOCK };
    debug_assert!(
        done > range.offset && done <= end,
        "each part of an allocation makes progress, and stays in its range"
    );
    let now = change.now();
    let inode = change.inode_mut(ino, InodeDirt::Own)?;
    let keep_size = match mode {
        AllocateMode::Allocate { keep_size } | AllocateMode::Zero { keep_size } => keep_size,
        AllocateMode::PunchHole => true,
    };
    if !keep_size {
        inode.size = inode.size.max(done);
    }
    inode.set_mtime(now);
    inode.set_ctime(now);
    let frees = !grows && change.unmaps(ino);
    change.commit(if frees { ReserveAccess::FreesSpace } else { ReserveAccess::User })?;
    Ok(done)
}

/// Searches for data or a hole from `offset` on.
pub(in crate::fs) fn seek_step<L: LogBackend>(
    state: &mut State<L>,
    ino: Ino,
    offset: u64,
    seek: SeekTo,
) -> Step<Searched> {
    let mut change = Change::new(state);
    let inode = regular(&mut change, ino)?;
    if offset >= inode.size {
        return fail(FsError::NoSuchOffset);
    }
    let end = inode.size.div_ceil(BLOCK);
    let mut index = offset / BLOCK;
    for _ in 0..BLOCKS_PER_STEP {
        if index >= end {
            return match seek {
                SeekTo::Hole => Ok(Searched::Found(inode.size)),
                SeekTo::Data => fail(FsError::NoSuchOffset),
            };
        }
        let (is_data, next) = data_or_skip(&mut change, ino, index)?;
        if is_data == (seek == SeekTo::Data) {
            return Ok(Searched::Found(offset.max(index * BLOCK)));
        }
        debug_assert!(next > index, "a search makes progress");
        index = next;
    }
    Ok(Searched::Until((index * BLOCK).min(inode.size - 1).max(offset)))
}

/// Whether the block is data, and the next block that may differ: a hole as large as an indirect block covers is
/// skipped at once.
pub(in crate::fs) fn data_or_skip<L: LogBackend>(
    change: &mut Change<'_, L>,
    ino: Ino,
    index: u64,
) -> Step<(bool, u64)> {
    exists_or_skip(change, BlockId::data(ino, index))
}

/// Whether the block exists, and the first data block that may exist after it: where the block is missing, everything
/// below the highest missing block above it is skipped.
pub(in crate::fs) fn exists_or_skip<L: LogBackend>(change: &mut Change<'_, L>, mut id: BlockId) -> Step<(bool, u64)> {
    let mut next = id.key.span().1;
    if change.block_exists(id)? {
        return Ok((true, next));
    }
    while let Holder::Node(node, _) = id.key.holder() {
        id.key = node;
        if change.block_exists(id)? {
            break;
        }
        next = node.span().1;
    }
    Ok((false, next))
}
