//! Failures of the database during an append: lost connections, restarts, failovers that undo commits, no space.

use std::ops::ControlFlow;

use ledger::postgres::{self, BatchRow, Feed, FeedOptions, Kept, PostgresLedger, PostgresReader, Standing};
use ledger::{AppendError, DiskSpace, ErrorKind, Ledger, Position, Reader, Refusal};
use test_servers::postgres::{Postgres, execute};

use crate::{Backend, CLUSTER, Database, append, batch, read, server, tend};

/// The address of the database, for statements of the test itself.
pub(crate) fn url(database: &Database) -> String {
    let config = &database.0.config;
    let (port, name) = (config.get_ports()[0], config.get_dbname().expect("it has a name"));
    format!("postgres://postgres@127.0.0.1:{port}/{name}")
}

/// Ends all other connections to the database, and waits until they have ended.
pub(crate) fn cut(url: &str) {
    execute(
        url,
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

/// Removes the last batches, as a failover to a replica does that lacks the last commits.
fn lose_from(database: &Database, first: u64) {
    execute(&url(database), &format!("DELETE FROM lessor.batch WHERE first >= {first}"));
    cut(&url(database));
}

#[test]
fn c5_an_append_goes_on_after_its_connection_was_cut() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    for _ in 0..5 {
        append(&mut *ledger, 3);
        cut(&url(&database));
    }
    ledger.confirm().unwrap();
    assert_eq!(read(&*ledger.reader(), 1), 16);
}

#[test]
fn c7_an_append_waits_for_a_server_that_was_killed() {
    let mut server_process = Postgres::start(&[]);
    let server = crate::Server { unsafe_no_sync: false, ..server(&server_process.create_database()) };
    ledger::postgres::initialize(&server, CLUSTER).unwrap();
    let database = Database(server);
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 20);
    server_process.kill();
    let waiting = std::thread::spawn(move || {
        append(&mut *ledger, 20);
        ledger
    });
    server_process.restart();
    let mut ledger = waiting.join().expect("the append was never refused");
    ledger.confirm().unwrap();
    assert_eq!(read(&*ledger.reader(), 1), 41);
    drop(ledger);
    assert_eq!(database.open().ledger.next(), Position(41));
}

#[test]
fn a_wait_for_the_database_ends_when_nobody_waits_for_the_outcome() {
    let mut server_process = Postgres::start(&["fsync=off"]);
    let server = server(&server_process.create_database());
    ledger::postgres::initialize(&server, CLUSTER).unwrap();
    let mut ledger = Database(server).open().ledger;
    append(&mut *ledger, 1);
    server_process.kill();
    let stop = ledger.stop_waiting().expect("this backend may wait without end");
    let waiting = std::thread::spawn(move || ledger.append(&batch(Position(2), 1)));
    stop();
    assert!(matches!(waiting.join().unwrap(), Err(AppendError::Unknown(_))));
}

#[test]
fn c9_batches_that_a_failover_has_undone_are_appended_again() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    for _ in 0..30 {
        append(&mut *ledger, 2);
    }
    lose_from(&database, 21);
    append(&mut *ledger, 2);
    assert_eq!(read(&*ledger.reader(), 1), 63);
    lose_from(&database, 41);
    ledger.confirm().unwrap();
    assert_eq!(read(&*database.open().ledger.reader(), 1), 63, "a read must not rest on what is lost");
}

#[test]
fn c10_a_writer_with_another_history_refuses_and_names_the_position() {
    let database = Database::create();
    let mut survivor = database.open().ledger;
    for _ in 0..10 {
        append(&mut *survivor, 2);
    }
    lose_from(&database, 11);
    let mut other = database.open().ledger;
    assert_eq!(other.next(), Position(11));
    other.append(&batch(Position(11), 3)).unwrap();
    let forked = |result: Result<(), AppendError>| {
        matches!(result, Err(AppendError::Refused(Refusal::Forked { at: Position(11) })))
    };
    assert!(forked(survivor.confirm()));
    assert!(forked(survivor.append(&batch(Position(21), 1))));
    other.append(&batch(Position(14), 30)).unwrap();
    assert!(forked(survivor.append(&batch(Position(21), 1))));
    other.confirm().unwrap();
}

/// What a standby holds that has read everything.
fn kept(database: &Database) -> (postgres::Database, Kept) {
    let (database, kept) = (database.connect("b"), Kept::default());
    let reader = PostgresReader::new(database.clone()).keeping(kept.clone());
    reader.follow(Position(1), None, &mut |_, _| ControlFlow::Continue(())).unwrap();
    (database, kept)
}

fn open_after(database: &postgres::Database, kept: &Kept) -> Result<PostgresLedger, ledger::Error> {
    PostgresLedger::open_after(database.clone(), kept, Feed::new(FeedOptions::default()))
}

#[test]
fn c9_a_standby_that_takes_over_appends_what_the_database_has_lost() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 200);
    let (connected, kept) = kept(&database);
    // Sent by the owner, but never appended: it is a valid continuation all the same.
    let sent = BatchRow::new(&batch(Position(201), 3), ledger.last_link().unwrap(), 1);
    let last = kept.end().unwrap();
    assert!(kept.receive(1, last, sent.clone()));
    drop(ledger);
    lose_from(&database, 61);
    assert_eq!(postgres::standing(&connected, &kept).unwrap(), Standing::Behind);
    let mut taken = open_after(&connected, &kept).unwrap();
    assert_eq!((taken.next(), taken.last_link()), (Position(204), Some(sent.place.link)));
    append(&mut taken, 1);
    assert_eq!(read(&*taken.reader(), 1), 205);
    // It goes on as if it had appended them itself.
    lose_from(&database, 101);
    taken.confirm().unwrap();
    assert_eq!(read(&*database.open().ledger.reader(), 1), 205);
}

#[test]
fn c10_a_standby_with_another_history_refuses_and_one_with_undecided_batches_drops_them() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 40);
    let (connected, kept) = kept(&database);
    let sent = BatchRow::new(&batch(Position(41), 3), ledger.last_link().unwrap(), 1);
    assert!(kept.receive(1, kept.end().unwrap(), sent));
    append(&mut *ledger, 2);
    assert_eq!(postgres::standing(&connected, &kept).unwrap(), Standing::Whole, "only ours was undecided");
    assert_eq!(open_after(&connected, &kept).unwrap().next(), Position(43));
    drop(ledger);
    lose_from(&database, 21);
    let mut other = database.open().ledger;
    other.append(&batch(Position(21), 5)).unwrap();
    assert_eq!(postgres::standing(&connected, &kept).unwrap(), Standing::Forked { at: Position(21) });
    let refused = open_after(&connected, &kept).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Forked);
    assert!(refused.to_string().contains("position 21"), "{refused}");
}

#[test]
fn a_writer_that_does_not_hold_what_the_database_has_lost_refuses() {
    let database = Database::create();
    append(&mut *database.open().ledger, 5);
    let mut ledger = database.open().ledger;
    lose_from(&database, 1);
    let refused = ledger.append(&batch(Position(6), 1));
    assert!(matches!(refused, Err(AppendError::Refused(Refusal::Forked { .. }))), "{refused:?}");
}

fn trigger(database: &Database, body: &str) {
    execute(
        &url(database),
        &format!(
            "CREATE OR REPLACE FUNCTION lessor.test() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$;
             CREATE OR REPLACE TRIGGER test BEFORE INSERT ON lessor.batch FOR EACH ROW EXECUTE FUNCTION lessor.test()"
        ),
    );
}

#[test]
fn c12_a_full_database_refuses_the_batch_and_takes_it_later() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 1);
    trigger(&database, "RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100';");
    let held = batch(Position(2), 1);
    assert!(matches!(ledger.append(&held), Err(AppendError::Refused(Refusal::NoSpace))));
    assert_eq!(ledger.space(), DiskSpace::Nothing);
    trigger(&database, "");
    tend(&mut *ledger);
    assert_ne!(ledger.space(), DiskSpace::Nothing, "it is tried again");
    ledger.append(&held).unwrap();
    assert_eq!(ledger.space(), DiskSpace::Plenty);
    assert_eq!(read(&*ledger.reader(), 1), 3);
}

/// C11: a wait for the replica that is canceled ends in a commit with a warning.
#[test]
fn c11_a_batch_that_came_with_a_warning_counts_only_after_a_barrier() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 1);
    let barriers = "SELECT count(*) FROM lessor.node";
    assert_eq!(execute(&url(&database), barriers), [["0"]], "a plain commit needs none");
    trigger(&database, "RAISE WARNING 'canceling wait for synchronous replication due to user request';");
    append(&mut *ledger, 1);
    assert_eq!(execute(&url(&database), barriers), [["1"]]);
    assert_eq!(read(&*ledger.reader(), 1), 3);
}

#[test]
fn a_batch_that_was_changed_by_hand_is_found() {
    for change in [
        "UPDATE lessor.batch SET body = body || 'x' WHERE first = 21",
        "DELETE FROM lessor.batch WHERE first = 21",
    ] {
        let database = Database::create();
        append(&mut *database.open().ledger, 60);
        execute(&url(&database), change);
        let ledger = database.open().ledger;
        let damaged =
            ledger.replay(Position(1), &mut |_, _| std::ops::ControlFlow::Continue(())).unwrap_err();
        assert_eq!(damaged.kind(), ErrorKind::Damaged, "{damaged}");
    }
}

/// C23: an old snapshot keeps every dead row, and the appends have none.
#[test]
fn c23_appends_go_on_while_another_transaction_stays_open() {
    let database = Database::create();
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 5);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let other = runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&url(&database), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM lessor.batch";
        client.batch_execute(begin).await.unwrap();
        client
    });
    append(&mut *ledger, 200);
    ledger.confirm().unwrap();
    assert_eq!(read(&*ledger.reader(), 1), 206);
    let seen = runtime.block_on(other.query_one("SELECT max(next) FROM lessor.batch", &[])).unwrap();
    assert_eq!(seen.get::<_, i64>(0), 6, "its snapshot is still the old one");
}
