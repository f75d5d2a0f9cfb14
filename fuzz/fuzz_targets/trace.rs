//! Traces of every format, their detection, and descriptions of formats.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless_lab::trace::fuzz::any(input));
