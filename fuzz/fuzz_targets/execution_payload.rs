//! Fuzzes the target `execution_payload` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("execution_payload", input));
