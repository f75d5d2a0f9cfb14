//! How batches reach the device, and the transactions that commit them.
//!
//! Invariants
//!   L1  Nothing is acknowledged as durable before its batch and all before it are written, and a transaction of the
//!       virtual log with their entries is durable.
//!   L2  After an error of unknown effect nothing is written any more.

use std::rc::{Rc, Weak};

use futures_util::future::join_all;

use super::Vlfs;
use super::assemble::{Batch, Scope, assemble};
use super::state::*;
use crate::device::{Data, DeviceError};
use crate::fs::{FsError, FsResult};
use crate::rt::cover;
use crate::units::Sector;
use crate::vlog::Emptying;
use crate::vlog::eager::AllocPurpose;

/// Bytes on their way to the device before writers have to wait.
const IN_FLIGHT_BYTES_MAX: u64 = 16 << 20;

impl Vlfs {
    /// Assembles a batch and starts writing it. Returns the number up to which batches must be durable for everything
    /// in `scope` to be durable.
    pub(super) fn submit(&self, scope: Scope<'_>) -> FsResult<u64> {
        let batch = {
            let mut state = self.state.borrow_mut();
            state.now = self.rt.wall();
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone()));
            }
            match assemble(&mut state, scope, AllocPurpose::Data) {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(state.log.next_batch),
                Err(Stop::Fail(error)) => return Err(error),
                Err(stop) => unreachable!("S1: a batch needs nothing, not {stop:?}"),
            }
        };
        Ok(self.send(batch))
    }

    /// Starts writing a batch; returns the number of the next.
    pub(super) fn send(&self, batch: Batch) -> u64 {
        let end = batch.number + 1;
        let fs = self.this();
        self.rt.spawn(async move { fs.write_batch(batch).await });
        end
    }

    async fn write_batch(self: Rc<Self>, batch: Batch) {
        let Batch { number, writes } = batch;
        let flags = self.state.borrow().log.store.flags();
        let bytes: u64 = writes.iter().map(|(_, data)| data.len() as u64).sum();
        let write = |(at, data): (Sector, Data)| self.write_with_retry(number, at, data, flags);
        let result: Result<(), DeviceError> = match self.device.head() {
            None => join_all(writes.into_iter().map(write)).await.into_iter().collect(),
            // The addresses were chosen in the order in which the head passes them, so one batch is written at a time.
            Some(_) => {
                let _turn = self.work.write_gate.enter().await;
                let mut result = Ok(());
                for each in writes {
                    result = write(each).await;
                    if result.is_err() {
                        break;
                    }
                }
                result
            }
        };
        {
            let mut state = self.state.borrow_mut();
            debug_assert!(bytes <= state.log.in_flight_bytes, "what is written was on its way");
            state.log.in_flight_bytes -= bytes;
            state.stalled.remove(&number);
            match result {
                Ok(()) => {
                    state.in_flight.retain(|flight| flight.sequence != number);
                    debug_assert!(
                        state.log.effects.contains_key(&number),
                        "B1: a batch has its effect until it is entered"
                    );
                    let is_new = state.log.written.insert(number);
                    debug_assert!(is_new, "B1: a batch is written once");
                    state.log.apply();
                }
                // L2. What could not be written stays in memory, where it can still be read.
                Err(error) => state.stop(&error),
            }
        }
        self.log_progress.notify();
    }

    /// Waits until every batch before `number` is durable (L1).
    pub(super) async fn make_durable(&self, number: u64) -> FsResult<()> {
        debug_assert!(number <= self.state.borrow().log.next_batch, "L1: what is waited for has been put together");
        loop {
            let progress = self.log_progress.wait();
            let (applied, is_stalled) = {
                let state = self.state.borrow();
                if let Some(error) = &state.stopped {
                    return Err(FsError::Stopped(error.clone()));
                }
                if state.log.durable >= number {
                    return Ok(());
                }
                (state.log.applied, state.stalled.first_key_value().is_some_and(|(&first, _)| first < number))
            };
            if applied < number {
                match is_stalled {
                    true => self.retry_stalled().await?,
                    false => progress.await,
                }
                continue;
            }
            let fs = self.this();
            // In a task of its own, so that it completes even when the caller goes away.
            self.rt.spawn(async move { fs.commit(number, None).await }).await?;
        }
    }

    /// One transaction for everything that has been applied; callers that arrive in the meantime are served by the next
    /// one. With a track that is being emptied, pieces of the map move off it; returns true when it is empty
    /// afterwards.
    pub(super) async fn commit(&self, number: u64, emptying: Option<&Emptying>) -> FsResult<bool> {
        let _pass = self.work.commit_gate.enter().await;
        let (store, covered) = {
            let state = self.state.borrow();
            if let Some(error) = &state.stopped {
                return Err(FsError::Stopped(error.clone()));
            }
            if state.log.durable >= number && emptying.is_none() {
                return Ok(false);
            }
            (state.log.store.clone(), state.log.applied)
        };
        let result = match emptying {
            None => store.commit().await.map(|()| false),
            Some(emptying) => store.commit_emptying(emptying).await,
        };
        let mut state = self.state.borrow_mut();
        match result {
            Ok(is_empty) => {
                debug_assert!(covered <= state.log.applied, "L1: what is durable has been applied");
                state.log.durable = state.log.durable.max(covered);
                let durable = state.log.durable;
                debug_assert!(durable <= state.log.next_batch, "L1: what is durable has been put together");
                let later = state.log.freeing.split_off(&durable);
                let freed: u64 = std::mem::replace(&mut state.log.freeing, later).into_values().sum();
                debug_assert!(freed <= state.freed_pending_bytes, "B2: what becomes free has been waiting for that");
                state.freed_pending_bytes -= freed;
                drop(state);
                self.log_progress.notify();
                Ok(is_empty)
            }
            // Nothing has changed; what was to be made durable waits for the next transaction.
            Err(DeviceError::NoSpace { .. }) => Err(FsError::NoSpace),
            Err(error) => {
                state.stop(&error);
                drop(state);
                self.log_progress.notify();
                Err(FsError::Stopped(error.to_string()))
            }
        }
    }

    /// Makes everything in `scope` durable.
    pub(super) async fn sync(&self, scope: Scope<'_>) -> FsResult<()> {
        let number = self.submit(scope)?;
        self.make_durable(number).await
    }

    /// Makes room for new changes: writes everything dirty and commits, so that what this frees is free.
    pub(super) async fn make_room(&self) -> FsResult<()> {
        self.sync(Scope::Everything).await
    }

    /// Begins use of the volume: frees what a crash has left, and starts the background tasks.
    pub(super) async fn begin_writing(&self) -> FsResult<()> {
        self.provision_at_mount().await?;
        let orphans: Vec<_> = self.state.borrow().log.orphans.iter().copied().collect();
        for ino in orphans {
            cover("vlfs: a mount frees an orphan");
            self.free_orphan(ino).await?;
        }
        self.rt.spawn(write_back_task(Rc::downgrade(&self.this())));
        self.rt.spawn(timer_task(Rc::downgrade(&self.this())));
        Ok(())
    }

    /// Ends writing for good: everything is durable, and the next start finds the tail at once.
    pub(super) async fn end_writing(&self) -> FsResult<()> {
        let is_first = !self.closed.replace(true);
        if self.state.borrow().read_only {
            return Ok(());
        }
        let _compaction = self.work.compact_gate.enter().await;
        // Another caller has ended it since, or has failed to, and then this one tries again.
        if !is_first && self.closed.replace(true) {
            return Ok(());
        }
        if let Err(error) = self.sync(Scope::Everything).await {
            self.closed.set(false); // A later call may try again.
            return Err(error);
        }
        let store = self.state.borrow().log.store.clone();
        let parked = self.rt.spawn(async move { store.park().await }).await;
        self.closed.set(parked.is_ok()); // As above.
        if let Err(DeviceError::NoSpace { .. }) = parked {
            return Err(FsError::NoSpace);
        }
        let why =
            parked.as_ref().err().map_or_else(|| "the volume has been closed".to_string(), |error| error.to_string());
        self.state.borrow_mut().stopped.get_or_insert(why);
        self.write_back_wanted.notify();
        parked?;
        // Everything is durable, so an error of the device below in saving its own state changes nothing here.
        let _ = self.device.release().await;
        Ok(())
    }
}

/// Writes back whenever enough is dirty.
async fn write_back_task(fs: Weak<Vlfs>) {
    loop {
        let Some(live) = fs.upgrade() else { return };
        let wanted = live.write_back_wanted.clone();
        let waiting = wanted.wait();
        drop(live);
        waiting.await;
        let Some(live) = fs.upgrade() else { return };
        if live.state.borrow().stopped.is_some() {
            return;
        }
        if live.closed.get() {
            continue; // A close that fails leaves the volume in use.
        }
        let busy = live.state.borrow().log.in_flight_bytes > IN_FLIGHT_BYTES_MAX;
        if !busy {
            // The next caller gets an error that stops the volume; any other error is temporary.
            let _ = live.submit(Scope::Everything);
        }
    }
}

/// Makes durable what has waited long enough.
async fn timer_task(fs: Weak<Vlfs>) {
    loop {
        let (rt, interval) = {
            let Some(live) = fs.upgrade() else { return };
            let interval = live.state.borrow().log.options.write_back_interval;
            (live.rt.clone(), interval)
        };
        rt.sleep(interval).await;
        let Some(live) = fs.upgrade() else { return };
        if live.state.borrow().stopped.is_some() {
            return;
        }
        if live.closed.get() {
            continue; // A close that fails leaves the volume in use.
        }
        live.free_unfreed().await;
        let changed = {
            let state = live.state.borrow();
            !state.dirty_inodes.is_empty() || !state.log.removed.is_empty() || state.log.durable < state.log.next_batch
        };
        if changed {
            // As above: an error that matters stops the volume.
            let _ = live.sync(Scope::Everything).await;
        }
    }
}
