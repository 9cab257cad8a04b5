//! Serves one request: the checks that all routes have in common, and then its route.

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tonic::Status;
use tower::Service;

use crate::app::App;
use crate::convert::Problem;
use crate::edge::auth::{Admission, AuthMode, ConnectionKey, admit, deny_routes};
use crate::edge::fallback::is_grpc;
use crate::edge::panics::contain;
use crate::edge::unread_body::discard_unread;
use crate::edge::{host, origin};

pub(super) struct Requests {
    router: Router,
    /// Of calls that are not in the table of permissions.
    denying_router: Router,
    app: App,
    is_loopback: bool,
    is_tls: bool,
}

impl Requests {
    pub(super) fn new(router: Router, app: App, is_loopback: bool, is_tls: bool) -> Requests {
        let denying_router = router.clone().layer(from_fn(deny_routes));
        Requests { router, denying_router, app, is_loopback, is_tls }
    }

    pub(super) async fn serve(&self, request: hyper::Request<Incoming>, key: &ConnectionKey) -> Response {
        discard_unread(request, |request| self.route(request, key)).await
    }

    async fn route(&self, request: Request, key: &ConnectionKey) -> Response {
        let is_grpc = is_grpc(request.headers());
        self.checked(request, key).await.unwrap_or_else(|problem| {
            if is_grpc { Status::from(problem).into_http() } else { problem.into_response() }
        })
    }

    async fn checked(&self, request: Request, key: &ConnectionKey) -> Result<Response, Problem> {
        if let Err(problem) = self.check(&request) {
            self.app.audit.refused(&request, problem.code, &self.app.handle);
            return Err(problem);
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        contain(method, uri, self.admitted(request, key)).await?
    }

    async fn admitted(&self, mut request: Request, key: &ConnectionKey) -> Result<Response, Problem> {
        let admission = match self.app.auth {
            AuthMode::None => Admission::of_anyone(&self.app, &request),
            AuthMode::Keys => admit(&self.app, key, &mut request).await?,
        };
        let mut router = if admission.is_listed { self.router.clone() } else { self.denying_router.clone() };
        Ok(admission.answer(router.call(request)).await.into_response())
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        if self.is_loopback || self.may_be_rebound(request) {
            host::check(request, &self.app.allowed_hosts)?;
        }
        origin::check(request)
    }

    /// Whether a page whose name was pointed here could have sent a request to a server beyond loopback, and read the answer.
    /// It has no credential that is verified, and no certificate for its name.
    fn may_be_rebound(&self, request: &Request) -> bool {
        let has_credential =
            self.app.auth == AuthMode::Keys && request.headers().contains_key(header::AUTHORIZATION);
        !self.is_tls && !has_credential
    }
}
