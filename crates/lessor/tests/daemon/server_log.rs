//! The log of the server: workers that come, leave and are lost, and lines that every JSON parser reads.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support_worker::{Worker, server_with_heartbeat_timeout, submit, until, until_state};

fn lines(log: &str) -> Vec<Value> {
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn level(log: &str, message: &str, worker: &str) -> Option<String> {
    let lines = lines(log);
    let about = |line: &&Value| {
        line["worker"] == worker && line["message"].as_str().is_some_and(|text| text.starts_with(message))
    };
    Some(lines.iter().find(about)?["level"].as_str()?.to_owned())
}

#[test]
fn s3_59_the_server_logs_workers_that_register_leave_and_time_out() {
    let (server, dir) = (server_with_heartbeat_timeout(1), tempfile::tempdir().unwrap());
    let flags = ["--server-url", &server.url(), "--queue", "jobs", "--id"];
    let start = |id: &'static str| {
        let dir = dir.path().join(id);
        std::fs::create_dir(&dir).unwrap();
        Worker::start(&dir, &[&flags[..], &[id]].concat())
    };
    let (leaves, is_lost) = (start("leaves"), start("is-lost"));
    for id in ["leaves", "is-lost"] {
        let level = until(|| level(&server.log(), "worker registered", id));
        assert_eq!(level, "INFO");
    }
    assert_eq!(leaves.terminate(), Some(0));
    assert_eq!(until(|| level(&server.log(), "worker unregistered", "leaves")), "INFO");
    is_lost.signal(Signal::KILL);
    // Nobody looks at the worker, so the server notices by itself.
    assert_eq!(until(|| level(&server.log(), "worker timed out", "is-lost")), "WARN");
}

/// Lines about failed attempts had the key `message` twice, which parsers refuse or read differently.
#[test]
fn s3_59_no_line_of_the_log_has_a_key_twice() {
    let (server, dir) = (crate::support_worker::server(), tempfile::tempdir().unwrap());
    let flags = ["--server-url", &server.url(), "--queue", "jobs", "--id", "w"];
    let worker = Worker::start(dir.path(), &flags);
    let payload = json!({"command": ["sh", "-c", "echo it broke >&2; exit 3"]});
    let failing = json!({"queue": "jobs", "payload": payload, "maxAttempts": 2, "backoff": {"initialMs": 1}});
    let id = submit(&server, failing);
    until_state(&server, &id, "FAILED");
    assert_eq!(worker.terminate(), Some(0));
    let worker_log = std::fs::read_to_string(dir.path().join("worker.log")).unwrap();
    let (_, log) = server.terminate();
    for message in ["attempt failed; the task waits for its next one", "task failed"] {
        let failed = lines(&log).into_iter().find(|line| line["message"] == message);
        let failed = failed.unwrap_or_else(|| panic!("no line {message:?} in {log}"));
        assert!(failed["error"].as_str().is_some_and(|error| !error.is_empty()), "{failed}");
    }
    for line in log.lines().chain(worker_log.lines()).filter(|line| line.starts_with('{')) {
        wire::strict_json::check(line.as_bytes(), 64).unwrap_or_else(|fault| panic!("{fault:?}: {line}"));
    }
}
