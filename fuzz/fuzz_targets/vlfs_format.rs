//! Records of a VLFS volume.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::vlfs::decoders(input));
