//! Admits requests, before their route is called and before any body is read. Every request passes here, so a caller with a
//! known API key or a certificate is admitted without waiting.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tonic::Status;

use super::audit::{Action, Admitted, Entry, anonymous_action};
use super::connection_key::ConnectionKey;
use super::identity::Caller;
use super::revocation::Revocation;
use super::{Authenticated, authenticate, authorize, verify};
use crate::app::App;
use crate::convert::Problem;
use crate::edge::fallback::is_grpc;
use crate::edge::operator::Context;
use crate::edge::permissions;

/// A request that may be routed.
pub(crate) struct Admission {
    /// Whether the call is in the table of permissions. One that is not may be answered by [`deny_routes`] only.
    pub(crate) is_listed: bool,
    /// Of a call that ends with its credential.
    revocation: Option<Revocation>,
    action: Option<Action>,
}

/// Decides about a request, and adds its caller to it.
pub(crate) async fn admit(
    app: &App,
    key: &ConnectionKey,
    request: &mut Request,
) -> Result<Admission, Problem> {
    let call = permissions::find(request.method(), request.uri().path());
    let known = match authenticate(app, key, request, call) {
        Authenticated::Now(known) => known,
        Authenticated::Later(credential) => Box::pin(verify(app, &credential)).await.map(Some),
    };
    let (identity, acting) = match known {
        Ok(identity) => {
            let acting = authorize(request, call, identity.as_ref());
            (identity, acting)
        }
        Err(problem) => (None, Err(problem)),
    };
    let entry = Entry::of(request, call, identity.as_ref());
    let acting = acting.inspect_err(|problem| app.audit.denied(&entry, problem.code.name(), &app.handle))?;
    let admitted = Admitted::new(app.clone(), acting, entry);
    let action = admitted.action();
    Context::admit(request, admitted)?;
    // Other calls are over so soon that it does not matter.
    let long = call.filter(|call| call.is_long).zip(identity);
    let revocation = long.map(|(call, identity)| Revocation::new(app.clone(), identity, call));
    Ok(Admission { is_listed: call.is_some(), revocation, action })
}

impl Admission {
    /// The admission of a request to a server that serves everyone.
    pub(crate) fn of_anyone(app: &App, request: &Request) -> Admission {
        Admission { is_listed: true, revocation: None, action: anonymous_action(app, request) }
    }

    /// Waits for the answer of the route.
    pub(crate) async fn answer(
        self,
        call: impl Future<Output = Result<Response, Infallible>>,
    ) -> Result<Response, Infallible> {
        let mut call = pin!(call);
        let response = match self.revocation {
            None => call.await?,
            Some(mut revocation) => poll_fn(|context| revocation.poll_call(call.as_mut(), context)).await?,
        };
        if let Some(action) = self.action {
            action.ended(&response);
        }
        Ok(response)
    }
}

/// The layer of calls that are not in the table of permissions: no route answers them.
pub(crate) async fn deny_routes(request: Request, next: Next) -> Response {
    if request.extensions().get::<MatchedPath>().is_none() {
        // Nothing is served there, which the fallback says.
        return next.run(request).await;
    }
    let (method, path) = (request.method(), request.uri().path());
    let problem = Caller::of(request.extensions()).forbidden(format!("no role may call {method} {path}"));
    if is_grpc(request.headers()) { Status::from(problem).into_http() } else { problem.into_response() }
}
