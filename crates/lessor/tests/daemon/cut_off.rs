//! A worker that nobody can reach, and that can reach nobody (S3-45, S3-53, W18), and one with a wrong clock (T7).

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

/// Leases are counted by durations, which no clock of the wall changes; the worker's times are only shown.
#[test]
fn t7_a_worker_whose_clock_is_hours_off_works_like_any_other() {
    let library = chaos::faketime_library().unwrap();
    for (offset, ahead_s) in [("+18000s", 18_000), ("-18000s", -18_000)] {
        let (server, dir) = (server(), tempfile::tempdir().unwrap());
        let env = [
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("FAKETIME", offset),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let arguments = ["--server-url", &server.url(), "--queue", "jobs", "--queue", "exec"];
        let worker = Worker::start_with_env(dir.path(), &arguments, &env);
        // Longer than its lease, so that it depends on heartbeats.
        let payload = json!({"command": ["sleep", "3"]});
        let body = json!({"queue": "jobs", "payload": payload, "leaseMs": 2_000, "maxAttempts": 1});
        let id = submit(&server, body);
        let ran = server.run(&["run", "-q", "--", "echo", "out"]).ok();
        assert_eq!(ran.stdout, "out\n");
        let done = until_state(&server, &id, "COMPLETED");
        let finished: jiff::Timestamp = done["finishedAt"].as_str().unwrap().parse().unwrap();
        let now = jiff::Timestamp::now().as_second();
        assert!((finished.as_second() - now).abs() < 9_000, "the worker's clock counts: {done}");
        let log = worker.log();
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let line = lines.next_back().unwrap();
        let said: jiff::Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
        assert!((said.as_second() - now - ahead_s).abs() < 9_000, "the worker's clock is right: {line}");
        assert_eq!(worker.terminate(), Some(0));
    }
}
