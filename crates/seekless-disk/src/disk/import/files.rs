//! Which file a name means: beside the file that has the name, or beside the file that was given.

/// Why a file has no text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadError {
    /// There is no such file: it is looked for elsewhere.
    Missing(String),
    /// There is one, and it cannot be read.
    Failed(String),
}

impl ReadError {
    pub(super) fn problem(self) -> String {
        match self {
            ReadError::Missing(problem) | ReadError::Failed(problem) => problem,
        }
    }
}

/// Returns the text of a file by its name.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> Result<String, ReadError>;

/// The text of a file that `from` names, and its name for the reader. DiskSim changes its directory to that of each file that it reads, and
/// has a search path besides.
///
/// # Errors
/// Why the file beside `from` cannot be read. One that is there counts, so that no other file of its name is read instead.
pub(super) fn read_near(name: &str, from: &str, read: Read<'_>) -> Result<(String, String), String> {
    let beside = match from.rsplit_once('/') {
        Some((folder, _)) if !name.starts_with('/') => format!("{folder}/{name}"),
        _ => name.to_owned(),
    };
    match read(&beside) {
        Ok(text) => Ok((beside, text)),
        Err(ReadError::Missing(problem)) if beside != name => match read(name) {
            Ok(text) => Ok((name.to_owned(), text)),
            Err(ReadError::Missing(_)) => Err(problem),
            Err(ReadError::Failed(problem)) => Err(problem),
        },
        Err(error) => Err(error.problem()),
    }
}
