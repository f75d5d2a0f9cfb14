//! Any operations, on LFS and on the model.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::differential(input));
