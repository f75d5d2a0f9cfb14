//! Which file a name means: beside the file that has the name, or beside the file that was given.

/// Returns the text of a file by its name.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// The text of a file that `from` names, and its name for the reader. DiskSim changes its directory to that of each file that it reads, and
/// has a search path besides.
///
/// # Errors
/// Why the file beside `from` cannot be read.
pub(super) fn read_near(name: &str, from: &str, read: Read<'_>) -> Result<(String, String), String> {
    let beside = match from.rsplit_once('/') {
        Some((folder, _)) if !name.starts_with('/') => format!("{folder}/{name}"),
        _ => name.to_owned(),
    };
    match read(&beside) {
        Ok(text) => Ok((beside, text)),
        Err(problem) if beside == name => Err(problem),
        Err(problem) => read(name).map(|text| (name.to_owned(), text)).map_err(|_| problem),
    }
}
