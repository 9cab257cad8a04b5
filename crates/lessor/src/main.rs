//! The `lessor` binary.

use std::process::ExitCode;

/// Requests are allocated on one thread and freed on another, which is slow with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    lessor::main()
}
