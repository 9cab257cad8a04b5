//! Tests clusters: nodes as processes of their own on one PostgreSQL, which are killed, stopped and replaced.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_servers::postgres::{execute, shared};

use crate::postgres::node_named;
use crate::serve;
use crate::support::{Ran, Server, lessor};

/// The nodes of a cluster by name.
struct Cluster {
    url: String,
    nodes: Vec<(String, Server)>,
}

impl Cluster {
    fn start(names: &[&str]) -> Cluster {
        let url = shared().create_database();
        let directories: Vec<TempDir> = names.iter().map(|name| node_named(name, &url)).collect();
        let first = directories[0].path();
        let init = lessor(&["cluster", "init", "--config"]).arg(first.join("lessor.toml")).output();
        Ran::from(init.unwrap()).ok();
        for other in &directories[1..] {
            std::fs::copy(first.join("cluster.key"), other.path().join("cluster.key")).unwrap();
        }
        let start =
            |(name, dir): (&&str, TempDir)| (name.to_string(), Server::start_by(serve(dir.path(), &[]), dir));
        Cluster { url, nodes: names.iter().zip(directories).map(start).collect() }
    }

    fn owner(&self) -> String {
        execute(&self.url, "SELECT node FROM lessor.shard_owner")[0][0].clone()
    }

    /// Takes the owner out.
    fn take_owner(&mut self) -> Server {
        let owner = self.owner();
        let at = self.nodes.iter().position(|(name, _)| *name == owner).unwrap();
        self.nodes.remove(at).1
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
    let mut cluster = Cluster::start(&["a", "b"]);
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
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let submitted = cluster.submit_during(|| drop(execute(&cluster.url, cut)));
    assert_eq!(cluster.waiting(), vec![json!(submitted); 2]);
}
