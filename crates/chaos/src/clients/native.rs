//! The native contract: `/v1/leases`.

use serde_json::{Value, json};

use super::{LEASE_WAIT, Leased, OPEN, allowed, shown};
use crate::api::Answer;
use crate::contract::Contract;
use crate::facts::{Pulse, Told};
use crate::story::{Held, ReportKind, Story};
use crate::world::{QUEUE, World};

pub async fn lease(world: &World, worker_id: &str, request: &str, max_tasks: u32) -> Option<Vec<Leased>> {
    let body = json!({
        "workerId": worker_id,
        "queues": [QUEUE],
        "maxTasks": max_tasks,
        "waitMs": LEASE_WAIT.as_millis() as u64,
        "requestId": request,
    });
    let answer = post(world, "/v1/leases", &body).await;
    world.facts.expect("a lease request", &answer, &[200, 429, 503]);
    let told: Vec<wire::Lease> = match answer {
        Answer::Told { status: 200, body } => {
            serde_json::from_value::<wire::Leases>(body).map(|told| told.leases).unwrap_or_default()
        }
        _ => return None,
    };
    let leased = told.into_iter().map(|lease| Leased {
        lease_id: lease.lease_id,
        task_id: lease.task_id,
        attempt: lease.attempt,
        fencing_token: lease.fencing_token,
        between: None,
    });
    Some(leased.collect())
}

pub async fn report(world: &World, story: &Story) -> Option<Told> {
    let Held { lease_id, task_id, worker_id, .. } = &story.held;
    let (verb, body) = match &story.kind {
        ReportKind::Completed(result) => {
            ("complete", json!({"workerId": worker_id, "taskId": task_id, "result": result}))
        }
        ReportKind::Failed(failure) => {
            let body = json!({
                "workerId": worker_id,
                "taskId": task_id,
                "reason": failure.message,
                "category": failure.category,
                "retryable": failure.retryable,
            });
            ("fail", body)
        }
        ReportKind::GivenBack => ("release", json!({"workerId": worker_id, "taskId": task_id})),
    };
    let answer = post(world, &format!("/v1/leases/{lease_id}/{verb}"), &body).await;
    world.facts.expect(&shown(Contract::Native, story), &answer, &allowed(story, &[400, 403, 404]));
    told(&answer)
}

pub async fn beat(world: &World, held: &Held) -> Pulse {
    let path = format!("/v1/leases/{}/heartbeat", held.lease_id);
    let answer = post(world, &path, &json!({"workerId": held.worker_id, "progressPct": 50})).await;
    world.facts.expect("a heartbeat", &answer, &[200, 410, OPEN[0], OPEN[1]]);
    match answer.status() {
        Some(200) => Pulse::Alive,
        Some(410) => Pulse::Gone,
        _ => Pulse::Unknown,
    }
}

/// The verdict of an answer that carries it under its name.
pub fn told(answer: &Answer) -> Option<Told> {
    if answer.is_open() {
        return None;
    }
    let verdict = serde_json::from_value(answer.body()["verdict"].clone()).ok();
    let state = answer.body()["state"].as_str().map(str::to_string);
    Some(Told { status: answer.status()?, verdict, state })
}

async fn post(world: &World, path: &str, body: &Value) -> Answer {
    world.post_for(Contract::Native, None, path, body).await
}
