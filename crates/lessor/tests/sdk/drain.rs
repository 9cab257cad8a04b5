//! The shutdown of a worker: by real signals, as a process of its own. The process is this test binary again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lessor_sdk::{Task, TaskState, Worker};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::fixture::{Fixture, QUEUE, Working};

/// Its presence makes the test below a worker; its value is the grace.
const GRACE_MS: &str = "SDK_TEST_WORKER_GRACE_MS";

/// A worker whose handler ends when it reads a line; started by the tests below with what it needs in its environment.
/// By itself it does nothing.
#[test]
fn a_worker_process() {
    let Ok(grace_ms) = std::env::var(GRACE_MS) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stdout);
    subscriber.init();
    let worker = Worker::new().grace(Duration::from_millis(grace_ms.parse().unwrap()));
    let worker = worker.handler(QUEUE, |_: Task| async {
        println!("the handler runs");
        let line = tokio::task::spawn_blocking(|| std::io::stdin().lines().next());
        Ok(line.await?.transpose()?)
    });
    runtime.block_on(worker.run()).unwrap();
    println!("ended");
    // A handler that still reads its standard input must not hold up the process.
    runtime.shutdown_background();
}

struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// A worker that has begun with a task.
    fn start(fixture: &Fixture, grace_ms: u64) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "drain::a_worker_process", "--nocapture"])
            .env(GRACE_MS, grace_ms.to_string())
            .env("LESSOR_URL", fixture.server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process { child, stdout };
        process.until("the handler runs");
        process
    }

    /// Reads until a line has this text.
    fn until(&mut self, expected: &str) {
        let mut line = String::new();
        while !line.contains(expected) {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "it ended without saying {expected:?}");
        }
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn ends_well(mut self) {
        self.until("ended");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn a_signal_lets_running_handlers_end_and_takes_no_more() {
    let fixture = Fixture::start();
    let (running, waiting) = (fixture.submit(json!(1)).await, fixture.submit(json!(2)).await);
    let mut process = Process::start(&fixture, 3_600_000);
    process.send(Signal::TERM);
    process.until("draining");
    process.child.stdin.take().unwrap().write_all(b"done\n").unwrap();
    process.ends_well();
    assert_eq!(fixture.result(&running).await, "done");
    let task = fixture.client.get(&waiting).await.unwrap();
    assert_eq!((task.state, task.attempt), (TaskState::Waiting, 0));
}

#[tokio::test]
async fn what_outlasts_the_grace_is_given_back_at_no_cost() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!(null)).await;
    let process = Process::start(&fixture, 1);
    process.send(Signal::INT);
    process.ends_well();
    assert_eq!(fixture.kinds(&id).await, ["TaskCreated", "LeaseGranted", "LeaseReleased"]);
}

#[tokio::test]
async fn a_second_signal_ends_the_grace() {
    let fixture = Fixture::start();
    let id = fixture.submit(json!(null)).await;
    let mut process = Process::start(&fixture, 3_600_000);
    process.send(Signal::INT);
    process.until("draining");
    process.send(Signal::TERM);
    process.ends_well();
    assert_eq!(fixture.kinds(&id).await, ["TaskCreated", "LeaseGranted", "LeaseReleased"]);
}

#[tokio::test]
async fn an_idle_worker_stops_at_once_and_asks_what_its_poll_was_granted() {
    let fixture = Fixture::start();
    let proxy = fixture.witness().await;
    let worker = fixture.worker().url(&proxy.url).wait(Duration::from_secs(60));
    let working = Working::start(worker.handler(QUEUE, |_| async { Ok(()) }));
    fixture.until_it_polls().await;
    working.end().await;
    let polls: Vec<_> = proxy.exchanges().iter().map(|exchange| exchange.request.json()).collect();
    assert_eq!(polls.len(), 2, "{polls:?}");
    assert_eq!(polls[0]["requestId"], polls[1]["requestId"]);
    assert_eq!((&polls[0]["waitMs"], &polls[1]["waitMs"]), (&json!(60_000), &json!(0)));
}
