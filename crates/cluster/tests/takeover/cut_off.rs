//! An owner that no other node reaches, while all reach the database.

use super::*;

/// So long that no standby suspects an owner that lives.
const NEVER: Duration = Duration::from_secs(3_600);

async fn is_replaced_and_no_request_through_others_fails(answers_wait_for_standby: bool) {
    let mut nodes = Nodes::new();
    nodes.feed = FeedOptions { hot_standbys: 2, answers_wait_for_standby };
    let a = nodes.start("a", NEVER);
    nodes.owned_by("a").await;
    let (b, c) = (nodes.start("b", NEVER), nodes.start("c", NEVER));
    for (id, node) in (1..).zip([&a, &b, &c]) {
        node.handle.submit(task(id)).await.unwrap();
    }
    let mut membership = Membership::new(nodes.database("test"));
    while membership.successors().await.unwrap().len() < 2 {}

    nodes.cut_off.set(Some("a"));
    let (through_b, through_c) = tokio::join!(b.handle.submit(task(4)), c.handle.submit(task(5)));
    through_b.unwrap();
    through_c.unwrap();
    let (epoch, reason) = loop {
        // An owner serves before it has announced itself.
        let shard = membership.list().await.unwrap().1.remove(0);
        match shard.owner {
            Some(owner) if owner.node != "a" => break (owner.epoch, shard.reason),
            _ => {}
        }
    };
    assert_eq!((epoch, &*reason), (2, "a: most nodes could not reach it"));
    for node in [&b, &c] {
        assert_all(&node.handle, 1..=5).await;
    }

    nodes.cut_off.set(None);
    a.handle.submit(task(6)).await.unwrap();
    for node in [a, b, c] {
        assert_all(&node.handle, 1..=6).await;
        assert!(!node.task.is_finished());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c4_an_owner_that_most_nodes_cannot_reach_hands_over_and_no_request_through_others_fails() {
    is_replaced_and_no_request_through_others_fails(false).await;
}

/// It cannot make anything durable: the standbys that its answers wait for are cut off.
#[tokio::test(flavor = "multi_thread")]
async fn c4_an_owner_whose_answers_wait_for_a_standby_is_replaced_when_most_nodes_cannot_reach_it() {
    is_replaced_and_no_request_through_others_fails(true).await;
}
