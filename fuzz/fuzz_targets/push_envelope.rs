//! Fuzzes the target `push_envelope` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("push_envelope", input));
