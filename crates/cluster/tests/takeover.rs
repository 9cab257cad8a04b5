//! Nodes of one process on a real PostgreSQL: takeover, handover, and an owner that was replaced.

#[path = "takeover/announced.rs"]
mod announced;
#[path = "takeover/came_back.rs"]
mod came_back;
#[path = "takeover/cut_off.rs"]
mod cut_off;
#[path = "takeover/direct.rs"]
mod direct;
#[path = "takeover/drain.rs"]
mod drain;
#[path = "takeover/holdings.rs"]
mod holdings;
#[path = "takeover/rivals.rs"]
mod rivals;
#[path = "takeover/timed.rs"]
mod timed;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::command::{LeaseTasks, ReportCompletion, SubmitTask, Verdict};
use authority::{Contract, Digest, Outcome, Properties, QueueKey, Scope, TaskId, TaskState};
use cluster::{Node, Phase, Supervisor, TAKEOVER_AFTER};
use coordinator::{Handle, Inbound, NodeAddress, Options, Peer, Router, RouterOptions, Standby, Unavailable};
use ledger::postgres::{
    self, Cluster, Database, Feed, FeedOptions, Membership, OffsetRows, OwnerRow, PostgresLedger,
    PostgresReader, Server,
};
use ledger::{ClusterId, Storage};
use tempfile::TempDir;
use test_servers::postgres::{Postgres, execute};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::direct::{CutOff, Direct};

const CLUSTER: Cluster = Cluster { id: ClusterId([5; 16]), shards: 1, key_print: [9; 16] };

/// The nodes of a test, which reach each other without a network.
#[derive(Clone)]
struct Nodes {
    server: Server,
    inbound: Arc<Mutex<HashMap<String, (Inbound, Feed)>>>,
    feed: FeedOptions,
    cut_off: CutOff,
    /// Where each node reports a fork, in a file with its name.
    forks: Arc<TempDir>,
}

struct Running {
    handle: Handle,
    phase: watch::Sender<Phase>,
    task: JoinHandle<Result<(), cluster::Error>>,
}

impl Nodes {
    fn new() -> Nodes {
        Nodes::on(&test_servers::postgres::shared().create_database())
    }

    fn on(url: &str) -> Nodes {
        let server = Server { config: url.parse().unwrap(), tls: None, unsafe_no_sync: true };
        postgres::initialize(&server, CLUSTER).unwrap();
        let forks = Arc::new(tempfile::tempdir().unwrap());
        Nodes {
            server,
            inbound: Arc::default(),
            feed: FeedOptions::default(),
            cut_off: CutOff::default(),
            forks,
        }
    }

    fn database(&self, name: &str) -> Database {
        Database::connect(self.server.clone(), postgres::Options::new(name, CLUSTER.key_print)).unwrap()
    }

    fn start(&self, name: &str, takeover_after: Duration) -> Running {
        let (router, handle) = Router::new(RouterOptions::default());
        let feed = Feed::new(self.feed);
        self.inbound.lock().unwrap().insert(name.to_owned(), (router.inbound(), feed.clone()));
        let node = Node {
            name: name.to_owned(),
            address: name.to_owned(),
            version: "1".to_owned(),
            takeover_after,
            replaces: false,
        };
        let (phase, receiver) = watch::channel(Phase::Serve);
        let (inbound, name) = (self.inbound.clone(), name.to_owned());
        let (database, fork_file) = (self.database(&name), self.forks.path().join(&name));
        let (cut_off, is_heard) = (self.cut_off.clone(), self.cut_off.hearing(&name));
        let connect = move |address: &NodeAddress| -> Arc<dyn Peer> {
            let other = inbound.lock().unwrap().get(&*address.address).cloned();
            Arc::new(Direct::new(&name, &address.node, other, &cut_off))
        };
        let supervisor = Supervisor::new(node, database, router, receiver, Options::default, connect)
            .with_feed(feed)
            .with_hearing(is_heard)
            .with_fork_file(fork_file);
        Running { handle, phase, task: tokio::spawn(supervisor.run()) }
    }

    /// Waits until the owner feeds a standby.
    async fn is_feeding(&self, owner: &str) {
        let feed = self.inbound.lock().unwrap()[owner].1.clone();
        feed.standbys().wait_for(|standbys| *standbys > 0).await.unwrap();
    }

    /// Waits until a node owns the ledger.
    async fn owned_by(&self, name: &str) {
        let mut membership = Membership::new(self.database("test"));
        let mut news = membership.news();
        loop {
            let owner = membership.observe().await.unwrap().owner;
            if owner.is_some_and(|owner| owner.node == name) {
                return;
            }
            news.changed().await.unwrap();
        }
    }
}

fn scope() -> Scope {
    Scope { tenant: "t".into(), workspace: "w".into() }
}

fn task(id: u128) -> SubmitTask {
    SubmitTask {
        id: TaskId(id),
        queue: Arc::new(QueueKey { scope: scope(), name: "q".into() }),
        payload: Arc::from(&b"{}"[..]),
        priority: 0,
        delay_ms: 0,
        properties: Arc::new(Properties::default()),
        options: None,
        operation: None,
    }
}

fn poll() -> LeaseTasks {
    LeaseTasks {
        scope: scope(),
        worker: "worker".into(),
        session: None,
        queues: vec!["q".into()],
        properties: Arc::new(Properties::default()),
        max_tasks: 1,
        request: None,
        contract: Contract::Leases,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_standby_forwards_and_takes_over_with_the_leases_of_an_owner_that_died() {
    let nodes = Nodes::new();
    let a = nodes.start("a", TAKEOVER_AFTER);
    a.handle.submit(task(1)).await.unwrap();
    let b = nodes.start("b", TAKEOVER_AFTER);
    b.handle.submit(task(2)).await.unwrap();
    nodes.owned_by("a").await;
    let grant = b.handle.lease(poll(), Duration::from_secs(5)).await.unwrap().remove(0);

    // What a process leaves behind when it is killed: its sessions end.
    a.task.abort();
    drop(a);
    let report = ReportCompletion {
        lease: grant.lease_ref(),
        digest: Digest([7; 16]),
        result: Arc::from(&b"1"[..]),
        details: None,
    };
    let verdict = b.handle.complete(report).await.unwrap();
    assert_eq!(verdict, Verdict::Committed(Outcome::Completed), "a live lease commits with the next owner");
    nodes.owned_by("b").await;
    let done = b.handle.task(scope(), grant.task).await.unwrap().unwrap();
    assert_eq!(done.view.task.state(), TaskState::Completed);
    b.phase.send_replace(Phase::End);
    b.task.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_drains_hands_over_and_forwards() {
    let nodes = Nodes::new();
    let a = nodes.start("a", TAKEOVER_AFTER);
    a.handle.submit(task(1)).await.unwrap();
    let b = nodes.start("b", TAKEOVER_AFTER);
    b.handle.submit(task(2)).await.unwrap();
    // Held through the handover, and answered by the next owner.
    let waiting = tokio::spawn({
        let handle = a.handle.clone();
        async move {
            let mut leased = Vec::new();
            while leased.len() < 3 {
                leased.extend(handle.lease(poll(), Duration::from_secs(20)).await?);
            }
            Ok::<_, coordinator::Unavailable>(leased)
        }
    });
    a.phase.send_replace(Phase::Drain);
    a.handle.submit(task(3)).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().len(), 3);
    nodes.owned_by("b").await;
    for node in [a, b] {
        node.phase.send_replace(Phase::End);
        node.task.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c2_an_owner_that_was_replaced_answers_nothing_of_its_own_and_follows() {
    let nodes = Nodes::new();
    let a = nodes.start("a", TAKEOVER_AFTER);
    a.handle.submit(task(1)).await.unwrap();
    // This one suspects everybody at once, as if the owner had stood still.
    let b = nodes.start("b", Duration::ZERO);
    nodes.owned_by("b").await;
    b.handle.submit(task(2)).await.unwrap();
    let seen = a.handle.task(scope(), TaskId(2)).await.unwrap();
    assert!(seen.is_some(), "a read of the old owner must not be older than the new owner's records");
    a.handle.submit(task(3)).await.unwrap();
    assert!(b.handle.task(scope(), TaskId(3)).await.unwrap().is_some());
    a.phase.send_replace(Phase::End);
    a.task.await.unwrap().unwrap();
    b.phase.send_replace(Phase::End);
    b.task.await.unwrap().unwrap();
}

/// C13: two standbys take over at once.
#[tokio::test(flavor = "multi_thread")]
async fn c13_of_several_nodes_that_start_at_once_one_owns_and_the_others_follow() {
    let nodes = Nodes::new();
    let names = ["a", "b", "c"];
    let running: Vec<_> = names.iter().map(|name| nodes.start(name, TAKEOVER_AFTER)).collect();
    for (id, node) in (1..).zip(&running) {
        node.handle.submit(task(id)).await.unwrap();
    }
    for node in &running {
        for id in 1..=3 {
            assert!(node.handle.task(scope(), TaskId(id)).await.unwrap().is_some());
        }
    }
    for node in running {
        node.phase.send_replace(Phase::End);
        node.task.await.unwrap().unwrap();
    }
}

/// A primary with a replica that no longer follows it, and nodes that use whichever of them takes writes.
struct Replicated {
    primary: Postgres,
    replica: Postgres,
    nodes: Nodes,
}

impl Replicated {
    fn start() -> Replicated {
        let primary = Postgres::start(&["fsync=off"]);
        let database = primary.create_database();
        let replica = primary.start_replica(&["fsync=off"]);
        let (_, name) = database.rsplit_once('/').unwrap();
        let hosts = format!("127.0.0.1:{},127.0.0.1:{}", primary.port(), replica.port());
        Replicated { nodes: Nodes::on(&format!("postgres://postgres@{hosts}/{name}")), primary, replica }
    }

    /// From now on the replica gets nothing any more, at the latest.
    fn detach(&self) {
        self.replica.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''");
        self.replica.execute("postgres", "SELECT pg_reload_conf()");
        let receivers = "SELECT count(*) FROM pg_stat_wal_receiver";
        while execute(&self.replica.url("postgres"), receivers) != [["0"]] {
            std::thread::yield_now();
        }
    }

    async fn fail_over(mut self) -> Replicated {
        let promote = move || {
            self.primary.kill();
            self.replica.promote();
            self
        };
        tokio::task::spawn_blocking(promote).await.unwrap()
    }
}

const LOST: u128 = 120;

async fn submit_all(handle: &Handle, ids: std::ops::RangeInclusive<u128>) {
    for id in ids {
        handle.submit(task(id)).await.unwrap();
    }
}

async fn assert_all(handle: &Handle, ids: std::ops::RangeInclusive<u128>) {
    for id in ids {
        assert!(handle.task(scope(), TaskId(id)).await.unwrap().is_some(), "task {id} was acknowledged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_a_promoted_replica_without_the_last_commits_gets_them_from_the_owner() {
    let database = Replicated::start();
    let nodes = database.nodes.clone();
    let a = nodes.start("a", TAKEOVER_AFTER);
    submit_all(&a.handle, 1..=10).await;
    let b = nodes.start("b", TAKEOVER_AFTER);
    nodes.is_feeding("a").await;
    database.detach();
    submit_all(&b.handle, 11..=10 + LOST).await;
    let _database = database.fail_over().await;
    b.handle.submit(task(11 + LOST)).await.unwrap();
    for node in [&a, &b] {
        assert_all(&node.handle, 1..=11 + LOST).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_a_standby_appends_what_the_replica_lacks_when_the_owner_died_too() {
    let mut database = Replicated::start();
    database.nodes.feed.answers_wait_for_standby = true;
    let nodes = database.nodes.clone();
    let (a, b) = (nodes.start("a", TAKEOVER_AFTER), nodes.start("b", TAKEOVER_AFTER));
    submit_all(&a.handle, 1..=10).await;
    let owner = Membership::new(nodes.database("test")).observe().await.unwrap().owner.unwrap();
    let (owner, standby) = if owner.node == "a" { (a, b) } else { (b, a) };
    database.detach();
    submit_all(&standby.handle, 11..=10 + LOST).await;
    database.primary.kill();
    owner.task.abort();
    drop(owner);
    let database = database.fail_over().await;
    let c = database.nodes.start("c", TAKEOVER_AFTER);
    assert_all(&standby.handle, 1..=10 + LOST).await;
    // The database has them, too, and nobody needs the memory of the old owner.
    standby.phase.send_replace(Phase::End);
    standby.task.await.unwrap().unwrap();
    let d = database.nodes.start("d", TAKEOVER_AFTER);
    assert_all(&c.handle, 1..=10 + LOST).await;
    drop(d);
}

/// Where the node `a` feeds its standbys from.
fn a_feed(nodes: &Nodes) -> Feed {
    nodes.inbound.lock().unwrap()["a"].1.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_wait_for_a_standby_and_new_work_is_refused_without_one() {
    let mut nodes = Nodes::new();
    nodes.feed.answers_wait_for_standby = true;
    let a = nodes.start("a", TAKEOVER_AFTER);
    let waiting = tokio::spawn({
        let handle = a.handle.clone();
        async move { handle.submit(task(1)).await }
    });
    let feed = a_feed(&nodes);
    let lacks = feed.lacks_standby();
    feed.changes().wait_for(|_| lacks.load(std::sync::atomic::Ordering::Acquire)).await.unwrap();
    assert_eq!(a.handle.submit(task(2)).await, Err(Unavailable::NoStandby));
    assert!(!waiting.is_finished());
    let b = nodes.start("b", TAKEOVER_AFTER);
    waiting.await.unwrap().unwrap();
    b.handle.submit(task(2)).await.unwrap();
    assert_all(&a.handle, 1..=2).await;
    drop((a, b));
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_wait_for_a_standby_that_holds_what_they_rest_on() {
    let mut nodes = Nodes::new();
    nodes.feed.answers_wait_for_standby = true;
    let a = nodes.start("a", TAKEOVER_AFTER);
    let feed = a_feed(&nodes);
    let reading = tokio::spawn({
        let handle = a.handle.clone();
        async move { handle.status().await }
    });
    // The first record of the owner is on the database alone.
    let lacks = feed.lacks_standby();
    feed.changes().wait_for(|_| lacks.load(std::sync::atomic::Ordering::Acquire)).await.unwrap();
    assert!(!reading.is_finished());
    let b = nodes.start("b", TAKEOVER_AFTER);
    reading.await.unwrap().unwrap();
    drop((a, b));
}

/// Owns the ledger until it is stopped, without a supervisor.
async fn own(database: &Database) -> coordinator::Running {
    let database = database.clone();
    let start = move || {
        let offsets = Arc::new(postgres::OffsetRows::new(database.clone()));
        let ledger = Box::new(postgres::PostgresLedger::open(database).unwrap());
        coordinator::start(Storage { ledger, offsets }, Options::default())
    };
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn c10_a_standby_with_another_history_refuses_and_names_the_position() {
    let (nodes, url) = {
        let url = test_servers::postgres::shared().create_database();
        (Nodes::on(&url), url)
    };
    // An owner that is never suspected.
    let database = nodes.database("x");
    let mut membership = Membership::new(database.clone());
    assert!(membership.try_lock().await.unwrap());
    let first = own(&database).await;
    let row = OwnerRow { node: "x".to_owned(), address: "x".to_owned(), epoch: first.report.epoch };
    membership.record_owner(&row, "", 1, database.last_durable().unwrap()).await.unwrap();
    submit_all(&first.handle, 1..=10).await;
    let before = first.handle.durable().next();
    submit_all(&first.handle, 11..=10 + LOST).await;
    let end = first.handle.durable().next();
    let b = nodes.start("b", Duration::from_secs(3_600));
    let knows_all = |row: &postgres::NodeRow| row.node == "b" && row.applied_next == end;
    while !membership.list().await.unwrap().0.iter().any(knows_all) {}
    first.stop().await.unwrap();
    execute(&url, &format!("DELETE FROM lessor.batch WHERE first >= {before}"));
    // Another node that knows nothing of what was lost goes on.
    let other = own(&nodes.database("y")).await;
    let report = loop {
        match std::fs::read_to_string(nodes.forks.path().join("b")) {
            Ok(report) if report.ends_with('\n') => break report,
            _ => tokio::task::yield_now().await,
        }
    };
    assert!(report.contains(&format!("\"firstDifferentPosition\":{before},")), "{report}");
    assert!(report.contains(&format!("\"knownUpTo\":{},", end.0 - 1)), "{report}");
    assert!(!b.task.is_finished(), "it forwards");
    other.stop().await.unwrap();
    b.phase.send_replace(Phase::End);
    b.task.await.unwrap().unwrap();
}

/// C14: a node appends its record, and dies before it has told anybody.
#[tokio::test(flavor = "multi_thread")]
async fn c14_a_takeover_that_died_between_its_steps_is_completed_by_the_next_one() {
    let nodes = Nodes::new();
    let a = nodes.start("a", TAKEOVER_AFTER);
    a.handle.submit(task(1)).await.unwrap();
    nodes.owned_by("a").await;
    a.task.abort();
    drop(a);
    let (database, mut membership) = (nodes.database("dead"), Membership::new(nodes.database("dead")));
    // Whoever dies with the lock leaves it to the next.
    while !membership.try_lock().await.unwrap() {}
    let died = tokio::task::spawn_blocking(move || {
        let standby = Standby::open(&PostgresReader::new(database.clone())).unwrap();
        let offsets = Arc::new(OffsetRows::new(database.clone()));
        let ledger = Box::new(PostgresLedger::open(database).unwrap());
        let options = Options { node: "dead".to_owned(), ..Options::default() };
        standby.take_over(Storage { ledger, offsets }, options).unwrap().report.epoch
    });
    assert_eq!(died.await.unwrap(), 2);
    let announced = membership.observe().await.unwrap().owner.unwrap();
    assert_eq!((announced.node.as_str(), announced.epoch), ("a", 1), "nobody was told");
    drop(membership);

    let b = nodes.start("b", TAKEOVER_AFTER);
    b.handle.submit(task(2)).await.unwrap();
    nodes.owned_by("b").await;
    let owner = Membership::new(nodes.database("test")).observe().await.unwrap().owner.unwrap();
    assert_eq!(owner.epoch, 3);
    assert!(b.handle.task(scope(), TaskId(1)).await.unwrap().is_some());
    b.phase.send_replace(Phase::End);
    b.task.await.unwrap().unwrap();
}
