//! Leases by free slots, heartbeats, cancels and verdicts: S3-41 to S3-45.

use bytes::Bytes;
use wire::grpc::{ActionResult, ErrorCategory, RegisterWorkerRequest};
use worker::{Error, Failure, Outcome};

use super::support::{Served, Worker, in_time, short_lease, task};

#[tokio::test]
async fn s3_42_a_worker_takes_as_many_tasks_as_it_has_free_slots() {
    let served = Served::start().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(served.submit(task()).await);
    }
    let mut worker = Worker::start(&served, 2);
    let (first, second) = (worker.next().await, worker.next().await);
    served.until(&ids[1], |task| task["state"] == "LEASED").await;
    assert_eq!(served.task(&ids[2]).await["state"], "WAITING");
    assert!(worker.is_idle());
    let first_id = first.task.task_id.clone();
    first.done();
    let third = worker.next().await;
    let committed = served.until(&first_id, |task| task["state"] == "COMPLETED").await;
    assert_eq!(committed["result"]["n"], 1);
    // A command that has ended frees its slot while its outputs are on their way.
    second.permit.free();
    let fourth = worker.next().await;
    assert_eq!(served.task(&second.task.task_id).await["state"], "LEASED");
    for begun in [second, third, fourth] {
        begun.done();
    }
    for id in &ids {
        served.until(id, |task| task["state"] == "COMPLETED").await;
    }
}

#[tokio::test]
async fn outputs_that_pile_up_hold_up_new_tasks() {
    let served = Served::start().await;
    for _ in 0..3 {
        served.submit(task()).await;
    }
    let last = served.submit(task()).await;
    let mut worker = Worker::start(&served, 1);
    let first = worker.next().await;
    first.permit.free();
    let second = worker.next().await;
    second.permit.free();
    let second_id = second.task.task_id.clone();
    second.done();
    let third = worker.next().await;
    served.until(&second_id, |task| task["state"] == "COMPLETED").await;
    third.permit.free();
    // Two of one slot's are on their way home, so there is no room for the last.
    let third_id = third.task.task_id.clone();
    assert_eq!(served.task(&third_id).await["state"], "LEASED");
    assert_eq!(served.task(&last).await["state"], "WAITING");
    first.done();
    let fourth = worker.next().await;
    assert_eq!(fourth.task.task_id, last);
    fourth.done();
    third.done();
    served.until(&third_id, |task| task["state"] == "COMPLETED").await;
}

#[tokio::test]
async fn s3_43_results_of_actions_and_failures_are_reported_as_they_are() {
    let served = Served::start().await;
    let mut worker = Worker::start(&served, 1);
    let id = served.submit(task()).await;
    let begun = worker.next().await;
    assert_eq!(
        (begun.task.attempt, &begun.task.payload[..], begun.task.queue.as_str()),
        (1, &b"{}"[..], "q")
    );
    let result = ActionResult { exit_code: 3, ..ActionResult::default() };
    begun.end(Outcome::Action(Box::new(result)));
    let done = served.until(&id, |task| task["state"] == "COMPLETED").await;
    assert_eq!(done["result"]["exitCode"], 3);

    let id = served.submit(task()).await;
    let failure = Failure::missing_inputs(&[]);
    worker.next().await.end(failure.into());
    let failed = served.until(&id, |task| task["state"] == "FAILED").await;
    let error = &failed["error"];
    assert_eq!(
        (&error["code"], &error["category"]),
        (&"missing_inputs".into(), &"CONFIGURATION".into()),
        "{failed}"
    );

    let id = served.submit(task()).await;
    worker.next().await.end(Failure::new(Failure::TIMEOUT, ErrorCategory::Timeout, "late").into());
    let failed = served.until(&id, |task| task["state"] == "FAILED").await;
    assert_eq!(failed["attempt"], 1, "not retryable, whatever the category's default is");
}

#[tokio::test]
async fn s3_45_heartbeats_keep_a_lease_for_as_long_as_the_work_takes() {
    let served = Served::start().await;
    let id = served.submit(short_lease(4_000)).await;
    let mut worker = Worker::start(&served, 1);
    let begun = worker.next().await;
    let mut expires = served.task(&id).await["lease"]["expiresAt"].clone();
    for _ in 0..4 {
        let task = served.until(&id, |task| task["lease"]["expiresAt"] != expires).await;
        assert_eq!((&task["state"], &task["attempt"]), (&"LEASED".into(), &1.into()));
        expires = task["lease"]["expiresAt"].clone();
    }
    assert!(!begun.permit.cancelled().is_cancelled());
    begun.done();
    served.until(&id, |task| task["state"] == "COMPLETED").await;
}

#[tokio::test]
async fn s3_44_a_cancelled_task_stops_and_is_reported() {
    let served = Served::start().await;
    let id = served.submit(short_lease(1_000)).await;
    let mut worker = Worker::start(&served, 1);
    let begun = worker.next().await;
    served.cancel(&id).await;
    begun.cancelled().await;
    let dead = served.until(&id, |task| task["state"] != "LEASED").await;
    assert_eq!(dead["attempt"], 1, "{dead}");
    assert!(["DEAD", "FAILED", "CANCELLED"].contains(&dead["state"].as_str().unwrap()), "{dead}");
    // The slot is free again.
    served.submit(task()).await;
    worker.next().await.done();
}

#[tokio::test]
async fn w11_a_worker_that_was_replaced_stops_its_work_and_itself() {
    let served = Served::start().await;
    let id = served.submit(task()).await;
    let mut worker = Worker::start(&served, 2);
    let begun = worker.next().await;
    let other = RegisterWorkerRequest {
        worker_id: "w".to_owned(),
        session_id: "another".to_owned(),
        ..RegisterWorkerRequest::default()
    };
    served.client().await.register_worker(other).await.unwrap();
    // Whether it learns it by its next lease or heartbeat depends on which is sooner.
    served.submit(task()).await;
    begun.cancelled().await;
    assert!(matches!(worker.ended().await, Err(Error::Superseded { .. })));
    assert_eq!(served.task(&id).await["state"], "WAITING");
    assert_eq!(served.known("w").await["sessionId"], "another", "the other session goes on");
}

#[tokio::test]
async fn work_that_panics_is_a_failure_of_the_attempt_alone() {
    let served = Served::start().await;
    let id = served.submit(wire::grpc::SubmitTask { max_attempts: 1, ..task() }).await;
    let mut worker = Worker::start(&served, 1);
    drop(worker.next().await);
    let failed = served.until(&id, |task| task["state"] == "FAILED").await;
    assert_eq!(failed["error"]["code"], Failure::WORKER_BROKEN, "{failed}");
    let id = served.submit(task()).await;
    worker.next().await.end(Outcome::Json(Bytes::from_static(b"1")));
    in_time(served.until(&id, |task| task["state"] == "COMPLETED")).await;
}

#[tokio::test]
async fn a_result_that_the_coordinator_does_not_take_is_a_failure_that_says_so() {
    let served = Served::start().await;
    let mut worker = Worker::start(&served, 1);
    let large =
        |bytes| Outcome::Action(Box::new(ActionResult { stdout_raw: vec![0; bytes], ..Default::default() }));
    for outcome in [Outcome::Json(Bytes::from_static(b"{no json")), large(900_000), large(9_000_000)] {
        let id = served.submit(task()).await;
        worker.next().await.end(outcome);
        let failed = served.until(&id, |task| task["state"] == "FAILED").await;
        assert_eq!((&failed["error"]["code"], &failed["attempt"]), (&"result_rejected".into(), &1.into()));
    }
}
