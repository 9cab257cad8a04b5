//! The native contract: `/v1/leases`.

use contract_clients::{LeaseRef, native};

use super::{LEASE_WAIT, Leased, OPEN, allowed, shown};
use crate::api::Answer;
use crate::contract::Contract;
use crate::facts::{Pulse, Told};
use crate::story::Story;
use crate::world::{QUEUE, World};

pub async fn lease(world: &World, worker_id: &str, request_id: &str, max_tasks: u32) -> Option<Vec<Leased>> {
    let wait_ms = LEASE_WAIT.as_millis() as u64;
    let request = native::lease(worker_id, QUEUE, max_tasks, wait_ms).with("requestId", request_id);
    let answer = world.send_for(Contract::Native, request).await;
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
    let answer = world.send_for(Contract::Native, native::report(&story.lease, &story.kind)).await;
    world.facts.expect(&shown(Contract::Native, story), &answer, &allowed(story, &[400, 403, 404]));
    told(&answer)
}

pub async fn beat(world: &World, lease: &LeaseRef) -> Pulse {
    let answer = world.send_for(Contract::Native, native::heartbeat(lease).with("progressPct", 50)).await;
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
