//! `lessor worker list`, `drain`, `stop` and `resume`, obeyed by workers in processes of their own.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support_worker::{Worker, registration, server, submit, task, until, until_state};

fn known(server: &Server, worker: &str) -> Value {
    let list = server.run(&["worker", "list", "--json"]).ok().json();
    let mut workers = list["workers"].as_array().unwrap().iter();
    workers.find(|known| known["workerId"] == worker).cloned().unwrap_or_default()
}

/// The row of a worker in the table.
fn row(server: &Server, worker: &str) -> String {
    let table = server.run(&["worker", "list"]).ok().stdout;
    assert!(table.starts_with("WORKER"), "{table}");
    table.lines().find(|line| line.starts_with(worker)).unwrap_or_default().to_owned()
}

#[test]
fn s3_25_a_worker_that_the_operator_stops_finishes_what_it_runs_and_exits_with_0() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let flags = ["--server-url", &server.url(), "--queue", "jobs", "--id", "w"];
    let worker = Worker::start(dir.path(), &flags);
    let (go, begun) = (dir.path().join("go"), dir.path().join("begun"));
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    let script = format!("touch {}; cat {}", begun.display(), go.display());
    let running = submit(&server, json!({"queue": "jobs", "payload": {"command": ["sh", "-c", script]}}));
    until(|| begun.exists().then_some(()));
    let told = server.run(&["worker", "stop", "w"]).ok();
    assert_eq!(told.stdout, "Worker w is asked to stop; it holds 1.\n");
    assert!(row(&server, "w").contains("STOPPING"), "{}", row(&server, "w"));
    until(|| (registration(&server, "w")["state"] == "DRAINING").then_some(()));
    let later = submit(&server, json!({"queue": "jobs", "payload": {"command": ["true"]}}));
    std::fs::write(&go, "went on").unwrap();
    let waited = server.run(&["worker", "stop", "w", "--wait", "--json"]).ok().json();
    assert_eq!((&waited["activeLeases"], &waited["stopping"]), (&json!(0), &json!(false)), "{waited}");
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(task(&server, &running)["result"]["stdout"], "went on");
    assert_eq!(task(&server, &later)["state"], "WAITING");
    assert!(row(&server, "w").contains("DRAINED"), "{}", row(&server, "w"));
    // Started again, it is still drained, and works when it is resumed.
    let worker = Worker::start(dir.path(), &flags);
    until(|| (!registration(&server, "w").is_null()).then_some(()));
    assert_eq!(
        (&known(&server, "w")["drained"], &task(&server, &later)["state"]),
        (&json!(true), &json!("WAITING"))
    );
    assert_eq!(server.run(&["worker", "resume", "w"]).ok().stdout, "Worker w takes work again.\n");
    until_state(&server, &later, "COMPLETED");
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn s3_25_a_worker_of_the_scheduler_calls_obeys_the_operator() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let config = dir.path().join("worker.toml");
    let file = format!("[worker]\nserver_url = \"{}\"\nheartbeat_interval_seconds = 1\n", server.url());
    std::fs::write(&config, file).unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--protocol", "plan", "--id", "plan-1"];
    let worker = Worker::start(dir.path(), &flags);
    until(|| (!registration(&server, "plan-1").is_null()).then_some(()));
    server.run(&["worker", "drain", "plan-1", "--wait"]).ok();
    assert_eq!(known(&server, "plan-1")["drained"], true);
    server.run(&["worker", "resume", "plan-1"]).ok();
    server.run(&["run", "--json", "--", "sh", "-c", "exit 0"]).ok();
    server.run(&["worker", "stop", "plan-1", "--wait"]).ok();
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(known(&server, "plan-1")["registration"], json!(null));
}

#[test]
fn c34_orders_for_an_unknown_worker_fail_with_what_to_do() {
    let server = server();
    assert!(server.run(&["worker", "list"]).ok().stdout.contains("No workers"));
    for order in ["drain", "stop", "resume"] {
        server.run(&["worker", order, "nobody"]).fails(1, &["nobody", "lessor worker list"]);
    }
}

/// The embedded worker ends, and the server goes on without it.
#[test]
fn s3_25_the_operator_stops_the_worker_of_the_server_process() {
    let server = Server::start();
    let list = || server.run(&["worker", "list", "--json"]).ok().json();
    let id = until(|| list()["workers"][0]["workerId"].as_str().map(str::to_owned));
    server.run(&["worker", "stop", &id, "--wait"]).ok();
    until(|| server.log().contains("the operator has stopped the worker of this process").then_some(()));
    assert!(server.get("/v1/queues")["queues"].is_array(), "the server serves");
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
}
