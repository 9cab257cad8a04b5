//! Fuzzes the target `operations_page_token` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("operations_page_token", input));
