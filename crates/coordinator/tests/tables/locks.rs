//! Tables that somebody has locked, as `CREATE INDEX` and `VACUUM FULL` do.

use super::*;

/// Batches that are appended while the tables are locked. How many may wait is tested with the queue itself.
const MANY: u128 = 100;

#[tokio::test(flavor = "multi_thread")]
async fn no_request_waits_for_tables_that_follow_while_they_are_locked() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Following);
    load(&running.handle, 4, 25, 1).await;
    fixture.caught_up().await;
    fixture.lock("lessor.jobs", "SHARE").await;
    // One after the other, so that each is a batch.
    let answered = async {
        running.handle.submit(task(10_000, "q")).await.unwrap();
        fixture.waits_for_lock("lessor.jobs").await;
        running.handle.history(scope(), TaskId(1)).await.unwrap().expect("it is known");
        for id in 1..MANY {
            running.handle.submit(task(10_000 + id, "q")).await.unwrap();
        }
    };
    tokio::time::timeout(LONG, answered).await.expect("requests are answered meanwhile");
    assert!(fixture.is_behind().await);
    fixture.unlock().await;
    fixture.caught_up().await;
    assert_eq!(fixture.assert_exact().await.jobs, 100 + MANY as usize);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_stops_while_tables_that_follow_are_locked() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Following);
    load(&running.handle, 4, 25, 1).await;
    fixture.caught_up().await;
    fixture.lock("lessor.jobs", "SHARE").await;
    running.handle.submit(task(10_000, "q")).await.unwrap();
    fixture.waits_for_lock("lessor.jobs").await;
    tokio::time::timeout(LONG, running.stop()).await.expect("it stops").unwrap();
    assert!(fixture.is_behind().await);
    fixture.unlock().await;
    let running = fixture.start(Tables::Following);
    fixture.caught_up().await;
    assert_eq!(fixture.assert_exact().await.jobs, 101);
    running.stop().await.unwrap();
}
