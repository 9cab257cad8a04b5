//! Wall clocks that are set while the server runs, and time zones. The package `faketime` sets the clock of one process.

use std::fs;
use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::Server;
use crate::support::worker::coordinator;

const HOUR_S: i64 = 3_600;

/// The server's wall clock follows the offset in `clock` below the directory.
fn with_a_clock(dir: &Path) -> Command {
    fs::write(dir.join("clock"), "+0s").unwrap();
    let mut command = coordinator(dir, "127.0.0.1:0");
    command
        .env("LD_PRELOAD", chaos::faketime_library().unwrap())
        .env("FAKETIME_TIMESTAMP_FILE", dir.join("clock"))
        .env("FAKETIME_NO_CACHE", "1")
        // Durations are measured on other clocks, which no operator can set.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

/// How far the log's line about a task is ahead of our clock: the log has the time of the wall.
fn log_ahead_s(server: &Server, task: &str) -> i64 {
    loop {
        let log = server.log();
        // The last line may not be whole yet.
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        if let Some(line) = lines.find(|line| line["task"] == task) {
            return time(&line["timestamp"]).as_second() - Timestamp::now().as_second();
        }
        std::thread::yield_now();
    }
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = server.text("/metrics");
    text.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).unwrap().parse().unwrap()
}

#[test]
fn t1_t2_a_wall_clock_that_is_set_while_the_server_runs_ends_and_prolongs_no_lease() {
    let dir = tempfile::tempdir().unwrap();
    let clock = dir.path().join("clock");
    let server = Server::start_by(with_a_clock(dir.path()), dir);
    server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    let lease = server.lease("q");
    let beat = format!("/v1/leases/{}/heartbeat", lease["leaseId"].as_str().unwrap());
    for (offset, ahead_s) in [("+3600s", HOUR_S), ("-3600s", -HOUR_S), ("+0s", 0)] {
        // The server may read the file at any moment, and half an offset is one as well.
        let new = clock.with_extension("new");
        fs::write(&new, offset).unwrap();
        fs::rename(&new, &clock).unwrap();
        let task = server.post("/v1/tasks", json!({"queue": "other", "payload": offset}));
        let id = task["taskId"].as_str().unwrap();
        let off_s = log_ahead_s(&server, id) - ahead_s;
        assert!(off_s.abs() < HOUR_S / 2, "{offset}: the wall clock was not set: {}", server.log());
        let skew_s = metric(&server, "lessor_clock_skew_seconds") - ahead_s as f64;
        assert!(skew_s.abs() < HOUR_S as f64 / 2.0, "{offset}: the skew that is shown is off by {skew_s} s");
        let created = time(&server.get(&format!("/v1/tasks/{id}"))["createdAt"]);
        let off_s = created.as_second() - Timestamp::now().as_second();
        assert!(off_s.abs() < HOUR_S / 2, "{offset}: the coordinator's clock is off by {off_s} s");
        let told = server.post(&beat, json!({"workerId": "w1"}));
        let left_s = time(&told["expiresAt"]).as_second() - Timestamp::now().as_second();
        assert!((1..HOUR_S / 2).contains(&left_s), "{offset}: the lease lives for {left_s} s: {told}");
    }
    server.complete(&lease, json!(1));
    let task = server.get(&format!("/v1/tasks/{}", lease["taskId"].as_str().unwrap()));
    assert_eq!((&task["state"], &task["attempt"]), (&json!("COMPLETED"), &json!(1)));
}

/// Servers and clients of all time zones, at moments when clocks are changed, say the same.
#[test]
fn t5_time_zones_and_changed_clocks_mean_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = with_a_clock(dir.path());
    // Half an hour before the clocks in New York were set back: one hour is there twice.
    let start: Timestamp = "2025-11-02T05:30:00Z".parse().unwrap();
    let offset = start.as_second() - Timestamp::now().as_second();
    fs::write(dir.path().join("clock"), format!("{offset:+}s")).unwrap();
    command.env("TZ", "America/New_York");
    let server = Server::start_by(command, dir);
    let deadline = "2025-11-02T06:30:00Z".parse::<Timestamp>().unwrap();
    let body = |deadline: &str| json!({"queue": "q", "payload": 1, "deadline": deadline});
    // The same moment in two ways; a leap second is the second after it.
    for written in ["2025-11-02T01:30:00-05:00", "2025-11-02T06:29:60Z"] {
        let task = server.post("/v1/tasks", body(written));
        let id = task["taskId"].as_str().unwrap();
        let shown = server.get(&format!("/v1/tasks/{id}"));
        let told = time(&shown["deadline"]);
        assert!((told.as_second() - deadline.as_second()).abs() <= 1, "{written}: {shown}");
        let ahead_s = time(&shown["createdAt"]).as_second() - start.as_second();
        assert!((0..HOUR_S / 2).contains(&ahead_s), "{shown}");
        let texts: Vec<String> = ["UTC", "Asia/Kathmandu", "right/Europe/Berlin"]
            .iter()
            .map(|zone| {
                let mut command = server.command(&["task", "get", id, "--json"]);
                String::from_utf8(command.env("TZ", zone).output().unwrap().stdout).unwrap()
            })
            .collect();
        assert!(texts[0].contains(id) && texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    }
}
