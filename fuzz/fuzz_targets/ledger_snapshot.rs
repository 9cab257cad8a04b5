//! Fuzzes the target `ledger_snapshot` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("ledger_snapshot", input));
