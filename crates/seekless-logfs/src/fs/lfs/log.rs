//! How the log reaches the device: steps and what they wait for, transactions, flushes, checkpoints.
//!
//! Invariants
//!   L1  Nothing is acknowledged as durable before every partial segment up to it is on the device and a flush
//!       has been done after the last of them (or the device is durable on completion).
//!   L2  A checkpoint slot is written only after the log up to it is durable.
//!   L3  After an error of unknown effect nothing is written any more.

use std::rc::{Rc, Weak};

use futures_util::future::{LocalBoxFuture, join_all};

use super::Lfs;
use super::assemble::{PartialWrite, SlotWrite, Transaction, TransactionScope, assemble};
use super::format::*;
use super::state::*;
use super::victims::Victims;
use crate::device::{Buf, Data, DeviceError, WriteFlags};
use crate::fs::logfs::state::Scope;
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::{Nanos, SECTOR_BYTES, Sector};

/// Bytes on their way to the device before writers have to wait.
const IN_FLIGHT_BYTES_MAX: u64 = 16 << 20;

/// Log bytes after which a checkpoint is due: this part of the volume, and at least so much. Rolling forward stays short,
/// and segments can become clean early, which needs that the log has not passed them since the older slot (G1).
const LOG_BYTES_PER_CHECKPOINT: u64 = 16 << 20;
const LOG_SHARE_PER_CHECKPOINT: u64 = 8;

/// Whether rolling forward would take long enough for a checkpoint.
pub(super) fn log_is_long(state: &State) -> bool {
    let volume = state.log.layout.superblock.volume_sectors * SECTOR_BYTES;
    state.log.log_bytes_since_checkpoint > LOG_BYTES_PER_CHECKPOINT.max(volume / LOG_SHARE_PER_CHECKPOINT)
}

impl Lfs {
    // ---- Writing ----

    /// Assembles a transaction and starts writing it, unless something has to be loaded first.
    fn submit(self: &Rc<Self>, scope: TransactionScope<'_>) -> FsResult<Submission> {
        let transaction = {
            let mut state = self.state.borrow_mut();
            state.now = self.rt.wall();
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone()));
            }
            let assembled = assemble(&mut state, scope);
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone()));
            }
            match assembled {
                Ok(Some(transaction)) => transaction,
                Ok(None) => {
                    let end_sequence = state.log.end.sequence;
                    return Ok(Submission::Started(Submitted { end_sequence, checkpoint: None }));
                }
                Err(Stop::Need(Need::Load(load))) => return Ok(Submission::Needs(load)),
                Err(Stop::Fail(error)) => return Err(error),
                Err(Stop::Need(Need::Wait(wait))) => unreachable!("assembling waits for nothing, not for {wait:?}"),
            }
        };
        let Transaction { partials, end_sequence, checkpoint } = transaction;
        let lfs = self.clone();
        self.rt.spawn(async move { lfs.write_partials(partials).await });
        Ok(Submission::Started(Submitted { end_sequence, checkpoint }))
    }

    pub(super) async fn submit_loading<'a>(
        self: &Rc<Self>,
        scope: impl Into<TransactionScope<'a>>,
    ) -> FsResult<Submitted> {
        let scope = scope.into();
        loop {
            match self.submit(scope)? {
                Submission::Started(submitted) => return Ok(submitted),
                Submission::Needs(load) => self.load(load).await?,
            }
        }
    }

    async fn write_partials(self: Rc<Self>, partials: Vec<PartialWrite>) {
        let writes = partials.into_iter().map(|PartialWrite { at, data, sequence }| {
            let lfs = &self;
            async move {
                let bytes = data.len() as u64;
                let result = match lfs.in_order(sequence, at).await {
                    Ok(()) => lfs.write_with_retry(sequence, at, data, WriteFlags::NONE).await,
                    Err(error) => Err(error),
                };
                lfs.partial_written(sequence, bytes, result);
            }
        });
        join_all(writes).await;
    }

    /// On a device that is written in order, waits until the partial segments before `sequence` are written, and empties the segment
    /// that begins with it.
    ///
    /// # Errors
    /// `Gone` when an earlier write failed, for which this one would wait without end.
    async fn in_order(&self, sequence: u64, at: Sector) -> Result<(), DeviceError> {
        if self.device.spans().is_none() {
            return Ok(());
        }
        loop {
            let progress = self.log_progress.wait();
            {
                let state = self.state.borrow();
                if state.in_flight.iter().all(|flight| flight.sequence >= sequence) {
                    break;
                }
                if state.stopped.is_some() {
                    return Err(DeviceError::Gone("an earlier write of the log has failed"));
                }
            }
            progress.await;
        }
        let layout = self.state.borrow().log.layout;
        match layout.segment_of(at) {
            Some(segment) if layout.segment_start(segment) == at => {
                self.device.discard(at, layout.segment_sectors()).await
            }
            _ => Ok(()),
        }
    }

    /// On a device that is written in order, cuts off what the last mount left beyond the end of the log: the log
    /// continues there. On others, erases the start of the transaction that `is_torn` at the end (V6). The flush before the next
    /// checkpoint's slot is written makes both durable. What begins in the next segment stays: the next transaction goes there, too, or
    /// is found first.
    pub(super) async fn cut_behind_end(&self, is_torn: bool) -> FsResult<()> {
        let (layout, end) = {
            let state = self.state.borrow();
            (state.log.layout, state.log.end)
        };
        if end.offset == layout.segment_sectors() {
            return Ok(());
        }
        let at = layout.segment_start(end.segment) + end.offset;
        if self.device.spans().is_none() {
            let zeroes = Data::zeroes((layout.align_sectors() * SECTOR_BYTES) as usize);
            return match is_torn {
                true => Ok(self.device.write(at, zeroes, WriteFlags::NONE).await?),
                false => Ok(()),
            };
        }
        Ok(self.device.discard(at, layout.segment_sectors() - end.offset).await?)
    }

    fn partial_written(&self, sequence: u64, bytes: u64, result: Result<(), DeviceError>) {
        {
            let mut state = self.state.borrow_mut();
            debug_assert!(bytes <= state.log.in_flight_bytes, "L1: what is written was on its way");
            state.log.in_flight_bytes -= bytes;
            state.stalled.remove(&sequence);
            match result {
                Ok(()) => {
                    state.in_flight.retain(|flight| flight.sequence != sequence);
                    let oldest = state.in_flight.iter().map(|flight| flight.sequence).min();
                    let written = oldest.unwrap_or(state.log.end.sequence);
                    debug_assert!(written >= state.log.written_sequence, "L1: what is written stays written");
                    debug_assert!(state.log.durable_sequence <= written, "L1: only what is written is durable");
                    state.log.written_sequence = written;
                }
                // L3. What could not be written stays in memory, where it can still be read.
                Err(error) => state.stop(&error),
            }
        }
        self.log_progress.notify();
    }

    /// Waits until every partial segment before `sequence` is durable (L1).
    pub(super) async fn make_durable(&self, sequence: u64) -> FsResult<()> {
        loop {
            let written = {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                if state.log.durable_sequence >= sequence {
                    return Ok(());
                }
                state.log.written_sequence
            };
            if written < sequence {
                let stalled = self.state.borrow().stalled.first_key_value().is_some_and(|(&first, _)| first < sequence);
                match stalled {
                    true => self.retry_stalled().await?,
                    false => self.log_progress.wait().await,
                }
                continue;
            }
            // A flush that begins late enough serves all the callers waiting here.
            let _pass = self.work.flush_gate.enter().await;
            let covered = {
                let state = self.state.borrow();
                if state.log.durable_sequence >= sequence {
                    return Ok(());
                }
                state.log.written_sequence
            };
            self.flush_device().await?;
            let mut state = self.state.borrow_mut();
            debug_assert!(covered <= state.log.written_sequence, "L1: a flush covers what was written before it");
            state.log.durable_sequence = state.log.durable_sequence.max(covered);
        }
    }

    async fn flush_device(&self) -> FsResult<()> {
        if let Some(error) = &self.state.borrow().stopped {
            return Err(FsError::Stopped(error.clone())); // A flush that failed is never tried again.
        }
        if self.device.guarantees().durable_on_completion {
            return Ok(());
        }
        let result = self.device.flush().await;
        let mut state = self.state.borrow_mut();
        state.log.counters.flushes += 1;
        if let Err(error) = result {
            state.stop(&error);
            return Err(FsError::Stopped(error.to_string()));
        }
        Ok(())
    }

    /// Makes everything in `scope` durable.
    pub(super) async fn sync(self: &Rc<Self>, scope: Scope<'_>) -> FsResult<()> {
        let submitted = self.submit_loading(scope).await?;
        self.make_durable(submitted.end_sequence).await
    }

    /// Waits until nothing is on its way to the device.
    pub(super) async fn wait_for_flight(&self) -> FsResult<()> {
        loop {
            {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                // What waits for room below may wait for the caller, who frees space.
                if state.log.in_flight_bytes == 0 || !state.stalled.is_empty() {
                    return Ok(());
                }
            }
            self.log_progress.wait().await;
        }
    }

    /// Makes room for new changes: starts writing dirty data, and waits while too much is in flight.
    pub(super) async fn write_back_some(&self) -> FsResult<()> {
        loop {
            {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                if state.log.in_flight_bytes <= IN_FLIGHT_BYTES_MAX {
                    break;
                }
                if !state.stalled.is_empty() {
                    return Err(FsError::NoSpace);
                }
            }
            self.log_progress.wait().await;
        }
        let lfs = self.this();
        lfs.submit_loading(Scope::Everything).await?;
        let deferred = {
            let state = self.state.borrow();
            state.deferred_bytes() > state.log.deferred_bytes_max
        };
        if deferred { lfs.checkpoint(false).await } else { Ok(()) }
    }

    /// Writes a checkpoint: from then on recovery starts here.
    pub(super) fn checkpoint<'a>(self: &'a Rc<Self>, clean: bool) -> LocalBoxFuture<'a, FsResult<()>> {
        Box::pin(self.write_checkpoint(clean))
    }

    async fn write_checkpoint(self: &Rc<Self>, clean: bool) -> FsResult<()> {
        let _pass = self.work.checkpoint_gate.enter().await;
        let submitted = self.submit_loading(TransactionScope::Checkpoint { clean }).await?;
        let Some(SlotWrite { serial, block }) = submitted.checkpoint else { return Ok(()) };
        self.make_durable(submitted.end_sequence).await?; // L2
        let mut copies = Buf::dirty(2 * BLOCK_BYTES);
        copies[..BLOCK_BYTES].copy_from_slice(&block[..]);
        copies[BLOCK_BYTES..].copy_from_slice(&block[..]);
        let number = (serial % 2) as usize;
        let slot = CHECKPOINT_SECTORS[number];
        let other = self.state.borrow().log.slots[1 - number];
        assert!(serial > other, "G1: the older slot is written over");
        {
            let state = self.state.borrow();
            debug_assert!(serial > state.log.checkpoint_serial, "G1: checkpoints are numbered upwards");
            debug_assert!(state.log.durable_sequence >= submitted.end_sequence, "L2: the log up to it is durable");
            // The flush of another task may have made it durable, and a later write have failed since.
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone())); // L3
            }
        }
        // Commit point: until now the older checkpoint is the truth.
        match self.device.write(slot, copies.freeze(), WriteFlags::NONE).await {
            Ok(()) => {}
            // At worst this slot is torn; the other one is intact, and the next checkpoint overwrites this one.
            Err(DeviceError::NoSpace { .. }) => return Err(FsError::NoSpace),
            Err(error) => {
                self.state.borrow_mut().stop(&error);
                return Err(FsError::Stopped(error.to_string()));
            }
        }
        self.flush_device().await?;
        let released = {
            let mut state = self.state.borrow_mut();
            state.log.checkpoint_serial = serial;
            state.log.counters.checkpoints += 1;
            state.log.slots[number] = serial;
            state.log.segments.checkpointed(serial);
            // The slots hold this checkpoint and an older one, now that both are durable.
            state.log.segments.let_go(other)
        };
        self.release(released).await;
        self.release_early().await;
        Ok(())
    }

    /// Makes emptied segments that neither slot needs available again (G1), as far as the log is durable. Returns how
    /// many.
    pub(super) async fn release_early(&self) -> u64 {
        let released = {
            let mut state = self.state.borrow_mut();
            let (older, durable) = (state.older_slot(), state.log.durable_sequence);
            let released = state.log.segments.let_go_early(older, durable);
            state.log.counters.cleaner_segments_early += released.len() as u64;
            released
        };
        let count = released.len() as u64;
        if count > 0 {
            self.release(released).await;
        }
        count
    }

    // ---- Tasks ----

    /// Begins use of the volume: marks it as in use, and starts the background tasks.
    pub(super) async fn begin_writing(self: &Rc<Self>) -> FsResult<()> {
        // Where the last daemon was killed, what was just read may be in a volatile cache only, and the next write
        // declares it durable.
        self.flush_device().await?;
        let is_torn = self.pass_over_torn();
        self.cut_behind_end(is_torn).await?;
        {
            let mut state = self.state.borrow_mut();
            let (cleaner, kept) = (state.log.options.cleaner, [state.log.end.segment, state.log.end.next_segment]);
            let mut victims = Victims::new(cleaner, &state.log.layout, state.log.segments.live_bytes);
            victims.set_now(self.rt.wall().nanos_since_epoch());
            state.log.segments.find_victims(victims, &kept);
        }
        self.provision_end().await?;
        match self.provision_at_mount().await {
            // There is still the segment at the end of the log, and the next.
            Ok(()) | Err(FsError::NoSpace) => {}
            Err(error) => return Err(error),
        }
        self.checkpoint(false).await?;
        let orphans = self.state.borrow().log.orphans.list();
        for ino in orphans {
            cover("lfs: a mount frees an orphan");
            self.free_orphan(ino).await?;
        }
        self.rt.spawn(write_back_task(Rc::downgrade(self)));
        self.rt.spawn(timer_task(Rc::downgrade(self)));
        Ok(())
    }

    /// Ends writing for good: everything is durable, and a clean checkpoint records that.
    pub(super) async fn end_writing(self: &Rc<Self>) -> FsResult<()> {
        let is_first = !self.closed.replace(true);
        if self.state.borrow().read_only {
            return Ok(());
        }
        // The cleaner stops at the end of its pass and starts no other.
        let _cleaner = self.work.cleaner_gate.enter().await;
        // Another caller has ended it since, or has failed to, and then this one tries again.
        if !is_first && self.closed.replace(true) {
            return Ok(());
        }
        self.let_go_of_all().await;
        if let Err(error) = self.checkpoint(true).await {
            // Tables that cannot be read keep no file from the log. After an error of unknown effect nothing is written (L3).
            if error.is_of_one_place() {
                let _ = self.sync(Scope::Everything).await;
            }
            self.closed.set(false); // A later call may try again.
            return Err(error);
        }
        // Before anything else is waited for: a task that wants a checkpoint writes none after the clean one.
        self.state.borrow_mut().stopped.get_or_insert_with(|| "the volume has been closed".into());
        self.write_back_wanted.notify();
        self.give_back(Nanos::ZERO, usize::MAX).await;
        // Everything is durable, so an error of the device below in saving its own state changes nothing here.
        let _ = self.device.release().await;
        Ok(())
    }
}

/// Result of the attempt to write a transaction.
enum Submission {
    Started(Submitted),
    /// This has to be in memory first.
    Needs(Load),
}

/// A transaction in flight.
pub(super) struct Submitted {
    /// When the log is durable up to this number, so is everything in the scope of the transaction.
    pub end_sequence: u64,
    pub checkpoint: Option<SlotWrite>,
}

/// Writes back whenever a segment's worth of data is dirty.
async fn write_back_task(lfs: Weak<Lfs>) {
    loop {
        let Some(live) = lfs.upgrade() else { return };
        let wanted = live.write_back_wanted.clone();
        let waiting = wanted.wait();
        drop(live);
        waiting.await;
        let Some(live) = lfs.upgrade() else { return };
        if live.state.borrow().stopped.is_some() {
            return;
        }
        if live.closed.get() {
            continue; // A close that fails leaves the volume in use.
        }
        let busy = live.state.borrow().log.in_flight_bytes > IN_FLIGHT_BYTES_MAX;
        if !busy {
            // The next caller gets an error that stops the volume; any other error is temporary.
            let _ = live.submit_loading(Scope::Everything).await;
        }
        let due = log_is_long(&live.state.borrow());
        if due {
            let _ = live.checkpoint(false).await;
        }
        live.clean_if_short().await;
    }
}

/// Writes back changes that have waited long enough, and writes checkpoints.
async fn timer_task(lfs: Weak<Lfs>) {
    let mut last_checkpoint = lfs.upgrade().map_or(Nanos::ZERO, |live| live.rt.now());
    loop {
        let (rt, interval) = {
            let Some(live) = lfs.upgrade() else { return };
            let options = live.state.borrow().log.options;
            (live.rt.clone(), options.write_back_interval.min(options.checkpoint_interval))
        };
        rt.sleep(interval).await;
        let Some(live) = lfs.upgrade() else { return };
        if live.state.borrow().stopped.is_some() {
            return;
        }
        if live.closed.get() {
            continue; // A close that fails leaves the volume in use.
        }
        live.free_unfreed().await;
        let (due, changed) = {
            let state = live.state.borrow();
            let age = rt.now().saturating_sub(last_checkpoint);
            let long = log_is_long(&state);
            let dirty = state.dirty_bytes() > 0 || !state.log.records.is_empty();
            // Empty segments wait for two checkpoints before they are clean.
            let changed = dirty || state.log.log_bytes_since_checkpoint > 0 || !state.log.segments.empty.is_empty();
            (changed && (age >= state.log.options.checkpoint_interval || long), dirty)
        };
        live.give_back_some().await;
        // The volume may have been closed since.
        if live.state.borrow().stopped.is_some() {
            return;
        }
        if live.closed.get() {
            continue;
        }
        // As above: an error that matters stops the volume.
        if due {
            last_checkpoint = rt.now();
            let _ = live.checkpoint(false).await;
        } else if changed {
            let _ = live.sync(Scope::Everything).await;
        }
    }
}
