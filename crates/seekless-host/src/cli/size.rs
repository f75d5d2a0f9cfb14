//! Sizes as arguments of the command line.

use std::fmt;
use std::str::FromStr;

use seekless::stack::{Value, read_bytes};

/// A number of bytes, written as in a stack line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        match read_bytes(text)? {
            bytes if i64::try_from(bytes).is_ok() => Ok(Size(bytes)),
            _ => Err("it is more than a file can hold; at most 8388607TiB".into()),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::Bytes(self.0).fmt(f)
    }
}
