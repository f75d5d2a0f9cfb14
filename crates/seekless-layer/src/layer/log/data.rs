//! File data: reading, writing, truncating, holes. All changes are made in memory; `stage` writes them below.
//!
//! Reading and changing chunks needs no locks: data read from below is used only if the index still has the same entry
//! when it arrives, and changes are made in one synchronous step.

use std::sync::Arc;

use futures_util::future::try_join_all;
use lru::LruCache;

use super::commit::is_without_effect;
use super::file::{Dirty, File, Form, Tail};
use super::format::{Entry, kinds};
use super::index::{Index, Step};
use super::load::damaged;
use super::node::OpenFile;
use super::{ChunkedLayer, count};
use crate::device::Data;
use crate::fs::{AllocateMode, FileRange, FsError, FsResult, SeekTo};
use crate::layer::codecs::{self, Codec, Position};
use crate::layer::work;
use crate::rt::Work;
use crate::units::MIB;

/// A decoded chunk, and the index entry of its record.
type Decoded = (Entry, Arc<Vec<u8>>);

/// Decoded chunks by file and number: the most recently used ones.
pub(super) struct Cache {
    chunks: LruCache<(u64, u64), Decoded>,
    bytes: u64,
    bytes_max: u64,
}

impl Cache {
    pub(super) fn new(bytes_max: u64) -> Cache {
        Cache { chunks: LruCache::unbounded(), bytes: 0, bytes_max }
    }

    /// The chunk that belongs to `entry`.
    fn get(&mut self, key: (u64, u64), entry: Entry) -> Option<Arc<Vec<u8>>> {
        self.chunks.get(&key).filter(|(found, _)| *found == entry).map(|(_, bytes)| bytes.clone())
    }

    pub(super) fn put(&mut self, key: (u64, u64), entry: Entry, bytes: Arc<Vec<u8>>) {
        self.bytes += bytes.len() as u64;
        if let Some((_, old)) = self.chunks.put(key, (entry, bytes)) {
            debug_assert!(old.len() as u64 <= self.bytes, "the sum is that of all chunks in the cache");
            self.bytes -= old.len() as u64;
        }
        while self.bytes > self.bytes_max {
            let Some((_, (_, old))) = self.chunks.pop_lru() else {
                debug_assert!(false, "a cache without chunks holds no bytes");
                break;
            };
            self.bytes -= old.len() as u64;
        }
    }

    pub(super) fn clear(&mut self) {
        self.chunks.clear();
        self.bytes = 0;
    }
}

/// Changed bytes of one file in memory at which a write stages them.
const DIRTY_BYTES_PER_FILE: u64 = 4 * MIB;

/// Memory beyond its bytes for a waiting chunk, and storage below for a record: an estimate on the safe side.
const OVERHEAD_BYTES: u64 = 2048;

/// Bytes of free space below that are never promised to writers.
const ROOM_SPARE_BYTES: u64 = 256 << 10;

/// The stored bytes of a chunk.
struct Loaded {
    bytes: Arc<Vec<u8>>,
    /// Length of the bytes in the chunk's own record.
    base: Option<u32>,
}

impl ChunkedLayer {
    /// The codec that decodes chunks with the number `id`.
    ///
    /// # Errors
    /// Why there is none, as text.
    pub(super) fn codec_of(&self, id: u8) -> Result<Arc<dyn Codec>, String> {
        match &self.options.codec {
            codec if codec.id() == id => Ok(codec.clone()),
            codec if codec.is_secret() => Err(format!("it is not encrypted (codec {id})")),
            _ if id == codecs::ids::SEALED => Err("it is encrypted, which needs `encrypt` and its key".to_string()),
            _ => codecs::known(id).ok_or_else(|| format!("codec {id} is not known here")),
        }
    }

    /// Reads and decodes the record of `chunk`.
    async fn decode(&self, file: OpenFile<'_>, chunk: u64, entry: Entry) -> FsResult<Arc<Vec<u8>>> {
        let key = (file.node.serial, chunk);
        if let Some(bytes) = self.cache.borrow_mut().get(key, entry) {
            return Ok(bytes);
        }
        let record = file.read_record("chunk", entry).await?;
        let wrong = |problem: String| damaged("chunk", file.ino(), entry, problem);
        file.borrow().check_record(&record, kinds::CHUNK, chunk).map_err(wrong)?;
        let codec = self.codec_of(record.codec).map_err(wrong)?;
        let raw_bytes = record.raw_bytes as usize;
        let cycles = codec.cost().decode_cycles_per_kib * raw_bytes as u64 / 1024;
        self.rt.charge(Work::Copy { bytes: raw_bytes as u64 }).await;
        let position = Position { file_id: record.file_id, chunk, generation: record.generation };
        let body = record.body;
        let decoded = work(&self.rt, cycles, move || codec.decode(&body, raw_bytes, &position)).await;
        count(&self.counts.chunks_decoded, 1);
        let bytes = Arc::new(decoded.map_err(wrong)?);
        self.cache.borrow_mut().put(key, entry, bytes.clone());
        Ok(bytes)
    }

    /// The stored bytes of `chunk`, including the tail; not those in `dirty`.
    async fn load_chunk(&self, file: OpenFile<'_>, chunk: u64) -> FsResult<Loaded> {
        loop {
            let entry = self.with_index(file, |file| file.index.get(chunk)).await?;
            let tail = file.borrow().tail.filter(|tail| tail.chunk == chunk);
            let loaded = self.load_as(file, chunk, entry, tail).await;
            // During the read, the record may have been replaced and its space reused: then the bytes may be anything.
            let is_current = {
                let file = file.borrow();
                file.index.get(chunk) == Step::Done(entry) && file.tail.filter(|tail| tail.chunk == chunk) == tail
            };
            if is_current {
                return loaded;
            }
        }
    }

    async fn load_as(&self, file: OpenFile<'_>, chunk: u64, entry: Entry, tail: Option<Tail>) -> FsResult<Loaded> {
        let (bytes, base) = match entry.is_hole() {
            true => (Arc::new(Vec::new()), None),
            false => {
                let bytes = self.decode(file, chunk, entry).await?;
                let base = bytes.len() as u32;
                (bytes, Some(base))
            }
        };
        let Some(tail) = tail else { return Ok(Loaded { bytes, base }) };
        let record = file.read_record("tail", tail.entry).await?;
        let wrong = |problem: String| damaged("tail", file.ino(), tail.entry, problem);
        if self.options.codec.is_secret() {
            return Err(wrong("it is not encrypted".to_string()));
        }
        file.borrow().check_record(&record, kinds::TAIL, chunk).map_err(wrong)?;
        if u64::from(tail.start) + record.body.len() as u64 > file.borrow().chunk_bytes() {
            return Err(wrong(format!("{} bytes at {} of the chunk", record.body.len(), tail.start)));
        }
        let mut all = bytes[..bytes.len().min(tail.start as usize)].to_vec();
        all.resize(tail.start as usize, 0);
        all.extend_from_slice(&record.body);
        Ok(Loaded { bytes: Arc::new(all), base })
    }

    /// The present bytes of `chunk`; those behind them are zero.
    async fn chunk(&self, file: OpenFile<'_>, chunk: u64) -> FsResult<Arc<Vec<u8>>> {
        let in_memory = |file: &File| file.dirty.get(&chunk).map(|dirty| dirty.bytes.clone());
        if let Some(bytes) = in_memory(&file.borrow()) {
            return Ok(bytes);
        }
        let loaded = self.load_chunk(file, chunk).await;
        // L2: it may have been changed in the meantime.
        match in_memory(&file.borrow()) {
            Some(bytes) => Ok(bytes),
            None => Ok(loaded?.bytes),
        }
    }

    /// Makes `chunk` dirty, so that it can be changed.
    pub(super) async fn ensure_dirty(&self, file: OpenFile<'_>, chunk: u64) -> FsResult<()> {
        if file.borrow().dirty.contains_key(&chunk) {
            return Ok(());
        }
        let Loaded { bytes, base } = self.load_chunk(file, chunk).await?;
        let mut file = file.borrow_mut();
        let (version, shift) = (file.version, file.chunk_shift);
        if let std::collections::btree_map::Entry::Vacant(vacant) = file.dirty.entry(chunk) {
            debug_assert!(bytes.len() as u64 <= 1 << shift, "L2: a chunk that is read has no more than its size");
            self.dirty_bytes.set(self.dirty_bytes.get() + bytes.len() as u64);
            vacant.insert(Dirty { bytes, base, changed_from: u32::MAX, version });
        }
        Ok(())
    }

    /// Reads a consistent state of the range.
    pub(super) async fn read_log(&self, file: OpenFile<'_>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        /// Attempts of a read that meets concurrent changes; the last one returns what it has, as other file systems
        /// do.
        const TRIES: u32 = 4;
        for again in (0..TRIES).rev() {
            let (size, shift, version) = {
                let file = file.borrow();
                (file.size, file.chunk_shift, file.version)
            };
            let end = size.min(offset.saturating_add(bytes.into()));
            if offset >= end {
                return Ok(Vec::new());
            }
            let chunks = offset >> shift..=(end - 1) >> shift;
            let loads = chunks.clone().map(|chunk| self.chunk(file, chunk));
            let loaded = try_join_all(loads).await?;
            if file.borrow().version != version && again > 0 {
                continue;
            }
            let mut all = Data::zeroes((end - offset) as usize);
            let filled = all.make_mut();
            for (chunk, bytes) in chunks.zip(loaded) {
                let start = chunk << shift;
                let from = offset.max(start);
                let to = end.min(start + bytes.len() as u64);
                if from < to {
                    let part = &bytes[(from - start) as usize..(to - start) as usize];
                    filled[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
                }
            }
            return Ok(vec![all]);
        }
        unreachable!("the last try ends")
    }

    /// Makes room in memory for another changed chunk.
    ///
    /// # Errors
    /// Those of writing waiting changes below, `NoSpace` among them.
    async fn ensure_memory(&self, file: OpenFile<'_>) -> FsResult<()> {
        if file.borrow().dirty_bytes() > DIRTY_BYTES_PER_FILE {
            self.stage_full_chunks(file).await?;
        }
        if self.dirty_bytes.get() > self.options.dirty_bytes_max {
            let written = self.write_back_from(file).await;
            // The error may be that of another file, while all others have made room.
            if self.dirty_bytes.get() > self.options.dirty_bytes_max {
                written?;
            }
        }
        Ok(())
    }

    /// As [`ChunkedLayer::ensure_memory`], for a change that leaves less data than before, which a full volume must not refuse.
    async fn ensure_memory_to_free_space(&self, file: OpenFile<'_>) -> FsResult<()> {
        match self.ensure_memory(file).await {
            Err(error) if is_without_effect(&error) => Ok(()),
            other => other,
        }
    }

    /// Makes room in memory, and checks for space below, for a write of `bytes` bytes.
    ///
    /// # Errors
    /// `NoSpace` when waiting changes could not be written below.
    async fn ensure_room(&self, file: OpenFile<'_>, bytes: u64) -> FsResult<()> {
        self.ensure_memory(file).await?;
        let needed = bytes + bytes / 2 + OVERHEAD_BYTES;
        if self.room.get() >= needed {
            self.room.set(self.room.get() - needed);
            return Ok(());
        }
        for last in [false, true] {
            let stat = file.lower.statfs().await?;
            let free = stat.blocks_available.saturating_mul(stat.block_bytes.into());
            let promised = self.dirty_bytes.get() + self.dirty_bytes.get() / 2;
            // Other users share the space, so only a part of the answer is relied on.
            let room = free.saturating_sub(promised + ROOM_SPARE_BYTES).min(MIB.max(needed).saturating_mul(16));
            if room >= needed {
                self.room.set(room - needed);
                return Ok(());
            }
            if !last && self.dirty_bytes.get() > 0 {
                // Written data needs no promise. After an error, that of another file perhaps, the next answer decides.
                let _ = self.write_back_from(file).await;
            }
        }
        Err(FsError::NoSpace)
    }

    /// Writes, in one synchronous step.
    pub(super) async fn write_log(&self, file: OpenFile<'_>, offset: u64, data: &[u8]) -> FsResult<()> {
        let end = check_end(&file.borrow(), offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        self.ensure_room(file, data.len() as u64).await?;
        self.rt.charge(Work::Copy { bytes: data.len() as u64 }).await;
        let shift = file.borrow().chunk_shift;
        let chunks = offset >> shift..=(end - 1) >> shift;
        // A chunk that is overwritten completely need not be read.
        let is_whole = |file: &File, chunk: u64| {
            let start = chunk << shift;
            offset <= start && end >= file.size.min(start + (1 << shift))
        };
        loop {
            for chunk in chunks.clone() {
                let whole = is_whole(&file.borrow(), chunk);
                if !whole {
                    self.ensure_dirty(file, chunk).await?;
                }
            }
            let mut file = file.borrow_mut();
            file.check()?;
            if !chunks.clone().all(|chunk| file.dirty.contains_key(&chunk) || is_whole(&file, chunk)) {
                continue; // Some have been staged since.
            }
            // From here on nothing can fail.
            for chunk in chunks.clone() {
                let blank = Dirty { bytes: Arc::default(), base: None, changed_from: 0, version: 0 };
                file.dirty.entry(chunk).or_insert(blank);
            }
            file.touch(self.rt.wall());
            debug_assert!(
                chunks.clone().all(|chunk| file.dirty.contains_key(&chunk)),
                "L2: what is written is in memory as a whole, and complete"
            );
            let mut grown = 0;
            for chunk in chunks {
                let start = chunk << shift;
                let (from, to) = (offset.max(start), end.min(start + (1 << shift)));
                let within = (from - start) as usize..(to - start) as usize;
                if let Some(bytes) = file.change_chunk(chunk, within.start as u32) {
                    let before = bytes.len();
                    if before < within.end {
                        bytes.resize(within.end, 0);
                    }
                    debug_assert!(bytes.len() as u64 <= 1 << shift, "L2: a chunk holds no more than its size");
                    grown += bytes.len() - before;
                    bytes[within].copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
                }
            }
            file.size = file.size.max(end);
            self.dirty_bytes.set(self.dirty_bytes.get() + grown as u64);
            return Ok(());
        }
    }

    /// Truncates or extends the file to `size`.
    pub(super) async fn resize_log(&self, file: OpenFile<'_>, size: u64) -> FsResult<()> {
        check_end(&file.borrow(), size, 0)?;
        let leaves_part_of_chunk = {
            let file = file.borrow();
            size < file.size && !size.is_multiple_of(file.chunk_bytes())
        };
        if leaves_part_of_chunk {
            self.ensure_memory_to_free_space(file).await?;
        }
        let _relocation = file.node.relocation_gate.enter().await;
        if size == 0 {
            let mut file = file.borrow_mut();
            file.check()?;
            self.forget_chunks(&mut file, 0);
            file.drop_everything();
            file.touch(self.rt.wall());
            if file.size > 0 {
                file.rewriters.get_or_insert_default();
            }
            file.size = 0;
            return Ok(());
        }
        loop {
            let shift = file.borrow().chunk_shift;
            let (chunk, within) = (size >> shift, (size & ((1 << shift) - 1)) as u32);
            let shrinks = size < file.borrow().size;
            if shrinks {
                if within > 0 {
                    self.ensure_dirty(file, chunk).await?;
                }
                self.load_entries(file, chunk..u64::MAX).await?;
            }
            let mut file = file.borrow_mut();
            file.check()?;
            if !shrinks && size < file.size || shrinks && within > 0 && !file.dirty.contains_key(&chunk) {
                continue; // It has changed since.
            }
            file.touch(self.rt.wall());
            if shrinks {
                let first = size.div_ceil(1 << shift);
                if within > 0
                    && let Some(bytes) = file.change_chunk(chunk, within)
                {
                    let before = bytes.len();
                    bytes.truncate(within as usize);
                    bytes.shrink_to_fit();
                    self.forget_bytes(before - bytes.len());
                }
                self.forget_chunks(&mut file, first);
                file.drop_entries(first..u64::MAX);
            }
            debug_assert!(
                !shrinks || file.dirty.keys().next_back().is_none_or(|last| *last <= file.size >> shift),
                "L2: no chunk that has changed lies behind the end"
            );
            file.size = size;
            return Ok(());
        }
    }

    /// Makes `range` a hole, up to the end of the file.
    async fn punch_log(&self, file: OpenFile<'_>, range: FileRange) -> FsResult<()> {
        self.ensure_memory_to_free_space(file).await?;
        let _relocation = file.node.relocation_gate.enter().await;
        loop {
            let (shift, size) = {
                let file = file.borrow();
                (file.chunk_shift, file.size)
            };
            let (start, end) = (range.offset, range.offset.saturating_add(range.bytes).min(size));
            if start >= end {
                file.borrow_mut().touch(self.rt.wall());
                return Ok(());
            }
            // A last chunk that is punched up to its end is punched as a whole.
            let last_whole = if end == size { end.div_ceil(1 << shift) } else { end >> shift };
            let whole = start.div_ceil(1 << shift)..last_whole.max(start.div_ceil(1 << shift));
            let edges: Vec<u64> =
                [start >> shift, (end - 1) >> shift].into_iter().filter(|chunk| !whole.contains(chunk)).collect();
            for &chunk in &edges {
                self.ensure_dirty(file, chunk).await?;
            }
            self.load_entries(file, whole.clone()).await?;
            let mut file = file.borrow_mut();
            file.check()?;
            if file.size != size || !edges.iter().all(|chunk| file.dirty.contains_key(chunk)) {
                continue;
            }
            file.touch(self.rt.wall());
            for chunk in edges {
                let chunk_start = chunk << shift;
                let from = start.max(chunk_start) - chunk_start;
                let to = end.min(chunk_start + (1 << shift)) - chunk_start;
                if let Some(bytes) = file.change_chunk(chunk, from as u32) {
                    let to = (to as usize).min(bytes.len());
                    if (from as usize) < to {
                        bytes[from as usize..to].fill(0);
                    }
                }
            }
            let gone: Vec<u64> = file.dirty.range(whole.clone()).map(|(chunk, _)| *chunk).collect();
            for chunk in gone {
                self.forget_chunk(&mut file, chunk);
            }
            file.drop_entries(whole);
            return Ok(());
        }
    }

    pub(super) async fn allocate_log(&self, file: OpenFile<'_>, range: FileRange, mode: AllocateMode) -> FsResult<()> {
        if range.bytes == 0 {
            return Err(FsError::Invalid("an empty range"));
        }
        let end = check_end(&file.borrow(), range.offset, range.bytes)?;
        let keep_size = match mode {
            AllocateMode::PunchHole => true,
            AllocateMode::Allocate { keep_size } | AllocateMode::Zero { keep_size } => keep_size,
        };
        if !matches!(mode, AllocateMode::PunchHole) {
            // Space cannot be reserved for bytes whose encoded size is unknown; but there must be enough of it.
            let holes = self.missing_bytes(file, range).await?;
            self.ensure_room(file, holes).await?;
        }
        if !matches!(mode, AllocateMode::Allocate { .. }) {
            self.punch_log(file, range).await?;
        }
        let mut file = file.borrow_mut();
        file.check()?;
        let grows = !keep_size && end > file.size;
        if grows || matches!(mode, AllocateMode::Allocate { .. }) {
            file.touch(self.rt.wall());
        }
        if grows {
            file.size = end;
        }
        Ok(())
    }

    /// Bytes of `range` without a record.
    async fn missing_bytes(&self, file: OpenFile<'_>, range: FileRange) -> FsResult<u64> {
        let shift = file.borrow().chunk_shift;
        let (mut from, end) = (range.offset >> shift, (range.offset + range.bytes).div_ceil(1 << shift));
        let mut missing = end - from;
        while let Some((chunk, _)) = self.with_index(file, |file| file.index.next(from)).await? {
            if chunk >= end {
                break;
            }
            missing -= 1;
            from = chunk + 1;
        }
        Ok(missing.saturating_mul(1 << shift).min(range.bytes))
    }

    pub(super) async fn seek_log(&self, file: OpenFile<'_>, offset: u64, seek: SeekTo) -> FsResult<u64> {
        let (size, shift) = {
            let file = file.borrow();
            (file.size, file.chunk_shift)
        };
        if offset >= size {
            return Err(FsError::NoSuchOffset);
        }
        let first = offset >> shift;
        let mut at = first;
        loop {
            // The first chunk at or after `at` that has data.
            let next = self
                .with_index(file, |file| {
                    let in_memory = file.dirty.range(at..).next().map(|(chunk, _)| *chunk);
                    let tail = file.tail.map(|tail| tail.chunk).filter(|chunk| *chunk >= at);
                    let others = in_memory.into_iter().chain(tail).min();
                    match file.index.next(at) {
                        Step::Done(found) => Step::Done(found.map(|(chunk, _)| chunk).into_iter().chain(others).min()),
                        Step::Load(load) => Step::Load(load),
                    }
                })
                .await?;
            let start = |chunk: u64| offset.max(chunk.saturating_mul(1 << shift));
            match (seek, next) {
                (SeekTo::Data, Some(chunk)) if start(chunk) < size => return Ok(start(chunk)),
                (SeekTo::Data, _) => return Err(FsError::NoSuchOffset),
                (SeekTo::Hole, Some(chunk)) if chunk == at => at += 1,
                (SeekTo::Hole, _) => return Ok(start(at).min(size)),
            }
        }
    }

    /// Reads the part of the index with the entries of `chunks`.
    async fn load_entries(&self, file: OpenFile<'_>, chunks: std::ops::Range<u64>) -> FsResult<()> {
        let mut from = chunks.start;
        while let Some((chunk, _)) = self.with_index(file, |file| file.index.next(from)).await? {
            if chunk >= chunks.end {
                break;
            }
            from = chunk + 1;
        }
        Ok(())
    }

    /// Removes a changed chunk from memory.
    pub(super) fn forget_chunk(&self, file: &mut File, chunk: u64) {
        if let Some(dirty) = file.dirty.remove(&chunk) {
            self.forget_bytes(dirty.bytes.len());
        }
    }

    /// Subtracts bytes that are no longer in memory.
    fn forget_bytes(&self, bytes: usize) {
        let before = self.dirty_bytes.get();
        assert!(before >= bytes as u64, "{bytes} of {before} changed bytes");
        self.dirty_bytes.set(before - bytes as u64);
    }

    /// Removes the changed chunks from `first` on from memory.
    pub(super) fn forget_chunks(&self, file: &mut File, first: u64) {
        let gone: Vec<u64> = file.dirty.range(first..).map(|(chunk, _)| *chunk).collect();
        for chunk in gone {
            self.forget_chunk(file, chunk);
        }
    }
}

impl File {
    /// Drops the records of `chunks`, whose index entries are all in memory.
    fn drop_entries(&mut self, chunks: std::ops::Range<u64>) {
        let mut from = chunks.start;
        while let Step::Done(Some((chunk, entry))) = self.index.next(from) {
            if chunk >= chunks.end {
                break;
            }
            match self.index.set(chunk, Entry::HOLE) {
                Step::Done(_) => self.drop_record(entry),
                Step::Load(_) => unreachable!("its entry has just been read"),
            }
            from = chunk + 1;
        }
        if self.tail.is_some_and(|tail| chunks.contains(&tail.chunk)) {
            self.drop_tail();
        }
    }

    /// Drops all records, whether their entries are in memory or not: all space in use.
    fn drop_everything(&mut self) {
        use super::format::RECORDS_START;
        use super::space::{Extent, Space};
        self.index = Index::default();
        self.tail = None;
        self.live_bytes = 0;
        // This includes what other operations have dropped.
        self.dropped.clear();
        self.waiting.clear();
        if let Some(prepared) = &mut self.prepared {
            prepared.dropped.clear();
        }
        let end = self.space.end();
        self.space = Space::full(end);
        self.is_space_partial = false;
        if end > RECORDS_START {
            self.dropped.push(Extent { offset: RECORDS_START, bytes: end - RECORDS_START });
        }
    }
}

/// The end of `bytes` at `offset`.
///
/// # Errors
/// `FileTooLarge` when no file goes so far.
fn check_end(file: &File, offset: u64, bytes: u64) -> FsResult<u64> {
    debug_assert!(file.form == Form::Log, "chunks are those of files of this layer");
    let end = offset.checked_add(bytes).filter(|&end| i64::try_from(end).is_ok());
    let end = end.ok_or(FsError::FileTooLarge)?;
    match Index::has_room(end.saturating_sub(1) >> file.chunk_shift) {
        true => Ok(end),
        false => Err(FsError::FileTooLarge),
    }
}
