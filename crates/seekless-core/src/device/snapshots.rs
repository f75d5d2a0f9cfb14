//! Snapshots: a device as it was at some moment, kept beside its current state.

use async_trait::async_trait;

use super::DeviceError;

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    pub name: String,
    /// In seconds since 1970.
    pub created_seconds: i64,
    /// Bytes of the device that were in use.
    pub mapped_bytes: u64,
    /// Of these, bytes that neither the device nor another snapshot shares: removing this one frees them.
    pub own_bytes: u64,
}

/// Why nothing was done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("there is a snapshot `{name}` already")]
    Exists { name: String },
    #[error("there is no snapshot `{name}`")]
    NotFound { name: String },
    #[error("there is room for {most} snapshots, all of which are in use")]
    Full { most: u32 },
    #[error("the name of a snapshot has 1 to {most} bytes, no control characters, and is not `damaged-` with a number")]
    Name { most: usize },
}

/// Operations on snapshots while the device is in use. Each call is complete and durable when it returns; a power cut
/// leaves all of it or nothing. After a device error, a removal or revert may still take effect with the next flush.
#[async_trait(?Send)]
pub trait Snapshots {
    /// All of them, the oldest first.
    ///
    /// # Errors
    /// When the device cannot be read.
    async fn list(&self) -> Result<Vec<SnapshotInfo>, SnapshotError>;

    /// Takes a snapshot of the current state, including every acknowledged write.
    ///
    /// # Errors
    /// When the name is taken or not a name, when there is no room for another snapshot, and device errors.
    async fn take(&self, name: &str) -> Result<(), SnapshotError>;

    /// Removes a snapshot.
    ///
    /// # Errors
    /// When there is none of this name, and device errors.
    async fn remove(&self, name: &str) -> Result<(), SnapshotError>;

    /// Reverts the device to a snapshot. Its current state is lost, unless it has a snapshot too. The caller must have
    /// exclusive use of the device until this returns.
    ///
    /// # Errors
    /// When there is none of this name, and device errors.
    async fn revert(&self, name: &str) -> Result<(), SnapshotError>;
}
