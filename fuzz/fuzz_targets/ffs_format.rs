//! Decoders of UFS1.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::ffs::decoders(input));
