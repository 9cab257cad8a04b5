//! Bad input to the claim and the callback contract gets a clear refusal in the words of each, and changes nothing. What
//! can be understood all the same is no reason to lose a report.

use serde_json::{Value, json};

use crate::support::Served;
use crate::support::bad::{
    bad_bodies, bad_counts, bad_field, bad_names, bad_report_bodies, bad_reported_names, refuse_all,
};
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
    for (what, good) in [
        ("heartbeat", beat(&job, "w")),
        ("complete", done(&job, "w", json!(1))),
        ("fail", broken(&job, "w", true)),
    ] {
        let path = format!("/internal/worker/{what}");
        let report = what != "heartbeat";
        let mut list = bad_report_bodies("POST", &path, &good);
        list.extend(bad_names("POST", &path, &good, "worker_id", false));
        for field in ["job_id", "lease_token"] {
            list.push(bad_field("POST", &path, &good, field, "1"));
            list.push(bad_field("POST", &path, &good, field, "null"));
        }
        if report {
            list.push(bad_field("POST", &path, &good, "attempt_id", "1"));
            list.extend(bad_reported_names("POST", &path, &good, "stream"));
            list.extend(bad_reported_names("POST", &path, &good, "message_id"));
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
                "{\"message\":\"x\",\"code\":\"a\\nb\"}",
                "{\"message\":\"x\",\"retryable\":1}",
                "{\"message\":\"x\",\"stack\":1}",
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
    let common = |path: &str, good: &Value| {
        let mut list = bad_report_bodies("POST", path, good);
        list.extend(bad_names("POST", path, good, "workerId", false));
        list.extend(bad_counts("POST", path, good, "attempt"));
        list.push(bad_field("POST", path, good, "worker_id", "\"w\""));
        list
    };
    let mut list = common(&path("started"), &pushed.started());
    list.push(bad_field("POST", &path("started"), &pushed.beat(), "startedAt", "\"yesterday\""));
    list.push(bad_field("POST", &path("started"), &pushed.beat(), "startedAt", "1"));
    refuse_callbacks(&served, &pushed.token, list).await;

    let mut list = common(&path("heartbeat"), &pushed.beat());
    for (field, value) in [
        ("progressPct", "-1"),
        ("progressPct", "100.5"),
        ("progressPct", "\"half\""),
        ("message", "1"),
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
        ("cancelledDuringPhase", "\"x\""),
        ("partialProgress", "{}"),
        ("completedAt", "\"soon\""),
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

/// Workers in some languages write an empty text where they have none.
#[tokio::test]
async fn empty_fields_are_missing_and_lose_no_report() {
    let served = Served::start().await;
    let mut job = served.claimed("w", "q").await;
    (job["stream"], job["message_id"]) = (json!(""), json!(""));
    let told = served.worker_call("complete", done(&job, "w", json!(1))).await;
    assert_eq!(told.status, 200, "{told:?}");
    let mut job = served.claimed("w", "q").await;
    (job["stream"], job["message_id"]) = (json!(""), json!(""));
    let mut body = broken(&job, "w", false);
    body["error"]["code"] = json!("");
    let told = served.worker_call("fail", body).await;
    assert_eq!(told.status, 200, "{told:?}");
    served.shows_error(&job["job_id"], "bad luck").await;

    served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let body = json!({"workerId": "w", "reason": "bad luck", "code": "", "retryable": false});
    let told = served.report(&lease, "fail", body).await;
    assert_eq!(told.status, 200, "{told:?}");
    served.shows_error(&lease["taskId"], "bad luck").await;

    let pushed = served.push("q").await;
    let mut body = pushed.failed("USER_CODE", Some(false));
    body["error"]["code"] = json!("");
    body["cancelledDuringPhase"] = json!("");
    served.call(&pushed, "completed", body).await.is_final("FAILED");
    served.shows_error(&json!(pushed.task), "KeyError: 'missing_column'").await;
}

#[tokio::test]
async fn a_long_message_is_cut_and_loses_no_report() {
    let served = Served::start().await;
    let long = format!("x{}", "ä".repeat(20_000));
    let kept = &long[..16 * 1_024 - 1];

    let job = served.claimed("w", "q").await;
    let mut body = broken(&job, "w", false);
    body["error"] = json!({"message": long, "retryable": false});
    let told = served.worker_call("fail", body).await;
    assert_eq!(told.status, 200, "{told:?}");
    served.shows_error(&job["job_id"], kept).await;

    served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let told = served.report(&lease, "heartbeat", json!({"workerId": "w", "message": long})).await;
    assert_eq!(told.status, 200, "{told:?}");
    served.shows_progress(&lease["taskId"], &long[..1_023]).await;
    let body = json!({"workerId": "w", "reason": long, "retryable": false});
    assert_eq!(served.report(&lease, "fail", body).await.status, 200);
    served.shows_error(&lease["taskId"], kept).await;
    let again = json!({"workerId": "w", "reason": kept, "retryable": false});
    assert_eq!(served.report(&lease, "fail", again).await.status, 200, "what was kept is the same story");

    let pushed = served.push("q").await;
    let mut beat = pushed.beat();
    beat["message"] = json!(long);
    let told = served.call(&pushed, "heartbeat", beat).await;
    assert_eq!(told.status, 200, "{told:?}");
    served.shows_progress(&json!(pushed.task), &long[..1_023]).await;
    let mut body = pushed.failed("USER_CODE", Some(false));
    body["error"]["message"] = json!(long);
    served.call(&pushed, "completed", body).await.is_final("FAILED");
    served.shows_error(&json!(pushed.task), kept).await;
}

impl Served {
    async fn shows_error(&self, task: &Value, message: &str) {
        let task = self.task(task.as_str().unwrap()).await;
        assert_eq!(task["state"], "FAILED", "{task}");
        assert_eq!(task["error"]["message"], message);
        assert!(task["error"]["code"].is_null(), "{task}");
    }

    async fn shows_progress(&self, task: &Value, message: &str) {
        let task = self.task(task.as_str().unwrap()).await;
        assert_eq!(task["progress"]["message"], message);
    }
}
