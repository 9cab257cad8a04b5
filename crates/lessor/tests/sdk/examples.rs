//! The examples of the Rust SDK, as a reader would run them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use lessor_sdk::{Submit, TaskState};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fixture::Fixture;

/// Cargo builds examples beside the tests of their package. Where only this package was built, they are built now.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let path = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    if !path.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--profile", "test", "--package", "lessor-sdk", "--examples"])
            .status();
        assert!(status.unwrap().success());
    }
    path
}

fn start(fixture: &Fixture, name: &str) -> Child {
    Command::new(example(name)).env("LESSOR_URL", fixture.server.url()).spawn().unwrap()
}

fn stop(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn a_worker_in_ten_lines_works() {
    let fixture = Fixture::start();
    let worker = start(&fixture, "worker");
    let submit = Submit::new("greetings", &"world").unwrap();
    let id = fixture.client.submit(submit).await.unwrap().task_id;
    assert_eq!(fixture.result(&id).await, "Hello, world!");
    stop(worker);
}

#[tokio::test]
async fn a_long_task_tells_its_progress_and_what_is_wrong() {
    let fixture = Fixture::start();
    let worker = start(&fixture, "long_task");
    let submit =
        |pages: Value| Submit::new("reports", &json!({"pages": pages})).unwrap().property("os", "linux");
    let good = fixture.client.submit(submit(json!(3))).await.unwrap().task_id;
    let bad = fixture.client.submit(submit(json!("three"))).await.unwrap().task_id;
    assert_eq!(fixture.result(&good).await["pages"], 3);
    let task = fixture.final_task(&bad).await;
    assert_eq!((task.state, task.reason.as_deref()), (TaskState::Failed, Some("DATA_QUALITY")));
    stop(worker);
}

/// Real dispatches to the examples of both languages, from the binary.
#[tokio::test]
async fn a_push_target_as_in_the_documents_works() {
    let fixture = Fixture::start_pushing();
    let mut python = crate::python::source();
    python.arg("examples/target.py").env("PORT", "0");
    let mut rust = Command::new(example("target"));
    rust.env("LISTEN", "127.0.0.1:0");
    for (n, mut command) in [rust, python].into_iter().enumerate() {
        let secret = "0123456789abcdef";
        let mut child = command.env("LESSOR_PUSH_SECRET", secret).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listens at ").expect(&line);
        let queue = format!("greetings-{n}");
        let push = json!({"push": {"url": format!("http://{address}/"), "secret": secret}});
        fixture.configure_queue(&queue, push).await;
        let id = fixture.client.submit(Submit::new(&queue, &"world").unwrap()).await.unwrap().task_id;
        assert_eq!(fixture.result(&id).await, "Hello, world!");
        stop(child);
    }
}

/// What the documents show are the examples, which the tests run.
#[test]
fn the_documents_show_the_examples_as_they_are() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    for name in ["worker", "target"] {
        for (example, readme) in [
            (format!("crates/sdk/examples/{name}.rs"), "crates/sdk/README.md"),
            (format!("sdk/python/examples/{name}.py"), "sdk/python/README.md"),
        ] {
            // Without the comment at the top, which is for readers of the file.
            let text = read(&example);
            let code = text.split_once("\n\n").unwrap().1;
            for document in ["docs/writing-workers.md", readme] {
                assert!(read(document).contains(code), "{document} shows something else than {example}");
            }
        }
    }
}
