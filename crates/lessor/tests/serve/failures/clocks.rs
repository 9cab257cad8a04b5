//! Nodes whose wall clocks are hours apart. The package `faketime` sets the clock of one process.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};
use test_servers::postgres::{execute, shared};

use crate::serve;
use crate::support::Server;
use crate::support::cluster::{initialized, node_named};

const HOUR_S: i64 = 3_600;
/// Longer than a takeover takes.
const SHORT_MS: u64 = 8_000;
const LONG_MS: u64 = 1_800_000;
/// What nobody notices of a lease: much less than the clocks differ.
const SLACK: Duration = Duration::from_secs(60);

/// A node whose wall clock is off by so much. Durations are measured on other clocks, which no operator can set.
fn node_at(dir: &Path, offset_s: i64) -> Command {
    let mut command = serve(dir, &[]);
    command
        .env("LD_PRELOAD", chaos::faketime_library().unwrap())
        .env("FAKETIME", format!("{offset_s:+}s"))
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    command
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

/// By how much the first time is later.
fn seconds_between(later: &Value, earlier: &Value) -> i64 {
    time(later).as_second() - time(earlier).as_second()
}

/// Submits a task to a queue of its own and leases it.
fn lease(node: &Server, queue: &str, lease_ms: u64) -> Value {
    node.post("/v1/tasks", json!({"queue": queue, "payload": {}, "leaseMs": lease_ms}));
    node.lease(queue)
}

/// A short and a long lease, and when they were granted.
struct Leases {
    queue: &'static str,
    begun: Instant,
    short: Value,
    granted: Instant,
    long: Value,
}

impl Leases {
    fn grant(node: &Server, queue: &'static str) -> Leases {
        let long = lease(node, &format!("{queue}-long"), LONG_MS);
        let begun = Instant::now();
        let short = lease(node, queue, SHORT_MS);
        Leases { queue, begun, short, granted: Instant::now(), long }
    }

    /// Both live under the next owner as long as the last one has announced, whatever its wall clock says.
    fn live_on_at(self, node: &Server) {
        let beat = format!("/v1/leases/{}/heartbeat", self.long["leaseId"].as_str().unwrap());
        let told = node.post(&beat, json!({"workerId": "w1"}));
        let moved_s = seconds_between(&told["expiresAt"], &self.long["expiresAt"]);
        assert!((0..=SLACK.as_secs() as i64).contains(&moved_s), "{moved_s} s: {told} {}", self.long);
        let again = node.lease(self.queue);
        let (at_most, at_least) = (self.begun.elapsed(), self.granted.elapsed());
        assert_eq!((&again["taskId"], &again["attempt"]), (&self.short["taskId"], &json!(2)), "{again}");
        let announced = Duration::from_millis(SHORT_MS);
        assert!(at_most >= announced, "it was shorter than announced: {at_most:?}");
        assert!(at_least < announced + SLACK, "it was longer than announced: {at_least:?}");
        node.complete(&self.long, json!("done"));
        node.complete(&again, json!("done"));
    }
}

/// The owner's clock is off by `offset_s`, that of its successors by as much in the other direction: first a standby that has
/// heard the owner, then a process that is started after the death of the last owner.
fn leases_outlive_owners(offset_s: i64) {
    let url = shared().create_database();
    let mut directories = initialized(vec![node_named("a", &url), node_named("b", &url)]);
    let (other, first) = (directories.remove(1), directories.remove(0));
    let mut owner = Server::start_by(node_at(first.path(), offset_s), first);
    let mut standby = Server::start_by(node_at(other.path(), -offset_s), other);
    while execute(&url, "SELECT count(*) FROM lessor.node WHERE fed") != [["1"]] {}
    assert_eq!(execute(&url, "SELECT node FROM lessor.shard_owner"), [["a"]]);
    let task = standby.post("/v1/tasks", json!({"queue": "other", "payload": {}}));
    let task = standby.get(&format!("/v1/tasks/{}", task["taskId"].as_str().unwrap()));
    let off_s = time(&task["createdAt"]).as_second() - Timestamp::now().as_second();
    assert!((off_s - offset_s).abs() < HOUR_S / 2, "the clocks do not differ: {task}");

    let leases = Leases::grant(&standby, "hot");
    owner.kill();
    leases.live_on_at(&standby);
    assert_eq!(execute(&url, "SELECT node, epoch FROM lessor.shard_owner"), [["b", "2"]]);

    let leases = Leases::grant(&standby, "cold");
    standby.kill();
    let standby = standby.start_again(|dir| node_at(dir, -offset_s));
    leases.live_on_at(&standby);
    assert_eq!(execute(&url, "SELECT node, epoch FROM lessor.shard_owner"), [["b", "3"]]);
}

#[test]
fn c15_leases_of_an_owner_whose_clock_is_an_hour_ahead_stay_as_announced_after_takeovers() {
    leases_outlive_owners(HOUR_S);
}

#[test]
fn c15_leases_of_an_owner_whose_clock_is_an_hour_behind_stay_as_announced_after_takeovers() {
    leases_outlive_owners(-HOUR_S);
}
