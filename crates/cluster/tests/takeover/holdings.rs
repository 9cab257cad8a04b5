//! The choice of the node that takes over when the owner dies with its database, and of the nodes that a drained owner hands over to.

use std::time::Instant;

use ledger::Position;
use ledger::postgres::{Announcement, Holding};

use super::*;

/// Another node that says of itself what a test wants it to.
struct Neighbor {
    membership: Membership,
    about: Announcement,
}

impl Neighbor {
    async fn join(nodes: &Nodes, name: &str) -> Neighbor {
        let about = Announcement {
            address: name.to_owned(),
            version: "1".to_owned(),
            applied_next: Position(1),
            is_draining: false,
            connections: 0,
            is_hot: true,
        };
        let mut neighbor = Neighbor { membership: Membership::new(nodes.database(name)), about };
        neighbor.beat().await;
        neighbor
    }

    async fn beat(&mut self) {
        self.membership.announce(&self.about, false).await.unwrap();
    }
}

/// Whether a node has said what it holds since the failover.
async fn has_said(membership: &mut Membership, name: &str) -> bool {
    let rivals = membership.rivals().await.unwrap();
    rivals.iter().any(|rival| rival.node == name && rival.holding.is_some())
}

/// A standby whose stream was cut long ago counted as one that holds everything. It took over, and what the newer standby
/// held was lost.
#[tokio::test(flavor = "multi_thread")]
async fn c9_after_a_failover_a_standby_leaves_the_takeover_to_a_live_one_that_holds_more() {
    let database = Replicated::start();
    let nodes = database.nodes.clone();
    let owner = nodes.start("a", TAKEOVER_AFTER);
    submit_all(&owner.handle, 1..=10).await;
    let b = nodes.start("b", TAKEOVER_AFTER);
    nodes.is_feeding("a").await;
    let mut newer = Neighbor::join(&nodes, "c").await;
    submit_all(&b.handle, 11..=20).await;
    owner.task.abort();
    drop(owner);
    let database = database.fail_over().await;
    let more = Holding { epoch: 1, next: Position(1_000) };
    newer.beat().await;
    newer.membership.record_holding(more).await.unwrap();
    while !has_said(&mut newer.membership, "b").await {}
    // It suspects the owner after two looks, a tenth of a second apart.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(2) {
        newer.beat().await;
        let owner = newer.membership.observe().await.unwrap().owner.unwrap();
        assert_eq!(owner.node, "a", "the other one holds more");
    }
    newer.membership.leave().await.unwrap();
    nodes.owned_by("b").await;
    b.handle.submit(task(30)).await.unwrap();
    drop(database);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_the_same_any_standby_takes_over_at_once() {
    let nodes = Nodes::new();
    let a = nodes.start("a", TAKEOVER_AFTER);
    a.handle.submit(task(1)).await.unwrap();
    let b = nodes.start("b", TAKEOVER_AFTER);
    nodes.is_feeding("a").await;
    // The owner has found its server complete.
    let mut other = Neighbor::join(&nodes, "c").await;
    while !other.membership.is_complete().await.unwrap() {}
    other.membership.record_holding(Holding { epoch: 9, next: Position(9_000) }).await.unwrap();
    a.task.abort();
    drop(a);
    nodes.owned_by("b").await;
    b.handle.submit(task(2)).await.unwrap();
}

/// A node that still read the ledger, or had refused to own it, counted as one that could take over.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_drains_waits_for_a_node_that_can_take_over_at_once() {
    let nodes = Nodes::new();
    let a = nodes.start("a", TAKEOVER_AFTER);
    a.handle.submit(task(1)).await.unwrap();
    let mut loading = Neighbor::join(&nodes, "c").await;
    loading.about.is_hot = false;
    loading.beat().await;
    a.phase.send_replace(Phase::Drain);
    let is_draining = |row: &postgres::NodeRow| row.node == "a" && row.is_draining;
    while !loading.membership.list().await.unwrap().0.iter().any(is_draining) {}
    for id in 2..=200 {
        loading.beat().await;
        a.handle.submit(task(id)).await.unwrap();
        let owner = loading.membership.observe().await.unwrap().owner.unwrap();
        assert_eq!(owner.epoch, 1, "nobody could take over, so nobody was asked to");
    }
    let b = nodes.start("b", TAKEOVER_AFTER);
    nodes.owned_by("b").await;
    assert_all(&b.handle, 1..=200).await;
    for node in [a, b] {
        node.phase.send_replace(Phase::End);
        node.task.await.unwrap().unwrap();
    }
}
