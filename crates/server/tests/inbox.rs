//! Tasks that users enqueue in SQL: exactly one for each row that is committed, none for one that is rolled back.

use std::collections::BTreeSet;
use std::sync::Arc;

use authority::{Scope, TaskState};
use coordinator::{Inbox, Options, Running};
use ledger::ClusterId;
use ledger::postgres::{self, Cluster, Database, Server, Tables};
use server::inbox;
use server::parse_task_id;
use test_servers::postgres::{execute, shared};
use tokio::task::JoinHandle;

const CLUSTER: Cluster = Cluster { id: ClusterId([5; 16]), shards: 1, key_print: [9; 16] };

/// A database of its own, and an address for an application that may enqueue and nothing else.
struct Fixture {
    url: String,
    application: String,
    server: Server,
}

/// A coordinator that takes what is enqueued.
struct Node {
    running: Running,
    inbox: JoinHandle<()>,
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

impl Fixture {
    async fn create() -> Fixture {
        blocking(|| {
            let url = shared().create_database();
            let server = Server { config: url.parse().expect("an address"), tls: None, unsafe_no_sync: true };
            postgres::initialize(&server, CLUSTER).expect("the database is new");
            let role = format!("application_{}", server.config.get_dbname().expect("it has a name"));
            let grants = format!(
                "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA lessor TO {role}; \
                 GRANT EXECUTE ON FUNCTION lessor.enqueue(text, jsonb, jsonb) TO {role}"
            );
            execute(&url, &grants);
            let application = url.replace("postgres@", &format!("{role}@"));
            Fixture { url, application, server }
        })
        .await
    }

    async fn start(&self, tables: Tables) -> Node {
        let options = postgres::Options { tables, ..postgres::Options::new("a", CLUSTER.key_print) };
        let server = self.server.clone();
        blocking(move || {
            let storage = postgres::open(server.clone(), options.clone()).expect("the database is ours");
            let running = coordinator::start(storage, Options::default()).expect("the coordinator starts");
            let database = Database::connect(server, options).expect("the database is ours");
            (running, Inbox::new(database))
        })
        .await
        .into()
    }

    async fn execute(&self, statements: &str) -> Vec<Vec<String>> {
        let (url, statements) = (self.url.clone(), statements.to_owned());
        blocking(move || execute(&url, &statements)).await
    }

    /// Runs statements as the application, and returns the ids that they select.
    fn enqueue(&self, statements: String) -> JoinHandle<Vec<String>> {
        let url = self.application.clone();
        tokio::task::spawn_blocking(move || {
            execute(&url, &statements).into_iter().map(|mut row| row.remove(0)).collect()
        })
    }

    /// Waits until the inbox is empty.
    async fn drained(&self, node: &Node) {
        let left = "SELECT count(*) FROM lessor.inbox";
        while self.execute(left).await != [["0"]] {
            // Every commit of the node may be the one.
            node.running.handle.status().await.expect("it serves");
        }
    }
}

impl From<(Running, Inbox)> for Node {
    fn from((running, inbox): (Running, Inbox)) -> Node {
        let inbox = tokio::spawn(inbox::run(inbox, running.handle.clone()));
        Node { running, inbox }
    }
}

impl Node {
    async fn stop(self) {
        self.running.stop().await.expect("it stops");
        self.inbox.await.expect("it ends with the coordinator");
    }
}

fn scope() -> Scope {
    Scope { tenant: Arc::from("default"), workspace: Arc::from("default") }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_1000_enqueues_in_transactions_half_of_which_roll_back_exactly_the_other_half_become_tasks() {
    let fixture = Fixture::create().await;
    let node = fixture.start(Tables::Transaction).await;
    let mut committed = Vec::new();
    // The second half is enqueued while there is no coordinator.
    let mut node = Some(node);
    for half in 0..2 {
        let clients = (0..4).map(|client| {
            let statements = (0..125).map(|n| {
                let (select, end) =
                    if n % 2 == (client + half) % 2 { ("", "COMMIT") } else { ("PERFORM", "ROLLBACK") };
                // What is rolled back selects no row.
                let call = format!("lessor.enqueue('q', '{{\"n\": {n}}}', '{{\"priority\": 2}}')");
                match select {
                    "" => format!("BEGIN; SELECT {call}; {end};"),
                    _ => format!("BEGIN; DO $$ BEGIN PERFORM {call}; END $$; {end};"),
                }
            });
            fixture.enqueue(statements.collect())
        });
        for client in clients.collect::<Vec<_>>() {
            committed.extend(client.await.expect("the statements are right"));
        }
        if let Some(node) = node.take() {
            node.stop().await;
        }
    }
    assert_eq!(committed.len(), 500);
    let node = fixture.start(Tables::Transaction).await;
    fixture.drained(&node).await;
    let ids: BTreeSet<_> = committed.iter().map(|id| parse_task_id(id).expect("an id")).collect();
    for id in &ids {
        let task = node.running.handle.task(scope(), *id).await.expect("it serves").expect("it was accepted");
        assert_eq!((task.view.task.state(), task.view.task.priority), (TaskState::Waiting, 2));
    }
    assert_eq!(node.running.handle.list(scope(), None, None, None, 1_000).await.unwrap().tasks.len(), 500);
    assert_eq!(fixture.execute("SELECT count(*) FROM lessor.jobs WHERE payload ? 'n'").await, [["500"]]);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_no_valid_task_becomes_a_dead_letter_with_the_reason() {
    let fixture = Fixture::create().await;
    let node = fixture.start(Tables::Off).await;
    let ids = fixture
        .enqueue(
            "SELECT lessor.enqueue('q', '1', '{\"maxAttempts\": 0}'); \
             SELECT lessor.enqueue('q', '2', '{\"prioritty\": 1}'); \
             SELECT lessor.enqueue('q', '3', '{\"dedupKey\": \"k\"}'); \
             SELECT lessor.enqueue('q', '4', '{\"dedupKey\": \"k\"}'); \
             SELECT lessor.enqueue('q', '3', '{\"dedupKey\": \"k\"}'); \
             SELECT lessor.enqueue('q', NULL, '{\"tenant\": \"t\", \"workspace\": \"w\"}')"
                .to_owned(),
        )
        .await
        .expect("the statements are right");
    fixture.drained(&node).await;
    let reason = async |id: &String| {
        let id = parse_task_id(id).expect("an id");
        let found = node.running.handle.task(scope(), id).await.expect("it serves")?;
        match &found.view.task.phase {
            authority::Phase::Dead { detail, .. } => detail.as_ref().map(|detail| detail.to_string()),
            phase => Some(format!("{phase:?}")),
        }
    };
    for (id, begins) in ids.iter().zip(["maxAttempts", "options", "Waiting", "dedupKey"]) {
        let reason = reason(id).await.expect("it is a task");
        assert!(reason.starts_with(begins), "{reason}");
    }
    assert_eq!(reason(&ids[4]).await, None, "it is the task that has its dedup key");
    let other = Scope { tenant: Arc::from("t"), workspace: Arc::from("w") };
    let id = parse_task_id(&ids[5]).expect("an id");
    let task = node.running.handle.task(other, id).await.expect("it serves").expect("it was accepted");
    assert_eq!(&*task.view.task.payload, b"null");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_may_enqueue_and_nothing_else() {
    let fixture = Fixture::create().await;
    let denied = "DO $$ DECLARE statement text; BEGIN \
        FOREACH statement IN ARRAY ARRAY['SELECT FROM lessor.jobs', 'DELETE FROM lessor.inbox', \
            'INSERT INTO lessor.batch DEFAULT VALUES', 'UPDATE lessor.cluster SET format = 9'] LOOP \
            BEGIN EXECUTE statement; RAISE EXCEPTION '% is permitted', statement; \
            EXCEPTION WHEN insufficient_privilege THEN NULL; END; \
        END LOOP; \
        BEGIN PERFORM lessor.enqueue(E'a\\nb', '1'); RAISE EXCEPTION 'a bad name is accepted'; \
        EXCEPTION WHEN invalid_parameter_value THEN NULL; END; \
        BEGIN PERFORM lessor.enqueue('q', to_jsonb(repeat('x', 1048576))); RAISE EXCEPTION 'too large'; \
        EXCEPTION WHEN check_violation THEN NULL; END; END $$";
    fixture.enqueue(denied.to_owned()).await.expect("all is denied");
    assert_eq!(fixture.execute("SELECT count(*) FROM lessor.inbox").await, [["0"]]);
}
