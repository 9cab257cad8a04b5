//! Push targets that are down, slow, hostile or wrong, and what becomes of their tasks and of everybody else's.

use std::time::{Duration, Instant};

use axum::http::{StatusCode, header};
use coordinator::WaitCondition;
use serde_json::{Value, json};
use server::PushOptions;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::support::Served;
use crate::support::target::Target;

fn no_backoff() -> Value {
    json!({"initialMs": 0, "maxMs": 0, "jitter": 0})
}

#[tokio::test]
async fn a_target_that_is_down_costs_no_attempt_and_gets_its_task_when_it_is_up() {
    let served = Served::start_pushing().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = json!({"maxAttempts": 1, "push": {"url": format!("http://{address}/")}});
    assert_eq!(served.put("/v1/queues/q", config).await.status, 200);
    let task = served.submit("q").await;
    // Created, granted, released: it was refused once.
    let handle = &served.running.handle;
    let id = server::parse_task_id(&task).unwrap();
    let scope = authority::Scope { tenant: "default".into(), workspace: "default".into() };
    let mut seen = authority::Position(0);
    loop {
        let wanted = WaitCondition::ChangeAfter(seen);
        let now =
            handle.wait_task(scope.clone(), id, wanted, Duration::from_secs(60)).await.unwrap().unwrap();
        if now.view.task.releases > 0 {
            break;
        }
        seen = now.view.task.last;
    }
    let mut target = Target::start_at(TcpListener::bind(address).await.unwrap());
    let arrived = target.next().await;
    assert!(arrived.pushed.attempt() > 1);
    let pushed = arrived.accept();
    served.work_off(&pushed).await;
    let kinds = served.kinds(&task).await;
    assert_eq!(kinds[..4], ["TaskCreated", "LeaseGranted", "LeaseReleased", "LeaseGranted"]);
    served.stopped().await;
}

#[tokio::test]
async fn a_target_that_does_not_take_tasks_now_gets_them_later_at_no_cost() {
    let served = std::sync::Arc::new(Served::start_pushing().await);
    let mut runs = JoinSet::new();
    for status in
        [300, 302, 307, 401, 402, 403, 404, 405, 408, 409, 410, 418, 425, 429, 451, 500, 502, 503, 504, 599]
    {
        let served = served.clone();
        runs.spawn(async move {
            let (queue, mut target) = (format!("q{status}"), Target::start().await);
            served.push_to(&queue, &target, json!({"maxAttempts": 1})).await;
            let task = served.submit(&queue).await;
            let first = target.next().await;
            let id = first.dispatch_id().to_owned();
            let answered = Instant::now();
            first.answer(StatusCode::from_u16(status).unwrap());
            let second = target.next().await;
            assert!(
                answered.elapsed() >= Duration::from_millis(790),
                "{status}: it was left alone for a while"
            );
            assert!(second.dispatch_id() != id && second.pushed.attempt() > 1, "{status}");
            let second = second.accept();
            served.work_off(&second).await;
            assert_eq!(served.kinds(&task).await[2], "LeaseReleased", "{status}");
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
    std::sync::Arc::into_inner(served).unwrap().stopped().await;
}

#[tokio::test]
async fn x5_a_redirect_is_not_followed() {
    let (served, mut target, elsewhere) =
        (Served::start_pushing().await, Target::start().await, Target::start().await);
    served.push_to("q", &target, json!({})).await;
    served.submit("q").await;
    for status in [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT] {
        target.next().await.answer((status, [(header::LOCATION, elsewhere.url())]));
    }
    target.next().await;
    assert!(elsewhere.is_idle());
    served.stopped().await;
}

#[tokio::test]
async fn a_task_that_a_target_never_takes_fails_and_does_not_block_the_queue() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    let config = json!({"maxAttempts": 2, "backoff": no_backoff(), "push": {"concurrency": 1}});
    served.push_to("q", &target, config).await;
    for status in [400, 413, 415, 422] {
        let task = served.submit("q").await;
        for attempt in 1..=2 {
            let arrived = target.next().await;
            assert_eq!((arrived.pushed.task.as_str(), arrived.pushed.attempt()), (task.as_str(), attempt));
            arrived.answer(StatusCode::from_u16(status).unwrap());
        }
        let ended = served.ended(&task).await;
        assert_eq!((&ended["state"], &ended["reason"]), (&json!("FAILED"), &json!("INFRASTRUCTURE")));
        let error = &ended["error"];
        assert!(error["message"].as_str().unwrap().contains(&status.to_string()), "{error}");
        assert_eq!(error["code"], "push_unacceptable");
    }
    served.submit("q").await;
    let next = target.next().await.accept();
    served.work_off(&next).await;
    served.stopped().await;
}

#[tokio::test]
async fn a_hanging_target_and_one_without_an_end_slow_nobody_else() {
    let served = Served::start_pushing().await;
    let (mut hangs, mut endless, mut healthy) =
        (Target::start().await, Target::start().await, Target::start().await);
    for (queue, target) in [("hangs", &hangs), ("endless", &endless), ("healthy", &healthy)] {
        served.push_to(queue, target, json!({"push": {"concurrency": 2}})).await;
    }
    for queue in ["hangs", "hangs", "hangs", "endless"] {
        served.submit(queue).await;
    }
    let _held = [hangs.next().await, hangs.next().await];
    let accepted = endless.next().await.answer_without_end();
    for _ in 0..20 {
        served.submit("healthy").await;
        let pushed = healthy.next().await.accept();
        served.work_off(&pushed).await;
    }
    served.work_off(&accepted).await;
    assert!(hangs.is_idle(), "it has as many as it may");
    served.stopped().await;
}

#[tokio::test]
async fn a_target_says_itself_when_to_come_back() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({})).await;
    served.submit("q").await;
    let first = target.next().await;
    let answered = Instant::now();
    first.answer((StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "2")]));
    target.next().await;
    assert!(answered.elapsed() >= Duration::from_secs(2));
    served.stopped().await;
}

#[tokio::test]
async fn a_target_that_has_failed_is_tried_with_one_task_alone() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({"push": {"concurrency": 4}})).await;
    for _ in 0..8 {
        served.submit("q").await;
    }
    for arrived in [target.next().await, target.next().await, target.next().await, target.next().await] {
        arrived.answer(StatusCode::SERVICE_UNAVAILABLE);
    }
    let probe = target.next().await;
    assert_eq!(served.get("/v1/queues/q").await.body["counts"]["leased"], 1);
    assert!(target.is_idle());
    let mut open = vec![probe.accept()];
    for _ in 0..3 {
        open.push(target.next().await.accept());
    }
    for pushed in open {
        served.work_off(&pushed).await;
    }
    served.stopped().await;
}

/// C20: not begun in time, the lease expires, and the next attempt has a token of its own.
#[tokio::test]
async fn c20_a_task_that_nobody_begins_expires_and_is_sent_again() {
    let begin_within = Duration::from_secs(4);
    let served = Served::start_pushing_with(PushOptions { begin_within, ..PushOptions::default() }).await;
    let mut target = Target::start().await;
    served.push_to("q", &target, json!({"leaseMs": 2_000})).await;
    let task = served.submit("q").await;
    let first = target.next().await;
    let (id, accepted) = (first.dispatch_id().to_owned(), Instant::now());
    let first = first.accept();
    let second = target.next().await;
    assert!(accepted.elapsed() >= begin_within, "it was kept alive until a worker had to begin");
    assert_eq!((second.pushed.task.as_str(), second.pushed.attempt()), (task.as_str(), 2));
    assert!(second.dispatch_id() != id && second.pushed.token != first.token);
    let kinds = served.kinds(&task).await;
    assert!(kinds.contains(&"LeaseExtended".to_owned()) && kinds.contains(&"LeaseExpired".to_owned()));
    served.call(&first, "started", first.started()).await.is_mismatch(2, 1);
    let second = second.accept();
    served.work_off(&second).await;
    served.stopped().await;
}

/// From a heartbeat on, also without a start, the worker keeps its lease itself.
#[tokio::test]
async fn a_worker_that_falls_silent_is_not_kept_alive_by_the_dispatcher() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({"leaseMs": 3_000})).await;
    served.submit("q").await;
    let first = target.next().await.accept();
    assert_eq!(served.call(&first, "started", first.started()).await.status, 200);
    // Without it the lease would be kept for a minute.
    let second = target.next().await;
    assert_eq!(second.pushed.attempt(), 2);
    served.stopped().await;
}

/// A target may do its work before it answers; whether its answer then comes is of no account.
#[tokio::test]
async fn a_failing_answer_does_not_take_the_task_from_a_worker_that_has_begun() {
    let served = std::sync::Arc::new(Served::start_pushing().await);
    let mut runs = JoinSet::new();
    for status in [400, 413, 415, 422, 502] {
        let served = served.clone();
        runs.spawn(async move {
            let (queue, mut target) = (format!("q{status}"), Target::start().await);
            let config = json!({"backoff": no_backoff(), "push": {"concurrency": 2}});
            served.push_to(&queue, &target, config).await;
            let task = served.submit(&queue).await;
            // A target that has failed is sent nothing more until the answer to its probe was heard.
            target.next().await.answer(StatusCode::SERVICE_UNAVAILABLE);
            let probe = target.next().await;
            assert_eq!(served.call(&probe.pushed, "started", probe.pushed.started()).await.status, 200);
            let other = served.submit(&queue).await;
            let pushed = probe.answer(StatusCode::from_u16(status).unwrap());
            let next = target.next().await;
            assert_eq!((next.pushed.task.as_str(), next.pushed.attempt()), (other.as_str(), 1), "{status}");
            served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
            let kinds = served.kinds(&task).await;
            assert!(!kinds.contains(&"TaskFailed".to_owned()), "{status}: {kinds:?}");
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
    std::sync::Arc::into_inner(served).unwrap().stopped().await;
}

#[tokio::test]
async fn a_cancelled_task_is_told_so_when_its_worker_begins() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({"push": {"concurrency": 1}})).await;
    let (task, other) = (served.submit("q").await, served.submit("q").await);
    let pushed = target.next().await.accept();
    let path = format!("/v1/tasks/{task}/cancel");
    assert_eq!(served.post(&path, json!({"reason": "no longer"})).await.status, 200);
    served.call(&pushed, "started", pushed.started()).await.is_terminal("CANCELLED");
    assert_eq!(target.next().await.pushed.task, other);
    served.stopped().await;
}
