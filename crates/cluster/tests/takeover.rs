//! Nodes of one process on a real PostgreSQL: takeover, handover, and an owner that was replaced.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::command::{LeaseTasks, ReportCompletion, SubmitTask, Verdict};
use authority::{Contract, Digest, Outcome, Properties, QueueKey, Scope, TaskId, TaskState};
use cluster::{Node, Phase, Supervisor, TAKEOVER_AFTER};
use coordinator::{
    BoxFuture, Call, CallReply, Handle, Inbound, NodeAddress, Notices, Options, Peer, PeerError, Router,
    RouterOptions,
};
use ledger::ClusterId;
use ledger::postgres::{self, Cluster, Database, Membership, Server};
use tokio::sync::watch;
use tokio::task::JoinHandle;

const CLUSTER: Cluster = Cluster { id: ClusterId([5; 16]), shards: 1, key_print: [9; 16] };

/// The nodes of a test, which reach each other without a network.
#[derive(Clone)]
struct Nodes {
    server: Server,
    inbound: Arc<Mutex<HashMap<String, Inbound>>>,
}

struct Running {
    handle: Handle,
    phase: watch::Sender<Phase>,
    task: JoinHandle<Result<(), cluster::Error>>,
}

/// Calls another node of the same process.
struct Direct(Option<Inbound>);

impl Peer for Direct {
    fn call(
        &self,
        call: Call,
        epoch: u64,
        _give_up: tokio::time::Instant,
    ) -> BoxFuture<'_, Result<CallReply, PeerError>> {
        Box::pin(async move {
            let inbound = self.0.as_ref().ok_or(PeerError::Unreachable)?;
            inbound.call(call, epoch).await.map_err(PeerError::NotOwner)
        })
    }

    fn follow(&self, _notices: Notices) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}

impl Nodes {
    fn new() -> Nodes {
        let url = test_servers::postgres::shared().create_database();
        let server = Server { config: url.parse().unwrap(), tls: None, unsafe_no_sync: true };
        postgres::initialize(&server, CLUSTER).unwrap();
        Nodes { server, inbound: Arc::default() }
    }

    fn database(&self, name: &str) -> Database {
        Database::connect(self.server.clone(), postgres::Options::new(name, CLUSTER.key_print)).unwrap()
    }

    fn start(&self, name: &str, takeover_after: Duration) -> Running {
        let (router, handle) = Router::new(RouterOptions::default());
        self.inbound.lock().unwrap().insert(name.to_owned(), router.inbound());
        let node =
            Node { name: name.to_owned(), address: name.to_owned(), version: "1".to_owned(), takeover_after };
        let (phase, receiver) = watch::channel(Phase::Serve);
        let inbound = self.inbound.clone();
        let connect = move |address: &NodeAddress| -> Arc<dyn Peer> {
            Arc::new(Direct(inbound.lock().unwrap().get(&*address.address).cloned()))
        };
        let supervisor =
            Supervisor::new(node, self.database(name), router, receiver, Options::default, connect);
        Running { handle, phase, task: tokio::spawn(supervisor.run()) }
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
async fn a_standby_forwards_and_takes_over_with_the_leases_of_an_owner_that_died() {
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
