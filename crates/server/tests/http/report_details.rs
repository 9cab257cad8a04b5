//! The details of a report are stored, displayed and handed to the next attempt; and a report or heartbeat with fields of a
//! newer version is not lost.

use serde_json::json;

use crate::support::Served;
use crate::support::claim::broken;

async fn no_backoff(served: &Served) {
    let config = json!({"backoff": {"initialMs": 0, "jitter": 0}});
    assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
}

#[tokio::test]
async fn details_of_a_failure_are_shown_and_its_partial_progress_reaches_the_next_attempt() {
    let served = Served::start().await;
    no_backoff(&served).await;
    let task = served.submit("q").await;
    let lease = served.lease("w", "q").await;
    assert!(lease["partialProgress"].is_null());
    let error = json!({"category": "TIMEOUT", "code": "E1", "message": "too slow", "stack": "at main"});
    let (metrics, progress) = (json!({"cpuTimeMs": 7}), json!({"records": 12}));
    let body =
        json!({"workerId": "w", "error": error, "metrics": metrics, "partialProgress": progress, "newer": 1});
    assert_eq!(served.report(&lease, "fail", body).await.body["state"], "WAITING");
    let shown = served.task(&task).await;
    assert_eq!(shown["error"]["category"], "TIMEOUT");
    assert_eq!((&shown["error"]["code"], &shown["error"]["message"]), (&json!("E1"), &json!("too slow")));
    assert_eq!((&shown["error"]["stackTrace"], &shown["metrics"]), (&json!("at main"), &metrics));
    let history = served.get(&format!("/v1/tasks/{task}/history")).await.body;
    let failed = &history["events"].as_array().unwrap()[2];
    assert_eq!((&failed["type"], &failed["stackTrace"]), (&json!("TaskFailed"), &json!("at main")));
    assert_eq!((&failed["metrics"], &failed["partialProgress"]), (&metrics, &progress));

    // The second attempt has the progress, fails without any, and the third has it still.
    let lease = served.lease("w", "q").await;
    assert_eq!(lease["partialProgress"], progress);
    served.report(&lease, "fail", json!({"workerId": "w", "reason": "x", "stackTrace": "at f"})).await;
    let lease = served.lease("w", "q").await;
    assert_eq!(lease["partialProgress"], progress);
    let beat = served.report(&lease, "heartbeat", json!({"workerId": "w", "newer": [1]})).await;
    assert_eq!(beat.status, 200, "{beat:?}");
    let metrics = json!({"rows": 3});
    let done = json!({"workerId": "w", "result": 1, "metrics": metrics, "newer": {}});
    assert_eq!(served.report(&lease, "complete", done).await.body["state"], "COMPLETED");
    let shown = served.task(&task).await;
    assert_eq!((&shown["metrics"], shown["partialProgress"].is_null()), (&metrics, true), "{shown}");
}

/// A worker that gave both got a 400, and its report was lost.
#[tokio::test]
async fn a_failure_with_a_reason_and_an_error_is_accepted() {
    let served = Served::start().await;
    for (error, category, code, message) in [
        (json!({"category": "TIMEOUT", "code": "E1", "message": "too slow"}), "TIMEOUT", "E1", "too slow"),
        (json!({"category": "TIMEOUT", "message": ""}), "TIMEOUT", "E2", "the reason"),
        (json!({}), "CONFIGURATION", "E2", "the reason"),
    ] {
        let task = served.submit("q").await;
        let lease = served.lease("w", "q").await;
        let body = json!({"workerId": "w", "reason": "the reason", "category": "CONFIGURATION", "code": "E2",
            "error": error, "retryable": false});
        let told = served.report(&lease, "fail", body).await;
        assert_eq!((told.status, &told.body["verdict"]), (200, &json!("COMMITTED")), "{told:?}");
        let shown = served.task(&task).await["error"].clone();
        assert_eq!(
            (&shown["category"], &shown["code"], &shown["message"]),
            (&json!(category), &json!(code), &json!(message))
        );
    }
}

#[tokio::test]
async fn a_claimed_jobs_stack_is_kept() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    let mut report = broken(&job, "w", false);
    report["error"]["stack"] = json!("at main");
    report["newer"] = json!(true);
    assert_eq!(served.worker_call("fail", report).await.status, 200);
    let shown = served.task(job["job_id"].as_str().unwrap()).await;
    assert_eq!((&shown["state"], &shown["error"]["stackTrace"]), (&json!("FAILED"), &json!("at main")));
}

#[tokio::test]
async fn s1_27_28_29_details_of_callbacks_are_kept() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let mut failed = pushed.failed("DATA_QUALITY", None);
    failed["error"]["stackTrace"] = json!("Traceback");
    failed["metrics"] = json!({"cpuTimeMs": 1, "peakMemoryBytes": 2, "ioReadBytes": 3, "ioWriteBytes": 4});
    failed["newer"] = json!(1);
    assert_eq!(served.call(&pushed, "completed", failed.clone()).await.status, 200);
    let shown = served.task(&pushed.task).await;
    assert_eq!((&shown["error"]["stackTrace"], &shown["metrics"]), (&json!("Traceback"), &failed["metrics"]));

    let pushed = served.push("q").await;
    let asked = served.post(&format!("/v1/tasks/{}/cancel", pushed.task), json!({})).await;
    assert_eq!(asked.status, 200);
    let mut cancelled = pushed.cancelled();
    cancelled["cancelledDuringPhase"] = json!("processing");
    cancelled["partialProgress"] = json!({"recordsProcessed": 50_000});
    assert_eq!(served.call(&pushed, "completed", cancelled.clone()).await.status, 200);
    let shown = served.task(&pushed.task).await;
    assert_eq!((&shown["state"], &shown["cancelledDuringPhase"]), (&json!("DEAD"), &json!("processing")));
    assert_eq!(shown["partialProgress"], cancelled["partialProgress"]);
}

#[tokio::test]
async fn details_have_limits_and_lose_no_report() {
    let served = Served::start().await;
    served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let mut body = json!({"workerId": "w", "reason": "x", "stackTrace": "x".repeat(1 << 20)});
    (body["metrics"], body["partialProgress"]) = (json!("x".repeat(16 << 10)), json!("x".repeat(64 << 10)));
    assert_eq!(served.report(&lease, "fail", body).await.status, 200);
    let shown = served.task(lease["taskId"].as_str().unwrap()).await;
    assert_eq!(shown["error"]["stackTrace"].as_str().unwrap().len(), 32 << 10);
    assert!(shown["metrics"].is_null() && shown["partialProgress"].is_null());
}
