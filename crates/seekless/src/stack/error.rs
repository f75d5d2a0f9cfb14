//! Errors of stacks, with their place on the line.

use std::fmt;
use std::ops::{Deref, Range};

use super::value::nearest;
use crate::device::DeviceError;
use crate::fs::FsError;

/// A stack that cannot be parsed or built. Its `Display` shows the line, points at the offending word, and says what
/// was expected and what to do next.
///
/// ```
/// let error = seekless::stack::Stack::parse("wrap / memry:64MiB").unwrap_err();
/// assert_eq!(error.to_string().lines().collect::<Vec<_>>(), [
///     "there is no word `memry`; did you mean `memory`?",
///     "  wrap / memry:64MiB",
///     "         ^^^^^",
/// ]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackError(Box<Report>);

/// The details of a [`StackError`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The stack line as it was written.
    pub line: String,
    /// Byte range of the offending part of `line`.
    pub span: Range<usize>,
    /// What is wrong.
    pub problem: String,
    /// What to do about it, if known.
    pub hint: Option<String>,
    /// The underlying failure, when the stack was valid but could not be built.
    pub cause: Option<Cause>,
}

/// The failure of a part of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Cause {
    FileSystem(FsError),
    Device(DeviceError),
    /// Another process or the kernel uses the store of a leaf: it is there, and only not ours.
    InUse,
}

impl StackError {
    /// See [`Cause::InUse`].
    pub(super) fn is_in_use(&self) -> bool {
        self.cause == Some(Cause::InUse)
    }

    pub(super) fn new(line: &str, span: Range<usize>, problem: impl Into<String>) -> StackError {
        StackError(Box::new(Report { line: line.to_owned(), span, problem: problem.into(), hint: None, cause: None }))
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> StackError {
        self.hint_if(Some(hint.into()))
    }

    pub(super) fn hint_if(mut self, hint: Option<String>) -> StackError {
        self.0.hint = hint;
        self
    }

    pub(super) fn cause(mut self, cause: Cause) -> StackError {
        self.0.cause = Some(cause);
        self
    }
}

impl Deref for StackError {
    type Target = Report;
    fn deref(&self) -> &Report {
        &self.0
    }
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The line is input: characters that would break the alignment are shown as blanks, one column for each
        // character.
        let shown: String = self.line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let columns = |bytes: usize| self.line.get(..bytes).map_or(0, |before| before.chars().count());
        let (start, end) = (columns(self.span.start), columns(self.span.end));
        writeln!(f, "{}", self.problem)?;
        writeln!(f, "  {shown}")?;
        write!(f, "  {:start$}{:^<width$}", "", "", width = end.saturating_sub(start).max(1))?;
        match &self.hint {
            Some(hint) => write!(f, "\n{hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for StackError {}

/// `there is no WHAT NAME`, with the nearest of `known` when one is near.
pub(super) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(near) => format!("there is no {what} `{name}`; did you mean `{near}`?"),
        None => format!("there is no {what} `{name}`"),
    }
}

/// Why a word could not be built. The stack adds the line and the place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildError {
    FileSystem(FsError),
    Device(DeviceError),
    /// The value of the option `key` is not suitable.
    Option {
        key: &'static str,
        problem: String,
    },
    /// The file of a leaf is missing. The stack knows the command that makes it.
    Missing {
        problem: String,
    },
    /// See [`Cause::InUse`].
    InUse {
        problem: String,
        hint: Option<String>,
    },
    /// Any other error, in words, with a hint.
    Other {
        problem: String,
        hint: Option<String>,
    },
}

impl BuildError {
    pub fn other(problem: impl Into<String>) -> BuildError {
        BuildError::Other { problem: problem.into(), hint: None }
    }

    pub fn in_use(problem: impl Into<String>) -> BuildError {
        BuildError::InUse { problem: problem.into(), hint: None }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> BuildError {
        match self {
            BuildError::Other { problem, .. } => BuildError::Other { problem, hint: Some(hint.into()) },
            BuildError::InUse { problem, .. } => BuildError::InUse { problem, hint: Some(hint.into()) },
            other => other,
        }
    }
}

impl From<FsError> for BuildError {
    fn from(error: FsError) -> BuildError {
        BuildError::FileSystem(error)
    }
}

impl From<DeviceError> for BuildError {
    fn from(error: DeviceError) -> BuildError {
        BuildError::Device(error)
    }
}
