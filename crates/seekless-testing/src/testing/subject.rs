//! The subject of a test: makes, mounts and checks a file system on any device.

use async_trait::async_trait;

use super::ops::Op;
use crate::device::{Device, Image};
use crate::fs::{Fs, FsResult};
use crate::rt::{Executor, HostProfile, Limits, Rt, VirtualClock};

/// A file system under test. What it makes of a device depends on the bytes there and on the seed alone: the explorers do
/// not recover equal images again.
#[async_trait(?Send)]
pub trait FsUnderTest {
    /// For reports.
    fn name(&self) -> String;

    /// Makes an empty file system, durable when this returns.
    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()>;

    /// Mounts what is on the device, recovering it when it was not closed.
    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs>;

    /// Checks a file system that is not mounted, closed or not, without changing it. Returns what is wrong, one line
    /// each.
    ///
    /// # Errors
    /// When the device fails, or nothing on it can be recognised.
    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>>;

    /// Other states of the device from which recovery must give the same result as from `image`: each without a
    /// redundant structure, and with that structure's name.
    fn without_redundancy(&self, _image: &Image) -> Vec<(String, Image)> {
        Vec::new()
    }

    /// True when the format supports `op`; the explorers skip other operations.
    fn can(&self, _op: &Op) -> bool {
        true
    }

    /// False when the device below never says `NoSpace`; the explorer of faults then leaves that out.
    fn meets_no_space(&self) -> bool {
        true
    }

    /// True when the file system detects damaged metadata. Without checksums, damage can look like a name.
    fn knows_damage(&self) -> bool {
        true
    }
}

/// Runs `program` in its own virtual time, within `limits`.
///
/// # Errors
/// Why it did not end: it stalled, exceeded its limits, or panicked.
#[inline]
pub fn simulate<T>(seed: u64, limits: Limits, program: impl AsyncFnOnce(Rt) -> T) -> Result<T, String> {
    simulate_on(VirtualClock::new(), seed, limits, program)
}

/// The same with a clock of the caller's.
///
/// # Errors
/// As [`simulate`].
#[inline]
pub fn simulate_on<T>(
    clock: VirtualClock,
    seed: u64,
    limits: Limits,
    program: impl AsyncFnOnce(Rt) -> T,
) -> Result<T, String> {
    let run = std::panic::AssertUnwindSafe(|| {
        let executor = Executor::simulated_on(clock, seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        executor.block_on_within(limits, program(rt)).map_err(|unfinished| unfinished.to_string())
    });
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(format!("panicked: {text}"))
    })
}
