//! POST /internal/worker/claim: a worker asks for a job, and waits for it.

use authority::Scope;
use authority::command::{Grant, LeaseTasks};
use authority::limits::MAX_POLL_QUEUES;
use axum::extract::State;
use axum::http::StatusCode;
use wire::{ClaimJob, ClaimedJob, DEFAULT_CLAIM_WAIT_MS, Seconds};

use super::message;
use super::refusal::Refusal;
use super::token::attempt_id;
use crate::app::App;
use crate::convert::content;
use crate::convert::names::{counted, name, optional_name, properties};
use crate::convert::problem::Problem;
use crate::convert::scope::InScope;
use crate::convert::task_json::to_json;
use crate::convert::time::to_timestamp;
use crate::edge::json::{In, Out};

/// Claim a job, waiting for it if there is none.
#[utoipa::path(
    post,
    path = "/internal/worker/claim",
    tag = "Claims",
    request_body = ClaimJob,
    responses(
        (status = 200, description = "The job, or none when the wait is over", body = ClaimedJob),
        (status = 400, body = wire::ClaimProblem),
        (status = 429, body = wire::ClaimProblem),
        (status = 503, body = wire::ClaimProblem)
    )
)]
pub(crate) async fn claim(
    State(app): State<App>,
    scope: Result<InScope, Problem>,
    body: Result<In<ClaimJob>, Problem>,
) -> Result<Out<ClaimedJob>, Refusal> {
    let (InScope(scope), In(request)) = (scope?, body?);
    let command = command(&scope, &request)?;
    let grants = app.poll(command, request.max_wait_ms.unwrap_or(DEFAULT_CLAIM_WAIT_MS)).await?;
    let claimed = match grants.into_iter().next() {
        Some(grant) => claimed(&app, grant).await?,
        None => ClaimedJob::default(),
    };
    Ok(Out(StatusCode::OK, claimed))
}

fn command(scope: &Scope, request: &ClaimJob) -> Result<LeaseTasks, Problem> {
    let worker = name("worker_id", &request.worker_id)?;
    counted("streams", request.streams.len(), 1..=MAX_POLL_QUEUES)?;
    let streams =
        request.streams.iter().enumerate().map(|(n, stream)| name(&format!("streams[{n}]"), stream));
    let request_id = optional_name("request_id", request.request_id.as_deref())?;
    Ok(LeaseTasks {
        scope: scope.clone(),
        worker,
        session: None,
        queues: streams.collect::<Result<_, _>>()?,
        properties: properties("properties", request.properties.as_ref())?,
        max_tasks: 1,
        request: request_id.map(|request_id| content::request(&request_id)),
    })
}

async fn claimed(app: &App, grant: Grant) -> Result<ClaimedJob, Problem> {
    // An attempt with a time limit may be shorter than its lease.
    let ttl_ms = grant.length_ms.min(grant.expires_at.since_ms(grant.granted_at));
    Ok(ClaimedJob {
        claimed: true,
        job_id: Some(grant.task.to_string()),
        attempt_id: Some(attempt_id(grant.task, grant.attempt)),
        lease_token: Some(app.lease_ids().make(&grant.lease_ref())),
        stream: Some(grant.queue.name.to_string()),
        message_id: message::id(app, &grant).await?,
        payload: Some(to_json(&grant.payload)),
        lease_ttl_seconds: Some(Seconds { ms: ttl_ms }),
        heartbeat_interval_seconds: Some(Seconds { ms: grant.heartbeat_interval_ms }),
        attempt: Some(grant.attempt),
        lease_expires_at: Some(to_timestamp(grant.expires_at)),
        fencing_token: Some(grant.fencing_token.0),
    })
}
