//! Fuzzes the target `submit_lines` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("submit_lines", input));
