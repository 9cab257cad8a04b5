//! The stream of an owner's batches to its standby.

use std::sync::Arc;

use coordinator::{Peer, RouterOptions};
use ledger::memory::MemoryStorage;
use ledger::postgres::{BatchRow, Kept, Place};
use ledger::{BatchBuilder, ClusterId, Link, Position};
use relay::RemotePeer;

use crate::proxy::Proxy;
use crate::support::{KEY, Node};

fn origin() -> Place {
    Place { first: Position(0), next: Position(1), link: Link::origin(ClusterId([1; 16]), 0) }
}

fn row(before: Place) -> BatchRow {
    let mut batch = BatchBuilder::new(before.next);
    // Large enough to be compressed.
    batch.push(&[7; 5_000]).unwrap();
    BatchRow::new(&batch.finish(1), before.link, 1)
}

/// What a standby holds that has read nothing but the beginning.
fn begun() -> Kept {
    let kept = Kept::default();
    // The batch before everything, as the database has it.
    kept.begin(origin());
    kept
}

#[tokio::test]
async fn a_standby_holds_what_the_owner_sends_and_knows_what_is_durable() {
    let owner = Node::start_with(KEY, RouterOptions::default()).await;
    let running = owner.start(&MemoryStorage::default());
    owner.own(&running, &[]);
    let (kept, first) = (begun(), row(origin()));
    owner.feed.begin_after(origin(), 1);
    owner.feed.publish(&first);
    let proxy = Proxy::to(owner.address.clone()).await;
    let peer = Arc::new(RemotePeer::connect(proxy.address.clone(), "standby", owner.tls.clone()));
    let tail = tokio::spawn({
        let (peer, kept) = (peer.clone(), kept.clone());
        async move { peer.tail(1, kept).await }
    });
    let mut stream = kept.stream();
    stream.wait_for(|stream| stream.fed_by == Some(1)).await.unwrap();
    stream.wait_for(|stream| stream.durable == origin().next).await.unwrap();
    assert_eq!(kept.end(), Some(first.place), "it is held before it is durable");
    owner.feed.durable(first.place.next);
    let known = *stream.wait_for(|stream| stream.durable == first.place.next).await.unwrap();
    assert!(known.time.is_some(), "the owner's time comes with it");
    assert_eq!(*owner.feed.standbys().borrow(), 1);

    // What comes while the connection is lost is sent over the next one.
    proxy.cut();
    assert!(tail.await.unwrap(), "the connection was lost");
    let second = row(first.place);
    owner.feed.publish(&second);
    let tail = tokio::spawn({
        let kept = kept.clone();
        async move { peer.tail(1, kept).await }
    });
    owner.feed.durable(second.place.next);
    stream.wait_for(|stream| stream.durable == second.place.next).await.unwrap();
    assert_eq!(kept.end(), Some(second.place));
    owner.feed.end();
    assert!(!tail.await.unwrap(), "the owner has ended it");
}

/// A standby that drains kept its connection, and the owner went on to feed it: with `answers_wait_for_standby` no answer left.
#[tokio::test]
async fn a_standby_that_leaves_the_stream_is_fed_no_more_although_its_connection_stays() {
    let owner = Node::start_with(KEY, RouterOptions::default()).await;
    let running = owner.start(&MemoryStorage::default());
    owner.own(&running, &[]);
    owner.feed.begin_after(origin(), 1);
    let peer = Arc::new(RemotePeer::connect(owner.address.clone(), "standby", owner.tls.clone()));
    let (kept, mut standbys) = (begun(), owner.feed.standbys());
    for _ in 0..2 {
        let tail = tokio::spawn({
            let (peer, kept) = (peer.clone(), kept.clone());
            async move { peer.tail(1, kept).await }
        });
        standbys.wait_for(|standbys| *standbys == 1).await.unwrap();
        tail.abort();
        standbys.wait_for(|standbys| *standbys == 0).await.unwrap();
    }
}
