//! The obligations of a push target in the callback contract, number by number, as its coordinator sees them. The
//! Python SDK has tests of the same names in sdk/python/tests/test_target.py.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use lessor_sdk::{Accept, Failure, Metrics, Target, Task, TaskState, Worker};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::sync::{Notify, Semaphore};

use crate::fixture::{QUEUE, Working};
use crate::pushing::{Pushing, accept};
use crate::support::proxy::{Action, PATIENCE, Request};

const SECRET: &str = "0123456789abcdef";

async fn payload_back(task: Task) -> Result<Value, Failure> {
    task.payload()
}

/// Does this to the first calls of one kind and lets all others pass.
fn first(count: usize, call: &'static str, action: Action) -> impl Fn(&Request, usize) -> Action {
    let seen = AtomicUsize::new(0);
    move |request, _| {
        if request.call() == call && seen.fetch_add(1, Ordering::SeqCst) < count {
            action.clone()
        } else {
            Action::Pass
        }
    }
}

fn problem(status: u16, error: &str) -> Action {
    Action::Answer(status, "x-test: 1", json!({"error": error, "message": "m"}).to_string())
}

/// Beats often, and keeps its lease through whatever a busy machine does meanwhile.
async fn beats_often(pushing: &Pushing) {
    pushing.configure(json!({"heartbeatIntervalMs": 50, "heartbeatTimeoutMs": 30_000})).await;
}

/// S1-56: one handler serves a worker that asks and a target that is pushed to, and the handler sees the same.
#[tokio::test]
async fn s1_56_one_handler_serves_both_ways() {
    let pushing = Pushing::witness().await;
    let handler = |task: Task| async move {
        task.metrics(Metrics { cpu_time_ms: Some(7), ..Metrics::default() });
        let payload: Value = task.payload()?;
        Ok(json!([payload, task.queue(), task.attempt(), task.fencing_token() > 0]))
    };
    let pushed = pushing.submit(json!(1)).await;
    let target = pushing.target(handler).open().unwrap();
    pushing.push(&target).await;
    let task = pushing.final_task(&pushed).await;
    assert_eq!(task.result.unwrap().read::<Value>().unwrap(), json!([1, QUEUE, 1, true]));
    assert_eq!(pushing.ended.verdicts(1).await, ["COMMITTED"]);
    assert_eq!(pushing.calls(), ["started", "completed"]);
    let report = pushing.last_report();
    assert_eq!((&report["outcome"], &report["metrics"]), (&json!("SUCCEEDED"), &json!({"cpuTimeMs": 7})));
    assert_eq!((&report["attempt"], &report["workerId"]), (&json!(1), &json!("target-1")));

    let worker = Worker::new().url(pushing.url()).without_signals().handler(QUEUE, handler);
    let working = Working::start(worker);
    let pulled = pushing.submit(json!(1)).await;
    let task = pushing.final_task(&pulled).await;
    assert_eq!(task.result.unwrap().read::<Value>().unwrap(), json!([1, QUEUE, 1, true]));
    working.end().await;
}

#[tokio::test]
async fn s1_16_a_409_to_started_means_that_nothing_begins() {
    let pushing = Pushing::witness().await;
    let id = pushing.submit(json!(1)).await;
    let target = pushing.target(|_| async { panic!("it must not begin") }).open().unwrap();
    let envelope = pushing.envelope().await;
    pushing.client.cancel(&id, Some("user_requested")).await.unwrap();
    assert!(accept(&target, &envelope).is_accepted());
    let end = pushing.ended.wait(1).await.remove(0);
    assert_eq!(end.verdict, "LOST");
    assert!(
        end.task.cancel_reason().unwrap().contains("task_already_terminal"),
        "{:?}",
        end.task.cancel_reason()
    );
    assert_eq!(pushing.calls(), ["started"]);
    assert_eq!(pushing.final_task(&id).await.reason.as_deref(), Some("CANCELLED"));
}

/// S1-21 and S1-42: the same cancellation that a worker's handler sees, and the end that the contract asks for.
#[tokio::test]
async fn s1_42_a_cancelled_task_stops_and_reports_that_it_did() {
    let pushing = Pushing::witness().await;
    beats_often(&pushing).await;
    let id = pushing.submit(json!(1)).await;
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let handler = move |task: Task| {
        let begins = begins.clone();
        async move {
            begins.notify_one();
            task.cancelled().await;
            task.checkpoint()?;
            Ok(json!("it was not cancelled"))
        }
    };
    pushing.push(&pushing.target(handler).open().unwrap()).await;
    begun.notified().await;
    pushing.client.cancel(&id, Some("user_requested")).await.unwrap();
    let task = pushing.final_task(&id).await;
    assert_eq!((task.state, task.reason.as_deref()), (TaskState::Dead, Some("CANCELLED")));
    let end = pushing.ended.wait(1).await.remove(0);
    assert_eq!((end.verdict, end.task.cancel_reason().as_deref()), ("COMMITTED", Some("user_requested")));
    assert_eq!(pushing.last_report()["outcome"], "CANCELLED");
}

/// A handler that does not stop has the grace, and then the right to report is gone by the target's own clock.
#[tokio::test]
async fn s1_21_a_handler_that_ignores_a_cancel_loses_the_task_after_the_grace() {
    let pushing = Pushing::witness().await;
    pushing
        .configure(
            json!({"heartbeatIntervalMs": 50, "heartbeatTimeoutMs": 30_000, "cancelGracePeriodMs": 300}),
        )
        .await;
    let id = pushing.submit(json!(1)).await;
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let handler = move |task: Task| {
        let begins = begins.clone();
        async move {
            begins.notify_one();
            task.cancelled().await;
            while !task.is_lease_lost() {
                tokio::task::yield_now().await;
            }
            Ok(json!("too late"))
        }
    };
    pushing.push(&pushing.target(handler).open().unwrap()).await;
    begun.notified().await;
    pushing.client.cancel(&id, None).await.unwrap();
    assert_eq!(pushing.ended.verdicts(1).await, ["LOST"]);
    assert_eq!(pushing.final_task(&id).await.reason.as_deref(), Some("CANCEL_TIMEOUT"));
    assert_eq!(pushing.calls(), ["started"]);
}

#[tokio::test]
async fn s1_23_a_410_or_a_401_ends_the_attempt_at_once() {
    for (status, error) in [(410, "task_expired"), (401, "invalid_token"), (409, "attempt_mismatch")] {
        let pushing = Pushing::start(first(1, "heartbeat", problem(status, error))).await;
        beats_often(&pushing).await;
        let id = pushing.submit(json!(1)).await;
        let handler = |task: Task| async move {
            task.cancelled().await;
            Ok(json!(task.is_lease_lost()))
        };
        pushing.push(&pushing.target(handler).open().unwrap()).await;
        assert_eq!(pushing.ended.verdicts(1).await, ["LOST"], "{error}");
        assert_eq!(pushing.calls(), ["started"], "nothing is reported after {error}");
        assert_eq!(pushing.client.get(&id).await.unwrap().state, TaskState::Leased);
    }
}

/// Heartbeats that get lost decide nothing: they are repeated, with pauses that grow, and the work goes on.
#[tokio::test]
async fn s1_36_heartbeats_go_on_after_faults() {
    let pushing = Pushing::start(first(4, "heartbeat", Action::Refuse)).await;
    beats_often(&pushing).await;
    let id = pushing.submit(json!(1)).await;
    let received = Arc::new(Notify::new());
    let receives = received.clone();
    let handler = move |task: Task| {
        let receives = receives.clone();
        async move {
            task.progress(40.0, "page 4");
            receives.notified().await;
            task.payload()
        }
    };
    pushing.push(&pushing.target(handler).open().unwrap()).await;
    pushing.proxy.until("heartbeat", 6).await;
    let progress = pushing.client.get(&id).await.unwrap().progress.unwrap();
    assert_eq!(progress.message.as_deref(), Some("page 4"), "what was not told is told again");
    received.notify_one();
    assert_eq!(pushing.final_task(&id).await.state, TaskState::Completed);
}

#[tokio::test]
async fn a_renewed_token_is_used_from_then_on() {
    let renewed = json!({"acknowledged": true, "shouldCancel": false, "serverTime": "2025-01-15T10:00:00Z",
        "taskToken": "another", "tokenExpiresAt": "2025-01-15T11:00:00Z"});
    let pushing =
        Pushing::start(first(1, "heartbeat", Action::Answer(200, "x: 1", renewed.to_string()))).await;
    beats_often(&pushing).await;
    pushing.submit(json!(1)).await;
    let handler = |task: Task| async move {
        task.cancelled().await;
        Ok(json!(null))
    };
    let envelope = pushing.envelope().await;
    assert!(accept(&pushing.target(handler).open().unwrap(), &envelope).is_accepted());
    // The server does not know the other token, which ends the attempt.
    assert_eq!(pushing.ended.verdicts(1).await, ["LOST"]);
    let tokens: Vec<_> = pushing.proxy.exchanges().iter().map(|e| e.request.bearer().unwrap()).collect();
    assert_eq!(tokens, [envelope.task_token.as_str(), envelope.task_token.as_str(), "another"]);
}

#[tokio::test]
async fn s1_51_every_error_has_its_category() {
    let handler = |task: Task| async move {
        match task.payload::<u32>()? {
            1 => Err(Failure::infrastructure("a disk is full").code("disk_full").retryable(false)),
            2 => panic!("a bug"),
            _ => Ok(json!("x".parse::<u32>()?)),
        }
    };
    for (payload, category, retryable) in [
        (json!(1), "INFRASTRUCTURE", json!(false)),
        (json!(2), "USER_CODE", Value::Null),
        (json!(3), "USER_CODE", Value::Null),
        (json!("three"), "DATA_QUALITY", Value::Null),
    ] {
        let pushing = Pushing::witness().await;
        pushing.submit(payload.clone()).await;
        pushing.push(&pushing.target(handler).open().unwrap()).await;
        assert_eq!(pushing.ended.verdicts(1).await, ["COMMITTED"]);
        let report = pushing.last_report();
        let error = &report["error"];
        assert_eq!(
            (&report["outcome"], &error["category"]),
            (&json!("FAILED"), &json!(category)),
            "{payload}"
        );
        assert_eq!(error["retryable"], retryable, "{payload}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_report_that_got_lost_is_repeated_word_for_word() {
    let pushing = Pushing::start(first(2, "completed", Action::Lose)).await;
    let id = pushing.submit(json!(5)).await;
    pushing.push(&pushing.target(payload_back).open().unwrap()).await;
    assert_eq!(pushing.ended.verdicts(1).await, ["COMMITTED"]);
    let reports = pushing.bodies("completed");
    assert_eq!(reports.len(), 3);
    assert!(reports.iter().all(|report| *report == reports[0]));
    assert_eq!(pushing.kinds(&id).await, ["TaskCreated", "LeaseGranted", "AttemptStarted", "TaskCompleted"]);
}

#[tokio::test]
async fn a_dispatch_is_worked_on_once_however_often_it_comes() {
    let pushing = Pushing::witness().await;
    let id = pushing.submit(json!(5)).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let handler = move |task: Task| {
        counted.fetch_add(1, Ordering::SeqCst);
        payload_back(task)
    };
    let target = pushing.target(handler).open().unwrap();
    let envelope = pushing.envelope().await;
    for _ in 0..3 {
        assert!(accept(&target, &envelope).is_accepted());
    }
    pushing.ended.wait(1).await;
    assert_eq!(pushing.final_task(&id).await.state, TaskState::Completed);
    assert!(accept(&target, &envelope).is_accepted(), "also after its end");
    assert_eq!((pushing.calls().len(), runs.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn a_full_target_refuses_and_a_stopping_one_too() {
    let pushing = Pushing::witness().await;
    for n in 0..3 {
        pushing.submit(json!(n)).await;
    }
    let (begun, free) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, frees) = (begun.clone(), free.clone());
    let handler = move |task: Task| {
        let (begins, frees) = (begins.clone(), frees.clone());
        async move {
            begins.add_permits(1);
            frees.acquire().await?.forget();
            task.payload()
        }
    };
    let target = pushing.target(handler).concurrency(2).open().unwrap();
    pushing.push(&target).await;
    pushing.push(&target).await;
    begun.acquire_many(2).await.unwrap().forget();
    let third = pushing.envelope().await;
    let refused = accept(&target, &third);
    assert!(matches!(&refused, Accept::Refused { status: 429, retry_after: Some(_), .. }), "{refused:?}");
    free.add_permits(1);
    pushing.ended.wait(1).await;
    // The place is free a moment after the end was reported.
    while !accept(&target, &third).is_accepted() {
        tokio::task::yield_now().await;
    }
    begun.acquire().await.unwrap().forget();

    let running = tokio::spawn({
        let target = target.clone();
        async move { target.run().await }
    });
    target.stopper().stop();
    let mut another = third.clone();
    another.dispatch_id = "d_another".into();
    while accept(&target, &another).status() != 503 {
        tokio::task::yield_now().await;
    }
    assert!(accept(&target, &third).is_accepted(), "what runs is not refused when it comes again");
    free.add_permits(2);
    tokio::time::timeout(PATIENCE, running).await.expect("it did not drain").unwrap().unwrap();
    assert_eq!(pushing.ended.verdicts(3).await, ["COMMITTED"; 3]);
}

/// The contract knows no release: what outlasts the grace is reported as not done, and may be tried again.
#[tokio::test]
async fn what_outlasts_the_grace_is_reported_as_not_done() {
    let pushing = Pushing::witness().await;
    let id = pushing.submit(json!(1)).await;
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let handler = move |_: Task| {
        begins.notify_one();
        std::future::pending()
    };
    let target = pushing.target(handler).grace(Duration::from_millis(1)).open().unwrap();
    pushing.push(&target).await;
    begun.notified().await;
    target.stopper().stop();
    tokio::time::timeout(PATIENCE, target.run()).await.expect("it did not end").unwrap();
    let error = &pushing.last_report()["error"];
    assert_eq!((&error["category"], &error["code"]), (&json!("INFRASTRUCTURE"), &json!("worker_stopping")));
    assert_eq!(pushing.client.get(&id).await.unwrap().state, TaskState::Waiting);
}

#[tokio::test]
async fn a_dispatch_that_is_not_signed_or_no_envelope_is_refused() {
    let pushing = Pushing::witness().await;
    pushing.submit(json!(1)).await;
    let envelope = pushing.envelope().await;
    let body = serde_json::to_vec(&envelope).unwrap();
    let target = pushing.target(payload_back).secret("another secret of ours").secret(SECRET).open().unwrap();
    let signed = |age_s: i64, secret: &str| {
        let time = jiff::Timestamp::now().as_second() - age_s;
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(format!("{time}.").as_bytes());
        mac.update(&body);
        let digest = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
        format!("t={time},v1={digest}")
    };
    let with = |signatures: &[String]| {
        let headers: Vec<_> = signatures.iter().map(|value| ("Lessor-Signature", value.clone())).collect();
        target.accept(headers, &body).status()
    };
    let good = signed(0, SECRET);
    for bad in [
        &[][..],
        &[good.clone(), good.clone()],
        &[signed(0, "fedcba9876543210")],
        &[signed(301, SECRET)],
        &["x".into()],
    ] {
        assert_eq!(with(bad), 401, "{bad:?}");
    }
    assert_eq!(with(&[good]), 202);
    assert_eq!(pushing.ended.verdicts(1).await, ["COMMITTED"]);

    let open = Target::with(payload_back).open().unwrap();
    let changed = |field: &str, value: Value| {
        let mut envelope = serde_json::to_value(&envelope).unwrap();
        envelope[field] = value;
        open.accept([("x", "y")], envelope.to_string().as_bytes()).status()
    };
    let nothing: [(&str, &str); 0] = [];
    assert_eq!(open.accept(nothing, b"hello").status(), 400);
    assert_eq!(open.accept(nothing, b"{}").status(), 400);
    assert_eq!(changed("attempt", json!("1")), 400);
    assert_eq!(changed("dispatchId", json!("")), 400);
    assert_eq!(changed("dispatchId", json!("x".repeat(129))), 400);
    assert_eq!(changed("callbackBaseUrl", json!("ftp://host")), 400);
    assert_eq!(open.accept(nothing, &vec![b' '; 5 << 20]).status(), 413);
    assert_eq!(pushing.calls().len(), 2, "nothing of this was begun");
}
