//! Standbys that take over at the same moment.

use test_servers::postgres::{shared, try_execute};

use super::*;

/// So long that no standby suspects an owner that lives.
const AFTER: Duration = Duration::from_secs(5);

/// Every append waits for a lock before it is stored.
const WAIT: &str = "CREATE FUNCTION lessor.wait() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN PERFORM pg_advisory_xact_lock_shared(13); RETURN NEW; END $$; \
    CREATE TRIGGER wait BEFORE INSERT ON lessor.batch FOR EACH ROW EXECUTE FUNCTION lessor.wait()";
const LOCK: &str = "SELECT pg_advisory_lock(13), pg_sleep(1000)";
const LOCKED: &str = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_advisory_lock(13)%' \
                      AND wait_event = 'PgSleep' AND datname = current_database()";
const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND datname = current_database()";
const GO_ON: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_advisory_lock(13)%' \
                     AND datname = current_database()";

/// Both nodes serve, one of them owns the ledger in the epoch after the first, and no epoch came after that.
async fn one_of_two_owns(nodes: &Nodes, url: &str, standbys: [&Running; 2], known: u128) {
    for (id, standby) in (known + 1..).zip(standbys) {
        standby.handle.submit(task(id)).await.unwrap();
    }
    for standby in standbys {
        assert_all(&standby.handle, 1..=known + 2).await;
    }
    let mut membership = Membership::new(nodes.database("test"));
    let owner = loop {
        // An owner serves before it has announced itself.
        let owner = membership.observe().await.unwrap().owner.unwrap();
        if owner.epoch > 1 {
            break owner;
        }
    };
    let (_, shards) = membership.list().await.unwrap();
    let is_first = owner.epoch == 2 && ["b", "c"].contains(&&*owner.node);
    assert!(is_first, "{owner:?} because {}: {shards:?}", shards[0].reason);
    let epochs = "SELECT DISTINCT epoch FROM lessor.batch WHERE first > 0 ORDER BY 1";
    assert_eq!(execute(url, epochs), [["1"], ["2"]]);
    let lived: Vec<_> = standbys.iter().map(|standby| standby.task.is_finished()).collect();
    assert_eq!(lived, [false, false]);
}

/// The owner stands still with its lock, so that nothing but the ledger decides between the standbys.
#[tokio::test(flavor = "multi_thread")]
async fn c13_of_two_standbys_that_append_their_takeover_at_once_one_owns_and_the_other_follows_it() {
    let url = shared().create_database();
    let nodes = Nodes::on(&url);
    let database = nodes.database("x");
    let mut membership = Membership::new(database.clone());
    assert!(membership.try_lock().await.unwrap());
    let silent = own(&database).await;
    let row = OwnerRow { node: "x".to_owned(), address: "x".to_owned(), epoch: silent.report.epoch };
    membership.record_owner(&row, "", 1, database.last_durable().unwrap()).await.unwrap();
    submit_all(&silent.handle, 1..=10).await;
    let end = silent.handle.durable().next();
    assert!(membership.record_server(row.epoch, end).await.unwrap());
    execute(&url, WAIT);
    let locking = std::thread::spawn({
        let url = url.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(try_execute(&url, LOCK)).unwrap_err();
        }
    });
    while execute(&url, LOCKED) != [["1"]] {}
    let (b, c) = (nodes.start("b", AFTER), nodes.start("c", AFTER));
    while execute(&url, WAITING) != [["2"]] {}
    execute(&url, GO_ON);
    locking.join().unwrap();
    one_of_two_owns(&nodes, &url, [&b, &c], 10).await;
    assert!(silent.handle.submit(task(1)).await.is_err(), "the owner before them was replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn c13_of_two_standbys_of_an_owner_that_died_one_owns_and_the_other_follows_it() {
    let url = shared().create_database();
    let mut nodes = Nodes::on(&url);
    nodes.feed.hot_standbys = 2;
    let a = nodes.start("a", AFTER);
    submit_all(&a.handle, 1..=10).await;
    let (b, c) = (nodes.start("b", AFTER), nodes.start("c", AFTER));
    let feed = nodes.inbound.lock().unwrap()["a"].1.clone();
    feed.standbys().wait_for(|standbys| *standbys == 2).await.unwrap();
    a.task.abort();
    drop(a);
    one_of_two_owns(&nodes, &url, [&b, &c], 10).await;
}
