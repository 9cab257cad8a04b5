//! Telling a worker to stop: S3-56.

use std::time::Duration;

use super::support::{Served, Worker, task};

#[tokio::test]
async fn s3_56_a_worker_that_is_told_to_stop_takes_no_more_finishes_and_leaves() {
    let served = Served::start().await;
    let id = served.submit(task()).await;
    let mut worker = Worker::start(&served, 4);
    let begun = worker.next().await;
    worker.stop.stop();
    while served.known("w").await["state"] != "DRAINING" {
        tokio::task::yield_now().await;
    }
    let later = served.submit(task()).await;
    begun.done();
    worker.ended().await.unwrap();
    assert_eq!(served.task(&id).await["state"], "COMPLETED");
    let later = served.until(&later, |task| task["state"] == "WAITING").await;
    assert_eq!(later["state"], "WAITING");
    assert!(served.known("w").await.is_null(), "it has said goodbye");
}

#[tokio::test]
async fn s3_56_what_does_not_end_in_time_is_stopped_and_given_back_at_no_cost() {
    let served = Served::start().await;
    let id = served.submit(task()).await;
    let mut worker = Worker::at(served.address, 1, Duration::from_millis(100));
    let begun = worker.next().await;
    worker.stop.stop();
    begun.cancelled().await;
    worker.ended().await.unwrap();
    let waiting = served.task(&id).await;
    assert_eq!(waiting["state"], "WAITING", "{waiting}");
    assert!(served.known("w").await.is_null());
}

#[tokio::test]
async fn a_second_word_ends_the_grace() {
    let served = Served::start().await;
    let id = served.submit(task()).await;
    let mut worker = Worker::start(&served, 1);
    let begun = worker.next().await;
    worker.stop.stop();
    worker.stop.stop();
    begun.cancelled().await;
    worker.ended().await.unwrap();
    assert_eq!(served.task(&id).await["state"], "WAITING");
}

#[tokio::test]
async fn a_worker_with_nothing_to_do_leaves_at_once_even_when_nobody_hears_it() {
    let served = Served::start().await;
    let worker = Worker::start(&served, 1);
    while served.known("w").await.is_null() {
        tokio::task::yield_now().await;
    }
    let _down = served.down().await;
    worker.stop.stop();
    worker.ended().await.unwrap();
}
