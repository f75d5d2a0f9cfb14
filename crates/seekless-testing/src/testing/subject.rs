//! What is put to the test: something that makes, mounts and checks a file system on any device.

use async_trait::async_trait;

use super::ops::Op;
use crate::device::{Device, Image};
use crate::fs::{Fs, FsResult};
use crate::rt::{Executor, HostProfile, Limits, Rt};

/// A file system under test.
#[async_trait(?Send)]
pub trait Subject {
    /// For reports.
    fn name(&self) -> String;

    /// Makes an empty file system, durable when this returns.
    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()>;

    /// Mounts what is on the device, recovering it when it was not closed.
    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs>;

    /// Checks a file system that is not mounted, without changing it; it may have been closed or not. Returns what
    /// is wrong, one line each.
    ///
    /// # Errors
    /// When the device fails, or nothing on it can be recognised.
    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>>;

    /// Other states of the device from which the same must be recovered as from `image`: without something of which there
    /// are two. Each with what it lacks.
    fn without_redundancy(&self, _image: &Image) -> Vec<(String, Image)> {
        Vec::new()
    }

    /// Whether the format has a place for what `op` does; the explorers leave out what it has none for.
    fn can(&self, _op: &Op) -> bool {
        true
    }

    /// Whether the file system tells damaged metadata from sound. Without checksums, damage can look like a name.
    fn knows_damage(&self) -> bool {
        true
    }
}

/// Runs `program` in virtual time of its own, as far as `limits` go.
///
/// # Errors
/// Why it did not end: what it waits for never comes, it took too long, or it panicked.
pub fn simulate<T>(seed: u64, limits: Limits, program: impl AsyncFnOnce(Rt) -> T) -> Result<T, String> {
    let run = std::panic::AssertUnwindSafe(|| {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        executor.block_on_within(limits, program(rt)).map_err(|unfinished| unfinished.to_string())
    });
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(format!("panicked: {text}"))
    })
}
