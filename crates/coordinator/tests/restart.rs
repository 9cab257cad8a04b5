//! Restarts: everything that was accepted is there, and nothing else.

mod support;

use std::sync::Arc;
use std::time::Duration;

use authority::command::{CancelTask, ConfigureQueue, SubmitAnswer, Verdict};
use authority::{Command, Outcome, QueueConfig, Rejection, State, TaskId, TaskOptions, TaskState, Time};
use coordinator::engine::Engine;
use coordinator::{Reply, Request, WaitCondition};
use ledger::file;
use ledger::memory::MemoryStorage;
use support::{completion, lease, queue, scope, start, start_on, submit};
use tokio::sync::oneshot;

const NO_WAIT: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn s4_4_after_a_restart_the_ledger_alone_tells_what_is_true() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    assert_eq!(first.handle.submit(submit(1, "q")).await, Ok(SubmitAnswer::Created(TaskId(1))));
    assert_eq!(first.handle.submit(submit(2, "q")).await, Ok(SubmitAnswer::Created(TaskId(2))));
    let grant = first.handle.lease(lease("w", "q"), NO_WAIT).await.unwrap().remove(0);
    let done = first.handle.complete(completion("w", &grant)).await.unwrap();
    assert_eq!(done, Verdict::Committed(Outcome::Completed));
    first.stop().await.unwrap();

    let second = start(dir.path());
    assert_eq!((second.report.tasks, second.report.epoch), (2, 2));
    let one = second.handle.task(scope(), TaskId(1)).await.unwrap().unwrap();
    assert_eq!(one.view.task.state(), TaskState::Completed);
    let repeated = second.handle.complete(completion("w", &grant)).await.unwrap();
    assert_eq!(repeated, Verdict::Committed(Outcome::Completed), "P2: the same report gets the same verdict");
    let mut other = completion("w", &grant);
    other.digest = authority::Digest([8; 16]);
    let verdict = second.handle.complete(other).await.unwrap();
    assert_eq!(verdict, Verdict::Rejected(Rejection::ConflictingReport));
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_live_lease_survives_a_restart_and_its_worker_may_commit() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    first.handle.submit(submit(1, "q")).await.unwrap();
    let grant = first.handle.lease(lease("w", "q"), NO_WAIT).await.unwrap().remove(0);
    first.stop().await.unwrap();

    let second = start(dir.path());
    let verdict = second.handle.complete(completion("w", &grant)).await.unwrap();
    assert_eq!(verdict, Verdict::Committed(Outcome::Completed));
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_waiting_poll_is_leased_the_task_in_the_batch_that_created_it() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(dir.path());
    let handle = running.handle.clone();
    let poll = tokio::spawn(async move { handle.lease(lease("w", "q"), LONG).await });
    while running.handle.status().await.unwrap().polls == 0 {
        tokio::task::yield_now().await;
    }
    running.handle.submit(submit(1, "q")).await.unwrap();
    let grant = poll.await.unwrap().unwrap().remove(0);
    let task = running.handle.task(scope(), TaskId(1)).await.unwrap().unwrap().view.task;
    assert_eq!(grant.fencing_token.0, task.created.0 + 1);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_waiter_wakes_when_its_task_is_final() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(dir.path());
    running.handle.submit(submit(1, "q")).await.unwrap();
    let grant = running.handle.lease(lease("w", "q"), NO_WAIT).await.unwrap().remove(0);
    let handle = running.handle.clone();
    let waiter =
        tokio::spawn(async move { handle.wait_task(scope(), TaskId(1), WaitCondition::Final, LONG).await });
    running.handle.complete(completion("w", &grant)).await.unwrap();
    let task = waiter.await.unwrap().unwrap().unwrap().view.task;
    assert_eq!(task.state(), TaskState::Completed);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_history_names_every_record_of_its_task() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(dir.path());
    running.handle.submit(submit(1, "q")).await.unwrap();
    running.handle.submit(submit(2, "q")).await.unwrap();
    let grant = running.handle.lease(lease("w", "q"), NO_WAIT).await.unwrap().remove(0);
    running.handle.complete(completion("w", &grant)).await.unwrap();
    let history = running.handle.history(scope(), TaskId(1)).await.unwrap().unwrap();
    let names: Vec<_> = history.records.iter().map(|record| record.event.name()).collect();
    assert_eq!(names, ["TaskCreated", "LeaseGranted", "TaskCompleted"]);
    assert!(!history.truncated);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn s4_35_leases_that_ran_out_meanwhile_expire_before_anything_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    let mut short = submit(1, "q");
    short.options = Some(Arc::new(TaskOptions { lease_ms: Some(5_000), ..TaskOptions::default() }));
    first.handle.submit(short).await.unwrap();
    let grant = first.handle.lease(lease("w", "q"), NO_WAIT).await.unwrap().remove(0);
    first.stop().await.unwrap();
    while coordinator::wall() <= grant.expires_at {
        tokio::task::yield_now().await;
    }

    let second = start(dir.path());
    let task = second.handle.task(scope(), TaskId(1)).await.unwrap().unwrap().view.task;
    assert_eq!(task.state(), TaskState::Waiting);
    let history = second.handle.history(scope(), TaskId(1)).await.unwrap().unwrap();
    let expired = history.records.last().unwrap();
    assert_eq!(expired.event.name(), "LeaseExpired");
    assert_eq!(
        expired.position.0,
        grant.fencing_token.0 + 2,
        "after the record of the new owner, before any request"
    );
    let late = second.handle.complete(completion("w", &grant)).await.unwrap();
    assert_eq!(late, Verdict::Cancelled);
    second.stop().await.unwrap();
}

#[tokio::test]
async fn p10_a_second_coordinator_on_the_same_directory_refuses_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    let second = file::open_data_dir(dir.path(), support::ledger_options());
    assert!(second.err().unwrap().to_string().contains("in use"));
    first.stop().await.unwrap();
    start(dir.path()).stop().await.unwrap();
}

#[tokio::test]
async fn p5_a_stop_under_load_answers_everyone_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(dir.path());
    let submits: Vec<_> = (1..=200_u128)
        .map(|id| {
            let handle = running.handle.clone();
            tokio::spawn(async move { (id, handle.submit(submit(id, "q")).await) })
        })
        .collect();
    let poll = {
        let handle = running.handle.clone();
        tokio::spawn(async move { handle.lease(lease("w", "empty"), LONG).await })
    };
    while running.handle.status().await.unwrap().polls == 0 {
        tokio::task::yield_now().await;
    }
    running.stop().await.unwrap();
    assert_eq!(poll.await.unwrap(), Ok(Vec::new()), "a poll ends empty");
    let again = start(dir.path());
    for submitted in submits {
        let (id, answer) = submitted.await.unwrap();
        let there = again.handle.task(scope(), TaskId(id)).await.unwrap().is_some();
        assert!(there || answer.is_err(), "task {id} was acknowledged and is gone");
    }
    again.stop().await.unwrap();
}

#[tokio::test]
async fn s4_36_a_restart_repairs_nothing_and_records_only_its_new_owner() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path());
    first.handle.submit(submit(1, "q")).await.unwrap();
    first.handle.submit(submit(2, "q")).await.unwrap();
    first.handle.lease(lease("w", "q"), NO_WAIT).await.unwrap();
    let mut position = first.handle.status().await.unwrap().position;
    let before = first.handle.list(scope(), None, None, None, 10).await.unwrap();
    first.stop().await.unwrap();
    for epoch in 2..5 {
        let again = start(dir.path());
        assert_eq!(again.report.epoch, epoch);
        assert_eq!(
            again.handle.status().await.unwrap().position,
            position.next(),
            "one record: the new owner's"
        );
        assert_eq!(again.handle.list(scope(), None, None, None, 10).await.unwrap(), before);
        position = position.next();
        again.stop().await.unwrap();
    }
}

/// Records a task that ended thirty days ago, as the last thing that happened.
fn record_old_task(storage: &MemoryStorage) {
    let mut engine: Engine<oneshot::Sender<Reply>> = Engine::new(State::new(), Time::ZERO);
    let long_ago = Time(coordinator::wall().0 - 30 * 24 * 60 * 60 * 1_000);
    let cancel = CancelTask { scope: scope(), task: TaskId(1), reason: Arc::from("not needed"), by: None };
    for command in [Command::SubmitTask(Box::new(submit(1, "q"))), Command::CancelTask(cancel)] {
        engine.receive(Request::decide(command), long_ago, oneshot::channel().0);
    }
    let batch = engine.take_batch().expect("two decisions");
    storage.open().ledger.append(&batch).expect("memory takes it");
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Records a task that was leased at this time, as the last thing that happened.
fn record_leased_task(storage: &MemoryStorage, at: Time, lease_ms: u64) {
    let mut engine: Engine<oneshot::Sender<Reply>> = Engine::new(State::new(), Time::ZERO);
    let config = QueueConfig { lease_ms: Some(lease_ms), ..QueueConfig::default() };
    let configure = Command::ConfigureQueue(ConfigureQueue { queue: queue("q"), config, by: None });
    for command in [configure, Command::SubmitTask(Box::new(submit(1, "q")))] {
        engine.receive(Request::decide(command), at, oneshot::channel().0);
    }
    engine.receive(Request::Poll { lease: lease("w", "q"), until: at }, at, oneshot::channel().0);
    let batch = engine.take_batch().expect("three decisions");
    storage.open().ledger.append(&batch).expect("memory takes it");
}

/// Where the wall clock is behind the ledger, time goes on from the newest record, start after start.
#[tokio::test]
async fn t3_with_the_wall_clock_a_day_behind_a_lease_outlives_two_starts_and_ends_when_it_should() {
    let tomorrow = Time(coordinator::wall().0 + DAY_MS);
    let storage = MemoryStorage::default();
    record_leased_task(&storage, tomorrow, 3_600_000);
    let mut times = vec![tomorrow];
    for run in 1..=2_u128 {
        let running = start_on(storage.open());
        let task = running.handle.task(scope(), TaskId(1)).await.unwrap().unwrap().view.task;
        assert_eq!((task.state(), task.attempt), (TaskState::Leased, 1), "start {run}");
        running.handle.submit(submit(1 + run, "other")).await.unwrap();
        let made = running.handle.task(scope(), TaskId(1 + run)).await.unwrap().unwrap().view.task;
        times.push(made.created_at);
        running.stop().await.unwrap();
    }
    assert!(times.is_sorted() && times[2].0 < tomorrow.0 + DAY_MS / 2, "{times:?}");

    let storage = MemoryStorage::default();
    record_leased_task(&storage, tomorrow, 500);
    start_on(storage.open()).stop().await.unwrap();
    let running = start_on(storage.open());
    let again = running.handle.lease(lease("v", "q"), LONG).await.unwrap().remove(0);
    assert_eq!((again.task, again.attempt), (TaskId(1), 2), "the lease did not live for another day");
    running.stop().await.unwrap();
}

#[tokio::test]
async fn t4_a_clock_a_year_ahead_ends_leases_at_the_first_start_and_nothing_at_the_second() {
    let storage = MemoryStorage::default();
    record_leased_task(&storage, Time(coordinator::wall().0 - 365 * DAY_MS), 3_600_000);
    let mut position = None;
    for run in 1..=2 {
        let running = start_on(storage.open());
        let task = running.handle.task(scope(), TaskId(1)).await.unwrap().unwrap().view.task;
        assert_eq!((task.state(), task.attempt), (TaskState::Waiting, 1), "start {run}");
        let now = running.handle.status().await.unwrap().position;
        assert!(
            position.is_none_or(|before: ledger::Position| now == before.next()),
            "only the owner is new"
        );
        position = Some(now);
        running.stop().await.unwrap();
    }
}

/// The second start found its predecessor's record, which was an hour old at most, and purged what the first start had
/// held back.
#[tokio::test]
async fn t4_the_purge_hold_after_a_clock_jump_survives_further_restarts() {
    let storage = MemoryStorage::default();
    record_old_task(&storage);
    for run in 1..=3 {
        let running = start_on(storage.open());
        let task = running.handle.task(scope(), TaskId(1)).await.unwrap();
        assert!(task.is_some(), "start {run} purged a task by a clock that no operator has checked");
        running.stop().await.unwrap();
    }
}

/// The file that names the jump is only as good as the record that it names.
#[tokio::test]
async fn t4_a_clock_jump_that_lies_far_back_holds_nothing() {
    let storage = MemoryStorage::default();
    record_old_task(&storage);
    // The record after the named one is thirty days old.
    storage.open().offsets.save("clock-jump", ledger::Position(1), 100).unwrap();
    let running = start_on(storage.open());
    running.stop().await.unwrap();
    storage.open().offsets.save("clock-jump", ledger::Position(1), 100).unwrap();
    let running = start_on(storage.open());
    assert!(running.handle.task(scope(), TaskId(1)).await.unwrap().is_none());
    running.stop().await.unwrap();
}
