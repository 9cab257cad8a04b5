//! The server stubs of the Remote Execution API, whose codec answers bytes that are no message with INVALID_ARGUMENT. The
//! messages are those of `bazel_remote_apis`.

pub use generated::*;

#[allow(clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/build.bazel.remote.execution.v2.ActionCache.rs"));
    include!(concat!(env!("OUT_DIR"), "/build.bazel.remote.execution.v2.Capabilities.rs"));
    include!(concat!(env!("OUT_DIR"), "/build.bazel.remote.execution.v2.ContentAddressableStorage.rs"));
    include!(concat!(env!("OUT_DIR"), "/build.bazel.remote.execution.v2.Execution.rs"));
    include!(concat!(env!("OUT_DIR"), "/google.longrunning.Operations.rs"));
}
