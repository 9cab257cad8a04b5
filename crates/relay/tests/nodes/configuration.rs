//! Copies of the configuration: a change of keys is answered when every node that is connected follows it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::command::{CreateKey, CreateKeyAnswer, RevokeKey, RevokeKeyAnswer};
use authority::{ApiKey, Role, SecretHash};
use coordinator::{ConfigurationFollower, Handle, RouterOptions, Running};
use ledger::memory::MemoryStorage;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{LONG, Node};

/// No answer comes because a node was waited for long enough.
const NO_END: Duration = Duration::from_secs(24 * 60 * 60);
/// A node whose process stood still for longer may be cut off, and is not waited for then.
const MAX_STALL: Duration = Duration::from_secs(1);

fn new_key(id: &str) -> CreateKey {
    let key = ApiKey {
        id: id.into(),
        name: id.into(),
        tenants: Vec::new(),
        roles: vec![Role::Admin],
        queues: Vec::new(),
        worker_prefix: None,
        expires_at: None,
        secret_hash: SecretHash([1; 32]),
        created_by: "test".into(),
        properties: Vec::new(),
    };
    CreateKey { key: Arc::new(key), by: None }
}

fn revocation(id: &str) -> RevokeKey {
    RevokeKey { key_id: id.into(), revoked_by: "test".into(), by: None }
}

async fn keys(handle: &Handle) -> usize {
    handle.keys().await.unwrap().len()
}

/// Three nodes, of which the first one owns the ledger and the last one has a follower that has followed all so far. There
/// is one key.
async fn cluster() -> (Vec<Node>, Running, ConfigurationFollower) {
    let options = RouterOptions { follow_wait: NO_END, ..RouterOptions::default() };
    let nodes = Node::cluster_with(3, options).await;
    let mut follower = nodes[2].handle.follow_configuration().unwrap();
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &nodes);
    // Begun by what it hears when it is connected, which is before anything that it asks.
    let change = follower.next().await;
    follower.followed(change);
    let handle = nodes[1].handle.clone();
    let creating = tokio::spawn(async move { handle.create_key(new_key("k")).await });
    while !creating.is_finished() {
        tokio::select! {
            change = follower.next() => follower.followed(change),
            count = keys(&nodes[2].handle) => assert!(count <= 1),
        }
    }
    assert_eq!(creating.await.unwrap(), Ok(CreateKeyAnswer::Created));
    (nodes, running, follower)
}

/// Revokes the key through the second node, until only the follower is waited for.
async fn begin_to_revoke(nodes: &[Node]) -> JoinHandle<RevokeKeyAnswer> {
    let (handle, begun) = (nodes[1].handle.clone(), Instant::now());
    let revoking = tokio::spawn(async move { handle.revoke_key(revocation("k")).await.unwrap() });
    while keys(&nodes[2].handle).await > 0 {}
    // An answer would have come before these, by the same connection.
    for _ in 0..3 {
        assert_eq!(keys(&nodes[1].handle).await, 0);
    }
    assert!(!revoking.is_finished() || begun.elapsed() > MAX_STALL, "a node does not follow yet");
    revoking
}

#[tokio::test]
async fn a_revocation_is_answered_when_every_connected_node_follows_it() {
    let (nodes, _running, mut follower) = cluster().await;
    let revoking = begin_to_revoke(&nodes).await;
    let change = follower.next().await;
    follower.followed(change);
    assert_eq!(timeout(LONG, revoking).await.unwrap().unwrap(), RevokeKeyAnswer::Revoked);
}

#[tokio::test]
async fn a_node_that_is_gone_is_not_waited_for() {
    let (mut nodes, _running, follower) = cluster().await;
    let revoking = begin_to_revoke(&nodes).await;
    // Its router, and with it the connection.
    nodes.truncate(2);
    assert_eq!(timeout(LONG, revoking).await.unwrap().unwrap(), RevokeKeyAnswer::Revoked);
    drop(follower);
}

/// The node that asked may be gone, and nobody repeats what it asked.
#[tokio::test]
async fn a_change_is_heard_of_when_its_request_was_given_up() {
    let nodes = Node::cluster(1).await;
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &nodes);
    let handle = &nodes[0].handle;
    let mut follower = handle.follow_configuration().unwrap();
    // What it hears of the owner.
    assert_eq!(keys(handle).await, 0);
    follower.next().await;
    let mut creating = Box::pin(handle.create_key(new_key("k")));
    tokio::select! {
        biased;
        answer = &mut creating => panic!("it was answered at once: {answer:?}"),
        () = std::future::ready(()) => {}
    }
    drop(creating);
    timeout(LONG, follower.next()).await.expect("it is not heard of");
    assert_eq!(keys(handle).await, 1);
}
