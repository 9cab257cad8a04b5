//! Coordinators that break the callback contract.

use conformance::Contract;
use serde_json::{Value, json};

use crate::mutant::{self, Call, Reply, accept, forget, set};
use crate::{is_found, server};

async fn finds(server: &str, fault: impl Fn(&Call, &mut Reply) + Send + Sync + 'static, numbers: &[&str]) {
    is_found(&mutant::start(server, fault).await, Contract::Callback, numbers).await;
}

fn acknowledged() -> Value {
    json!({"acknowledged": true, "shouldCancel": false, "finalState": "SUCCEEDED",
        "serverTime": "2099-01-01T00:00:00Z"})
}

/// A fault in the envelope.
fn pushes(alter: impl Fn(&mut Reply) + Send + Sync + 'static) -> impl Fn(&Call, &mut Reply) + Send + Sync {
    move |call, reply| {
        if call.is_push() {
            alter(reply);
        }
    }
}

/// A fault in the answers to one call.
fn answers(
    call: &'static str,
    alter: impl Fn(&mut Reply) + Send + Sync + 'static,
) -> impl Fn(&Call, &mut Reply) + Send + Sync {
    move |asked, reply| {
        if asked.is(call) {
            alter(reply);
        }
    }
}

#[tokio::test]
async fn an_envelope_must_have_every_field() {
    let server = server();
    let url = server.url();
    finds(&url, pushes(|reply| forget(reply, "heartbeatTimeoutMs")), &["S1-34", "S1-54"]).await;
    finds(&url, pushes(|reply| set(reply, "heartbeatIntervalMs", 30)), &["S1-33", "S1-54"]).await;
    finds(&url, pushes(|reply| forget(reply, "runId")), &["S1-53", "S1-55"]).await;
    finds(&url, pushes(|reply| set(reply, "dispatchId", "d_1")), &["push"]).await;
    let snake = pushes(|reply| reply.body["task_id"] = reply.body["taskId"].clone());
    finds(&url, snake, &["S1-5"]).await;
    let elsewhere = pushes(|reply| set(reply, "callbackBaseUrl", "http://127.0.0.1:1"));
    finds(&url, elsewhere, &["S1-4"]).await;
    let anything_goes = |call: &Call, reply: &mut Reply| {
        if call.path.starts_with("/v1/queues/") {
            accept(reply, 400, json!({}));
        }
    };
    finds(&url, anything_goes, &["S1-35"]).await;
}

#[tokio::test]
async fn tokens_must_be_checked_and_short() {
    let server = server();
    let url = server.url();
    let open = |call: &Call, reply: &mut Reply| {
        if call.path.starts_with("/v1/tasks/") {
            accept(reply, 401, acknowledged());
        }
    };
    finds(&url, open, &["S1-6", "S1-7", "S1-9", "S1-10"]).await;
    let eternal = pushes(|reply| set(reply, "tokenExpiresAt", "2099-01-01T00:00:00Z"));
    finds(&url, eternal, &["S1-8"]).await;
    let brief = pushes(|reply| set(reply, "tokenExpiresAt", jiff::Timestamp::now().to_string()));
    finds(&url, brief, &["S1-8", "S1-11", "S1-12"]).await;
}

#[tokio::test]
async fn a_start_must_be_refused_when_it_is_too_late() {
    let server = server();
    let url = server.url();
    finds(&url, answers("started", |reply| accept(reply, 409, acknowledged())), &["S1-13", "S1-15", "S1-41"])
        .await;
    finds(&url, answers("started", |reply| forget(reply, "serverTime")), &["S1-1", "S1-14"]).await;
    finds(&url, answers("started", |reply| set(reply, "state", "DEAD")), &["S1-15"]).await;
}

#[tokio::test]
async fn a_heartbeat_must_be_answered_as_written() {
    let server = server();
    let url = server.url();
    finds(&url, answers("heartbeat", |reply| forget(reply, "shouldCancel")), &["S1-2", "S1-19", "S1-20"])
        .await;
    finds(&url, answers("heartbeat", |reply| accept(reply, 400, acknowledged())), &["S1-17"]).await;
    let echoes = |call: &Call, reply: &mut Reply| {
        if let Some(at) = call.body.get("heartbeatAt").filter(|_| call.is("heartbeat")) {
            set(reply, "serverTime", at.clone());
        }
    };
    finds(&url, echoes, &["S1-18"]).await;
    let expired = json!({"error": "task_expired", "message": "x"});
    let hasty = answers("heartbeat", move |reply| *reply = Reply { status: 410, body: expired.clone() });
    finds(&url, hasty, &["S1-37"]).await;
}

#[tokio::test]
async fn a_completion_must_be_answered_as_written() {
    let server = server();
    let url = server.url();
    let own_words = answers("completed", |reply| {
        if reply.body["finalState"] == "SUCCEEDED" {
            set(reply, "finalState", "COMPLETED");
        }
    });
    finds(&url, own_words, &["S1-3", "S1-25", "S1-26", "S1-27", "S1-30"]).await;
    let lenient = answers("completed", |reply| accept(reply, 400, acknowledged()));
    finds(&url, lenient, &["S1-24", "S1-25", "S1-51"]).await;
    let speechless = |_: &Call, reply: &mut Reply| {
        if let Some(message) = reply.body.pointer_mut("/error/message") {
            *message = Value::Null;
        }
    };
    finds(&url, speechless, &["S1-28"]).await;
}

#[tokio::test]
async fn categories_must_decide() {
    let server = server();
    let url = server.url();
    let swapped = answers("completed", |reply| {
        let other = match reply.body["finalState"].as_str() {
            Some("RETRY_WAIT") => "FAILED",
            Some("FAILED") => "RETRY_WAIT",
            _ => return,
        };
        set(reply, "finalState", other);
    });
    finds(&url, swapped, &["S1-45", "S1-46", "S1-47", "S1-48", "S1-49", "S1-50"]).await;
    let at_once = answers("completed", |reply| {
        let now = reply.body["serverTime"].clone();
        set(reply, "retryAt", now);
    });
    finds(&url, at_once, &["S1-49"]).await;
}

#[tokio::test]
async fn a_cancel_must_reach_its_worker_and_end() {
    let server = server();
    let url = server.url();
    finds(&url, answers("heartbeat", |reply| set(reply, "shouldCancel", false)), &["S1-20", "S1-41"]).await;
    finds(&url, answers("heartbeat", |reply| forget(reply, "cancelReason")), &["S1-20"]).await;
    let failed = answers("completed", |reply| {
        if reply.body["finalState"] == "CANCELLED" {
            set(reply, "finalState", "FAILED");
        }
    });
    finds(&url, failed, &["S1-29", "S1-42"]).await;
    let no_reason = |_: &Call, reply: &mut Reply| {
        if reply.body["reason"] == "CANCEL_TIMEOUT" {
            set(reply, "reason", "CANCELLED");
        }
    };
    finds(&url, no_reason, &["S1-43", "S1-44"]).await;
}

#[tokio::test]
async fn silence_must_end_an_attempt() {
    let server = server();
    let url = server.url();
    finds(&url, answers("heartbeat", |reply| accept(reply, 410, acknowledged())), &["S1-22", "S1-38"]).await;
    let no_reason = |_: &Call, reply: &mut Reply| {
        if reply.body["reason"] == "HEARTBEAT_TIMEOUT" {
            set(reply, "reason", "ZOMBIE");
        }
    };
    finds(&url, no_reason, &["S1-39"]).await;
    let hasty = mutant::start_misconfigured(&url, |config| {
        if config.get("heartbeatTimeoutMs").is_some() {
            (config["heartbeatTimeoutMs"], config["heartbeatIntervalMs"]) = (json!(100), json!(30));
        }
    });
    is_found(&hasty.await, Contract::Callback, &["S1-37", "S1-40"]).await;
}

#[tokio::test]
async fn the_attempt_guard_must_hold() {
    let server = server();
    let url = server.url();
    finds(
        &url,
        answers("completed", |reply| accept(reply, 409, acknowledged())),
        &["S1-31", "S1-32", "S1-52"],
    )
    .await;
    finds(&url, answers("completed", |reply| forget(reply, "expectedAttempt")), &["S1-31", "S1-52"]).await;
}
