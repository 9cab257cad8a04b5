//! The callback contract over the wire, requirement by requirement.

use serde_json::{Value, json};

use crate::support::callback::{HOLDER, Pushed};
use crate::support::{Served, Told, send};

async fn cancel(served: &Served, task: &str, reason: &str) {
    let told = served.post(&format!("/v1/tasks/{task}/cancel"), json!({"reason": reason})).await;
    assert_eq!(told.status, 200, "{told:?}");
}

async fn configured(config: Value) -> Served {
    let served = Served::start().await;
    assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
    served
}

fn time(told: &Told, field: &str) -> jiff::Timestamp {
    told.text(field).parse().unwrap()
}

/// S1-1 to S1-3 with the bodies of the document: S1-5, S1-13, S1-14, S1-17, S1-19, S1-24, S1-26, S1-27, S1-30.
#[tokio::test]
async fn s1_1_a_worker_begins_beats_and_completes() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let told = served.call(&pushed, "started", pushed.started()).await;
    assert_eq!((told.status, told.content_type.as_str()), (200, "application/json"), "{told:?}");
    assert_eq!(told.body, json!({"acknowledged": true, "serverTime": told.body["serverTime"]}));
    let lease = &served.task(&pushed.task).await["lease"];
    assert_eq!((&lease["workerId"], &lease["startedBy"]), (&json!(HOLDER), &json!("worker-1")));

    let beat = json!({"attempt": 1, "workerId": "worker-1", "heartbeatAt": "2025-01-15T10:05:00Z",
        "progressPct": 45, "message": "Processing partition 5 of 10"});
    let told = served.call(&pushed, "heartbeat", beat).await;
    let expected =
        json!({"acknowledged": true, "shouldCancel": false, "serverTime": told.body["serverTime"]});
    assert_eq!((told.status, &told.body), (200, &expected));
    let progress = &served.task(&pushed.task).await["progress"];
    assert_eq!(progress["progressPct"], 45.0);
    assert_eq!(progress["message"], "Processing partition 5 of 10");

    let output = json!({"materializationId": "mat_01HGW5N7XHJM4GX29KZRXQP6NA", "rowCount": 1_000_000,
        "byteSize": 52_428_800, "outputPath": "gs://bucket/tenant/workspace/assets/raw/events/2025-01-15/"});
    let report = json!({"attempt": 1, "workerId": "worker-1", "outcome": "SUCCEEDED",
        "completedAt": "2025-01-15T10:30:00Z", "output": output, "metrics": {"cpuTimeMs": 45_000,
        "peakMemoryBytes": 2_147_483_648_u64, "ioReadBytes": 10_485_760, "ioWriteBytes": 52_428_800}});
    let told = served.call(&pushed, "completed", report).await;
    let server_time = told.body["serverTime"].clone();
    let expected = json!({"acknowledged": true, "finalState": "SUCCEEDED", "serverTime": server_time});
    assert_eq!((told.status, &told.body), (200, &expected));
    let task = served.task(&pushed.task).await;
    assert_eq!((&task["state"], &task["result"]), (&json!("COMPLETED"), &output));
    assert_eq!(task["metrics"]["cpuTimeMs"], 45_000);
}

#[tokio::test]
async fn c28_requests_may_be_in_snake_case() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let started = json!({"attempt": 1, "worker_id": "worker-1", "started_at": "2025-01-15T10:00:00Z"});
    assert_eq!(served.call(&pushed, "started", started).await.status, 200);
    let beat = json!({"attempt": 1, "worker_id": "worker-1", "heartbeat_at": "2025-01-15T10:00:00Z",
        "progress_pct": 5});
    assert_eq!(served.call(&pushed, "heartbeat", beat).await.status, 200);
    let report = json!({"attempt": 1, "worker_id": "worker-1", "outcome": "FAILED",
        "completed_at": "2025-01-15T10:00:00Z", "metrics": {"cpu_time_ms": 1},
        "error": {"category": "CONFIGURATION", "message": "x", "stack_trace": "y"}});
    served.call(&pushed, "completed", report).await.is_final("FAILED");
}

#[tokio::test]
async fn s1_15_a_worker_that_begins_after_the_end_is_told_the_end() {
    let served = configured(json!({"cancelGracePeriodMs": 60_000})).await;
    // Before anybody began, a cancel ends the task with the answer, and with the words of the document.
    let pushed = served.push("q").await;
    cancel(&served, &pushed.task, "user_requested").await;
    assert_eq!(served.task(&pushed.task).await["state"], "LEASED");
    for _ in 0..2 {
        served.call(&pushed, "started", pushed.started()).await.is_terminal("CANCELLED");
    }
    let task = served.task(&pushed.task).await;
    assert_eq!(
        (&task["state"], &task["reason"]),
        (&json!("DEAD"), &json!("CANCELLED")),
        "what was told is true"
    );
    assert_eq!(task["reasonDetail"], "user_requested");
    // A worker that reports its stop all the same says what is known, and one that went on is not heard.
    served.call(&pushed, "completed", pushed.cancelled()).await.is_final("CANCELLED");
    let went_on = served.call(&pushed, "completed", pushed.succeeded(json!(1))).await;
    went_on.is_refused(409, "attempt_already_completed");

    let pushed = served.push("q").await;
    served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
    served.call(&pushed, "started", pushed.started()).await.is_terminal("SUCCEEDED");
    let pushed = served.push("q").await;
    served.call(&pushed, "completed", pushed.failed("DATA_QUALITY", None)).await.is_final("FAILED");
    served.call(&pushed, "started", pushed.started()).await.is_terminal("FAILED");
}

#[tokio::test]
async fn the_first_to_begin_binds_the_attempt() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200);
    let position = served.position().await;
    assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200, "a repeat");
    let as_other = |mut body: Value| {
        body["workerId"] = json!("worker-2");
        body
    };
    for (what, body) in [
        ("started", pushed.started()),
        ("heartbeat", pushed.beat()),
        ("completed", pushed.succeeded(json!(2))),
        ("completed", pushed.failed("USER_CODE", None)),
    ] {
        served.call(&pushed, what, as_other(body)).await.is_refused(409, "attempt_already_started");
    }
    assert_eq!(served.position().await, position);
    // A cancel does not undo what began: the worker learns of it by its heartbeat.
    cancel(&served, &pushed.task, "stop").await;
    assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200);
    served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
}

#[tokio::test]
async fn s1_18_only_the_time_of_receipt_counts() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    let without = served.call(&pushed, "heartbeat", pushed.beat()).await;
    for at in ["1970-01-01T00:00:00Z", "9999-12-30T00:00:00Z"] {
        let mut beat = pushed.beat();
        beat["heartbeatAt"] = json!(at);
        beat["progressPct"] = json!(1);
        let told = served.call(&pushed, "heartbeat", beat).await;
        assert_eq!(told.status, 200);
        assert!(time(&told, "serverTime") >= time(&without, "serverTime"), "the coordinator's time goes on");
        let said: jiff::Timestamp =
            served.task(&pushed.task).await["progress"]["at"].as_str().unwrap().parse().unwrap();
        assert!(said >= time(&without, "serverTime") && said <= time(&told, "serverTime"));
    }
    let mut report = pushed.succeeded(json!(1));
    report["completedAt"] = json!("1970-01-01T00:00:00Z");
    served.call(&pushed, "completed", report).await.is_final("SUCCEEDED");
    let finished = served.task(&pushed.task).await["finishedAt"].as_str().unwrap().to_owned();
    assert!(finished.parse::<jiff::Timestamp>().unwrap() >= time(&without, "serverTime"));
}

#[tokio::test]
async fn t7_the_clock_of_a_worker_is_measured() {
    let served = Served::start().await;
    let skew = async |name: &str| -> f64 {
        let text = served.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
        text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap().parse().unwrap()
    };
    assert_eq!(skew("lessor_worker_clock_skew_seconds").await, 0.0);
    let pushed = served.push("q").await;
    for (call, field, hours) in
        [("started", "startedAt", 5), ("heartbeat", "heartbeatAt", -3), ("completed", "completedAt", 2)]
    {
        let mut body = if call == "completed" { pushed.succeeded(json!(1)) } else { pushed.beat() };
        let said = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        body[field] = json!(said.to_string());
        assert_eq!(served.call(&pushed, call, body).await.status, 200);
        let measured_hours = skew("lessor_worker_clock_skew_seconds").await / 3_600.0;
        assert_eq!(measured_hours.round(), hours as f64, "{call}");
    }
    // The clock of the coordinator was set by that of this machine, at the start.
    assert!(skew("lessor_clock_skew_seconds").await.abs() < 600.0);
}

/// Also S1-41, S1-42: the signal comes with a heartbeat, and the worker ends with CANCELLED and what it got done.
#[tokio::test]
async fn s1_20_a_heartbeat_carries_the_cancel_signal() {
    let served = Served::start().await;
    let pushed = served.push("q").await;
    assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200);
    cancel(&served, &pushed.task, "user_requested").await;
    let told = served.call(&pushed, "heartbeat", pushed.beat()).await;
    assert_eq!((told.status, &told.body["shouldCancel"]), (200, &json!(true)), "{told:?}");
    assert_eq!(
        (&told.body["acknowledged"], &told.body["cancelReason"]),
        (&json!(true), &json!("user_requested"))
    );
    // S1-29: what the document lets a cancelled worker say.
    let told = served.call(&pushed, "completed", pushed.cancelled()).await;
    told.is_final("CANCELLED");
    let task = served.task(&pushed.task).await;
    assert_eq!((&task["state"], &task["reason"]), (&json!("DEAD"), &json!("CANCELLED")));
    served.call(&pushed, "completed", pushed.cancelled()).await.is_final("CANCELLED");
}

/// Also S1-35, S1-37 to S1-40: heartbeats keep the lease, and silence ends it as soon as its time has come.
#[tokio::test]
async fn s1_22_a_silent_attempt_is_gone() {
    let served = configured(json!({"heartbeatTimeoutMs": 100, "maxAttempts": 1})).await;
    let pushed = served.push("q").await;
    assert_eq!(pushed.envelope["heartbeatTimeoutMs"], 100);
    let task = served.ended(&pushed.task).await;
    assert_eq!((&task["state"], &task["reason"]), (&json!("DEAD"), &json!("HEARTBEAT_TIMEOUT")));
    served.call(&pushed, "heartbeat", pushed.beat()).await.is_refused(410, "task_expired");
    served.call(&pushed, "started", pushed.started()).await.is_terminal("FAILED");
    served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_terminal("FAILED");
    let close = json!({"heartbeatTimeoutMs": 1000, "heartbeatIntervalMs": 600});
    served.put("/v1/queues/q", close).await.is_problem(400, "invalid_field");
}

#[tokio::test]
async fn s1_37_a_heartbeat_keeps_the_lease() {
    let served = configured(json!({"leaseMs": 20_000})).await;
    let pushed = served.push("q").await;
    let until =
        |task: &Value| task["lease"]["expiresAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let first = until(&served.task(&pushed.task).await);
    let mut last = first;
    // Heartbeats that are younger than a tenth of the lease are not recorded, so it takes a while.
    while last == first {
        assert_eq!(served.call(&pushed, "heartbeat", pushed.beat()).await.status, 200);
        last = until(&served.task(&pushed.task).await);
    }
    assert!(last > first);
}

#[tokio::test]
async fn c20_a_start_is_a_sign_of_life() {
    let served = configured(json!({"leaseMs": 20_000})).await;
    let pushed = served.push("q").await;
    let until =
        |task: &Value| task["lease"]["expiresAt"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let first = until(&served.task(&pushed.task).await);
    // A tenth of the lease must pass before an extension is worth a record; a repeated start is as good as the first.
    while until(&served.task(&pushed.task).await) == first {
        assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200);
    }
}

/// S1-24, S1-25: an outcome, and what belongs to it.
#[tokio::test]
async fn s1_25_each_outcome_has_its_end() {
    let served = configured(json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}})).await;
    let pushed = served.push("q").await;
    served.call(&pushed, "completed", pushed.succeeded(Value::Null)).await.is_final("SUCCEEDED");
    let pushed = served.push("q").await;
    let told = served.call(&pushed, "completed", pushed.failed("INFRASTRUCTURE", None)).await;
    told.is_final("RETRY_WAIT");
    assert!(told.body["retryAt"].is_string(), "{told:?}");
    let again = served.push_next("q").await;
    assert_eq!((&again.task, again.attempt()), (&pushed.task, 2));
    served.call(&again, "completed", again.failed("INFRASTRUCTURE", None)).await.is_final("FAILED");
    // A worker that stops although nobody asked it to has failed, for good.
    let pushed = served.push("q").await;
    served.call(&pushed, "completed", pushed.cancelled()).await.is_final("FAILED");
    let task = served.task(&pushed.task).await;
    assert_eq!((&task["state"], &task["reason"]), (&json!("FAILED"), &json!("CANCELLED")));
}

/// S1-28, S1-51 and the defaults S1-45 to S1-50.
#[tokio::test]
async fn s1_45_to_50_the_category_decides_unless_the_worker_does() {
    let served = configured(json!({"backoff": {"initialMs": 3_600_000}})).await;
    for (category, retried) in [
        ("USER_CODE", true),
        ("DATA_QUALITY", false),
        ("INFRASTRUCTURE", true),
        ("CONFIGURATION", false),
        ("TIMEOUT", true),
        ("CANCELLED", false),
    ] {
        let state = |retried: bool| if retried { "RETRY_WAIT" } else { "FAILED" };
        for (said, retried) in [(None, retried), (Some(true), true), (Some(false), false)] {
            let pushed = served.push("q").await;
            let told = served.call(&pushed, "completed", pushed.failed(category, said)).await;
            told.is_final(state(retried));
            let error = json!({"category": category, "code": null, "message": "KeyError: 'missing_column'"});
            assert_eq!(served.task(&pushed.task).await["error"], error);
            if let Some(at) = told.body["retryAt"].as_str() {
                let wait = at.parse::<jiff::Timestamp>().unwrap().duration_since(time(&told, "serverTime"));
                assert!(wait.as_secs() > 60, "with backoff: {told:?}");
            }
        }
    }
    let pushed = served.push("q").await;
    let bare = json!({"attempt": 1, "workerId": "w", "outcome": "FAILED"});
    served.call(&pushed, "completed", bare).await.is_refused(400, "invalid_argument");
}

/// After the grace the coordinator ends the task by itself.
#[tokio::test]
async fn s1_43_a_worker_that_ignores_a_cancel_is_cut_off_after_the_grace() {
    let served = configured(json!({"cancelGracePeriodMs": 50})).await;
    let pushed = served.push("q").await;
    assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200);
    cancel(&served, &pushed.task, "user_requested").await;
    let task = served.ended(&pushed.task).await;
    assert_eq!((&task["state"], &task["reason"]), (&json!("DEAD"), &json!("CANCEL_TIMEOUT")));
    served.call(&pushed, "heartbeat", pushed.beat()).await.is_refused(410, "task_expired");
    served.call(&pushed, "completed", pushed.cancelled()).await.is_terminal("FAILED");
}

/// A worker that is told to stop, lives on and says so is cut off all the same.
#[tokio::test]
async fn s1_44_no_heartbeat_prolongs_the_grace_of_a_cancel() {
    let served = configured(json!({"cancelGracePeriodMs": 400, "heartbeatTimeoutMs": 60_000})).await;
    let pushed = served.push("q").await;
    assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200);
    cancel(&served, &pushed.task, "user_requested").await;
    let refused = loop {
        let told = served.call(&pushed, "heartbeat", pushed.beat()).await;
        if told.status != 200 {
            break told;
        }
        assert_eq!(told.body["shouldCancel"], true, "{told:?}");
    };
    refused.is_refused(410, "task_expired");
    let task = served.ended(&pushed.task).await;
    assert_eq!((&task["state"], &task["reason"]), (&json!("DEAD"), &json!("CANCEL_TIMEOUT")));
}

#[tokio::test]
async fn s1_53_an_envelope_has_every_field() {
    let served = Served::start().await;
    let task = json!({"queue": "q", "payload": {"n": 1}, "runId": "run_7", "assetId": "raw/events",
        "taskKey": "raw/events[2025-01-15]:materialize", "resources": {"cpuMillicores": 500},
        "deadline": "2099-01-01T00:00:00Z"});
    assert_eq!(served.post("/v1/tasks", task).await.status, 201);
    let Pushed { envelope, task, token } = served.push_next("q").await;
    let shown = served.task(&task).await;
    let expected = json!({"taskId": task, "runId": "run_7", "assetId": "raw/events",
        "taskKey": "raw/events[2025-01-15]:materialize", "queue": "q", "tenantId": "default",
        "workspaceId": "default", "attempt": 1, "resources": {"cpuMillicores": 500}, "enqueuedAt": shown["createdAt"],
        "deadline": "2099-01-01T00:00:00Z", "callbackBaseUrl": format!("http://{}", served.address),
        "taskToken": token, "tokenExpiresAt": envelope["tokenExpiresAt"], "heartbeatIntervalMs": 20_000,
        "heartbeatTimeoutMs": 60_000, "cancelGracePeriodMs": 30_000, "payload": {"n": 1}, "dispatchId": "d_1",
        "fencingToken": envelope["fencingToken"]});
    assert_eq!(envelope, expected);
    let Pushed { envelope, task, .. } = served.push("bare").await;
    assert_eq!(envelope["runId"], format!("run_{task}"));
    assert_eq!((&envelope["taskKey"], &envelope["resources"]), (&json!("bare"), &json!({})));
    assert_eq!((&envelope["assetId"], &envelope["deadline"]), (&Value::Null, &Value::Null));
    let base = envelope["callbackBaseUrl"].as_str().unwrap();
    let call = served.client.post(format!("{base}/v1/tasks/{task}/started"));
    let call = call.bearer_auth(envelope["taskToken"].as_str().unwrap());
    let told = send(call.json(&json!({"attempt": 1, "workerId": "w"}))).await;
    assert_eq!(told.status, 200, "the address in the envelope is the one to call: {told:?}");
}
