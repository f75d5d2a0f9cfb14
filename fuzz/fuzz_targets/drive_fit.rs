//! Traces of service times.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::disk::fit::fuzz::any(input));
