//! Fuzzes the target `projection_offset` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("projection_offset", input));
