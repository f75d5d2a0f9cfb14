//! What goes wrong with a folder of results.

use std::io;
use std::path::Path;

use crate::output::OutputError;

/// Why results cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    #[error("cannot {action} {path}: {cause}")]
    Io { action: &'static str, path: String, cause: io::Error },
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("{path}: {problem}")]
    Content { path: String, problem: String },
    /// The caller ended the wait for another run.
    #[error("interrupted while another run was writing to {path}; a run that is stopped goes on with `kill -CONT PID`")]
    Interrupted { path: String },
}

/// An error of the system while doing something to a file.
pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ResultsError + use<> {
    let path = path.display().to_string();
    move |cause| ResultsError::Io { action, path, cause }
}
