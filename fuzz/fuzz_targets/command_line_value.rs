//! Fuzzes the target `command_line_value` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("command_line_value", input));
