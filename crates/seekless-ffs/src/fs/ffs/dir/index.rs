//! The names of a directory in memory. It knows chunks of entries, not the volume that they are on.

use std::collections::BTreeMap;

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
#[derive(Default)]
pub(in super::super) struct Index {
    pub(super) names: BTreeMap<Vec<u8>, FoundName>,
    pub(super) by_offset: BTreeMap<u64, Vec<u8>>,
    /// The largest gap of each chunk.
    pub(super) gaps: Vec<u16>,
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
    pub(super) fn add_chunk(&mut self, start: u64, chunk: &[u8]) -> Result<(), String> {
        let entries = dirents(chunk)?;
        self.gaps.push(entries.iter().map(gap).max().unwrap_or(0) as u16);
        for entry in entries.iter().filter(|entry| entry.ino != InodeNo::NONE) {
            let offset = start + entry.offset as u64;
            let found = FoundName { ino: entry.ino, kind: entry.kind, offset };
            if self.names.insert(entry.name.to_vec(), found).is_some() {
                return Err(format!("the name {:?} occurs twice", String::from_utf8_lossy(entry.name)));
            }
            self.by_offset.insert(offset, entry.name.to_vec());
        }
        Ok(())
    }

    pub(in super::super) fn count_names_of(&self, ino: InodeNo) -> usize {
        self.names.values().filter(|found| found.ino == ino).count()
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
