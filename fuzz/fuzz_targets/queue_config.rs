//! Fuzzes the target `queue_config` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("queue_config", input));
