//! The layer that admits requests within the limits of their tenant, after authentication and before any body is read.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tonic::Status;

use super::connection_tenants::ConnectionTenants;
use crate::app::App;
use crate::convert::{Problem, scope};
use crate::edge::auth::{AuthMode, Caller};
use crate::edge::fallback::is_grpc;
use crate::edge::operator::InProcess;
use crate::edge::permissions::{self, Access};

pub(crate) async fn layer(State(app): State<App>, request: Request, next: Next) -> Response {
    match admit(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(problem) if is_grpc(request.headers()) => Status::from(problem).into_http(),
        Err(problem) => problem.into_response(),
    }
}

fn admit(app: &App, request: &Request) -> Result<(), Problem> {
    let Some(tenant) = tenant(app, request) else { return Ok(()) };
    app.limits.request(&tenant)?;
    match request.extensions().get::<ConnectionTenants>() {
        Some(connection) => connection.admit(&app.limits, &tenant),
        None => Ok(()),
    }
}

/// The tenant that a request counts for. None for calls that anyone may make or that prove themselves by a task token, for
/// the worker in this process, and for a name that its handler refuses.
fn tenant(app: &App, request: &Request) -> Option<Arc<str>> {
    let extensions = request.extensions();
    if extensions.get::<InProcess>().is_some() {
        return None;
    }
    let is_known = match app.auth {
        AuthMode::Keys => Caller::of(extensions).identity().is_some(),
        AuthMode::None => {
            let call = permissions::find(request.method(), request.uri().path());
            call.is_some_and(|call| !matches!(call.access, Access::Anyone | Access::TaskToken))
        }
    };
    if is_known { scope::tenant_of(request.headers()).ok() } else { None }
}
