//! The native contract: `/v1/leases`.

use contract_clients::{LeaseRef, native};

use super::{LEASE_WAIT, Leased, OPEN, allowed, describe};
use crate::api::Answer;
use crate::contract::Contract;
use crate::recorder::{HeartbeatOutcome, ReportResponse};
use crate::report_request::ReportRequest;
use crate::world::{QUEUE, World};

pub(super) async fn lease(
    world: &World,
    worker_id: &str,
    request_id: &str,
    max_tasks: u32,
) -> Option<Vec<Leased>> {
    let wait_ms = LEASE_WAIT.as_millis() as u64;
    let request = native::lease(worker_id, QUEUE, max_tasks, wait_ms).with("requestId", request_id);
    let answer = world.send_for(Contract::Native, request).await;
    world.recorder.expect("a lease request", &answer, &[200, 429, 503]);
    let response: Vec<wire::Lease> = match answer {
        Answer::Response { status: 200, body } => {
            serde_json::from_value::<wire::Leases>(body).map(|response| response.leases).unwrap_or_default()
        }
        _ => return None,
    };
    let leased = response.into_iter().map(|lease| Leased {
        lease_id: lease.lease_id,
        task_id: lease.task_id,
        attempt: lease.attempt,
        fencing_token: lease.fencing_token,
        between: None,
    });
    Some(leased.collect())
}

pub(super) async fn report(world: &World, request: &ReportRequest) -> Option<ReportResponse> {
    let answer = world.send_for(Contract::Native, native::report(&request.lease, &request.kind)).await;
    world.recorder.expect(&describe(Contract::Native, request), &answer, &allowed(request, &[400, 403, 404]));
    parse_report_response(&answer)
}

pub(super) async fn beat(world: &World, lease: &LeaseRef) -> HeartbeatOutcome {
    let answer = world.send_for(Contract::Native, native::heartbeat(lease).with("progressPct", 50)).await;
    world.recorder.expect("a heartbeat", &answer, &[200, 410, OPEN[0], OPEN[1]]);
    match answer.status() {
        Some(200) => HeartbeatOutcome::Alive,
        Some(410) => HeartbeatOutcome::Gone,
        _ => HeartbeatOutcome::Unknown,
    }
}

/// The verdict of an answer that carries it under its name.
pub(super) fn parse_report_response(answer: &Answer) -> Option<ReportResponse> {
    if answer.is_open() {
        return None;
    }
    let verdict = serde_json::from_value(answer.body()["verdict"].clone()).ok();
    let state = answer.body()["state"].as_str().map(str::to_string);
    Some(ReportResponse { status: answer.status()?, verdict, state })
}
