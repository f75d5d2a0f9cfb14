//! What is put to the test: something that makes, mounts and checks a file system on any device.

use async_trait::async_trait;

use crate::device::Device;
use crate::fs::{Fs, FsResult};
use crate::rt::Rt;

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
}
