//! A bug in one call ends that call and nothing else (P7). The coordinator is not behind this: a panic there ends the
//! process, because its state could not be trusted any more.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::convert::problem::{Code, Problem};

pub async fn contain(request: Request, next: Next) -> Response {
    // The route and not the path, which may carry a lease id.
    let (method, route) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    match Contained(Box::pin(next.run(request))).await {
        Some(response) => response,
        None => {
            let route = route.as_ref().map_or("", |route| route.as_str());
            tracing::error!(%method, %route, "a call ended in a panic");
            Problem::new(Code::Internal, "the call ended in a bug; it may or may not have been done")
                .into_response()
        }
    }
}

/// A future that gives nothing when it panics.
struct Contained<F>(Pin<Box<F>>);

impl<F: Future> Future for Contained<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context))) {
            Ok(poll) => poll.map(Some),
            Err(_) => Poll::Ready(None),
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
