//! Decoders of what members of an array keep.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::raid::decoders(input));
