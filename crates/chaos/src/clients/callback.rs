//! The callback contract: tasks arrive at the target, and its workers call back with the task's token.

use std::time::Duration;

use contract_clients::{LeaseRef, callback};
use wire::{CallbackProblem, CallbackState, CompletionAcknowledged, TaskEnvelope, Verdict};

use super::{LEASE_WAIT, Leased, OPEN, RETRY_FOR, allowed, describe};
use crate::api::Answer;
use crate::contract::Contract;
use crate::recorder::{HeartbeatOutcome, ReportResponse};
use crate::report_request::ReportRequest;
use crate::world::{RETRY_PAUSE, World};

/// From taking a task to beginning it: long enough for the server to be killed in between, and to send it again.
const BEGIN_PAUSE: Duration = Duration::from_millis(80);

/// Takes tasks that were pushed and begins them; what must not begin is left alone.
pub(super) async fn take(world: &World, worker_id: &str, max_tasks: u32) -> Vec<Leased> {
    let Some(target) = &world.target else { return Vec::new() };
    let mut leased = Vec::new();
    let envelopes = target.take(max_tasks as usize, LEASE_WAIT).await;
    if !envelopes.is_empty() {
        tokio::time::sleep(BEGIN_PAUSE).await;
    }
    for envelope in envelopes {
        if !world.nodes.has_base_url(envelope.callback_base_url.trim_end_matches('/')) {
            world
                .recorder
                .record_unexpected(format!("workers are to call back to {}", envelope.callback_base_url));
        }
        let TaskEnvelope { task_token: lease_id, task_id, attempt, fencing_token, .. } = envelope;
        let lease = LeaseRef { lease_id, task_id, worker_id: worker_id.to_owned(), attempt };
        if start(world, &lease).await {
            let LeaseRef { lease_id, task_id, .. } = lease;
            leased.push(Leased { lease_id, task_id, attempt, fencing_token, between: None });
        }
    }
    leased
}

/// Sends the start of the attempt until the server answers whether it may begin.
async fn start(world: &World, lease: &LeaseRef) -> bool {
    let give_up_at = world.recorder.now() + RETRY_FOR;
    while world.recorder.now() < give_up_at {
        let answer = world.send_for(Contract::Callback, callback::started(lease)).await;
        world.recorder.expect("a start", &answer, &[200, 409, OPEN[0], OPEN[1]]);
        if !answer.is_open() || !world.has_retries() {
            return answer.status() == Some(200);
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    false
}

pub(super) async fn report(world: &World, request: &ReportRequest) -> Option<ReportResponse> {
    let answer = world.send_for(Contract::Callback, callback::report(&request.lease, &request.kind)?).await;
    world.recorder.expect(
        &describe(Contract::Callback, request),
        &answer,
        &allowed(request, &[400, 401, 404]),
    );
    if answer.is_open() {
        return None;
    }
    let response = parse_report_response(&answer);
    if response.is_none() {
        let (what, status) = (describe(Contract::Callback, request), answer.status());
        world.recorder.record_unexpected(format!("{what} was answered {status:?} with {}", answer.body()));
    }
    response
}

pub(super) async fn beat(world: &World, lease: &LeaseRef) -> HeartbeatOutcome {
    let request = callback::heartbeat(lease).with("progressPct", 50);
    let answer = world.send_for(Contract::Callback, request).await;
    world.recorder.expect("a callback's heartbeat", &answer, &[200, 409, 410, OPEN[0], OPEN[1]]);
    match answer.status() {
        Some(200) => HeartbeatOutcome::Alive,
        Some(409 | 410) => HeartbeatOutcome::Gone,
        _ => HeartbeatOutcome::Unknown,
    }
}

/// The verdict that an answer amounts to; this contract has other names for them.
fn parse_report_response(answer: &Answer) -> Option<ReportResponse> {
    let status = answer.status()?;
    let (verdict, state) = match status {
        200 => {
            let response: CompletionAcknowledged = serde_json::from_value(answer.body().clone()).ok()?;
            let state = match response.final_state {
                CallbackState::Succeeded => "COMPLETED",
                CallbackState::RetryWait => "WAITING",
                CallbackState::Failed => "FAILED",
                CallbackState::Cancelled => "DEAD",
            };
            (Verdict::Committed, Some(state.to_owned()))
        }
        _ => (refused(answer)?, None),
    };
    Some(ReportResponse { status, verdict: Some(verdict), state })
}

fn refused(answer: &Answer) -> Option<Verdict> {
    let problem: CallbackProblem = serde_json::from_value(answer.body().clone()).ok()?;
    Some(match problem.error.as_str() {
        // The attempt is over, and its report was discarded.
        "attempt_mismatch" | "task_already_terminal" => Verdict::Cancelled,
        _ => Verdict::Rejected,
    })
}
