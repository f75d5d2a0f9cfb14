//! Errors as exceptions of the package.

use pyo3::prelude::*;
use seekless_host::cli::calls::{Problem, ProblemKind};

/// The exception for a problem. Its classes are in Python, where one of them has two bases.
pub(crate) fn raise(py: Python<'_>, problem: Problem) -> PyErr {
    let class = match problem.kind {
        ProblemKind::Usage => "UsageError",
        ProblemKind::Failed => "SeeklessError",
        ProblemKind::Interrupted => "Interrupted",
    };
    let partial = problem.partial.map(|answer| (answer.value.to_string(), answer.text));
    let made = || py.import("seekless._errors")?.getattr(class)?.call1((problem.text.trim_end(), partial));
    match made() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}
