//! Builds through the plan's own worker: its attempts fail, it is lost, starts again, and is drained and stopped by the
//! operator.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::document_worker::DocumentWorker;
use crate::support::{Ran, Server};
use crate::support_worker::{registration, server, server_with_heartbeat_timeout, until};

const WORKER: &str = "worker-host-01";

/// A client that waits for its execution.
pub(crate) struct Build(Child);

impl Build {
    pub(crate) fn start(server: &Server, directory: &Path, script: &str) -> Build {
        let mut command = server.command(&["run", "-q", "--", "sh", "-c", script]);
        command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Build(command.spawn().unwrap())
    }

    pub(crate) fn ended(mut self) -> Ran {
        until(|| self.0.try_wait().unwrap());
        Ran::from(self.0.wait_with_output().unwrap())
    }
}

/// A directory for a test, with a pipe that an action reads from.
pub(crate) struct Place {
    pub dir: TempDir,
    pub pipe: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        Place { dir, pipe }
    }

    /// A file that an action creates as soon as it runs.
    fn begun(&self) -> PathBuf {
        self.dir.path().join("begun")
    }

    /// An action that runs until something is written into the pipe, and prints it.
    pub(crate) fn reads_the_pipe(&self) -> String {
        format!("mkdir {}; exec cat {}", self.begun().display(), self.pipe.display())
    }

    /// An action that never ends the first time that it runs, and at once the next time.
    pub(crate) fn hangs_once(&self) -> String {
        format!("if mkdir {}; then exec cat {}; fi; echo done", self.begun().display(), self.pipe.display())
    }

    pub(crate) fn until_begun(&self) {
        until(|| self.begun().exists().then_some(()));
    }
}

fn executions(server: &Server) -> Vec<Value> {
    let list = server.get("/v1/tasks?queue=exec");
    list["tasks"].as_array().unwrap().clone()
}

fn until_waiting(server: &Server, count: usize) {
    until(|| {
        let waiting = executions(server).iter().filter(|task| task["state"] == "WAITING").count();
        (waiting == count).then_some(())
    });
}

/// How the leases of a task ended, each with its cause.
pub(crate) fn lease_ends(server: &Server, task: &str) -> Vec<(Value, Value)> {
    let history = server.get(&format!("/v1/tasks/{task}/history"));
    let events = history["events"].as_array().unwrap().iter();
    let ends = events.filter(|event| event["type"] == "LeaseExpired" || event["type"] == "LeaseReleased");
    ends.map(|event| (event["type"].clone(), event["cause"].clone())).collect()
}

#[test]
fn s3_36_an_action_is_retried_on_the_documents_worker_and_succeeds() {
    let (server, place) = (server(), Place::new());
    let worker = DocumentWorker::start_with_faults(&server, WORKER, 2);
    let built = Build::start(&server, place.dir.path(), "echo built").ended();
    assert_eq!((built.code, built.stdout.as_str()), (0, "built\n"), "{built:?}");
    let leased = worker.leased();
    assert!(leased.len() == 3 && leased.iter().all(|task| *task == leased[0]), "{leased:?}");
    assert_eq!(worker.refusals(), [""; 0]);
}

#[test]
fn s3_54_the_execution_of_a_lost_document_worker_goes_to_another() {
    let (server, place) = (server_with_heartbeat_timeout(3), Place::new());
    let worker = DocumentWorker::start(&server, WORKER);
    let build = Build::start(&server, place.dir.path(), &place.hangs_once());
    place.until_begun();
    let task = worker.leased().remove(0);
    worker.vanish();
    let second = DocumentWorker::start(&server, "worker-host-02");
    let built = build.ended();
    assert_eq!((built.code, built.stdout.as_str()), (0, "done\n"), "{built:?}");
    assert_eq!(second.leased()[0], task);
    assert_eq!(lease_ends(&server, &task)[0], (json!("LeaseExpired"), json!("WORKER_LOST")));
}

/// Nothing but the registration says that the first process is gone: heartbeats with the worker's id go on, and extended
/// its lease for as long as the action may take.
#[test]
fn s3_9_a_document_worker_that_starts_again_completes_the_build_that_it_held() {
    let (server, place) = (server(), Place::new());
    let worker = DocumentWorker::start(&server, WORKER);
    let build = Build::start(&server, place.dir.path(), &place.hangs_once());
    place.until_begun();
    let task = worker.leased().remove(0);
    worker.vanish();
    let worker = DocumentWorker::start(&server, WORKER);
    let built = build.ended();
    assert_eq!((built.code, built.stdout.as_str()), (0, "done\n"), "{built:?}");
    assert_eq!(worker.leased(), [task.as_str()]);
    assert_eq!(lease_ends(&server, &task), [(json!("LeaseReleased"), json!("SESSION"))]);
    assert_eq!(worker.refusals(), [""; 0]);
}

#[test]
fn c34_a_drained_document_worker_finishes_its_task_and_gets_others_when_it_is_resumed() {
    let (server, place) = (server(), Place::new());
    let worker = DocumentWorker::start(&server, WORKER);
    let running = Build::start(&server, place.dir.path(), &place.reads_the_pipe());
    place.until_begun();
    server.run(&["worker", "drain", WORKER]).ok();
    let later = Build::start(&server, place.dir.path(), "echo later");
    until_waiting(&server, 1);
    // A slot is free all the time.
    worker.until_it_asked_again();
    std::fs::write(&place.pipe, "went on").unwrap();
    let built = running.ended();
    assert_eq!((built.code, built.stdout.as_str()), (0, "went on"), "{built:?}");
    server.run(&["worker", "drain", WORKER, "--wait"]).ok();
    worker.until_it_asked_again();
    assert_eq!(worker.leased().len(), 1, "it was given a task while it was drained");
    server.run(&["worker", "resume", WORKER]).ok();
    let built = later.ended();
    assert_eq!((built.code, built.stdout.as_str()), (0, "later\n"), "{built:?}");
    assert_eq!(worker.leased().len(), 2);
    assert_eq!(worker.refusals(), [""; 0]);
}

#[test]
fn s3_25_a_document_worker_that_the_operator_stops_finishes_its_task_and_leaves() {
    let (server, place) = (server(), Place::new());
    let worker = DocumentWorker::start(&server, WORKER);
    let running = Build::start(&server, place.dir.path(), &place.reads_the_pipe());
    place.until_begun();
    server.run(&["worker", "stop", WORKER]).ok();
    worker.until_asked_to_shut_down();
    assert!(!registration(&server, WORKER).is_null(), "it still runs a task");
    std::fs::write(&place.pipe, "went on").unwrap();
    let built = running.ended();
    assert_eq!((built.code, built.stdout.as_str()), (0, "went on"), "{built:?}");
    server.run(&["worker", "stop", WORKER, "--wait"]).ok();
    assert!(registration(&server, WORKER).is_null(), "it has unregistered");
    assert_eq!(worker.refusals(), [""; 0]);
    worker.ended();
}

/// A generator, two compilers that run side by side, and a linker.
#[test]
fn s3_9_to_26_a_build_of_dependent_actions_completes_through_the_documents_worker() {
    let (server, project) = (server(), tempfile::tempdir().unwrap());
    let worker = DocumentWorker::start(&server, WORKER);
    let at = |name: &str| project.path().join(name);
    for directory in ["src/parts", "generated", "objects"] {
        std::fs::create_dir_all(at(directory)).unwrap();
    }
    std::fs::write(at("src/parts/main.c"), "main\n").unwrap();
    let step = |input: &str, (directory, output): (&str, &str), script: &str| {
        let flags = ["--input", input, "--output", output, "--output-dir", directory];
        let mut run =
            server.command(&[&["run", "-q", "--json"], &flags[..], &["--", "sh", "-c", script]].concat());
        run.current_dir(project.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Build(run.spawn().unwrap())
    };
    let generate = || step("src", ("generated", "lib.c"), "echo lib > lib.c; cat parts/main.c >> lib.c");
    generate().ended().ok();
    let compilers = [
        step("src", ("objects", "main.o"), "tr a-z A-Z < parts/main.c > main.o"),
        step("generated", ("objects", "lib.o"), "tr a-z A-Z < lib.c > lib.o"),
    ];
    for compiler in compilers {
        compiler.ended().ok();
    }
    step("objects", (".", "program"), "cat main.o lib.o > program; chmod +x program").ended().ok();
    assert_eq!(std::fs::read_to_string(at("program")).unwrap(), "MAIN\nLIB\nMAIN\n");
    assert_eq!(worker.leased().len(), 4);
    let again = generate().ended().ok();
    assert_eq!((&again.json()["cached"], worker.leased().len()), (&json!(true), 4));
    assert_eq!(worker.refusals(), [""; 0]);
}
