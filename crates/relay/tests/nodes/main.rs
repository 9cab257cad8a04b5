//! Nodes of one process that call each other over the relay: TLS on the loopback, ports of the system's choice.

mod configuration;
mod failover;
mod proxy;
mod support;
mod tail;

use std::sync::Arc;
use std::time::Duration;

use authority::command::{SubmitAnswer, Verdict};
use authority::{Outcome, TaskId, TaskState};
use coordinator::{Registration, RouterOptions, Unavailable, WaitCondition};
use ledger::memory::MemoryStorage;
use relay::{ClusterTls, RemotePeer, TlsError};
use support::{KEY, LONG, Node, completion, lease, scope, submit};

#[tokio::test]
async fn every_kind_of_call_is_answered_by_every_node() {
    let nodes = Node::cluster(3).await;
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &nodes);
    for round in 0..12_u128 {
        // Each request goes to another node, as a load balancer would send it.
        let at = |step: u128| &nodes[((round + step) % 3) as usize].handle;
        let id = TaskId(round + 1);
        assert_eq!(at(0).submit(submit(id.0, "q")).await, Ok(SubmitAnswer::Created(id)));
        let grant = at(1).lease(lease("w", "q"), LONG).await.unwrap().remove(0);
        assert_eq!(grant.task, id);
        let waiting = tokio::spawn({
            let handle = at(1).clone();
            async move { handle.wait_task(scope(), id, WaitCondition::Final, LONG).await }
        });
        let verdict = at(2).complete(completion("w", &grant)).await.unwrap();
        assert_eq!(verdict, Verdict::Committed(Outcome::Completed));
        let over = waiting.await.unwrap().unwrap().unwrap();
        assert_eq!(over.view.task.state(), TaskState::Completed);
        let history = at(0).history(scope(), id).await.unwrap().unwrap();
        assert_eq!(history.records.len(), 3);
        let listed = at(1).list(scope(), None, None, None, 100).await.unwrap();
        assert_eq!(listed.tasks.len() as u128, round + 1);
        assert_eq!(at(2).purged_task(scope(), TaskId(999)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_worker_that_registers_at_one_node_is_known_at_all() {
    let nodes = Node::cluster(3).await;
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &nodes);
    let worker = Arc::from("w");
    // A first answer, so that the connections are up and followed.
    for node in &nodes {
        assert_eq!(node.handle.registered_count().await, Ok(0));
    }
    let mut changes = nodes[2].handle.watch_workers();
    nodes[1].handle.register(&scope(), &worker, Registration::default()).await.unwrap();
    changes.changed().await.unwrap();
    for node in &nodes {
        assert_eq!(node.handle.registered_count().await, Ok(1));
        assert!(node.handle.registered(&scope(), &worker).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_large_payload_reaches_the_owner_and_comes_back() {
    let nodes = Node::cluster(2).await;
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &nodes);
    let payload: Arc<[u8]> = (0..1_000_000_u32).map(|byte| byte as u8).collect();
    let mut task = submit(1, "q");
    task.payload = payload.clone();
    nodes[1].handle.submit(task).await.unwrap();
    let grant = nodes[1].handle.lease(lease("w", "q"), LONG).await.unwrap().remove(0);
    assert_eq!(grant.payload, payload);
}

#[tokio::test]
async fn a_node_with_another_key_is_refused() {
    let options = RouterOptions { failover_wait: Duration::from_millis(300), ..RouterOptions::default() };
    let owner = Node::start_with(KEY, RouterOptions::default()).await;
    let stranger = Node::start_with(b"another key that has at least 32 bytes", options).await;
    let running = owner.start(&MemoryStorage::default());
    owner.own(&running, &[]);
    let peer = Arc::new(RemotePeer::connect(owner.address.clone(), "stranger", stranger.tls.clone()));
    stranger.router.forward(1, owner.name(), peer);
    assert_eq!(stranger.handle.submit(submit(1, "q")).await, Err(Unavailable::NoOwner));
    assert_eq!(owner.handle.status().await.unwrap().tasks, 0);
}

#[test]
fn a_short_key_is_refused() {
    assert!(matches!(ClusterTls::from_cluster_key(b"short"), Err(TlsError::ShortKey(5))));
}
