//! Directories: chunks of entries on the volume, an index of them in memory.
//!
//! The index is built when a name is first looked up, and maintained from then on. Its users hold the lock of the
//! directory.
//!
//! Invariants
//!   D1  Each chunk is full of entries, used or not; none crosses its end.
//!   D2  The first two entries are `.` and `..`.
//!   D3  An entry stays where it is as long as its name exists, so that its offset can be the cookie of a listing.
//!
//! Differences from 4.4BSD
//!   1. A new entry goes where one gap is large enough; entries are not moved together to make one (D3).

pub(super) mod index;

use super::Ffs;
use super::format::*;
use super::state::*;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
pub(super) use index::Slot;
use index::{FoundName, Index, gap};

/// Fills `bytes` with whole chunks, each of one unused entry (D1).
pub(super) fn fill_with_empty_chunks(bytes: &mut [u8]) {
    for chunk in bytes.chunks_exact_mut(DIR_CHUNK_BYTES) {
        chunk.fill(0);
        crate::codec::put_at(chunk, 4, DIR_CHUNK_BYTES as u16);
    }
}

/// Reads all names of a directory into memory. A caller that does not hold the lock may read blocks of different times;
/// but changes need the index, so that another task has built one by then. That one is kept.
pub(super) async fn build_index(ffs: &Ffs, ino: InodeNo) -> FsResult<()> {
    let number = {
        let mut state = ffs.state.borrow_mut();
        let number = state.cache.tick();
        state.indexing.insert((ino, number));
        number
    };
    let built = read_names(ffs, ino).await;
    if !ffs.state.borrow().indexing.contains(&(ino, number)) {
        return Ok(());
    }
    let mut built = Some(built);
    let kept = ffs.step(|state| {
        state.inode(ino)?;
        if !state.indexing.contains(&(ino, number)) {
            return Ok(());
        }
        state.indexing.retain(|&(other, _)| other != ino);
        let index = built.take().transpose()?;
        let uses = state.index_uses;
        let known = state.inode(ino)?;
        (known.index, known.index_used) = (index.map(Box::new), uses);
        state.evict_indexes();
        Ok(())
    });
    kept.await
}

async fn read_names(ffs: &Ffs, ino: InodeNo) -> FsResult<Index> {
    let (mut index, block) = {
        let state = ffs.state.borrow();
        (Index::new(&state.index_bytes), u64::from(state.layout.block_bytes))
    };
    let mut start = 0;
    loop {
        let data = ffs.step(|state| {
            let size = state.inode(ino)?.inode.size;
            if start >= size {
                return Ok(None);
            }
            let lbn = start / block;
            let frags = state.layout.block_frags(size, lbn);
            let kind = state.data_kind(ino, lbn)?;
            match state.block_at(ino, lbn)? {
                Some(at) => {
                    let data = state.buffer(at, frags, kind)?;
                    let end = data.len().min((size - start) as usize);
                    Ok(Some(data.slice(0..end)))
                }
                None => fail(FsError::corrupt("directory", format_args!("inode {ino}"), "it has a hole")),
            }
        });
        let Some(data) = data.await? else { break };
        for chunk in data.chunks_exact(DIR_CHUNK_BYTES) {
            let at = format_args!("inode {ino}, byte {start}").to_string();
            index.add_chunk(start, chunk).map_err(|detail| FsError::corrupt("directory", at, detail))?;
            start += DIR_CHUNK_BYTES as u64;
        }
        if data.len() < DIR_CHUNK_BYTES {
            break;
        }
    }
    index.check_dots().map_err(|detail| FsError::corrupt("directory", format_args!("inode {ino}"), detail))?;
    Ok(index)
}

impl State {
    /// The names of a directory.
    ///
    /// # Errors
    /// `NotDirectory` when `dir` is not a directory.
    pub(super) fn index(&mut self, dir: InodeNo) -> Step<&mut Index> {
        self.index_uses += 1;
        let uses = self.index_uses;
        let known = self.inode(dir)?;
        known.index_used = uses;
        if !known.inode.is_directory() {
            return fail(FsError::NotDirectory);
        }
        match &mut known.index {
            Some(_) => {}
            None => return need(Need::Index(dir)),
        }
        match self.inodes.get_mut(&dir).and_then(|known| known.index.as_mut()) {
            Some(index) => Ok(index),
            None => fail(FsError::Stale),
        }
    }

    /// The entry of `name` in `dir`.
    pub(super) fn find(&mut self, dir: InodeNo, name: &[u8]) -> Step<Option<FoundName>> {
        let index = self.index(dir)?;
        if name.len() > NAME_BYTES_MAX {
            return fail(FsError::NameTooLong);
        }
        Ok(index.get(name).cloned())
    }

    /// The directory's block that holds byte `offset`, in memory: its address, and the offset of its chunk in it.
    pub(super) fn dir_chunk(&mut self, dir: InodeNo, offset: u64) -> Step<(FragNo, usize)> {
        let block = u64::from(self.layout.block_bytes);
        let (lbn, within) = (offset / block, (offset % block) as usize / DIR_CHUNK_BYTES * DIR_CHUNK_BYTES);
        let size = self.inode(dir)?.inode.size;
        let kind = self.data_kind(dir, lbn)?;
        let missing = || FsError::corrupt("directory", format_args!("inode {dir}, byte {offset}"), "it is not there");
        let Some(at) = self.block_at(dir, lbn)? else { return fail(missing()) };
        let data = self.buffer(at, self.layout.block_frags(size, lbn), kind)?;
        if within + DIR_CHUNK_BYTES > data.len() { fail(missing()) } else { Ok((at, within)) }
    }

    /// Puts an entry into the chunk at `start`, which has a gap for it. Returns the block to write.
    pub(super) fn insert_entry(
        &mut self,
        dir: InodeNo,
        start: u64,
        name: &[u8],
        ino: InodeNo,
        kind: u8,
    ) -> Step<FragNo> {
        let (at, within) = self.dir_chunk(dir, start)?;
        self.index(dir)?;
        let needed = dirent_bytes(name.len());
        let chunk = &mut self.buffer_mut(at)?[within..within + DIR_CHUNK_BYTES];
        let damaged = |detail: String| FsError::corrupt("directory", format_args!("inode {dir}, byte {start}"), detail);
        let entries = dirents(chunk).map_err(damaged)?;
        let Some(place) = entries.iter().find(|entry| gap(entry) >= needed) else {
            return fail(damaged("its gap is gone".into()));
        };
        let (offset, record, used) = (place.offset, place.record_bytes, place.needed_bytes());
        let new = offset + used;
        if used > 0 {
            crate::codec::put_at(chunk, offset + 4, used as u16);
        }
        put_dirent(chunk, new, ino, record - used, kind, name);
        let widest = dirents(chunk).map_err(damaged)?.iter().map(gap).max().unwrap_or(0);
        let place = start + new as u64;
        let index = self.index(dir)?;
        index.add(name, FoundName { ino, kind, offset: place });
        index.set_gap(start, widest);
        Ok(at)
    }

    /// Fills a new chunk at `start` with the one entry, behind all others of the directory.
    pub(super) fn append_entry(
        &mut self,
        dir: InodeNo,
        start: u64,
        name: &[u8],
        ino: InodeNo,
        kind: u8,
    ) -> Step<FragNo> {
        cover("ffs: a directory gets another chunk");
        let (at, within) = self.dir_chunk(dir, start)?;
        self.index(dir)?;
        let chunk = &mut self.buffer_mut(at)?[within..within + DIR_CHUNK_BYTES];
        put_dirent(chunk, 0, ino, DIR_CHUNK_BYTES, kind, name);
        let gap = (DIR_CHUNK_BYTES - dirent_bytes(name.len())) as u16;
        self.index(dir)?.append(start, name, FoundName { ino, kind, offset: start }, gap);
        Ok(at)
    }

    /// Removes an entry: the one before it in the chunk gets its bytes. Returns the block to write.
    pub(super) fn remove_entry(&mut self, dir: InodeNo, name: &[u8]) -> Step<FragNo> {
        let Some(found) = self.find(dir, name)? else { return fail(FsError::NotFound) };
        let at = self.erase_entry(dir, found.offset)?;
        self.index(dir)?.remove(name);
        Ok(at)
    }

    /// The same for the bytes alone.
    pub(super) fn erase_entry(&mut self, dir: InodeNo, offset: u64) -> Step<FragNo> {
        let start = offset / DIR_CHUNK_BYTES as u64 * DIR_CHUNK_BYTES as u64;
        self.index(dir)?;
        let (at, within) = self.dir_chunk(dir, start)?;
        let offset = (offset - start) as usize;
        let chunk = &mut self.buffer_mut(at)?[within..within + DIR_CHUNK_BYTES];
        let damaged = |detail: String| FsError::corrupt("directory", format_args!("inode {dir}, byte {start}"), detail);
        let entries = dirents(chunk).map_err(damaged)?;
        let place = entries.iter().position(|entry| entry.offset == offset);
        let Some(place) = place else { return fail(damaged("an entry is gone".into())) };
        let record = entries[place].record_bytes;
        match place.checked_sub(1).map(|before| (entries[before].offset, entries[before].record_bytes)) {
            None => crate::codec::put_at(chunk, offset, InodeNo::NONE),
            Some((before, length)) => crate::codec::put_at(chunk, before + 4, (length + record) as u16),
        }
        let widest = dirents(chunk).map_err(damaged)?.iter().map(gap).max().unwrap_or(0);
        self.index(dir)?.set_gap(start, widest);
        Ok(at)
    }

    /// Puts an entry back where [`State::remove_entry`] has taken it from; nothing has used its place since.
    pub(super) fn restore_entry(&mut self, dir: InodeNo, name: &[u8], found: &FoundName) -> Step<()> {
        let start = found.offset / DIR_CHUNK_BYTES as u64 * DIR_CHUNK_BYTES as u64;
        self.index(dir)?;
        let (at, within) = self.dir_chunk(dir, start)?;
        let offset = (found.offset - start) as usize;
        let chunk = &mut self.buffer_mut(at)?[within..within + DIR_CHUNK_BYTES];
        let damaged = |detail: String| FsError::corrupt("directory", format_args!("inode {dir}, byte {start}"), detail);
        let entries = dirents(chunk).map_err(damaged)?;
        // The one that got its bytes, or itself if it was the first of the chunk.
        let holder = entries.iter().rfind(|entry| entry.offset <= offset);
        let holder = holder.filter(|holder| holder.offset + holder.needed_bytes() <= offset);
        let Some((first, end)) = holder.map(|holder| (holder.offset, holder.offset + holder.record_bytes)) else {
            return fail(damaged("an entry's place is taken".into()));
        };
        if offset + dirent_bytes(name.len()) > end {
            return fail(damaged("an entry's place is taken".into()));
        }
        if first < offset {
            crate::codec::put_at(chunk, first + 4, (offset - first) as u16);
        }
        put_dirent(chunk, offset, found.ino, end - offset, found.kind, name);
        let widest = dirents(chunk).map_err(damaged)?.iter().map(gap).max().unwrap_or(0);
        let index = self.index(dir)?;
        index.add(name, found.clone());
        index.set_gap(start, widest);
        Ok(())
    }

    /// Makes an entry refer to another inode. Returns the block to write.
    pub(super) fn change_entry(&mut self, dir: InodeNo, name: &[u8], ino: InodeNo, kind: u8) -> Step<FragNo> {
        let Some(found) = self.find(dir, name)? else { return fail(FsError::NotFound) };
        let (at, within) = self.dir_chunk(dir, found.offset)?;
        let offset = within + (found.offset % DIR_CHUNK_BYTES as u64) as usize;
        let bytes = self.buffer_mut(at)?;
        crate::codec::put_at(bytes, offset, ino);
        bytes[offset + 6] = kind;
        self.index(dir)?.change(name, ino, kind);
        Ok(at)
    }
}
