//! Records of a virtual log disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::vld::decoders(input));
