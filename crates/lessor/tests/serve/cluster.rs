//! Tests clusters: nodes as processes of their own on one PostgreSQL, which are killed, stopped and replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use test_servers::postgres::execute;

use crate::serve;
use crate::support::cluster::Cluster;
use crate::support::{Ran, Server, lessor};

/// Ends all other sessions with the database.
const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";

impl Cluster {
    /// The position after the last record.
    fn ledger_end(&self) -> u64 {
        execute(&self.url, "SELECT max(next) FROM lessor.batch")[0][0].parse().unwrap()
    }

    /// Removes the last batches and cuts all sessions, as a failover to a replica does that lacks the last commits.
    fn lose_from(&self, first: u64) {
        execute(&self.url, &format!("DELETE FROM lessor.batch WHERE first >= {first}"));
        execute(&self.url, CUT);
    }

    /// Submits through all nodes at once while something happens, and returns how many tasks there are then. No submit
    /// may fail.
    fn submit_during(&self, happens: impl FnOnce()) -> usize {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let submitters: Vec<_> = self
                .nodes
                .iter()
                .map(|(_, server)| {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        let mut submitted = 0;
                        while !is_over.load(Ordering::Acquire) {
                            submit(server);
                            submitted += 1;
                        }
                        submitted
                    })
                })
                .collect();
            happens();
            // One more through each node after it has happened.
            for (_, server) in &self.nodes {
                submit(server);
            }
            is_over.store(true, Ordering::Release);
            let submitted: usize = submitters.into_iter().map(|thread| thread.join().unwrap()).sum();
            submitted + self.nodes.len()
        })
    }

    fn waiting(&self) -> Vec<Value> {
        self.nodes.iter().map(|(_, server)| server.get("/v1/queues/q")["counts"]["waiting"].clone()).collect()
    }
}

fn submit(server: &Server) -> String {
    server.post("/v1/tasks", json!({"queue": "q", "payload": {}}))["taskId"].as_str().unwrap().to_owned()
}

/// Waits until a node refuses the history of the database, and returns its report.
pub(crate) fn until_forked(node: &Server) -> Value {
    node.until_logged("PostgreSQL has another history than this node");
    let until = Instant::now() + Duration::from_secs(60);
    while !node.text("/metrics").contains("\nlessor_ledger_forked 1\n") {
        assert!(Instant::now() < until, "the metric does not show the fork");
    }
    let report = std::fs::read_to_string(node.data().join("ledger-forked.json")).unwrap();
    serde_json::from_str(&report).unwrap()
}

#[test]
fn c1_a_killed_owner_is_replaced_and_no_request_through_another_node_fails() {
    let mut cluster = Cluster::start(&["a", "b", "c"]);
    // Leased through one node, reported through another, after the owner has changed.
    let task = submit(&cluster.nodes[0].1);
    let lease = cluster.nodes[1].1.lease("q");
    let mut owner = cluster.take_owner();
    let submitted = cluster.submit_during(|| owner.kill());
    cluster.nodes[0].1.complete(&lease, json!("done"));
    assert_eq!(cluster.nodes[1].1.get(&format!("/v1/tasks/{task}"))["state"], "COMPLETED");
    assert_eq!(cluster.waiting(), vec![json!(submitted); 2]);

    let shown =
        lessor(&["nodes", "--json", "--config"]).arg(owner.data().with_file_name("lessor.toml")).output();
    let shown = Ran::from(shown.unwrap()).ok().json();
    assert!(shown["shards"][0]["epoch"].as_u64().unwrap() >= 2, "{shown}");
    assert_eq!(shown["nodes"].as_array().unwrap().len(), 3, "{shown}");
}

#[test]
fn c2_an_owner_that_stands_still_is_replaced_and_forwards_when_it_goes_on() {
    let mut cluster = Cluster::start(&["a", "b"]);
    submit(&cluster.nodes[0].1);
    let owner = cluster.take_owner();
    let submitted = 1 + cluster.submit_during(|| owner.signal(Signal::STOP));
    owner.signal(Signal::CONT);
    // What it would say by itself is old.
    assert_eq!(owner.get("/v1/queues/q")["counts"]["waiting"], json!(submitted));
    submit(&owner);
    assert_eq!(cluster.waiting(), [json!(submitted + 1)]);
}

#[test]
fn an_owner_that_is_told_to_stop_hands_over_and_open_polls_are_answered_by_its_successor() {
    let mut cluster = Cluster::start_with(&["a", "b"], "drain_s = 1\n");
    let owner = cluster.take_owner();
    let poll = cluster.nodes[0]
        .1
        .spawn_post("/v1/leases", &json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000}));
    let (code, log) = owner.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("handed over"), "{log}");
    submit(&cluster.nodes[0].1);
    assert_eq!(poll.join().unwrap()["leases"].as_array().unwrap().len(), 1);
}

#[test]
fn c7_a_cluster_goes_on_when_every_session_with_the_database_was_cut() {
    let cluster = Cluster::start(&["a", "b"]);
    let submitted = cluster.submit_during(|| drop(execute(&cluster.url, CUT)));
    assert_eq!(cluster.waiting(), vec![json!(submitted); 2]);
}

#[test]
fn c9_what_a_failover_lost_is_appended_by_a_standby_when_the_owner_was_killed() {
    let mut cluster = Cluster::start_with(&["a", "b"], "answers_wait_for_standby = true\n");
    let before = cluster.ledger_end();
    // Through the node that stays, so that no answer is lost with the other one.
    let mut owner = cluster.take_owner();
    let standby = &cluster.nodes[0].1;
    let tasks: Vec<String> = (0..120).map(|_| submit(standby)).collect();
    let config = standby.data().with_file_name("lessor.toml");
    let shown = lessor(&["nodes", "--json", "--config"]).arg(config).output();
    let shown = Ran::from(shown.unwrap()).ok().json();
    let nodes = shown["nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|node| node["fed"] == json!(true)), "{shown}");
    assert!(owner.text("/metrics").contains("\nlessor_fed_standbys 1\n"));
    // The standby must not be the first to notice.
    standby.signal(Signal::STOP);
    owner.kill();
    cluster.lose_from(before);
    standby.signal(Signal::CONT);
    standby.until_logged("this node owns the ledger");
    // Answers wait for a standby again.
    let _standby = owner.start_again(|dir| serve(dir, &[]));
    for task in tasks {
        assert_eq!(standby.get(&format!("/v1/tasks/{task}"))["state"], "WAITING");
    }
}

#[test]
fn c10_a_node_with_another_history_refuses_names_the_positions_and_forwards() {
    let mut cluster = Cluster::start(&["a", "b"]);
    submit(&cluster.nodes[0].1);
    let before = cluster.ledger_end();
    let survivor = cluster.take_owner();
    (0..100).for_each(|_| drop(submit(&survivor)));
    survivor.signal(Signal::STOP);
    let (name, mut other) = cluster.nodes.remove(0);
    other.kill();
    cluster.lose_from(before);
    // It knows nothing of what was lost, and goes on.
    let other = other.start_again(|dir| serve(dir, &[]));
    (0..10).for_each(|_| drop(submit(&other)));
    let submitted = 11;
    survivor.signal(Signal::CONT);
    assert_eq!(survivor.get("/v1/queues/q")["counts"]["waiting"], json!(submitted), "it forwards to {name}");
    let report = until_forked(&survivor);
    assert_eq!(report["firstDifferentPosition"], json!(before), "{report}");
    assert!(report["knownUpTo"].as_u64().unwrap() >= before + 99, "{report}");
    assert!(other.text("/metrics").contains("\nlessor_ledger_forked 0\n"));
}
