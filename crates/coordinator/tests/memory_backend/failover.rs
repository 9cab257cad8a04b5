//! Requests through a node that does not own the ledger, while owners come and go.

use std::sync::Arc;
use std::time::Duration;

use authority::command::{LeaseTasks, SubmitAnswer, Verdict};
use authority::{Outcome, TaskId, TaskState};
use coordinator::{
    Handle, Liveness, Registration, Router, RouterOptions, Unavailable, WaitCondition, WorkerStatus,
};
use ledger::memory::MemoryStorage;

use crate::support::direct_peer::{Answers, DirectPeer, Owner, address};
use crate::support::{completion, lease, scope, submit};

const LONG: Duration = Duration::from_secs(60);

fn edge() -> (Router, Handle) {
    Router::new(RouterOptions::default())
}

fn forward(edge: &Router, owner: &Owner) -> Arc<DirectPeer> {
    let peer = DirectPeer::new(owner.router.inbound(), Answers::Arrive);
    edge.forward(owner.epoch(), address("owner"), peer.clone());
    peer
}

#[tokio::test]
async fn every_kind_of_call_is_answered_through_another_node() {
    let owner = Owner::start(&MemoryStorage::default());
    let (router, handle) = edge();
    forward(&router, &owner);
    assert_eq!(handle.submit(submit(1, "q")).await, Ok(SubmitAnswer::Created(TaskId(1))));
    let grant = handle.lease(lease("w", "q"), LONG).await.unwrap().remove(0);
    let verdict = handle.complete(completion("w", &grant)).await.unwrap();
    assert_eq!(verdict, Verdict::Committed(Outcome::Completed));
    let detail = handle.wait_task(scope(), TaskId(1), WaitCondition::Final, LONG).await.unwrap().unwrap();
    assert_eq!(detail.view.task.state(), TaskState::Completed);
    assert_eq!(handle.list(scope(), None, None, None, 10).await.unwrap().tasks.len(), 1);
    let history = handle.history(scope(), TaskId(1)).await.unwrap().unwrap();
    assert_eq!(history.records.len(), 3, "created, granted, completed");
    assert_eq!(handle.purged_task(scope(), TaskId(7)).await.unwrap(), None);
    assert_eq!(handle.workers(scope()).await.unwrap().len(), 1, "a poll is a sign of life");
}

#[tokio::test]
async fn a_worker_registers_at_one_node_and_is_known_at_the_others() {
    let owner = Owner::start(&MemoryStorage::default());
    let ((first, a), (second, b)) = (edge(), edge());
    forward(&first, &owner);
    forward(&second, &owner);
    let (worker, mut changes) = (Arc::from("w"), b.watch_workers());
    changes.mark_unchanged();
    assert_eq!(a.register(&scope(), &worker, Registration::default()).await, Ok(true));
    changes.changed().await.unwrap();
    assert!(b.registered(&scope(), &worker).await.unwrap().is_some());
    assert_eq!(b.registered_count().await, Ok(1));
    assert!(owner.handle.registered_for_ms().await.unwrap().is_some_and(|ms| ms <= 120_000));
    let status = WorkerStatus::default();
    assert_eq!(b.record_status(&scope(), &worker, None, status).await, Ok(Liveness::Registered));
    b.unregister(&scope(), &worker, None).await.unwrap();
    assert!(a.registered(&scope(), &worker).await.unwrap().is_none());
}

/// The registration is soft state of the owner, as it is of a single server that restarts.
#[tokio::test]
async fn a_new_owner_knows_no_worker() {
    let storage = MemoryStorage::default();
    let first = Owner::start(&storage);
    let (router, handle) = edge();
    forward(&router, &first);
    let worker = Arc::from("w");
    handle.register(&scope(), &worker, Registration::default()).await.unwrap();
    let second = Owner::start(&storage);
    forward(&router, &second);
    let status = WorkerStatus::default();
    assert_eq!(handle.record_status(&scope(), &worker, None, status).await, Ok(Liveness::Unknown));
}

#[tokio::test]
async fn requests_are_held_while_nobody_owns_the_ledger() {
    let (router, handle) = edge();
    let submitted = tokio::spawn(async move { handle.submit(submit(1, "q")).await });
    let owner = Owner::start(&MemoryStorage::default());
    forward(&router, &owner);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Created(TaskId(1))));
}

#[tokio::test]
async fn a_request_without_an_owner_is_refused_after_the_failover_wait() {
    let options = RouterOptions { failover_wait: Duration::from_millis(20), ..RouterOptions::default() };
    let (router, handle) = Router::new(options);
    assert_eq!(handle.submit(submit(1, "q")).await, Err(Unavailable::NoOwner));
    assert_eq!(handle.lease(lease("w", "q"), Duration::from_millis(1)).await, Ok(Vec::new()));
    handle.takes_work().wait_for(|takes| !takes).await.unwrap();
    drop(router);
    assert_eq!(handle.submit(submit(1, "q")).await, Err(Unavailable::Stopped));
    assert!(!handle.is_serving());
}

/// The old owner is stopped, so that its polls end empty; the waiting requests go on at the next owner as if nothing had
/// happened.
#[tokio::test]
async fn held_polls_waits_and_submits_continue_at_the_next_owner() {
    let storage = MemoryStorage::default();
    let first = Owner::start(&storage);
    let (router, handle) = edge();
    let peer = forward(&router, &first);
    handle.submit(submit(1, "other")).await.unwrap();
    let polling = tokio::spawn({
        let handle = handle.clone();
        async move { handle.lease(lease("w", "q"), LONG).await }
    });
    let waiting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.wait_task(scope(), TaskId(1), WaitCondition::Final, LONG).await }
    });
    peer.called(3).await;
    first.running.stop().await.unwrap();
    first.router.no_owner(1);
    let submitting = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(submit(2, "q")).await }
    });
    let second = Owner::start(&storage);
    forward(&router, &second);
    assert_eq!(submitting.await.unwrap(), Ok(SubmitAnswer::Created(TaskId(2))));
    let grant = polling.await.unwrap().unwrap().remove(0);
    assert_eq!(grant.task, TaskId(2));
    let other = handle.lease(lease("w", "other"), LONG).await.unwrap().remove(0);
    handle.complete(completion("w", &other)).await.unwrap();
    let over = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!(over.view.task.state(), TaskState::Completed);
}

/// The first owner does not know that it is one no more: its next append is refused, and the request goes on.
#[tokio::test]
async fn a_request_that_a_fenced_owner_could_not_record_is_answered_by_its_successor() {
    let storage = MemoryStorage::default();
    let first = Owner::start(&storage);
    let (router, handle) = edge();
    let peer = forward(&router, &first);
    let second = Owner::start(&storage);
    let submitted = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(submit(1, "q")).await }
    });
    peer.called(1).await;
    forward(&router, &second);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Created(TaskId(1))));
    assert_eq!(second.handle.status().await.unwrap().tasks, 1);
}

/// A node may learn that another one owns the ledger before that node itself does.
#[tokio::test]
async fn a_call_waits_until_its_node_knows_that_it_is_the_owner() {
    let storage = MemoryStorage::default();
    let running = crate::support::start_on(storage.open());
    let (owner, _) = edge();
    let (router, handle) = edge();
    let peer = DirectPeer::new(owner.inbound(), Answers::Arrive);
    router.forward(running.report.epoch, address("owner"), peer.clone());
    let submitted = tokio::spawn(async move { handle.submit(submit(1, "q")).await });
    peer.called(1).await;
    owner.own(running.report.epoch, &running.handle);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Created(TaskId(1))));
}

/// An owner that stands still answers nothing; its successor answers all.
#[tokio::test]
async fn c17_a_call_that_is_never_answered_goes_to_the_next_owner() {
    let storage = MemoryStorage::default();
    let first = Owner::start(&storage);
    let (router, handle) = edge();
    let silent = DirectPeer::new(first.router.inbound(), Answers::Never);
    router.forward(first.epoch(), address("first"), silent.clone());
    let submitted = tokio::spawn({
        let handle = handle.clone();
        async move { handle.submit(submit(1, "q")).await }
    });
    silent.called(1).await;
    let second = Owner::start(&storage);
    forward(&router, &second);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Created(TaskId(1))));
}

/// C16: nobody but this node knows the name of the poll, so what was granted to it is given back at once.
#[tokio::test]
async fn c16_leases_of_a_poll_whose_caller_is_gone_are_given_back() {
    let owner = Owner::start(&MemoryStorage::default());
    let (router, handle) = edge();
    let peer = DirectPeer::new(owner.router.inbound(), Answers::Withheld);
    router.forward(owner.epoch(), address("owner"), peer.clone());
    owner.handle.submit(submit(1, "q")).await.unwrap();
    let polling = tokio::spawn({
        let handle = handle.clone();
        async move { handle.lease(lease("gone", "q"), LONG).await }
    });
    peer.decided.subscribe().wait_for(|decided| *decided == 1).await.unwrap();
    polling.abort();
    assert!(polling.await.unwrap_err().is_cancelled());
    forward(&router, &owner);
    let next = handle.lease(lease("next", "q"), LONG).await.unwrap().remove(0);
    assert_eq!(next.task, TaskId(1));
    let history = handle.history(scope(), TaskId(1)).await.unwrap().unwrap();
    let kinds: Vec<_> = history.records.iter().map(|record| record.event.name()).collect();
    assert_eq!(kinds, ["TaskCreated", "LeaseGranted", "LeaseReleased", "LeaseGranted"]);
}

#[tokio::test]
async fn a_poll_that_its_worker_named_is_not_given_back() {
    let owner = Owner::start(&MemoryStorage::default());
    let (router, handle) = edge();
    forward(&router, &owner);
    owner.handle.submit(submit(1, "q")).await.unwrap();
    let named = LeaseTasks { request: Some(authority::Digest([3; 16])), ..lease("w", "q") };
    let first = handle.lease(named.clone(), LONG).await.unwrap();
    assert_eq!(handle.lease(named, LONG).await.unwrap()[0].fencing_token, first[0].fencing_token);
}

#[tokio::test]
async fn the_push_dispatcher_runs_where_the_ledger_is_owned() {
    let storage = MemoryStorage::default();
    let owner = Owner::start(&storage);
    owner.handle.owned().await;
    let (router, handle) = edge();
    forward(&router, &owner);
    handle.disowned().await;
    owner.router.no_owner(1);
    owner.handle.disowned().await;
    router.own(2, &owner.running.handle);
    handle.owned().await;
}
