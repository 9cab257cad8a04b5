//! A call about one lease, which its path names.

use authority::{LeaseRef, Scope};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::app::App;
use crate::convert::lease_ref::reference;
use crate::convert::{Problem, scope};
use crate::edge::{InPath, failures};

pub(crate) struct LeaseCall {
    pub app: App,
    scope: Scope,
    lease_id: String,
}

impl FromRequestParts<App> for LeaseCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<LeaseCall, Problem> {
        let scope = scope::of(&parts.headers)?;
        let InPath(lease_id) = InPath::from_request_parts(parts, app).await?;
        Ok(LeaseCall { app: app.clone(), scope, lease_id })
    }
}

impl LeaseCall {
    /// The lease, if it is this worker's and, where the worker says, this task's.
    pub(super) fn lease(&self, worker_id: &str, task_id: Option<&str>) -> Result<LeaseRef, Problem> {
        reference(&self.app, &self.scope, &self.lease_id, worker_id, task_id)
    }
}

failures!(ReportFails: wire::Problem {
    400 "REJECTED: malformed", 403 "REJECTED: not this worker's lease", 404 "REJECTED: unknown task", 503 ""
});
