//! Drives as arguments of commands.

use std::borrow::Cow;
use std::path::Path;

use seekless::disk::{Drive, file};
use seekless::stack::{Stack, WORDS};

use super::{Failure, WRONG_USAGE, read_some, read_stack};

/// The drive of an argument: a name of the catalogue, a drive file whose name ends in `.toml`, or a stack that is one disk,
/// such as `disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB`.
pub(super) fn read_drive(text: &str) -> Result<Cow<'static, Drive>, Failure> {
    if let Some(drive) = Drive::named(text) {
        return Ok(Cow::Borrowed(drive));
    }
    if text.ends_with(".toml") && !text.starts_with('@') && !text.contains(':') {
        let wrong = |problem: String| Failure::new(problem).code(WRONG_USAGE);
        let drive = read_text(text).map_err(wrong)?;
        let failure = |error| wrong(format!("{text}: {error}")).hint(HOW_FILES_LOOK);
        return Drive::from_toml(&drive).map(Cow::Owned).map_err(failure);
    }
    let is_word = |text: &str| WORDS.iter().any(|word| word.name == text);
    let is_stack = text.starts_with('@') || text.contains([':', '/']) || is_word(text);
    if !text.starts_with('@') && Path::new(text).exists() {
        let failure = Failure::new(format!("{text} is a file, where a drive is expected")).code(WRONG_USAGE);
        // A drive file by another name, or something else, such as a trace.
        let is_drive = read_text(text).is_ok_and(|drive| Drive::from_toml(&drive).is_ok());
        // In a stack line, other characters have a meaning.
        let is_plain = text.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-'));
        return Err(match is_drive {
            true if is_plain => failure.hint(format!("it is a drive file: name it disk:file={text}, or let its name end in .toml")),
            true => failure.hint("it is a drive file: let its name end in .toml"),
            false => failure.hint(
                "a drive file ends in .toml, and each drive comes before its trace; `seekless disk list` shows the drives",
            ),
        });
    }
    let stack = match is_stack {
        true => read_stack(text)?,
        // A name that is not in the catalogue: the stack parser suggests the nearest.
        false => Stack::parse(&format!("disk:{text}")).map_err(|error| Failure::new(error).code(WRONG_USAGE))?,
    };
    stack.drive().map_err(|error| {
        let failure = Failure::new(error).code(WRONG_USAGE);
        match stack.flash() {
            Ok(_) => failure.hint("it is a flash drive: `seekless flash --help` has the commands for these"),
            Err(_) => failure,
        }
    })
}

/// What helps with a mistake in a drive file.
const HOW_FILES_LOOK: &str = "a whole drive file, to compare: seekless disk info cheetah9lp --toml";

/// The text of a drive file.
///
/// # Errors
/// Why it cannot be read, with its name.
pub(super) fn read_text(path: &str) -> Result<String, String> {
    read_some(path, file::BYTES_MAX).map_err(|problem| format!("cannot read the drive file {path}: {problem}"))
}

/// A name as a drive file has it, for arguments.
pub(super) fn valid_name(text: &str) -> Result<String, String> {
    let is_valid = (1..=64).contains(&text.len()) && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'));
    match is_valid {
        true => Ok(text.to_owned()),
        false => Err("a name has lower case letters, digits and dashes, at most 64".into()),
    }
}
