//! Fuzzes the target `issuer_header` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("issuer_header", input));
