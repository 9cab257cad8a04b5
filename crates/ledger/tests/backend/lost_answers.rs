//! Appends of which the ledger does not know what became: the connection is lost on the way there, or on the way back.

use std::thread::JoinHandle;

use ledger::postgres::BatchRow;
use ledger::{AppendError, Ledger, Position, Refusal};
use test_servers::postgres::execute;
use tokio::runtime::Runtime;

use crate::database_failures::url;
use crate::migrations::hex;
use crate::proxy::{Loss, Proxy};
use crate::{Backend, Database, append, batch, read, server};

/// A session of the test, which keeps its locks and its transaction until it ends.
pub(crate) struct Session {
    runtime: Runtime,
    client: tokio_postgres::Client,
}

impl Session {
    pub(crate) fn begin(url: &str, statements: &str) -> Session {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        let session = Session { runtime, client };
        session.run(statements);
        session
    }

    pub(crate) fn run(&self, statements: &str) {
        self.runtime.block_on(self.client.batch_execute(statements)).unwrap();
    }
}

/// The places of all batches.
fn places(url: &str) -> Vec<Vec<String>> {
    execute(url, "SELECT first, next FROM lessor.batch ORDER BY first")
}

/// Counts the commits that show that all commits before them count.
const COUNT_BARRIERS: &str = "CREATE TABLE barrier (); \
    CREATE FUNCTION lessor.count() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN INSERT INTO barrier DEFAULT VALUES; RETURN NULL; END $$; \
    CREATE TRIGGER count AFTER INSERT OR UPDATE ON lessor.node FOR EACH ROW EXECUTE FUNCTION lessor.count()";

fn barriers(url: &str) -> String {
    execute(url, "SELECT count(*) FROM barrier").remove(0).remove(0)
}

/// Three records at a time are appended, and one of these appends is lost in between.
fn lose_in_between(loss: Loss) -> Database {
    let database = Database::create();
    let proxy = Proxy::to(&url(&database));
    execute(&url(&database), COUNT_BARRIERS);
    let mut ledger = Database(server(&proxy.url)).open().ledger;
    for round in 0..4 {
        append(&mut *ledger, 3);
        proxy.lose(loss);
        append(&mut *ledger, 3);
        assert_eq!(proxy.lost(), round + 1, "the append met the loss");
        let next = 1 + 6 * (round + 1);
        assert_eq!(ledger.next(), Position(next as u64));
        assert_eq!(places(&url(&database)).len(), 1 + 2 * (round + 1), "each batch is stored once");
    }
    ledger.confirm().unwrap();
    assert_eq!(read(&*ledger.reader(), 1), 25);
    drop(ledger);
    assert_eq!(read(&*database.open().ledger.reader(), 1), 25);
    database
}

#[test]
fn c5_an_append_whose_answer_was_lost_is_found_and_counts_after_a_barrier() {
    let database = lose_in_between(Loss::Answer);
    assert_eq!(barriers(&url(&database)), "4", "what is found may not be replicated");
}

#[test]
fn c5_an_append_that_never_arrived_is_sent_again() {
    let database = lose_in_between(Loss::Statement);
    assert_eq!(barriers(&url(&database)), "0", "nothing was found");
}

/// Every append waits at its end for a lock.
const WAIT_AT_THE_END: &str = "CREATE FUNCTION lessor.wait() RETURNS trigger LANGUAGE plpgsql AS \
    $$ BEGIN PERFORM pg_advisory_xact_lock(6); RETURN NULL; END $$; \
    CREATE TRIGGER wait AFTER INSERT ON lessor.batch FOR EACH ROW EXECUTE FUNCTION lessor.wait()";
const LOCK: &str = "SELECT pg_advisory_lock(6)";
const UNLOCK: &str = "SELECT pg_advisory_unlock(6)";
const WAITS: &str = "SELECT coalesce(string_agg(wait_event, ' ' ORDER BY wait_event), '') FROM pg_stat_activity \
    WHERE datname = current_database() AND wait_event_type = 'Lock'";

/// Waits until these locks of the database are waited for.
fn until_waiting(url: &str, locks: &str) {
    while execute(url, WAITS) != [[locks]] {}
}

/// The second of two batches, each of three records, whose first attempt waits before its commit.
struct Resent {
    url: String,
    lock: Session,
    appending: JoinHandle<Box<dyn Ledger>>,
}

impl Resent {
    /// The client of the first attempt is gone, and its session lives on. The second attempt waits for what becomes of it.
    fn start() -> Resent {
        let database = Database::create();
        let url = url(&database);
        let proxy = Proxy::to(&url);
        execute(&url, COUNT_BARRIERS);
        let mut ledger = Database(server(&proxy.url)).open().ledger;
        append(&mut *ledger, 3);
        execute(&url, WAIT_AT_THE_END);
        let lock = Session::begin(&url, LOCK);
        proxy.lose(Loss::Connection);
        let appending = std::thread::spawn(move || {
            append(&mut *ledger, 3);
            ledger
        });
        until_waiting(&url, "advisory transactionid");
        assert!(!appending.is_finished());
        assert_eq!(places(&url), [["0", "1"], ["1", "4"]]);
        Resent { url, lock, appending }
    }

    /// Nothing waits any more, the batch is there once, and the next one behind it.
    fn ends(self, expected_barriers: &str) {
        self.lock.run(UNLOCK);
        let mut ledger = self.appending.join().expect("the append was not refused");
        assert_eq!(barriers(&self.url), expected_barriers);
        append(&mut *ledger, 2);
        assert_eq!(places(&self.url), [["0", "1"], ["1", "4"], ["4", "7"], ["7", "9"]]);
        assert_eq!(read(&*ledger.reader(), 1), 9);
    }
}

#[test]
fn c6_an_append_that_is_sent_again_and_committed_by_its_first_session_is_stored_once() {
    Resent::start().ends("1");
}

#[test]
fn c6_an_append_that_is_sent_again_and_undone_by_its_first_session_is_stored() {
    let resent = Resent::start();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'advisory' \
               AND datname = current_database()";
    execute(&resent.url, end);
    // The second attempt has the place now, and waits before its own commit.
    until_waiting(&resent.url, "advisory");
    resent.ends("0");
}

#[test]
fn c6_an_append_that_waited_for_the_commit_of_another_writer_is_fenced() {
    let database = Database::create();
    let url = url(&database);
    let mut ledger = database.open().ledger;
    append(&mut *ledger, 3);
    let other = BatchRow::new(&batch(Position(4), 2), ledger.last_link().unwrap(), 2);
    let (link, body) = (hex(&other.place.link.0), hex(&other.body));
    let row = format!("(0, 4, 6, {}, 2, {link}, {}, {body})", other.at, other.codec);
    let transaction = Session::begin(&url, &format!("BEGIN; INSERT INTO lessor.batch VALUES {row}"));
    let appending = std::thread::spawn(move || (ledger.append(&batch(Position(4), 3)), ledger));
    until_waiting(&url, "transactionid");
    transaction.run("COMMIT");
    let (refused, mut ledger) = appending.join().unwrap();
    let fenced = |result| {
        matches!(
            result,
            Err(AppendError::Refused(Refusal::Fenced { expected: Position(6), found: Position(4) }))
        )
    };
    assert!(fenced(refused));
    assert!(fenced(ledger.confirm()));
    assert_eq!(places(&url), [["0", "1"], ["1", "4"], ["4", "6"]]);
}
