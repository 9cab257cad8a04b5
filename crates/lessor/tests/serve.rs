//! Tests `lessor serve` and `lessor check-config`: a server with a configuration file.

#[path = "serve/cluster.rs"]
mod cluster;
#[path = "serve/content_server.rs"]
mod content_server;
#[path = "serve/drain.rs"]
mod drain;
#[path = "serve/enqueue.rs"]
mod enqueue;
#[path = "serve/failures.rs"]
mod failures;
#[path = "serve/keys.rs"]
mod keys;
#[path = "serve/nodes.rs"]
mod nodes;
#[path = "serve/postgres.rs"]
mod postgres;
#[path = "serve/redis.rs"]
mod redis_streams;
#[path = "serve/stale_reads.rs"]
mod stale_reads;
mod support;

use std::fs;
use std::path::Path;

use serde_json::json;
use support::cluster::{configured, serve};
use support::{Ran, Server, lessor};

fn check(dir: &Path, arguments: &[&str]) -> Ran {
    Ran::from(lessor(&["check-config"]).args(arguments).arg(dir.join("lessor.toml")).output().unwrap())
}

const SMALL: &str = r#"
[server]
address = "127.0.0.1:0"
[data]
dir = "DIR/data"
segment_mib = 32
preallocate_mib = 1
[execution.scheduler]
lease_duration_seconds = 240
max_queue_size = 77
"#;

#[test]
fn s3_51_a_file_says_where_it_listens_and_how_executions_are_queued() {
    let dir = configured(SMALL);
    let server = Server::start_by(serve(dir.path(), &["--init"]), dir);
    let exec = server.get("/v1/queues/exec");
    assert_eq!((&exec["config"]["leaseMs"], &exec["config"]["maxQueueSize"]), (&json!(240_000), &json!(77)));
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn d26_an_empty_directory_needs_init_once() {
    let dir = configured(SMALL);
    let refused = Ran::from(serve(dir.path(), &[]).output().unwrap());
    refused.fails(3, &["holds no ledger", "--init"]);
    assert!(!dir.path().join("data").exists(), "a refusal changes nothing");
    let mut server = Server::start_by(serve(dir.path(), &["--init"]), dir);
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    server.kill();
    let server = server.start_again(|dir| serve(dir, &["--verbose"]));
    let path = format!("/v1/tasks/{}", task["taskId"].as_str().unwrap());
    assert_eq!(server.get(&path)["state"], "WAITING");
}

#[test]
fn d26_a_foreign_directory_is_refused_also_with_init() {
    let dir = configured(SMALL);
    fs::create_dir(dir.path().join("data")).unwrap();
    fs::write(dir.path().join("data/notes.txt"), "mine").unwrap();
    for arguments in [&["--init"][..], &[]] {
        Ran::from(serve(dir.path(), arguments).output().unwrap()).fails(3, &["not empty"]);
    }
    assert_eq!(fs::read_dir(dir.path().join("data")).unwrap().count(), 1);
}

#[test]
fn p14_a_file_that_is_not_right_starts_nothing_and_says_where() {
    let dir = configured("[server]\nadress = \"127.0.0.1:0\"\n");
    let expected = &["lessor.toml is not valid", "line 2", "server.adress", "server.address"];
    Ran::from(serve(dir.path(), &["--init"]).output().unwrap()).fails(2, expected);
    check(dir.path(), &[]).fails(2, expected);
    let missing = lessor(&["check-config", "no-such-file.toml"]).output().unwrap();
    Ran::from(missing).fails(1, &["no-such-file.toml"]);
}

#[test]
fn what_is_in_effect_is_shown_for_people_and_for_scripts() {
    let dir = configured(SMALL);
    let text = check(dir.path(), &[]).ok().stdout;
    assert!(text.contains("is valid") && text.contains("heartbeat_timeout_seconds = 120"), "{text}");
    let json = check(dir.path(), &["--json"]).ok().json();
    assert_eq!(json["execution"]["scheduler"]["lease_duration_seconds"], 240);
    assert_eq!(json["data"]["history_days"], 14);
}

#[test]
fn only_configured_queues_take_tasks_when_the_file_says_so() {
    let dir = configured(&format!("{SMALL}\n[queues]\ncreate = \"configured\"\n"));
    let server = Server::start_by(serve(dir.path(), &["--init"]), dir);
    let refused = server.run(&["submit", "mail", "1"]);
    refused.fails(
        1,
        &[
            "there is no queue mail here",
            "queues.create",
            "lessor queue set mail --reset",
            "unknown_queue, HTTP 404",
        ],
    );
    server.run(&["queue", "set", "mail", "--reset"]).ok();
    server.run(&["submit", "mail", "1"]).ok();
}

#[test]
fn a_tenant_is_held_to_the_limits_of_the_file() {
    let limits = "[limits.tenant]\nopen_tasks = 2\n[limits.tenants.large]\nopen_tasks = 3\n";
    let dir = configured(&format!("{SMALL}{limits}"));
    let settings = check(dir.path(), &["--json"]).ok().json();
    assert_eq!(settings["limits"]["tenants"]["large"]["open_tasks"], 3);
    let server = Server::start_by(serve(dir.path(), &["--init"]), dir);
    let submit = || server.run(&["submit", "mail", "1"]);
    (0..2).for_each(|_| drop(submit().ok()));
    submit().fails(1, &["2 waiting and leased tasks", "limits.tenant.open_tasks", "tenant_limit, HTTP 429"]);
    assert_eq!(server.get("/v1/queues/mail")["counts"]["waiting"], 2);
}
