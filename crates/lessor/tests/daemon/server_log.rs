//! The log of the server: workers that come, leave and are lost, and lines that every JSON parser reads.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{RegisterWorkerRequest, TaskStatus, UpdateTaskStatusRequest};

use crate::document_worker::DocumentWorker;
use crate::documented_worker::{Build, Place};
use crate::support::Server;
use crate::support_worker::{Worker, server, server_with_heartbeat_timeout, submit, until, until_state};

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

/// The lines with this message about a task.
fn about(server: &Server, task: &str, message: &str) -> Vec<Value> {
    let mut lines = lines(&server.log());
    lines.retain(|line| line["task"] == task && line["message"] == message);
    lines
}

#[track_caller]
fn is_logged(server: &Server, task: &str, level: &str, message: &str) -> Value {
    let found = until(|| Some(about(server, task, message)).filter(|lines| !lines.is_empty())).remove(0);
    assert_eq!(found["level"], level, "{found}");
    found
}

#[test]
fn s3_59_the_server_logs_tasks_as_info_timeouts_as_warnings_and_failures_as_errors() {
    let server = server();
    let report = |lease: &Value, end: &str, body: Value| {
        server.try_post(&format!("/v1/leases/{}/{end}", lease["leaseId"].as_str().unwrap()), &body);
    };
    let done = submit(&server, json!({"queue": "q", "payload": 1}));
    let lease = server.lease("q");
    report(&lease, "complete", json!({"workerId": "w1", "result": 1}));
    is_logged(&server, &done, "INFO", "task submitted");
    is_logged(&server, &done, "INFO", "lease granted");
    is_logged(&server, &done, "INFO", "task completed");
    report(&lease, "complete", json!({"workerId": "w1", "result": 2}));
    let rejected = is_logged(&server, &done, "ERROR", "report rejected");
    assert_eq!((&rejected["worker"], &rejected["why"]), (&json!("w1"), &json!("ConflictingReport")));

    let twice = json!({"queue": "q", "payload": 1, "maxAttempts": 2, "backoff": {"initialMs": 0}});
    let failed = submit(&server, twice);
    for _ in 0..2 {
        report(
            &server.lease("q"),
            "fail",
            json!({"workerId": "w1", "reason": "it broke", "retryable": true}),
        );
    }
    let retried = is_logged(&server, &failed, "WARN", "attempt failed; the task waits for its next one");
    let last = is_logged(&server, &failed, "ERROR", "task failed");
    assert_eq!((&retried["attempt"], &last["attempt"]), (&json!(1), &json!(2)));
    assert!(last["error"].as_str().is_some_and(|error| error.contains("it broke")), "{last}");

    let silent = submit(&server, json!({"queue": "q", "payload": 1, "maxAttempts": 1, "leaseMs": 100}));
    let lease = server.lease("q");
    is_logged(&server, &silent, "WARN", "lease expired");
    is_logged(&server, &silent, "ERROR", "task is dead");
    report(&lease, "complete", json!({"workerId": "w1", "result": 1}));
    is_logged(&server, &silent, "WARN", "report discarded: its lease was over");
}

#[test]
fn s3_59_the_server_logs_lost_and_refused_workers() {
    let (server, place) = (server_with_heartbeat_timeout(3), Place::new());
    // An execution whose attempts all fail on the worker's machine.
    let broken = DocumentWorker::start_with_faults(&server, "broken", 3);
    let built = Build::start(&server, place.dir.path(), "true").ended();
    assert_eq!(built.code, 125, "{built:?}");
    let failed = is_logged(&server, &broken.leased()[0], "ERROR", "task failed");
    assert!(failed["error"].as_str().is_some_and(|error| error.contains("on fire")), "{failed}");
    broken.vanish();
    assert_eq!(until(|| level(&server.log(), "worker timed out", "broken")), "WARN");

    let lost = DocumentWorker::start(&server, "lost");
    let build = Build::start(&server, place.dir.path(), &place.hangs_once());
    place.until_begun();
    let task = lost.leased().remove(0);
    Runtime::new().unwrap().block_on(async {
        let elsewhere =
            Endpoint::from_shared(server.url()).unwrap().local_address(Some([127, 0, 0, 2].into()));
        let mut thief = WorkerSchedulerClient::new(elsewhere.connect().await.unwrap());
        let same = RegisterWorkerRequest { worker_id: "lost".to_owned(), ..Default::default() };
        assert!(thief.register_worker(same).await.is_err());
        let (task_id, worker_id) = (task.clone(), "thief".to_owned());
        let status = TaskStatus::Completed.into();
        let stolen = UpdateTaskStatusRequest { task_id, worker_id, status, ..Default::default() };
        assert!(thief.update_task_status(stolen).await.is_err());
    });
    assert_eq!(until(|| level(&server.log(), "worker refused", "lost")), "ERROR");
    assert_eq!(until(|| level(&server.log(), "report rejected", "thief")), "ERROR");
    lost.vanish();
    assert_eq!(until(|| level(&server.log(), "worker lost", "lost")), "WARN");
    assert_eq!(is_logged(&server, &task, "WARN", "lease expired")["cause"], "WorkerLost");
    let _last = DocumentWorker::start(&server, "last");
    assert_eq!(build.ended().code, 0);
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
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
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
