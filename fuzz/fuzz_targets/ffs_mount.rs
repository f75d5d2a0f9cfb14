//! UFS1 volumes that were changed.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::testing::fuzz::ffs::mount(input));
