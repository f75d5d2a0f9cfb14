//! What no NBD client sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless_host::testing::nbd_stream(input));
