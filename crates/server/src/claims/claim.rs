//! POST /internal/worker/claim: a worker asks for a job, and waits for it.

use authority::Contract;
use authority::command::{Grant, LeaseTasks};
use authority::limits::MAX_POLL_QUEUES;
use wire::{ClaimJob, ClaimProblem, ClaimedJob, DEFAULT_CLAIM_WAIT_MS, Seconds};

use super::message;
use super::refusal::Refusal;
use super::token::attempt_id;
use crate::app::App;
use crate::convert::names::{name, name_list, optional_name, properties};
use crate::convert::task_json::to_json;
use crate::convert::{Problem, Scoped, content, to_timestamp};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Claim a job, waiting for it if there is none.
#[utoipa::path(
    post,
    path = "/internal/worker/claim",
    tag = "Claims",
    request_body = ClaimJob,
    responses(
        (status = 200, description = "The job, or none when the wait is over", body = ClaimedJob),
        Fails<400, ClaimProblem>, Fails<429, ClaimProblem>, Fails<503, ClaimProblem>
    )
)]
pub(crate) async fn claim(
    call: Result<Scoped, Problem>,
    caller: Caller,
    body: Result<In<ClaimJob>, Problem>,
) -> Result<Out<ClaimedJob>, Refusal> {
    let (Scoped { app, scope }, In(request)) = (call?, body?);
    let worker = name("worker_id", &request.worker_id)?;
    let queues = name_list("streams", &request.streams, MAX_POLL_QUEUES)?;
    let request_id = optional_name("request_id", request.request_id.as_deref())?;
    let command = LeaseTasks {
        scope,
        worker,
        session: None,
        queues,
        properties: properties("properties", request.properties.as_ref())?,
        max_tasks: 1,
        request: request_id.map(|request_id| content::request(&request_id)),
        contract: Contract::Claims,
    };
    caller.check_lease(&command)?;
    let grants = app.poll(command, request.max_wait_ms.unwrap_or(DEFAULT_CLAIM_WAIT_MS)).await?;
    app.note_grants(&caller, &grants).await;
    let claimed = match grants.into_iter().next() {
        Some(grant) => claimed(&app, grant).await?,
        None => ClaimedJob::default(),
    };
    Ok(Out::ok(claimed))
}

async fn claimed(app: &App, grant: Grant) -> Result<ClaimedJob, Problem> {
    // An attempt with a time limit may be shorter than its lease.
    let ttl_ms = grant.length_ms.min(grant.expires_at.since_ms(grant.granted_at));
    Ok(ClaimedJob {
        claimed: true,
        job_id: Some(grant.task.to_string()),
        attempt_id: Some(attempt_id(grant.task, grant.attempt)),
        lease_token: Some(app.lease_ids.make(&grant.lease_ref())),
        stream: Some(grant.queue.name.to_string()),
        message_id: message::id(app, &grant).await?,
        payload: Some(to_json(&grant.payload)),
        lease_ttl_seconds: Some(Seconds { ms: ttl_ms }),
        heartbeat_interval_seconds: Some(Seconds { ms: grant.heartbeat_interval_ms }),
        attempt: Some(grant.attempt),
        lease_expires_at: Some(to_timestamp(grant.expires_at)),
        fencing_token: Some(grant.fencing_token.0),
        partial_progress: grant.partial_progress.as_deref().map(to_json),
    })
}
