//! Coordinators that break the claim contract.

use std::collections::HashSet;
use std::sync::Mutex;

use conformance::Contract;
use serde_json::{Map, Value, json};

use crate::mutant::{self, Call, Reply, accept, forget, set};
use crate::{is_found, server};

async fn finds(server: &str, fault: impl Fn(&Call, &mut Reply) + Send + Sync + 'static, numbers: &[&str]) {
    is_found(&mutant::start(server, fault).await, Contract::Claim, numbers).await;
}

/// `jobId` where `job_id` is due.
fn camel(body: &Value) -> Value {
    let Some(fields) = body.as_object() else { return body.clone() };
    let spelt = |name: &String| {
        let mut words = name.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        words.fold(first, |name, word| format!("{name}{}{}", word[..1].to_uppercase(), &word[1..]))
    };
    Value::Object(fields.iter().map(|(name, value)| (spelt(name), value.clone())).collect::<Map<_, _>>())
}

#[tokio::test]
async fn claims_must_be_spelt_and_filled_as_written() {
    let server = server();
    let url = server.url();
    let camel_case = |call: &Call, reply: &mut Reply| {
        if call.path.starts_with("/internal/") {
            reply.body = camel(&reply.body);
        }
    };
    finds(&url, camel_case, &["S2-17", "S2-18", "S2-19", "S2-21", "S2-30"]).await;
    let numbered = |call: &Call, reply: &mut Reply| {
        if call.is("claim") {
            set(reply, "job_id", "job-1");
        }
    };
    finds(&url, numbered, &["S2-30"]).await;
    let in_ms = |call: &Call, reply: &mut Reply| {
        if call.is("claim") {
            set(reply, "lease_ttl_seconds", 60_000);
        }
    };
    finds(&url, in_ms, &["S2-19", "S2-29"]).await;
    let impatient = |call: &Call, reply: &mut Reply| {
        if call.is("claim") {
            *reply = Reply { status: 200, body: json!({"claimed": false}) };
        }
    };
    finds(&url, impatient, &["S2-1", "S2-16"]).await;
    let tokenless = |call: &Call, reply: &mut Reply| {
        if call.is("claim") {
            forget(reply, "lease_token");
        }
    };
    finds(&url, tokenless, &["S2-10"]).await;
    let shared = |call: &Call, reply: &mut Reply| {
        if call.is("claim") && reply.body["claimed"] == false {
            reply.body = json!({"claimed": true, "job_id": "j", "attempt_id": "a", "lease_token": "t"});
        }
    };
    finds(&url, shared, &["S2-6", "S2-9"]).await;
}

#[tokio::test]
async fn heartbeats_must_be_answered_and_guarded() {
    let server = server();
    let url = server.url();
    let beat = |call: &Call| call.is("heartbeat");
    finds(
        &url,
        move |call, reply| {
            if beat(call) {
                forget(reply, "lease_expires_at");
            }
        },
        &["S2-11", "S2-21"],
    )
    .await;
    let any_token = move |call: &Call, reply: &mut Reply| {
        if beat(call) {
            accept(reply, 403, json!({"ok": true, "lease_expires_at": "2099-01-01T00:00:00Z"}));
        }
    };
    finds(&url, any_token, &["S2-11"]).await;
    let still_fine = move |call: &Call, reply: &mut Reply| {
        if beat(call) {
            accept(reply, 409, json!({"ok": true, "lease_expires_at": "2099-01-01T00:00:00Z"}));
        }
    };
    finds(&url, still_fine, &["S2-21"]).await;
    let anything_goes = move |call: &Call, reply: &mut Reply| {
        if beat(call) {
            accept(reply, 400, json!({"ok": true, "lease_expires_at": "2099-01-01T00:00:00Z"}));
        }
    };
    finds(&url, anything_goes, &["S2-20"]).await;
}

#[tokio::test]
async fn a_message_must_be_new_each_time() {
    let server = server();
    let one_message = |call: &Call, reply: &mut Reply| {
        if call.is("claim") {
            set(reply, "message_id", "1-0");
        }
    };
    finds(&server.url(), one_message, &["S2-7", "S2-15"]).await;
    let another_job = |call: &Call, reply: &mut Reply| {
        if call.is("claim") && reply.body["attempt"] == 2 {
            set(reply, "job_id", "01900000-0000-7000-8000-000000000001");
        }
    };
    finds(&server.url(), another_job, &["S2-4", "S2-5"]).await;
    let unsaid = |call: &Call, reply: &mut Reply| {
        if call.is("complete") {
            set(reply, "ack", false);
        }
    };
    finds(&server.url(), unsaid, &["S2-12", "S2-23", "S2-27"]).await;
}

#[tokio::test]
async fn a_failure_must_be_requeued_or_a_dead_letter() {
    let server = server();
    let both = |call: &Call, reply: &mut Reply| {
        if call.is("fail") {
            set(reply, "requeued", true);
            set(reply, "dlq", true);
        }
    };
    finds(&server.url(), both, &["S2-24", "S2-25"]).await;
}

#[tokio::test]
async fn what_is_late_or_foreign_must_not_be_accepted() {
    let server = server();
    let url = server.url();
    let report = |call: &Call| call.is("complete") || call.is("fail");
    let too_kind = move |call: &Call, reply: &mut Reply| {
        if report(call) {
            accept(reply, 409, json!({"ok": true, "ack": true}));
        }
    };
    finds(&url, too_kind, &["S2-13", "S2-14", "S2-28"]).await;
    let any_token = move |call: &Call, reply: &mut Reply| {
        if report(call) {
            accept(reply, 403, json!({"ok": true, "ack": true}));
        }
    };
    finds(&url, any_token, &["S2-28"]).await;
    let acknowledged = move |call: &Call, reply: &mut Reply| {
        if report(call) {
            set(reply, "ack", true);
        }
    };
    finds(&url, acknowledged, &["S2-22", "S2-24", "S2-28"]).await;
    let never_acknowledged = move |call: &Call, reply: &mut Reply| {
        if report(call) && reply.status == 409 {
            set(reply, "ack", false);
        }
    };
    finds(&url, never_acknowledged, &["S2-13"]).await;
}

/// What was accepted once is a conflict the second time, as with a coordinator that forgets its leases.
#[tokio::test]
async fn repeats_must_be_answered_alike() {
    let server = server();
    let seen = Mutex::new(HashSet::new());
    let forgetful = move |call: &Call, reply: &mut Reply| {
        let is_report = call.is("complete") || call.is("fail");
        let is_new = || seen.lock().unwrap().insert(call.body["attempt_id"].to_string());
        if is_report && reply.status == 200 && !is_new() {
            *reply = Reply { status: 409, body: json!({"ok": false, "ack": true}) };
        }
    };
    finds(&server.url(), forgetful, &["S2-2", "S2-26", "S2-28"]).await;
}
