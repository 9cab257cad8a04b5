//! The end of a worker: S3-56, by real signals.

use rustix::process::Signal;
use serde_json::json;

use crate::support_worker::{
    Worker, endless, is_alive, pid, registration, server, submit, task, until, until_state,
};

#[test]
fn s3_56_on_sigterm_what_runs_is_finished_and_nothing_more_is_taken() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let flags = ["--server-url", &server.url(), "--queue", "jobs", "--id", "w"];
    let worker = Worker::start(dir.path(), &flags);
    let go = dir.path().join("go");
    let begun = dir.path().join("begun");
    // A pipe with a name: the command begins, and goes on when the test writes to it.
    let made = std::process::Command::new("mkfifo").arg(&go).status().unwrap();
    assert!(made.success());
    let script = format!("touch {}; cat {}", begun.display(), go.display());
    let payload = json!({"command": ["sh", "-c", script]});
    let running = submit(&server, json!({"queue": "jobs", "payload": payload}));
    until(|| begun.exists().then_some(()));
    worker.signal(Signal::TERM);
    until(|| (registration(&server, "w")["state"] == "DRAINING").then_some(()));
    let later = submit(&server, json!({"queue": "jobs", "payload": {"command": ["true"]}}));
    std::fs::write(&go, "went on").unwrap();
    assert_eq!(worker.ended(), Some(0));
    let done = task(&server, &running);
    assert_eq!(
        (&done["state"], &done["result"]["stdout"]),
        (&json!("COMPLETED"), &json!("went on")),
        "{done}"
    );
    assert_eq!(task(&server, &later)["state"], "WAITING");
    assert!(registration(&server, "w").is_null());
}

#[test]
fn s3_56_what_does_not_end_in_time_is_killed_and_given_back() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let flags = ["--server-url", &server.url(), "--queue", "jobs", "--drain-seconds", "0"];
    let worker = Worker::start(dir.path(), &flags);
    let pid_file = dir.path().join("pid");
    let id = submit(&server, json!({"queue": "jobs", "payload": endless(&pid_file)}));
    let process = pid(&pid_file);
    assert!(is_alive(process));
    worker.signal(Signal::INT);
    assert_eq!(worker.ended(), Some(0));
    assert!(!is_alive(process));
    let waiting = task(&server, &id);
    assert_eq!((&waiting["state"], &waiting["attempt"]), (&json!("WAITING"), &json!(1)), "{waiting}");
    let left: Vec<_> = walk(&dir.path().join("worker/work"));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn s3_44_a_cancelled_command_is_killed_and_the_slot_is_free() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let flags = ["--server-url", &server.url(), "--queue", "jobs", "--slots", "1"];
    let _worker = Worker::start(dir.path(), &flags);
    let pid_file = dir.path().join("pid");
    let id = submit(&server, json!({"queue": "jobs", "payload": endless(&pid_file)}));
    let process = pid(&pid_file);
    server.post(&format!("/v1/tasks/{id}/cancel"), json!({"reason": "enough"}));
    until(|| (!is_alive(process)).then_some(()));
    until(|| (task(&server, &id)["state"] != "LEASED").then_some(()));
    let next = submit(&server, json!({"queue": "jobs", "payload": {"command": ["true"]}}));
    until_state(&server, &next, "COMPLETED");
}

/// Everything below the worker's own directory; the lock beside it stays.
fn walk(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = |directory: &std::path::Path| -> Vec<std::path::PathBuf> {
        directory.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    entries(directory).iter().filter(|path| path.is_dir()).flat_map(|own| entries(own)).collect()
}
