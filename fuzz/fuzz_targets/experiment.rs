//! Descriptions of experiments, and the published points beside them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless_lab::experiment::fuzz::any(input));
