//! What no NBD server sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| seekless_host::testing::nbd_client(input));
