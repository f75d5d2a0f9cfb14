//! Commits: the write of the slot that makes staged records part of the file.
//!
//! The order of steps for one file:
//! 1. Prepare: stage, write the index, make the mark of the size unclean.
//! 2. Sync below. Now a slot can refer to what was written.
//! 3. Write the slot: the commit point.
//! 4. Sync below, if a caller waits for it. Now the space that only the previous commit used is free.
//!
//! A *provisional* commit omits step 2, and its slot says so. After a power cut a slot of this kind counts only if all
//! records that were written for it are intact; otherwise the previous one counts, which is durable. One is made
//!   - for an fsync, so that it syncs below once, not twice: that sync makes records and slot durable together;
//!   - without a sync when a file replaces another, by a rename or by being rewritten from nothing: if the daemon is
//!     killed then, the new content is below.
//!
//! A write-back confirms it by a commit of the other kind, so that readers no longer have to look at its records.
//!
//! Invariants
//!   P1  While a provisional commit is not durable, the other slot has a durable commit, or the file never had one.
//!   P2  A provisional commit of a file that may have a clean mark extends the lower file by one of its records: then
//!       either the mark is not trusted, or the commit does not count (M1).

use std::rc::Rc;

use super::compact::Urgency;
use super::file::{Form, Mark, Times};
use super::format::{RECORD_ALIGN, RECORDS_START};
use super::node::{CommitTurn, Node, OpenFile, Writer};
use super::{ChunkedLayer, count};
use crate::device::Data;
use crate::fs::{Fs, FsError, FsResult, Handle, SetAttr, SetTime};
use crate::layer::{Layer, Nodes};

/// Truncating a lower file by less is not worth a call.
const CUT_BYTES_MIN: u64 = 4096;

/// Whether an error of a write means that nothing was written: there was no space, a quota was used up, or the daemon may not write to a
/// file that it no longer has open, which can change later.
pub(super) fn is_without_effect(error: &FsError) -> bool {
    is_for_lack_of_files(error) || is_refusal(error)
}

/// No file could be opened for the request, so that it was not made.
fn is_for_lack_of_files(error: &FsError) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error, FsError::Host(ENFILE | EMFILE))
}

fn is_refusal(error: &FsError) -> bool {
    const EPERM: i32 = 1;
    const EACCES: i32 = 13;
    const EDQUOT: i32 = 122;
    matches!(error, FsError::NoSpace | FsError::NotPermitted | FsError::Host(EPERM | EACCES | EDQUOT))
}

impl ChunkedLayer {
    /// Makes one file durable, with a commit that the next write-back confirms.
    pub(super) async fn sync_file(&self, file: OpenFile<'_>, data_only: bool) -> FsResult<()> {
        if self.options.settle_at_fsync {
            return self.settle_file(file).await;
        }
        let turn = file.commit_turn().await;
        file.borrow().check()?;
        self.write_commit(&turn).await?;
        // Making a mark unclean changes an attribute (M1).
        let data_only = data_only && file.borrow().mark == Mark::None;
        self.make_commit_durable(&turn, data_only).await
    }

    /// Makes one file durable, with a commit that needs no confirmation: nothing of the file is written below until it
    /// changes again.
    pub(super) async fn settle_file(&self, file: OpenFile<'_>) -> FsResult<()> {
        self.settle(&file.commit_turn().await).await
    }

    /// As [`ChunkedLayer::settle_file`], in the turn of the caller.
    pub(super) async fn settle(&self, turn: &CommitTurn) -> FsResult<()> {
        let file = turn.file();
        file.borrow().check()?;
        if self.prepare(file).await? {
            self.sync_and_write_slot(turn).await?;
        }
        self.make_commit_durable(turn, false).await
    }

    /// Step 4.
    async fn make_commit_durable(&self, turn: &CommitTurn, data_only: bool) -> FsResult<()> {
        let file = turn.file();
        let generation = file.borrow().generation;
        self.sync_lower(file, data_only, false).await?;
        self.release_superseded(file, generation).await;
        Ok(())
    }

    /// Steps 2 and 3.
    async fn sync_and_write_slot(&self, turn: &CommitTurn) -> FsResult<()> {
        let file = turn.file();
        // Making a mark unclean changes an attribute (M1); otherwise records are data.
        let records_only = file.borrow().mark == Mark::None;
        self.sync_lower(file, records_only, true).await?;
        self.write_slot(turn).await
    }

    /// Writes changes below, as a commit. It is a provisional one, without a sync, wherever possible.
    ///
    /// # Errors
    /// Those of writing. What could not be written is still in memory.
    pub(super) async fn pass_down(&self, file: OpenFile<'_>) -> FsResult<()> {
        let turn = file.by_inode().commit_turn().await;
        self.write_commit(&turn).await
    }

    /// Steps 1 to 3 if there are changes; without step 2 wherever possible.
    async fn write_commit(&self, turn: &CommitTurn) -> FsResult<()> {
        let file = turn.file();
        let (has_changes, may_be_provisional) = {
            let file = file.borrow();
            (file.has_changes(), file.may_be_provisional())
        };
        if !has_changes || !self.prepare_as(file, may_be_provisional).await? {
            return Ok(());
        }
        let is_provisional = file.borrow().prepared.as_ref().is_some_and(|prepared| prepared.commit.is_provisional);
        match is_provisional {
            true => {
                count(&self.counts.provisional_commits, 1);
                self.write_slot(turn).await?;
            }
            false => self.sync_and_write_slot(turn).await?,
        }
        self.set_timer();
        Ok(())
    }

    /// Syncs one lower file. `before_slot`: the content that the sync makes durable can still be written again.
    async fn sync_lower(&self, file: OpenFile<'_>, data_only: bool, before_slot: bool) -> FsResult<()> {
        let synced = file.fsync(data_only).await;
        self.synced(file, &synced, data_only, before_slot);
        synced
    }

    /// Records the outcome of a sync.
    pub(super) fn synced(&self, file: OpenFile<'_>, outcome: &FsResult<()>, data_only: bool, before_slot: bool) {
        let exclusive = file.lower.traits().exclusive;
        let mut file = file.borrow_mut();
        match outcome {
            Ok(()) => {
                file.is_synced = true;
                if file.mark == Mark::Unclean && !data_only {
                    file.mark = Mark::None;
                }
            }
            Err(error) => {
                if before_slot {
                    file.unprepare();
                }
                // After an error for lack of space, its own or that of the storage below it, nothing is lost, if a Seekless file
                // system is below: it keeps what it could not write. After any other error the state is unknown: a host may have
                // dropped what it could not write.
                if !(is_for_lack_of_files(error) || error.is_no_space() && exclusive) {
                    file.stopped.get_or_insert(error.clone());
                }
            }
        }
    }

    /// Step 1. Returns false when the last commit has everything.
    async fn prepare(&self, file: OpenFile<'_>) -> FsResult<bool> {
        self.prepare_as(file, false).await
    }

    /// Step 1. The commit is provisional if requested and if P2 can be kept.
    async fn prepare_as(&self, file: OpenFile<'_>, provisional: bool) -> FsResult<bool> {
        let file = file.by_inode();
        let relocation = file.node.relocation_gate.enter().await;
        {
            let file = file.borrow();
            file.check()?;
            if file.form != Form::Log || !file.has_changes() && !file.is_provisional {
                return Ok(false);
            }
        }
        self.hold_times(file).await?;
        let behind = match provisional && file.borrow().mark != Mark::None {
            true => Some(file.getattr().await?.size.next_multiple_of(RECORD_ALIGN)),
            false => None,
        };
        file.borrow_mut().behind = behind;
        let staged = match self.stage_all(file).await {
            Ok(moment) => self.stage_index(file).await.map(|()| moment),
            Err(error) => Err(error),
        };
        file.borrow_mut().behind = None;
        let moment = staged?;
        if file.borrow().generation == 0 {
            self.write_initial_commit(file).await?;
        }
        self.unmark(file).await?;
        debug_assert!(file.borrow().generation > 0, "L1: a file has an initial commit before another one");
        debug_assert!(file.borrow().times.is_some(), "L3: the times of a file are known before it is written");
        let mut file = file.borrow_mut();
        let keeps_mark_away = behind.is_none_or(|behind| file.space.end() > behind); // P2
        file.prepare(&moment, provisional && keeps_mark_away);
        drop(relocation);
        Ok(true)
    }

    /// Records the times to restore after writing. For a file that no user has changed, such as one whose records are
    /// about to be moved, these are its present times. Renames and attribute changes may have changed them below since
    /// the last write.
    pub(super) async fn hold_times(&self, file: OpenFile<'_>) -> FsResult<()> {
        let _pass = file.node.attributes.enter().await;
        let attr = file.by_inode().getattr().await?;
        let mut file = file.borrow_mut();
        let times = file.times.unwrap_or(Times { mtime: attr.mtime, ctime: attr.ctime });
        file.times = Some(Times { ctime: times.ctime.max(attr.ctime), ..times });
        Ok(())
    }

    /// Restores the times below after a write, for readers of the lower file and for later mounts. `committed` are
    /// those of the content that was written, for a file that has changed again since.
    async fn restore_times(&self, file: OpenFile<'_>, committed: Times) {
        let _pass = file.node.attributes.enter().await;
        let times = {
            let file = file.borrow();
            // They may have been set since the commit was prepared (L3).
            file.times.filter(|_| !file.has_changes()).unwrap_or(committed)
        };
        let back = SetAttr { mtime: Some(SetTime::At(times.mtime)), ctime: Some(times.ctime), ..SetAttr::default() };
        // Where that is not permitted, readers of the lower file see the time of the write-back.
        let _ = file.by_inode().setattr(back).await;
    }

    /// Writes the initial commit of a file without records.
    async fn write_initial_commit(&self, file: OpenFile<'_>) -> FsResult<()> {
        debug_assert_eq!(file.borrow().generation, 0, "L1: the initial commit is the first");
        self.clear_remains(file).await?;
        let mut start = file.borrow().initial_commit().encode().to_vec();
        start.resize(RECORDS_START as usize, 0);
        file.write(0, Data::from_slice(&start)).await?;
        let mut file = file.borrow_mut();
        (file.generation, file.durable_generation, file.is_touched) = (1, 1, true);
        Ok(())
    }

    /// Step 3.
    async fn write_slot(&self, turn: &CommitTurn) -> FsResult<()> {
        let file = turn.file();
        let slot = {
            let mut file = file.borrow_mut();
            if let Some(error) = &file.stopped {
                let error = FsError::Stopped(error.to_string());
                file.unprepare();
                return Err(error);
            }
            let Some(prepared) = &file.prepared else { return Ok(()) };
            debug_assert!(file.mark != Mark::Clean, "M1: a mark is unclean before a slot makes it wrong");
            debug_assert!(
                prepared.commit.is_provisional || file.is_synced,
                "P1: what a slot refers to is synced before it, or the slot is provisional"
            );
            debug_assert!(
                prepared.commit.generation > file.durable_generation,
                "L1: the durable commit is not written over"
            );
            (prepared.commit.slot_offset(), Data::from_slice(&prepared.commit.encode()))
        };
        if let Err(error) = file.write(slot.0, slot.1).await {
            let mut file = file.borrow_mut();
            file.unprepare();
            if !is_without_effect(&error) {
                file.stopped.get_or_insert(error.clone());
            }
            return Err(error);
        }
        count(&self.counts.commits, 1);
        let times = file.borrow_mut().written();
        if let Some(times) = times {
            self.restore_times(file, times).await;
        }
        Ok(())
    }

    /// The commit of `generation` is durable: frees the space that it does not use.
    async fn release_superseded(&self, file: OpenFile<'_>, generation: u64) {
        file.borrow_mut().commit_durable(generation);
        let node = file.node;
        let relocation = node.relocation_gate.enter().await;
        let end = {
            let file = file.borrow();
            let is_last = file.durable_generation == file.generation && file.prepared.is_none();
            let end = file.committed_end.max(file.space.end());
            (is_last && file.is_touched && file.stopped.is_none()).then_some(end)
        };
        let pass = node.attributes.enter().await;
        if let Some(end) = end
            && let Ok(attr) = file.by_inode().getattr().await
            && attr.size >= end + CUT_BYTES_MIN
        {
            let handle = node.writer.get().map(|writer| writer.handle);
            let cut = SetAttr {
                size: Some(end),
                mtime: Some(SetTime::At(attr.mtime)),
                ctime: Some(attr.ctime),
                ..SetAttr::default()
            };
            // A failure costs storage only, and the next commit tries again.
            let _ = file.through(handle).setattr(cut).await;
        }
        drop(pass);
        drop(relocation);
        if !node.wants_writer() && node.writer.get().is_some_and(|writer| writer.is_ours) {
            self.end_writer(file.lower, node).await;
        }
    }

    /// The layer itself writes through `handle` from now on, which its user releases.
    pub(super) fn take_over(&self, node: &Node, handle: Handle) {
        node.writer.set(Some(Writer { handle, is_ours: true }));
        self.writers.set(self.writers.get() + 1);
    }

    /// Nothing more is to be written through the writer of `node`: releases it, if no user does.
    pub(super) async fn end_writer(&self, lower: &Fs, node: &Node) {
        let Some(writer) = node.writer.take().filter(|writer| writer.is_ours) else { return };
        debug_assert!(self.writers.get() > 0, "a handle that the layer has taken over is counted");
        self.writers.set(self.writers.get() - 1);
        // What was written through it is durable, or was reported.
        let _ = lower.release(node.ino, writer.handle).await;
    }

    /// Commits all files. With `durable`, the commits are durable when this returns; otherwise a power cut leaves each
    /// file as committed or as before.
    ///
    /// # Errors
    /// The first error; all other files are committed nevertheless. With `durable`, `Stopped` ever after a file was stopped.
    pub(super) async fn commit_all(&self, lower: &Fs, nodes: &Nodes<Node>, durable: bool) -> FsResult<()> {
        let _pass = self.passes.enter().await;
        let mut result = Ok(());
        let mut prepared: Vec<CommitTurn> = Vec::new();
        let mut written: Vec<CommitTurn> = Vec::new();
        for (ino, node) in nodes.all() {
            // A file closed while others were prepared has nothing left to commit: it was removed, or its commit
            // completed. Below, its inode may be forgotten, or reused for another file.
            let is_closed = || !nodes.holds(ino, &node);
            let Some(file) = node.open(lower).filter(|_| node.is_unsettled() && !is_closed()) else { continue };
            if !nodes.is_in_use(ino) && self.is_gone(file).await {
                continue;
            }
            let turn = file.commit_turn().await;
            if is_closed() {
                continue;
            }
            match self.prepare(file).await {
                Ok(true) => prepared.push(turn),
                Ok(false) => written.push(turn),
                Err(_) if is_closed() => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        // With `durable`, one more sync at the end covers files without a new slot.
        if !prepared.is_empty() || !durable && !written.is_empty() {
            let synced = self.sync_many(lower, &prepared, &written).await;
            prepared.iter().for_each(|turn| self.synced(turn.file(), &synced, false, true));
            written.iter().for_each(|turn| self.synced(turn.file(), &synced, false, false));
            synced?;
            for turn in written.drain(..) {
                self.release_and_mark(&turn).await;
            }
            for turn in &prepared {
                let slot = self.write_slot(turn).await;
                if nodes.holds(turn.node().ino, turn.node()) {
                    result = result.and(slot);
                }
            }
        }
        if durable {
            written.append(&mut prepared);
            let synced = lower.syncfs().await;
            written.iter().for_each(|turn| self.synced(turn.file(), &synced, false, false));
            synced?;
            for turn in &written {
                self.release_and_mark(turn).await;
            }
            result = result.and(self.check_stops(nodes));
        }
        result
    }

    /// `Stopped` ever after a file was stopped.
    pub(super) fn check_stops(&self, nodes: &Nodes<Node>) -> FsResult<()> {
        nodes.all().iter().for_each(|(_, node)| self.note_stop(node));
        self.stopped.borrow().clone().map_or(Ok(()), Err)
    }

    /// Remembers why `node` was stopped, if it was.
    pub(super) fn note_stop(&self, node: &Node) {
        if let Some(error) = node.file().and_then(|file| file.borrow().stopped.clone()) {
            let stopped = match error {
                FsError::Stopped(_) => error,
                other => FsError::Stopped(other.to_string()),
            };
            self.stopped.borrow_mut().get_or_insert(stopped);
        }
    }

    /// The last commit of a file is durable: frees its space and sets its mark.
    async fn release_and_mark(&self, turn: &CommitTurn) {
        let file = turn.file();
        let generation = file.borrow().generation;
        self.release_superseded(file, generation).await;
        self.mark(file).await;
    }

    /// A single file is synced by itself, which may cost the file system below less than syncing everything.
    async fn sync_many(&self, lower: &Fs, prepared: &[CommitTurn], written: &[CommitTurn]) -> FsResult<()> {
        match (prepared, written) {
            ([turn], []) | ([], [turn]) => turn.file().fsync(false).await,
            _ => lower.syncfs().await,
        }
    }

    /// True when the file has neither a name nor a user, so that its changes in memory are useless.
    pub(super) async fn is_gone(&self, file: OpenFile<'_>) -> bool {
        if file.borrow().has_no_link_count {
            return false;
        }
        let gone = file.by_inode().getattr().await.is_ok_and(|attr| attr.links == 0);
        if gone {
            let mut file = file.borrow_mut();
            self.forget_chunks(&mut file, 0);
            file.prepared = None;
            file.changed = false;
            file.durable_generation = file.generation;
            file.is_provisional = false;
        }
        gone
    }

    /// Commits waiting changes, for a caller that needs memory or space.
    pub(super) async fn write_back_from(&self, file: OpenFile<'_>) -> FsResult<()> {
        let stacked = self.stacked.borrow().upgrade();
        self.room.set(0);
        match stacked {
            Some(stacked) => self.commit_all(file.lower, stacked.nodes(), false).await,
            None => self.sync_file(file.by_inode(), true).await,
        }
    }

    /// Closes a node that has no users once no task works with it any more. It may have no write-back to come, and below a file without
    /// a name can cost an open file until then.
    pub(super) fn close_when_idle(&self, lower: Fs, node: Rc<Node>) {
        let stacked = self.stacked.borrow().clone();
        drop(self.rt.spawn(async move {
            while node.is_busy()
                && let Some(file) = node.open(&lower)
            {
                drop(file.commit_turn().await);
                drop(node.relocation_gate.enter().await);
            }
            let ino = node.ino;
            drop(node);
            if let Some(stacked) = stacked.upgrade() {
                stacked.sweep_one(ino).await;
            }
        }));
    }

    /// Ensures that changes are written back in time.
    pub(super) fn set_timer(&self) {
        if self.timer_is_set.get() || self.closed.get() {
            return;
        }
        let stacked = self.stacked.borrow().clone();
        let (rt, interval) = (self.rt.clone(), self.options.write_back_interval);
        self.timer_is_set.set(true);
        drop(self.rt.spawn(async move {
            rt.sleep(interval).await;
            let Some(stacked) = stacked.upgrade() else { return };
            let log = stacked.layer();
            log.timer_is_set.set(false);
            if log.closed.get() {
                return;
            }
            count(&log.counts.write_backs, 1);
            // An error that matters stops the file, which `idle` and each sync of all report; after lack of space it is tried
            // again, and fsync will report it.
            let _ = log.commit_all(stacked.lower(), stacked.nodes(), false).await;
            let _ = log.check_stops(stacked.nodes());
            for (_, node) in stacked.nodes().all() {
                if log.wants_compaction(&node, Urgency::Bound)
                    && let Some(file) = node.open(stacked.lower())
                {
                    let _ = log.compact(stacked.nodes(), file).await;
                }
            }
            stacked.sweep().await;
            if stacked.nodes().all().iter().any(|(_, node)| log.lingers(node)) {
                log.set_timer();
            }
        }));
    }
}
