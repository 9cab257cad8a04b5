//! Tests reads from the state of a standby, which do not need the owner.

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::{Server, send_for_headers};

const STALE: (&str, &str) = ("lessor-consistency", "stale");

fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, Value) {
    let url = server.url() + path;
    let (status, found, body) = send_for_headers(|client| {
        headers.iter().fold(client.get(&url), |request, (name, value)| request.header(*name, *value))
    });
    (status, found, serde_json::from_str(&body).unwrap())
}

fn position(headers: &HeaderMap) -> u64 {
    headers["lessor-position"].to_str().unwrap().parse().unwrap()
}

#[test]
fn a_standby_answers_stale_reads_without_the_owner_and_includes_what_the_client_has_written() {
    // Nobody takes over in this test.
    let mut cluster = Cluster::start_with(&["a", "b"], "takeover_after_ms = 600000\n");
    let owner = cluster.take_owner();
    let standby = &cluster.nodes[0].1;
    let url = standby.url() + "/v1/tasks";
    let (status, headers, body) =
        send_for_headers(|client| client.post(&url).json(&json!({"queue": "q", "payload": {}})));
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let (written, task) = (position(&headers), serde_json::from_str::<Value>(&body).unwrap());
    let path = format!("/v1/tasks/{}", task["taskId"].as_str().unwrap());
    let min = written.to_string();
    let since = [STALE, ("lessor-min-position", min.as_str())];
    let (status, headers, found) = get(standby, &path, &since);
    assert_eq!((status, &found["state"]), (StatusCode::OK, &json!("WAITING")), "{found}");
    assert!(position(&headers) >= written);

    owner.signal(Signal::STOP);
    for (path, pointer) in [
        (path.as_str(), "/taskId"),
        ("/v1/tasks", "/tasks/0"),
        ("/v1/queues", "/queues/0"),
        ("/v1/queues/q", "/name"),
    ] {
        let (status, headers, found) = get(standby, path, &since);
        assert_eq!(status, StatusCode::OK, "{found}");
        assert!(found.pointer(pointer).is_some(), "{path}: {found}");
        assert!(position(&headers) >= written);
    }
    owner.signal(Signal::CONT);

    // A position that no node has reached is left to the owner, and so is a strong read.
    let far = [STALE, ("lessor-min-position", "1000000")];
    for headers in [&far[..], &[("lessor-consistency", "strong")], &[]] {
        assert_eq!(get(standby, "/v1/queues/q", headers).2["counts"]["waiting"], 1);
    }
    for (header, value) in [("lessor-consistency", "eventual"), ("lessor-min-position", "-1")] {
        let (status, _, problem) = get(standby, "/v1/queues/q", &[(header, value)]);
        assert_eq!((status, &problem["field"]), (StatusCode::BAD_REQUEST, &json!(header)), "{problem}");
    }
}
