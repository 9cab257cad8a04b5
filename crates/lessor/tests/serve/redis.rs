//! Tests that the streams in Redis follow the owner of a cluster: each new owner continues them, and one that was replaced changes
//! nothing any more. What Redis itself does to them is tested in `up/redis_streams`.

#[path = "../up/redis_streams/load.rs"]
mod load;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use test_servers::redis::Redis;

use self::load::Load;
use crate::support::Server;
use crate::support::cluster::Cluster;

/// Longest wait for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(120);

const JOBS: &str = "lessor:{default/default/jobs}";
const PARKED: &str = "lessor:{default/default/parked}";

/// Returns once this is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::yield_now();
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Submits some tasks to the queue that the load leaves alone.
fn park(server: &Server, count: usize) -> Vec<String> {
    let submit = |n| text(&server.post("/v1/tasks", json!({"queue": "parked", "payload": n}))["taskId"]);
    (0..count).map(submit).collect()
}

/// Claims the next job: the id of its message, and its own.
fn claim(server: &Server, queue: &str) -> (Value, (String, String)) {
    let ask = json!({"worker_id": "w1", "streams": [queue], "max_wait_ms": 30_000});
    let job = server.post("/internal/worker/claim", ask);
    assert_eq!(job["claimed"], true, "{job}");
    let names = (text(&job["message_id"]), text(&job["job_id"]));
    (job, names)
}

/// Claims the oldest parked tasks and completes them.
fn end(server: &Server, tasks: impl Iterator<Item = String>) {
    for task in tasks {
        let (job, (_, claimed)) = claim(server, "parked");
        assert_eq!(claimed, task);
        let mut report = json!({"worker_id": "w1", "result": 1});
        for field in ["job_id", "attempt_id", "lease_token", "stream", "message_id"] {
            report[field] = job[field].clone();
        }
        let answer = server.post("/internal/worker/complete", report);
        assert_eq!((&answer["ok"], &answer["ack"]), (&json!(true), &json!(true)), "{answer}");
    }
}

/// Returns once the stream has an entry for each of these tasks and no other entry.
#[track_caller]
fn until_parked(redis: &Redis, tasks: &[String]) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    until("every parked task has one entry", || {
        entries = redis.entries(PARKED);
        entries.iter().map(|(_, job)| job).eq(tasks)
    });
    entries
}

/// The tasks of a queue that are in this state.
fn tasks(server: &Server, queue: &str, state: &str) -> BTreeSet<String> {
    let page = server.get(&format!("/v1/tasks?queue={queue}&state={state}&limit=1000"));
    page["tasks"].as_array().unwrap().iter().map(|task| text(&task["taskId"])).collect()
}

/// What the consumer of a group holds: the ids of the entries.
fn held(redis: &Redis) -> Vec<String> {
    let held: Vec<(String, String, u64, u64)> = redis.ask(&["XPENDING", PARKED, "group", "-", "+", "1000"]);
    held.into_iter().map(|(id, ..)| id).collect()
}

/// The connections of nodes.
fn connections(redis: &Redis) -> usize {
    let listed: String = redis.ask(&["CLIENT", "LIST"]);
    listed.lines().filter(|line| !line.contains("cmd=client")).count()
}

#[test]
fn c18_the_streams_have_the_open_tasks_after_a_killed_owner_and_after_one_that_stood_still() {
    let redis = Redis::start();
    let mut cluster = Cluster::start_with(&["a", "b", "c"], &format!("[redis]\nurl = \"{}\"\n", redis.url()));
    let killed = cluster.owner();
    // The clients use the other nodes, because they repeat nothing.
    let mut first = cluster.take_owner();
    let urls: Vec<String> = cluster.nodes.iter().map(|(_, server)| server.url()).collect();
    let mut parked = park(&cluster.nodes[0].1, 20);
    let load = Load::start(&urls);
    load.completes(50);
    until_parked(&redis, &parked);

    first.kill();
    end(&cluster.nodes[1].1, parked.drain(..5));
    load.completes(50);
    until_parked(&redis, &parked);

    until("the new owner is known", || cluster.owner() != killed);
    let second = cluster.take_owner();
    let third = &cluster.nodes[0].1;
    second.signal(Signal::STOP);
    end(third, parked.drain(..5));
    parked.extend(park(third, 10));
    load.completes(50);
    let entries = until_parked(&redis, &parked);
    let () = redis.ask(&["XGROUP", "CREATE", PARKED, "group", "0"]);
    let () = redis.ask(&["XREADGROUP", "GROUP", "group", "c1", "COUNT", "100", "STREAMS", PARKED, ">"]);
    let ids: Vec<String> = entries.into_iter().map(|(id, _)| id).collect();
    assert_eq!(held(&redis), ids);

    second.signal(Signal::CONT);
    second.until_logged("another node has taken over");
    until("only the owner uses Redis", || connections(&redis) == 1);
    load.completes(50);
    load.stop();

    let entries = until_parked(&redis, &parked);
    assert_eq!(held(&redis), ids, "the owner that was replaced has changed no stream");
    let claims: Vec<_> = entries.iter().map(|_| claim(&second, "parked").1).collect();
    assert_eq!(claims, entries, "the id of an entry is the message_id of the claim");
    let mut entries = Vec::new();
    let mut leased = BTreeSet::new();
    until("the stream of the load has exactly the open tasks", || {
        entries = redis.entries(JOBS);
        leased = tasks(third, "jobs", "LEASED");
        let jobs: BTreeSet<String> = entries.iter().map(|(_, job)| job.clone()).collect();
        jobs.len() == entries.len() && jobs == &tasks(third, "jobs", "WAITING") | &leased
    });
    let waiting = entries.into_iter().filter(|(_, job)| !leased.contains(job));
    let waiting: BTreeSet<(String, String)> = waiting.collect();
    let claims: BTreeSet<_> = waiting.iter().map(|_| claim(third, "jobs").1).collect();
    assert_eq!(claims, waiting);
}
