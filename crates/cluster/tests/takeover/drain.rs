//! A node that leaves while something else goes wrong.

use super::*;

/// Keeps every append waiting, and lets reads go on, until its session is ended.
const STALL: &str = "BEGIN; LOCK TABLE lessor.batch IN SHARE ROW EXCLUSIVE MODE; SELECT pg_sleep(1000)";
const STALLED: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
const GO_ON: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep' \
                     AND datname = current_database()";

/// Runs statements that sleep in the end. Returns once they do; their session is ended by [`GO_ON`].
fn stall(url: &str, statements: &'static str) -> std::thread::JoinHandle<()> {
    let stalling = url.to_owned();
    let stall = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test_servers::postgres::try_execute(&stalling, statements)).unwrap_err();
    });
    while execute(url, STALLED) != [["1"]] {}
    stall
}

/// The handover failed after two seconds without an answer of the database, and the process ended with its open polls.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_while_the_database_stalls_holds_polls_and_hands_over_when_it_goes_on() {
    let url = test_servers::postgres::shared().create_database();
    let nodes = Nodes::on(&url);
    let a = nodes.start("a", Duration::from_secs(3_600));
    a.handle.submit(task(1)).await.unwrap();
    let b = nodes.start("b", Duration::from_secs(3_600));
    b.handle.submit(task(2)).await.unwrap();
    for _ in 0..2 {
        a.handle.lease(poll(), Duration::ZERO).await.unwrap().remove(0);
    }
    let waiting = tokio::spawn({
        let handle = a.handle.clone();
        async move { handle.lease(poll(), Duration::from_secs(60)).await }
    });
    let stall = stall(&url, STALL);
    let submitting = tokio::spawn({
        let handle = a.handle.clone();
        async move { handle.submit(task(3)).await }
    });
    let mut takes_work = a.handle.takes_work();
    takes_work.wait_for(|takes_work| !takes_work).await.unwrap();
    a.phase.send_replace(Phase::Drain);
    // The owner goes on to look whether it can hand over.
    let mut membership = Membership::new(nodes.database("test"));
    let is_draining = |row: &postgres::NodeRow| row.node == "a" && row.is_draining;
    while !membership.list().await.unwrap().0.iter().any(is_draining) {}
    assert!(!a.task.is_finished() && !waiting.is_finished());

    execute(&url, GO_ON);
    stall.join().unwrap();
    submitting.await.unwrap().unwrap();
    let leased = waiting.await.unwrap().unwrap();
    assert_eq!(leased[0].task, TaskId(3), "the poll was answered over the same connection");
    nodes.owned_by("b").await;
    for node in [a, b] {
        node.phase.send_replace(Phase::End);
        node.task.await.unwrap().unwrap();
    }
}

const HOLD: &str = "SELECT pg_advisory_lock(7); SELECT pg_sleep(1000)";
/// Takes the place of the next batch for another writer, once the lock 7 is free.
const TAKE_PLACE: &str = "BEGIN; INSERT INTO lessor.batch SELECT shard, next, next + 1, at, epoch + 1, link, codec, body \
                          FROM lessor.batch ORDER BY first DESC LIMIT 1; SELECT pg_advisory_lock(7); COMMIT";
const TAKING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()";
const APPENDING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid' \
                         AND datname = current_database()";

/// The process ended with an error, and cut its open calls.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_is_replaced_while_it_hands_over_ends_well() {
    let url = test_servers::postgres::shared().create_database();
    let a = Nodes::on(&url).start("a", Duration::from_secs(3_600));
    a.handle.submit(task(1)).await.unwrap();
    let hold = stall(&url, HOLD);
    let taking_url = url.clone();
    let taking = std::thread::spawn(move || execute(&taking_url, TAKE_PLACE));
    while execute(&url, TAKING) != [["1"]] {}
    let submitting = tokio::spawn({
        let handle = a.handle.clone();
        async move { handle.submit(task(2)).await }
    });
    while execute(&url, APPENDING) != [["1"]] {}
    a.phase.send_replace(Phase::End);
    execute(&url, GO_ON);
    a.task.await.unwrap().unwrap();
    submitting.await.unwrap().unwrap_err();
    taking.join().unwrap();
    hold.join().unwrap();
}

/// The sessions that have appended nothing yet, and those that have.
const READY: &str = "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_is_in_recovery()' AND state = 'idle' \
                     AND datname = current_database()";
const APPENDS: &str = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%INSERT INTO lessor.batch%' \
                       AND pid <> pg_backend_pid() AND datname = current_database()";

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_standby_has_the_session_ready_with_which_it_takes_over() {
    let url = test_servers::postgres::shared().create_database();
    let nodes = Nodes::on(&url);
    let a = nodes.start("a", Duration::from_secs(3_600));
    a.handle.submit(task(1)).await.unwrap();
    assert!(execute(&url, READY).is_empty(), "an owner has its session");
    let b = nodes.start("b", Duration::from_secs(3_600));
    let ready = loop {
        let mut ready = execute(&url, READY);
        if let Some(pid) = ready.pop() {
            break pid;
        }
    };
    a.phase.send_replace(Phase::Drain);
    nodes.owned_by("b").await;
    b.handle.submit(task(2)).await.unwrap();
    assert!(execute(&url, APPENDS).contains(&ready));
    for node in [a, b] {
        node.phase.send_replace(Phase::End);
        node.task.await.unwrap().unwrap();
    }
}
