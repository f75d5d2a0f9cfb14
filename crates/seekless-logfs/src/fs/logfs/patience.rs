//! Storage below that has no room, although it was promised or could not promise any.
//!
//! That is known to have left nothing worse than a part of what nothing leads to yet, so it is tried again, now and then
//! and whenever somebody wants to sync. Until then the volume counts as full.

use std::cell::Cell;
use std::pin::pin;

use super::run::write_sectors;
use super::{Log, LogFs};
use crate::device::{Data, DeviceError, WriteFlags};
use crate::fs::{FsError, FsResult};
use crate::rt::Event;
use crate::units::{Nanos, Sector};

/// How often what found no storage below is tried again.
const RETRY_INTERVAL: Nanos = Nanos::from_secs(1);

/// Who wants what waits for storage to be tried again.
#[derive(Default)]
pub(in crate::fs) struct Storage {
    wanted: Event,
    wanted_count: Cell<u64>,
}

impl<L: Log> LogFs<L> {
    /// Writes `data`, which belongs to the part `sequence` of the log, and as long as there is no room for it below, waits.
    pub(in crate::fs) async fn write_patiently(
        &self,
        sequence: u64,
        at: Sector,
        data: Data,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        loop {
            let wanted = self.storage.wanted_count.get();
            match write_sectors(&self.device, at, data.clone(), flags).await {
                Err(DeviceError::NoSpace { .. }) if !self.closed.get() => self.wait_for_storage(sequence, wanted).await,
                result => return result,
            }
        }
    }

    /// `wanted` is the count of wishes when the attempt began.
    async fn wait_for_storage(&self, sequence: u64, wanted: u64) {
        self.state.borrow_mut().stalled.insert(sequence, wanted);
        self.log_progress.notify();
        if self.storage.wanted_count.get() > wanted {
            return;
        }
        let again = self.storage.wanted.wait();
        let timer = self.rt.sleep(RETRY_INTERVAL);
        futures_util::future::select(pin!(again), timer).await;
    }

    /// Has what waits for storage below tried once more.
    ///
    /// # Errors
    /// `NoSpace` when there is still none.
    pub(in crate::fs) async fn retry_stalled(&self) -> FsResult<()> {
        let wanted = self.storage.wanted_count.get() + 1;
        self.storage.wanted_count.set(wanted);
        self.storage.wanted.notify();
        loop {
            {
                let state = self.state.borrow();
                if state.stalled.is_empty() || state.stopped.is_some() {
                    return Ok(());
                }
                if state.stalled.values().any(|&attempted| attempted >= wanted) {
                    return Err(FsError::NoSpace);
                }
            }
            self.log_progress.wait().await;
        }
    }
}
