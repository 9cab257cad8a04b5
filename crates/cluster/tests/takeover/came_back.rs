//! A failover that makes an owner of long ago the last one again.

use authority::Position;
use cluster::{BEAT, TAKEOVER_AFTER};
use ledger::postgres::{self, Announcement, Membership};
use test_servers::postgres::{execute, shared};
use tokio::time::interval;

use crate::{Nodes, assert_all, own, submit_all};

/// The owner that came back lives and has its lock, so that nothing else speaks against it.
#[tokio::test(flavor = "multi_thread")]
async fn c9_an_owner_that_came_back_when_a_failover_undid_its_successor_is_replaced_by_a_standby() {
    let url = shared().create_database();
    let nodes = Nodes::on(&url);
    let database = nodes.database("x");
    let mut membership = Membership::new(database.clone());
    let about = Announcement {
        address: "x".to_owned(),
        version: "1".to_owned(),
        applied_next: Position::ZERO,
        is_draining: false,
        connections: 0,
        is_hot: false,
    };
    membership.announce(&about, false).await.unwrap();
    assert!(membership.try_lock().await.unwrap());
    let first = own(&database).await;
    let row = postgres::OwnerRow { node: "x".to_owned(), address: "x".to_owned(), epoch: first.report.epoch };
    membership.record_owner(&row, "", 1, database.last_durable().unwrap()).await.unwrap();
    submit_all(&first.handle, 1..=10).await;
    let undone_from = first.handle.durable().next();
    let second = own(&nodes.database("y")).await;
    submit_all(&second.handle, 11..=20).await;
    let end = second.handle.durable().next();
    second.stop().await.unwrap();

    let beating = tokio::spawn(async move {
        let (mut beats, mut time) = (interval(BEAT / 20), 1);
        loop {
            beats.tick().await;
            time += 1;
            // Its successor ends its session.
            assert!(membership.beat(time).await.unwrap_or(true), "it has no row");
        }
    });
    let b = nodes.start("b", TAKEOVER_AFTER);
    let mut seen = Membership::new(nodes.database("test"));
    let knows_all = |row: &postgres::NodeRow| row.node == "b" && row.applied_next == end;
    while !seen.list().await.unwrap().0.iter().any(knows_all) {}
    execute(&url, &format!("DELETE FROM lessor.batch WHERE first >= {undone_from}"));

    nodes.owned_by("b").await;
    assert_all(&b.handle, 1..=20).await;
    let epochs = "SELECT DISTINCT epoch FROM lessor.batch WHERE first > 0 ORDER BY 1";
    assert_eq!(execute(&url, epochs), [["1"], ["2"], ["3"]]);
    let (_, shards) = seen.list().await.unwrap();
    assert_eq!(shards[0].reason, "x: it came back after a failover that has undone its successor");
    assert!(!beating.is_finished());
    beating.abort();
    drop(first);
}
