//! Fuzzes the target `snapshot_block` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("snapshot_block", input));
