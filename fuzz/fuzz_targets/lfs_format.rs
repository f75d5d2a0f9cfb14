//! Every decoder of the LFS format.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::lfs::decoders(input));
