//! Stores on zones that make no sense and say they do.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::zoned::open(input));
