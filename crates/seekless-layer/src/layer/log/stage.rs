//! Staging: writes changed chunks as records into free space of the lower file. They mean nothing until a slot refers
//! to them.

use std::sync::Arc;

use futures_util::future::join_all;

use super::file::{File, Form, Moment, Tail};
use super::format::{Commit, Entry, FileRecord, NODE_ENTRIES, RECORDS_START, entries_to_bytes, kinds};
use super::node::OpenFile;
use super::space::{Extent, Space};
use super::{ChunkedLayer, count};
use crate::device::Data;
use crate::fs::{FsError, FsResult, SetAttr};
use crate::layer::codecs::{Position, ids};
use crate::layer::work;
use crate::rt::{Work, cover};

/// Chunks that are encoded together, and written together where they are adjacent: 512 KiB of chunks of 32 KiB.
const BATCH_CHUNKS: usize = 16;

/// Longest tail. Each append within it rewrites it; beyond it a whole chunk is encoded.
const TAIL_BYTES_MAX: u64 = 4096;

/// A chunk as it was when staging began.
struct Snapshot {
    chunk: u64,
    bytes: Arc<Vec<u8>>,
    base: Option<u32>,
    changed_from: u32,
    version: u64,
}

/// The encoded form of a snapshot.
enum Staged {
    Hole,
    Chunk(FileRecord),
    Tail(FileRecord),
}

impl ChunkedLayer {
    /// Stages all changes. The caller holds `relocation_gate`.
    ///
    /// # Errors
    /// Chunks that have not been staged are still in memory; nothing is lost.
    pub(super) async fn stage_all(&self, file: OpenFile<'_>) -> FsResult<Moment> {
        debug_assert!(file.node.relocation_gate.is_held(), "records are moved by one task at a time");
        self.ensure_space(file).await?;
        self.fold_tail(file).await?;
        let (snapshots, moment) = {
            let file = file.borrow();
            let moment = Moment { size: file.size, times: file.times, version: file.version };
            (file.snapshots(u64::MAX), moment)
        };
        self.stage(file, &snapshots).await?;
        Ok(moment)
    }

    /// Stages the changed chunks that are not likely to change again soon: all but the last.
    pub(super) async fn stage_full_chunks(&self, file: OpenFile<'_>) -> FsResult<()> {
        let file = file.by_inode();
        let _relocation = file.node.relocation_gate.enter().await;
        file.borrow().check()?;
        self.ensure_space(file).await?;
        let snapshots = {
            let file = file.borrow();
            let last = file.dirty.keys().next_back().copied().unwrap_or(0);
            file.snapshots(last)
        };
        self.stage(file, &snapshots).await
    }

    async fn stage(&self, file: OpenFile<'_>, snapshots: &[Snapshot]) -> FsResult<()> {
        debug_assert!(file.node.relocation_gate.is_held(), "records are moved by one task at a time");
        for batch in snapshots.chunks(BATCH_CHUNKS) {
            let staged = join_all(batch.iter().map(|snapshot| self.encode(file, snapshot))).await;
            for (snapshot, staged) in batch.iter().zip(&staged) {
                if !matches!(staged, Staged::Tail(_)) {
                    // Reads the nodes above it: a record that has been written must become part of the file, or its
                    // space is lost.
                    self.with_index(file, |file| file.index.get(snapshot.chunk)).await?;
                }
            }
            let records: Vec<&FileRecord> = staged.iter().filter_map(Staged::record).collect();
            let mut entries = self.place(file, &records).await?.into_iter();
            for (snapshot, staged) in batch.iter().zip(&staged) {
                let entry = match staged {
                    Staged::Hole => Entry::HOLE,
                    _ => entries.next().unwrap_or(Entry::HOLE),
                };
                self.install(file, snapshot, staged, entry).await?;
            }
            debug_assert!(entries.next().is_none(), "L2: each record that is written becomes part of the file");
        }
        Ok(())
    }

    /// Encodes a chunk for storage.
    async fn encode(&self, file: OpenFile<'_>, snapshot: &Snapshot) -> Staged {
        // Zeroes at the end are implied and not stored.
        let length = snapshot.bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if length == 0 {
            return Staged::Hole;
        }
        if !self.options.codec.is_secret()
            && let Some(base) = snapshot.base
            && snapshot.changed_from >= base
            && snapshot.chunk == file.borrow().last_chunk()
            && (length as u64).saturating_sub(base.into()) <= TAIL_BYTES_MAX
        {
            let body = snapshot.bytes.get(base as usize..length).unwrap_or_default().to_vec();
            count(&self.counts.tails_written, 1);
            return Staged::Tail(file.borrow().record(kinds::TAIL, ids::RAW, snapshot.chunk, base, body));
        }
        let position = {
            let file = file.borrow();
            Position { file_id: file.file_id, chunk: snapshot.chunk, generation: file.next_generation() }
        };
        debug_assert!(
            length as u64 <= file.borrow().chunk_bytes(),
            "L2: a chunk has no more bytes than the file's chunks"
        );
        let codec = self.options.codec.clone();
        let (id, is_secret) = (codec.id(), codec.is_secret());
        let bytes = snapshot.bytes.clone();
        let cycles = codec.cost().encode_cycles_per_kib * length as u64 / 1024;
        let encoded = work(&self.rt, cycles, move || codec.encode(&bytes[..length], &position)).await;
        count(&self.counts.chunks_encoded, 1);
        count(&self.counts.bytes_encoded, length as u64);
        let (id, body) = match encoded {
            Some(body) => (id, body),
            None => {
                assert!(!is_secret, "a codec of secrets encodes everything");
                count(&self.counts.chunks_raw, 1);
                (ids::RAW, snapshot.bytes[..length].to_vec())
            }
        };
        let mut record = file.borrow().record(kinds::CHUNK, id, snapshot.chunk, length as u32, body);
        record.generation = position.generation;
        Staged::Chunk(record)
    }

    /// Writes records into free space, adjacent ones in one write.
    ///
    /// # Errors
    /// After an error none of the space is used.
    pub(super) async fn place(&self, file: OpenFile<'_>, records: &[&FileRecord]) -> FsResult<Vec<Entry>> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        self.clear_remains(file).await?;
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut entries = Vec::with_capacity(records.len());
        {
            let mut file = file.borrow_mut();
            if file.generation == 0 {
                // The initial commit of a file is in the same write as its first record, so that even the rest of an
                // unfinished first commit shows which layer wrote it.
                let initial = file.initial_commit();
                let mut start = initial.encode().to_vec();
                start.resize(RECORDS_START as usize, 0);
                runs.push((0, start));
            }
            for record in records {
                let (bytes, crc) = record.encode();
                let length = bytes.len() as u64;
                // Nodes are written with every commit; near the start they do not keep the file from being truncated.
                let placed = match (file.behind, record.kind) {
                    (Some(limit), _) => Some(file.space.allocate_behind(length, limit)),
                    (None, kinds::NODE) => file.space.allocate_below(length, u64::MAX),
                    (None, _) => None,
                };
                let extent = placed.unwrap_or_else(|| file.space.allocate(length));
                entries.push(Entry { offset: extent.offset, bytes: bytes.len() as u32, crc });
                match runs.last_mut() {
                    Some((start, run)) if *start + run.len() as u64 == extent.offset => run.extend_from_slice(&bytes),
                    _ => runs.push((extent.offset, bytes)),
                }
            }
        }
        for (offset, run) in runs {
            self.rt.charge(Work::Copy { bytes: run.len() as u64 }).await;
            count(&self.counts.bytes_written, run.len() as u64);
            if let Err(error) = file.write(offset, Data::from_slice(&run)).await {
                let mut file = file.borrow_mut();
                entries.iter().for_each(|entry| file.space.free(Extent::from(*entry)));
                return Err(error);
            }
        }
        debug_assert_eq!(entries.len(), records.len(), "L1: each record has its place");
        let mut file = file.borrow_mut();
        if file.generation == 0 {
            file.generation = 1;
            file.durable_generation = 1;
        }
        file.is_touched = true;
        entries.iter().for_each(|entry| file.add_record(*entry));
        Ok(entries)
    }

    /// Removes what a power cut left of a first commit, before another one: after a second cut, records of both would look like a plain
    /// file.
    pub(super) async fn clear_remains(&self, file: OpenFile<'_>) -> FsResult<()> {
        if !file.borrow().has_remains {
            return Ok(());
        }
        let handle = file.node.writer.get().map(|writer| writer.handle);
        file.through(handle).setattr(SetAttr { size: Some(0), ..SetAttr::default() }).await?;
        let synced = file.fsync(true).await;
        if synced.is_err() {
            self.synced(file, &synced, true, false);
        }
        synced?;
        cover("layer: what was left of a first commit is removed");
        file.borrow_mut().has_remains = false;
        Ok(())
    }

    /// Makes a written record part of the file.
    async fn install(&self, file: OpenFile<'_>, snapshot: &Snapshot, staged: &Staged, entry: Entry) -> FsResult<()> {
        let serial = file.node.serial;
        if let Staged::Tail(record) = staged {
            let mut file = file.borrow_mut();
            file.drop_tail();
            file.tail = Some(Tail { entry, chunk: snapshot.chunk, start: record.raw_bytes });
        } else {
            let before = self.with_index(file, |file| file.index.set(snapshot.chunk, entry)).await?;
            let mut file = file.borrow_mut();
            file.drop_record(before);
            if file.tail.is_some_and(|tail| tail.chunk == snapshot.chunk) {
                file.drop_tail();
            }
        }
        let mut file = file.borrow_mut();
        let is_same = file.dirty.get(&snapshot.chunk).is_some_and(|dirty| dirty.version == snapshot.version);
        if is_same {
            self.forget_chunk(&mut file, snapshot.chunk);
            if let Staged::Chunk(record) = staged {
                let mut bytes = snapshot.bytes.clone();
                if bytes.len() != record.raw_bytes as usize {
                    bytes = Arc::new(bytes[..record.raw_bytes as usize].to_vec());
                }
                self.cache.borrow_mut().put((serial, snapshot.chunk), entry, bytes);
            }
        } else if let Some(dirty) = file.dirty.get_mut(&snapshot.chunk) {
            // It has been changed in the meantime, and from where is unknown; a whole record is always right.
            dirty.base = None;
        }
        Ok(())
    }

    /// Only the last chunk has a tail: an earlier tail is merged into its chunk.
    async fn fold_tail(&self, file: OpenFile<'_>) -> FsResult<()> {
        let Some(tail) = file.borrow().tail else { return Ok(()) };
        if tail.chunk == file.borrow().last_chunk() {
            return Ok(());
        }
        self.ensure_dirty(file, tail.chunk).await?;
        cover("layer: a tail becomes a chunk");
        if let Some(dirty) = file.borrow_mut().dirty.get_mut(&tail.chunk) {
            dirty.base = None;
        }
        Ok(())
    }

    /// Writes the changed nodes of the index. The caller holds `relocation_gate`.
    pub(super) async fn stage_index(&self, file: OpenFile<'_>) -> FsResult<()> {
        debug_assert!(file.node.relocation_gate.is_held(), "records are moved by one task at a time");
        let depth = file.borrow().index.depth();
        for level in 1..=depth {
            let (changed, records) = {
                let mut file = file.borrow_mut();
                let (changed, dropped) = file.index.changed(level);
                dropped.into_iter().for_each(|entry| file.drop_record(entry));
                let record = |(number, entries): &(u64, Vec<Entry>)| {
                    assert!(entries.len() == NODE_ENTRIES, "a node has all of its entries, used or not");
                    let used = entries.iter().rposition(|entry| !entry.is_hole()).map_or(0, |last| last + 1);
                    file.record(kinds::NODE, level, *number, 0, entries_to_bytes(&entries[..used]))
                };
                let records: Vec<FileRecord> = changed.iter().map(record).collect();
                (changed, records)
            };
            count(&self.counts.nodes_written, records.len() as u64);
            let placed = self.place(file, &records.iter().collect::<Vec<_>>()).await?;
            debug_assert_eq!(changed.len(), placed.len(), "X2: each changed node is written");
            let mut file = file.borrow_mut();
            for ((number, _), entry) in changed.into_iter().zip(placed) {
                let before = file.index.written(level, number, entry);
                file.drop_record(before);
            }
        }
        Ok(())
    }

    /// Reads what is needed to know the free space.
    pub(super) async fn ensure_space(&self, file: OpenFile<'_>) -> FsResult<()> {
        {
            let file = file.borrow();
            if file.form != Form::Log || !file.is_space_partial || !file.is_synced {
                return Ok(());
            }
        }
        let mut used = Vec::new();
        let mut from = 0;
        while let Some((chunk, entry)) = self.with_index(file, |file| file.index.next(from)).await? {
            used.push(Extent::from(entry));
            from = chunk + 1;
        }
        let ino = file.ino();
        let mut file = file.borrow_mut();
        used.extend(file.index.node_entries().into_iter().map(|(_, _, entry)| Extent::from(entry)));
        used.extend(file.tail.map(|tail| Extent::from(tail.entry)));
        let live_bytes = used.iter().map(|extent| extent.bytes).sum();
        used.extend(file.dropped.iter().chain(&file.waiting));
        used.extend(file.prepared.iter().flat_map(|prepared| &prepared.dropped));
        match Space::around(used) {
            Ok(space) => {
                file.space = space;
                file.live_bytes = live_bytes;
                file.is_space_partial = false;
                Ok(())
            }
            Err((one, two)) => {
                let problem = format!("records at {} and {} overlap", one.offset, two.offset);
                let error = FsError::corrupt("index", format_args!("inode {ino}"), problem);
                // What waits in memory has no place to go, and each sync reports that.
                Err(file.stopped.get_or_insert(error).clone())
            }
        }
    }
}

impl Staged {
    fn record(&self) -> Option<&FileRecord> {
        match self {
            Staged::Hole => None,
            Staged::Chunk(record) | Staged::Tail(record) => Some(record),
        }
    }
}

impl File {
    /// The changed chunks before `end`, in their present state.
    fn snapshots(&self, end: u64) -> Vec<Snapshot> {
        let of = |(&chunk, dirty): (&u64, &super::file::Dirty)| Snapshot {
            chunk,
            bytes: dirty.bytes.clone(),
            base: dirty.base,
            changed_from: dirty.changed_from,
            version: dirty.version,
        };
        self.dirty.range(..end).map(of).collect()
    }

    /// The chunk that holds the last byte.
    pub(super) fn last_chunk(&self) -> u64 {
        self.size.saturating_sub(1) >> self.chunk_shift
    }

    /// The initial commit of a file, without content.
    pub(super) fn initial_commit(&self) -> Commit {
        Commit::initial(self.chunk_shift, self.file_id)
    }
}
