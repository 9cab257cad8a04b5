//! The examples of docs/tables.md, run as they are shown: a task that is submitted in a transaction is there once when the
//! transaction commits, and never when it rolls back.

#[path = "enqueue_example.rs"]
mod example;

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use test_servers::postgres::execute;

use crate::support::cluster::Cluster;

/// The address of the database in the example.
const DOCUMENTED: &str = "db.example.com/shop";
/// Debian's, which finds Debian's driver.
const PYTHON: &str = "/usr/bin/python3";

/// Lets every order fail when its transaction commits, after its task was submitted.
const FAIL: &str = "CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED \
                    FOR EACH ROW EXECUTE FUNCTION fail()";

fn document() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tables.md")).unwrap()
}

/// Creates the table of the examples, and their role with the grants that the document names.
fn prepare(url: &str) {
    execute(
        url,
        "CREATE TABLE orders (id bigserial PRIMARY KEY, item text NOT NULL); \
         CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no book is left''; END'; \
         CREATE ROLE app LOGIN; GRANT SELECT, INSERT ON orders TO app; GRANT USAGE ON orders_id_seq TO app",
    );
    let document = document();
    let grants: Vec<&str> = document.lines().filter(|line| line.starts_with("    GRANT ")).collect();
    assert_eq!(grants.len(), 2, "{grants:?}");
    execute(url, &grants.concat());
}

/// Runs the example in Python, and returns the id that it prints, or the error.
fn python(database: &str) -> Result<String, String> {
    let document = document();
    let code = document.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(code.contains(DOCUMENTED), "{code}");
    let code = code.replace(DOCUMENTED, database);
    let output = Command::new(PYTHON).args(["-I", "-c", &code]).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout).trim().to_owned()) } else { Err(text(output.stderr)) }
}

/// The same for the example in Rust.
fn rust(database: &str) -> Result<String, String> {
    let url = format!("postgresql://app@{database}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        example::order_book(&mut client).await.map_err(|error| format!("{error:?}"))
    })
}

#[test]
fn the_documented_examples_submit_a_task_once_if_they_commit_and_never_if_they_roll_back() {
    let cluster = Cluster::start(&["a"]);
    let server = &cluster.nodes[0].1;
    let database = cluster.url.split_once('@').unwrap().1;
    prepare(&cluster.url);
    let mut submitted = Vec::new();
    for example in [python, rust] {
        execute(&cluster.url, FAIL);
        let error = example(database).unwrap_err();
        assert!(error.contains("no book is left"), "{error}");
        execute(&cluster.url, "DROP TRIGGER fail ON orders");
        let task = example(database).unwrap();
        let lease = server.lease("mail");
        assert_eq!(lease["taskId"], json!(task), "what was rolled back is no task");
        let order = execute(&cluster.url, "SELECT max(id) FROM orders")[0][0].parse::<u64>().unwrap();
        assert_eq!(lease["payload"], json!({"order": order}));
        server.complete(&lease, json!("sent"));
        assert_eq!(server.get(&format!("/v1/tasks/{task}"))["maxAttempts"], 5);
        submitted.push(task);
    }
    let page = server.get("/v1/tasks?queue=mail");
    let mut tasks: Vec<&str> =
        page["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].as_str().unwrap()).collect();
    tasks.sort_unstable();
    submitted.sort();
    assert_eq!(tasks, submitted, "{page}");
    let left = "SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM lessor.inbox)";
    assert_eq!(execute(&cluster.url, left), [["2", "0"]]);
}

#[test]
fn the_document_shows_the_example_in_rust_as_it_is() {
    let example = include_str!("enqueue_example.rs");
    let code = example.split_once("\n\n").unwrap().1.replace("pub(super) ", "");
    assert!(
        document().contains(&format!("```rust\n{code}```\n")),
        "docs/tables.md shows something else than {code}"
    );
}
