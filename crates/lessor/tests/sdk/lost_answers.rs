//! Answers that get lost, and a coordinator that dies: every task commits exactly once, and no worker is confused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lessor_sdk::{Client, Submit, Task, TaskState};
use serde_json::json;
use tokio::sync::{Notify, Semaphore, watch};

use crate::fixture::{Fixture, QUEUE, Working};
use crate::pushing::{Pushing, accept};
use crate::python::PythonWorker;
use crate::support::proxy::{Action, Request};

const TASKS: usize = 120;

async fn expect_each_committed_once(fixture: &Fixture, ids: &[String]) {
    for id in ids {
        assert_eq!(fixture.final_task(id).await.state, TaskState::Completed);
        assert_eq!(fixture.kinds(id).await, ["TaskCreated", "LeaseGranted", "TaskCompleted"], "{id}");
    }
}

/// Workers of both SDKs on one queue, and every third answer of the server is lost on its way.
#[tokio::test]
async fn every_third_answer_is_lost() {
    let fixture = Fixture::start();
    let rule = |_: &Request, number| if number % 3 == 0 { Action::Lose } else { Action::Pass };
    let proxy = fixture.proxy(rule).await;
    let client = Client::new(&proxy.url).unwrap();
    let mut ids = Vec::new();
    for n in 0..TASKS {
        ids.push(client.submit(Submit::new(QUEUE, &n).unwrap()).await.unwrap().task_id);
    }
    assert_eq!(fixture.client.list(Some(QUEUE), None).await.unwrap().len(), TASKS, "no task is there twice");

    let python = PythonWorker::start(&proxy.url, QUEUE);
    // One is up before the other begins, so that both have a part.
    fixture.final_task(&ids[0]).await;
    let handler = |task: Task| async move { task.payload::<usize>() };
    let working = Working::start(fixture.worker().url(&proxy.url).concurrency(4).handler(QUEUE, handler));
    expect_each_committed_once(&fixture, &ids).await;
    // It ends through the proxy, which needs this thread meanwhile.
    let by_python = tokio::task::spawn_blocking(move || python.end()).await.unwrap();
    working.end().await;

    let mut by_rust = fixture.ended.wait(TASKS - by_python.len()).await;
    by_rust.retain(|end| end.verdict == "COMMITTED");
    assert_eq!(by_rust.len() + by_python.len(), TASKS, "each was worked on once");
    assert!(by_python.iter().all(|verdict| verdict == "COMMITTED"), "{by_python:?}");
    assert!(!by_rust.is_empty() && !by_python.is_empty());
    assert!(proxy.exchanges().iter().filter(|exchange| !exchange.was_told).count() > TASKS / 3);
}

/// S1-56: push targets of both SDKs for one queue, and every third answer to their callbacks is lost on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_third_answer_to_a_callback_is_lost() {
    let rule = |_: &Request, number| if number % 3 == 0 { Action::Lose } else { Action::Pass };
    let pushing = Pushing::start(rule).await;
    let mut ids = Vec::new();
    for n in 0..TASKS {
        ids.push(pushing.submit(json!(n)).await);
    }
    let rust = pushing.target(|task: Task| async move { task.payload() }).concurrency(4).open().unwrap();
    let (python, url) = PythonWorker::start_target();
    let http = reqwest::Client::new();
    for n in 0..TASKS {
        let envelope = pushing.envelope().await;
        // A target that is full is offered the same again, as push dispatch would another task.
        loop {
            let is_accepted = match n % 2 {
                0 => accept(&rust, &envelope).is_accepted(),
                _ => http.post(&url).json(&envelope).send().await.unwrap().status() == 202,
            };
            if is_accepted {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let once = ["TaskCreated", "LeaseGranted", "AttemptStarted", "TaskCompleted"];
    for id in &ids {
        assert_eq!(pushing.final_task(id).await.state, TaskState::Completed);
        assert_eq!(pushing.kinds(id).await, once, "{id}");
    }
    assert_eq!(pushing.ended.verdicts(TASKS / 2).await, vec!["COMMITTED"; TASKS / 2]);
    let by_python = tokio::task::spawn_blocking(move || python.end()).await.unwrap();
    assert_eq!(by_python, vec!["COMMITTED"; TASKS / 2], "no worker is left confused");
    assert!(pushing.proxy.exchanges().iter().filter(|exchange| !exchange.was_told).count() > TASKS / 3);
}

/// Handlers end while there is no coordinator to report to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_is_killed_in_the_middle() {
    let mut fixture = Fixture::start();
    let mut ids = Vec::new();
    for n in 0..TASKS {
        ids.push(fixture.submit(json!(n)).await);
    }
    let half = Arc::new(Semaphore::new(0));
    let (kill, is_killed) = watch::channel(false);
    let begun = half.clone();
    let working = Working::start(fixture.worker().concurrency(4).handler(QUEUE, move |task: Task| {
        let (begun, mut is_killed) = (begun.clone(), is_killed.clone());
        async move {
            begun.add_permits(1);
            let n: usize = task.payload()?;
            if n >= TASKS / 2 {
                is_killed.wait_for(|is_killed| *is_killed).await?;
            }
            Ok(n)
        }
    }));
    half.acquire_many(TASKS as u32 / 2 + 4).await.unwrap().forget();
    fixture.server.kill();
    kill.send(true).unwrap();
    fixture.server = fixture.server.crash_and_restart();
    expect_each_committed_once(&fixture, &ids).await;
    working.end().await;
    let verdicts = fixture.ended.verdicts(TASKS).await;
    assert!(
        verdicts.len() == TASKS && verdicts.iter().all(|verdict| *verdict == "COMMITTED"),
        "{verdicts:?}"
    );
}

/// The connection of a poll dies and the server does not notice. What that poll is granted afterwards also reaches the one
/// that was sent in its place, because they go by the same name.
#[tokio::test]
async fn a_lease_that_was_granted_to_a_dead_connection_is_found() {
    let fixture = Fixture::start();
    let asks_again = Arc::new(Notify::new());
    let asks = asks_again.clone();
    let rule = move |_: &Request, number| {
        if number == 2 {
            asks.notify_one();
        }
        if number == 1 { Action::Strand } else { Action::Pass }
    };
    let proxy = fixture.proxy(rule).await;
    let worker = fixture.worker().url(&proxy.url).wait(Duration::from_secs(1));
    let working = Working::start(worker.handler(QUEUE, |task: Task| async move { Ok(task.attempt()) }));
    asks_again.notified().await;
    // A few round trips, in which the second poll begins to wait behind the first.
    for _ in 0..5 {
        fixture.until_it_polls().await;
    }
    let id = fixture.submit(json!(null)).await;
    assert_eq!(fixture.result(&id).await, 1);
    working.end().await;
}

/// A submit whose answer gets lost is one task all the same.
#[tokio::test]
async fn a_submit_whose_answer_is_lost_submits_once() {
    let fixture = Fixture::start();
    let is_first = AtomicBool::new(true);
    let rule = move |_: &Request, _| {
        if is_first.swap(false, Ordering::SeqCst) { Action::Lose } else { Action::Pass }
    };
    let client = Client::new(&fixture.proxy(rule).await.url).unwrap();
    let submitted = client.submit(Submit::new(QUEUE, &1).unwrap()).await.unwrap();
    let listed = fixture.client.list(Some(QUEUE), None).await.unwrap();
    assert_eq!(listed.iter().map(|task| &task.task_id).collect::<Vec<_>>(), [&submitted.task_id]);
}
