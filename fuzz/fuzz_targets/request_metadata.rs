//! Fuzzes the target `request_metadata` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("request_metadata", input));
