//! Decoders of the store on zones.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::zoned::decoders(input));
