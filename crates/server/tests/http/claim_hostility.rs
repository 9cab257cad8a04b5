//! Workers of the claim contract that repeat themselves, come late, make things up or act for others.

use serde_json::{Value, json};

use crate::support::claim::{beat, broken, done};
use crate::support::{Served, Told, send};

async fn release(served: &Served, job: &Value, worker: &str) {
    let path = format!("/v1/leases/{}/release", job["lease_token"].as_str().unwrap());
    assert_eq!(served.post(&path, json!({"workerId": worker})).await.status, 200);
}

/// Also S2-2, S2-26: a repeat after a lost answer gets the answer again, however often it comes.
#[tokio::test]
async fn s2_28_a_repeated_report_is_answered_alike_and_records_nothing() {
    let served = Served::start().await;
    let completed = served.claimed("w", "q").await;
    let first = served.worker_call("complete", done(&completed, "w", json!({"a": 1, "b": 2}))).await;
    let failed = served.claimed("w", "q").await;
    let told = served.worker_call("fail", broken(&failed, "w", true)).await;
    let position = served.position().await;
    for _ in 0..3 {
        let again = served.worker_call("complete", done(&completed, "w", json!({"b": 2.0, "a": 1}))).await;
        assert_eq!((again.status, again.body), (200, first.body.clone()));
        let again = served.worker_call("fail", broken(&failed, "w", true)).await;
        assert_eq!((again.status, again.body), (200, told.body.clone()));
    }
    let mut other_stack = broken(&failed, "w", true);
    other_stack["error"]["stack"] = json!("at line 2");
    other_stack["message_id"] = json!("7-0");
    let again = served.worker_call("fail", other_stack).await;
    assert_eq!((again.status, again.body), (200, told.body), "a duplicate message carries the same report");
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn s2_28_another_story_of_the_same_attempt_is_a_conflict_and_is_not_acknowledged() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    assert_eq!(served.worker_call("complete", done(&job, "w", json!(1))).await.status, 200);
    let position = served.position().await;
    let other = served.worker_call("complete", done(&job, "w", json!(2))).await;
    other.is_unclaimed(409, "another_story", false);
    let failed = served.worker_call("fail", broken(&job, "w", true)).await;
    failed.is_unclaimed(409, "another_story", false);
    assert_eq!(failed.body["verdict"], "REJECTED");
    assert_eq!(served.position().await, position);
    assert_eq!(served.task(job["job_id"].as_str().unwrap()).await["result"], 1);
}

#[tokio::test]
async fn s2_28_a_stale_report_is_discarded_and_its_message_is_done_with() {
    let served = Served::start().await;
    let old = served.claimed("w", "q").await;
    release(&served, &old, "w").await;
    let late = served.worker_call("complete", done(&old, "w", json!("old"))).await;
    late.is_unclaimed(409, "lease_lost", true);
    assert_eq!(late.body["verdict"], "CANCELLED");
    let new = served.claim("v", &["q"]).await;
    assert_eq!((&new["job_id"], &new["attempt"]), (&old["job_id"], &json!(2)));
    let position = served.position().await;
    for _ in 0..3 {
        let again = served.worker_call("complete", done(&old, "w", json!("old"))).await;
        again.is_unclaimed(409, "lease_lost", true);
    }
    assert_eq!(served.position().await, position, "a late report is recorded once");
    let told = served.worker_call("complete", done(&new, "v", json!("new"))).await;
    assert_eq!(told.body, json!({"ok": true, "ack": true}));
    assert_eq!(served.task(old["job_id"].as_str().unwrap()).await["result"], "new");
}

/// A report whose parts do not belong together, and what it is told.
fn mixed(good: &Value, field: &str, value: Value) -> Value {
    let mut body = good.clone();
    body[field] = value;
    body
}

#[track_caller]
fn is_forbidden(told: &Told, code: &str) {
    told.is_unclaimed(403, code, false);
}

#[tokio::test]
async fn s2_28_forged_foreign_and_crossed_tokens_change_nothing() {
    let served = Served::start().await;
    let (job, other) = (served.claimed("w", "q").await, served.claimed("w", "q").await);
    let position = served.position().await;
    let token = job["lease_token"].as_str().unwrap();
    let forged = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { "B" } else { "A" });
    for (what, good) in [
        ("heartbeat", beat(&job, "w")),
        ("complete", done(&job, "w", json!(1))),
        ("fail", broken(&job, "w", true)),
    ] {
        for bad in [json!(forged), json!(""), json!("x".repeat(10_000))] {
            is_forbidden(&served.worker_call(what, mixed(&good, "lease_token", bad)).await, "bad_lease_id");
        }
        is_forbidden(&served.worker_call(what, mixed(&good, "worker_id", json!("v"))).await, "bad_lease_id");
        for id in [other["job_id"].clone(), json!("nope"), json!("01900000-0000-7000-8000-000000000001")] {
            is_forbidden(&served.worker_call(what, mixed(&good, "job_id", id)).await, "wrong_task");
        }
        let swapped = mixed(&good, "lease_token", other["lease_token"].clone());
        is_forbidden(&served.worker_call(what, swapped).await, "wrong_task");
        for header in ["lessor-tenant", "lessor-workspace"] {
            let call = served.request("POST", &format!("/internal/worker/{what}")).header(header, "other");
            is_forbidden(&send(call.json(&good)).await, "bad_lease_id");
            let call = served.request("POST", &format!("/internal/worker/{what}")).header(header, "");
            send(call.json(&good)).await.is_unclaimed(400, "invalid_scope", false);
        }
    }
    assert_eq!(served.position().await, position);
    assert_eq!(served.worker_call("complete", done(&job, "w", json!(1))).await.status, 200);
}

#[tokio::test]
async fn s2_28_an_attempt_that_does_not_match_the_token_is_refused() {
    let served = Served::start().await;
    let old = served.claimed("w", "q").await;
    release(&served, &old, "w").await;
    let new = served.claim("w", &["q"]).await;
    let position = served.position().await;
    let task = new["job_id"].as_str().unwrap();
    for (what, good) in [("complete", done(&new, "w", json!(1))), ("fail", broken(&new, "w", true))] {
        for id in [old["attempt_id"].clone(), json!(""), json!("2"), json!(format!("{task}:3"))] {
            is_forbidden(&served.worker_call(what, mixed(&good, "attempt_id", id)).await, "wrong_attempt");
        }
        // The token of the old attempt does not speak for the new one either.
        let stale = mixed(&good, "lease_token", old["lease_token"].clone());
        is_forbidden(&served.worker_call(what, stale).await, "wrong_attempt");
    }
    assert_eq!(served.position().await, position);
    assert_eq!(served.worker_call("complete", done(&new, "w", json!(1))).await.status, 200);
}

#[tokio::test]
async fn a_report_on_a_job_that_is_not_there_is_refused() {
    let (one, other) = (Served::start().await, Served::start().await);
    let job = one.claimed("w", "q").await;
    for (what, body) in [
        ("heartbeat", beat(&job, "w")),
        ("complete", done(&job, "w", json!(1))),
        ("fail", broken(&job, "w", true)),
    ] {
        other.worker_call(what, body).await.is_unclaimed(404, "unknown_task", false);
    }
}

#[tokio::test]
async fn reports_that_come_in_the_wrong_order_settle_on_the_first() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    assert_eq!(served.worker_call("fail", broken(&job, "w", false)).await.body["dlq"], true);
    served.worker_call("heartbeat", beat(&job, "w")).await.is_unclaimed(409, "lease_lost", true);
    let late = served.worker_call("complete", done(&job, "w", json!(1))).await;
    late.is_unclaimed(409, "another_story", false);
    assert_eq!(served.task(job["job_id"].as_str().unwrap()).await["state"], "FAILED");
}

/// N8: a worker that hung up while it waited does not keep the job.
#[tokio::test]
async fn a_claim_whose_worker_hung_up_loses_no_job() {
    let served = Served::start().await;
    let body = json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 60_000});
    let gone = tokio::spawn(send(served.request("POST", "/internal/worker/claim").json(&body)));
    while served.running.handle.status().await.unwrap().polls == 0 {
        tokio::task::yield_now().await;
    }
    gone.abort();
    let _ = gone.await;
    let task = served.submit("q").await;
    let body = json!({"worker_id": "v", "streams": ["q"], "max_wait_ms": 30_000});
    let job = served.worker_call("claim", body).await.body;
    assert_eq!((&job["claimed"], &job["job_id"]), (&json!(true), &json!(task)), "{job}");
}
