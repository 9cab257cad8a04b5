//! An owner to which another node announces itself as its successor.

use coordinator::OwnerHint;

use super::*;

fn hint(epoch: u64, node: &str) -> OwnerHint {
    OwnerHint { epoch, owner: Some(NodeAddress { node: node.into(), address: node.into() }) }
}

/// Only the ledger decides who owns it: the owner asks the ledger, and serves again.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_a_node_announces_itself_to_without_having_taken_over_serves_on() {
    let nodes = Nodes::new();
    let a = nodes.start("a", TAKEOVER_AFTER);
    submit_all(&a.handle, 1..=5).await;
    let b = nodes.start("b", TAKEOVER_AFTER);
    b.handle.submit(task(6)).await.unwrap();
    let inbound = nodes.inbound.lock().unwrap()["a"].0.clone();
    for (known, successor) in
        [(6, hint(7, "nobody")), (8, hint(9, "b")), (10, hint(11, "a")), (12, hint(0, "b"))]
    {
        inbound.owner_announced(successor);
        a.handle.submit(task(known + 1)).await.unwrap();
        b.handle.submit(task(known + 2)).await.unwrap();
        for node in [&a, &b] {
            assert_all(&node.handle, 1..=known + 2).await;
        }
    }
    let owner = Membership::new(nodes.database("test")).observe().await.unwrap().owner.unwrap();
    assert_eq!((&*owner.node, owner.epoch), ("a", 1));
}
