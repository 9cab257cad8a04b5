//! A worker that nobody can reach, and that can reach nobody: S3-45, S3-53, W18.

use serde_json::json;

use crate::support_worker::{Line, Worker, endless, is_alive, pid, server, submit, until, until_state};

#[test]
fn w18_s3_53_a_worker_cut_off_for_longer_than_its_lease_stops_and_serves_on_when_it_is_back() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let line = Line::to(&server);
    let worker = Worker::start(dir.path(), &["--server-url", &line.url, "--queue", "jobs"]);
    let pid_file = dir.path().join("pid");
    let body = json!({"queue": "jobs", "payload": endless(&pid_file), "leaseMs": 6_000, "maxAttempts": 3});
    let id = submit(&server, body);
    let process = pid(&pid_file);
    line.cut();
    // By its own clock: no answer reaches the worker.
    until(|| (!is_alive(process)).then_some(()));
    worker.wait_for_log("the lease ran out without an answered heartbeat", 1);
    until_state(&server, &id, "WAITING");
    std::fs::remove_file(&pid_file).unwrap();
    line.reconnect();
    let again = pid(&pid_file);
    assert_ne!(again, process);
    let leased = until_state(&server, &id, "LEASED");
    assert_eq!(leased["attempt"], 2, "{leased}");
    let history = server.get(&format!("/v1/tasks/{id}/history"));
    let events = history["events"].as_array().unwrap();
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert!(types.contains(&"LeaseExpired"), "{types:?}");
    assert!(!types.contains(&"TaskFailed") && !types.contains(&"TaskCancelled"), "{types:?}");
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({"reason": "enough"}));
    until(|| (!is_alive(again)).then_some(()));
    assert_eq!(worker.terminate(), Some(0));
}
