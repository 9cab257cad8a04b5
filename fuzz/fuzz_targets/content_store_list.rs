//! Fuzzes the target `content_store_list` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("content_store_list", input));
