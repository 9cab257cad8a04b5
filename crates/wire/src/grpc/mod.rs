//! The messages and stubs of the worker service over gRPC, as compiled from `proto/lessor/worker/v1/worker.proto`.

pub mod codec;
pub mod limits;

/// The files of the service and what they import, encoded, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../../generated/worker.bin");

/// The names under which the service is served: its own, and those that the remote execution plan leaves open.
pub const SERVICE_NAMES: [&str; 3] = [
    "lessor.worker.v1.WorkerScheduler",
    "WorkerScheduler",
    "build.bazel.remote.execution.v2.WorkerScheduler",
];

pub use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, Digest};
pub use generated::*;

#[allow(clippy::all)]
mod generated {
    include!("../../generated/lessor.worker.v1.rs");
}
