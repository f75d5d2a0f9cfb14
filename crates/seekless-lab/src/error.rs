//! Errors of experiments.

use std::io;

use seekless::fs::FsError;
use seekless::rt::Stalled;
use seekless::stack::StackError;

/// Why an experiment has no result.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    Stack(#[from] StackError),
    /// A file system of the engine answered a call with an error.
    #[error("cannot {action} {path}: {cause}")]
    FileSystem { action: &'static str, path: String, cause: FsError },
    /// The host answered a call with an error.
    #[error("cannot {action} {path}: {cause}")]
    Host { action: &'static str, path: String, cause: io::Error },
    /// A file does not hold what was written into it.
    #[error("{path} does not hold what was written into it: {detail}")]
    Content { path: String, detail: String },
    #[error("the run cannot go on: {0}")]
    Stalled(#[from] Stalled),
    #[error("{0}")]
    Spec(String),
    /// The caller interrupted the run.
    #[error("it was interrupted")]
    Interrupted,
}

impl LabError {
    /// True when a file system has no room for what a call would store.
    pub fn is_no_space(&self) -> bool {
        match self {
            LabError::FileSystem { cause, .. } => *cause == FsError::NoSpace,
            LabError::Host { cause, .. } => cause.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}
