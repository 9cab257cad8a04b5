//! Bad input of every kind to tasks and queues gets a clear 4xx problem and changes nothing (I1–I4).

use serde_json::{Value, json};

use crate::support::Served;
use crate::support::bad::{Bad, bad, bad_bodies, bad_counts, bad_field, bad_names, refuse_all};

#[tokio::test]
async fn bad_submits_are_refused() {
    let served = Served::start().await;
    let (path, good) = ("/v1/tasks", json!({"queue": "q", "payload": 1}));
    let mut list = bad_bodies("POST", path, &good, false);
    list.extend(bad_names("POST", path, &good, "queue", false));
    for field in ["dedupKey", "runId", "assetId", "taskKey"] {
        list.extend(bad_names("POST", path, &good, field, true));
    }
    for field in ["delayMs", "maxAttempts", "timeoutMs", "leaseMs"] {
        list.extend(bad_counts("POST", path, &good, field));
    }
    let many: Value = (0..65).map(|n| (n.to_string(), json!("x"))).collect::<serde_json::Map<_, _>>().into();
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(16 << 10));
    for (field, value) in [
        ("priority", "2147483648"),
        ("priority", "\"high\""),
        ("delayMs", "99999999999999"),
        ("maxAttempts", "0"),
        ("maxAttempts", "1001"),
        ("timeoutMs", "0"),
        ("leaseMs", "0"),
        ("leaseMs", "99"),
        ("leaseMs", "86400001"),
        ("deadline", "\"tomorrow\""),
        ("deadline", "\"2030-01-01\""),
        ("deadline", "\"2030-01-01T00:00:00\""),
        ("deadline", "\"1960-01-01T00:00:00Z\""),
        ("deadline", "1700000000000"),
        ("backoff", "1"),
        ("backoff", "[1000,2.0]"),
        ("backoff", "{\"factor\":0.5}"),
        ("backoff", "{\"factor\":101}"),
        ("backoff", "{\"jitter\":1.5}"),
        ("backoff", "{\"jitter\":-0.1}"),
        ("backoff", "{\"initialMs\":-1}"),
        ("backoff", "{\"maxMs\":99999999999999}"),
        ("backoff", "{\"speed\":1}"),
        ("properties", "[]"),
        ("properties", "{\"os\":1}"),
        ("properties", "{\"os\":null}"),
        ("properties", "{\"\":\"x\"}"),
        ("properties", "{\"os\":\"a\\u0007\"}"),
        ("properties", &many.to_string()),
        ("resources", "[]"),
        ("resources", "\"x\""),
        ("resources", &large),
    ] {
        list.push(bad_field("POST", path, &good, field, value));
    }
    list.push(bad("no payload", "POST", path, "{\"queue\":\"q\"}", 400, "invalid_field"));
    list.push(bad("no queue", "POST", path, "{\"payload\":1}", 400, "invalid_field"));
    let large = format!("{{\"queue\":\"q\",\"payload\":\"{}\"}}", "x".repeat(1 << 20));
    list.push(bad("large payload", "POST", path, large, 413, "payload_too_large"));
    refuse_all(&served, list, false).await;
}

#[tokio::test]
async fn bad_batches_are_refused() {
    let served = Served::start().await;
    let (path, good) = ("/v1/tasks/batch", json!({"tasks": [{"queue": "q", "payload": 1}]}));
    let mut list = bad_bodies("POST", path, &good, false);
    for value in ["1", "{}", "\"x\"", "null"] {
        list.push(bad_field("POST", path, &good, "tasks", value));
    }
    let many = json!({"tasks": vec![json!({"queue": "q", "payload": 1}); 1_001]}).to_string();
    list.push(Bad { field: Some("tasks"), ..bad("1,001 tasks", "POST", path, many, 400, "too_many_tasks") });
    refuse_all(&served, list, false).await;
    let position = served.position().await;
    let tasks = json!({"tasks": [1, ["q", 1], {}, {"queue": "q"}, {"queue": "q", "payload": 1, "x": 1}]});
    let told = served.post(path, tasks).await;
    let errors = told.body["tasks"].as_array().unwrap();
    assert!(errors.iter().all(|item| item["error"]["code"] == "invalid_field"), "{told:?}");
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn bad_reads_are_refused() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let mut list = Vec::new();
    for (query, code) in [
        ("limit=0", "invalid_field"),
        ("limit=-1", "invalid_field"),
        ("limit=1001", "invalid_field"),
        ("limit=many", "invalid_field"),
        ("limit=1&limit=2", "invalid_field"),
        ("state=SLEEPING", "invalid_field"),
        ("state=waiting", "invalid_field"),
        ("queue=", "invalid_field"),
        ("queue=%00", "invalid_field"),
        ("sort=age", "invalid_field"),
        ("pageToken=", "invalid_page_token"),
        ("pageToken=AAAA", "invalid_page_token"),
        ("pageToken=%F0%9F%98%80", "invalid_page_token"),
    ] {
        list.push(bad(query, "GET", &format!("/v1/tasks?{query}"), "", 400, code));
    }
    for query in ["waitMs=-1", "waitMs=x", "waitMs=1.5", "wait=1"] {
        list.push(bad(query, "GET", &format!("/v1/tasks/{task}?{query}"), "", 400, "invalid_field"));
    }
    for id in ["x", "%00", "01900000-0000-7000-8000-000000000001", &"9".repeat(5_000), "..%2f..%2fetc"] {
        list.push(bad("unknown task", "GET", &format!("/v1/tasks/{id}"), "", 404, "unknown_task"));
        list.push(bad("unknown task", "GET", &format!("/v1/tasks/{id}/history"), "", 404, "unknown_task"));
        list.push(bad("unknown task", "POST", &format!("/v1/tasks/{id}/cancel"), "", 404, "unknown_task"));
        list.push(bad("unknown task", "POST", &format!("/v1/tasks/{id}/redrive"), "", 404, "unknown_task"));
    }
    list.push(bad("unknown queue", "GET", "/v1/queues/none", "", 404, "unknown_queue"));
    list.push(bad("bad queue", "GET", "/v1/queues/%00", "", 400, "invalid_field"));
    list.push(bad("bad UTF-8", "GET", "/v1/queues/%ff", "", 400, "invalid_field"));
    list.push(bad("bad UTF-8", "GET", "/v1/tasks/%ff", "", 400, "invalid_field"));
    refuse_all(&served, list, false).await;
}

#[tokio::test]
async fn bad_cancels_and_redrives_are_refused() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let path = format!("/v1/tasks/{task}/cancel");
    let mut list = bad_bodies("POST", &path, &json!({"reason": "x"}), true);
    for value in ["1", "[]", &format!("\"{}\"", "x".repeat(20_000))] {
        list.push(bad_field("POST", &path, &json!({}), "reason", value));
    }
    list.extend(bad_bodies("POST", &format!("/v1/tasks/{task}/redrive"), &json!({}), true));
    refuse_all(&served, list, false).await;
}

#[tokio::test]
async fn bad_configurations_are_refused() {
    let served = Served::start().await;
    let (path, good) = ("/v1/queues/q", json!({"maxAttempts": 3}));
    let mut list = bad_bodies("PUT", path, &good, false);
    for field in [
        "maxAttempts",
        "leaseMs",
        "heartbeatIntervalMs",
        "heartbeatTimeoutMs",
        "cancelGracePeriodMs",
        "maxQueueSize",
        "retentionMs",
    ] {
        list.extend(bad_counts("PUT", path, &json!({}), field));
    }
    for (field, value) in [
        ("maxAttempts", "0"),
        ("maxAttempts", "1001"),
        ("leaseMs", "99"),
        ("leaseMs", "86400001"),
        ("heartbeatIntervalMs", "0"),
        ("cancelGracePeriodMs", "99999999999999"),
        ("maxQueueSize", "0"),
        ("retentionMs", "99999999999999"),
        ("retryOn", "\"USER_CODE\""),
        ("retryOn", "[\"SOMETIMES\"]"),
        ("backoff", "{\"factor\":0.5}"),
        ("backoff", "{\"jitter\":2}"),
        ("backoff", "[1000,2.0]"),
    ] {
        list.push(bad_field("PUT", path, &json!({}), field, value));
    }
    let push = Bad {
        field: Some("push.url"),
        ..bad("push", "PUT", path, "{\"push\":{\"url\":\"http://x\"}}", 400, "invalid_field")
    };
    list.push(push);
    let differ = "{\"leaseMs\":1000,\"heartbeatTimeoutMs\":2000}";
    list.push(bad("two timeouts", "PUT", path, differ, 400, "invalid_field"));
    let close = "{\"leaseMs\":1000,\"heartbeatIntervalMs\":600}";
    list.push(bad("a timeout below twice the interval", "PUT", path, close, 400, "invalid_field"));
    let long = format!("/v1/queues/{}", "x".repeat(513));
    list.push(bad("long name", "PUT", &long, "{}", 400, "invalid_field"));
    list.push(bad("control character", "PUT", "/v1/queues/a%0ab", "{}", 400, "invalid_field"));
    refuse_all(&served, list, false).await;
}
