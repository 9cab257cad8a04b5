//! Fuzzes the target `sdk_leases` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("sdk_leases", input));
