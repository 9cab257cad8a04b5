//! Fuzzes the target `ignore_file` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("ignore_file", input));
