//! What is done with arbitrary bytes: each function takes any input, and panics when an invariant is violated.
//!
//! The targets of the fuzzer (`fuzz/`) call these with generated inputs; a test calls them with a small stored corpus
//! and with seeded noise, so that they run everywhere.

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
pub mod zoned;

use bench::Bench;
pub use bytes::Bytes;
pub use ops::{differential, op};

use crate::stack::{Stack, complete};

/// A stack line, or a stack file: parsing, its error, its completions. A parsed one can be written and parsed again.
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
