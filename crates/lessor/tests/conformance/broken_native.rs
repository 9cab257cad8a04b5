//! Coordinators that break the native contract.

use std::collections::HashMap;
use std::sync::Mutex;

use conformance::Contract;
use serde_json::{Value, json};

use crate::mutant::{self, Call, Reply, accept, forget, set};
use crate::{is_found, server};

fn is_report(call: &Call) -> bool {
    call.is("complete") || call.is("fail")
}

/// With this fault, each of these numbers is found broken.
async fn finds(server: &str, fault: impl Fn(&Call, &mut Reply) + Send + Sync + 'static, numbers: &[&str]) {
    is_found(&mutant::start(server, fault).await, Contract::Native, numbers).await;
}

#[tokio::test]
async fn the_loop_must_lead_to_an_end() {
    let server = server();
    let url = server.url();
    finds(
        &url,
        |call, reply| drop_if(call.is("complete"), reply, "state"),
        &["S0-3", "S0-7", "S4-25", "S4-26"],
    )
    .await;
    let hollow = |call: &Call, reply: &mut Reply| {
        if call.path.starts_with("/v1/tasks/") {
            set(reply, "result", Value::Null);
        }
    };
    finds(&url, hollow, &["S0-3", "S0-9"]).await;
    let from_zero = |call: &Call, reply: &mut Reply| {
        if let Some(attempt) = reply.body.pointer_mut("/leases/0/attempt").filter(|_| call.is("leases")) {
            *attempt = json!(attempt.as_u64().unwrap() - 1);
        }
    };
    finds(&url, from_zero, &["S4-9", "S4-19"]).await;
}

fn drop_if(is: bool, reply: &mut Reply, field: &str) {
    if is {
        forget(reply, field);
    }
}

#[tokio::test]
async fn verdicts_must_be_told_and_be_right() {
    let server = server();
    let url = server.url();
    let silent = |call: &Call, reply: &mut Reply| drop_if(is_report(call), reply, "verdict");
    finds(&url, silent, &["S0-5", "S0-6", "S0-7", "S0-10", "S0-14"]).await;
    let lenient = |call: &Call, reply: &mut Reply| {
        if is_report(call) {
            accept(reply, 409, json!({"verdict": "COMMITTED", "state": "COMPLETED"}));
        }
    };
    finds(&url, lenient, &["S0-6", "S0-9", "S0-10", "S0-11", "S0-12", "S0-14", "S4-11", "S4-27"]).await;
    let mixed_up = |_: &Call, reply: &mut Reply| {
        if reply.body["verdict"] == "CANCELLED" {
            set(reply, "verdict", "REJECTED");
        }
    };
    finds(&url, mixed_up, &["S0-10", "S0-12", "S0-20", "S4-28"]).await;
}

/// What was accepted once is a conflict the second time, as with a coordinator that forgets its leases.
#[tokio::test]
async fn repeats_must_be_answered_alike() {
    let server = server();
    let seen = Mutex::new(HashMap::<String, u32>::new());
    let forgetful = move |call: &Call, reply: &mut Reply| {
        if is_report(call) && reply.status == 200 {
            let mut seen = seen.lock().unwrap();
            let count = seen.entry(call.path.clone()).or_default();
            *count += 1;
            if *count > 1 {
                *reply = Reply { status: 409, body: json!({"verdict": "REJECTED", "code": "lease_lost"}) };
            }
        }
    };
    finds(&server.url(), forgetful, &["S0-6", "S0-26"]).await;
    let always_new = |call: &Call, reply: &mut Reply| {
        if call.is("leases") && call.body.get("requestId").is_some() {
            reply.body["leases"][0]["leaseId"] = json!(format!("{:p}", reply));
        }
        if call.is("tasks") && reply.status == 200 {
            reply.status = 201;
        }
    };
    finds(&server.url(), always_new, &["S0-4"]).await;
}

#[tokio::test]
async fn heartbeats_must_tell_the_truth() {
    let server = server();
    let url = server.url();
    let revives = |call: &Call, reply: &mut Reply| {
        if call.is("heartbeat") {
            let body =
                json!({"expiresAt": "2099-01-01T00:00:00Z", "shouldCancel": false, "cancelReason": null});
            accept(reply, 410, body);
        }
    };
    finds(&url, revives, &["S0-20", "S0-7", "S4-41"]).await;
    let frozen = |call: &Call, reply: &mut Reply| {
        if call.is("heartbeat") {
            set(reply, "expiresAt", "2020-01-01T00:00:00Z");
        }
    };
    finds(&url, frozen, &["S0-18", "S4-22"]).await;
    let local_time = |call: &Call, reply: &mut Reply| {
        if call.is("heartbeat") {
            set(reply, "expiresAt", "2099-01-01 00:00:00");
        }
    };
    finds(&url, local_time, &["S0-3", "S0-18"]).await;
    let hasty = mutant::start_misconfigured(&url, |config| {
        if config.get("leaseMs").is_some() {
            config["leaseMs"] = json!(100);
        }
    });
    is_found(&hasty.await, Contract::Native, &["S0-18", "S4-21"]).await;
}

#[tokio::test]
async fn policy_must_be_the_coordinators() {
    let server = server();
    let url = server.url();
    let deaf = |call: &Call, reply: &mut Reply| {
        if call.is("heartbeat") {
            set(reply, "shouldCancel", false);
        }
    };
    finds(&url, deaf, &["S0-1"]).await;
    finds(&url, |call, reply| drop_if(call.is("fail"), reply, "retryAt"), &["S0-25", "S4-29"]).await;
    let blames_the_user = |_: &Call, reply: &mut Reply| {
        if let Some(category) = reply.body.pointer_mut("/error/category") {
            *category = json!("USER_CODE");
        }
    };
    finds(&url, blames_the_user, &["S0-25"]).await;
}

#[tokio::test]
async fn strangers_must_be_refused() {
    let server = server();
    let gullible = |call: &Call, reply: &mut Reply| {
        if is_report(call) || call.is("release") {
            accept(reply, 403, json!({"verdict": "COMMITTED", "state": "COMPLETED"}));
        }
    };
    finds(&server.url(), gullible, &["S0-1", "S0-2", "S0-14", "S0-27"]).await;
}

#[tokio::test]
async fn states_and_records_must_be_the_known_ones() {
    let server = server();
    let url = server.url();
    let own_words = |call: &Call, reply: &mut Reply| {
        if call.path.starts_with("/v1/tasks/") && reply.body["state"] == "LEASED" {
            set(reply, "state", "RUNNING");
        }
    };
    finds(&url, own_words, &["S4-7", "S4-40"]).await;
    let same_token = |call: &Call, reply: &mut Reply| {
        if let Some(token) = reply.body.pointer_mut("/leases/0/fencingToken").filter(|_| call.is("leases")) {
            *token = json!(7);
        }
    };
    finds(&url, same_token, &["S4-19"]).await;
    let own_records = |call: &Call, reply: &mut Reply| {
        if call.is("history") {
            reply.body["events"][0]["type"] = json!("TaskEnqueued");
        }
    };
    finds(&url, own_records, &["S4-5"]).await;
    let shared = |call: &Call, reply: &mut Reply| {
        let nothing = reply.body["leases"].as_array().is_some_and(Vec::is_empty);
        if call.is("leases") && nothing {
            reply.body = json!({"leases": [{"leaseId": "x", "taskId": "t", "attempt": 1}]});
        }
    };
    finds(&url, shared, &["S4-18", "S4-20", "S4-37"]).await;
    let twice = |call: &Call, reply: &mut Reply| {
        if call.is("leases") && reply.body.pointer("/leases/1").is_some() {
            reply.body["leases"][1] = reply.body["leases"][0].clone();
        }
    };
    finds(&url, twice, &["S4-38"]).await;
    let sticky = |_: &Call, reply: &mut Reply| {
        if reply.body["state"] == "WAITING" {
            set(reply, "lease", json!({"workerId": "w", "attempt": 1}));
        }
    };
    finds(&url, sticky, &["S4-39"]).await;
    let empty = |call: &Call, reply: &mut Reply| {
        if call.path.starts_with("/v1/tasks/") {
            set(reply, "payload", Value::Null);
        }
    };
    finds(&url, empty, &["S4-6", "S4-17"]).await;
    let unexplained = |call: &Call, reply: &mut Reply| {
        if let Some(events) = reply.body["events"].as_array_mut().filter(|_| call.is("history")) {
            events.retain(|event| event["type"] != "LeaseExpired");
        }
    };
    finds(&url, unexplained, &["S0-19", "S4-23", "S4-24"]).await;
}
