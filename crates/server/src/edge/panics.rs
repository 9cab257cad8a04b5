//! Turns a panic in a call into an answer, so that a bug ends one call and nothing else (P7). A panic in the coordinator
//! ends the process, because its state could not be trusted any more.

use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use crate::convert::{Code, Problem};

pub(crate) async fn contain(request: Request, next: Next) -> Response {
    // The route and not the path, which may carry a lease id.
    let (method, route) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            let route = route.as_ref().map_or("", |route| route.as_str());
            tracing::error!(%method, %route, "a call ended in a panic");
            Problem::new(Code::Internal, "the call ended in a bug; it may or may not have been done")
                .into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    async fn broken() -> &'static str {
        panic!("as the test wants it")
    }

    #[tokio::test]
    async fn p7_a_panic_in_a_handler_is_a_500_and_the_next_call_is_served() {
        let router = Router::new()
            .route("/broken", get(broken))
            .route("/fine", get(|| async { "fine" }))
            .layer(from_fn(contain));
        let call = |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            router.clone().oneshot(request)
        };
        let response = call("/broken").await.unwrap();
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(call("/fine").await.unwrap().status(), 200);
    }
}
