//! What is done with bytes that nobody made: each function takes any input, and panics when something that always holds
//! does not.
//!
//! The targets of the fuzzer (`fuzz/`) call these with inputs that it breeds; a test calls them with a small corpus
//! that is kept and with seeded noise, so that they run everywhere.

mod bench;
mod bytes;
pub mod ffs;
pub mod layer;
pub mod lfs;
mod ops;
pub mod raid;
pub mod vld;
pub mod vlfs;
mod volume;

use bench::Bench;
pub use bytes::Bytes;
pub use ops::{differential, op};

use crate::stack::{Stack, complete};

/// A stack line, or a stack file: reading it, its error, its completions. What was read can be written and read again.
pub fn stack_line(input: &[u8]) {
    let Ok(line) = std::str::from_utf8(input) else { return };
    let _ = Stack::parse_file(line);
    let _ = complete(line);
    match Stack::parse(line) {
        Ok(stack) => {
            let written = stack.to_string();
            match Stack::parse(&written) {
                Ok(again) => assert!(again == stack, "S3: {line:?} was written as {written:?}, which is another stack"),
                Err(error) => panic!("S3: {line:?} was written as {written:?}, which cannot be read: {error}"),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
