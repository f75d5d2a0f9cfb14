//! Requests as no kernel sends them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless_host::testing::fuse_request(input));
