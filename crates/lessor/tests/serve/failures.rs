//! Tests what a cluster does when its database or the network between its parts fails. `cargo xtask chaos --cluster` does
//! the same under load.

#[path = "failures/clocks.rs"]
mod clocks;
#[path = "failures/refused_writes.rs"]
mod refused_writes;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use test_servers::network::Network;
use test_servers::postgres::{Postgres, execute, shared};

use crate::cluster::until_forked;
use crate::support::Server;
use crate::support::cluster::{Cluster, initialized};
use crate::{configured, serve};

/// So long that nothing in these tests is decided by it.
const NEVER_MS: u32 = 600_000;

/// The configuration of a node at this address.
fn node_at(name: &str, address: Ipv4Addr, url: &str) -> TempDir {
    configured(&format!(
        r#"
[server]
address = "{address}:0"
[data]
dir = "DIR/data"
[ledger]
backend = "postgres"
[postgres]
url = "{url}"
unsafe_no_sync = true
[cluster]
node = "{name}"
key_file = "DIR/cluster.key"
takeover_after_ms = {NEVER_MS}
"#
    ))
}

/// A task that is equal to no other one.
fn new_task() -> Value {
    static SUBMITTED: AtomicU64 = AtomicU64::new(0);
    let key = SUBMITTED.fetch_add(1, Ordering::Relaxed).to_string();
    json!({"queue": "q", "payload": {}, "dedupKey": key})
}

/// Submits one task until it is accepted: without an owner a node refuses after a while, and may not know whether it was.
fn submit(server: &Server) {
    let task = new_task();
    while !submit_once(server, &task).contains(" 201 ") {}
}

fn submit_once(server: &Server, task: &Value) -> String {
    server.try_post("/v1/tasks", task)
}

fn owner(url: &str) -> (String, String) {
    let row = execute(url, "SELECT node, epoch FROM lessor.shard_owner").remove(0);
    (row[0].clone(), row[1].clone())
}

fn waiting(server: &Server) -> Value {
    server.get("/v1/queues/q")["counts"]["waiting"].clone()
}

#[test]
fn c4_an_owner_without_its_peers_hands_over_and_an_owner_without_the_database_is_replaced() {
    let network = Network::new(&["a", "b", "c", "db"]);
    let database_host = network.host(3);
    let database = Postgres::start_on(database_host, &["fsync=off"]);
    let url = database.create_database();
    let names = [("a", 0), ("b", 1), ("c", 2)];
    let nodes = names.map(|(name, at)| node_at(name, network.host(at).address(), &url));
    let mut servers: Vec<(&str, usize, Server)> = initialized(Vec::from(nodes))
        .into_iter()
        .zip(names)
        .map(|(dir, (name, at))| {
            let command = network.host(at).on(&serve(dir.path(), &["--insecure"]));
            (name, at, Server::start_by(command, dir))
        })
        .collect();
    servers.iter().for_each(|(_, _, server)| submit(server));
    let (name, epoch) = owner(&url);
    servers.sort_by_key(|(node, ..)| *node != name);
    let [(_, owner_at, old), (_, other_at, other), (_, edge_at, edge)] = &servers[..] else { unreachable!() };
    let [owner_host, other_host, edge_host] = [owner_at, other_at, edge_at].map(|at| network.host(*at));

    // From one of its peers only: it and the other one are most nodes.
    owner_host.cut(edge_host);
    edge.until_logged("the connection to another node was lost");
    [old, other].into_iter().for_each(submit);
    owner_host.heal(edge_host);
    submit(edge);
    assert_eq!(owner(&url), (name.clone(), epoch));

    // From its peers only, for longer than they hold a request: it hands over, and no request through them fails.
    [other_host, edge_host].into_iter().for_each(|peer| owner_host.cut(peer));
    std::thread::scope(|scope| {
        let held = [other, edge].map(|node| scope.spawn(move || submit_once(node, &new_task())));
        held.into_iter().for_each(|held| assert!(held.join().unwrap().contains(" 201 ")));
    });
    while owner(&url).0 == name {}
    let answer = submit_once(old, &new_task());
    assert!(answer.contains(" 503 "), "it has waited for an owner that it cannot reach: {answer}");
    [other, edge].into_iter().for_each(|node| assert!(submit_once(node, &new_task()).contains(" 201 ")));
    let reason = execute(&url, "SELECT reason FROM lessor.shard_owner").remove(0).remove(0);
    assert_eq!(reason, format!("{name}: most nodes could not reach it"));
    [other_host, edge_host].into_iter().for_each(|peer| owner_host.heal(peer));
    submit(old);
    let (name, _) = owner(&url);
    let mut nodes = [(owner_at, old), (other_at, other), (edge_at, edge)];
    nodes.sort_by_key(|(at, _)| names[**at].0 != name);
    let [(owner_at, old), (_, other), (edge_at, edge)] = nodes;
    let [owner_host, edge_host] = [owner_at, edge_at].map(|at| network.host(*at));
    let before = waiting(other).as_u64().unwrap();

    // From the database only, and another node as well: a third one takes over and announces itself to the old owner, which forwards,
    // and tells the other one.
    [owner_host, edge_host].into_iter().for_each(|host| host.cut(database_host));
    submit(other);
    old.until_logged("another node says that it has taken over");
    submit(old);
    submit(edge);
    assert_eq!(waiting(old), json!(before + 3), "it reads through the new owner, too");
    assert_eq!(waiting(edge), json!(before + 3));
    // The new owner serves before it has announced itself.
    while owner(&url).0 == name {}
    [owner_host, edge_host].into_iter().for_each(|host| host.heal(database_host));
    submit(old);
    assert_eq!(waiting(old), waiting(other), "the old owner answers nothing of its own");
    assert_eq!(waiting(other), json!(before + 4));
}

/// C22 and C8 share their two servers.
#[test]
fn c8_c22_without_the_synchronous_replica_appends_wait_and_when_it_is_promoted_nothing_is_lost() {
    let mut primary = Postgres::start(&["fsync=off"]);
    let mut replica = primary.start_replica(&["fsync=off"]);
    primary.wait_for_replica(true);
    let created = primary.create_database();
    let name = created.rsplit('/').next().unwrap();
    let hosts = format!("{},{}", primary.host_and_port(), replica.host_and_port());
    let url = format!("postgres://postgres@{hosts}/{name}");
    let servers: Vec<Server> =
        Cluster::start_on(url, &["a", "b"], "").nodes.into_iter().map(|(_, server)| server).collect();
    servers.iter().for_each(submit);

    replica.kill();
    let task = json!({"queue": "q", "payload": {}});
    std::thread::scope(|scope| {
        let held: Vec<_> =
            servers.iter().map(|server| scope.spawn(|| server.try_post("/v1/tasks", &task))).collect();
        for server in &servers {
            // Reads wait too: they must not rest on what may be lost.
            let answer = server.try_get("/readyz");
            assert!(answer.contains(" 503 "), "{answer}");
        }
        assert!(!held.iter().any(|held| held.is_finished()), "nothing is acknowledged without the replica");
        replica.restart();
        for held in held {
            let answer = held.join().unwrap();
            assert!(answer.contains(" 201 "), "{answer}");
        }
    });
    servers.iter().for_each(submit);
    let before = json!(6);
    assert_eq!(waiting(&servers[0]), before);

    primary.kill();
    replica.promote();
    servers.iter().for_each(|server| assert_eq!(waiting(server), before));
    servers.iter().for_each(submit);
}

#[test]
fn c16_a_lease_that_a_dead_edge_did_not_deliver_comes_back_to_the_same_request() {
    let url = shared().create_database();
    let mut nodes = Cluster::start_on(url.clone(), &["a", "b"], "").nodes;
    let is_first = owner(&url).0 == "a";
    let mut edge = nodes.remove(usize::from(is_first)).1;
    let owner = nodes.remove(0).1;
    let poll = json!({"workerId": "w1", "queues": ["q"], "waitMs": 60_000, "requestId": "r1"});
    let at_edge = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| edge.try_post("/v1/leases", &poll));
        owner.until_a_worker_asked();
        edge.signal(rustix::process::Signal::STOP);
        let task = owner.post("/v1/tasks", json!({"queue": "q", "payload": {}}))["taskId"].clone();
        // Granted to the edge, which cannot pass it on.
        let path = format!("/v1/tasks/{}", task.as_str().unwrap());
        while owner.get(&path)["state"] != "LEASED" {}
        rustix::process::kill_process(edge.pid(), rustix::process::Signal::KILL).unwrap();
        assert_eq!(waiting.join().unwrap(), "", "the edge has answered nothing");
        task
    });
    edge.kill();
    let lease = owner.post("/v1/leases", poll)["leases"][0].clone();
    assert_eq!((&lease["taskId"], &lease["attempt"]), (&at_edge, &json!(1)));
    owner.complete(&lease, json!("done"));
}

/// A primary with an asynchronous replica that lacks the last 120 acknowledged tasks, and nodes that use both.
struct Lossy {
    _network: Network,
    primary: Postgres,
    replica: Postgres,
    /// The owner first.
    nodes: Vec<(String, Server)>,
}

const KEPT: usize = 5;
const LOST: usize = 120;

impl Lossy {
    /// With more keys of the table `cluster`.
    fn start(names: &[&str], keys: &str) -> Lossy {
        let network = Network::new(&["db1", "db2"]);
        let primary = Postgres::start_on(network.host(0), &["fsync=off"]);
        let created = primary.create_database();
        let name = created.rsplit('/').next().unwrap();
        let replica = primary.start_replica_on(network.host(1), &["fsync=off"]);
        let url =
            format!("postgres://postgres@{},{}/{name}", primary.host_and_port(), replica.host_and_port());
        let mut nodes = Cluster::start_on(url, names, keys).nodes;
        (0..KEPT).for_each(|_| submit(&nodes[0].1));
        let owner = owner(&created).0;
        nodes.sort_by_key(|(name, _)| *name != owner);
        let position = "SELECT pg_current_wal_lsn()";
        let reached = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", execute(&created, position)[0][0]);
        while execute(&replica.url("postgres"), &reached) != [["t"]] {}
        network.host(0).cut(network.host(1));
        (0..LOST).for_each(|at| submit(&nodes[at % nodes.len()].1));
        Lossy { _network: network, primary, replica, nodes }
    }

    fn fail_over(&mut self) {
        self.primary.kill();
        self.replica.promote();
    }
}

#[test]
fn c9_records_that_an_asynchronous_replica_lacked_are_appended_again_by_the_owner() {
    let mut lossy = Lossy::start(&["a", "b"], "");
    lossy.fail_over();
    for (_, server) in &lossy.nodes {
        submit(server);
    }
    for (_, server) in &lossy.nodes {
        assert_eq!(waiting(server), json!(KEPT + LOST + 2));
    }
}

#[test]
fn c9_records_that_an_asynchronous_replica_lacked_are_appended_again_by_a_standby_when_the_owner_died_too() {
    let mut lossy = Lossy::start(&["a", "b", "c"], "answers_wait_for_standby = true\n");
    let (_, mut owner) = lossy.nodes.remove(0);
    lossy.primary.kill();
    owner.kill();
    lossy.replica.promote();
    for (_, server) in &lossy.nodes {
        submit(server);
    }
    for (_, server) in &lossy.nodes {
        assert_eq!(waiting(server), json!(KEPT + LOST + 2));
    }
}

#[test]
fn c10_a_node_whose_history_was_lost_and_continued_by_others_refuses_and_names_the_position() {
    let mut lossy = Lossy::start(&["a", "b"], "");
    let (_, survivor) = lossy.nodes.remove(0);
    let (_, mut other) = lossy.nodes.remove(0);
    survivor.signal(rustix::process::Signal::STOP);
    other.kill();
    lossy.fail_over();
    let other = other.start_again(|dir| serve(dir, &[]));
    submit(&other);
    assert_eq!(waiting(&other), json!(KEPT + 1), "the loss is that of the replica");
    survivor.signal(rustix::process::Signal::CONT);
    assert_eq!(waiting(&survivor), json!(KEPT + 1), "it answers nothing of its own");
    let report = until_forked(&survivor);
    assert!(report["firstDifferentPosition"].is_u64() && report["knownUpTo"].is_u64(), "{report}");
    submit(&survivor);
}
