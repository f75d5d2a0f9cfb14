//! Drives as arguments of commands.

use std::borrow::Cow;
use std::path::Path;

use seekless::disk::Drive;
use seekless::stack::{Stack, WORDS};

use super::{Failure, WRONG_USAGE, read_stack};

/// The drive of an argument: a name of the catalogue, or a stack that is one disk, such as
/// `disk:size=1GiB,rpm=5400,seek=10ms,rate=4MB`.
pub(super) fn read_drive(text: &str) -> Result<Cow<'static, Drive>, Failure> {
    if let Some(drive) = Drive::named(text) {
        return Ok(Cow::Borrowed(drive));
    }
    let is_word = |text: &str| WORDS.iter().any(|word| word.name == text);
    let is_stack = text.starts_with('@') || text.contains([':', '/']) || is_word(text);
    if !text.starts_with('@') && Path::new(text).exists() {
        let failure = Failure::new(format!("{text} is a file, where a drive is expected")).code(WRONG_USAGE);
        return Err(failure.hint("each drive comes before its trace; `seekless disk list` shows the drives"));
    }
    let stack = match is_stack {
        true => read_stack(text)?,
        // A name that is not in the catalogue: the stack parser suggests the nearest.
        false => Stack::parse(&format!("disk:{text}")).map_err(|error| Failure::new(error).code(WRONG_USAGE))?,
    };
    stack.drive().map_err(|error| Failure::new(error).code(WRONG_USAGE))
}
