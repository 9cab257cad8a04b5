//! Fuzzes the target `client_certificate` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("client_certificate", input));
