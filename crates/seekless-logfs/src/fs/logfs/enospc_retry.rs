//! Retries writes for which the storage below had no space, although it had reserved some or could not reserve any.
//!
//! Such a failed write has damaged at most a part of a block that nothing points to yet, so it is tried again, at
//! intervals and whenever a user syncs. Until it succeeds the volume counts as full, and cannot be closed.

use std::cell::Cell;
use std::pin::pin;

use super::run::write_sectors;
use super::{LogBackend, LogFs};
use crate::device::{Data, DeviceError, WriteFlags};
use crate::fs::{FsError, FsResult};
use crate::rt::Event;
use crate::units::{Nanos, Sector};

/// Interval between attempts to write what found no storage below.
const RETRY_INTERVAL: Nanos = Nanos::from_secs(1);

/// Lets a caller request another attempt of the stalled writes.
#[derive(Default)]
pub(in crate::fs) struct EnospcRetry {
    retry_requested: Event,
    retries_requested: Cell<u64>,
}

impl<L: LogBackend> LogFs<L> {
    /// Writes `data`, which belongs to the part `sequence` of the log, and retries while the storage below is full.
    pub(in crate::fs) async fn write_with_retry(
        &self,
        sequence: u64,
        at: Sector,
        data: Data,
        flags: WriteFlags,
    ) -> Result<(), DeviceError> {
        loop {
            let requested = self.enospc_retry.retries_requested.get();
            match write_sectors(&self.device, at, data.clone(), flags).await {
                // Also while the volume is being closed: the close fails, and can be repeated when there is room.
                Err(DeviceError::NoSpace { .. }) if self.state.borrow().stopped.is_none() => {
                    self.wait_for_storage(sequence, requested).await
                }
                result => return result,
            }
        }
    }

    /// `requested` is the number of requests when the last attempt began.
    async fn wait_for_storage(&self, sequence: u64, requested: u64) {
        self.state.borrow_mut().stalled.insert(sequence, requested);
        self.log_progress.notify();
        if self.enospc_retry.retries_requested.get() > requested {
            return;
        }
        let again = self.enospc_retry.retry_requested.wait();
        let timer = self.rt.sleep(RETRY_INTERVAL);
        futures_util::future::select(pin!(again), timer).await;
    }

    /// Has the stalled writes tried once more.
    ///
    /// # Errors
    /// `NoSpace` when the storage below is still full.
    pub(in crate::fs) async fn retry_stalled(&self) -> FsResult<()> {
        let requested = self.enospc_retry.retries_requested.get() + 1;
        self.enospc_retry.retries_requested.set(requested);
        self.enospc_retry.retry_requested.notify();
        loop {
            {
                let state = self.state.borrow();
                if state.stalled.is_empty() || state.stopped.is_some() {
                    return Ok(());
                }
                if state.stalled.values().any(|&attempted| attempted >= requested) {
                    return Err(FsError::NoSpace);
                }
            }
            self.log_progress.wait().await;
        }
    }
}
