//! Drive files.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::disk::file::fuzz::any(input));
