//! The claim contract: `/internal/worker`, one job at a time.

use serde::Serialize;
use serde_json::Value;
use wire::{
    ClaimJob, ClaimedJob, CompleteJob, FailJob, HeartbeatJob, JobCompleted, JobError, JobFailed, Verdict,
};

use super::{LEASE_WAIT, Leased, allowed, native, shown};
use crate::api::Answer;
use crate::contract::Contract;
use crate::facts::{Pulse, Told};
use crate::story::{Held, ReportKind, Story};
use crate::world::{QUEUE, World};

pub async fn lease(world: &World, worker_id: &str, request: &str) -> Option<Vec<Leased>> {
    let claim = ClaimJob {
        worker_id: worker_id.to_owned(),
        streams: vec![QUEUE.to_owned()],
        max_wait_ms: Some(LEASE_WAIT.as_millis() as u64),
        request_id: Some(request.to_owned()),
        ..ClaimJob::default()
    };
    let answer = post(world, "claim", &claim).await;
    world.facts.expect("a claim", &answer, &[200, 429, 503]);
    if answer.status() != Some(200) {
        return None;
    }
    let Some(job) = read::<ClaimedJob>(&answer) else {
        world.facts.surprise(format!("a claim was answered {}", answer.body()));
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
        world.facts.surprise(format!("a claimed job is told as {}", answer.body()));
    }
    Some(leased.into_iter().collect())
}

pub async fn report(world: &World, story: &Story) -> Option<Told> {
    let Held { lease_id, task_id, worker_id, attempt } = story.held.clone();
    let attempt_id = format!("{task_id}:{attempt}");
    let answer = match &story.kind {
        ReportKind::Completed(result) => {
            let result = serde_json::from_value(result.clone()).ok();
            let (job_id, lease_token) = (task_id, lease_id);
            let report =
                CompleteJob { worker_id, job_id, attempt_id, lease_token, result, ..CompleteJob::default() };
            post(world, "complete", &report).await
        }
        ReportKind::Failed(failure) => {
            let error = JobError {
                message: failure.message.clone(),
                retryable: Some(failure.retryable),
                ..JobError::default()
            };
            let (job_id, lease_token) = (task_id, lease_id);
            let report = FailJob { worker_id, job_id, attempt_id, lease_token, error, ..FailJob::default() };
            post(world, "fail", &report).await
        }
        // There is no word for it.
        ReportKind::GivenBack => return None,
    };
    world.facts.expect(&shown(Contract::Claim, story), &answer, &allowed(story, &[400, 403, 404]));
    match answer.status() {
        Some(200) => {
            let told = committed(&story.kind, &answer);
            if told.is_none() {
                let what = shown(Contract::Claim, story);
                world.facts.surprise(format!("{what} was answered 200 with {}", answer.body()));
            }
            told
        }
        _ => native::told(&answer),
    }
}

pub async fn beat(world: &World, held: &Held) -> Pulse {
    let Held { lease_id, task_id, worker_id, .. } = held.clone();
    let answer =
        post(world, "heartbeat", &HeartbeatJob { worker_id, job_id: task_id, lease_token: lease_id }).await;
    world.facts.expect("a job's heartbeat", &answer, &[200, 409, 429, 503]);
    match answer.status() {
        Some(200) => Pulse::Alive,
        Some(409) => Pulse::Gone,
        _ => Pulse::Unknown,
    }
}

/// What an accepted report is told; None when that is not what the contract says.
fn committed(kind: &ReportKind, answer: &Answer) -> Option<Told> {
    let state = match kind {
        ReportKind::Completed(_) => {
            let told: JobCompleted = read(answer)?;
            (told.ok && told.ack).then_some("COMPLETED")
        }
        _ => {
            let told: JobFailed = read(answer)?;
            let state = if told.requeued { "WAITING" } else { "FAILED" };
            // It waits again or is a dead letter, and never both.
            (told.ok && told.ack && told.requeued != told.dlq).then_some(state)
        }
    };
    let verdict = Some(Verdict::Committed);
    state.map(|state| Told { status: 200, verdict, state: Some(state.to_owned()) })
}

fn read<T: serde::de::DeserializeOwned>(answer: &Answer) -> Option<T> {
    serde_json::from_value(answer.body().clone()).ok()
}

async fn post(world: &World, verb: &str, body: &impl Serialize) -> Answer {
    let body: Value = serde_json::to_value(body).unwrap_or(Value::Null);
    world.post_for(Contract::Claim, None, &format!("/internal/worker/{verb}"), &body).await
}
