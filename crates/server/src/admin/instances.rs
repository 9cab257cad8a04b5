//! GET /v1/instances: the instances of remote execution that a worker without an instance serves.

use std::time::Duration;

use wire::{InstanceList, MAX_WAIT_MS};

use crate::convert::{Problem, Scoped};
use crate::edge::{Fails, InQuery, Out};

/// List the named instances that have had executions since the start, or wait for another one.
#[utoipa::path(
    get,
    path = "/v1/instances",
    tag = "Workers",
    params(wire::WaitInstances),
    responses((status = 200, body = InstanceList), Fails<400>, Fails<503>)
)]
pub(crate) async fn list(
    Scoped { app, scope }: Scoped,
    InQuery(query): InQuery<wire::WaitInstances>,
) -> Result<Out<InstanceList>, Problem> {
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0).min(MAX_WAIT_MS));
    let instances = match &app.content {
        Some(content) => {
            let listed = content.instances.list(&scope.tenant, query.known, wait);
            app.waiting(&scope.tenant, wait, listed).await?
        }
        None => None,
    };
    Ok(Out::ok(InstanceList { instances: instances.unwrap_or_default() }))
}
