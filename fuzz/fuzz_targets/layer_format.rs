//! Every decoder of the format of layers.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::layer::decoders(input));
