//! Parameter files of DiskSim.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless::disk::import::fuzz::any(input));
