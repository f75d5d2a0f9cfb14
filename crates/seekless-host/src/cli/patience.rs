//! Commands that ask a mount, and do not wait indefinitely: its daemon may be stopped.

use std::path::Path;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;

use super::{FAILED, Failure, output};
use crate::fuse::{self, NoAnswer};

/// How long to wait: as many seconds as every clock can add.
pub(super) fn seconds() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(..=u64::from(u32::MAX))
}

/// What `work` says, which asks the mount that holds `path`, and does so in a process of its own.
///
/// # Errors
/// Those of `work`, and when it has not ended within `seconds`.
pub(super) fn ask(
    path: &Path,
    seconds: u64,
    work: impl FnOnce() -> Result<String, Failure>,
) -> Result<String, Failure> {
    answer(path, seconds, FAILED, work)?
}

/// The same, with the missing answer apart from the errors of `work`, and the exit `code` for a process that asks and dies.
///
/// # Errors
/// When `work` has not ended within `seconds`.
pub(super) fn answer(
    path: &Path,
    seconds: u64,
    code: u8,
    work: impl FnOnce() -> Result<String, Failure>,
) -> Result<Result<String, Failure>, NoAnswer> {
    let said = fuse::asked(path, Duration::from_secs(seconds), output::note, || {
        let (code, text) = match work() {
            Ok(text) => (0, text),
            Err(failure) => (failure.code.max(1), failure.text),
        };
        [&[code], text.as_bytes()].concat()
    })?;
    Ok(match said.split_first() {
        Some((0, text)) => Ok(String::from_utf8_lossy(text).into_owned()),
        Some((&code, text)) => Err(Failure::new(String::from_utf8_lossy(text)).code(code)),
        None => Err(Failure::new(format!("{}: the process that asked for it has died", path.display())).code(code)),
    })
}
