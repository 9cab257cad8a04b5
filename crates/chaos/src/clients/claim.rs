//! The claim contract: `/internal/worker`, one job at a time.

use contract_clients::{LeaseRef, ReportKind, claim};
use wire::{ClaimedJob, JobCompleted, JobFailed, Verdict};

use super::{LEASE_WAIT, Leased, allowed, describe, native};
use crate::api::Answer;
use crate::contract::Contract;
use crate::recorder::{HeartbeatOutcome, ReportResponse};
use crate::report_request::ReportRequest;
use crate::world::{QUEUE, World};

pub(super) async fn lease(world: &World, worker_id: &str, request_id: &str) -> Option<Vec<Leased>> {
    let request = claim::claim(worker_id, &[QUEUE], LEASE_WAIT.as_millis() as u64, Some(request_id));
    let answer = world.send_for(Contract::Claim, request).await;
    world.recorder.expect("a claim", &answer, &[200, 429, 503]);
    if answer.status() != Some(200) {
        return None;
    }
    let Some(job) = parse::<ClaimedJob>(&answer) else {
        world.recorder.record_unexpected(format!("a claim was answered {}", answer.body()));
        return Some(Vec::new());
    };
    if !job.claimed {
        return Some(Vec::new());
    }
    let leased = || {
        Some(Leased {
            lease_id: job.lease_token.clone()?,
            task_id: job.job_id.clone()?,
            attempt: job.attempt?,
            fencing_token: job.fencing_token?,
            between: None,
        })
    };
    let leased = leased();
    if leased.is_none() {
        world.recorder.record_unexpected(format!("a claimed job has the body {}", answer.body()));
    }
    Some(leased.into_iter().collect())
}

pub(super) async fn report(world: &World, request: &ReportRequest) -> Option<ReportResponse> {
    let answer = world.send_for(Contract::Claim, claim::report(&request.lease, &request.kind)?).await;
    world.recorder.expect(&describe(Contract::Claim, request), &answer, &allowed(request, &[400, 403, 404]));
    match answer.status() {
        Some(200) => {
            let response = committed(&request.kind, &answer);
            if response.is_none() {
                let what = describe(Contract::Claim, request);
                world.recorder.record_unexpected(format!("{what} was answered 200 with {}", answer.body()));
            }
            response
        }
        _ => native::parse_report_response(&answer),
    }
}

pub(super) async fn beat(world: &World, lease: &LeaseRef) -> HeartbeatOutcome {
    let answer = world.send_for(Contract::Claim, claim::heartbeat(lease)).await;
    world.recorder.expect("a job's heartbeat", &answer, &[200, 409, 429, 503]);
    match answer.status() {
        Some(200) => HeartbeatOutcome::Alive,
        Some(409) => HeartbeatOutcome::Gone,
        _ => HeartbeatOutcome::Unknown,
    }
}

/// The response to an accepted report; None when the contract does not allow it.
fn committed(kind: &ReportKind, answer: &Answer) -> Option<ReportResponse> {
    let state = match kind {
        ReportKind::Completed(_) => {
            let response: JobCompleted = parse(answer)?;
            (response.ok && response.ack).then_some("COMPLETED")
        }
        _ => {
            let response: JobFailed = parse(answer)?;
            let state = if response.requeued { "WAITING" } else { "FAILED" };
            // It waits again or is a dead letter, and never both.
            (response.ok && response.ack && response.requeued != response.dlq).then_some(state)
        }
    };
    let verdict = Some(Verdict::Committed);
    state.map(|state| ReportResponse { status: 200, verdict, state: Some(state.to_owned()) })
}

fn parse<T: serde::de::DeserializeOwned>(answer: &Answer) -> Option<T> {
    serde_json::from_value(answer.body().clone()).ok()
}
