//! The session that a standby opens before it takes over.

use ledger::Ledger;
use ledger::postgres::{self, Feed, FeedOptions, Kept, PostgresLedger, Tables};
use test_servers::postgres::shared;

use crate::database_failures::cut;
use crate::proxy::Proxy;
use crate::{CLUSTER, append, database_options, read, server};

/// A database, and the connection of a node that has a session ready, through a proxy.
fn prepared(tables: Tables) -> (String, Proxy, postgres::Database) {
    let url = shared().create_database();
    postgres::initialize(&server(&url), CLUSTER).unwrap();
    let proxy = Proxy::to(&url);
    let options = postgres::Options { tables, ..database_options("a") };
    let database = postgres::Database::connect(server(&proxy.url), options).unwrap();
    database.prepare_to_write().unwrap();
    assert!(database.is_prepared_to_write());
    (url, proxy, database)
}

fn take_over(database: &postgres::Database) -> PostgresLedger {
    let feed = Feed::new(FeedOptions::default());
    PostgresLedger::open_after(database.clone(), &Kept::default(), feed).unwrap()
}

#[test]
fn a_takeover_begins_with_the_session_that_was_opened_before() {
    for tables in [Tables::Off, Tables::Transaction] {
        let (_, proxy, database) = prepared(tables);
        let known = proxy.connections();
        let mut ledger = take_over(&database);
        append(&mut ledger, 3);
        assert_eq!((proxy.connections(), database.is_prepared_to_write()), (known, false));
        assert_eq!(read(&*ledger.reader(), 1), 4);
        // The next one opens its own.
        let mut next = take_over(&database);
        append(&mut next, 1);
        assert_eq!(proxy.connections(), known + 1);
    }
}

#[test]
fn c7_a_takeover_opens_a_session_when_the_one_that_was_opened_before_is_broken() {
    let (url, proxy, database) = prepared(Tables::default());
    let known = proxy.connections();
    cut(&url);
    let mut ledger = loop {
        // The other session of the node is broken, too, until it is used once.
        let feed = Feed::new(FeedOptions::default());
        if let Ok(ledger) = PostgresLedger::open_after(database.clone(), &Kept::default(), feed) {
            break ledger;
        }
    };
    append(&mut ledger, 3);
    assert_eq!(read(&*ledger.reader(), 1), 4);
    assert_eq!(proxy.connections(), known + 2);
}

#[test]
fn a_session_that_is_not_needed_any_more_is_closed() {
    let (url, _, database) = prepared(Tables::default());
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND application_name = 'lessor' AND backend_type = 'client backend'";
    let wait_for = |count: &str| {
        while test_servers::postgres::execute(&url, sessions) != [[count]] {
            std::thread::yield_now();
        }
    };
    // One that has ended is there for another moment.
    wait_for("2");
    database.end_preparation();
    assert!(!database.is_prepared_to_write());
    wait_for("1");
}
