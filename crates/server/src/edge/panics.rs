//! Turns a panic in a call into an answer, so that a bug ends one call and nothing else (P7). A panic in the coordinator
//! ends the process, because its state could not be trusted any more.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use axum::http::{Method, Uri};
use futures_util::FutureExt;

use crate::convert::{Code, Problem};

pub(super) async fn contain<T>(
    method: Method,
    uri: Uri,
    call: impl Future<Output = T>,
) -> Result<T, Problem> {
    AssertUnwindSafe(call).catch_unwind().await.map_err(|_| {
        let route = beginning(uri.path());
        tracing::error!(%method, %route, "a call ended in a panic");
        Problem::new(Code::Internal, "the call ended in a bug; it may or may not have been done")
    })
}

/// The first two segments of a path, which name the call. A later one may be a lease id.
fn beginning(path: &str) -> &str {
    path.match_indices('/').nth(2).map_or(path, |(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn p7_a_panic_in_a_call_is_an_answer() {
        let call = |fails: bool| async move { assert!(!fails, "as the test wants it") };
        let contained = |fails| contain(Method::GET, Uri::from_static("/v1/tasks"), call(fails));
        let problem = contained(true).await.unwrap_err();
        assert_eq!(problem.code, Code::Internal);
        // Clients of gRPC took an HTTP status for UNKNOWN.
        assert_eq!(tonic::Status::from(problem).code(), tonic::Code::Internal);
        assert!(contained(false).await.is_ok());
    }

    #[test]
    fn the_log_names_the_call_and_no_lease() {
        assert_eq!(beginning("/v1/leases/secret/complete"), "/v1/leases");
        assert_eq!(beginning("/lessor.v1.WorkerService/LeaseTask"), "/lessor.v1.WorkerService/LeaseTask");
        assert_eq!(beginning("/"), "/");
    }
}
