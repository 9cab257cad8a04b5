//! Fuzzes the target `grpc_request` of `fuzz-targets`.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_targets::run("grpc_request", input));
