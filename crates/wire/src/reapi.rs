//! The server stubs of the Remote Execution API, whose codec answers bytes that are no message with INVALID_ARGUMENT. The
//! messages are those of `bazel_remote_apis`.

pub use generated::*;

#[allow(clippy::all)]
mod generated {
    include!("../generated/build.bazel.remote.execution.v2.ActionCache.rs");
    include!("../generated/build.bazel.remote.execution.v2.Capabilities.rs");
    include!("../generated/build.bazel.remote.execution.v2.ContentAddressableStorage.rs");
    include!("../generated/build.bazel.remote.execution.v2.Execution.rs");
    include!("../generated/google.longrunning.Operations.rs");
}
