//! Owners and connections that are lost while requests are held.

use std::sync::Arc;
use std::time::Duration;

use authority::command::{SubmitAnswer, Verdict};
use authority::{Outcome, TaskId, TaskState};
use coordinator::WaitCondition;
use ledger::memory::MemoryStorage;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::proxy::Proxy;
use crate::support::{LONG, Node, completion, lease, scope, submit};

/// C1, C2: long polls, waits and submits with payloads are held at an edge while the owner is replaced, once by one that it
/// knows of and once behind its back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c2_everything_that_is_held_is_answered_once_by_the_next_owner() {
    const TASKS: u128 = 40;
    let storage = MemoryStorage::default();
    let nodes = Node::cluster(3).await;
    let first = nodes[0].start(&storage);
    nodes[0].own(&first, &nodes);
    let edge = &nodes[2].handle;
    let mut polls = JoinSet::new();
    for worker in 0..TASKS {
        let handle = edge.clone();
        polls.spawn(async move {
            let worker = format!("w{worker}");
            let grant = handle.lease(lease(&worker, "q"), LONG).await.unwrap().remove(0);
            let verdict = handle.complete(completion(&worker, &grant)).await.unwrap();
            assert_eq!(verdict, Verdict::Committed(Outcome::Completed));
            grant.task
        });
    }
    let submit_some = |ids: std::ops::Range<u128>| {
        let mut submits = JoinSet::new();
        for id in ids {
            let handle = edge.clone();
            submits.spawn(async move {
                let mut task = submit(id, "q");
                task.payload = vec![1; 50_000].into();
                let answer = handle.submit(task).await.unwrap();
                assert_eq!(answer, SubmitAnswer::Created(TaskId(id)));
                let over =
                    handle.wait_task(scope(), TaskId(id), WaitCondition::Final, LONG).await.unwrap().unwrap();
                assert_eq!(over.view.task.state(), TaskState::Completed);
            });
        }
        submits
    };
    let mut submits = vec![submit_some(1..11)];
    // The second owner takes over while the first one believes that it still owns the ledger.
    let second = nodes[1].start(&storage);
    submits.push(submit_some(11..21));
    nodes[1].own(&second, &nodes);
    submits.push(submit_some(21..31));
    // The first one is back after an orderly stop of the second.
    second.stop().await.unwrap();
    nodes[1].router.no_owner(2);
    submits.push(submit_some(31..TASKS + 1));
    let third = nodes[0].start(&storage);
    nodes[0].own(&third, &nodes);
    for submits in submits {
        submits.join_all().await;
    }
    let mut done = polls.join_all().await;
    done.sort_unstable();
    assert_eq!(done, (1..=TASKS).map(TaskId).collect::<Vec<_>>(), "each task was done once");
}

/// C17: the answers of calls are lost with their connections, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c17_calls_whose_connection_is_cut_are_decided_once() {
    let nodes = Node::cluster(2).await;
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &[]);
    let proxy = Proxy::to(nodes[0].address.clone()).await;
    nodes[1].forward_to(running.report.epoch, proxy.address.clone());
    let edge = nodes[1].handle.clone();
    edge.status().await.unwrap();
    let cycles = tokio::spawn(async move {
        for id in 1..=100 {
            assert_eq!(edge.submit(submit(id, "q")).await, Ok(SubmitAnswer::Created(TaskId(id))));
            let grant = edge.lease(lease("w", "q"), LONG).await.unwrap().remove(0);
            assert_eq!(grant.task, TaskId(id), "the leases of a poll are found again");
            let verdict = edge.complete(completion("w", &grant)).await.unwrap();
            assert_eq!(verdict, Verdict::Committed(Outcome::Completed));
            let history = edge.history(scope(), TaskId(id)).await.unwrap().unwrap();
            assert_eq!(history.records.len(), 3, "nothing was recorded twice");
        }
    });
    let mut beat = tokio::time::interval(Duration::from_millis(30));
    while !cycles.is_finished() {
        beat.tick().await;
        proxy.cut();
    }
    cycles.await.unwrap();
}

/// C17: the answer of an owner comes when its successor has answered the same call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c17_an_answer_that_comes_after_the_call_was_repeated_changes_nothing() {
    let storage = MemoryStorage::default();
    let nodes = Node::cluster(3).await;
    let first = nodes[0].start(&storage);
    nodes[0].own(&first, &[]);
    let proxy = Proxy::to(nodes[0].address.clone()).await;
    let edge = &nodes[2];
    // Kept by the test, so that the connection outlives the change of the owner.
    let peer = Arc::new(relay::RemotePeer::connect(proxy.address.clone(), "edge", edge.tls.clone()));
    edge.router.forward(first.report.epoch, nodes[0].name(), peer.clone());
    peer.connected().await;
    proxy.hold_answers(true);
    let submitted = tokio::spawn({
        let handle = edge.handle.clone();
        async move { handle.submit(submit(1, "q")).await }
    });
    while nodes[0].handle.status().await.unwrap().tasks == 0 {
        tokio::task::yield_now().await;
    }
    assert!(!submitted.is_finished());
    let second = nodes[1].start(&storage);
    nodes[1].own(&second, &nodes);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Created(TaskId(1))));

    // The late answer comes, and calls over the same connection get their own answers.
    proxy.hold_answers(false);
    let third = nodes[0].start(&storage);
    nodes[0].own(&third, &[]);
    edge.router.forward(third.report.epoch, nodes[0].name(), peer.clone());
    let grant = edge.handle.lease(lease("w", "q"), LONG).await.unwrap().remove(0);
    assert_eq!(grant.task, TaskId(1));
    let verdict = edge.handle.complete(completion("w", &grant)).await.unwrap();
    assert_eq!(verdict, Verdict::Committed(Outcome::Completed));
    let history = edge.handle.history(scope(), TaskId(1)).await.unwrap().unwrap();
    assert_eq!(history.records.len(), 3, "created, granted, completed");
    assert_eq!(edge.handle.status().await.unwrap().tasks, 1);
}

/// A partition closes no connection; it is noticed because the other node is silent.
#[tokio::test]
async fn a_partition_is_noticed_and_its_end_too() {
    let nodes = Node::cluster(2).await;
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &[]);
    let proxy = Proxy::to(nodes[0].address.clone()).await;
    let peer = relay::RemotePeer::connect(proxy.address.clone(), "edge", nodes[1].tls.clone());
    let peer = Arc::new(peer);
    nodes[1].router.forward(running.report.epoch, nodes[0].name(), peer.clone());
    peer.connected().await;
    let is_heard = async |expected: bool| {
        while nodes[0].connected.hears("edge") != expected {
            tokio::task::yield_now().await;
        }
    };
    is_heard(true).await;
    assert!(!nodes[0].connected.hears("node"));
    proxy.stand_still(true);
    let begun = Instant::now();
    let submitted = tokio::spawn({
        let handle = nodes[1].handle.clone();
        async move { handle.submit(submit(1, "q")).await }
    });
    peer.disconnected().await;
    is_heard(false).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "it was noticed");
    proxy.stand_still(false);
    proxy.cut();
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Created(TaskId(1))));
    is_heard(true).await;
}

/// C16: the owner is told that nobody waits for a poll any more.
#[tokio::test]
async fn c16_a_poll_whose_caller_is_gone_takes_no_task() {
    let nodes = Node::cluster(2).await;
    let running = nodes[0].start(&MemoryStorage::default());
    nodes[0].own(&running, &nodes);
    let polling = tokio::spawn({
        let handle = nodes[1].handle.clone();
        async move { handle.lease(lease("gone", "q"), LONG).await }
    });
    while nodes[1].handle.status().await.unwrap().polls == 0 {
        tokio::task::yield_now().await;
    }
    polling.abort();
    assert!(polling.await.unwrap_err().is_cancelled());
    nodes[1].handle.submit(submit(1, "q")).await.unwrap();
    let grant = nodes[1].handle.lease(lease("next", "q"), LONG).await.unwrap().remove(0);
    assert_eq!(grant.task, TaskId(1));
}
