//! Fuzzes the target `cache_file_name` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("cache_file_name", input));
