//! The callback contract: tasks arrive at the target, and its workers call back with the task's token.

use std::time::Duration;

use contract_clients::{LeaseRef, callback};
use wire::{CallbackProblem, CallbackState, CompletionAcknowledged, TaskEnvelope, Verdict};

use super::{INSIST_FOR, LEASE_WAIT, Leased, OPEN, allowed, shown};
use crate::api::Answer;
use crate::contract::Contract;
use crate::facts::{Pulse, Told};
use crate::story::Story;
use crate::world::{RETRY_PAUSE, World};

/// From taking a task to beginning it: long enough for the server to be killed in between, and to send it again.
const BEGIN_PAUSE: Duration = Duration::from_millis(80);

/// Takes tasks that were pushed and begins them; what must not begin is left alone.
pub async fn take(world: &World, worker_id: &str, max_tasks: u32) -> Vec<Leased> {
    let Some(target) = &world.target else { return Vec::new() };
    let mut leased = Vec::new();
    let envelopes = target.take(max_tasks as usize, LEASE_WAIT).await;
    if !envelopes.is_empty() {
        tokio::time::sleep(BEGIN_PAUSE).await;
    }
    for envelope in envelopes {
        if envelope.callback_base_url.trim_end_matches('/') != world.api.base_url() {
            world.facts.surprise(format!("workers are to call back to {}", envelope.callback_base_url));
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

/// Says that the worker begins, until it is told whether it may.
async fn start(world: &World, lease: &LeaseRef) -> bool {
    let give_up_at = world.facts.now() + INSIST_FOR;
    while world.facts.now() < give_up_at {
        let answer = world.send_for(Contract::Callback, callback::started(lease)).await;
        world.facts.expect("a start", &answer, &[200, 409, OPEN[0], OPEN[1]]);
        if !answer.is_open() {
            return answer.status() == Some(200);
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
    false
}

pub async fn report(world: &World, story: &Story) -> Option<Told> {
    let answer = world.send_for(Contract::Callback, callback::report(&story.lease, &story.kind)?).await;
    world.facts.expect(&shown(Contract::Callback, story), &answer, &allowed(story, &[400, 401, 404]));
    if answer.is_open() {
        return None;
    }
    let told = told(&answer);
    if told.is_none() {
        let (what, status) = (shown(Contract::Callback, story), answer.status());
        world.facts.surprise(format!("{what} was answered {status:?} with {}", answer.body()));
    }
    told
}

pub async fn beat(world: &World, lease: &LeaseRef) -> Pulse {
    let request = callback::heartbeat(lease).with("progressPct", 50);
    let answer = world.send_for(Contract::Callback, request).await;
    world.facts.expect("a callback's heartbeat", &answer, &[200, 409, 410, OPEN[0], OPEN[1]]);
    match answer.status() {
        Some(200) => Pulse::Alive,
        Some(409 | 410) => Pulse::Gone,
        _ => Pulse::Unknown,
    }
}

/// The verdict that an answer amounts to; this contract has other names for them.
fn told(answer: &Answer) -> Option<Told> {
    let status = answer.status()?;
    let (verdict, state) = match status {
        200 => {
            let told: CompletionAcknowledged = serde_json::from_value(answer.body().clone()).ok()?;
            let state = match told.final_state {
                CallbackState::Succeeded => "COMPLETED",
                CallbackState::RetryWait => "WAITING",
                CallbackState::Failed => "FAILED",
                CallbackState::Cancelled => "DEAD",
            };
            (Verdict::Committed, Some(state.to_owned()))
        }
        _ => (refused(answer)?, None),
    };
    Some(Told { status, verdict: Some(verdict), state })
}

fn refused(answer: &Answer) -> Option<Verdict> {
    let problem: CallbackProblem = serde_json::from_value(answer.body().clone()).ok()?;
    Some(match problem.error.as_str() {
        // The attempt is over, and its word was thrown away.
        "attempt_mismatch" | "task_already_terminal" => Verdict::Cancelled,
        _ => Verdict::Rejected,
    })
}
