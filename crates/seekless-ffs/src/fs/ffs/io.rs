//! Between the buffer cache and the device: loading what a step needs; delayed, asynchronous and ordered writes; and
//! the update that writes everything back every 30 seconds.
//!
//! Every write runs as a task of its own, so that a cancelled operation leaves nothing half written; an operation that
//! needs the result waits for the buffer.

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};

use super::Ffs;
use super::assembly;
use super::cache::{BufferKind, Written};
use super::format::*;
use super::reach::LeftOut;
use super::soft::{SyncScope, put_off_here};
use super::state::*;
use super::{Metadata, dir};
use crate::device::{Buf, Data, Device, DeviceError, WriteFlags};
use crate::fs::step;
use crate::fs::{FsError, FsResult};
use crate::rt::JoinHandle;
use crate::units::Sector;

impl Ffs {
    /// The shared handle that tasks keep.
    pub(super) fn this(&self) -> Rc<Ffs> {
        match self.me.upgrade() {
            Some(me) => me,
            None => unreachable!("a volume lives in the handle that mount returned"),
        }
    }

    /// Runs a step, loading what it needs, until it ends with a result.
    pub(super) async fn step<T>(&self, mut step: impl FnMut(&mut State) -> Step<T>) -> FsResult<T> {
        let mut result = None;
        self.step_untyped(&mut |state| step(state).map(|value| result = Some(value))).await?;
        Ok(step::result(result))
    }

    /// Apart from [`Ffs::step`], so that it is compiled once and not for each step.
    async fn step_untyped(&self, step: &mut dyn FnMut(&mut State) -> Step<()>) -> FsResult<()> {
        let attempt = || {
            let mut state = self.state.borrow_mut();
            let now = self.rt.wall();
            state.clock_is_behind |= now < state.now;
            if now > state.now || state.moved_tails.is_empty() {
                state.now = now;
            }
            step::attempt(&mut *state, &mut *step)
        };
        step::complete(attempt, async |need| match need {
            Need::Buffer(load) => self.load_or_go_without(load).await,
            // Boxed, because it takes steps itself.
            Need::Index(ino) => Box::pin(dir::build_index(self, ino)).await,
        })
        .await
    }

    // ---- Reading ----

    /// Loads what a step needs. Where a group cannot be read and was not known as such, the step runs again: a search for room
    /// goes on without it. A step that needs that very group gets the error then.
    async fn load_or_go_without(&self, load: Load) -> FsResult<()> {
        let (kind, at) = (load.kind, load.at);
        let is_known = |state: &State| matches!(kind, BufferKind::Group(group) if state.unreadable.has_group(group));
        let was_known = is_known(&self.state.borrow());
        let loaded = self.load(load).await;
        let state = &mut *self.state.borrow_mut();
        if loaded.as_ref().map_or_else(FsError::is_of_one_place, |()| true) {
            state.unreadable.note(kind, at, loaded.is_ok());
        }
        if was_known || !is_known(state) {
            return loaded;
        }
        if let BufferKind::Group(group) = kind {
            state.forget_storage_in(group);
        }
        Ok(())
    }

    /// Loads a buffer into memory, or waits for the task that does.
    async fn load(&self, load: Load) -> FsResult<()> {
        let number = loop {
            let arriving = {
                let mut state = self.state.borrow_mut();
                if state.cache.peek(load.at).is_some() {
                    return Ok(());
                }
                if !state.cache.is_loading(load.at) {
                    break state.cache.begin_load(load.at);
                }
                self.progress.wait()
            };
            arriving.await;
        };
        let reading = Reading { ffs: self, places: vec![(load.at, number)] };
        let (sector, bytes) = {
            let mut state = self.state.borrow_mut();
            state.counters.block_reads += 1;
            (state.layout.sector(load.at), (load.frags * state.layout.frag_bytes) as usize)
        };
        let read = read_bytes(&self.device, sector, bytes).await;
        let mut state = self.state.borrow_mut();
        if state.cache.end_load(load.at, number) {
            let data = read?.freeze();
            if let BufferKind::Group(group) = load.kind {
                verify_group(&state.layout, group, &data)?;
            }
            if !state.cache.insert_clean(load.at, data, load.kind) {
                // Reading it again would not help.
                let at = format_args!("fragment {}", load.at).to_string();
                return Err(FsError::corrupt("block", at, "a part of it is in use as another block"));
            }
        }
        drop(state);
        drop(reading);
        Ok(())
    }

    /// Claims `count` whole consecutive blocks at `at` for a read, which [`Ffs::load_run`] does.
    pub(super) fn begin_run(&self, at: FragNo, count: u32) -> Vec<(FragNo, u64)> {
        let mut state = self.state.borrow_mut();
        let frag = state.layout.frag;
        (0..count).map(|index| (at + index * frag, state.cache.begin_load(at + index * frag))).collect()
    }

    /// Reads the blocks of a file that have been claimed, `lbn` and those behind it, with one request.
    pub(super) async fn load_run(&self, ino: InodeNo, lbn: u64, places: Vec<(FragNo, u64)>) -> FsResult<()> {
        let Some(&(at, _)) = places.first() else { return Ok(()) };
        let reading = Reading { ffs: self, places };
        let count = reading.places.len();
        let (sector, block_bytes) = {
            let mut state = self.state.borrow_mut();
            state.counters.block_reads += 1;
            state.counters.clustered_reads += u64::from(count > 1);
            (state.layout.sector(at), state.layout.block_bytes as usize)
        };
        let read = read_bytes(&self.device, sector, block_bytes * count).await?.freeze();
        {
            let mut state = self.state.borrow_mut();
            for (index, &(at, number)) in reading.places.iter().enumerate() {
                if state.cache.end_load(at, number) {
                    let data = read.slice(index * block_bytes..(index + 1) * block_bytes);
                    // Blocks of one read are evicted one by one, so that they do not share memory.
                    let data = if count > 1 { Data::from_slice(&data) } else { data };
                    // A block that overlaps another is read again, and refused, by the operation that needs it.
                    let _ = state.cache.insert_clean(at, data, BufferKind::File { ino, lbn: lbn + index as u64 });
                }
            }
        }
        drop(reading);
        Ok(())
    }

    // ---- Writing ----

    /// Begins to write consecutive buffers with one request. None of them may be in flight. Returns the task that writes,
    /// which ends with or without the caller.
    pub(super) fn begin_write(&self, places: &[FragNo], flags: WriteFlags) -> Option<Writing> {
        let mut state = self.state.borrow_mut();
        let &first = places.first()?;
        let sector = state.layout.sector(first);
        let mut parts: Vec<(FragNo, Data)> = Vec::with_capacity(places.len());
        for &at in places {
            if let Some(data) = state.cache.begin_write(at) {
                let image = state.image(at, data);
                parts.push((at, image));
            }
        }
        let bytes: usize = parts.iter().map(|(_, data)| data.len()).sum();
        state.counters.block_writes += 1;
        state.counters.clustered_writes += u64::from(parts.len() > 1);
        state.counters.written_bytes += bytes as u64;
        drop(state);
        let whole = match &parts[..] {
            [] => return None,
            [(_, data)] => data.clone(),
            _ => {
                let mut whole = Buf::dirty(bytes);
                let mut offset = 0;
                for (_, data) in &parts {
                    whole[offset..offset + data.len()].copy_from_slice(data);
                    offset += data.len();
                }
                whole.freeze()
            }
        };
        let ffs = self.this();
        Some(self.rt.spawn(async move {
            let result = write_bytes(&ffs.device, sector, whole, flags).await;
            ffs.end_write(&parts, flags, &result);
            result
        }))
    }

    fn end_write(&self, parts: &[(FragNo, Data)], flags: WriteFlags, result: &Result<(), DeviceError>) {
        {
            let mut state = self.state.borrow_mut();
            let durable = flags.fua || self.device.guarantees().durable_on_completion;
            let outcome = match result {
                Ok(()) if durable => Written::Durable,
                Ok(()) => Written::Volatile,
                Err(_) => Written::Failed,
            };
            let mut begun = 0;
            for (at, data) in parts {
                let since = state.cache.end_write(*at, data.len(), outcome);
                let was_refused = matches!(result, Err(DeviceError::NoSpace { .. }));
                if was_refused || result.is_ok() {
                    state.note_backing(*at, data.len(), was_refused);
                }
                match outcome {
                    Written::Durable => state.note_durable(*at, since),
                    Written::Volatile => state.note_volatile(*at, since),
                    Written::Failed => state.note_failed(*at, since),
                }
                begun = begun.max(since);
            }
            match result {
                Ok(()) => {}
                Err(error @ DeviceError::NoSpace { .. }) => {
                    state.full_below = state.full_below.max(begun);
                    state.full_below_error = Some(error.clone());
                }
                Err(error) => {
                    state.stopped.get_or_insert_with(|| error.to_string());
                }
            }
            if !state.options.cache_data {
                // A kernel above keeps file data; here it would be in memory twice.
                for (at, _) in parts {
                    state.cache.drop_if_clean_data(*at);
                }
            }
            state.cache.evict();
        }
        self.progress.notify();
    }

    /// Writes the buffer as it is now, and waits until that is durable. A buffer that no longer exists has been
    /// written, or belongs to nothing.
    ///
    /// # Errors
    /// `Stopped`, and `Device` when there is no space below; the buffer then stays dirty.
    pub(super) async fn write_now(&self, at: FragNo) -> FsResult<()> {
        let fua = !self.device.guarantees().durable_on_completion;
        let mut writing: Option<Writing> = None;
        loop {
            let waiting = self.progress.wait();
            let begin = {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                let frag_bytes = state.layout.frag_bytes;
                let Some(buffer) = state.cache.peek(at) else { break };
                let frags = (buffer.data.len() / frag_bytes as usize) as u32;
                let (dirty, volatile) = (buffer.dirty.is_some(), buffer.volatile);
                if state.cache.is_in_flight(at, frags) {
                    false
                } else if writing.is_some() {
                    break;
                } else if !(dirty || fua && volatile) {
                    return Ok(());
                } else {
                    true
                }
            };
            if begin {
                writing = self.begin_write(&[at], WriteFlags { fua });
                continue;
            }
            waiting.await;
        }
        let Some(writing) = writing else {
            // Another task may have written it without a flush before it was dropped.
            return if fua { self.flush().await } else { Ok(()) };
        };
        // How this write ends is what matters, whatever others meet: what reaches the volume must not count as failed.
        let written = writing.await;
        let is_written_since = |state: &State| state.cache.peek(at).is_some_and(|buffer| buffer.failed == 0);
        if written.is_err() && is_written_since(&self.state.borrow()) {
            return self.flush().await; // Another task was more fortunate.
        }
        written.map_err(FsError::Device)
    }

    /// Writes a buffer that later writes rely on: before anything else happens, where metadata is synchronous, and
    /// otherwise eventually.
    ///
    /// # Errors
    /// `NoSpace` when there is none below; the caller takes back what it was about to do, or calls
    /// [`Ffs::write_in_order_or_later`] to do without the order.
    pub(super) async fn write_in_order(&self, at: FragNo) -> FsResult<()> {
        if self.options.metadata != Metadata::Sync {
            return Ok(());
        }
        self.state.borrow_mut().counters.ordered_writes += 1;
        no_room(self.write_now(at).await)
    }

    /// As [`Ffs::write_in_order`]; a buffer that finds no space below is written when there is some. For operations
    /// that free space, which must not fail for lack of it: a crash before then leaves names of inodes that are not in
    /// use.
    pub(super) async fn write_in_order_or_later(&self, at: FragNo) -> FsResult<()> {
        match self.write_in_order(at).await {
            Err(FsError::NoSpace) => Ok(()),
            result => result,
        }
    }

    /// Writes several buffers of a file as [`Ffs::write_in_order`] does, neighbours together.
    pub(super) async fn write_run_in_order(&self, places: &[FragNo]) -> FsResult<()> {
        if self.options.metadata != Metadata::Sync {
            return Ok(());
        }
        self.state.borrow_mut().counters.ordered_writes += 1;
        self.push(places.to_vec(), true);
        let dirty = |state: &State| {
            let is_dirty = |at: &FragNo| state.cache.peek(*at).is_some_and(|buffer| buffer.dirty.is_some());
            places.iter().copied().filter(is_dirty).collect()
        };
        no_room(self.write_all(dirty).await)?;
        self.flush().await
    }

    /// Copies the inode into its block and writes that as [`Ffs::write_in_order`] does. Of a directory that has grown, what
    /// leads to its new end is written before.
    pub(super) async fn write_inode_in_order(&self, ino: InodeNo) -> FsResult<()> {
        if self.options.metadata == Metadata::Softdep {
            return Ok(());
        }
        no_room(self.write_growth(ino).await)?;
        let at = self.step(|state| state.update_inode(ino)).await?;
        self.write_in_order(at).await?;
        self.state.borrow_mut().grown.remove(&ino);
        Ok(())
    }

    /// The same as [`Ffs::write_in_order_or_later`] does.
    pub(super) async fn write_inode_in_order_or_later(&self, ino: InodeNo) -> FsResult<()> {
        match self.write_inode_in_order(ino).await {
            Err(FsError::NoSpace) => Ok(()),
            result => result,
        }
    }

    /// Begins to write those of these buffers that are dirty and not in flight. With `cluster`, neighbours of one file
    /// are written together, up to the size of a cluster.
    pub(super) fn push(&self, mut places: Vec<FragNo>, cluster: bool) {
        places.sort_unstable();
        let mut runs: Vec<Vec<FragNo>> = Vec::new();
        {
            let state = self.state.borrow();
            let (frag_bytes, most) = (state.layout.frag_bytes as usize, state.options.cluster_bytes as usize);
            let mut end = (FragNo::NONE, BufferKind::Inodes, 0);
            for at in places {
                let Some(buffer) = state.cache.peek(at) else { continue };
                let frags = (buffer.data.len() / frag_bytes) as u32;
                if buffer.dirty.is_none() || state.cache.is_in_flight(at, frags) {
                    continue;
                }
                let bytes = buffer.data.len();
                let joins = cluster
                    && end.0 == at
                    && end.1.owner() == buffer.kind.owner()
                    && end.1.is_file_data() == buffer.kind.is_file_data()
                    && end.2 + bytes <= most;
                match runs.last_mut() {
                    Some(run) if joins => {
                        run.push(at);
                        end = (at + frags, buffer.kind, end.2 + bytes);
                    }
                    _ => {
                        runs.push(vec![at]);
                        end = (at + frags, buffer.kind, bytes);
                    }
                }
            }
        }
        for run in runs {
            self.begin_write(&run, WriteFlags::NONE);
        }
    }

    /// Writes all buffers that `select` names, again and again, until there are none, and waits for every write that
    /// had begun by then.
    ///
    /// # Errors
    /// `Stopped`, and `Device` as soon as there was no space below for one of them; it stays dirty.
    pub(super) async fn write_all(&self, select: impl Fn(&State) -> Vec<FragNo>) -> FsResult<()> {
        let start = self.state.borrow_mut().cache.tick();
        self.write_selected(start, select, false).await
    }

    /// The same for an operation that began at `since`: what has found no space below since then is not tried again.
    pub(super) async fn write_all_since(&self, since: u64, select: impl Fn(&State) -> Vec<FragNo>) -> FsResult<()> {
        self.write_selected(since, select, false).await
    }

    /// The same, but leaves out what finds no space below, and writes everything else nevertheless. Of data that may have no
    /// storage there, it leaves out more once some of it has been refused: a host can take milliseconds for each refusal.
    ///
    /// # Errors
    /// `Stopped`, and at the end `Device` when something was left out.
    pub(super) async fn write_all_possible(&self, since: u64, select: impl Fn(&State) -> Vec<FragNo>) -> FsResult<()> {
        self.write_selected(since, select, true).await
    }

    async fn write_selected(
        &self,
        since: u64,
        select: impl Fn(&State) -> Vec<FragNo>,
        leaves_out: bool,
    ) -> FsResult<()> {
        let (mut begun, mut changed) = (self.state.borrow_mut().cache.tick(), false);
        let (mut unsure, mut selected) = (Vec::new(), BTreeSet::new());
        loop {
            let waiting = self.progress.wait();
            let mut written = Ok(());
            let (places, quiet) = {
                let mut state = self.state.borrow_mut();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                let mut places = select(&state);
                selected.extend(places.iter().copied());
                let mut refused = 0;
                // An attempt that had begun earlier says nothing about now, and one of another buffer nothing about these.
                if state.full_below > since
                    && state.cache.has_failed_since(&places, since)
                    && let Some(error) = &state.full_below_error
                {
                    written = Err(FsError::Device(error.clone()));
                    if !leaves_out {
                        return written;
                    }
                    let all = places.len();
                    places.retain(|at| !state.cache.has_failed_since(&[*at], since));
                    refused = all - places.len();
                }
                let holds_back = state.hold_back(&mut places, &mut unsure, refused);
                if places.is_empty() && changed {
                    // Another task may have begun to write the last of them while an older write was in flight.
                    (begun, changed) = (state.cache.tick(), false);
                }
                // Another task may have begun to write again what was refused, before this one has seen that it was.
                let is_retried =
                    state.full_below > since && selected.iter().any(|&at| state.cache.is_retried_since(at, since));
                let quiet = places.is_empty() && !holds_back && !is_retried && !state.cache.is_in_flight_since(begun);
                (places, quiet)
            };
            if quiet {
                return written;
            }
            if !places.is_empty() {
                self.push(places, self.options.cluster_updates);
                changed = true;
            }
            waiting.await;
        }
    }

    /// Makes everything written durable, including what flushes of other tasks have taken that are still in progress.
    pub(super) async fn flush(&self) -> FsResult<()> {
        if let Some(error) = &self.state.borrow().stopped {
            return Err(FsError::Stopped(error.clone()));
        }
        if self.device.guarantees().durable_on_completion {
            return Ok(());
        }
        let flushing = Flushing { ffs: self, number: self.state.borrow_mut().begin_flush() };
        let number = flushing.number;
        if let Err(error) = self.device.flush().await {
            // The state of the device is unknown.
            let text = error.to_string();
            self.state.borrow_mut().stopped.get_or_insert(text.clone());
            return Err(FsError::Stopped(text));
        }
        self.state.borrow_mut().end_flush(number);
        drop(flushing);
        self.wait_for_flushes(number).await
    }

    /// Waits for flushes that other tasks have begun, up to `number`. A later flush says nothing about them: the device
    /// may report the error of a write to only one of two concurrent flushes.
    pub(super) async fn wait_for_flushes(&self, number: u64) -> FsResult<()> {
        loop {
            let waiting = self.progress.wait();
            {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                if !state.is_flushing_until(number) {
                    return Ok(());
                }
            }
            waiting.await;
        }
    }

    /// Makes a file durable: first its data and indirect blocks, then the inode.
    pub(super) async fn sync_file(&self, ino: InodeNo) -> FsResult<()> {
        match self.options.metadata {
            Metadata::Sync => {}
            Metadata::Async => return self.sync_file_unordered(ino).await,
            Metadata::Softdep => return self.sync_file_soft(ino).await,
        }
        let late = self.state.borrow_mut().late_names_of(ino);
        for at in late {
            self.write_now(at).await?;
        }
        let _inode = self.locks.share(ino).await;
        self.write_all(|state| state.cache.dirty_of(ino)).await?;
        // What the inode leads to is durable before it is even copied into its block, which others write for their inodes.
        self.flush().await?;
        let at = self.step(|state| {
            state.inode(ino)?;
            state.update_inode(ino)
        });
        // It is durable when it has been written.
        self.write_now(at.await?).await
    }

    /// Writes everything back: data, then inodes and groups, then the summary. Changes made in the meantime may wait. What
    /// finds no room below keeps only the inode that needs it from the volume.
    ///
    /// # Errors
    /// The first one that [`put_off_here`] puts off, once everything else is durable; others at once.
    pub(super) async fn sync(&self) -> FsResult<()> {
        self.write_back(SyncScope::All).await
    }

    /// The same, as far as `scope` says, which matters with soft updates.
    async fn write_back(&self, scope: SyncScope) -> FsResult<()> {
        if self.options.metadata == Metadata::Softdep {
            let _turn = self.sync_gate.enter().await;
            return self.sync_soft(scope).await;
        }
        self.write_back_unordered().await?.first
    }

    /// The same without soft updates. Returns what [`put_off_here`] puts off.
    pub(super) async fn write_back_unordered(&self) -> FsResult<LeftOut> {
        let _turn = self.sync_gate.enter().await;
        let until = self.state.borrow_mut().cache.tick();
        let begun = until;
        let (mut first, mut unread) = (Ok(()), Unread::default());
        let data = self.write_all_possible(begun, |state| state.dirty_of_files(true, until)).await;
        put_off_here(&mut first, data)?;
        if self.options.metadata == Metadata::Sync {
            self.flush().await?; // An inode in order is not written before what it leads to is durable.
        }
        let mut left = self.state.borrow().without_content(until);
        let dirty = self.state.borrow().dirty_inodes();
        for ino in dirty {
            if left.contains(&ino) {
                continue;
            }
            if unread.has(&self.state.borrow(), ino) {
                left.insert(ino);
                continue;
            }
            // A directory only between operations: within one it can point to a chunk that is not on the volume yet,
            // and the power may fail when its inode is, and the chunk is not.
            let is_directory = self.state.borrow().inodes.get(&ino).is_some_and(|known| known.inode.is_directory());
            let ordered = is_directory && self.options.metadata == Metadata::Sync;
            // Of a file, the tail may have moved since its content was written, and the inode leads to the new place.
            let _inode = if ordered || !is_directory { Some(self.locks.share(ino).await) } else { None };
            if self.state.borrow().copied_tails.get(&ino).is_some_and(|&since| since > begun) {
                let content = self.write_all_possible(begun, |state| state.cache.dirty_of(ino)).await;
                if content.is_err() {
                    left.insert(ino);
                    put_off_here(&mut first, content)?;
                    continue;
                }
            }
            let updated = self.update_inode_between(ino).await;
            if updated.is_err() {
                left.insert(ino);
            }
            unread.note(&self.state.borrow(), ino, &updated);
            put_off_here(&mut first, updated)?;
        }
        let until = self.state.borrow_mut().cache.tick();
        let metadata = self.write_all_possible(begun, |state| state.dirty_of_files(false, until)).await;
        put_off_here(&mut first, metadata)?;
        left.extend(self.state.borrow().unwritten_inodes(until));
        self.flush().await?;
        self.state.borrow_mut().moved_tails.retain(|ino, since| *since > begun || left.contains(ino));
        self.state.borrow_mut().copied_tails.retain(|_, since| *since > begun);
        let mut has_freed = false;
        loop {
            match self.step(|state| state.free_left_behind(begun, &left)).await {
                Ok(true) => has_freed = true,
                Ok(false) => break,
                Err(error) => {
                    put_off(&mut first, Err(error))?;
                    break;
                }
            }
        }
        if has_freed {
            let until = self.state.borrow_mut().cache.tick();
            let groups = self.write_all_possible(begun, |state| state.dirty_of_files(false, until)).await;
            put_off_here(&mut first, groups)?;
            self.flush().await?;
        }
        if std::mem::take(&mut self.state.borrow_mut().totals_dirty) {
            put_off_here(&mut first, self.write_totals().await)?;
            self.flush().await?;
        }
        Ok(LeftOut { inodes: left, first })
    }

    /// Puts the inode into its block, if it is in memory.
    async fn update_inode_between(&self, ino: InodeNo) -> FsResult<()> {
        self.write_growth(ino).await?;
        self.step(|state| match state.inodes.contains_key(&ino) {
            true => state.update_inode(ino).map(drop),
            false => Ok(()),
        })
        .await
    }

    /// Writes the buffers that are dirty now, after what is in flight: files', then the volume's own. Unlike an update
    /// it takes no lock and puts no inode into its block, so that the caller may hold locks.
    async fn write_metadata(&self) -> FsResult<()> {
        let until = self.state.borrow_mut().cache.tick();
        for of_files in [true, false] {
            self.write_all(|state| state.dirty_of_files(of_files, until)).await?;
        }
        Ok(())
    }

    /// Writes the summary area and the superblock.
    pub(super) async fn write_totals(&self) -> FsResult<()> {
        let (at, summary, superblock) = {
            let mut state = self.state.borrow_mut();
            let bytes = state.layout.cssize.next_multiple_of(state.layout.frag_bytes) as usize;
            let mut summary = Buf::zeroed(bytes);
            for (cs, raw) in state.summaries.iter().zip(summary.chunks_exact_mut(Csum::BYTES)) {
                cs.encode(raw);
            }
            let (totals, now) = (state.totals, self.rt.wall());
            state.superblock.set_totals(&totals, now);
            assembly::seal(&mut state.superblock);
            let superblock = state.superblock;
            let mut raw = std::mem::take(&mut state.raw_superblock);
            superblock.encode(&mut raw);
            let block = Data::from_slice(&raw);
            state.raw_superblock = raw;
            state.counters.block_writes += 2;
            (state.layout.sector(state.layout.csaddr), summary.freeze(), block)
        };
        let place = Sector(SUPERBLOCK_OFFSET / crate::units::SECTOR_BYTES);
        let written = match write_bytes(&self.device, at, summary, WriteFlags::NONE).await {
            Ok(()) => write_bytes(&self.device, place, superblock, WriteFlags::NONE).await,
            error => error,
        };
        match written {
            Ok(()) => Ok(()),
            Err(error @ DeviceError::NoSpace { .. }) => {
                self.state.borrow_mut().totals_dirty = true;
                Err(error.into())
            }
            Err(error) => {
                let text = error.to_string();
                self.state.borrow_mut().stopped.get_or_insert(text.clone());
                Err(FsError::Stopped(text))
            }
        }
    }

    /// Waits while too much is dirty or in flight, and starts writes to reduce it.
    pub(super) async fn throttle(&self) -> FsResult<()> {
        let start = self.state.borrow_mut().cache.tick();
        loop {
            let waiting = self.progress.wait();
            let (oldest, idle, quiet) = {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                let most = state.options.dirty_bytes_max;
                if state.cache.dirty_bytes + state.cache.in_flight_bytes <= most || state.full_below > start {
                    return Ok(());
                }
                let idle = state.cache.in_flight_bytes < most / 2;
                let oldest = if idle { state.cache.oldest_dirty_data() } else { None };
                (oldest, idle, !state.cache.any_in_flight())
            };
            match oldest {
                Some(at) => {
                    let neighbours = self.cluster_around(at);
                    self.push(neighbours, true);
                }
                // Everything dirty is metadata. The caller may hold a lock.
                None if quiet && self.options.metadata == Metadata::Softdep => {
                    // What is in the way at one place concerns others.
                    return put_off(&mut Ok(()), self.round(start).await);
                }
                None if self.options.metadata == Metadata::Softdep => waiting.await,
                // Others may always have a write in flight.
                None if idle => return self.write_metadata().await,
                None => waiting.await,
            }
        }
    }

    /// Consecutive dirty buffers of one file from the one at `at` forward, up to a cluster.
    fn cluster_around(&self, at: FragNo) -> Vec<FragNo> {
        let state = self.state.borrow();
        let (mut places, mut next) = (Vec::new(), at);
        let most = state.options.cluster_bytes / u64::from(state.layout.block_bytes).max(1);
        let owner = state.cache.peek(at).map(|buffer| buffer.kind.owner());
        while let Some(buffer) = state.cache.peek(next) {
            if buffer.dirty.is_none() || Some(buffer.kind.owner()) != owner || places.len() as u64 >= most.max(1) {
                break;
            }
            places.push(next);
            next = next + (buffer.data.len() / state.layout.frag_bytes as usize) as u32;
        }
        places
    }

    // ---- Lifetime of a mount ----

    pub(super) fn begin_updates(self: &Rc<Self>) {
        let interval = self.options.update_interval;
        let (weak, rt) = (Rc::downgrade(self), self.rt.clone());
        self.rt.spawn(async move {
            loop {
                rt.sleep(interval).await;
                let Some(live) = Weak::upgrade(&weak) else { return };
                if live.closed.get() || live.state.borrow().stopped.is_some() {
                    return;
                }
                // The next caller gets an error that stops the volume; lack of space below is temporary.
                let _ = live.write_back(SyncScope::Update).await;
            }
        });
    }

    /// Ends writing for good: everything is durable, and the superblock records that.
    pub(super) async fn end_writing(&self) -> FsResult<()> {
        // A second caller must not return before the first one has ended it.
        let _turn = self.end_gate.enter().await;
        if self.closed.replace(true) || self.state.borrow().read_only {
            return Ok(());
        }
        let ended = self.write_last().await;
        if ended.is_err() {
            self.closed.set(false); // A later call may try again.
            return ended;
        }
        self.state.borrow_mut().stopped.get_or_insert_with(|| "the volume has been closed".into());
        // Everything is durable, so an error of the device below in saving its own state changes nothing here.
        let _ = self.device.release().await;
        Ok(())
    }

    async fn write_last(&self) -> FsResult<()> {
        let mut first = Ok(());
        if self.options.metadata == Metadata::Softdep {
            put_off(&mut first, self.write_back(SyncScope::Quiet).await)?; // Removed names no longer hold anything.
        }
        // An inode that cannot be freed is left to the check, but nothing else is.
        put_off(&mut first, self.reclaim_unlinked().await)?;
        self.write_back(SyncScope::Quiet).await?;
        first?;
        let (layout, superblock) = {
            let state = self.state.borrow();
            (state.layout.clone(), state.superblock)
        };
        let witnesses = assembly::remember(&self.device, &layout, &superblock).await?;
        {
            let mut state = self.state.borrow_mut();
            assembly::enter(&mut state.superblock, &witnesses);
            if state.counters.damage() == 0 && !self.is_incomplete {
                (state.superblock.clean, state.superblock.fmod) = (CLEAN, 0);
            }
        }
        self.write_totals().await?; // From now on no check is needed, unless the books did not balance or something is left.
        self.flush().await
    }
}

/// A lack of space below, as the user of an operation sees it.
fn no_room(result: FsResult<()>) -> FsResult<()> {
    match result {
        Err(FsError::Device(DeviceError::NoSpace { .. })) => Err(FsError::NoSpace),
        result => result,
    }
}

/// A write in progress.
pub(super) type Writing = JoinHandle<Result<(), DeviceError>>;

/// Blocks being read; a cancelled task releases its claims, so that others do not wait for it.
struct Reading<'a> {
    ffs: &'a Ffs,
    places: Vec<(FragNo, u64)>,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.ffs.state.try_borrow_mut() {
            for &(at, number) in &self.places {
                state.cache.end_load(at, number);
            }
        }
        self.ffs.progress.notify();
    }
}

/// A flush in progress. If it fails, what it took waits for the next one, and tasks waiting for it look again.
struct Flushing<'a> {
    ffs: &'a Ffs,
    number: u64,
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.ffs.state.try_borrow_mut() {
            state.give_up_flush(self.number);
        }
        self.ffs.progress.notify();
    }
}

/// Reads `bytes` from `at`, in requests of the size that the device accepts.
pub(super) async fn read_bytes(device: &Device, at: Sector, bytes: usize) -> FsResult<Buf> {
    let most = request_bytes(device);
    if bytes <= most {
        return Ok(device.read(at, Buf::dirty(bytes)).await?);
    }
    let mut whole = Buf::dirty(bytes);
    let mut done = 0;
    while done < bytes {
        let take = most.min(bytes - done);
        let part = device.read(at + done as u64 / crate::units::SECTOR_BYTES, Buf::dirty(take)).await?;
        whole[done..done + take].copy_from_slice(&part);
        done += take;
    }
    Ok(whole)
}

/// Writes `data` at `at`, in requests of the size that the device accepts.
pub(super) async fn write_bytes(device: &Device, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
    let most = request_bytes(device);
    let mut done = 0;
    while done < data.len() {
        let take = most.min(data.len() - done);
        device.write(at + done as u64 / crate::units::SECTOR_BYTES, data.slice(done..done + take), flags).await?;
        done += take;
    }
    Ok(())
}

fn request_bytes(device: &Device) -> usize {
    let geometry = device.geometry();
    (geometry.request_bytes_max / geometry.block_bytes * geometry.block_bytes).max(geometry.block_bytes) as usize
}
