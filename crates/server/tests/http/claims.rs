//! The claim contract over the wire, requirement by requirement.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::claim::{beat, broken, done};
use crate::support::{Served, send};

async fn kinds(served: &Served, job: &Value) -> Vec<String> {
    let path = format!("/v1/tasks/{}/history", job["job_id"].as_str().unwrap());
    let events = served.get(&path).await.body["events"].clone();
    events.as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

/// Also S2-4 to S2-7, S2-10 and S2-30: the job, the attempt, the lease and the message each have their name.
#[tokio::test]
async fn s2_17_a_claim_names_the_job_the_attempt_and_the_lease() {
    let served = Served::start().await;
    let task = served.submit("jobs:high").await;
    let job = served.claim("w", &["jobs:high"]).await;
    assert_eq!((&job["claimed"], &job["job_id"]), (&json!(true), &json!(task)));
    assert_eq!(job["job_id"].as_str().map(str::len), Some(36), "a UUID as text");
    assert_eq!(job["attempt_id"], format!("{task}:1"));
    assert!(job["lease_token"].as_str().is_some_and(|token| token.len() > 20));
    let history = served.get(&format!("/v1/tasks/{task}/history")).await.body;
    let created = &history["events"][0]["position"];
    // S2-18: the stream, the message that put the job there, and what is to be done.
    assert_eq!((&job["stream"], &job["payload"]), (&json!("jobs:high"), &json!({"n": 1})));
    assert_eq!(job["message_id"], format!("{created}-0"));
    // S2-19 and S2-29: leases are short.
    assert_eq!(job["lease_ttl_seconds"].to_string(), "60", "a whole number");
    assert_eq!(job["heartbeat_interval_seconds"].to_string(), "20");
    assert_eq!((&job["attempt"], &job["fencing_token"]), (&json!(1), &history["events"][1]["position"]));
    // S2-9: it is RUNNING, and nobody else gets it.
    assert_eq!(served.task(&task).await["state"], "LEASED");
    assert_eq!(served.claim("v", &["jobs:high"]).await, json!({"claimed": false}));
}

#[tokio::test]
async fn s2_19_short_leases_are_told_in_fractions_of_a_second() {
    let served = Served::start().await;
    assert_eq!(served.put("/v1/queues/short", json!({"leaseMs": 1500})).await.status, 200);
    let job = served.claimed("w", "short").await;
    assert_eq!((&job["lease_ttl_seconds"], &job["heartbeat_interval_seconds"]), (&json!(1.5), &json!(0.5)));
    let limited = json!({"queue": "q", "payload": 1, "timeoutMs": 2500});
    assert_eq!(served.post("/v1/tasks", limited).await.status, 201);
    assert_eq!(served.claim("w", &["q"]).await["lease_ttl_seconds"], 2.5, "no attempt outlives its limit");
}

#[tokio::test]
async fn s2_16_streams_are_tried_in_the_order_of_their_priority() {
    let served = Served::start().await;
    let (low, high) = (served.submit("low").await, served.submit("high").await);
    let streams = ["emergency", "high", "low"];
    assert_eq!(served.claim("w", &streams).await["job_id"], high);
    let second = served.claim("w", &streams).await;
    assert_eq!((&second["job_id"], &second["stream"]), (&json!(low), &json!("low")));
    assert_eq!(served.claim("w", &streams).await, json!({"claimed": false}));
}

/// Also S2-1: the worker asks and waits; nobody has to reach it.
#[tokio::test]
async fn s2_16_a_claim_waits_for_a_job() {
    let served = Served::start().await;
    let body = json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 60_000});
    let submit = async {
        while served.running.handle.status().await.unwrap().polls == 0 {
            tokio::task::yield_now().await;
        }
        served.submit("q").await
    };
    let claim = tokio::time::timeout(Duration::from_secs(30), served.worker_call("claim", body));
    let (claimed, task) = tokio::join!(claim, submit);
    assert_eq!(claimed.unwrap().body["job_id"], task);
    let none = json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 1});
    assert_eq!(served.worker_call("claim", none).await.body, json!({"claimed": false}));
}

#[tokio::test]
async fn s2_16_a_wait_ends_when_the_server_stops() {
    let mut served = Served::start().await;
    let claim = served.request("POST", "/internal/worker/claim");
    // A wait that is too long is cut, not refused.
    let claim = claim.json(&json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": u64::MAX}));
    let claim = tokio::spawn(send(claim));
    while served.running.handle.status().await.unwrap().polls == 0 {
        tokio::task::yield_now().await;
    }
    served.begin_stop();
    let told = tokio::time::timeout(Duration::from_secs(30), claim).await.unwrap().unwrap();
    assert_eq!((told.status, told.body), (200, json!({"claimed": false})));
}

/// Also S2-20, S2-21.
#[tokio::test]
async fn s2_11_a_heartbeat_prolongs_the_lease_when_its_token_matches() {
    let served = Served::start().await;
    assert_eq!(served.put("/v1/queues/q", json!({"leaseMs": 60_000})).await.status, 200);
    let (job, other) = (served.claimed("w", "q").await, served.claimed("w", "q").await);
    let told = served.worker_call("heartbeat", beat(&job, "w")).await;
    assert_eq!((told.status, &told.body["ok"]), (200, &json!(true)), "{told:?}");
    assert_eq!(told.body["should_cancel"], false);
    let expires_at: jiff::Timestamp = told.text("lease_expires_at").parse().unwrap();
    let first: jiff::Timestamp = job["lease_expires_at"].as_str().unwrap().parse().unwrap();
    assert!(expires_at >= first);
    let mut swapped = beat(&job, "w");
    swapped["lease_token"] = other["lease_token"].clone();
    let position = served.position().await;
    served.worker_call("heartbeat", swapped).await.is_unclaimed(403, "wrong_task", false);
    served.worker_call("heartbeat", beat(&job, "v")).await.is_unclaimed(403, "bad_lease_id", false);
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn a_heartbeat_says_that_the_job_is_to_stop() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    let cancel = format!("/v1/tasks/{}/cancel", job["job_id"].as_str().unwrap());
    assert_eq!(served.post(&cancel, json!({"reason": "changed my mind"})).await.status, 200);
    let told = served.worker_call("heartbeat", beat(&job, "w")).await;
    assert_eq!((&told.body["ok"], &told.body["should_cancel"]), (&json!(true), &json!(true)), "{told:?}");
    assert_eq!(told.body["cancel_reason"], "changed my mind");
    let told = served.worker_call("fail", broken(&job, "w", true)).await;
    assert_eq!(told.body, json!({"ok": true, "ack": true, "requeued": false, "dlq": true}));
}

/// Also S2-13, S2-22, S2-23 and S2-27: result, status, attempt and lease end with one record, and the answer rests on
/// it.
#[tokio::test]
async fn s2_12_a_completion_ends_job_attempt_and_lease_at_once() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    let position = served.position().await;
    let result = json!({"artifacts": ["s3://x"], "timings": {"ms": 5}, "outputs": [1, 2]});
    let told = served.worker_call("complete", done(&job, "w", result.clone())).await;
    assert_eq!((told.status, told.body), (200, json!({"ok": true, "ack": true})));
    assert_eq!(served.position().await, position + 1);
    assert_eq!(kinds(&served, &job).await, ["TaskCreated", "LeaseGranted", "TaskCompleted"]);
    let task = served.task(job["job_id"].as_str().unwrap()).await;
    assert_eq!(
        (&task["state"], &task["result"], &task["lease"]),
        (&json!("COMPLETED"), &result, &Value::Null)
    );
}

/// Also S2-24, S2-25: a failure that may be tried again is requeued with a message of its own; the last is a dead
/// letter.
#[tokio::test]
async fn s2_12_a_failure_requeues_the_job_or_makes_it_a_dead_letter() {
    let served = Served::start().await;
    let config = json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}});
    assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
    let first = served.claimed("w", "q").await;
    let told = served.worker_call("fail", broken(&first, "w", true)).await;
    let flags = |body: &Value| ["ok", "ack", "requeued", "dlq"].map(|flag| body[flag].as_bool().unwrap());
    assert_eq!((told.status, flags(&told.body)), (200, [true, true, true, false]), "{told:?}");
    assert!(told.body["retry_at"].is_string());
    let second = served.claim("w", &["q"]).await;
    assert_eq!((&second["job_id"], &second["attempt"]), (&first["job_id"], &json!(2)));
    assert_ne!(second["message_id"], first["message_id"], "a new message for each time on the stream");
    let told = served.worker_call("fail", broken(&second, "w", true)).await;
    assert_eq!(told.body, json!({"ok": true, "ack": true, "requeued": false, "dlq": true}));
    let task = served.task(first["job_id"].as_str().unwrap()).await;
    assert_eq!(task["state"], "FAILED");
    let error =
        json!({"category": "USER_CODE", "code": "E1", "message": "bad luck", "stackTrace": "at line 1"});
    assert_eq!(task["error"], error);
    // What the attempts were told stays what they were told.
    assert_eq!(
        flags(&served.worker_call("fail", broken(&first, "w", true)).await.body),
        [true, true, true, false]
    );
    assert_eq!(
        flags(&served.worker_call("fail", broken(&second, "w", true)).await.body),
        [true, true, false, true]
    );
}

#[tokio::test]
async fn s2_24_an_error_that_is_not_retryable_is_a_dead_letter_at_once() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    let told = served.worker_call("fail", broken(&job, "w", false)).await;
    assert_eq!(told.body, json!({"ok": true, "ack": true, "requeued": false, "dlq": true}));
}

/// Also S2-14, S2-29: a lease that no heartbeat prolongs is found expired, and the job goes back on its stream.
#[tokio::test]
async fn s2_15_silence_requeues_the_job_with_a_new_message_until_it_is_a_dead_letter() {
    let served = Served::start().await;
    assert_eq!(served.put("/v1/queues/q", json!({"leaseMs": 100, "maxAttempts": 2})).await.status, 200);
    let first = served.claimed("w", "q").await;
    let again = json!({"worker_id": "v", "streams": ["q"], "max_wait_ms": 30_000});
    let second = served.worker_call("claim", again).await.body;
    assert_eq!((&second["job_id"], &second["attempt"]), (&first["job_id"], &json!(2)));
    assert_ne!(second["message_id"], first["message_id"]);
    served.worker_call("heartbeat", beat(&first, "w")).await.is_unclaimed(409, "lease_lost", true);
    served.worker_call("complete", done(&first, "w", json!(1))).await.is_unclaimed(409, "lease_lost", true);
    let ended = served.ended(first["job_id"].as_str().unwrap()).await;
    assert_eq!((&ended["state"], &ended["reason"]), (&json!("DEAD"), &json!("HEARTBEAT_TIMEOUT")));
    let late = served.worker_call("fail", broken(&second, "v", true)).await;
    late.is_unclaimed(409, "lease_lost", true);
}

#[tokio::test]
async fn a_repeated_request_id_claims_the_same_job_under_the_same_message() {
    let served = Served::start().await;
    let lost = served.claimed("w", "q").await;
    let release = format!("/v1/leases/{}/release", lost["lease_token"].as_str().unwrap());
    assert_eq!(served.post(&release, json!({"workerId": "w"})).await.status, 200);
    // A late report while the job waits is a record too, but puts nothing on a stream.
    served.worker_call("complete", done(&lost, "w", json!(1))).await.is_unclaimed(409, "lease_lost", true);
    served.submit("q").await;
    let body = json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 0, "request_id": "r1"});
    let first = served.worker_call("claim", body.clone()).await.body;
    assert_eq!(first["job_id"], lost["job_id"]);
    let path = format!("/v1/tasks/{}/history", lost["job_id"].as_str().unwrap());
    let history = served.get(&path).await.body;
    let released =
        history["events"].as_array().unwrap().iter().find(|event| event["type"] == "LeaseReleased");
    assert_eq!(first["message_id"], format!("{}-0", released.unwrap()["position"]));
    assert_eq!(served.worker_call("claim", body.clone()).await.body, first);
    assert_eq!(served.worker_call("heartbeat", beat(&first, "w")).await.status, 200);
    assert_eq!(served.worker_call("claim", body).await.body["message_id"], first["message_id"]);
}

#[tokio::test]
async fn s2_3_a_server_that_cannot_record_acknowledges_nothing() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    let (address, client) = (served.address, served.client.clone());
    let Served { running, .. } = served;
    running.stop().await.unwrap();
    for (what, body) in [
        ("claim", json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 0})),
        ("heartbeat", beat(&job, "w")),
        ("complete", done(&job, "w", json!(1))),
        ("fail", broken(&job, "w", true)),
    ] {
        let call = client.post(format!("http://{address}/internal/worker/{what}")).json(&body);
        let told = send(call).await;
        told.is_unclaimed(503, "not_serving", false);
        assert!(told.headers.contains_key("retry-after") && told.body["verdict"].is_null(), "{told:?}");
    }
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

/// Each time that a job begins to wait is an enqueue: a message with the job's id and an id of its own, the position of
/// the record that made it wait.
#[tokio::test]
async fn s2_8_every_enqueue_is_a_message_with_an_id_of_its_own() {
    let served = Served::start().await;
    let config = json!({"maxAttempts": 9, "backoff": {"initialMs": 0, "jitter": 0}});
    assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
    let task = served.submit("q").await;
    let mut messages = Vec::new();
    for made_it_wait in ["TaskCreated", "TaskFailed", "LeaseReleased"] {
        let job = served.claim("w", &["q"]).await;
        assert_eq!((&job["job_id"], &job["stream"]), (&json!(task), &json!("q")));
        let message = job["message_id"].as_str().unwrap().to_owned();
        let history = served.get(&format!("/v1/tasks/{task}/history")).await.body;
        let mut events = history["events"].as_array().unwrap().iter().rev();
        let enqueue = events.find(|event| event["type"] == made_it_wait).unwrap();
        assert_eq!(message, format!("{}-0", enqueue["position"]), "{made_it_wait}");
        assert!(!messages.contains(&message), "no two enqueues share a message");
        match messages.len() {
            0 => assert_eq!(served.worker_call("fail", broken(&job, "w", true)).await.body["requeued"], true),
            1 => {
                let path = format!("/v1/leases/{}/release", job["lease_token"].as_str().unwrap());
                assert_eq!(served.post(&path, json!({"workerId": "w"})).await.status, 200);
            }
            _ => assert_eq!(served.worker_call("complete", done(&job, "w", json!(1))).await.status, 200),
        }
        messages.push(message);
    }
}
