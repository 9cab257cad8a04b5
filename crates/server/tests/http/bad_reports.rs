//! Bad input to the claim and the callback contract gets a clear refusal in the words of each, and changes nothing.

use serde_json::{Value, json};

use crate::support::Served;
use crate::support::bad::{bad_bodies, bad_counts, bad_field, bad_names, refuse_all};
use crate::support::callback::refuse_callbacks;
use crate::support::claim::{beat, broken, done};

const CLAIM: &str = "/internal/worker/claim";

#[tokio::test]
async fn bad_claims_are_refused() {
    let served = Served::start().await;
    served.submit("q").await;
    let good = json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 0});
    let mut list = bad_bodies("POST", CLAIM, &good, false);
    list.extend(bad_names("POST", CLAIM, &good, "worker_id", false));
    list.extend(bad_names("POST", CLAIM, &good, "request_id", true));
    list.extend(bad_counts("POST", CLAIM, &good, "max_wait_ms"));
    let many = json!(vec!["q"; 101]).to_string();
    for (field, value) in [
        ("streams", "[]"),
        ("streams", "\"q\""),
        ("streams", "[1]"),
        ("streams", "[\"\"]"),
        ("streams", "[\"a\\u0000\"]"),
        ("streams", &many),
        ("properties", "[]"),
        ("properties", "{\"os\":1}"),
        ("workerId", "\"w\""),
    ] {
        list.push(bad_field("POST", CLAIM, &good, field, value));
    }
    refuse_all(&served, list, false).await;
}

#[tokio::test]
async fn bad_calls_about_a_job_are_refused() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    let large = format!("\"{}\"", "x".repeat(20_000));
    for (what, good) in [
        ("heartbeat", beat(&job, "w")),
        ("complete", done(&job, "w", json!(1))),
        ("fail", broken(&job, "w", true)),
    ] {
        let path = format!("/internal/worker/{what}");
        let report = what != "heartbeat";
        let mut list = bad_bodies("POST", &path, &good, false);
        list.extend(bad_names("POST", &path, &good, "worker_id", false));
        for field in ["job_id", "lease_token"] {
            list.push(bad_field("POST", &path, &good, field, "1"));
            list.push(bad_field("POST", &path, &good, field, "null"));
        }
        if report {
            list.push(bad_field("POST", &path, &good, "attempt_id", "1"));
            list.extend(bad_names("POST", &path, &good, "stream", true));
            list.extend(bad_names("POST", &path, &good, "message_id", true));
        }
        if what == "fail" {
            for value in [
                "null",
                "1",
                "\"x\"",
                "[]",
                "[\"E1\",\"x\",\"y\",true]",
                "{}",
                "{\"message\":1}",
                "{\"message\":\"x\",\"code\":\"\"}",
                "{\"message\":\"x\",\"retryable\":1}",
                "{\"message\":\"x\",\"stack\":1}",
                "{\"message\":\"x\",\"category\":\"TIMEOUT\"}",
                &format!("{{\"message\":{large}}}"),
            ] {
                list.push(bad_field("POST", &path, &good, "error", value));
            }
        }
        refuse_all(&served, list, report).await;
    }
    let result = json!("x".repeat(1 << 20));
    let told = served.worker_call("complete", done(&job, "w", result)).await;
    told.is_unclaimed(413, "payload_too_large", false);
    let stack = format!("at {}", "x".repeat(100_000));
    let mut body = broken(&job, "w", true);
    body["error"]["stack"] = json!(stack);
    assert_eq!(
        served.worker_call("fail", body).await.status,
        200,
        "a long stack is no reason to lose a report"
    );
}

#[tokio::test]
async fn bad_callbacks_are_refused() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let path = |what: &str| format!("/v1/tasks/{}/{what}", pushed.task);
    let time = "\"2025-01-15T10:00:00Z\"";
    let common = |path: &str, good: &Value| {
        let mut list = bad_bodies("POST", path, good, false);
        list.extend(bad_names("POST", path, good, "workerId", false));
        list.extend(bad_counts("POST", path, good, "attempt"));
        list.push(bad_field("POST", path, good, "worker_id", "\"w\""));
        list
    };
    let mut list = common(&path("started"), &pushed.started());
    list.push(bad_field("POST", &path("started"), &pushed.beat(), "startedAt", "\"yesterday\""));
    list.push(bad_field("POST", &path("started"), &pushed.beat(), "startedAt", "1"));
    list.push(bad_field("POST", &path("started"), &pushed.beat(), "heartbeatAt", time));
    refuse_callbacks(&served, &pushed.token, list).await;

    let mut list = common(&path("heartbeat"), &pushed.beat());
    for (field, value) in [
        ("progressPct", "-1"),
        ("progressPct", "100.5"),
        ("progressPct", "\"half\""),
        ("message", "1"),
        ("message", &format!("\"{}\"", "x".repeat(20_000))),
        ("heartbeatAt", "\"10:00\""),
    ] {
        list.push(bad_field("POST", &path("heartbeat"), &pushed.beat(), field, value));
    }
    refuse_callbacks(&served, &pushed.token, list).await;

    let (path, good) = (path("completed"), pushed.succeeded(json!(1)));
    let mut list = common(&path, &good);
    for (field, value) in [
        ("outcome", "null"),
        ("outcome", "\"DONE\""),
        ("outcome", "\"succeeded\""),
        ("error", "{\"category\":\"USER_CODE\",\"message\":\"x\"}"),
        ("error", "[\"USER_CODE\",\"x\"]"),
        ("metrics", "{\"cpuTimeMs\":-1}"),
        ("metrics", "{\"cpuTimeMs\":\"1\"}"),
        ("metrics", "{\"fans\":1}"),
        ("metrics", "[1]"),
        ("cancelledDuringPhase", "\"x\""),
        ("partialProgress", "{}"),
        ("completedAt", "\"soon\""),
        ("finalState", "\"SUCCEEDED\""),
    ] {
        list.push(bad_field("POST", &path, &good, field, value));
    }
    let failed = pushed.failed("USER_CODE", None);
    for value in [
        "null",
        "{}",
        "{\"message\":\"x\"}",
        "{\"category\":\"USER_CODE\"}",
        "{\"category\":\"MOOD\",\"message\":\"x\"}",
        "{\"category\":\"USER_CODE\",\"message\":\"x\",\"retryable\":\"yes\"}",
        "{\"category\":\"USER_CODE\",\"message\":\"x\",\"stack\":\"y\"}",
    ] {
        list.push(bad_field("POST", &path, &failed, "error", value));
    }
    list.push(bad_field("POST", &path, &failed, "output", "1"));
    list.push(bad_field("POST", &path, &pushed.cancelled(), "output", "1"));
    list.push(bad_field("POST", &path, &pushed.cancelled(), "cancelledDuringPhase", "1"));
    refuse_callbacks(&served, &pushed.token, list).await;
    let large = pushed.succeeded(json!("x".repeat(1 << 20)));
    served.call(&pushed, "completed", large).await.is_refused(413, "payload_too_large");
    served.call(&pushed, "completed", good).await.is_final("SUCCEEDED");
}
