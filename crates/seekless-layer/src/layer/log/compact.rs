//! Compaction: moves records from the end of a lower file into free space nearer its start, and truncates the file.
//!
//! New records use free space first, so compaction is for files that have shrunk or are no longer written. A record
//! does not contain its own offset, and moves unchanged. So it does not look new at its new place, and a provisional commit would
//! rely on it as on one that is durable: none is made before the file has been synced, also after a compaction that failed.

use super::file::{Form, Tail};
use super::format::{Entry, FileRecord};
use super::index::Step;
use super::load::damaged;
use super::node::{CommitTurn, Node, OpenFile, may_have_privileges};
use super::{ChunkedLayer, count};
use crate::device::Data;
use crate::fs::{Fs, FsResult, WriteMode};
use crate::layer::Nodes;
use crate::units::{KIB, MIB, Nanos};

/// Smallest share of free space that is worth compacting in idle time: an eighth of the space in use, and enough to
/// matter.
const IDLE_SHARE: u64 = 8;
const IDLE_BYTES_MIN: u64 = 64 * KIB;

/// Free space that is too much at any time: more than the space in use.
const BOUND_BYTES_MIN: u64 = MIB;

/// Bytes moved before other operations get their turn.
const STEP_BYTES: u64 = 4 * MIB;

/// Urgency of compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Urgency {
    Idle,
    /// A bound has been passed.
    Bound,
}

impl ChunkedLayer {
    /// True when the file has more free space in it than it should.
    pub(super) fn wants_compaction(&self, node: &Node, urgency: Urgency) -> bool {
        let Some(file) = node.file() else { return false };
        let file = file.borrow();
        if file.form != Form::Log || file.stopped.is_some() || file.is_space_partial || self.read_only {
            return false;
        }
        let (free, live) = (file.space.free_bytes(), file.live_bytes);
        match urgency {
            Urgency::Idle => free > IDLE_BYTES_MIN.max(live / IDLE_SHARE),
            Urgency::Bound => free > BOUND_BYTES_MIN.max(live),
        }
    }

    /// Compacts what has more free space in it than it should have after some idle time. Returns true when there is more to do after `until`.
    ///
    /// # Errors
    /// The first: one file that cannot be read keeps no other from its turn.
    pub(super) async fn compact_idle(&self, lower: &Fs, nodes: &Nodes<Node>, until: Nanos) -> FsResult<bool> {
        let mut compacted = Ok(());
        for (_, node) in nodes.all() {
            while self.wants_compaction(&node, Urgency::Idle)
                && let Some(file) = node.open(lower)
            {
                let moved = self.compact(nodes, file).await;
                if moved == Ok(true) && self.rt.now() >= until {
                    return compacted.map(|()| true);
                }
                if moved != Ok(true) {
                    compacted = compacted.and(moved.map(drop));
                    break;
                }
            }
        }
        compacted.map(|()| false)
    }

    /// Moves some records towards the start, and commits. Returns false when nothing could be moved.
    pub(super) async fn compact(&self, nodes: &Nodes<Node>, file: OpenFile<'_>) -> FsResult<bool> {
        // One turn for all of it: with it the node lingers, and without it another node may get the file.
        let turn = file.commit_turn().await;
        if self.closed.get() || !nodes.holds(file.ino(), file.node) {
            return Ok(false);
        }
        if may_have_privileges(file.lower, file.ino()).await {
            // Writing below would remove them.
            return Ok(false);
        }
        let moved = self.move_records(&turn).await?;
        if moved {
            self.settle(&turn).await?;
        }
        Ok(moved)
    }

    async fn move_records(&self, turn: &CommitTurn) -> FsResult<bool> {
        let file = turn.file();
        let _relocation = file.node.relocation_gate.enter().await;
        // Before anything is written (L3).
        self.hold_times(file).await?;
        let mut records: Vec<(u64, Entry)> = Vec::new();
        let mut from = 0;
        while let Some((chunk, entry)) = self.with_index(file, |file| file.index.next(from)).await? {
            records.push((chunk, entry));
            from = chunk + 1;
        }
        records.sort_unstable_by_key(|(_, entry)| std::cmp::Reverse(entry.offset));
        let mut bytes_moved = 0;
        let tail = file.borrow().tail;
        if let Some(tail) = tail
            && let Some(place) = {
                let mut file = file.borrow_mut();
                file.space.allocate_below(tail.entry.bytes.into(), tail.entry.offset)
            }
        {
            let moved = self.move_record(file, tail.entry, place.offset).await;
            let mut file = file.borrow_mut();
            if let Err(error) = moved {
                file.space.free(place);
                return Err(error);
            }
            debug_assert!(place.offset < tail.entry.offset, "compaction moves records towards the start");
            file.is_synced = false;
            file.add_record(tail.entry);
            file.drop_tail();
            file.tail = Some(Tail { entry: Entry { offset: place.offset, ..tail.entry }, ..tail });
            file.version += 1;
            file.changed = true;
            bytes_moved += u64::from(tail.entry.bytes);
        }
        for (chunk, entry) in records {
            if bytes_moved >= STEP_BYTES {
                break;
            }
            let place = file.borrow_mut().space.allocate_below(entry.bytes.into(), entry.offset);
            let Some(place) = place else { continue };
            let moved = self.move_record(file, entry, place.offset).await;
            let mut file = file.borrow_mut();
            if let Err(error) = moved {
                file.space.free(place);
                return Err(error);
            }
            file.is_synced = false;
            // The index node of this chunk is in memory: it has just been read.
            debug_assert!(place.offset < entry.offset, "compaction moves records towards the start");
            let before = file.index.set(chunk, Entry { offset: place.offset, ..entry });
            debug_assert_eq!(before, Step::Done(entry), "X1: a record that moves is the one that the index had");
            file.add_record(entry);
            file.drop_record(entry);
            file.version += 1;
            file.changed = true;
            bytes_moved += u64::from(entry.bytes);
            count(&self.counts.records_moved, 1);
        }
        let mut file = file.borrow_mut();
        let nodes = file.index.node_entries();
        let misplaced: Vec<_> = nodes
            .into_iter()
            .filter(|(_, _, entry)| file.space.find_below(entry.bytes.into(), entry.offset).is_some())
            .collect();
        for &(level, number, _) in &misplaced {
            file.index.rewrite(level, number);
        }
        if !misplaced.is_empty() {
            file.version += 1;
            file.changed = true;
        }
        Ok(bytes_moved > 0 || !misplaced.is_empty())
    }

    async fn move_record(&self, file: OpenFile<'_>, entry: Entry, to: u64) -> FsResult<()> {
        let bytes = file.read(entry.offset, entry.bytes).await?;
        FileRecord::decode(&bytes, &entry).map_err(|problem| damaged("chunk", file.ino(), entry, problem))?;
        // Without a handle: a user may release that of the writer while this write is on its way, and a layer below would write through it later.
        file.lower.write(file.ino(), None, to, Data::from_slice(&bytes), WriteMode::default()).await
    }
}
