//! The tables of tasks in PostgreSQL: at every moment they hold what the API returns.

#[path = "tables/failovers.rs"]
mod failovers;
#[path = "tables/locks.rs"]
mod locks;
mod support;

use std::sync::Arc;
use std::time::Duration;

use authority::command::{CancelTask, KillTask, ReleaseLease, ReportFailure, SubmitTask};
use authority::event::ReleaseCause;
use authority::{
    Category, Digest, Position, Properties, ReportDetails, TaskError, TaskId, TaskOptions, TaskState,
};
use coordinator::{Handle, Options, Running, Standby};
use ledger::postgres::{
    self, Cluster, Database, Feed, FeedOptions, Kept, OffsetRows, PostgresLedger, PostgresReader, Server,
    Tables, Verified, WhatDiffers,
};
use ledger::{ClusterId, Storage};
use support::{completion, lease, lease_ref, scope, submit};
use test_servers::postgres::{execute, shared, try_execute};

const CLUSTER: Cluster = Cluster { id: ClusterId([5; 16]), shards: 1, key_print: [9; 16] };

/// Far longer than anything that is waited for.
const LONG: Duration = Duration::from_secs(30);

/// The session that holds a lock.
const LOCKS: &str = "FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

/// Sets the tables back to what [`Fixture::copy`] has found.
const UNDO: &str = "DELETE FROM lessor.jobs; DELETE FROM lessor.job_attempts; DELETE FROM lessor.table_state; \
                    INSERT INTO lessor.jobs SELECT * FROM public.jobs; \
                    INSERT INTO lessor.job_attempts SELECT * FROM public.attempts; \
                    INSERT INTO lessor.table_state SELECT * FROM public.state;";

/// A database of its own.
struct Fixture {
    url: String,
    server: Server,
}

impl Fixture {
    async fn create() -> Fixture {
        let create = || {
            let url = shared().create_database();
            let config = url.parse().expect("an address");
            let server = Server { config, tls: None, unsafe_no_sync: true };
            postgres::initialize(&server, CLUSTER).expect("the database is new");
            Fixture { url, server }
        };
        tokio::task::spawn_blocking(create).await.expect("it does not panic")
    }

    fn options(tables: Tables) -> postgres::Options {
        postgres::Options { tables, tables_payload_kib: 1, ..postgres::Options::new("a", CLUSTER.key_print) }
    }

    fn open(&self, tables: Tables) -> Storage {
        postgres::open(self.server.clone(), Fixture::options(tables)).expect("the database is ours")
    }

    fn start(&self, tables: Tables) -> Running {
        let options = Options { snapshot_after_bytes: 200_000, ..Options::default() };
        coordinator::start(self.open(tables), options).expect("the coordinator starts")
    }

    /// Starts with a ledger that keeps nothing from before its snapshots.
    fn start_trimming(&self, tables: Tables) -> Running {
        let options = postgres::Options { history_max_bytes: 0, ..Fixture::options(tables) };
        let storage = postgres::open(self.server.clone(), options).expect("the database is ours");
        let options = Options { snapshot_after_bytes: 20_000, ..Options::default() };
        coordinator::start(storage, options).expect("the coordinator starts")
    }

    /// A standby that has read the ledger and keeps what it has read.
    async fn standby(&self) -> (Database, Kept, Standby) {
        let server = self.server.clone();
        let open = move || {
            let database = Database::connect(server, Fixture::options(Tables::Transaction)).unwrap();
            let kept = Kept::default();
            let standby =
                Standby::open(&PostgresReader::new(database.clone()).keeping(kept.clone())).unwrap();
            (database, kept, standby)
        };
        tokio::task::spawn_blocking(open).await.expect("it does not panic")
    }

    async fn take_over((database, kept, standby): (Database, Kept, Standby)) -> Running {
        let take_over = move || {
            let feed = Feed::new(FeedOptions::default());
            let mut ledger = PostgresLedger::open_after(database.clone(), &kept, feed).unwrap();
            ledger.hold(&kept);
            let storage = Storage { ledger: Box::new(ledger), offsets: Arc::new(OffsetRows::new(database)) };
            standby.take_over(storage, Options::default()).unwrap()
        };
        tokio::task::spawn_blocking(take_over).await.expect("it does not panic")
    }

    /// The database becomes one whose replica was promoted, without the commits since [`Fixture::copy`].
    async fn fail_over(&self) {
        let lose = format!(
            "BEGIN; DELETE FROM lessor.batch WHERE first > (SELECT first FROM public.last); {UNDO} COMMIT; \
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()"
        );
        self.execute(&lose).await;
    }

    /// Locks a table until [`Fixture::unlock`].
    async fn lock(&self, table: &str, mode: &str) {
        let url = self.url.clone();
        let hold = format!("BEGIN; LOCK TABLE {table} IN {mode} MODE; SELECT pg_sleep(600)");
        tokio::spawn(async move { try_execute(&url, &hold).await });
        while self.execute(&format!("SELECT count(*) {LOCKS}")).await != [["1"]] {}
    }

    async fn unlock(&self) {
        self.execute(&format!("SELECT pg_terminate_backend(pid) {LOCKS}")).await;
    }

    /// Waits until somebody waits for the lock of a table.
    async fn waits_for_lock(&self, table: &str) {
        let waits = format!("SELECT FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted");
        while self.execute(&waits).await.is_empty() {}
    }

    /// Nobody can load a snapshot until [`Fixture::unlock`].
    async fn block_snapshots(&self) {
        self.lock("lessor.snapshot", "ACCESS EXCLUSIVE").await;
    }

    async fn is_behind(&self) -> bool {
        self.execute("SELECT position < ledger_position FROM lessor.projected").await == [["t"]]
    }

    async fn copy(&self) {
        let copy = "CREATE TABLE public.jobs AS TABLE lessor.jobs; \
                    CREATE TABLE public.attempts AS TABLE lessor.job_attempts; \
                    CREATE TABLE public.state AS TABLE lessor.table_state; \
                    CREATE TABLE public.last AS SELECT max(first) AS first FROM lessor.batch";
        self.execute(copy).await;
    }

    /// Statements of the test itself.
    async fn execute(&self, statements: &str) -> Vec<Vec<String>> {
        let (url, statements) = (self.url.clone(), statements.to_owned());
        tokio::task::spawn_blocking(move || execute(&url, &statements)).await.expect("it does not panic")
    }

    /// Asks the database as tools do, beside whoever uses it.
    async fn ask<T: Send + 'static>(&self, ask: impl FnOnce(&Database) -> T + Send + 'static) -> T {
        let server = self.server.clone();
        let ask = move || {
            let options = Fixture::options(Tables::default());
            ask(&Database::connect(server, options).expect("the database is ours"))
        };
        tokio::task::spawn_blocking(ask).await.expect("it does not panic")
    }

    async fn verify(&self) -> Verified {
        self.ask(|database| postgres::verify(database).expect("the ledger is whole")).await
    }

    /// Waits until tables that follow or catch up lack nothing.
    async fn caught_up(&self) {
        let wait = async { while self.is_behind().await {} };
        tokio::time::timeout(LONG, wait).await.expect("the tables follow");
    }

    /// The tables lack nothing and hold nothing else.
    async fn assert_exact(&self) -> Verified {
        let verified = self.verify().await;
        assert_eq!(verified.differences, [], "of {} rows", verified.jobs);
        assert_eq!(verified.position, verified.ledger, "the tables are where the ledger is");
        verified
    }
}

fn failure(grant: &authority::command::Grant, retryable: bool) -> ReportFailure {
    let details = ReportDetails {
        metrics: Some(Arc::from(&br#"{"ms": 5}"#[..])),
        stack_trace: Some("at a\0b".into()),
        partial_progress: Some(Arc::from(&b"[1]"[..])),
        cancelled_during_phase: None,
    };
    let category = if retryable { Category::Infrastructure } else { Category::Configuration };
    let error = TaskError { category, code: Some("E1".into()), message: "it\0failed 'ü'".into() };
    ReportFailure {
        lease: lease_ref("w", grant),
        digest: Digest([grant.attempt as u8; 16]),
        error,
        retryable: None,
        details: Some(Arc::new(details)),
        draw: 0,
    }
}

/// Payloads that a table can hold, and some that it cannot.
const PAYLOADS: [&[u8]; 6] =
    [b"{}", br#"{"a": [1, 2.50, "\u00fc"]}"#, b"\xff\x00", br#""\u0000""#, b"1e99999", b"null"];

fn task(id: u128, queue: &str) -> SubmitTask {
    let large = format!("\"{}\"", "x".repeat(2_000));
    let payload = match id % 13 {
        12 => large.as_bytes(),
        n => PAYLOADS[n as usize % PAYLOADS.len()],
    };
    let properties = Properties::new([("os".into(), "linux".into())]);
    let options = TaskOptions {
        max_attempts: id.is_multiple_of(3).then_some(2),
        run_id: id.is_multiple_of(5).then(|| "run".into()),
        timeout_ms: id.is_multiple_of(7).then_some(60_000),
        ..TaskOptions::default()
    };
    SubmitTask {
        payload: Arc::from(payload),
        priority: (id % 4) as i32,
        delay_ms: if id.is_multiple_of(31) { 3_600_000 } else { 0 },
        properties: Arc::new(if id.is_multiple_of(11) { properties } else { Properties::default() }),
        options: id.is_multiple_of(2).then(|| Arc::new(options)),
        ..submit(id, queue)
    }
}

/// Takes tasks through every kind of end, and leaves some on the way.
async fn work(handle: Handle, ids: std::ops::Range<u128>) {
    let queue = format!("q{}", ids.start);
    for id in ids {
        handle.submit(task(id, &queue)).await.unwrap();
        if id.is_multiple_of(17) {
            let detail = Some(Arc::from("by hand"));
            let kill = KillTask { scope: scope(), task: TaskId(id), detail, by: None };
            handle.kill(kill).await.unwrap();
            continue;
        }
        let Some(grant) = handle.lease(lease("w", &queue), Duration::ZERO).await.unwrap().pop() else {
            continue;
        };
        match grant.task.0 % 10 {
            0 | 1 => drop(handle.fail(failure(&grant, true)).await.unwrap()),
            2 => drop(handle.fail(failure(&grant, false)).await.unwrap()),
            3 => {
                let release = ReleaseLease { lease: lease_ref("w", &grant), cause: ReleaseCause::Worker };
                handle.release(release).await.unwrap();
            }
            4 => {
                let reason = Arc::from("no longer needed");
                let cancel = CancelTask { scope: scope(), task: grant.task, reason, by: None };
                handle.cancel(cancel).await.unwrap();
            }
            5 => {}
            _ => drop(handle.complete(completion("w", &grant)).await.unwrap()),
        }
    }
}

/// Many clients at once, so that batches hold many tasks.
async fn load(handle: &Handle, clients: u128, each: u128, from: u128) {
    let work = (0..clients).map(|n| {
        let begin = from + n * each;
        tokio::spawn(work(handle.clone(), begin..begin + each))
    });
    for client in work.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_4_every_row_is_what_the_api_returns_after_every_kind_of_end_and_a_restart() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Transaction);
    load(&running.handle, 16, 100, 1).await;
    let verified = fixture.assert_exact().await;
    assert_eq!(verified.jobs, 1_600);
    assert!(verified.attempts > 1_000, "{verified:?}");
    running.stop().await.unwrap();

    let running = fixture.start(Tables::Transaction);
    load(&running.handle, 16, 20, 10_000).await;
    assert_eq!(fixture.assert_exact().await.jobs, 1_920);
    for (state, name) in [(TaskState::Dead, "DEAD"), (TaskState::Completed, "COMPLETED")] {
        let page = running.handle.list(scope(), None, Some(state), None, 1_000).await.unwrap();
        let count = format!("SELECT count(*) FROM lessor.jobs WHERE state = '{name}'");
        assert_eq!(fixture.execute(&count).await, [[page.tasks.len().to_string()]], "{name}");
    }
    let views = "SELECT (SELECT count(*) FROM lessor.job_leases) = (SELECT count(*) FROM lessor.jobs WHERE state = 'LEASED'), \
                 (SELECT count(*) FROM lessor.job_attempts_all) = (SELECT sum(attempt) FROM lessor.jobs), \
                 (SELECT count(*) FROM lessor.dead_letters WHERE reason IS NULL) = 0";
    assert_eq!(fixture.execute(views).await, [["t", "t", "t"]]);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_changed_by_hand_is_found_and_a_rebuild_repairs_it_while_the_cluster_runs() {
    let fixture = Fixture::create().await;
    let running = fixture.start(Tables::Transaction);
    load(&running.handle, 8, 40, 1).await;
    let ids =
        fixture.execute("SELECT id FROM lessor.jobs WHERE state = 'COMPLETED' ORDER BY id LIMIT 4").await;
    let [changed, deleted, attempt, _] = &ids[..] else { panic!("{ids:?}") };
    fixture
        .execute(&format!(
            "UPDATE lessor.jobs SET worker = 'eve', priority = 77 WHERE id = '{}'; \
             DELETE FROM lessor.jobs WHERE id = '{}'; \
             UPDATE lessor.job_attempts SET outcome = 'EXPIRED' WHERE job_id = '{}'; \
             INSERT INTO lessor.jobs SELECT (jobs).* FROM (SELECT jsonb_populate_record(jobs, '{{\"id\": \"00000000-0000-7000-8000-ffffffffffff\"}}') AS jobs \
             FROM lessor.jobs WHERE id = '{}') AS jobs",
            changed[0], deleted[0], attempt[0], changed[0]
        ))
        .await;
    let verified = fixture.verify().await;
    let mut found: Vec<_> = verified.differences.iter().map(|found| &found.what).collect();
    found.sort_by_key(|what| format!("{what:?}"));
    let columns = |names: &[&str]| WhatDiffers::Columns(names.iter().map(|name| name.to_string()).collect());
    let expected = [
        columns(&["outcome"]),
        columns(&["priority", "worker"]),
        WhatDiffers::Missing,
        WhatDiffers::Unexpected,
    ];
    assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{verified:?}");

    let handle = running.handle.clone();
    let busy = tokio::spawn(async move { load(&handle, 4, 40, 10_000).await });
    let rebuilt = fixture.ask(|database| postgres::rebuild(database).expect("the ledger is whole")).await;
    assert_eq!(rebuilt.deleted, 1);
    busy.await.unwrap();
    assert_eq!(fixture.assert_exact().await.jobs, 480);
    running.stop().await.unwrap();
}

/// A standby knows the batches of the owner before it, but not what they write into the tables.
/// What is written while tables catch up and right after is undone as one with their position, at any of these moments.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_adds_what_the_tables_lack_since_they_were_off() {
    let fixture = Fixture::create().await;
    for (tables, from) in [(Tables::Transaction, 1), (Tables::Off, 10_000)] {
        let running = fixture.start(tables);
        load(&running.handle, 4, 25, from).await;
        running.stop().await.unwrap();
    }
    let lacking = fixture.verify().await;
    assert!(lacking.position < lacking.ledger && lacking.differences.is_empty(), "{lacking:?}");
    assert_eq!(lacking.jobs, 100, "they stay as they were");
    let running = fixture.start(Tables::Transaction);
    fixture.caught_up().await;
    assert_eq!(fixture.assert_exact().await.jobs, 200);
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_compared_and_rebuilt_also_where_the_ledger_was_trimmed() {
    let fixture = Fixture::create().await;
    let running = fixture.start_trimming(Tables::Transaction);
    let mut from = 1;
    while fixture.execute("SELECT min(first) > 1 FROM lessor.batch").await != [["t"]] {
        load(&running.handle, 4, 25, from).await;
        from += 10_000;
    }
    fixture.assert_exact().await;
    fixture.execute("UPDATE lessor.jobs SET queue = 'other' WHERE state = 'COMPLETED'").await;
    assert!(fixture.verify().await.count > 10);
    fixture.ask(|database| postgres::rebuild(database).expect("the ledger is whole")).await;
    fixture.assert_exact().await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_follow_end_where_the_ledger_ends() {
    let fixture = Fixture::create().await;
    for (n, tables) in [Tables::Following, Tables::Following, Tables::Transaction].into_iter().enumerate() {
        let running = fixture.start(tables);
        load(&running.handle, 4, 25, 1 + n as u128 * 10_000).await;
        let during = fixture.verify().await;
        assert_eq!(during.differences, [], "they are at the position that they name");
        running.stop().await.unwrap();
        assert_eq!(fixture.assert_exact().await.jobs, 100 * (n + 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_follow_go_on_after_a_rebuild_of_what_the_ledger_has_trimmed() {
    let fixture = Fixture::create().await;
    let running = fixture.start_trimming(Tables::Following);
    let mut from = 1;
    while fixture.execute("SELECT min(first) > 2 FROM lessor.batch").await != [["t"]] {
        load(&running.handle, 4, 25, from).await;
        from += 10_000;
    }
    fixture.caught_up().await;
    fixture.execute("UPDATE lessor.table_state SET position = 1; DELETE FROM lessor.jobs").await;
    load(&running.handle, 4, 25, from).await;
    fixture.ask(|database| postgres::rebuild(database).expect("the ledger is whole")).await;
    load(&running.handle, 4, 25, from + 10_000).await;
    fixture.caught_up().await;
    fixture.assert_exact().await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_does_not_fail_for_tables_that_cannot_take_its_content() {
    let fixture = Fixture::create().await;
    let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                  IF NEW.payload ? 'poison' THEN RAISE EXCEPTION 'no' USING ERRCODE = '22P05'; END IF; \
                  RETURN NEW; END $$; \
                  CREATE TRIGGER refuse BEFORE INSERT ON lessor.jobs FOR EACH ROW EXECUTE FUNCTION refuse()";
    fixture.execute(refuse).await;
    let running = fixture.start(Tables::Transaction);
    let poison = SubmitTask { payload: Arc::from(&br#"{"poison": 1}"#[..]), ..submit(1, "q") };
    running.handle.submit(poison).await.unwrap();
    running.handle.submit(submit(2, "q")).await.unwrap();
    let verified = fixture.verify().await;
    assert_eq!(verified.count, 1, "{verified:?}");
    assert_eq!(verified.position, running.handle.status().await.unwrap().position);
    assert_ne!(verified.position, Position(0));
    running.stop().await.unwrap();
}
