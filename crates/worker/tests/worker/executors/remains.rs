//! No process of a sandboxed command is left when its end is reported (W14).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use worker::executors::{self, Backend, End, Executor, ExecutorOptions, Run};

use super::support::{MAX_OUTPUT_BYTES, WORKER_ID, marker, runs_with};

const ALONE: &str = "LESSOR_TEST_ALONE";

/// A sandbox and a directory for its commands, with nothing around them that would wait or look once more.
struct Bench {
    executor: Arc<dyn Executor>,
    dir: TempDir,
}

impl Bench {
    async fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let options = ExecutorOptions::new(Backend::Sandbox, WORKER_ID, dir.path().join("work"));
        fs::create_dir_all(dir.path().join("root")).unwrap();
        Bench { executor: executors::open(&options).await.unwrap(), dir }
    }

    fn sh(&self, script: &str) -> Run {
        let root = self.dir.path().join("root");
        Run {
            arguments: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            environment: Vec::new(),
            working_directory: root.clone(),
            input_root: root,
            timeout: None,
            stdout: tempfile::tempfile().unwrap(),
            stderr: tempfile::tempfile().unwrap(),
            max_output_bytes: MAX_OUTPUT_BYTES,
            platform: Vec::new(),
            cancel: CancellationToken::new(),
        }
    }

    async fn end_of(&self, script: &str) -> End {
        self.executor.execute(self.sh(script)).await.unwrap().end
    }
}

/// It has a session of its own, its parent is dead, and it writes as fast as it can.
#[tokio::test]
async fn w14_a_daemon_in_a_sandbox_is_dead_before_outputs_are_collected() {
    let bench = Bench::new().await;
    let marker = marker();
    let daemon = "while :; do echo more >> out; done";
    let script =
        format!("setsid sh -c 'sh -c \"{daemon}\" {marker} & exit' & while ! [ -s out ]; do :; done");
    let out = bench.dir.path().join("root/out");
    for _ in 0..20 {
        assert_eq!(bench.end_of(&script).await, End::Exited(0));
        let written = state_of(&out);
        assert!(!runs_with(&marker));
        assert_eq!(bench.end_of("exit 3").await, End::Exited(3));
        assert_eq!(state_of(&out), written, "somebody still writes");
        fs::remove_file(&out).unwrap();
    }
}

/// The parent of all sandboxes must have no other children, so it is a process of its own.
#[test]
fn w14_many_sandboxed_commands_leave_no_child_and_no_zombie() {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["executors::remains::a_worker_without_other_children", "--exact", "--nocapture"]);
    let output = alone.env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
}

/// Not a test by itself: what the one above runs.
#[tokio::test]
async fn a_worker_without_other_children() {
    const SLOTS: usize = 4;
    const EACH: usize = 10;
    if std::env::var_os(ALONE).is_none() {
        return;
    }
    let bench = Arc::new(Bench::new().await);
    let mut crowd = JoinSet::new();
    for _ in 0..SLOTS {
        let bench = bench.clone();
        crowd.spawn(async move {
            for _ in 0..EACH {
                assert_eq!(bench.end_of("exit 5").await, End::Exited(5));
                assert_eq!(bench.end_of("setsid sleep 1000 & sleep 1000 & exit 6").await, End::Exited(6));
            }
            let endless = Run { timeout: Some(Duration::from_millis(1)), ..bench.sh("sleep 1000") };
            assert_eq!(bench.executor.execute(endless).await.unwrap().end, End::TimedOut);
        });
    }
    while let Some(done) = crowd.join_next().await {
        done.unwrap();
    }
    assert_eq!(children(), Vec::<String>::new());
    // Of one that nobody waits for any more, somebody else cleans up.
    let run = bench.sh("echo; sleep 1000");
    let output = run.stdout.try_clone().unwrap();
    tokio::select! {
        _ = bench.executor.execute(run) => unreachable!("it does not end"),
        () = begins(&output) => {}
    }
    while !children().is_empty() {
        tokio::task::yield_now().await;
    }
}

async fn begins(output: &fs::File) {
    while output.metadata().unwrap().len() == 0 {
        tokio::task::yield_now().await;
    }
}

fn state_of(path: &Path) -> (u64, i64, i64) {
    let about = fs::metadata(path).unwrap();
    (about.len(), about.mtime(), about.mtime_nsec())
}

/// What `/proc` says of every child of this process, the dead among them.
fn children() -> Vec<String> {
    let this = std::process::id().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
    stats
        .filter(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.split(' ').nth(2) == Some(&this)))
        .collect()
}
