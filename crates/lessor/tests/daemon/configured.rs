//! Tests the configuration of a worker: S3-41, S3-49, S3-67 to S3-70.

use std::path::Path;

use serde_json::json;

use crate::support::{Ran, lessor};
use crate::support_worker::{Worker, registration, server, submit, until, until_state};

fn config(dir: &Path, text: &str) -> String {
    let path = dir.join("worker.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn s3_41_s3_49_s3_67_s3_68_a_worker_is_told_by_its_file_and_flags_win() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let file = config(
        dir.path(),
        r#"
        [worker]
        worker_id = "from-file"
        server_url = "http://127.0.0.1:1"
        max_concurrent_tasks = 3
        backend = "docker"
        queues = ["jobs"]
        [worker.platform]
        colour = "blue"
        [worker.resources]
        cpu_cores = 2.5
        memory_bytes = 1000000
        "#,
    );
    let flags =
        ["--config", &file, "--server-url", &server.url(), "--backend", "host", "--platform", "shape=round"];
    let worker = Worker::start(dir.path(), &flags);
    let known = until(|| Some(registration(&server, "from-file")).filter(|known| !known.is_null()));
    let resources = json!({"cpuCores": 2.5, "memoryBytes": 1_000_000});
    assert_eq!(known["maxConcurrentExecutions"], 3, "{known}");
    assert_eq!(known["cpuCores"], resources["cpuCores"], "{known}");
    assert_eq!(known["memoryBytes"], resources["memoryBytes"], "{known}");
    let body = json!({
        "queue": "jobs", "payload": {"command": ["true"]},
        "properties": {"colour": "blue", "shape": "round", "OSFamily": "linux"},
    });
    until_state(&server, &submit(&server, body), "COMPLETED");
    assert_eq!(worker.terminate(), Some(0));
    assert!(registration(&server, "from-file").is_null(), "it has said goodbye");
}

#[test]
fn s3_67_a_worker_without_a_name_makes_one_and_keeps_it() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let name = || std::fs::read_to_string(dir.path().join("worker/worker.id")).ok();
    let worker = Worker::start(dir.path(), &["--server-url", &server.url()]);
    let first = until(name);
    until(|| (!registration(&server, first.trim()).is_null()).then_some(()));
    assert_eq!(worker.terminate(), Some(0));
    let worker = Worker::start(dir.path(), &["--server-url", &server.url()]);
    until(|| (!registration(&server, first.trim()).is_null()).then_some(()));
    assert_eq!(name(), Some(first));
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn s3_69_commands_get_what_the_file_allows_of_the_workers_environment() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let file =
        config(dir.path(), "[worker]\nqueues = [\"jobs\"]\n[worker.host]\nenv_whitelist = [\"PATH\"]\n");
    let _worker = Worker::start(dir.path(), &["--config", &file, "--server-url", &server.url()]);
    let payload = json!({"command": ["sh", "-c", "echo ${HOME-none} ${PATH:+path}"]});
    let id = submit(&server, json!({"queue": "jobs", "payload": payload}));
    let done = until_state(&server, &id, "COMPLETED");
    assert_eq!(done["result"]["stdout"], "none path\n", "{done}");
}

#[test]
fn a_file_that_is_not_right_is_refused_with_where_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = config(dir.path(), "[worker]\nserver_ulr = \"http://a\"\n");
    for command in
        [&["worker", "daemon", "--config"][..], &["worker", "check", "--config"], &["check-config"]]
    {
        let ran = Ran::from(lessor(command).arg(&file).current_dir(dir.path()).output().unwrap());
        ran.fails(2, &["line 2", "worker.server_ulr", "did you mean worker.server_url?"]);
    }
    let flags = ["worker", "daemon", "--slots", "0"];
    let ran = Ran::from(lessor(&flags).current_dir(dir.path()).output().unwrap());
    ran.fails(2, &["worker.max_concurrent_tasks must be between 1 and 500"]);
    let ran = Ran::from(lessor(&["worker", "daemon", "--backend", "vm"]).output().unwrap());
    ran.fails(2, &["\"vm\" is no backend"]);
}

#[test]
fn check_config_shows_a_workers_file_with_its_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let file =
        config(dir.path(), "[worker]\nmax_concurrent_tasks = 9\n[worker.platform]\nOSFamily = \"Linux\"\n");
    let config = Ran::from(lessor(&["check-config", "--json", &file]).output().unwrap()).ok().json();
    let worker = &config["worker"];
    assert_eq!((&worker["max_concurrent_tasks"], &worker["backend"]), (&json!(9), &json!("host")));
    assert_eq!(
        (&worker["platform"]["OSFamily"], &worker["docker"]["network_mode"]),
        (&json!("Linux"), &json!("none"))
    );
    let text = Ran::from(lessor(&["check-config", &file]).output().unwrap()).ok().stdout;
    assert!(text.contains("[worker.host]") && text.contains("heartbeat_interval_seconds = 30"), "{text}");
}

#[test]
fn s3_59_a_worker_logs_what_it_does_and_what_fails_at_their_levels() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let worker = Worker::start(dir.path(), &["--server-url", &server.url(), "--queue", "jobs"]);
    let done = submit(&server, json!({"queue": "jobs", "payload": {"command": ["true"]}}));
    until_state(&server, &done, "COMPLETED");
    let failing = submit(&server, json!({"queue": "jobs", "payload": {"command": []}}));
    until_state(&server, &failing, "FAILED");
    assert_eq!(worker.log_level(&done, "the attempt has begun"), "INFO");
    assert_eq!(worker.log_level(&done, "committed"), "INFO");
    assert_eq!(worker.log_level(&failing, "an attempt failed"), "ERROR");
    assert_eq!(worker.terminate(), Some(0));
}
