//! A change: the effect of one operation on the volume, assembled separately and then applied in one step.
//!
//! Reads through a change see the volume as the change leaves it. Until [`Change::commit`] accepts it, the volume is as
//! it was. So an operation can stop anywhere (because something is not in memory, a name exists, space is short)
//! without undoing anything.

use std::collections::BTreeSet;

use super::cache::Dirty;
use super::demand::{Demand, Hole, ReserveAccess, add_hole};
use super::format::*;
use super::sorted_vec::SortedVec;
use super::state::*;
use super::tree::*;
use super::{LogBackend, LogTypes};
use crate::device::Data;
use crate::fs::{FileKind, FsError, NewNode};
use crate::rt::cover;
use crate::units::{Ino, SECTOR_BYTES, WallTime};

struct InodeChange {
    inode: Inode,
    dirt: InodeDirt,
    holes: Vec<Hole>,
    freed: Vec<Pointer>,
    /// New attributes: their bytes, padded to sectors, or none.
    xattr: Option<Option<Data>>,
    reclaiming: Option<bool>,
    unwritten_delta: i64,
}

pub(in crate::fs) struct Change<'a, L: LogTypes> {
    pub state: &'a mut State<L>,
    blocks: SortedVec<BlockId, Data>,
    removed: BTreeSet<BlockId>,
    inodes: SortedVec<Ino, InodeChange>,
    /// Inodes that no longer exist.
    freed_inodes: Vec<Ino>,
    new_inodes: Vec<Ino>,
    orphans: Vec<(Ino, bool)>,
    ino_cursor: Option<u64>,
}

impl<'a, L: LogBackend> Change<'a, L> {
    pub(in crate::fs) fn new(state: &'a mut State<L>) -> Change<'a, L> {
        Change {
            state,
            blocks: SortedVec::default(),
            removed: BTreeSet::new(),
            inodes: SortedVec::default(),
            freed_inodes: Vec::new(),
            new_inodes: Vec::new(),
            orphans: Vec::new(),
            ino_cursor: None,
        }
    }

    pub(in crate::fs) fn now(&self) -> WallTime {
        self.state.now
    }

    pub(in crate::fs) fn inode(&mut self, ino: Ino) -> Step<&Inode> {
        if self.freed_inodes.contains(&ino) {
            return fail(FsError::Stale);
        }
        if let Some(change) = self.inodes.get(ino) {
            return Ok(&change.inode);
        }
        Ok(&self.state.inode(ino)?.inode)
    }

    /// The inode, to be changed; it is written with the next transaction that includes `dirt`.
    pub(in crate::fs) fn inode_mut(&mut self, ino: Ino, dirt: InodeDirt) -> Step<&mut Inode> {
        Ok(&mut self.change_of(ino, dirt)?.inode)
    }

    fn change_of(&mut self, ino: Ino, dirt: InodeDirt) -> Step<&mut InodeChange> {
        if !self.inodes.contains(ino) {
            let inode = *self.inode(ino)?;
            if !is_internal(ino) {
                self.touch_imap(ino)?; // S1
            }
            self.insert_inode(inode);
        }
        match self.inodes.get_mut(ino) {
            Some(change) => {
                change.dirt = change.dirt.max(dirt);
                Ok(change)
            }
            None => unreachable!("it was just put there"),
        }
    }

    /// Adds what writing this inode needs (S1).
    fn touch_imap(&mut self, ino: Ino) -> Step<()> {
        match L::imap_block(ino) {
            Some(block) if !self.is_written_anyway(block) => self.touch(block),
            _ => Ok(()),
        }
    }

    fn insert_inode(&mut self, inode: Inode) {
        let (dirt, holes, freed) = (InodeDirt::Clean, Vec::new(), Vec::new());
        let change = InodeChange { inode, dirt, holes, freed, xattr: None, reclaiming: None, unwritten_delta: 0 };
        debug_assert!(!self.inodes.contains(Ino(inode.ino)), "a change has each inode once");
        self.inodes.insert(Ino(inode.ino), change);
    }

    /// The address of a block in the log, as the change leaves it.
    pub(in crate::fs) fn pointer(&mut self, id: BlockId) -> Step<Pointer> {
        let pointer = match id.key.holder() {
            Holder::Inode(slot) => self.inode(id.ino)?.pointer(slot),
            Holder::Node(node, slot) => self.pointer_in(BlockId { ino: id.ino, key: node }, slot)?,
        };
        self.state.check_pointer(id, pointer)
    }

    /// The pointer in a slot of an indirect block: a hole, where there is no such block.
    fn pointer_in(&mut self, node: BlockId, slot: usize) -> Step<Option<Pointer>> {
        if let Some(block) = self.blocks.get(node) {
            return Ok(pointer_in_block(block, slot));
        }
        if !self.removed.contains(&node)
            && let Some(block) = self.state.blocks.get(node)
        {
            return Ok(pointer_in_block(block, slot));
        }
        match self.pointer(node)? {
            Pointer::Mapped { .. } => need(Load::Block(node)),
            _ => Ok(Some(Pointer::Hole)),
        }
    }

    /// A block; `None` where it reads as zeroes and has no bytes.
    pub(in crate::fs) fn block(&mut self, id: BlockId) -> Step<Option<Data>> {
        if let Some(data) = self.blocks.get(id) {
            return Ok(Some(data.clone()));
        }
        if !self.removed.contains(&id)
            && let Some(data) = self.state.blocks.get(id)
        {
            return Ok(Some(data.clone()));
        }
        match self.pointer(id)? {
            Pointer::Mapped { .. } => need(Load::Block(id)),
            _ => Ok(None),
        }
    }

    /// True when the block has bytes of its own, in memory or in the log. Needs only the blocks above it.
    pub(in crate::fs) fn block_exists(&mut self, id: BlockId) -> Step<bool> {
        if self.blocks.contains(id) || (!self.removed.contains(&id) && self.state.blocks.peek(id).is_some()) {
            return Ok(true);
        }
        Ok(self.pointer(id)?.is_mapped())
    }

    /// Whether the block is as this or an earlier change of a user has left it, and not as it was read.
    pub(in crate::fs) fn is_checked(&self, id: BlockId) -> bool {
        self.blocks.contains(id) || self.state.blocks.is_checked(id)
    }

    /// Makes the block dirty, and everything that writing it needs (S1).
    pub(in crate::fs) fn touch(&mut self, id: BlockId) -> Step<()> {
        if self.blocks.contains(id) {
            return Ok(());
        }
        let data = self.block(id)?.unwrap_or_else(|| Data::zeroes(BLOCK_BYTES));
        self.touch_holder(id)?;
        debug_assert!(self.leads_to(id), "S1: what leads to a dirty block is dirty");
        self.blocks.insert(id, data);
        Ok(())
    }

    /// What leads to a block is part of the change, or waits to be written anyway (S1). For assertions.
    fn leads_to(&self, id: BlockId) -> bool {
        match id.key.holder() {
            Holder::Inode(_) => self.inodes.contains(id.ino),
            Holder::Node(node, _) => {
                let node = BlockId { ino: id.ino, key: node };
                self.blocks.contains(node) || self.is_written_anyway(node)
            }
        }
    }

    fn touch_holder(&mut self, id: BlockId) -> Step<()> {
        match id.key.holder() {
            Holder::Inode(_) => self.change_of(id.ino, InodeDirt::Own).map(drop),
            Holder::Node(node, _) => {
                let node = BlockId { ino: id.ino, key: node };
                if !self.is_written_anyway(node) {
                    return self.touch(node);
                }
                // The inode may have been written since.
                if is_internal(id.ino) { Ok(()) } else { self.change_of(id.ino, InodeDirt::Own).map(drop) }
            }
        }
    }

    /// Whether the block waits to be written because of a user's change, and with it all that leads to it (S1), though
    /// perhaps not the inode of a user's file.
    fn is_written_anyway(&self, id: BlockId) -> bool {
        !self.removed.contains(&id) && self.state.blocks.dirty(id).is_some_and(|dirty| !dirty.cleaned)
    }

    /// The block's bytes, to be changed. A hole becomes a block of zeroes.
    pub(in crate::fs) fn block_mut(&mut self, id: BlockId) -> Step<&mut [u8]> {
        self.touch(id)?;
        match self.blocks.get_mut(id) {
            Some(data) => Ok(data.make_mut()),
            None => unreachable!("it was just touched"),
        }
    }

    /// Replaces the whole block, whatever it held.
    pub(in crate::fs) fn replace_block(&mut self, id: BlockId, data: Data) -> Step<()> {
        self.touch_holder(id)?;
        debug_assert_eq!(data.len(), BLOCK_BYTES, "a block is replaced as a whole");
        debug_assert!(self.leads_to(id), "S1: what leads to a dirty block is dirty");
        // The growth of the volume follows from the pointer, so it must be in memory; touching the holder did that.
        self.blocks.insert(id, data);
        Ok(())
    }

    pub(in crate::fs) fn set_pointer(&mut self, id: BlockId, pointer: Pointer) -> Step<()> {
        match id.key.holder() {
            Holder::Inode(slot) => self.inode_mut(id.ino, InodeDirt::Own)?.set_pointer(slot, pointer),
            Holder::Node(node, slot) => {
                set_pointer_in_block(self.block_mut(BlockId { ino: id.ino, key: node })?, slot, pointer);
            }
        }
        Ok(())
    }

    /// An unchanged block is at a new address. The old address is no longer needed.
    pub(in crate::fs) fn relocate(&mut self, id: BlockId, old: Pointer, new: Pointer) -> Step<()> {
        debug_assert!(old.is_mapped() && new.is_mapped(), "what moves is in the log, before and after");
        debug_assert!(!self.blocks.contains(id), "what moves has not changed");
        self.set_pointer(id, new)?;
        self.change_of(id.ino, InodeDirt::Own)?.freed.push(old);
        Ok(())
    }

    /// Drops a block: its bytes in memory and its address in the log. Returns false when there was nothing. Nothing may
    /// be left below an indirect block.
    ///
    /// Only data blocks count towards the file's used bytes. Like a data block, an indirect block leaves a record for
    /// roll-forward. Roll-forward rebuilds indirect blocks from the records, and only a record can tell whether one
    /// that is empty, or has been recreated since, still owns the address that it had in the checkpoint.
    pub(in crate::fs) fn unmap(&mut self, id: BlockId) -> Step<bool> {
        let pointer = self.pointer(id)?;
        let in_memory =
            self.blocks.contains(id) || (!self.removed.contains(&id) && self.state.blocks.peek(id).is_some());
        if pointer == Pointer::Hole && !in_memory {
            return Ok(false);
        }
        let dirty = if self.removed.contains(&id) { None } else { self.state.blocks.dirty(id) };
        if pointer != Pointer::Hole {
            self.set_pointer(id, Pointer::Hole)?;
        }
        let change = self.change_of(id.ino, InodeDirt::Own)?;
        match pointer {
            Pointer::Hole => {}
            Pointer::Unwritten => change.unwritten_delta -= BLOCK_BYTES as i64,
            Pointer::Mapped { .. } => change.freed.push(pointer),
        }
        if !id.key.is_data() && pointer != Pointer::Hole {
            cover("logfs: an empty indirect block is dropped");
        }
        if id.key.is_data() {
            // The growth of a block that only this change made dirty has not been counted yet.
            let growth = dirty.map_or(0, |dirty| dirty.growth_bytes);
            take_used(&mut change.inode, pointer.used_bytes() + growth)?;
        }
        add_hole(&mut change.holes, Hole { first: id.key.0, count: 1, reserved: false });
        self.blocks.remove(id);
        self.removed.insert(id);
        Ok(true)
    }

    /// Whether the change drops blocks of this inode.
    pub(in crate::fs) fn unmaps(&self, ino: Ino) -> bool {
        self.inodes.get(ino).is_some_and(|change| change.holes.iter().any(|hole| !hole.reserved))
    }

    /// Reserves space for a data block in a hole. Returns false when the block existed.
    pub(in crate::fs) fn reserve(&mut self, id: BlockId) -> Step<bool> {
        debug_assert!(id.key.is_data(), "space is reserved for data, not for what leads to it");
        if self.pointer(id)? != Pointer::Hole || self.block_exists(id)? {
            return Ok(false);
        }
        self.set_pointer(id, Pointer::Unwritten)?;
        let change = self.change_of(id.ino, InodeDirt::Own)?;
        change.inode.bytes_used += BLOCK_BYTES as u64;
        change.unwritten_delta += BLOCK_BYTES as i64;
        add_hole(&mut change.holes, Hole { first: id.key.0, count: 1, reserved: true });
        Ok(true)
    }

    pub(in crate::fs) fn set_reclaiming(&mut self, ino: Ino, reclaiming: bool) -> Step<()> {
        self.change_of(ino, InodeDirt::Own)?.reclaiming = Some(reclaiming);
        Ok(())
    }

    /// The stored attributes, padded to sectors.
    pub(in crate::fs) fn xattr(&mut self, ino: Ino) -> Step<Option<Data>> {
        if let Some(InodeChange { xattr: Some(new), .. }) = self.inodes.get(ino) {
            return Ok(new.clone());
        }
        if self.new_inodes.contains(&ino) {
            return Ok(None);
        }
        let inode = self.state.inode(ino)?;
        if inode.xattr.is_some() || inode.xattr_dirty {
            return Ok(inode.xattr.clone());
        }
        match inode.inode.xattr_pointer() {
            Some(Pointer::Hole) => Ok(None),
            Some(Pointer::Mapped { .. }) => need(Load::Xattr(ino)),
            _ => fail(FsError::corrupt("inode", ino, "its pointer to extended attributes makes no sense")),
        }
    }

    /// Replaces the stored attributes; `data` is padded to sectors.
    pub(in crate::fs) fn set_xattr(&mut self, ino: Ino, data: Option<Data>) -> Step<()> {
        debug_assert!(
            data.as_ref().is_none_or(|data| !data.is_empty() && (data.len() as u64).is_multiple_of(SECTOR_BYTES)),
            "attributes fill whole sectors"
        );
        self.xattr(ino)?; // Its old places must be known, to be freed.
        self.change_of(ino, InodeDirt::Own)?.xattr = Some(data);
        Ok(())
    }

    /// Removes the stored attributes, which need not be readable.
    fn drop_xattr(&mut self, ino: Ino) -> Step<()> {
        match self.inode(ino)?.xattr_pointer() {
            Some(pointer @ Pointer::Mapped { .. }) if !L::knows_attribute_places(self.state, pointer) => {
                return need(Load::Xattr(ino));
            }
            Some(Pointer::Hole | Pointer::Mapped { .. }) => {}
            _ => return fail(FsError::corrupt("inode", ino, "its pointer to extended attributes makes no sense")),
        }
        self.change_of(ino, InodeDirt::Own)?.xattr = Some(None);
        Ok(())
    }

    /// A free inode number, near the one given out last.
    fn find_free_ino(&mut self) -> Step<Ino> {
        let end = self.state.volume.ino_end;
        // The root's number is not among them.
        let taken = self.state.inode_count + self.new_inodes.len() as u64;
        if taken > end - FIRST_FREE_INO {
            return fail(FsError::NoSpace);
        }
        let mut number = self.ino_cursor.unwrap_or(self.state.ino_cursor);
        // Every number is tried once; the two halves of the range meet at the start.
        for tried in 0..=end - FIRST_FREE_INO {
            if !(FIRST_FREE_INO..end).contains(&number) {
                number = FIRST_FREE_INO;
            }
            if let Some(end) = self.state.unusable_until(number) {
                number = end;
                continue;
            }
            let ino = Ino(number);
            number += 1;
            if self.inodes.contains(ino) || self.state.inodes.contains_key(&ino) || self.state.in_use(ino) {
                continue;
            }
            match L::imap_entry(self.state, ino) {
                Ok(InodeSlot::NONE) => {
                    self.ino_cursor = Some(number);
                    self.state.ino_tried = 0;
                    return Ok(ino);
                }
                Ok(_) => {}
                // What a damaged entry is about may still exist.
                Err(Stop::Fail(error)) if error.is_of_one_place() => {}
                Err(stop) => {
                    // The step is repeated once this block of the map is in memory, and continues here: all numbers before are
                    // taken, and by the end of the map their blocks may not be in memory any more.
                    self.state.ino_cursor = ino.0;
                    self.state.ino_tried += tried;
                    if self.state.ino_tried > 2 * end {
                        break; // A damaged count says that some are free.
                    }
                    return Err(stop);
                }
            }
        }
        self.state.ino_tried = 0;
        fail(FsError::NoSpace)
    }

    /// Creates an inode without a name and without links.
    pub(in crate::fs) fn make_inode(&mut self, kind: FileKind, parent: &Inode, new: NewNode) -> Step<Ino> {
        let ino = self.find_free_ino()?;
        debug_assert!(
            (FIRST_FREE_INO..self.state.volume.ino_end).contains(&ino.0),
            "a number that is given out is one of the volume, and no internal one"
        );
        let inode = self.blank_inode(ino, kind, parent, new);
        self.touch_imap(ino)?; // S1
        self.insert_inode(inode);
        debug_assert!(!self.new_inodes.contains(&ino), "a number is given out once");
        debug_assert!(!self.freed_inodes.contains(&ino), "a number is not given out again by the change that frees it");
        self.new_inodes.push(ino);
        self.inode_mut(ino, InodeDirt::Namespace)?;
        Ok(ino)
    }

    /// A new inode in the directory `parent`, from which it inherits the set-group-id bit. The caller has already
    /// applied the umask and access lists to the permissions.
    fn blank_inode(&self, ino: Ino, kind: FileKind, parent: &Inode, new: NewNode) -> Inode {
        let new = new.in_directory(kind, parent.mode, parent.gid);
        let generation = self.state.generation + self.new_inodes.len() as u64 + 1;
        let mut inode = Inode {
            magic: INODE_MAGIC,
            crc: 0,
            ino: ino.0,
            generation: generation as u32,
            mode: kind.mode_bits() as u16 | new.permissions,
            flags: 0,
            links: 0,
            uid: new.uid,
            gid: new.gid,
            special: 0,
            size: 0,
            bytes_used: 0,
            atime_seconds: 0,
            atime_nanos: 0,
            mtime_seconds: 0,
            mtime_nanos: 0,
            ctime_seconds: 0,
            ctime_nanos: 0,
            btime_seconds: 0,
            btime_nanos: 0,
            parent: if kind == FileKind::Directory { parent.ino } else { 0 },
            xattr: [0; _],
            map: [0; _],
        };
        let now = self.now();
        inode.set_atime(now);
        inode.set_mtime(now);
        inode.set_ctime(now);
        inode.set_btime(now);
        inode
    }

    /// Creates the root directory of a new volume.
    pub(in crate::fs) fn make_root(&mut self, new: NewNode) -> Step<()> {
        let mut none = Inode::decode(&[0; Inode::BYTES]).unwrap_or_else(|| unreachable!("the size is right"));
        none.ino = Ino::ROOT.0;
        let inode = self.blank_inode(Ino::ROOT, FileKind::Directory, &none, new);
        self.touch_imap(Ino::ROOT)?; // S1
        self.insert_inode(Inode { links: 2, ..inode });
        self.new_inodes.push(Ino::ROOT);
        self.inode_mut(Ino::ROOT, InodeDirt::Namespace)?;
        Ok(())
    }

    /// Removes an inode whose blocks have all been unmapped.
    pub(in crate::fs) fn free_inode(&mut self, ino: Ino) -> Step<()> {
        self.drop_xattr(ino)?;
        debug_assert!(!self.freed_inodes.contains(&ino), "an inode is freed once");
        debug_assert!(!is_internal(ino), "the inodes of the log itself are not freed");
        self.freed_inodes.push(ino);
        if L::is_orphan(self.state, ino) || self.orphans.contains(&(ino, true)) {
            self.orphans.push((ino, false));
        }
        Ok(())
    }

    /// Adds the inode to the list of those that are freed after a crash.
    pub(in crate::fs) fn add_orphan(&mut self, ino: Ino) -> Step<()> {
        self.inode_mut(ino, InodeDirt::Namespace)?;
        self.orphans.push((ino, true));
        Ok(())
    }

    pub(in crate::fs) fn remove_orphan(&mut self, ino: Ino) -> Step<()> {
        self.inode_mut(ino, InodeDirt::Namespace)?;
        self.orphans.push((ino, false));
        Ok(())
    }

    /// Bytes by which live data will grow when `id` is written, and whether only the cleaner made it dirty.
    /// `known` says the same of the block as it is before the change, if it is dirty.
    fn dirt_of(&mut self, id: BlockId, known: Option<Dirty>, access: ReserveAccess) -> Step<Dirty> {
        let cleaned = access == ReserveAccess::Internal && known.is_none_or(|dirty| dirty.cleaned);
        if let Some(dirty) = known
            && dirty.cleaned == cleaned
        {
            return Ok(dirty);
        }
        let growth_bytes = match self.pointer(id)? {
            Pointer::Hole => BLOCK_BYTES as u64,
            Pointer::Unwritten => 0,
            // A short block that is only moved stays as short.
            Pointer::Mapped { .. } if cleaned => 0,
            mapped @ Pointer::Mapped { .. } => BLOCK_BYTES as u64 - mapped.live_bytes(),
        };
        Ok(Dirty { growth_bytes, cleaned, of_directory: known.is_some_and(|dirty| dirty.of_directory) })
    }

    /// Accepts the change: from then on it is part of the volume.
    ///
    /// # Errors
    /// `Fail(NoSpace)` when the volume is full, `Fail(ReadOnly | Stopped)`, and the waits of [`Wait`]. After an error
    /// nothing has changed.
    pub(in crate::fs) fn commit(mut self, access: ReserveAccess) -> Step<()> {
        if self.blocks.is_empty() && self.inodes.is_empty() && self.freed_inodes.is_empty() {
            return Ok(());
        }
        if let Some(error) = &self.state.stopped {
            return fail(FsError::Stopped(error.clone()));
        }
        if self.state.read_only && access != ReserveAccess::Internal {
            return fail(FsError::ReadOnly);
        }
        let ids = self.blocks.keys().filter(|id| !self.freed_inodes.contains(&id.ino));
        let mut dirt: Vec<(BlockId, Dirty)> = Vec::with_capacity(self.blocks.len());
        dirt.extend(ids.map(|id| (id, Dirty::default())));
        let (mut growth, mut has_file_data) = (0i64, false);
        for (id, dirty) in &mut dirt {
            let id = *id;
            let known = if self.removed.contains(&id) { None } else { self.state.blocks.dirty(id) };
            let mut new = self.dirt_of(id, known, access)?;
            let is_of_user = id.key.is_data() && !is_internal(id.ino);
            has_file_data |= is_of_user && self.inode(id.ino)?.kind() == Some(FileKind::Regular);
            let before = known.map_or(0, |dirty| dirty.growth_bytes);
            debug_assert!(before <= new.growth_bytes, "a block that is dirty already grows by no less");
            growth += new.growth_bytes as i64 - before as i64;
            if is_of_user && (known.is_none() || before < new.growth_bytes) {
                let inode = &mut self.change_of(id.ino, InodeDirt::Own)?.inode;
                inode.bytes_used += new.growth_bytes - before;
                new.of_directory = inode.kind() == Some(FileKind::Directory);
            }
            *dirty = new;
        }
        for id in &self.removed {
            growth -= self.state.blocks.dirty(*id).map_or(0, |dirty| dirty.growth_bytes as i64);
        }
        let unwritten_delta = self.inodes.values().map(|change| change.unwritten_delta).sum::<i64>();
        let Some(unwritten_bytes) = self.state.unwritten_bytes.checked_add_signed(unwritten_delta) else {
            let detail = "fewer bytes are recorded as reserved than are released";
            return fail(FsError::corrupt("volume", "bytes set aside", detail));
        };
        growth += unwritten_delta;
        growth += (self.new_inodes.len() * Inode::BYTES) as i64;
        let (xattr_growth, attributes) = self.prepare_xattrs()?;
        growth += xattr_growth;
        if access != ReserveAccess::Internal {
            let blocks = dirt.len() as u64;
            L::check_room(self.state, &Demand { growth, blocks, has_file_data, attributes }, access)?;
        }
        self.state.unwritten_bytes = unwritten_bytes;
        self.apply(dirt, access);
        Ok(())
    }

    /// Accounts for new extended attributes. Returns the growth of live bytes, and what is to be written.
    fn prepare_xattrs(&mut self) -> Step<(i64, DirtyAttributes)> {
        let (mut growth, mut dirty) = (0, DirtyAttributes::default());
        for (ino, change) in self.inodes.iter_mut() {
            let Some(new) = &change.xattr else { continue };
            let old = change.inode.xattr_pointer().unwrap_or_default();
            let (pending, pending_growth) = match self.state.inodes.get(&ino) {
                Some(known) if known.xattr_dirty => {
                    (known.xattr.as_ref().map_or(0, |data| data.len() as u64), known.xattr_growth)
                }
                _ => (old.live_bytes(), 0),
            };
            let bytes = new.as_ref().map_or(0, |data| data.len() as u64);
            change.inode.bytes_used += bytes;
            take_used(&mut change.inode, pending)?;
            let own_growth = bytes.saturating_sub(old.live_bytes());
            growth += own_growth as i64 - pending_growth as i64;
            dirty += DirtyAttributes { files: u64::from(bytes > 0), bytes, growth_bytes: own_growth };
        }
        Ok((growth, dirty))
    }

    /// `dirt` has the blocks of inodes that continue existing, in order.
    fn apply(self, dirt: Vec<(BlockId, Dirty)>, access: ReserveAccess) {
        let Change { state, blocks, removed, inodes, freed_inodes, new_inodes, orphans, ino_cursor } = self;
        state.changes.note();
        for id in removed {
            state.blocks.remove(id);
        }
        let mut kept = dirt.iter().peekable();
        for (id, data) in blocks.into_iter() {
            if let Some(&(_, dirty)) = kept.next_if(|(kept, _)| *kept == id) {
                state.blocks.insert_dirty(id, data, dirty);
            }
        }
        debug_assert!(kept.next().is_none(), "what the change has made dirty is in it");
        state.generation += new_inodes.len() as u64;
        state.inode_count += new_inodes.len() as u64;
        if let Some(cursor) = ino_cursor {
            state.ino_cursor = cursor;
        }
        for (ino, change) in inodes.into_iter() {
            match freed_inodes.contains(&ino) {
                true => apply_last(state, ino, change),
                false => apply_inode(state, ino, change, access),
            }
        }
        for (ino, add) in orphans {
            L::set_orphan(state, ino, add);
        }
        for (id, _) in &dirt {
            debug_assert!(state.can_lead_to(*id), "S1: what leads to a dirty block is in memory, and dirty");
            debug_assert!(state.inodes.contains_key(&id.ino), "S1: the inode of a dirty block is in memory");
            debug_assert!(state.blocks.peek(*id).is_some(), "S1: a dirty block is in memory");
        }
        for ino in freed_inodes {
            forget_inode(state, ino);
        }
        state.evict_inodes();
    }
}

fn apply_inode<L: LogBackend>(state: &mut State<L>, ino: Ino, change: InodeChange, access: ReserveAccess) {
    let InodeChange { inode, dirt, holes, freed, xattr, reclaiming, unwritten_delta } = change;
    if !state.inodes.contains_key(&ino) {
        state.inodes.insert(ino, InodeMem::new(inode, InodeSlot::NONE));
    }
    let Some(known) = state.inodes.get_mut(&ino) else { return };
    known.inode = inode;
    known.unwritten_pending += unwritten_delta;
    if !is_internal(ino) {
        known.cleaned = access == ReserveAccess::Internal && (known.dirt == InodeDirt::Clean || known.cleaned);
        known.moved |= access == ReserveAccess::Internal;
        known.dirt = known.dirt.max(dirt).max(InodeDirt::Own);
        state.dirty_inodes.insert(ino);
    }
    if let Some(reclaiming) = reclaiming {
        known.reclaiming = reclaiming;
    }
    if let Some(new) = xattr {
        let old = known.inode.xattr_pointer().unwrap_or_default();
        state.dirty_attributes -= known.dirty_attributes();
        let bytes = new.as_ref().map_or(0, |data| data.len() as u64);
        known.xattr_growth = bytes.saturating_sub(old.live_bytes());
        known.xattr = new;
        known.xattr_dirty = true;
        state.dirty_attributes += known.dirty_attributes();
    }
    L::defer_free(state, ino, freed, holes);
}

/// As [`apply_inode`], for an inode that no longer exists: what counts is the space that it had.
fn apply_last<L: LogBackend>(state: &mut State<L>, ino: Ino, change: InodeChange) {
    let Some(known) = state.inodes.get_mut(&ino) else { return };
    known.unwritten_pending += change.unwritten_delta;
    // Roll-forward needs no holes of a file that is gone.
    L::defer_free(state, ino, change.freed, Vec::new());
}

/// The file uses `bytes` fewer.
///
/// # Errors
/// `Corrupt` when the inode counts less than that, which only damage can cause.
fn take_used(inode: &mut Inode, bytes: u64) -> Step<()> {
    match inode.bytes_used.checked_sub(bytes) {
        Some(rest) => inode.bytes_used = rest,
        None => {
            let detail = format_args!("it records {} bytes used, and {bytes} are freed", inode.bytes_used);
            return fail(FsError::corrupt("inode", inode.ino, detail));
        }
    }
    Ok(())
}

/// Removes an inode that no longer exists from memory, and leaves the records for the log.
fn forget_inode<L: LogBackend>(state: &mut State<L>, ino: Ino) {
    let Some(known) = state.inodes.remove(&ino) else { return };
    state.dirty_inodes.remove(&ino);
    state.blocks.remove_file(ino);
    debug_assert!(!state.blocks.has_file(ino), "nothing of a file that is gone is in memory");
    state.dirty_attributes -= known.dirty_attributes();
    debug_assert!(state.inode_count > 0, "an inode that goes was counted");
    state.inode_count -= 1;
    state.leaf_depth.remove(&ino);
    state.read_ahead.forget(ino);
    state.linkable.remove(&ino);
    L::inode_freed(state, ino, known);
}
