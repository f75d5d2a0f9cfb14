//! Checking a volume: reads everything that can be reached and compares it with everything that is counted.
//!
//! This is the part that does not depend on the log: trees of blocks, directories, links. Each file system adds where
//! its inodes are, what else it counts, and which addresses can be claimed only once.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::change::Change;
use super::dir::{self, FoundEntry};
use super::format::*;
use super::leaf::StoredEntry;
use super::state::State;
use super::tree::*;
use super::{LogBackend, LogFs, file, xattr};
use crate::fs::{FileKind, FsResult};
use crate::units::{Ino, SECTOR_BYTES, counted};

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fsck {
    /// Damage, one line each.
    pub errors: Vec<String>,
    /// Repaired damage, one line each.
    pub repaired: Vec<String>,
    /// Errors beyond those that are listed.
    pub errors_unlisted: u64,
    /// A repair can mend at least some of the errors. Known after a check that was not to repair.
    pub repairable: bool,
    /// Worth knowing, but not damage.
    pub notes: Vec<String>,
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    pub live_bytes: u64,
    pub data_blocks: u64,
}

impl Fsck {
    /// No damage was found, repaired or not.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty() && self.repaired.is_empty()
    }

    /// Records damage for which there was a remedy: `true` where the repair worked.
    pub(in crate::fs) fn mended(&mut self, said: Vec<(String, bool)>) {
        for (text, is_mended) in said {
            let list = if is_mended { &mut self.repaired } else { &mut self.errors };
            list.push(text);
        }
    }
}

/// Errors that are listed; more are counted.
const ERRORS_MAX: usize = 100;

/// The bytes of the volume that have been claimed, each by one owner.
pub(in crate::fs) trait Claims<L: LogBackend> {
    /// Claims bytes of the volume. `from` and `bytes` are multiples of 256.
    ///
    /// # Errors
    /// What is wrong with the claim, to follow "it is".
    fn claim(&mut self, state: &State<L>, from: u64, bytes: u64) -> Result<(), &'static str>;

    /// Addresses of the attributes read from `pointer`: byte offsets and lengths.
    fn attribute_places(state: &State<L>, pointer: Pointer) -> Vec<(u64, u64)>;
}

/// What is known of an inode once all inodes have been read.
pub(in crate::fs) struct Seen {
    inode: Inode,
    kind: FileKind,
    /// Names found for the inode.
    names: u32,
    /// For a directory: directories found in it.
    subdirectories: u32,
    /// For a directory: reached from the root.
    reached: bool,
}

pub(in crate::fs) struct Check<L: LogBackend, C: Claims<L>> {
    pub fs: Rc<LogFs<L>>,
    /// Read all file data too, and compare it with its checksums.
    data: bool,
    pub result: Fsck,
    pub seen: BTreeMap<Ino, Seen>,
    pub claims: C,
    pub unwritten_bytes: u64,
    /// Number of things that could not be read or are claimed twice: while it is not 0, the counts are incomplete.
    pub uncounted: u64,
    /// Inodes with wrong derived numbers, and the right ones.
    pub wrong: Vec<(Ino, Derived)>,
    /// Files with blocks past their end that are not orphans.
    pub overlong: Vec<Ino>,
    /// The list of orphans has one that does not exist, or lacks a file that has lost its last name.
    pub orphans_differ: bool,
    /// Files that share a block with something else: what their trees lead to has no bound.
    tangled: BTreeSet<Ino>,
    /// The directories have been walked.
    knows_names: bool,
}

/// A number in an inode that can be derived by walking the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::fs) enum Derived {
    BytesUsed(u64),
    Links(u32),
    Entries(u32),
}

impl<L: LogBackend, C: Claims<L>> Check<L, C> {
    pub(in crate::fs) fn new(fs: Rc<LogFs<L>>, data: bool, claims: C) -> Check<L, C> {
        Check {
            fs,
            data,
            result: Fsck::default(),
            seen: BTreeMap::new(),
            claims,
            unwritten_bytes: 0,
            uncounted: 0,
            wrong: Vec::new(),
            overlong: Vec::new(),
            orphans_differ: false,
            tangled: BTreeSet::new(),
            knows_names: false,
        }
    }

    pub(in crate::fs) fn error(&mut self, text: impl Into<String>) {
        match self.result.errors.len() < ERRORS_MAX {
            true => self.result.errors.push(text.into()),
            false => self.result.errors_unlisted += 1,
        }
    }

    /// Passes on an error that ends the check, and records an error that is damage.
    pub(in crate::fs) fn noted<T>(&mut self, result: FsResult<T>) -> FsResult<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_of_one_place() => {
                self.uncounted += 1;
                self.error(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Counts bytes as used, each once. Returns false when another owner has them already, or none can have them.
    pub(in crate::fs) fn claim(&mut self, from: u64, bytes: u64, what: impl std::fmt::Display) -> bool {
        let claimed = self.claims.claim(&self.fs.state.borrow(), from, bytes);
        if let Err(why) = claimed {
            self.uncounted += 1;
            self.error(format!("{what} is {why}, sector {}", from / SECTOR_BYTES));
        }
        claimed.is_ok()
    }

    /// Walks the tree below a pointer. Returns the bytes that its data uses, and the last data block + 1.
    ///
    /// The walk does not go below a block that another owner has claimed. So it visits each address once, even when the
    /// pointers of a damaged volume lead in circles.
    pub(in crate::fs) async fn walk(&mut self, id: BlockId) -> FsResult<(u64, u64)> {
        let fs = self.fs.clone();
        let pointer = fs.run(|state| state.pointer(id)).await;
        let Some(pointer) = self.noted(pointer)? else { return Ok((0, 0)) };
        if let Pointer::Mapped { at, sectors, .. } = pointer
            && !self.claim(at.byte_offset(), u64::from(sectors) * SECTOR_BYTES, format_args!("{id:?}"))
        {
            self.tangled.insert(id.ino);
            return Ok((pointer.used_bytes(), 0));
        }
        if id.key.is_data() {
            return self.walk_data(id, pointer).await;
        }
        let block = fs.run(|state| state.block(id)).await;
        let Some(Some(block)) = self.noted(block)? else { return Ok((0, 0)) };
        let (mut used, mut end) = (0, 0);
        for slot in 0..POINTERS_PER_BLOCK {
            if pointer_in_block(&block, slot) == Some(Pointer::Hole) {
                let child = BlockId { ino: id.ino, key: id.key.child(slot) };
                let in_memory = fs.state.borrow().blocks.peek(child).is_some();
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
        if self.data {
            let fs = self.fs.clone();
            let read = fs.run(|state| state.block(id).map(drop)).await;
            self.noted(read)?;
        }
        Ok((pointer.used_bytes(), id.key.0 + 1))
    }

    pub(in crate::fs) async fn check_inode(&mut self, ino: Ino, inode: Inode) -> FsResult<()> {
        let Some(kind) = inode.kind() else {
            self.error(format!("inode {ino} has mode {:o}, which is of unknown kind", inode.mode));
            return Ok(());
        };
        match kind {
            FileKind::Regular => self.result.files += 1,
            FileKind::Directory => self.result.directories += 1,
            _ => self.result.others += 1,
        }
        let (mut used, mut end) = (0, 0);
        if !inode.is_inline() {
            for slot in 0..POINTERS_IN_INODE {
                let (slot_used, slot_end) = self.walk(BlockId { ino, key: file::root_key(slot) }).await?;
                used += slot_used;
                end = end.max(slot_end);
            }
        }
        used += self.check_xattr(ino, &inode).await?;
        if used != inode.bytes_used {
            self.wrong.push((ino, Derived::BytesUsed(used)));
            self.error(format!("inode {ino} records {} bytes used, but uses {used}", inode.bytes_used));
        }
        let is_orphan = L::is_orphan(&self.fs.state.borrow(), ino);
        let size_blocks = inode.size.div_ceil(BLOCK_BYTES as u64);
        if end > size_blocks && !is_orphan {
            self.overlong.push(ino);
            self.error(format!("inode {ino} has {end} blocks and a size of {} bytes", inode.size));
        }
        self.seen.insert(ino, Seen { inode, kind, names: 0, subdirectories: 0, reached: false });
        Ok(())
    }

    async fn check_xattr(&mut self, ino: Ino, inode: &Inode) -> FsResult<u64> {
        match inode.xattr_pointer() {
            Some(Pointer::Hole) => Ok(0),
            Some(pointer @ Pointer::Mapped { .. }) => {
                let fs = self.fs.clone();
                let before = self.uncounted;
                let blob = fs.run(|state| Change::new(state).xattr(ino)).await;
                if let Some(Some(blob)) = self.noted(blob)? {
                    match xattr::decode(&blob) {
                        Err(detail) => self.error(format!("extended attributes of inode {ino}: {detail}")),
                        Ok(attributes) => {
                            for problem in xattr::list_problems(&attributes, inode.mode) {
                                self.error(format!("inode {ino}: {problem}"));
                            }
                        }
                    }
                }
                if L::knows_attribute_places(&self.fs.state.borrow(), pointer) {
                    self.uncounted = before; // Where they are is counted, whatever they are.
                }
                let places = C::attribute_places(&self.fs.state.borrow(), pointer);
                for (from, bytes) in places {
                    self.claim(from, bytes, format_args!("attributes of {ino}"));
                }
                Ok(pointer.live_bytes())
            }
            _ => {
                self.error(format!("inode {ino}: its pointer to extended attributes makes no sense"));
                Ok(0)
            }
        }
    }

    pub(in crate::fs) async fn check_directories(&mut self) -> FsResult<()> {
        if self.seen.get(&Ino::ROOT).is_none_or(|root| root.kind != FileKind::Directory) {
            self.error("there is no root directory");
            return Ok(());
        }
        self.knows_names = true;
        let mut waiting = vec![Ino::ROOT];
        while let Some(ino) = waiting.pop() {
            let Some(seen) = self.seen.get_mut(&ino) else { continue };
            if std::mem::replace(&mut seen.reached, true) {
                self.error(format!("directory {ino} has two places"));
                continue;
            }
            if self.tangled.contains(&ino) {
                continue; // That has been reported.
            }
            let inode = seen.inode;
            let mut entries = 0;
            let mut from = Some(0);
            while let Some(hash) = from {
                let fs = self.fs.clone();
                let listed = fs.run(|state| Change::new(state).list(ino, hash)).await;
                let Some(listed) = self.noted(listed)? else { break };
                for entry in listed.entries().map(StoredEntry::to_found) {
                    entries += 1;
                    if self.check_entry(ino, &entry) {
                        waiting.push(entry.ino);
                    }
                }
                from = listed.next;
            }
            if entries != inode.special {
                self.wrong.push((ino, Derived::Entries(entries)));
                self.error(format!("directory {ino} records {} entries, but has {entries}", inode.special));
            }
            self.check_leaves(ino).await?;
        }
        Ok(())
    }

    /// Reads the directories for their names alone. Returns whether all names are known: what cannot be read casts no doubt on the
    /// counts, and leaves the names unknown.
    pub(in crate::fs) async fn look_for_names(&mut self) -> FsResult<bool> {
        let before = self.uncounted;
        if before == 0 {
            self.check_directories().await?;
        }
        self.knows_names &= self.uncounted == 0;
        self.uncounted = before;
        Ok(self.knows_names)
    }

    /// Every block of a directory must be the leaf that its number names (D1): the lookup by hash finds only leaves
    /// that no other leaf hides.
    async fn check_leaves(&mut self, ino: Ino) -> FsResult<()> {
        let mut by_hash = BTreeSet::new();
        let mut from = Some(0);
        let fs = self.fs.clone();
        while let Some(hash) = from {
            let leaf = fs.run(|state| Change::new(state).leaf_at(ino, hash)).await;
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
        let fs = self.fs.clone();
        let size = self.seen.get(&ino).map_or(0, |seen| seen.inode.size);
        let (mut blocks, mut offset) = (Vec::new(), 0);
        while offset < size / BLOCK_BYTES as u64 {
            let step = fs.run(|state| file::data_or_skip(&mut Change::new(state), ino, offset)).await;
            let Some((is_data, next)) = self.noted(step)? else { break };
            if is_data {
                blocks.push(offset);
            }
            offset = next;
        }
        Ok(blocks)
    }

    /// Records one name. Returns true when it is a directory to descend into.
    fn check_entry(&mut self, parent: Ino, entry: &FoundEntry) -> bool {
        let key = self.fs.state.borrow().volume.hash_key;
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if dir::check_name(&entry.name).is_err() {
            self.error(format!("directory {parent} has an entry {name:?}, which is not a name"));
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

    pub(in crate::fs) fn check_links(&mut self) {
        let orphans: BTreeSet<Ino> = L::orphans(&self.fs.state.borrow()).into_iter().collect();
        let (mut errors, mut wrong, mut differ) = (Vec::new(), Vec::new(), false);
        for (&ino, seen) in &self.seen {
            let expected = match seen.kind {
                FileKind::Directory if seen.reached => 2 + seen.subdirectories,
                _ => seen.names,
            };
            if seen.inode.links != expected {
                // A file without a name is kept: the user may want its content.
                wrong.extend((expected > 0).then_some((ino, Derived::Links(expected))));
                errors.push(format!("inode {ino} records {} links, but has {expected}", seen.inode.links));
            }
            if expected == 0 && !orphans.contains(&ino) {
                differ |= seen.inode.links == 0;
                errors.push(format!("inode {ino} has no name, and is no orphan"));
            }
        }
        for ino in &orphans {
            if !self.seen.contains_key(ino) {
                differ = true;
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
        self.wrong.extend(wrong);
        self.orphans_differ |= differ;
    }

    /// Inodes that have no name: none was found, and their link counts agree. None before the directories are read: a wrong count
    /// alone must free no file.
    pub(in crate::fs) fn nameless(&self) -> Vec<Ino> {
        let nameless = |seen: &Seen| self.knows_names && seen.inode.links == 0 && seen.names == 0;
        self.seen.iter().filter(|(_, seen)| nameless(seen)).map(|(&ino, _)| ino).collect()
    }
}
