//! Coordinators that drop the details of reports, or that refuse the reports of newer workers.

use axum::http::Method;
use conformance::Contract;
use serde_json::{Value, json};

use crate::mutant::{self, Call, Reply, forget};
use crate::support::Server;
use crate::{only_this_fails, server};

const DETAILS: &str = "the details of a report are kept, and its partial progress reaches the next attempt";

async fn only_finds(
    server: &Server,
    contract: Contract,
    fault: impl Fn(&Call, &mut Reply) + Send + Sync + 'static,
    says: &str,
) {
    only_this_fails(&mutant::start(&server.url(), fault).await, contract, says).await;
}

fn is_task(call: &Call) -> bool {
    call.method == Method::GET && call.path.starts_with("/v1/tasks/")
}

fn no_metrics(call: &Call, reply: &mut Reply) {
    if is_task(call) {
        forget(reply, "metrics");
    }
}

fn no_stack_trace(call: &Call, reply: &mut Reply) {
    if let Some(error) = reply.body.get_mut("error").and_then(Value::as_object_mut).filter(|_| is_task(call))
    {
        error.remove("stackTrace");
    }
}

fn no_partial_progress(call: &Call, reply: &mut Reply) {
    for lease in reply.body.get_mut("leases").and_then(Value::as_array_mut).into_iter().flatten() {
        if call.is("leases") {
            lease.as_object_mut().unwrap().remove("partialProgress");
        }
    }
}

/// Refuses what has a field of a newer worker, in calls with this name.
fn is_strict_in(name: &'static str) -> impl Fn(&Call, &mut Reply) + Send + Sync + 'static {
    move |call, reply| {
        let fields = ["fieldOfANewerWorker", "field_of_a_newer_worker"];
        if call.is(name) && fields.iter().any(|field| call.body.get(field).is_some()) {
            *reply = Reply { status: 400, body: json!({"code": "invalid_field"}) };
        }
    }
}

#[tokio::test]
async fn the_details_of_a_report_must_be_kept() {
    let server = server();
    only_finds(&server, Contract::Native, no_metrics, DETAILS).await;
    only_finds(&server, Contract::Native, no_stack_trace, DETAILS).await;
    let of_a_claim = "code, message and stack of an error are kept, unknown fields are not";
    only_finds(&server, Contract::Claim, no_stack_trace, of_a_claim).await;
    let metrics = "metrics may be told, each or none of them";
    only_finds(&server, Contract::Callback, no_metrics, metrics).await;
    let error = "the error of a failure is kept, and retryable is honoured";
    only_finds(&server, Contract::Callback, no_stack_trace, error).await;
}

#[tokio::test]
async fn partial_progress_must_reach_the_next_attempt() {
    only_finds(&server(), Contract::Native, no_partial_progress, DETAILS).await;
}

#[tokio::test]
async fn a_newer_worker_must_not_lose_its_work() {
    let server = server();
    let says = "unknown fields of reports and heartbeats are ignored";
    for call in ["complete", "fail", "heartbeat"] {
        only_finds(&server, Contract::Native, is_strict_in(call), says).await;
    }
    let of_a_claim = "code, message and stack of an error are kept, unknown fields are not";
    only_finds(&server, Contract::Claim, is_strict_in("fail"), of_a_claim).await;
    let of_a_callback = "metrics may be told, each or none of them";
    only_finds(&server, Contract::Callback, is_strict_in("completed"), of_a_callback).await;
}
