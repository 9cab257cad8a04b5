//! Fuzzes the target `action_and_command` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("action_and_command", input));
