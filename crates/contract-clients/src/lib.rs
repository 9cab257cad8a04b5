//! One client for each contract: the requests of workers, and the HTTP and gRPC connections that carry them.
//!
//! The conformance suite, the chaos tests and the benchmarks share these clients. Nothing here judges a response, sends
//! a request twice or records a call; the caller does.

pub mod callback;
pub mod claim;
pub mod grpc;
mod http;
pub mod native;
mod report;

pub use http::{HttpClient, HttpRequest, HttpResponse};
pub use report::{Failure, LeaseRef, ReportKind};

use std::time::Duration;

/// The time limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    pub connect: Duration,
    /// The whole call, the longest wait that a request asks for included.
    pub call: Duration,
}
