//! The whole coordinator on a disk that stands still, and on one whose thread dies: nobody waits for ever, and time
//! that we lost ourselves is not held against a worker.

mod support;

use std::sync::Arc;
use std::time::Duration;

use authority::command::{CancelTask, ExtendAnswer, ExtendLease, Refusal, SubmitAnswer};
use authority::{TaskId, TaskOptions};
use coordinator::{Running, Unavailable};
use support::stalling_disk::StallingDisk;
use support::{lease, lease_ref, scope, start_on, storage_on, submit};
use tokio::time::timeout;

/// Longest wait for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(120);
/// Shorter than the driver's longest sleep.
const AT_ONCE: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(30);

/// Starts, and waits until the reserve segment is there and nothing but calls wakes the coordinator.
async fn start(disk: &StallingDisk) -> Running {
    let running = start_on(storage_on(Arc::new(disk.clone())));
    while !disk.inner.names().iter().any(|name| name == "reserve") {
        tokio::task::yield_now().await;
    }
    running.handle.status().await.unwrap();
    running
}

/// Begins a call and lets it reach the inbox.
async fn begin<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let call = tokio::spawn(call);
    tokio::task::yield_now().await;
    call
}

#[tokio::test]
async fn many_large_requests_at_once_are_recorded_in_many_batches() {
    let disk = StallingDisk::default();
    let running = start(&disk).await;
    disk.stall(true);
    let mut calls = Vec::new();
    for id in 1..=40 {
        let handle = running.handle.clone();
        let mut task = submit(id, "q");
        task.payload = Arc::from(vec![b'1'; 1 << 20]);
        calls.push(begin(async move { handle.submit(task).await }).await);
    }
    disk.stall(false);
    for (id, call) in (1..).zip(calls) {
        assert_eq!(timeout(PATIENCE, call).await.unwrap().unwrap(), Ok(SubmitAnswer::Created(TaskId(id))));
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn it_is_told_that_no_work_is_taken_while_the_disk_stands_still() {
    let disk = StallingDisk::default();
    let running = start(&disk).await;
    let mut takes_work = running.handle.takes_work();
    assert!(*takes_work.borrow_and_update());
    disk.stall(true);
    let handle = running.handle.clone();
    let call = begin(async move { handle.submit(submit(1, "q")).await }).await;
    timeout(PATIENCE, takes_work.changed()).await.unwrap().unwrap();
    assert!(!*takes_work.borrow_and_update());
    disk.stall(false);
    timeout(PATIENCE, takes_work.changed()).await.unwrap().unwrap();
    assert!(*takes_work.borrow_and_update());
    assert_eq!(timeout(PATIENCE, call).await.unwrap().unwrap(), Ok(SubmitAnswer::Created(TaskId(1))));
    running.stop().await.unwrap();
    assert!(timeout(PATIENCE, takes_work.changed()).await.unwrap().is_err(), "it is over");
}

#[tokio::test]
async fn a_lease_whose_worker_hung_up_goes_to_the_next_poll_at_once() {
    let disk = StallingDisk::default();
    let running = start(&disk).await;
    running.handle.submit(submit(1, "q")).await.unwrap();
    disk.stall(true);
    let poll = |worker: &'static str| {
        let handle = running.handle.clone();
        async move { handle.lease(lease(worker, "q"), LONG).await }
    };
    let gone = begin(poll("gone")).await;
    let here = begin(poll("here")).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    disk.stall(false);
    let grant = timeout(AT_ONCE, here).await.expect("it is not left until the next tick").unwrap().unwrap();
    assert_eq!((grant[0].task, grant[0].attempt), (TaskId(1), 2));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn d21_an_undelivered_lease_does_not_overtake_a_heartbeat_that_was_received_before_it() {
    let disk = StallingDisk::default();
    let running = start(&disk).await;
    let handle = &running.handle;
    let mut short = submit(1, "short");
    short.options = Some(Arc::new(TaskOptions { lease_ms: Some(5_000), ..TaskOptions::default() }));
    handle.submit(short).await.unwrap();
    handle.submit(submit(2, "q")).await.unwrap();
    let grant = handle.lease(lease("w", "short"), Duration::ZERO).await.unwrap().remove(0);
    disk.stall(true);
    let (poll, mut calls) = (handle.clone(), Vec::new());
    let gone = begin(async move { poll.lease(lease("gone", "q"), LONG).await }).await;
    for id in 3..=6 {
        let handle = handle.clone();
        let mut task = submit(id, "large");
        task.payload = Arc::from(vec![b'1'; 1 << 20]);
        calls.push(begin(async move { handle.submit(task).await }).await);
    }
    let heartbeat = {
        let (handle, extend) = (handle.clone(), ExtendLease { lease: lease_ref("w", &grant) });
        begin(async move { handle.heartbeat(extend, None).await }).await
    };
    assert!(handle.now() < grant.expires_at, "the machine is too slow for this test");
    gone.abort();
    while handle.now() <= grant.expires_at {
        tokio::task::yield_now().await;
    }
    disk.stall(false);
    let answer = timeout(PATIENCE, heartbeat).await.unwrap().unwrap();
    assert!(matches!(answer, Ok(ExtendAnswer::Extended { .. })), "{answer:?}");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn when_the_thread_that_owns_the_ledger_dies_the_coordinator_ends_and_everyone_is_told() {
    let disk = StallingDisk::default();
    let mut running = start(&disk).await;
    disk.panic();
    let handle = running.handle.clone();
    let answer = timeout(PATIENCE, handle.submit(submit(1, "q"))).await.expect("nobody waits for ever");
    assert_eq!(answer, Err(Unavailable::OutcomeUnknown));
    timeout(PATIENCE, running.failed()).await.expect("the coordinator ends");
}

/// The disk fills up before the next segment was prepared, so a batch that was decided finds no place.
#[tokio::test]
async fn d4_while_a_batch_waits_for_space_new_work_is_refused_and_a_stop_does_not_wait() {
    let disk = StallingDisk::default();
    disk.hold_reserve(true);
    let running = start_on(storage_on(Arc::new(disk.clone())));
    disk.inner.set_capacity(Some(disk.inner.used_bytes()));
    let mut calls = Vec::new();
    for id in 1..=60 {
        let handle = running.handle.clone();
        let mut task = submit(id, "q");
        task.payload = Arc::from(vec![b'1'; 1 << 20]);
        calls.push(begin(async move { handle.submit(task).await }).await);
    }
    let refused = async {
        while calls.iter().all(|call| !call.is_finished())
            || running.handle.submit(submit(100, "q")).await != Ok(SubmitAnswer::Refused(Refusal::NoSpace))
        {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.expect("a full disk is said to be one");
    assert_eq!(
        running.handle.cancel(cancel(1)).await,
        Err(Unavailable::NoSpace),
        "and nothing else is recorded either"
    );
    disk.hold_reserve(false);
    let stopped = timeout(PATIENCE, running.stop()).await.expect("a stop does not wait for space");
    assert!(stopped.unwrap_err().to_string().contains("full"));

    disk.inner.set_capacity(None);
    let again = start(&disk).await;
    for (id, call) in (1..).zip(calls) {
        let there = again.handle.task(scope(), TaskId(id)).await.unwrap().is_some();
        match call.await.unwrap() {
            Ok(SubmitAnswer::Created(_)) => assert!(there, "task {id} was acknowledged and is gone"),
            Ok(SubmitAnswer::Refused(_)) => assert!(!there, "task {id} was refused and is there"),
            other => assert_eq!(other, Err(Unavailable::OutcomeUnknown)),
        }
    }
    again.stop().await.unwrap();
}

fn cancel(id: u128) -> CancelTask {
    CancelTask { scope: scope(), task: TaskId(id), reason: Arc::from("test"), by: None }
}

#[tokio::test]
async fn d21_while_the_disk_stands_still_large_requests_do_not_pile_up_without_bound() {
    let disk = StallingDisk::default();
    let running = start(&disk).await;
    disk.stall(true);
    let payload: Arc<[u8]> = Arc::from(vec![b'1'; 1 << 20]);
    let mut calls = Vec::new();
    // Shared here, each payload counts as if it were the call's own.
    for id in 1..=400 {
        let handle = running.handle.clone();
        let mut task = submit(id, "q");
        task.payload = payload.clone();
        calls.push(begin(async move { handle.submit(task).await }).await);
    }
    let held = || Arc::strong_count(&payload);
    assert!((320..360).contains(&held()), "{} are taken or wait: the others are refused at once", held());
    let refused = timeout(PATIENCE, calls.pop().unwrap()).await.unwrap().unwrap();
    assert_eq!(refused, Err(Unavailable::Overloaded));
    let last = timeout(PATIENCE, calls.remove(299)).await.unwrap().unwrap();
    assert_eq!(last, Err(Unavailable::Overloaded), "what waits is refused after a while");
    let dropped = async {
        while held() >= 280 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, dropped).await.expect("and its payload is dropped");
    disk.stall(false);
    let first = timeout(PATIENCE, calls.remove(0)).await.unwrap().unwrap();
    assert_eq!(first, Ok(SubmitAnswer::Created(TaskId(1))));
    running.stop().await.unwrap();
}

/// The ledger waited for the dead thread until the process ended, and wrote without a reserve.
#[tokio::test]
async fn d4_a_reserve_thread_that_died_is_started_again() {
    let disk = StallingDisk::default();
    disk.panic_in_reserve();
    let running = timeout(PATIENCE, start(&disk)).await.expect("the reserve is prepared in the end");
    // The ledger's thread reports the space a moment after the segment has its name.
    let created = async {
        while running.handle.submit(submit(1, "q")).await != Ok(SubmitAnswer::Created(TaskId(1))) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, created).await.expect("new work is accepted");
    running.stop().await.unwrap();
}
