//! The whole coordinator on a disk that fails, fills up and loses what was not synced.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::command::{Refusal, SubmitAnswer, Verdict};
use authority::{Outcome, TaskId};
use coordinator::{Running, Unavailable};
use fake_disk::{Errno, FakeDisk};

use support::{SEGMENT_BYTES, completion, lease, scope, start_on, storage_on, submit};

/// Longest wait for something that takes about a second.
const PATIENCE: Duration = Duration::from_secs(60);

fn start(disk: &FakeDisk) -> Running {
    start_on(storage_on(Arc::new(disk.clone())))
}

/// Asks until the answer is as wanted.
async fn until<F, A>(mut ask: impl FnMut() -> F, wanted: impl Fn(&A) -> bool) -> A
where
    F: Future<Output = A>,
{
    let began = Instant::now();
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "it did not happen in time");
        tokio::task::yield_now().await;
    }
}

/// Waits until the reserve segment is there, so that the next calls to the disk are the writer's own.
async fn quiet(disk: &FakeDisk) {
    let names = || async { disk.names() };
    until(names, |names| names.iter().any(|name| name == "reserve")).await;
    // Its name is the last thing that is synced.
    until(|| async { disk.unsynced() }, Vec::is_empty).await;
}

#[tokio::test]
async fn s4_33_when_the_append_fails_the_caller_is_told_and_nothing_is_seen() {
    let disk = FakeDisk::new();
    let mut running = start(&disk);
    running.handle.submit(submit(1, "q")).await.unwrap();
    quiet(&disk).await;
    disk.heal();
    disk.fail_from(0, Errno::Io);
    assert_eq!(running.handle.submit(submit(2, "q")).await, Err(Unavailable::OutcomeUnknown));
    let failure = running.failed().await;
    assert!(failure.to_string().contains("ledger failed"), "{failure}");
    let after = running.handle.task(scope(), TaskId(2)).await;
    assert!(after.is_err(), "nothing is served after the failure");
    drop(running);

    disk.heal();
    let again = start(&disk);
    assert!(again.handle.task(scope(), TaskId(1)).await.unwrap().is_some(), "what was told stays true");
    again.stop().await.unwrap();
}

#[tokio::test]
async fn d3_a_sync_that_fails_once_ends_the_coordinator_and_is_not_tried_again() {
    let disk = FakeDisk::new();
    let mut running = start(&disk);
    quiet(&disk).await;
    disk.heal();
    // The write of the next batch succeeds, its sync fails, and everything after would succeed.
    disk.fail_at(1, Errno::Io);
    assert_eq!(running.handle.submit(submit(1, "q")).await, Err(Unavailable::OutcomeUnknown));
    running.failed().await;
    assert_eq!(disk.calls(), 2, "nothing was written after the failed sync");
}

#[tokio::test]
async fn d4_a_full_disk_lets_the_running_finish_and_recovers_without_a_restart() {
    let disk = FakeDisk::new();
    let running = start(&disk);
    let handle = &running.handle;
    handle.submit(submit(1, "q")).await.unwrap();
    let grant = handle.lease(lease("w", "q"), Duration::ZERO).await.unwrap().remove(0);
    quiet(&disk).await;
    disk.set_capacity(Some(disk.used_bytes()));
    // Fill the active segment, so that the reserve is taken and no other can be made.
    let payload: Arc<[u8]> = Arc::from(vec![b'1'; 1 << 20]);
    let mut accepted = 1_u128;
    let full = loop {
        let mut task = submit(accepted + 1, "other");
        task.payload = payload.clone();
        match handle.submit(task).await.unwrap() {
            SubmitAnswer::Created(_) => accepted += 1,
            answer => break answer,
        }
        assert!(accepted < 4 * u128::from(SEGMENT_BYTES >> 20), "the disk never filled");
    };
    assert_eq!(full, SubmitAnswer::Refused(Refusal::NoSpace));
    let mut takes_work = handle.takes_work();
    takes_work.wait_for(|takes_work| !takes_work).await.unwrap();
    let verdict = handle.complete(completion("w", &grant)).await.unwrap();
    assert_eq!(verdict, Verdict::Committed(Outcome::Completed), "what was running may finish");
    assert_eq!(handle.lease(lease("w", "other"), Duration::ZERO).await, Ok(Vec::new()), "nothing new begins");

    disk.set_capacity(None);
    let more = until(
        || handle.submit(submit(1_000_000, "q")),
        |answer| !matches!(answer, Ok(SubmitAnswer::Refused(Refusal::NoSpace))),
    );
    assert_eq!(more.await, Ok(SubmitAnswer::Created(TaskId(1_000_000))));
    takes_work.wait_for(|takes_work| *takes_work).await.unwrap();
    running.stop().await.unwrap();

    let again = start(&disk);
    assert_eq!(again.report.tasks as u128, accepted + 1, "everything accepted is there");
    again.stop().await.unwrap();
}
