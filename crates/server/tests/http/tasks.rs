//! Tasks and queues over the wire, as their users see them.

use std::time::Duration;

use crate::support::{Served, send};
use serde_json::{Value, json};

#[tokio::test]
async fn a_task_is_shown_as_it_was_submitted() {
    let served = Served::start().await;
    let body = r#"{"queue":"mail","payload":{"b" : 1.50,"a":"\u0041"},"priority":-5,"delayMs":3600000,
        "dedupKey":"k","maxAttempts":7,"backoff":{"factor":1.5},"properties":{"os":"linux"},
        "deadline":"2099-01-01T01:00:00+01:00","timeoutMs":5000,"leaseMs":30000,"runId":"r","assetId":"a",
        "taskKey":"t","resources":{"cpu" :2}}"#;
    let told = served.raw("POST", "/v1/tasks", body).await;
    assert_eq!((told.status, told.body["state"].as_str()), (201, Some("WAITING")), "{told:?}");
    let id = told.text("taskId");
    let text = served.request("GET", &format!("/v1/tasks/{id}")).send().await.unwrap().text().await.unwrap();
    assert!(text.contains(r#""payload":{"b" : 1.50,"a":"\u0041"}"#), "{text}");
    assert!(text.contains(r#""resources":{"cpu" :2}"#), "{text}");
    let task: Value = serde_json::from_str(&text).unwrap();
    for (field, value) in [
        ("taskId", json!(id)),
        ("queue", json!("mail")),
        ("state", json!("WAITING")),
        ("reason", json!(null)),
        ("attempt", json!(0)),
        ("maxAttempts", json!(7)),
        ("priority", json!(-5)),
        ("result", json!(null)),
        ("error", json!(null)),
        ("properties", json!({"os": "linux"})),
        ("dedupKey", json!("k")),
        ("deadline", json!("2099-01-01T00:00:00Z")),
        ("timeoutMs", json!(5000)),
        ("finishedAt", json!(null)),
        ("lease", json!(null)),
        ("cancelRequested", json!(null)),
        ("runId", json!("r")),
        ("assetId", json!("a")),
        ("taskKey", json!("t")),
        ("redriveOf", json!(null)),
        ("progress", json!(null)),
    ] {
        assert_eq!(task.get(field), Some(&value), "{field}");
    }
    assert!(task["createdAt"].is_string() && task["notBefore"].is_string());
    let read: wire::Task = serde_json::from_str(&text).unwrap();
    assert_eq!(read.task_id, id);
}

#[tokio::test]
async fn i4_a_dedup_key_gives_the_same_task_or_a_conflict() {
    let served = Served::start().await;
    let first =
        served.post("/v1/tasks", json!({"queue": "q", "payload": {"a": 1, "b": 2}, "dedupKey": "k"})).await;
    assert_eq!(first.status, 201);
    let position = served.position().await;
    let again = r#"{"dedupKey":"k","payload":{"b":2,"a":1.0},"queue":"q"}"#;
    let again = served.raw("POST", "/v1/tasks", again).await;
    assert_eq!((again.status, again.text("taskId")), (200, first.text("taskId")));
    assert_eq!(again.body["payload"], json!({"a": 1, "b": 2}));
    let other = served.post("/v1/tasks", json!({"queue": "q", "payload": 2, "dedupKey": "k"})).await;
    other.is_problem(409, "dedup_conflict");
    assert_eq!(other.text("taskId"), first.text("taskId"));
    assert_eq!(served.position().await, position);
    let elsewhere = served.post("/v1/tasks", json!({"queue": "p", "payload": 2, "dedupKey": "k"})).await;
    assert_eq!(elsewhere.status, 201, "another queue has its own keys");
}

#[tokio::test]
async fn a_batch_answers_each_task_in_order() {
    let served = Served::start().await;
    let tasks = json!({"tasks": [
        {"queue": "q", "payload": 1, "dedupKey": "k"},
        {"queue": "", "payload": 1},
        {"queue": "q", "payload": 1, "dedupKey": "k"},
        {"queue": "q", "payload": 2, "dedupKey": "k"},
        {"queue": "q", "payload": 3, "delayMs": -1},
        {"queue": "q", "payload": 4},
    ]});
    let told = served.post("/v1/tasks/batch", tasks).await;
    assert_eq!(told.status, 200, "{told:?}");
    let items = told.body["tasks"].as_array().unwrap();
    let code = |n: usize| items[n]["error"]["code"].as_str();
    assert_eq!(items.len(), 6);
    assert_eq!(items[0]["taskId"], items[2]["taskId"]);
    assert!(items[0]["taskId"].is_string() && items[5]["taskId"].is_string());
    assert_eq!(
        (code(1), code(3), code(4)),
        (Some("invalid_field"), Some("dedup_conflict"), Some("invalid_field"))
    );
    assert_eq!(items[1]["error"]["field"], "tasks[1].queue");
    assert_eq!(items[4]["error"]["field"], "tasks[4].delayMs");
    let many: Vec<_> = (0..1_000).map(|n| json!({"queue": "many", "payload": n})).collect();
    let told = served.post("/v1/tasks/batch", json!({"tasks": many})).await;
    assert!(told.body["tasks"].as_array().unwrap().iter().all(|item| item["taskId"].is_string()));
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let served = Served::start().await;
    let mut submitted = Vec::new();
    for n in 0..7 {
        submitted.push(served.submit(if n % 2 == 0 { "even" } else { "odd" }).await);
    }
    let (mut listed, mut token) = (Vec::new(), String::new());
    loop {
        let page = served.get(&format!("/v1/tasks?limit=2{token}")).await;
        assert_eq!(page.status, 200, "{page:?}");
        let tasks = page.body["tasks"].as_array().unwrap();
        assert!(tasks.len() <= 2);
        listed.extend(tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
        match page.body["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={next}"),
            None => break,
        }
    }
    let mut sorted = listed.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((listed.len(), sorted.len()), (7, 7), "each task once");
    assert!(submitted.iter().all(|task| sorted.contains(task)));
    let odd = served.get("/v1/tasks?queue=odd&state=WAITING").await.body;
    assert_eq!(odd["tasks"].as_array().unwrap().len(), 3);
    assert_eq!(served.get("/v1/tasks?state=DEAD").await.body["tasks"], json!([]));
    let foreign =
        send(served.request("GET", &format!("/v1/tasks?limit=2{token}")).header("lessor-tenant", "x"));
    foreign.await.is_problem(400, "invalid_page_token");
}

#[tokio::test]
async fn a10_a_page_of_large_tasks_ends_early_and_loses_none() {
    let served = Served::start().await;
    for _ in 0..20 {
        let told = served.post("/v1/tasks", json!({"queue": "q", "payload": "x".repeat(1_000_000)})).await;
        assert_eq!(told.status, 201);
    }
    let (mut listed, mut pages, mut token) = (Vec::new(), 0, String::new());
    loop {
        let page = served.get(&format!("/v1/tasks?limit=1000{token}")).await.body;
        let tasks = page["tasks"].as_array().unwrap();
        assert!(tasks.len() <= 9);
        listed.extend(tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()));
        pages += 1;
        match page["nextPageToken"].as_str() {
            Some(next) => token = format!("&pageToken={next}"),
            None => break,
        }
    }
    listed.sort();
    listed.dedup();
    assert_eq!((listed.len(), pages), (20, 3));
}

#[tokio::test]
async fn a_wait_ends_when_the_task_does() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let path = format!("/v1/tasks/{task}?waitMs=60000");
    let (waited, reported) = tokio::join!(
        served.get(&path),
        served.report(&lease, "complete", json!({"workerId": "w", "result": 1}))
    );
    assert_eq!(reported.status, 200);
    assert_eq!((waited.status, waited.body["state"].as_str()), (200, Some("COMPLETED")));
    let still = served.submit("q").await;
    let as_it_is = served.get(&format!("/v1/tasks/{still}?waitMs=1")).await;
    assert_eq!(as_it_is.body["state"], "WAITING");
}

#[tokio::test]
async fn a_poll_is_woken_by_the_submit() {
    let served = Served::start().await;
    let body = json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000});
    let submit = async {
        while served.running.handle.status().await.unwrap().polls == 0 {
            tokio::task::yield_now().await;
        }
        served.submit("q").await
    };
    let poll = tokio::time::timeout(Duration::from_secs(30), served.post("/v1/leases", body));
    let (leased, task) = tokio::join!(poll, submit);
    assert_eq!(leased.unwrap().body["leases"][0]["taskId"].as_str(), Some(task.as_str()));
    let workers = served.get("/v1/workers").await.body;
    assert_eq!(workers["workers"][0]["workerId"], "w");
    assert_eq!(workers["workers"][0]["activeLeases"], 1);
}

#[tokio::test]
async fn i18_a_cancel_is_idempotent() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let path = format!("/v1/tasks/{task}/cancel");
    let first = send(served.request("POST", &path)).await;
    assert_eq!((first.status, first.body["state"].as_str()), (200, Some("DEAD")), "{first:?}");
    assert_eq!(first.body["reason"], "CANCELLED");
    assert_eq!(first.body["reasonDetail"], "user_requested");
    let position = served.position().await;
    let second = served.post(&path, json!({"reason": "another"})).await;
    assert_eq!((second.status, &second.body), (200, &first.body));
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn a_dead_letter_is_redriven_once() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let path = format!("/v1/tasks/{task}/redrive");
    send(served.request("POST", &path)).await.is_problem(409, "not_a_dead_letter");
    served.post(&format!("/v1/tasks/{task}/cancel"), json!({})).await;
    let new = send(served.request("POST", &path)).await;
    assert_eq!((new.status, new.body["state"].as_str()), (201, Some("WAITING")), "{new:?}");
    assert_eq!(new.body["redriveOf"], task);
    assert_eq!(new.body["payload"], json!({"n": 1}));
    let again = served.post(&path, json!({})).await;
    assert_eq!((again.status, again.text("taskId")), (200, new.text("taskId")));
}

#[tokio::test]
async fn a_history_tells_what_the_ledger_holds() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let fail = json!({"workerId": "w", "reason": "x", "category": "DATA_QUALITY", "code": "E1"});
    served.report(&lease, "fail", fail).await;
    let told = served.get(&format!("/v1/tasks/{task}/history")).await;
    assert_eq!((told.status, told.body["truncated"].as_bool()), (200, Some(false)), "{told:?}");
    let events = told.body["events"].as_array().unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["TaskCreated", "LeaseGranted", "TaskFailed"]);
    assert_eq!(events[1]["fencingToken"], lease["fencingToken"]);
    assert_eq!((events[1]["workerId"].as_str(), events[1]["attempt"].as_u64()), (Some("w"), Some(1)));
    assert_eq!(events[2]["error"], json!({"category": "DATA_QUALITY", "code": "E1", "message": "x"}));
    assert!(events.iter().all(|event| event["position"].is_u64() && event["at"].is_string()));
}

#[tokio::test]
async fn a11_what_belongs_to_others_looks_like_what_is_not_there() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let absent = "01900000-0000-7000-8000-000000000001";
    let foreign = |path: String| send(served.request("GET", &path).header("lessor-workspace", "other"));
    for tail in ["", "/history"] {
        let theirs = foreign(format!("/v1/tasks/{task}{tail}")).await;
        let none = foreign(format!("/v1/tasks/{absent}{tail}")).await;
        theirs.is_problem(404, "unknown_task");
        assert_eq!(theirs.body.to_string().replace(&task, absent), none.body.to_string());
    }
    foreign("/v1/queues/q".into()).await.is_problem(404, "unknown_queue");
    assert_eq!(foreign("/v1/tasks".into()).await.body["tasks"], json!([]));
}

#[tokio::test]
async fn a_queue_is_configured_and_counted() {
    let served = Served::start().await;
    served.get("/v1/queues/q").await.is_problem(404, "unknown_queue");
    let config =
        json!({"maxAttempts": 5, "heartbeatTimeoutMs": 9000, "backoff": {"factor": 3.0, "jitter": 0.5}});
    let put = served.put("/v1/queues/q", config).await;
    assert_eq!(put.status, 200, "{put:?}");
    served.submit("q").await;
    let queue = served.get("/v1/queues/q").await.body;
    assert_eq!(queue["name"], "q");
    for (field, value) in [
        ("maxAttempts", json!(5)),
        ("leaseMs", json!(9000)),
        ("heartbeatTimeoutMs", json!(9000)),
        ("heartbeatIntervalMs", json!(3000)),
        ("cancelGracePeriodMs", json!(30_000)),
        ("backoff", json!({"initialMs": 1000, "factor": 3.0, "maxMs": 300_000, "jitter": 0.5})),
        ("retryOn", json!(null)),
        ("maxQueueSize", json!(null)),
        ("retentionMs", json!(604_800_000)),
    ] {
        assert_eq!(queue["config"][field], value, "{field}");
    }
    assert_eq!(queue["counts"]["waiting"], 1);
    assert!(queue["oldestWaitingAgeMs"].is_u64());
    let position = served.position().await;
    let same: Value = queue["configured"].clone();
    assert_eq!(served.put("/v1/queues/q", same).await.status, 200);
    assert_eq!(served.position().await, position, "the same configuration again is no news");
    assert_eq!(served.get("/v1/queues").await.body["queues"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a3_a_full_queue_says_when_to_come_back() {
    let served = Served::start().await;
    assert_eq!(served.put("/v1/queues/q", json!({"maxQueueSize": 1})).await.status, 200);
    served.submit("q").await;
    let told = served.post("/v1/tasks", json!({"queue": "q", "payload": 1})).await;
    told.is_problem(429, "queue_full");
    assert!(told.headers.contains_key("retry-after"));
    served.submit("other").await;
}

/// Nothing of a flood is recorded once its queue is full, and whoever is in another tenant works as if there were none.
#[tokio::test]
async fn a3_a_flood_into_a_full_queue_records_nothing_and_another_tenant_is_served() {
    let served = Served::start().await;
    let call = |tenant: &'static str, path: &str, body: Value| {
        send(served.request("POST", path).header("lessor-tenant", tenant).json(&body))
    };
    let limit = served.request("PUT", "/v1/queues/q").header("lessor-tenant", "loud");
    assert_eq!(send(limit.json(&json!({"maxQueueSize": 10}))).await.status, 200);
    let task = || json!({"queue": "q", "payload": "x".repeat(10_000)});
    for _ in 0..10 {
        assert_eq!(call("loud", "/v1/tasks", task()).await.status, 201);
    }
    let before = served.position().await;
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..500 {
        flood.spawn(call("loud", "/v1/tasks", task()));
    }
    for _ in 0..10 {
        assert_eq!(call("quiet", "/v1/tasks", task()).await.status, 201);
        let ask = json!({"workerId": "w", "queues": ["q"], "waitMs": 0});
        let lease = call("quiet", "/v1/leases", ask).await.body["leases"][0].clone();
        let path = format!("/v1/leases/{}/complete", lease["leaseId"].as_str().unwrap());
        assert_eq!(
            call("quiet", &path, json!({"workerId": "w", "result": 1})).await.body["verdict"],
            "COMMITTED"
        );
    }
    while let Some(told) = flood.join_next().await {
        let told = told.unwrap();
        told.is_problem(429, "queue_full");
        assert!(told.headers.contains_key("retry-after"));
    }
    assert_eq!(served.position().await, before + 30, "ten tasks of the quiet one, and nothing of the flood");
}

#[tokio::test]
async fn the_server_says_how_it_is() {
    let served = Served::start().await;
    assert_eq!(served.get("/healthz").await.body["status"], "ok");
    let ready = served.get("/readyz").await;
    assert_eq!((ready.status, ready.body["position"].as_u64()), (200, Some(served.position().await)));
}

#[tokio::test]
async fn p5_a_server_that_is_about_to_stop_says_so_and_serves_on() {
    let served = Served::start().await;
    served.app.leave();
    served.get("/readyz").await.is_problem(503, "not_serving");
    let task = served.submit("q").await;
    let lease = served.lease("w", "q").await;
    assert_eq!(lease["taskId"], task);
    assert_eq!(served.report(&lease, "complete", json!({"workerId": "w", "result": 1})).await.status, 200);
    assert_eq!(served.stopped().await.cut_off, 0);
}

#[tokio::test]
async fn a_server_without_its_coordinator_says_that_it_is_not_serving() {
    let served = Served::start().await;
    let address = served.address;
    let client = served.client.clone();
    // Only the coordinator stops; the listener stays.
    let Served { running, .. } = served;
    running.stop().await.unwrap();
    let call = client.get(format!("http://{address}/v1/queues"));
    let told = send(call).await;
    told.is_problem(503, "not_serving");
    assert!(told.headers.contains_key("retry-after"));
    send(client.get(format!("http://{address}/readyz"))).await.is_problem(503, "not_serving");
}

/// A purged task was not told from one that never was.
#[tokio::test]
async fn a_purged_task_tells_its_own_tenant_how_it_ended() {
    let served = Served::start().await;
    let (task, kept) = (served.submit("q").await, served.submit("other").await);
    let lease = served.lease("w", "q").await;
    let done = served.report(&lease, "complete", json!({"workerId": "w", "result": 1})).await;
    assert_eq!(done.status, 200, "{done:?}");
    let finished_at = served.task(&task).await["finishedAt"].clone();
    assert_eq!(served.put("/v1/queues/q", json!({"retentionMs": 0})).await.status, 200);
    // A start purges before it serves.
    let served = served.restarted().await;
    for (method, tail) in
        [("GET", ""), ("GET", "?waitMs=1"), ("GET", "/history"), ("POST", "/cancel"), ("POST", "/redrive")]
    {
        let path = format!("/v1/tasks/{task}{tail}");
        let gone = send(served.request(method, &path)).await;
        gone.is_problem(410, "task_purged");
        assert_eq!(
            (gone.body["state"].as_str(), gone.body["taskId"].as_str()),
            (Some("COMPLETED"), Some(&*task))
        );
        assert_eq!(gone.body["finishedAt"], finished_at);
        // Not as texts: zeros at the end of a fraction are left out.
        let at = |field: &str| gone.text(field).parse::<jiff::Timestamp>().unwrap();
        assert!(at("purgedAt") >= at("finishedAt"), "{gone:?}");
        assert!(gone.text("detail").contains("ended COMPLETED at"), "{gone:?}");
        for header in ["lessor-tenant", "lessor-workspace"] {
            let foreign = send(served.request(method, &path).header(header, "other")).await;
            foreign.is_problem(404, "unknown_task");
        }
    }
    assert_eq!(served.task(&kept).await["state"], "WAITING");
    // An id of the same moment that was never given out.
    let never = format!("{}{}", &task[..24], "000000000000");
    served.get(&format!("/v1/tasks/{never}")).await.is_problem(404, "unknown_task");
}

/// A task was shown as "attempt 4 of 3" because releases were counted, which the limit does not do.
#[tokio::test]
async fn attempts_that_were_given_back_are_not_among_the_used_ones() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let lease = served.lease("w", "q").await;
    assert_eq!(served.report(&lease, "release", json!({"workerId": "w"})).await.status, 200);
    served.lease("w", "q").await;
    let shown = served.task(&task).await;
    let counts = ["attempt", "usedAttempts", "maxAttempts"].map(|field| shown[field].as_u64());
    assert_eq!(counts, [Some(2), Some(1), Some(3)]);
}
