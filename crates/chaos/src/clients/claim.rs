//! The claim contract: `/internal/worker`, one job at a time.

use contract_clients::{LeaseRef, ReportKind, claim};
use wire::{ClaimedJob, JobCompleted, JobFailed, Verdict};

use super::{LEASE_WAIT, Leased, allowed, native, shown};
use crate::api::Answer;
use crate::contract::Contract;
use crate::facts::{Pulse, Told};
use crate::story::Story;
use crate::world::{QUEUE, World};

pub async fn lease(world: &World, worker_id: &str, request_id: &str) -> Option<Vec<Leased>> {
    let request = claim::claim(worker_id, &[QUEUE], LEASE_WAIT.as_millis() as u64, Some(request_id));
    let answer = world.send_for(Contract::Claim, request).await;
    world.facts.expect("a claim", &answer, &[200, 429, 503]);
    if answer.status() != Some(200) {
        return None;
    }
    let Some(job) = parse::<ClaimedJob>(&answer) else {
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
    let answer = world.send_for(Contract::Claim, claim::report(&story.lease, &story.kind)?).await;
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

pub async fn beat(world: &World, lease: &LeaseRef) -> Pulse {
    let answer = world.send_for(Contract::Claim, claim::heartbeat(lease)).await;
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
            let told: JobCompleted = parse(answer)?;
            (told.ok && told.ack).then_some("COMPLETED")
        }
        _ => {
            let told: JobFailed = parse(answer)?;
            let state = if told.requeued { "WAITING" } else { "FAILED" };
            // It waits again or is a dead letter, and never both.
            (told.ok && told.ack && told.requeued != told.dlq).then_some(state)
        }
    };
    let verdict = Some(Verdict::Committed);
    state.map(|state| Told { status: 200, verdict, state: Some(state.to_owned()) })
}

fn parse<T: serde::de::DeserializeOwned>(answer: &Answer) -> Option<T> {
    serde_json::from_value(answer.body().clone()).ok()
}
