//! Snapshots: a device as it was at some moment, kept beside what it is now.

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
    /// Of these, what neither the device nor another snapshot has: giving it up gives back as much.
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
    #[error("there is room for {most} snapshots, and all of it is taken")]
    Full { most: u32 },
    #[error("the name of a snapshot has 1 to {most} bytes, and no control characters")]
    Name { most: usize },
}

/// What can be done with snapshots, while the device is in use. Each call has happened and is durable when it returns; a
/// power cut leaves all of it or nothing. After an error of the device, giving one up or going back to it may still
/// happen, with the next flush.
#[async_trait(?Send)]
pub trait Snapshots {
    /// All of them, the oldest first.
    ///
    /// # Errors
    /// When the device cannot be read.
    async fn list(&self) -> Result<Vec<SnapshotInfo>, SnapshotError>;

    /// Keeps everything as it is now, every write included that has been acknowledged.
    ///
    /// # Errors
    /// When the name is taken or none, there is no room for another one, and what the device says.
    async fn take(&self, name: &str) -> Result<(), SnapshotError>;

    /// Gives one up.
    ///
    /// # Errors
    /// When there is none of this name, and what the device says.
    async fn remove(&self, name: &str) -> Result<(), SnapshotError>;

    /// Makes everything what it was then; what it is now is lost, unless there is a snapshot of it. Nobody else may use the
    /// device meanwhile.
    ///
    /// # Errors
    /// When there is none of this name, and what the device says.
    async fn revert(&self, name: &str) -> Result<(), SnapshotError>;
}
