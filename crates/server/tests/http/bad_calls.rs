//! Bad input to the worker protocol, and calls that no endpoint takes, get a clear 4xx problem and change nothing.

use serde_json::json;

use crate::support::bad::{
    bad, bad_bodies, bad_counts, bad_field, bad_names, bad_report_bodies, bad_reported_names, refuse_all,
};
use crate::support::{Served, Told, path, send};

#[tokio::test]
async fn bad_polls_are_refused() {
    let served = Served::start().await;
    served.submit("q").await;
    let (path, good) = ("/v1/leases", json!({"workerId": "w", "queues": ["q"], "waitMs": 0}));
    let mut list = bad_bodies("POST", path, &good, false);
    list.extend(bad_names("POST", path, &good, "workerId", false));
    list.extend(bad_names("POST", path, &good, "requestId", true));
    list.extend(bad_counts("POST", path, &good, "maxTasks"));
    list.extend(bad_counts("POST", path, &good, "waitMs"));
    let many = json!(vec!["q"; 101]).to_string();
    for (field, value) in [
        ("maxTasks", "0"),
        ("queues", "[]"),
        ("queues", "\"q\""),
        ("queues", "[1]"),
        ("queues", "[\"\"]"),
        ("queues", "[\"a\\u0000\"]"),
        ("queues", &many),
        ("properties", "[]"),
        ("properties", "{\"os\":1}"),
    ] {
        list.push(bad_field("POST", path, &good, field, value));
    }
    refuse_all(&served, list, false).await;
}

#[tokio::test]
async fn bad_heartbeats_are_refused() {
    let served = Served::start().await;
    served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let (path, good) = (path(&lease, "heartbeat"), json!({"workerId": "w"}));
    let mut list = bad_report_bodies("POST", &path, &good);
    list.extend(bad_names("POST", &path, &good, "workerId", false));
    for (field, value) in
        [("progressPct", "-1"), ("progressPct", "100.5"), ("progressPct", "\"half\""), ("message", "1")]
    {
        list.push(bad_field("POST", &path, &good, field, value));
    }
    list.push(bad("wrong worker", "POST", &path, "{\"workerId\":\"v\"}", 403, "bad_lease_id"));
    list.push(bad(
        "bad lease",
        "POST",
        "/v1/leases/x/heartbeat",
        "{\"workerId\":\"w\"}",
        403,
        "bad_lease_id",
    ));
    let wrong = "{\"workerId\":\"w\",\"taskId\":\"x\"}";
    list.push(bad("wrong task", "POST", &path, wrong, 403, "wrong_task"));
    refuse_all(&served, list, false).await;
}

#[tokio::test]
async fn bad_reports_are_rejected() {
    let served = Served::start().await;
    served.submit("q").await;
    let lease = served.lease("w", "q").await;
    for (what, good) in [
        ("complete", json!({"workerId": "w", "result": 1})),
        ("fail", json!({"workerId": "w", "reason": "x"})),
        ("release", json!({"workerId": "w"})),
    ] {
        let path = path(&lease, what);
        let mut list = match what {
            "release" => bad_bodies("POST", &path, &good, false),
            _ => bad_report_bodies("POST", &path, &good),
        };
        list.extend(bad_names("POST", &path, &good, "workerId", false));
        list.push(bad_field("POST", &path, &good, "taskId", "1"));
        list.push(bad("no worker", "POST", &path, "{}", 400, "invalid_field"));
        if what == "fail" {
            list.extend(bad_reported_names("POST", &path, &good, "code"));
            for (field, value) in [
                ("category", "\"MAYBE\""),
                ("category", "1"),
                ("reason", "null"),
                ("reason", "1"),
                ("retryable", "\"yes\""),
                ("retryable", "1"),
                ("stackTrace", "1"),
                ("error", "\"x\""),
                ("error", "{\"message\":1}"),
            ] {
                list.push(bad_field("POST", &path, &good, field, value));
            }
            list.push(bad("no reason", "POST", &path, "{\"workerId\":\"w\"}", 400, "invalid_field"));
        }
        refuse_all(&served, list, true).await;
    }
}

#[tokio::test]
async fn what_is_not_served_says_so() {
    let served = Served::start().await;
    let problem = |told: Told, status, code: &str| {
        told.is_problem(status, code);
        told
    };
    problem(served.get("/").await, 404, "not_found");
    problem(served.get("/v1/nothing").await, 404, "not_found");
    problem(served.get("/v1/tasks/").await, 404, "not_found");
    for (method, path, allowed) in [
        ("DELETE", "/v1/tasks", "GET,HEAD,POST"),
        ("PATCH", "/v1/queues/q", "GET,HEAD,PUT"),
        ("GET", "/v1/leases", "POST"),
        ("PUT", "/v1/tasks/x/cancel", "POST"),
        ("POST", "/healthz", "GET,HEAD"),
    ] {
        let told = problem(send(served.request(method, path)).await, 405, "method_not_allowed");
        let mut allow: Vec<_> = told.headers["allow"].to_str().unwrap().split(',').collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed, "{method} {path}");
    }
}

#[tokio::test]
async fn a_body_of_another_type_is_refused_with_a_hint() {
    let served = Served::start().await;
    let position = served.position().await;
    for kind in ["text/plain", "multipart/form-data; boundary=x", "application/xml", "", "\u{ff}"] {
        let call = served.request("POST", "/v1/tasks").header("content-type", kind);
        let told = send(call.body("{\"queue\":\"q\",\"payload\":1}")).await;
        told.is_problem(415, "unsupported_media_type");
        assert!(told.text("detail").contains("content-type: application/json"));
    }
    assert_eq!(served.position().await, position);
    let untyped = || served.request("POST", "/v1/tasks").body("{\"queue\":\"q\",\"payload\":1}");
    assert_eq!(send(untyped()).await.status, 201);
    let curls_own = untyped().header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(send(curls_own).await.status, 201, "what curl -d sends");
}

#[tokio::test]
async fn i2_bad_scopes_are_refused_everywhere() {
    let served = Served::start().await;
    let position = served.position().await;
    let long = "x".repeat(129);
    for path in [
        "/v1/tasks",
        "/v1/queues",
        "/v1/workers",
        "/v1/instances",
        "/v1/tasks/x",
        "/v1/tasks/x/history",
        "/v1/queues/q",
    ] {
        for header in ["lessor-tenant", "lessor-workspace"] {
            for value in ["", &long, "a\tb"] {
                let call = served.request("GET", path).header(header, value);
                send(call).await.is_problem(400, "invalid_scope");
            }
            let twice = served.request("GET", path).header(header, "a").header(header, "b");
            send(twice).await.is_problem(400, "invalid_scope");
        }
    }
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn web_pages_of_other_origins_change_nothing() {
    let served = Served::start().await;
    let position = served.position().await;
    let call = || served.request("POST", "/v1/tasks").json(&json!({"queue": "q", "payload": 1}));
    send(call().header("origin", "https://evil.example")).await.is_problem(403, "cross_origin");
    assert_eq!(served.position().await, position);
    let own = format!("http://{}", served.address);
    assert_eq!(send(call().header("origin", own)).await.status, 201);
}
