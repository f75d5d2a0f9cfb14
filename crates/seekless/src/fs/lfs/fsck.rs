//! Checking a volume: everything that can be reached is read and compared with everything that is counted.
//!
//! The volume is recovered in memory, as a read-only mount would, and then walked. Nothing is written: what a
//! crash can leave behind is mended by mounting, so what this finds is damage. For what could have been lost from the
//! end of the log it looks in every segment, where a mount looks in those that are likely.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::change::Change;
use super::dir::{self, Found};
use super::format::*;
use super::layout::*;
use super::recovery;
use super::{Lfs, Options, file, xattr};
use crate::device::{Data, Device};
use crate::fs::{FileKind, FsError, FsResult};
use crate::rt::Rt;
use crate::units::{Ino, SECTOR_BYTES, counted};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsckOptions {
    /// Read all file data too, and compare it with its checksums.
    pub data: bool,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fsck {
    /// Each one is damage, said in one line.
    pub errors: Vec<String>,
    /// Errors beyond those that are listed.
    pub errors_unlisted: u64,
    /// Worth knowing, and no damage.
    pub notes: Vec<String>,
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    pub live_bytes: u64,
    pub data_blocks: u64,
}

impl Fsck {
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Errors that are listed; more are counted.
const ERRORS_MAX: usize = 100;

/// Checks the volume on `device`.
///
/// # Errors
/// Those of [`super::mount`], when the volume cannot be recovered at all. Damage that leaves a volume is in the
/// result.
pub async fn fsck(rt: Rt, device: Device, options: FsckOptions) -> FsResult<Fsck> {
    let found = recovery::find_volume(&device).await?;
    let mount_options = Options { read_only: true, cache_data: false, ..Options::default() };
    let lfs = Lfs::salvaged(rt, device, mount_options, &found, usize::MAX).await?;
    let mut check = Check {
        lfs,
        options,
        result: Fsck::default(),
        seen: BTreeMap::new(),
        live: BTreeMap::new(),
        claimed: BTreeMap::new(),
        unwritten_bytes: 0,
    };
    check.result.errors.extend(found.damaged);
    check.result.errors.extend(check.lfs.warnings.borrow().iter().cloned());
    check.result.notes.extend(found.torn);
    let replayed = check.lfs.state.borrow().counters.replayed_transactions;
    if replayed > 0 {
        check
            .result
            .notes
            .push(format!("{} since the last checkpoint will be replayed at mount", counted(replayed, "transaction")));
    }
    check.run().await?;
    Ok(check.result)
}

/// What is known of an inode after the inodes have been read.
struct Seen {
    inode: Inode,
    kind: FileKind,
    /// Names found for it.
    names: u32,
    /// Of a directory: directories found in it.
    subdirectories: u32,
    /// Of a directory: reached from the root.
    reached: bool,
}

struct Check {
    lfs: Rc<Lfs>,
    options: FsckOptions,
    result: Fsck,
    seen: BTreeMap<Ino, Seen>,
    /// Live bytes found in each segment.
    live: BTreeMap<SegmentNo, u64>,
    /// For each segment, one bit for every 256 bytes that something claims.
    claimed: BTreeMap<SegmentNo, Vec<u64>>,
    unwritten_bytes: u64,
}

impl Check {
    async fn run(&mut self) -> FsResult<()> {
        self.check_internal().await?;
        self.check_inodes().await?;
        self.check_directories().await?;
        self.check_links();
        self.check_counts();
        Ok(())
    }

    fn error(&mut self, text: impl Into<String>) {
        match self.result.errors.len() < ERRORS_MAX {
            true => self.result.errors.push(text.into()),
            false => self.result.errors_unlisted += 1,
        }
    }

    /// Passes on what ends the check, and notes what is damage.
    fn noted<T>(&mut self, result: FsResult<T>) -> FsResult<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error @ FsError::Corrupt { .. }) => {
                self.error(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Counts bytes of the log as alive, each once. `from` and `bytes` are multiples of 256.
    fn claim(&mut self, from: u64, bytes: u64, what: impl std::fmt::Display) {
        const UNIT: u64 = Inode::BYTES as u64;
        let layout = self.lfs.state.borrow().layout;
        let sector = crate::units::Sector(from / SECTOR_BYTES);
        let Some(segment) = layout.segment_of(sector) else {
            return self.error(format!("{what} is outside the log"));
        };
        *self.live.entry(segment).or_insert(0) += bytes;
        let units = (layout.segment_bytes() / UNIT) as usize;
        let bits = self.claimed.entry(segment).or_insert_with(|| vec![0; units.div_ceil(64)]);
        let first = ((from - layout.segment_start(segment).byte_offset()) / UNIT) as usize;
        let mut twice = false;
        for unit in first..(first + (bytes / UNIT) as usize).min(units) {
            let bit = 1u64 << (unit % 64);
            twice |= bits[unit / 64] & bit != 0;
            bits[unit / 64] |= bit;
        }
        if twice {
            self.error(format!("{what} is at sector {sector}, which something else claims too"));
        }
    }

    async fn check_internal(&mut self) -> FsResult<()> {
        for ino in [IMAP_INO, USAGE_INO, ORPHAN_INO] {
            for slot in 0..POINTERS_IN_INODE {
                self.walk(BlockId { ino, key: file::root_key(slot) }).await?;
            }
        }
        Ok(())
    }

    /// Walks the tree below a pointer. Returns the bytes that its data uses, and the last data block + 1.
    async fn walk(&mut self, id: BlockId) -> FsResult<(u64, u64)> {
        let lfs = self.lfs.clone();
        let pointer = lfs.run(|state| state.pointer(id)).await;
        let Some(pointer) = self.noted(pointer)? else { return Ok((0, 0)) };
        if let Pointer::Mapped { at, sectors, .. } = pointer {
            self.claim(at.byte_offset(), u64::from(sectors) * SECTOR_BYTES, format_args!("{id:?}"));
        }
        if id.key.is_data() {
            return self.walk_data(id, pointer).await;
        }
        let block = lfs.run(|state| state.block(id)).await;
        let Some(Some(block)) = self.noted(block)? else { return Ok((0, 0)) };
        let (mut used, mut end) = (0, 0);
        for slot in 0..POINTERS_PER_BLOCK {
            if pointer_in_block(&block, slot) == Some(Pointer::Hole) {
                let child = BlockId { ino: id.ino, key: id.key.child(slot) };
                let in_memory = lfs.state.borrow().blocks.peek(child).is_some();
                if !in_memory {
                    continue;
                }
            }
            let child = BlockId { ino: id.ino, key: id.key.child(slot) };
            let (child_used, child_end) = Box::pin(self.walk(child)).await?;
            used += child_used;
            end = end.max(child_end);
        }
        Ok((used, end))
    }

    async fn walk_data(&mut self, id: BlockId, pointer: Pointer) -> FsResult<(u64, u64)> {
        match pointer {
            Pointer::Hole => return Ok((0, 0)),
            Pointer::Unwritten => {
                self.unwritten_bytes += BLOCK_BYTES as u64;
                return Ok((pointer.used_bytes(), 0));
            }
            Pointer::Mapped { .. } => self.result.data_blocks += 1,
        }
        if self.options.data {
            let lfs = self.lfs.clone();
            let read = lfs.run(|state| state.block(id).map(drop)).await;
            self.noted(read)?;
        }
        Ok((pointer.used_bytes(), id.key.0 + 1))
    }

    async fn check_inodes(&mut self) -> FsResult<()> {
        let lfs = self.lfs.clone();
        let map_blocks = lfs.state.borrow().layout.ino_end().div_ceil(IMAP_ENTRIES_PER_BLOCK);
        let mut block = 0;
        while block < map_blocks {
            // Skip what the map has no blocks for at all.
            let entries = lfs.run(|state| state.block(BlockId::data(IMAP_INO, block))).await;
            if let Some(Some(entries)) = self.noted(entries)? {
                self.check_map_block(block, &entries).await?;
            }
            block += 1;
        }
        Ok(())
    }

    async fn check_map_block(&mut self, block: u64, entries: &Data) -> FsResult<()> {
        for (within, raw) in entries.chunks_exact(8).enumerate() {
            let slot = InodeSlot(crate::codec::get_at(raw, 0).unwrap_or(0));
            if slot.is_none() {
                continue;
            }
            let ino = Ino(block * IMAP_ENTRIES_PER_BLOCK + within as u64);
            let bytes = Inode::BYTES as u64;
            // A number past all addresses is outside the log, as the largest address is.
            self.claim(slot.0.saturating_mul(bytes), bytes, format_args!("inode {ino}"));
            let lfs = self.lfs.clone();
            let inode = lfs.run(|state| Ok(state.inode(ino)?.inode)).await;
            if let Err(FsError::Stale) = inode {
                self.error(format!("inode {ino} is a number that no file can have"));
                continue;
            }
            if let Some(inode) = self.noted(inode)? {
                self.check_inode(ino, inode).await?;
            }
        }
        Ok(())
    }

    async fn check_inode(&mut self, ino: Ino, inode: Inode) -> FsResult<()> {
        let Some(kind) = inode.kind() else {
            self.error(format!("inode {ino} has mode {:o}, which is of no kind", inode.mode));
            return Ok(());
        };
        match kind {
            FileKind::Regular => self.result.files += 1,
            FileKind::Directory => self.result.directories += 1,
            _ => self.result.others += 1,
        }
        let (mut used, mut end) = (0, 0);
        if inode.flags & INODE_INLINE == 0 {
            for slot in 0..POINTERS_IN_INODE {
                let (slot_used, slot_end) = self.walk(BlockId { ino, key: file::root_key(slot) }).await?;
                used += slot_used;
                end = end.max(slot_end);
            }
        }
        used += self.check_xattr(ino, &inode).await?;
        if used != inode.bytes_used {
            self.error(format!("inode {ino} is said to use {} bytes, and uses {used}", inode.bytes_used));
        }
        let is_orphan = self.lfs.state.borrow().orphans.contains(ino);
        let size_blocks = inode.size.div_ceil(BLOCK_BYTES as u64);
        if end > size_blocks && !is_orphan {
            self.error(format!("inode {ino} has {end} blocks and a size of {} bytes", inode.size));
        }
        self.seen.insert(ino, Seen { inode, kind, names: 0, subdirectories: 0, reached: false });
        Ok(())
    }

    async fn check_xattr(&mut self, ino: Ino, inode: &Inode) -> FsResult<u64> {
        match inode.xattr_pointer() {
            Some(Pointer::Hole) => Ok(0),
            Some(pointer @ Pointer::Mapped { at, sectors, .. }) => {
                self.claim(at.byte_offset(), u64::from(sectors) * SECTOR_BYTES, format_args!("attributes of {ino}"));
                let lfs = self.lfs.clone();
                let blob = lfs.run(|state| Change::new(state).xattr(ino)).await;
                if let Some(Some(blob)) = self.noted(blob)?
                    && let Err(detail) = xattr::decode(&blob)
                {
                    self.error(format!("extended attributes of inode {ino}: {detail}"));
                }
                Ok(pointer.live_bytes())
            }
            _ => {
                self.error(format!("inode {ino}: its pointer to extended attributes makes no sense"));
                Ok(0)
            }
        }
    }

    async fn check_directories(&mut self) -> FsResult<()> {
        if self.seen.get(&Ino::ROOT).is_none_or(|root| root.kind != FileKind::Directory) {
            self.error("there is no root directory");
            return Ok(());
        }
        let mut waiting = vec![Ino::ROOT];
        while let Some(ino) = waiting.pop() {
            let Some(seen) = self.seen.get_mut(&ino) else { continue };
            if std::mem::replace(&mut seen.reached, true) {
                self.error(format!("directory {ino} has two places"));
                continue;
            }
            let inode = seen.inode;
            let mut entries = 0;
            let mut from = Some(0);
            while let Some(hash) = from {
                let lfs = self.lfs.clone();
                let listed = lfs.run(|state| Change::new(state).list(ino, hash)).await;
                let Some((found, next)) = self.noted(listed)? else { break };
                entries += found.len() as u32;
                for entry in &found {
                    if self.check_entry(ino, entry) {
                        waiting.push(entry.ino);
                    }
                }
                from = next;
            }
            if entries != inode.special {
                self.error(format!("directory {ino} is said to have {} entries, and has {entries}", inode.special));
            }
            self.check_leaves(ino).await?;
        }
        Ok(())
    }

    /// Every block of a directory must be the leaf that its number says (D1): the walk by hash finds only those
    /// that are in nobody's shadow.
    async fn check_leaves(&mut self, ino: Ino) -> FsResult<()> {
        let mut by_hash = BTreeSet::new();
        let mut from = Some(0);
        let lfs = self.lfs.clone();
        while let Some(hash) = from {
            let leaf = lfs.run(|state| Change::new(state).leaf_at(ino, hash)).await;
            let Some(Some((block, next))) = self.noted(leaf)? else { break };
            by_hash.insert(block);
            from = next;
        }
        let mapped = self.mapped_blocks(ino).await?;
        if let Some(shadowed) = mapped.iter().find(|block| !by_hash.contains(block)) {
            self.error(format!("block {shadowed} of directory {ino} is in the shadow of another leaf"));
        }
        Ok(())
    }

    async fn mapped_blocks(&mut self, ino: Ino) -> FsResult<Vec<u64>> {
        let lfs = self.lfs.clone();
        let size = self.seen.get(&ino).map_or(0, |seen| seen.inode.size);
        let (mut blocks, mut offset) = (Vec::new(), 0);
        while offset < size / BLOCK_BYTES as u64 {
            let step = lfs.run(|state| file::data_or_skip(&mut Change::new(state), ino, offset)).await;
            let Some((is_data, next)) = self.noted(step)? else { break };
            if is_data {
                blocks.push(offset);
            }
            offset = next;
        }
        Ok(blocks)
    }

    /// Notes one name. Returns true when it is a directory to go into.
    fn check_entry(&mut self, parent: Ino, entry: &Found) -> bool {
        let key = self.lfs.state.borrow().layout.superblock.hash_key;
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if dir::check_name(&entry.name).is_err() {
            self.error(format!("directory {parent} has an entry {name:?}, which is no name"));
        }
        if !dir::hash_fits(key, entry) {
            self.error(format!("entry {name:?} of directory {parent} has the hash of another name"));
        }
        let Some(seen) = self.seen.get_mut(&entry.ino) else {
            self.error(format!("entry {name:?} of directory {parent} is inode {}, which does not exist", entry.ino));
            return false;
        };
        seen.names += 1;
        let (kind, recorded_parent) = (seen.kind, Ino(seen.inode.parent));
        if kind != entry.kind {
            self.error(format!("entry {name:?} of directory {parent} says {:?}, the inode {kind:?}", entry.kind));
        }
        if kind != FileKind::Directory {
            return false;
        }
        if recorded_parent != parent {
            self.error(format!("directory {} is in {parent}, and says it is in {recorded_parent}", entry.ino));
        }
        if let Some(seen) = self.seen.get_mut(&parent) {
            seen.subdirectories += 1;
        }
        true
    }

    fn check_links(&mut self) {
        let orphans: BTreeSet<Ino> = self.lfs.state.borrow().orphans.list().into_iter().collect();
        let mut errors = Vec::new();
        for (&ino, seen) in &self.seen {
            let expected = match seen.kind {
                FileKind::Directory if seen.reached => 2 + seen.subdirectories,
                _ => seen.names,
            };
            if seen.inode.links != expected {
                errors.push(format!("inode {ino} is said to have {} links, and has {expected}", seen.inode.links));
            }
            if expected == 0 && !orphans.contains(&ino) {
                errors.push(format!("inode {ino} has no name, and is no orphan"));
            }
        }
        for ino in &orphans {
            if !self.seen.contains_key(ino) {
                errors.push(format!("orphan {ino} does not exist"));
            }
        }
        let waiting = orphans.len();
        if waiting > 0 {
            self.result
                .notes
                .push(format!("{} without a name will be freed at mount", counted(waiting as u64, "file")));
        }
        errors.into_iter().for_each(|error| self.error(error));
    }

    fn check_counts(&mut self) {
        let mut errors = Vec::new();
        {
            let state = self.lfs.state.borrow();
            for (number, segment) in state.segments.iter() {
                let found = self.live.get(&number).copied().unwrap_or(0);
                if found != segment.live_bytes {
                    let counted = segment.live_bytes;
                    errors.push(format!("segment {number} is said to hold {counted} live bytes, and holds {found}"));
                }
            }
            let inodes = self.seen.len() as u64;
            if state.inode_count != inodes {
                errors.push(format!("the volume is said to have {} inodes, and has {inodes}", state.inode_count));
            }
            if state.unwritten_bytes != self.unwritten_bytes {
                let (said, found) = (state.unwritten_bytes, self.unwritten_bytes);
                errors.push(format!("{said} bytes are said to be set aside, and {found} are"));
            }
            self.result.live_bytes = state.segments.live_bytes;
        }
        errors.into_iter().for_each(|error| self.error(error));
    }
}
