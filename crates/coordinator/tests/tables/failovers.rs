//! The tables after a failover of the database to a replica without the last commits.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn c9_the_tables_of_batches_that_a_failover_has_undone_are_written_again() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Transaction);
    load(&running.handle, 4, 30, 1).await;
    fixture.copy().await;
    load(&running.handle, 4, 30, 10_000).await;
    fixture.fail_over().await;
    running.handle.submit(task(99_999, "q")).await.unwrap();
    assert_eq!(fixture.assert_exact().await.jobs, 241);
    running.stop().await.unwrap();
    let running = fixture.start(Tables::Transaction);
    fixture.assert_exact().await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_tables_that_follow_go_on_from_where_a_failover_has_set_them_back() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Following);
    load(&running.handle, 4, 30, 1).await;
    fixture.caught_up().await;
    fixture.copy().await;
    load(&running.handle, 4, 30, 10_000).await;
    fixture.caught_up().await;
    fixture.fail_over().await;
    running.handle.submit(task(99_999, "q")).await.unwrap();
    fixture.caught_up().await;
    assert_eq!(fixture.assert_exact().await.jobs, 241);
    load(&running.handle, 4, 30, 20_000).await;
    running.stop().await.unwrap();
    assert_eq!(fixture.assert_exact().await.jobs, 361);
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_the_tables_get_what_a_failover_has_undone_of_the_owner_before() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Transaction);
    load(&running.handle, 4, 15, 1).await;
    fixture.copy().await;
    load(&running.handle, 4, 15, 10_000).await;
    running.stop().await.unwrap();

    let running = Fixture::take_over(fixture.standby().await).await;
    load(&running.handle, 4, 15, 20_000).await;
    fixture.assert_exact().await;
    fixture.fail_over().await;
    running.handle.submit(task(99_998, "q")).await.unwrap();
    running.handle.submit(task(99_999, "q")).await.unwrap();
    fixture.caught_up().await;
    assert_eq!(fixture.assert_exact().await.jobs, 182);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_no_request_waits_until_what_the_tables_lack_was_read() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Transaction);
    load(&running.handle, 4, 15, 1).await;
    fixture.copy().await;
    load(&running.handle, 4, 15, 10_000).await;
    running.stop().await.unwrap();
    let running = Fixture::take_over(fixture.standby().await).await;
    fixture.fail_over().await;
    fixture.block_snapshots().await;
    let answered = load(&running.handle, 4, 15, 20_000);
    tokio::time::timeout(LONG, answered).await.expect("requests are answered meanwhile");
    assert!(fixture.is_behind().await);
    fixture.unlock().await;
    fixture.caught_up().await;
    assert_eq!(fixture.assert_exact().await.jobs, 180);
    load(&running.handle, 4, 15, 30_000).await;
    assert_eq!(fixture.assert_exact().await.jobs, 240, "they are written with their batches again");
    let written_with_batches = "SELECT since IS NOT NULL AND complete FROM lessor.table_state";
    assert_eq!(fixture.execute(written_with_batches).await, [["t"]]);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_no_takeover_waits_until_what_the_tables_lack_was_read() {
    let fixture = Fixture::create().await;
    for (tables, from) in [(Tables::Transaction, 1), (Tables::Off, 10_000)] {
        let running = fixture.start(tables);
        load(&running.handle, 4, 25, from).await;
        running.stop().await.unwrap();
    }
    let standby = fixture.standby().await;
    fixture.block_snapshots().await;
    let running = tokio::time::timeout(LONG, Fixture::take_over(standby)).await.expect("it takes over");
    running.handle.submit(task(99_999, "q")).await.unwrap();
    assert!(fixture.is_behind().await);
    fixture.unlock().await;
    fixture.caught_up().await;
    assert_eq!(fixture.assert_exact().await.jobs, 201);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c9_tables_that_have_caught_up_do_so_again_after_another_failover() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Transaction);
    load(&running.handle, 4, 15, 1).await;
    running.stop().await.unwrap();
    let running = fixture.start(Tables::Off);
    load(&running.handle, 4, 15, 10_000).await;
    running.stop().await.unwrap();
    let standby = fixture.standby().await;
    fixture.copy().await;
    let running = Fixture::take_over(standby).await;
    load(&running.handle, 4, 15, 20_000).await;
    fixture.caught_up().await;
    load(&running.handle, 4, 15, 30_000).await;
    for id in [99_998, 99_999] {
        fixture.fail_over().await;
        running.handle.submit(task(id, "q")).await.unwrap();
        load(&running.handle, 1, 5, id * 10).await;
        fixture.caught_up().await;
        fixture.assert_exact().await;
    }
    running.stop().await.unwrap();
}

/// The tables have caught up, and the failover undoes nothing but that, before the first batch with its rows is there.
#[tokio::test(flavor = "multi_thread")]
async fn c9_the_tables_get_what_a_failover_has_undone_of_their_catching_up_alone() {
    let fixture = Fixture::create().await;
    for (tables, from) in [(Tables::Transaction, 1), (Tables::Off, 10_000)] {
        let running = fixture.start(tables);
        load(&running.handle, 4, 25, from).await;
        running.stop().await.unwrap();
    }
    fixture.copy().await;
    let standby = fixture.standby().await;
    fixture.block_snapshots().await;
    let running = Fixture::take_over(standby).await;
    assert!(fixture.is_behind().await);
    fixture.unlock().await;
    fixture.caught_up().await;
    fixture.lock("lessor.batch", "SHARE").await;
    let handle = running.handle.clone();
    let first = tokio::spawn(async move { handle.submit(task(20_000, "q")).await });
    fixture.waits_for_lock("lessor.batch").await;
    fixture.execute(&format!("BEGIN; {UNDO} COMMIT")).await;
    fixture.unlock().await;
    first.await.unwrap().unwrap();
    let mut id = 20_001;
    let mended = async {
        while fixture.is_behind().await {
            running.handle.submit(task(id, "q")).await.unwrap();
            id += 1;
        }
    };
    tokio::time::timeout(LONG, mended).await.expect("the tables follow");
    load(&running.handle, 4, 15, 30_000).await;
    fixture.caught_up().await;
    fixture.assert_exact().await;
    running.stop().await.unwrap();
}
