//! The books: every counter is recounted from scratch and compared. Tests call this after every step.
//!
//! The recount is one synchronous pass over the volume in memory, so that it sees one moment. Blocks that the pass
//! lacks are read from the device beside the cache, and the pass begins again. It shares no code with the check of an
//! unmounted volume. This part recounts what every log has: inodes, the trees of files, and dirty data. Each log
//! compares the addresses that these lead to with its own books.

use std::collections::{BTreeMap, BTreeSet};

use super::file::root_key;
use super::format::*;
use super::state::*;
use super::tree::*;
use super::{LogBackend, LogFs};
use crate::codec::crc32c;
use crate::device::Data;
use crate::fs::{FileKind, FsResult};
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Key of the owner of a file's attributes.
pub(in crate::fs) const ATTRIBUTES: BlockKey = BlockKey(u64::MAX);

/// How often one address is read before its content counts as wrong. It can be overwritten between two reads.
const READS_MAX: u32 = 20;

/// What has been read for a recount, by its address, and how often.
pub(in crate::fs) type Read = BTreeMap<Sector, (Data, u32)>;

/// Runs `pass` until it has everything that it needs. Returns the contradictions found, one line each. `enter` waits
/// until the log has no work in progress that the volume in memory does not show; no such work begins before its result
/// is dropped.
pub(in crate::fs) async fn recount<L: LogBackend, G>(
    fs: &LogFs<L>,
    enter: impl AsyncFn() -> G,
    pass: impl Fn(&mut Recount<'_, L>),
) -> FsResult<Vec<String>> {
    let mut read = Read::new();
    loop {
        let missing = {
            let _inside = enter().await;
            let state = fs.state.borrow();
            if state.stopped.is_some() || state.read_only {
                return Ok(Vec::new());
            }
            let mut recount = Recount::new(&state, &read);
            pass(&mut recount);
            if recount.missing.is_empty() {
                return Ok(recount.problems);
            }
            recount.missing
        };
        for (at, sectors) in missing {
            let times = read.get(&at).map_or(0, |(_, times)| *times);
            if times == READS_MAX {
                return Ok(vec![format!("what is stored at sector {at} is not what the pointer to it says")]);
            }
            read.insert(at, (fs.read_log(at, sectors).await?.freeze(), times + 1));
        }
    }
}

pub(in crate::fs) struct Recount<'a, L: LogBackend> {
    pub state: &'a State<L>,
    read: &'a Read,
    missing: BTreeSet<(Sector, u64)>,
    pub problems: Vec<String>,
    /// Every address that a block or the attributes of a file lead to.
    pub claims: Vec<(BlockId, Pointer)>,
    /// Every address in the inode map.
    pub slots: Vec<(Ino, InodeSlot)>,
    inodes: BTreeSet<Ino>,
    unwritten: u64,
    growth: u64,
}

impl<'a, L: LogBackend> Recount<'a, L> {
    fn new(state: &'a State<L>, read: &'a Read) -> Recount<'a, L> {
        Recount {
            state,
            read,
            missing: BTreeSet::new(),
            problems: Vec::new(),
            claims: Vec::new(),
            slots: Vec::new(),
            inodes: BTreeSet::new(),
            unwritten: 0,
            growth: 0,
        }
    }

    pub(in crate::fs) fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    pub(in crate::fs) fn same(&mut self, what: &str, said: impl Into<u64>, found: u64) {
        let said = said.into();
        if said != found {
            self.problem(format!("{what}: {said} by the books, {found} by the recount"));
        }
    }

    /// True when the pass lacks nothing that has to be read first.
    pub(in crate::fs) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The content at `at`; requested when it has not been read, or not since it changed.
    pub(in crate::fs) fn stored(&mut self, at: Sector, sectors: u64, is_it: impl Fn(&[u8]) -> bool) -> Option<Data> {
        let read = self.read.get(&at).map(|(data, _)| data);
        match read.filter(|data| data.len() as u64 == sectors * SECTOR_BYTES && is_it(data)) {
            Some(data) => Some(data.clone()),
            None => {
                self.missing.insert((at, sectors));
                None
            }
        }
    }

    /// Compares the totals that every log counts, once all inodes are counted.
    pub(in crate::fs) fn totals(&mut self) {
        let state = self.state;
        self.same("inodes", state.inode_count, self.inodes.len() as u64);
        self.same("bytes set aside", state.unwritten_bytes, self.unwritten);
        self.same("growth of dirty blocks", state.blocks.growth_bytes, self.growth);
        let mut attributes = DirtyAttributes::default();
        state.inodes.values().for_each(|known| attributes += known.dirty_attributes());
        self.same("growth of attributes", state.dirty_attributes.growth_bytes, attributes.growth_bytes);
        self.same("dirty attributes", state.dirty_attributes.bytes, attributes.bytes);
        self.same("files with dirty attributes", state.dirty_attributes.files, attributes.files);
        for ino in L::orphans(state) {
            if !self.inodes.contains(&ino) {
                self.problem(format!("orphan {ino} does not exist"));
            }
        }
        for &ino in &state.dirty_inodes {
            if state.inodes.get(&ino).is_none_or(|known| known.dirt == InodeDirt::Clean) {
                self.problem(format!("inode {ino} is on the list of dirty ones, and is not dirty"));
            }
        }
        if let Err(problem) = state.blocks.check() {
            self.problem(problem);
        }
        let (mut dirty_data, mut of_directories) = (0, 0);
        for id in state.blocks.dirty_ids() {
            let is_data = id.key.is_data() && !is_internal(id.ino);
            dirty_data += u64::from(is_data);
            let kind = || state.inodes.get(&id.ino).and_then(|known| known.inode.kind());
            of_directories += u64::from(is_data && kind() == Some(FileKind::Directory));
            if !state.can_lead_to(id) {
                self.problem(format!("S1: {id:?} is dirty, and what holds the pointer to it is not"));
            }
        }
        self.same("dirty blocks of data", state.blocks.dirty_data_count(), dirty_data);
        self.same("dirty blocks of directories", state.blocks.dirty_of_directories(), of_directories);
    }

    /// Counts one inode and everything below it; the map says that it is at `entry`.
    pub(in crate::fs) fn inode(&mut self, ino: Ino, entry: InodeSlot) {
        self.inodes.insert(ino);
        let known = self.state.inodes.get(&ino);
        if let Some(known) = known
            && known.slot != entry
        {
            self.problem(format!("inode {ino} is at {:?}, and the map says {entry:?}", known.slot));
        }
        if !entry.is_none() {
            self.slots.push((ino, entry));
        }
        let inode = match known {
            Some(known) => known.inode,
            None => {
                let unsealed = |data: &[u8]| Inode::unseal(&data[entry.offset()..]).filter(|inode| inode.ino == ino.0);
                let stored = self.stored(entry.sector(), 1, |data| unsealed(data).is_some());
                let Some(inode) = stored.and_then(|data| unsealed(&data)) else { return };
                inode
            }
        };
        let pointer = inode.xattr_pointer().unwrap_or_default();
        self.claims.push((BlockId { ino, key: ATTRIBUTES }, pointer));
        let (mut used, _) = if !inode.is_inline() { self.tree(ino, &inode) } else { Default::default() };
        used += match known {
            Some(known) if known.xattr_dirty => known.xattr.as_ref().map_or(0, |data| data.len() as u64),
            _ => pointer.live_bytes(),
        };
        if self.is_complete() {
            self.same(&format!("bytes that inode {ino} uses"), inode.bytes_used, used);
        }
        let is_orphan = L::is_orphan(self.state, ino);
        if inode.links == 0 && !is_orphan {
            self.problem(format!("inode {ino} has no links and is no orphan"));
        }
        let Some(known) = known else { return };
        if known.reclaiming && !is_orphan {
            self.problem(format!("inode {ino} is being cut and is no orphan"));
        }
        if known.dirt != InodeDirt::Clean && !self.state.dirty_inodes.contains(&ino) {
            self.problem(format!("inode {ino} is dirty, and not on the list of those"));
        }
        let growth = known.xattr.as_ref().map_or(0, |data| data.len() as u64).saturating_sub(pointer.live_bytes());
        self.same(
            &format!("growth of the attributes of inode {ino}"),
            known.xattr_growth,
            if known.xattr_dirty { growth } else { 0 },
        );
    }

    /// Counts a tree. Returns the bytes that its data uses, and the blocks of an internal file.
    pub(in crate::fs) fn tree(&mut self, ino: Ino, inode: &Inode) -> (u64, Vec<(u64, Data)>) {
        let (mut used, mut blocks) = (0, Vec::new());
        let mut open: Vec<(BlockId, Pointer)> = (0..POINTERS_IN_INODE)
            .map(|slot| (BlockId { ino, key: root_key(slot) }, inode.pointer(slot).unwrap_or_default()))
            .collect();
        while let Some((id, pointer)) = open.pop() {
            let cached = self.state.blocks.peek(id).cloned();
            let dirty = self.state.blocks.dirty(id);
            self.claims.push((id, pointer));
            if let Some(dirty) = dirty {
                let growth = match pointer {
                    Pointer::Hole => BLOCK_BYTES as u64,
                    Pointer::Unwritten => 0,
                    Pointer::Mapped { .. } if dirty.cleaned => 0,
                    mapped => BLOCK_BYTES as u64 - mapped.live_bytes(),
                };
                self.same(&format!("growth of {id:?}"), dirty.growth_bytes, growth);
                self.growth += growth;
            } else if pointer == Pointer::Hole && cached.is_some() {
                self.problem(format!("{id:?} is in memory, clean, and a hole in the log"));
            }
            if id.key.is_data() {
                used += pointer.used_bytes() + dirty.map_or(0, |dirty| dirty.growth_bytes);
                self.unwritten += if pointer == Pointer::Unwritten { BLOCK_BYTES as u64 } else { 0 };
                if !is_internal(ino) {
                    continue;
                }
            }
            let bytes = match (cached, pointer) {
                (Some(data), _) => data,
                (None, Pointer::Mapped { at, sectors, crc }) => {
                    match self.stored(at, sectors.into(), |data| crc32c(data) == crc) {
                        Some(data) => data,
                        None => continue,
                    }
                }
                _ => continue,
            };
            if id.key.is_data() {
                blocks.push((id.key.0, bytes));
                continue;
            }
            for slot in 0..POINTERS_PER_BLOCK {
                let child = BlockId { ino, key: id.key.child(slot) };
                let pointer = pointer_in_block(&bytes, slot).unwrap_or_default();
                if pointer != Pointer::Hole || self.state.blocks.peek(child).is_some() {
                    open.push((child, pointer));
                }
            }
        }
        (used, blocks)
    }
}
