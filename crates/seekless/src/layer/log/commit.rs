//! Commits: the slot that makes what was staged the file.
//!
//! The order of things for one file:
//! 1. Prepare: stage, write the index, make the mark of the size unclean.
//! 2. Sync below. Now the slot can name what was written.
//! 3. Write the slot: the commit point.
//! 4. Sync below, if somebody waits for it. Now the space that only the commit before used is free.

use std::rc::Rc;

use super::compact::Urgency;
use super::file::{Form, Mark, Node, Times, Turn};
use super::format::RECORDS_START;
use super::{Log, count};
use crate::device::Data;
use crate::fs::{Fs, FsError, FsResult, Handle, SetAttr, SetTime};
use crate::layer::Nodes;

/// Cutting a lower file for less is not worth a call.
const CUT_BYTES_MIN: u64 = 4096;

impl Log {
    /// Makes one file durable.
    pub(super) async fn sync_file(
        &self,
        lower: &Fs,
        handle: Option<Handle>,
        node: &Rc<Node>,
        data_only: bool,
    ) -> FsResult<()> {
        let turn = Turn::of(node).await;
        let Some(file) = node.regular() else { return lower.fsync(node.ino, handle, data_only).await };
        file.borrow().check()?;
        let prepared = self.prepare(lower, node).await?;
        if prepared {
            // A mark that was made unclean is an attribute (M1); but for that, records are data.
            let records_only = file.borrow().mark == Mark::None;
            self.sync_lower(lower, handle, node, records_only, true).await?;
            self.write_slot(lower, &turn).await?;
        }
        let generation = file.borrow().generation;
        self.sync_lower(lower, handle, node, data_only, false).await?;
        self.settle(lower, node, generation).await;
        Ok(())
    }

    /// Syncs one lower file. `before_slot`: what it is to make durable can still be written again.
    async fn sync_lower(
        &self,
        lower: &Fs,
        handle: Option<Handle>,
        node: &Rc<Node>,
        data_only: bool,
        before_slot: bool,
    ) -> FsResult<()> {
        let synced = lower.fsync(node.ino, handle, data_only).await;
        self.synced(lower, node, &synced, data_only, before_slot);
        synced
    }

    /// Notes the outcome of a sync.
    fn synced(&self, lower: &Fs, node: &Node, outcome: &FsResult<()>, data_only: bool, before_slot: bool) {
        let exclusive = lower.traits().exclusive;
        let Some(file) = node.regular() else { return };
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
                // For want of space nothing was done and nothing is lost, where our own kind is below. After anything
                // else, nobody knows: a host has forgotten what it could not write.
                if *error != FsError::NoSpace || !exclusive {
                    file.stopped.get_or_insert(error.clone());
                }
            }
        }
    }

    /// Step 1. Returns false when the last commit has everything.
    async fn prepare(&self, lower: &Fs, node: &Rc<Node>) -> FsResult<bool> {
        let Some(file) = node.regular() else { return Ok(false) };
        let shape = node.shape.enter().await;
        {
            let file = file.borrow();
            file.check()?;
            if file.form != Form::Log || !file.has_changes() {
                return Ok(false);
            }
        }
        // The times to go back to after writing: of a file that nobody has changed, such as one whose records were moved,
        // those that it has; and names and attributes may have changed below since it was written to.
        let attr = lower.getattr(node.ino, None).await?;
        {
            let mut file = file.borrow_mut();
            let times = file.times.unwrap_or(Times { mtime: attr.mtime, ctime: attr.ctime });
            file.times = Some(Times { ctime: times.ctime.max(attr.ctime), ..times });
        }
        let moment = self.stage_all(lower, node).await?;
        self.stage_index(lower, node).await?;
        if file.borrow().generation == 0 {
            self.give_birth(lower, node).await?;
        }
        self.unmark(lower, node.ino, node).await?;
        file.borrow_mut().prepare(&moment);
        drop(shape);
        Ok(true)
    }

    /// A file without records is born by itself.
    async fn give_birth(&self, lower: &Fs, node: &Rc<Node>) -> FsResult<()> {
        let Some(file) = node.regular() else { return Ok(()) };
        let mut start = file.borrow().birth().encode().to_vec();
        start.resize(RECORDS_START as usize, 0);
        self.write_lower(lower, node, 0, Data::from_slice(&start)).await?;
        let mut file = file.borrow_mut();
        (file.generation, file.durable_generation, file.is_touched) = (1, 1, true);
        Ok(())
    }

    /// Step 3.
    async fn write_slot(&self, lower: &Fs, turn: &Turn) -> FsResult<()> {
        let node = turn.node();
        let Some(file) = node.regular() else { return Ok(()) };
        let slot = {
            let file = file.borrow();
            let Some(prepared) = &file.prepared else { return Ok(()) };
            (prepared.commit.slot_offset(), Data::from_slice(&prepared.commit.encode()))
        };
        if let Err(error) = self.write_lower(lower, node, slot.0, slot.1).await {
            let mut file = file.borrow_mut();
            file.unprepare();
            if error != FsError::NoSpace {
                file.stopped.get_or_insert(error.clone());
            }
            return Err(error);
        }
        count(&self.counts.commits, 1);
        let times = file.borrow_mut().written();
        if let Some(times) = times {
            // What writing has done to the times below, for whoever sees them without us or after us.
            let back =
                SetAttr { mtime: Some(SetTime::At(times.mtime)), ctime: Some(times.ctime), ..SetAttr::default() };
            let restored = lower.setattr(node.ino, None, back).await;
            let mut file = file.borrow_mut();
            if restored.is_ok() && file.times == Some(times) && !file.has_changes() {
                file.times = None;
            }
        }
        Ok(())
    }

    /// The commit of `generation` is durable: gives back what it does not use.
    async fn settle(&self, lower: &Fs, node: &Rc<Node>, generation: u64) {
        let Some(file) = node.regular() else { return };
        file.borrow_mut().settle(generation);
        let shape = node.shape.enter().await;
        let end = {
            let file = file.borrow();
            let is_last = file.durable_generation == file.generation && file.prepared.is_none();
            let end = file.committed_end.max(file.space.end());
            (is_last && file.is_touched && file.stopped.is_none()).then_some(end)
        };
        if let Some(end) = end
            && let Ok(attr) = lower.getattr(node.ino, None).await
            && attr.size >= end + CUT_BYTES_MIN
        {
            let handle = node.writer.get().map(|writer| writer.handle);
            let cut = SetAttr {
                size: Some(end),
                mtime: Some(SetTime::At(attr.mtime)),
                ctime: Some(attr.ctime),
                ..SetAttr::default()
            };
            // It is only storage, and the next commit tries again.
            let _ = lower.setattr(node.ino, handle, cut).await;
        }
        drop(shape);
        if !node.has_changes()
            && let Some(writer) = node.writer.take()
        {
            match writer.is_ours {
                true => drop(lower.release(node.ino, writer.handle).await),
                false => node.writer.set(Some(writer)),
            }
        }
    }

    /// Commits all files. With `durable`, what is committed is durable when this returns; otherwise it is either that or
    /// as it was.
    ///
    /// # Errors
    /// The first that there was. What could be committed is, all the same.
    pub(super) async fn commit_all(&self, lower: &Fs, nodes: &Nodes<Node>, durable: bool) -> FsResult<()> {
        let _pass = self.passes.enter().await;
        let mut result = Ok(());
        let mut prepared: Vec<Turn> = Vec::new();
        let mut written: Vec<Turn> = Vec::new();
        for (ino, node) in nodes.all() {
            // One that has been closed while others were prepared has nothing left to commit: its file is gone, or it was
            // settled. Below, its inode may be forgotten, or another file's.
            let is_closed = || !nodes.holds(ino, &node);
            if !node.is_unsettled() || is_closed() {
                continue;
            }
            if !nodes.is_in_use(ino) && self.is_gone(lower, &node).await {
                continue;
            }
            let turn = Turn::of(&node).await;
            if is_closed() {
                continue;
            }
            match self.prepare(lower, &node).await {
                Ok(true) => prepared.push(turn),
                Ok(false) => written.push(turn),
                Err(_) if is_closed() => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
        // Who wants everything to be durable syncs once more in the end, which does for files without a new slot.
        if !prepared.is_empty() || !durable && !written.is_empty() {
            let synced = self.sync_many(lower, &prepared, &written).await;
            prepared.iter().for_each(|turn| self.synced(lower, turn.node(), &synced, false, true));
            written.iter().for_each(|turn| self.synced(lower, turn.node(), &synced, false, false));
            synced?;
            for turn in written.drain(..) {
                self.settle_and_mark(lower, &turn).await;
            }
            for turn in &prepared {
                let slot = self.write_slot(lower, turn).await;
                if nodes.holds(turn.node().ino, turn.node()) {
                    result = result.and(slot);
                }
            }
        }
        if durable {
            written.append(&mut prepared);
            let synced = lower.syncfs().await;
            written.iter().for_each(|turn| self.synced(lower, turn.node(), &synced, false, false));
            synced?;
            for turn in &written {
                self.settle_and_mark(lower, turn).await;
            }
        }
        result
    }

    /// The last commit of a file is durable.
    async fn settle_and_mark(&self, lower: &Fs, turn: &Turn) {
        let node = turn.node();
        let generation = node.regular().map_or(0, |file| file.borrow().generation);
        self.settle(lower, node, generation).await;
        self.mark(lower, node.ino, node).await;
    }

    /// One file is synced by itself, which may be less work for the file system below than everything.
    async fn sync_many(&self, lower: &Fs, prepared: &[Turn], written: &[Turn]) -> FsResult<()> {
        match (prepared, written) {
            ([turn], []) | ([], [turn]) => lower.fsync(turn.node().ino, None, false).await,
            _ => lower.syncfs().await,
        }
    }

    /// True when the file has neither a name nor a user, so that what it has in memory is of no use.
    pub(super) async fn is_gone(&self, lower: &Fs, node: &Rc<Node>) -> bool {
        let gone = lower.getattr(node.ino, None).await.is_ok_and(|attr| attr.links == 0);
        if gone && let Some(file) = node.regular() {
            let mut file = file.borrow_mut();
            self.forget_chunks(&mut file, 0);
            file.prepared = None;
            file.changed = false;
            file.durable_generation = file.generation;
        }
        gone
    }

    /// Commits what waits, for whoever needs memory or room.
    pub(super) async fn write_back_from(&self, lower: &Fs, node: &Rc<Node>) -> FsResult<()> {
        let stacked = self.stacked.borrow().upgrade();
        self.room.set(0);
        match stacked {
            Some(stacked) => self.commit_all(lower, stacked.nodes(), false).await,
            None => self.sync_file(lower, None, node, true).await,
        }
    }

    /// Makes sure that what has changed is written back in time.
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
            // An error that matters stops the file; for want of space it is tried again, and fsync will say so.
            let _ = log.commit_all(stacked.lower(), stacked.nodes(), false).await;
            for (_, node) in stacked.nodes().all() {
                if log.wants_compaction(&node, Urgency::Bound) {
                    let _ = log.compact(stacked.lower(), &node).await;
                }
            }
            stacked.sweep().await;
            if stacked.nodes().all().iter().any(|(_, node)| node.is_unsettled()) {
                log.set_timer();
            }
        }));
    }
}
