//! The answers to a hostile worker that only the callback contract has: which attempt it expects. The rest is in the table of
//! tests/hostile.

use serde_json::json;

use crate::support::callback::Pushed;
use crate::support::{Served, send};

/// A queue with attempts to spare and no pause between them.
async fn patient() -> Served {
    let served = Served::start().await;
    let config = json!({"maxAttempts": 5, "backoff": {"initialMs": 0, "jitter": 0}});
    assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
    served
}

/// The first attempt failed, and the second one is on its way.
async fn second_attempt(served: &Served) -> (Pushed, Pushed) {
    let first = served.push("q").await;
    served.call(&first, "completed", first.failed("USER_CODE", None)).await.is_final("RETRY_WAIT");
    let second = served.push_next("q").await;
    assert_eq!((&second.task, second.attempt()), (&first.task, 2));
    (first, second)
}

/// What only this contract has is no part of a report: another stack, phase or metric is still the same report.
#[tokio::test]
async fn s0_26_a_repeat_with_other_metrics_is_a_repeat() {
    let served = patient().await;
    let pushed = served.push("q").await;
    served.call(&pushed, "completed", pushed.failed("DATA_QUALITY", None)).await.is_final("FAILED");
    let mut again = pushed.failed("DATA_QUALITY", Some(true));
    again["error"]["stackTrace"] = json!("at line 2");
    again["metrics"] = json!({"cpuTimeMs": 7});
    again["completedAt"] = json!("2025-01-15T10:15:00Z");
    served.call(&pushed, "completed", again).await.is_final("FAILED");
}

/// Also S1-10, S1-32, S1-52: an attempt that is over changes nothing, whatever it says.
#[tokio::test]
async fn s1_31_an_older_attempt_is_a_mismatch() {
    let served = patient().await;
    let (first, second) = second_attempt(&served).await;
    let position = served.position().await;
    served.call(&first, "started", first.started()).await.is_mismatch(2, 1);
    served.call(&first, "heartbeat", first.beat()).await.is_mismatch(2, 1);
    // It already reported a failure, so this is another story.
    let other = served.call(&first, "completed", first.succeeded(json!("old"))).await;
    other.is_refused(409, "attempt_already_completed");
    // A token does not speak for another attempt, in either direction.
    for (pushed, said, expected, received) in
        [(&first, 2, 2, 1), (&second, 1, 2, 1), (&second, 3, 2, 3), (&first, 0, 2, 0)]
    {
        for (what, mut body) in [
            ("started", pushed.started()),
            ("heartbeat", pushed.beat()),
            ("completed", pushed.succeeded(json!("x"))),
        ] {
            body["attempt"] = json!(said);
            served.call(pushed, what, body).await.is_mismatch(expected, received);
        }
    }
    assert_eq!(served.position().await, position);
    served.call(&second, "completed", second.succeeded(json!("new"))).await.is_final("SUCCEEDED");
    served.call(&first, "heartbeat", first.beat()).await.is_mismatch(2, 1);
    assert_eq!(served.task(&first.task).await["result"], "new");
}

/// While no attempt runs, the next one is expected.
#[tokio::test]
async fn s1_52_an_attempt_that_expired_is_not_the_expected_one() {
    let served = patient().await;
    assert_eq!(served.put("/v1/queues/slow", json!({"leaseMs": 100, "maxAttempts": 2})).await.status, 200);
    let slow = served.push("slow").await;
    while served.task(&slow.task).await["state"] == "LEASED" {
        tokio::task::yield_now().await;
    }
    served.call(&slow, "completed", slow.succeeded(json!(1))).await.is_mismatch(2, 1);
    served.call(&slow, "started", slow.started()).await.is_mismatch(2, 1);
    served.call(&slow, "heartbeat", slow.beat()).await.is_refused(410, "task_expired");
}

#[tokio::test]
async fn a_server_that_cannot_record_accepts_nothing() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let (address, client) = (served.address, served.client.clone());
    let bodies = [
        ("started", pushed.started()),
        ("heartbeat", pushed.beat()),
        ("completed", pushed.succeeded(json!(1))),
    ];
    let Served { running, .. } = served;
    running.stop().await.unwrap();
    for (what, body) in bodies {
        let call = client.post(format!("http://{address}/v1/tasks/{}/{what}", pushed.task));
        let told = send(call.bearer_auth(&pushed.token).json(&body)).await;
        told.is_refused(503, "not_serving");
        assert!(told.headers.contains_key("retry-after"), "{told:?}");
    }
}
