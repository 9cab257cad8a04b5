//! Fuzzes the target `content_store_pack` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("content_store_pack", input));
