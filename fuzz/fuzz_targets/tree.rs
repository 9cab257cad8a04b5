//! Fuzzes the target `tree` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("tree", input));
