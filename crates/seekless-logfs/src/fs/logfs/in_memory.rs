//! What steps look up and note in the volume's [`State`]: inodes, blocks and their addresses, as far as they are in memory, and
//! what is dirty. A step that lacks something ends with [`Stop::Need`]. Clean inodes and attributes are forgotten where there are
//! too many.

use std::cell::Cell;
use std::ops::Range;

use super::backend::LogBackend;
use super::cache::Blocks;
use super::format::*;
use super::state::*;
use super::tree::*;
use crate::device::{Counter, Data, DeviceError};
use crate::fs::{Attr, Entry, FileKind, FsError, PERMISSIONS};
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Clean attributes take at most this part of the memory for blocks. With the least a step has all that it needs, of some files.
const CLEAN_ATTRIBUTES_SHARE: u64 = 4;
const CLEAN_ATTRIBUTES_BYTES_LEAST: u64 = 1 << 20;

/// Most clean inodes kept in memory.
const CLEAN_INODES_MAX: usize = 16 * 1024;

impl<L: LogBackend> State<L> {
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

/// Whether an inode must stay in memory: writing an indirect block needs its inode (S1).
fn is_needed<L: LogTypes>(blocks: &Blocks, ino: Ino, inode: &InodeMem<L>) -> bool {
    inode.dirt != InodeDirt::Clean || inode.reclaiming || blocks.dirty_of(ino).next().is_some()
}
