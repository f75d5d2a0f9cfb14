//! The names of a directory in memory. It knows chunks of entries, not the volume that they are on.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::format::*;

/// One name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct FoundName {
    pub ino: InodeNo,
    /// According to the entry; the inode is authoritative.
    pub kind: u8,
    /// Offset of the entry in the directory.
    pub offset: u64,
}

/// The names of a directory.
pub(in super::super) struct Index {
    names: BTreeMap<Vec<u8>, FoundName>,
    by_offset: BTreeMap<u64, Vec<u8>>,
    /// The largest gap of each chunk.
    gaps: Vec<u16>,
    /// What it takes in memory, about.
    bytes: u64,
    /// What all indexes take.
    all: Rc<Cell<u64>>,
}

/// What a name takes beside its two copies: nodes of both maps, and allocations.
const NAME_OVERHEAD_BYTES: u64 = 150;

fn bytes_of(name: &[u8]) -> u64 {
    2 * name.len() as u64 + NAME_OVERHEAD_BYTES
}

impl Drop for Index {
    fn drop(&mut self) {
        self.all.set(self.all.get() - self.bytes);
    }
}

/// Where a new entry can go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Slot {
    /// Into this chunk.
    Chunk(u64),
    /// Into a new chunk at the end.
    Append,
}

/// Unused bytes behind the entry.
pub(super) fn gap(entry: &Dirent<'_>) -> usize {
    entry.record_bytes - entry.needed_bytes()
}

impl Index {
    /// `all` counts what all indexes take.
    pub(in super::super) fn new(all: &Rc<Cell<u64>>) -> Index {
        let (names, by_offset) = (BTreeMap::new(), BTreeMap::new());
        Index { names, by_offset, gaps: Vec::new(), bytes: 0, all: all.clone() }
    }

    fn account(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.all.set(self.all.get() + bytes);
    }

    /// Adds a name that the directory did not have.
    pub(super) fn add(&mut self, name: &[u8], found: FoundName) {
        let other = self.by_offset.insert(found.offset, name.to_vec());
        debug_assert!(other.is_none(), "one name is at a place of a directory");
        let other = self.names.insert(name.to_vec(), found);
        debug_assert!(other.is_none(), "a name is in a directory once");
        self.account(bytes_of(name));
    }

    /// The same for the first name of a new chunk at `start`, with a gap behind it.
    pub(super) fn append(&mut self, start: u64, name: &[u8], found: FoundName, gap: u16) {
        debug_assert!(self.by_offset.range(start..).next().is_none(), "a directory grows at its end");
        self.add(name, found);
        self.gaps.resize((start / DIR_CHUNK_BYTES as u64) as usize, 0);
        self.gaps.push(gap);
    }

    /// The chunk at `start` has changed.
    pub(super) fn set_gap(&mut self, start: u64, widest: usize) {
        if let Some(gap) = self.gaps.get_mut((start / DIR_CHUNK_BYTES as u64) as usize) {
            *gap = widest as u16;
        }
    }

    /// The name refers to another inode.
    pub(super) fn change(&mut self, name: &[u8], ino: InodeNo, kind: u8) {
        if let Some(entry) = self.names.get_mut(name) {
            (entry.ino, entry.kind) = (ino, kind);
        }
    }

    pub(super) fn add_chunk(&mut self, start: u64, chunk: &[u8]) -> Result<(), String> {
        let entries = dirents(chunk)?;
        self.gaps.push(entries.iter().map(gap).max().unwrap_or(0) as u16);
        for entry in entries.iter().filter(|entry| entry.ino != InodeNo::NONE) {
            let offset = start + entry.offset as u64;
            let found = FoundName { ino: entry.ino, kind: entry.kind, offset };
            if self.names.contains_key(entry.name) {
                return Err(format!("the name {:?} occurs twice", String::from_utf8_lossy(entry.name)));
            }
            self.add(entry.name, found);
        }
        Ok(())
    }

    pub(in super::super) fn count_names_of(&self, ino: InodeNo) -> usize {
        self.names.values().filter(|found| found.ino == ino).count()
    }

    /// A name of the inode.
    pub(in super::super) fn name_of(&self, ino: InodeNo) -> Option<&[u8]> {
        let own = self.names.iter().find(|(name, found)| found.ino == ino && !matches!(&name[..], b"." | b".."));
        own.map(|(name, _)| &name[..])
    }

    /// D2.
    pub(super) fn check_dots(&self) -> Result<(), String> {
        let mut first = self.by_offset.values();
        match (first.next(), first.next()) {
            (Some(one), Some(two)) if one == b"." && two == b".." => Ok(()),
            _ => Err("it does not begin with `.` and `..`".into()),
        }
    }

    pub(in super::super) fn get(&self, name: &[u8]) -> Option<&FoundName> {
        self.names.get(name)
    }

    /// Removes a name. Returns the offset of its entry.
    pub(in super::super) fn remove(&mut self, name: &[u8]) -> Option<u64> {
        let found = self.names.remove(name)?;
        let at = self.by_offset.remove(&found.offset);
        debug_assert_eq!(at.as_deref(), Some(name), "a name is listed where its entry is");
        self.bytes -= bytes_of(name);
        self.all.set(self.all.get() - bytes_of(name));
        Some(found.offset)
    }

    pub(in super::super) fn is_empty(&self) -> bool {
        self.names.len() <= 2 // D2
    }

    /// The first entry at `offset` or behind it.
    pub(in super::super) fn from(&self, offset: u64) -> Option<(&[u8], &FoundName)> {
        let (_, name) = self.by_offset.range(offset..).next()?;
        Some((name, self.names.get(name)?))
    }

    pub(in super::super) fn slot_for(&self, name: &[u8]) -> Slot {
        let needed = dirent_bytes(name.len()) as u16;
        match self.gaps.iter().position(|&gap| gap >= needed) {
            Some(chunk) => Slot::Chunk(chunk as u64 * DIR_CHUNK_BYTES as u64),
            None => Slot::Append,
        }
    }
}
