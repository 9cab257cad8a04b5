//! A coordinator that goes away: work goes on while its lease lives, and what was not answered is said again.

use std::time::Duration;

use wire::grpc::RegisterWorkerRequest;
use worker::Error;

use super::support::{Served, Worker, short_lease, task};

#[tokio::test]
async fn work_goes_on_over_a_restart_and_commits_afterwards() {
    let served = Served::start().await;
    let id = served.submit(task()).await;
    let mut worker = Worker::start(&served, 2);
    let begun = worker.next().await;
    let served = served.down().await.up().await;
    assert!(!begun.permit.cancelled().is_cancelled());
    let next = served.submit(task()).await;
    let second = worker.next().await;
    assert_eq!(second.task.task_id, next, "the worker has registered again");
    begun.done();
    let done = served.until(&id, |task| task["state"] == "COMPLETED").await;
    assert_eq!(done["attempt"], 1);
    second.done();
    served.until(&next, |task| task["state"] == "COMPLETED").await;
}

/// All of them lose their connection at one moment, with work at hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n13_a_crowd_of_workers_comes_back_at_once_and_each_goes_on() {
    const CROWD: usize = 2_000;
    let served = Served::start().await;
    let mut ids = served.submit_many(task(), CROWD).await;
    let mut workers: Vec<Worker> =
        (0..CROWD).map(|n| Worker::named(served.address, format!("w{n}"))).collect();
    let mut begun = Vec::new();
    for worker in &mut workers {
        begun.push(worker.next().await);
    }
    let served = served.down().await.up().await;
    begun.into_iter().for_each(|begun| begun.done());
    ids.extend(served.submit_many(task(), CROWD).await);
    // Each has one slot, so that each of them gets one while all of them are held.
    let mut again = Vec::new();
    for worker in &mut workers {
        again.push(worker.next().await);
    }
    again.into_iter().for_each(|begun| begun.done());
    for id in ids {
        let done = served.until(&id, |task| task["state"] == "COMPLETED").await;
        assert_eq!(done["attempt"], 1, "{done}");
    }
}

#[tokio::test]
async fn a_report_that_found_nobody_is_said_again() {
    let served = Served::start().await;
    let id = served.submit(task()).await;
    let mut worker = Worker::start(&served, 1);
    let begun = worker.next().await;
    let down = served.down().await;
    begun.done();
    let served = down.up().await;
    let done = served.until(&id, |task| task["state"] == "COMPLETED").await;
    assert_eq!(done["attempt"], 1);
}

#[tokio::test]
async fn w18_a_worker_that_is_cut_off_for_longer_than_its_lease_stops_and_reports_nothing() {
    let served = Served::start().await;
    let id = served.submit(short_lease(2_000)).await;
    let mut worker = Worker::start(&served, 1);
    let begun = worker.next().await;
    let down = served.down().await;
    // By its own clock: there is nobody who could tell it.
    begun.cancelled().await;
    drop(begun);
    let served = down.up().await;
    let again = worker.next().await;
    assert_eq!(
        (again.task.task_id.as_str(), again.task.attempt),
        (id.as_str(), 2),
        "reconnected, it serves on"
    );
    again.done();
    let done = served.until(&id, |task| task["state"] == "COMPLETED").await;
    let attempts = served.http("GET", &format!("/v1/tasks/{id}/history"), "").await;
    let types: Vec<&str> =
        attempts["events"].as_array().unwrap().iter().filter_map(|event| event["type"].as_str()).collect();
    assert!(!types.contains(&"TaskFailed") && !types.contains(&"TaskCancelled"), "{types:?} {done}");
}

#[tokio::test]
async fn an_agent_waits_for_a_coordinator_that_is_not_there_yet() {
    let down = Served::start().await.down().await;
    let mut worker = Worker::at(down.address, 1, Duration::ZERO);
    assert!(worker.is_idle());
    let served = down.up().await;
    let id = served.submit(task()).await;
    worker.next().await.done();
    served.until(&id, |task| task["state"] == "COMPLETED").await;
}

#[tokio::test]
async fn w11_a_worker_that_was_replaced_while_it_was_away_does_not_come_back() {
    let served = Served::start().await;
    let id = served.submit(task()).await;
    let mut worker = Worker::start(&served, 1);
    let begun = worker.next().await;
    let served = served.down().await.up().await;
    let other = RegisterWorkerRequest {
        worker_id: "w".to_owned(),
        session_id: "another".to_owned(),
        ..RegisterWorkerRequest::default()
    };
    served.client().await.register_worker(other).await.unwrap();
    // Were it to come back first, a task for its free slot would tell it.
    served.submit(task()).await;
    begun.cancelled().await;
    assert!(matches!(worker.ended().await, Err(Error::Superseded { .. })));
    served.until(&id, |task| task["state"] == "WAITING").await;
    assert_eq!(served.known("w").await["sessionId"], "another");
}
