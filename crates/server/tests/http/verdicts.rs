//! The worker protocol over the wire: every answer to a report, with its status and its verdict.

use crate::support::{Served, Told, path, send};
use serde_json::{Value, json};

fn done(lease: &Value, result: Value) -> Value {
    json!({"workerId": "w", "taskId": lease["taskId"], "result": result})
}

#[track_caller]
fn is_committed(told: &Told, state: &str) {
    assert_eq!(told.status, 200, "{told:?}");
    assert_eq!(
        (told.body["verdict"].as_str(), told.body["state"].as_str()),
        (Some("COMMITTED"), Some(state)),
        "{told:?}"
    );
}

#[track_caller]
fn is_cancelled(told: &Told) {
    told.is_problem(409, "lease_lost");
    assert_eq!(told.body["verdict"], "CANCELLED", "{told:?}");
}

#[track_caller]
fn is_rejected(told: &Told, status: u16, code: &str) {
    told.is_problem(status, code);
    assert_eq!(told.body["verdict"], "REJECTED", "{told:?}");
}

/// A task that was submitted and leased to `w`.
async fn leased(served: &Served) -> Value {
    served.submit("q").await;
    served.lease("w", "q").await
}

#[tokio::test]
async fn s0_3_a_worker_leases_beats_and_completes() {
    lease_beat_and_complete().await;
}

#[tokio::test]
async fn a_worker_leases_beats_and_completes_at_a_node_that_does_not_own_the_ledger() {
    crate::support::nodes::through_an_edge(lease_beat_and_complete()).await;
}

async fn lease_beat_and_complete() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let lease = served.lease("w", "q").await;
    assert_eq!((lease["taskId"].as_str(), lease["attempt"].as_u64()), (Some(task.as_str()), Some(1)));
    assert_eq!((lease["queue"].as_str(), &lease["payload"]), (Some("q"), &json!({"n": 1})));
    assert_eq!(lease["heartbeatIntervalMs"], 20_000);
    assert!(lease["fencingToken"].as_u64().unwrap() > 0);

    let beat =
        served.report(&lease, "heartbeat", json!({"workerId": "w", "progressPct": 50.5, "message": "half"}));
    let beat = beat.await;
    assert_eq!((beat.status, beat.body["shouldCancel"].as_bool()), (200, Some(false)), "{beat:?}");
    assert!(beat.body["cancelReason"].is_null() && beat.body["expiresAt"].is_string());
    let shown = served.get(&format!("/v1/tasks/{task}")).await.body;
    assert_eq!(
        (&shown["progress"]["progressPct"], &shown["progress"]["message"]),
        (&json!(50.5), &json!("half"))
    );
    assert_eq!((&shown["lease"]["workerId"], &shown["lease"]["attempt"]), (&json!("w"), &json!(1)));
    assert!(shown["lease"]["leaseId"].is_null(), "the lease id is its worker's alone");

    is_committed(&served.report(&lease, "complete", done(&lease, json!({"sum": 3}))).await, "COMPLETED");
    let shown = served.get(&format!("/v1/tasks/{task}")).await.body;
    assert_eq!((shown["state"].as_str(), &shown["result"]), (Some("COMPLETED"), &json!({"sum": 3})));
    assert!(shown["finishedAt"].is_string() && shown["lease"].is_null());
}

#[tokio::test]
async fn s0_26_a_repeated_report_is_committed_again_and_records_nothing() {
    let served = Served::start().await;
    let lease = leased(&served).await;
    is_committed(
        &served.report(&lease, "complete", done(&lease, json!({"a": 1, "b": [2]}))).await,
        "COMPLETED",
    );
    let position = served.position().await;
    let respelt =
        format!(r#"{{"result": {{"b":[2.0], "a":1}}, "workerId":"w","taskId":{}}}"#, lease["taskId"]);
    is_committed(&served.raw("POST", &path(&lease, "complete"), respelt).await, "COMPLETED");
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn s0_14_another_story_of_the_same_attempt_is_rejected() {
    let served = Served::start().await;
    let lease = leased(&served).await;
    is_committed(&served.report(&lease, "complete", done(&lease, json!(1))).await, "COMPLETED");
    let position = served.position().await;
    is_rejected(&served.report(&lease, "complete", done(&lease, json!(2))).await, 409, "conflicting_report");
    let failed = json!({"workerId": "w", "reason": "no"});
    is_rejected(&served.report(&lease, "fail", failed).await, 409, "conflicting_report");
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn s0_10_a_report_without_authority_is_cancelled() {
    let served = Served::start().await;
    let old = leased(&served).await;
    let released = served.report(&old, "release", json!({"workerId": "w", "taskId": old["taskId"]})).await;
    assert_eq!((released.status, released.body["state"].as_str()), (200, Some("WAITING")), "{released:?}");
    is_cancelled(&served.report(&old, "complete", done(&old, json!(1))).await);

    let new = served.lease("v", "q").await;
    assert_eq!((&new["taskId"], new["attempt"].as_u64()), (&old["taskId"], Some(2)));
    assert!(new["fencingToken"].as_u64() > old["fencingToken"].as_u64());
    is_cancelled(&served.report(&old, "complete", done(&old, json!(1))).await);
    let told = served.report(&new, "complete", json!({"workerId": "v", "result": 2})).await;
    is_committed(&told, "COMPLETED");
}

#[tokio::test]
async fn s0_20_an_expired_lease_is_never_revived() {
    let served = Served::start().await;
    let put = served.put("/v1/queues/short", json!({"leaseMs": 100, "maxAttempts": 1})).await;
    assert_eq!(put.status, 200, "{put:?}");
    let task = served.submit("short").await;
    let lease = served.lease("w", "short").await;
    assert_eq!(lease["heartbeatIntervalMs"], 33);
    let ended = served.get(&format!("/v1/tasks/{task}?waitMs=30000")).await.body;
    assert_eq!(
        (ended["state"].as_str(), ended["reason"].as_str()),
        (Some("DEAD"), Some("HEARTBEAT_TIMEOUT"))
    );
    served.report(&lease, "heartbeat", json!({"workerId": "w"})).await.is_problem(410, "lease_gone");
    is_cancelled(&served.report(&lease, "complete", done(&lease, json!(1))).await);
    let position = served.position().await;
    is_cancelled(&served.report(&lease, "complete", done(&lease, json!(1))).await);
    assert_eq!(served.position().await, position, "a lost lease is recorded once");
}

#[tokio::test]
async fn s0_14_invalid_reports_are_rejected_and_change_nothing() {
    let served = Served::start().await;
    let lease = leased(&served).await;
    let other = leased(&served).await;
    let position = served.position().await;
    let id = lease["leaseId"].as_str().unwrap();
    let forged =
        json!({"leaseId": format!("{}{}", &id[..id.len() - 1], if id.ends_with('A') { "B" } else { "A" })});
    for what in ["complete", "fail", "release"] {
        let with = |worker: &str, task: &Value| {
            let mut body = json!({"workerId": worker, "taskId": task});
            if what == "fail" {
                body["reason"] = json!("x");
            }
            body
        };
        let mine = &lease["taskId"];
        is_rejected(&served.report(&forged, what, with("w", mine)).await, 403, "bad_lease_id");
        is_rejected(
            &served.report(&json!({"leaseId": "x"}), what, with("w", mine)).await,
            403,
            "bad_lease_id",
        );
        is_rejected(&served.report(&lease, what, with("v", mine)).await, 403, "bad_lease_id");
        is_rejected(&served.report(&lease, what, with("w", &other["taskId"])).await, 403, "wrong_task");
        is_rejected(&served.report(&lease, what, with("w", &json!("nope"))).await, 403, "wrong_task");
        is_rejected(&served.raw("POST", &path(&lease, what), "{").await, 400, "malformed_json");
        is_rejected(&served.raw("POST", &path(&lease, what), "{}").await, 400, "invalid_field");
        is_rejected(&served.report(&lease, what, with("", mine)).await, 400, "invalid_field");
        let foreign = served.request("POST", &path(&lease, what)).header("lessor-tenant", "other");
        is_rejected(&send(foreign.json(&with("w", mine))).await, 403, "bad_lease_id");
        let nameless = served.request("POST", &path(&lease, what)).header("lessor-tenant", "");
        is_rejected(&send(nameless.json(&with("w", mine))).await, 400, "invalid_scope");
    }
    let large = json!({"workerId": "w", "result": "x".repeat(1 << 20)});
    is_rejected(&served.report(&lease, "complete", large).await, 413, "payload_too_large");
    assert_eq!(served.position().await, position);
    is_committed(&served.report(&lease, "complete", done(&lease, json!(1))).await, "COMPLETED");
}

#[tokio::test]
async fn s0_14_a_report_on_a_task_that_is_not_there_is_rejected() {
    let (one, other) = (Served::start().await, Served::start().await);
    let lease = leased(&one).await;
    is_rejected(&other.report(&lease, "complete", done(&lease, json!(1))).await, 404, "unknown_task");
    is_rejected(
        &other.report(&lease, "fail", json!({"workerId": "w", "reason": "x"})).await,
        404,
        "unknown_task",
    );
    // The lease id is genuine: a worker that only beats is told to stop, as for any lease that is gone.
    other.report(&lease, "heartbeat", json!({"workerId": "w"})).await.is_problem(410, "lease_gone");
}

#[tokio::test]
async fn s0_25_a_failure_is_retried_as_the_policy_says() {
    let served = Served::start().await;
    let config = json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}});
    assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
    let lease = leased(&served).await;
    let body =
        json!({"workerId": "w", "taskId": lease["taskId"], "reason": "bad luck", "category": "USER_CODE"});
    let told = served.report(&lease, "fail", body.clone()).await;
    is_committed(&told, "WAITING");
    assert!(told.body["retryAt"].is_string(), "{told:?}");
    is_committed(&served.report(&lease, "fail", body.clone()).await, "WAITING");

    let again = served.lease("w", "q").await;
    let told = served.report(&again, "fail", body).await;
    is_committed(&told, "FAILED");
    assert!(told.body["retryAt"].is_null(), "{told:?}");
    let shown = served.get(&format!("/v1/tasks/{}", lease["taskId"].as_str().unwrap())).await.body;
    assert_eq!(
        (shown["reason"].as_str(), shown["reasonDetail"].as_str()),
        (Some("USER_CODE"), Some("bad luck"))
    );
    assert_eq!(shown["error"], json!({"category": "USER_CODE", "code": null, "message": "bad luck"}));
    assert_eq!((shown["attempt"].as_u64(), shown["maxAttempts"].as_u64()), (Some(2), Some(2)));
}

#[tokio::test]
async fn an_error_that_is_not_worth_a_retry_is_final() {
    let served = Served::start().await;
    for body in [
        json!({"workerId": "w", "reason": "x", "category": "CONFIGURATION"}),
        json!({"workerId": "w", "reason": "x", "category": "USER_CODE", "retryable": false}),
    ] {
        let lease = leased(&served).await;
        is_committed(&served.report(&lease, "fail", body).await, "FAILED");
    }
    assert_eq!(served.put("/v1/queues/q", json!({"retryOn": ["TIMEOUT"]})).await.status, 200);
    let lease = leased(&served).await;
    let body = json!({"workerId": "w", "reason": "x", "category": "USER_CODE", "retryable": true});
    is_committed(&served.report(&lease, "fail", body).await, "FAILED");
}

#[tokio::test]
async fn a_cancelled_worker_is_told_and_its_failure_ends_the_task() {
    let served = Served::start().await;
    let lease = leased(&served).await;
    let task = lease["taskId"].as_str().unwrap();
    let told = served.post(&format!("/v1/tasks/{task}/cancel"), json!({"reason": "changed my mind"})).await;
    assert_eq!((told.status, told.body["state"].as_str()), (200, Some("LEASED")), "{told:?}");
    assert_eq!(told.body["cancelRequested"]["reason"], "changed my mind");
    let beat = served.report(&lease, "heartbeat", json!({"workerId": "w"})).await;
    assert_eq!(beat.body["shouldCancel"], true);
    assert_eq!(beat.body["cancelReason"], "changed my mind");
    let told =
        served.report(&lease, "fail", json!({"workerId": "w", "reason": "stopped", "category": "CANCELLED"}));
    is_committed(&told.await, "DEAD");
}

#[tokio::test]
async fn a_repeated_request_id_gets_the_same_lease_again() {
    let served = Served::start().await;
    served.submit("q").await;
    served.submit("q").await;
    let body = json!({"workerId": "w", "queues": ["q"], "waitMs": 0, "requestId": "r1"});
    let first = served.post("/v1/leases", body.clone()).await.body;
    let again = served.post("/v1/leases", body).await.body;
    assert_eq!(first["leases"].as_array().unwrap().len(), 1);
    assert_eq!(first, again);
}

#[tokio::test]
async fn a_missing_result_and_null_are_the_same_report() {
    let served = Served::start().await;
    let lease = leased(&served).await;
    is_committed(&served.report(&lease, "complete", json!({"workerId": "w"})).await, "COMPLETED");
    let told = served.report(&lease, "complete", json!({"workerId": "w", "result": null})).await;
    is_committed(&told, "COMPLETED");
}
