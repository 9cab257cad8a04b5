//! Commands that take too long, say too much, do not want to end or leave others behind.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bazel_remote_apis::build::bazel::remote::execution::v2::Command;
use tokio_util::sync::CancellationToken;
use worker::Failure;

use super::support::{Stage, Tree, runs, sh, variable};

/// A pipe through which a command says something to the test.
struct Pipe {
    path: PathBuf,
}

impl Pipe {
    fn new(dir: &Path) -> Pipe {
        let path = dir.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        Pipe { path }
    }

    /// A script that finds the pipe in `$PIPE`.
    fn script(&self, script: &str) -> Command {
        let pipe = variable("PIPE", self.path.to_str().unwrap());
        Command { environment_variables: vec![pipe], ..sh(script) }
    }

    /// Waits for the command's first words.
    async fn heard(&self) -> String {
        let path = self.path.clone();
        let read = move || {
            let mut text = String::new();
            std::fs::File::open(path).unwrap().read_to_string(&mut text).unwrap();
            text
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }
}

async fn run_for(stage: &Stage, script: Command, timeout: Duration) -> Failure {
    let action = stage.action(script, &Tree::default(), Some(timeout));
    stage.run_action(action).await.unwrap_err()
}

#[tokio::test]
async fn r36_a_command_that_takes_too_long_is_ended_and_told_as_a_timeout() {
    let stage = Stage::new().await;
    let begun = Instant::now();
    let script = "echo before; echo err >&2; sleep 600; echo after";
    let failure = run_for(&stage, sh(script), Duration::from_secs(2)).await;
    assert_eq!((failure.code, failure.retryable), (Failure::TIMEOUT, false));
    assert_eq!(failure.category, wire::grpc::ErrorCategory::Timeout);
    let partial = failure.partial.unwrap();
    assert_eq!((stage.stdout(&partial), stage.stderr(&partial)), ("before\n".into(), "err\n".into()));
    assert_eq!(partial.exit_code, 128 + 9);
    let metadata = partial.execution_metadata.unwrap();
    assert_ne!(metadata.execution_start_timestamp, metadata.execution_completed_timestamp);
    assert!(begun.elapsed() < Duration::from_secs(300));
    stage.is_clean().await;
}

#[tokio::test]
async fn w13_a_command_that_ignores_sigterm_is_killed() {
    let stage = Stage::new().await;
    let pipe = Pipe::new(stage.dir.path());
    let script = pipe.script("trap '' TERM; echo $$ > $PIPE; while :; do sleep 1; done");
    let (failure, pid) = tokio::join!(run_for(&stage, script, Duration::from_secs(5)), pipe.heard());
    assert_eq!(failure.code, Failure::TIMEOUT);
    assert!(!runs(&pid));
    stage.is_clean().await;
}

#[tokio::test]
async fn w14_what_a_command_leaves_running_in_its_group_is_killed_when_it_ends() {
    let stage = Stage::new().await;
    let script = "sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' >/dev/null 2>&1 & echo $!";
    let result = stage.run(sh(script), Tree::default()).await.unwrap();
    assert_eq!(result.exit_code, 0);
    let pid = stage.stdout(&result);
    assert!(!pid.is_empty() && !runs(&pid), "{pid}");
    // The same for what holds the command's output open, which is no reason to wait.
    let result = stage.run(sh("sleep 600 & echo $!"), Tree::default()).await.unwrap();
    assert!(!runs(&stage.stdout(&result)));
    stage.is_clean().await;
}

#[tokio::test]
async fn output_within_the_bound_is_whole() {
    let stage = Stage::new().await;
    let result = stage.run(sh("head -c 3000000 /dev/zero | tr '\\0' x"), Tree::default()).await.unwrap();
    assert_eq!(stage.content(result.stdout_digest.as_ref()), vec![b'x'; 3_000_000]);
}

#[tokio::test]
async fn w10_a_command_that_says_too_much_is_ended_and_told_so() {
    let stage = Stage::with(|options| options.max_output_bytes = 1_000_000).await;
    for script in [
        "cat /dev/zero",
        "cat /dev/zero >&2",
        "head -c 1000001 /dev/zero; sleep 600",
        "head -c 1000001 /dev/zero",
    ] {
        let mut result = stage.run(sh(script), Tree::default()).await.unwrap();
        assert_eq!(result.exit_code, 128 + 25, "{script}");
        let mut stderr = stage.content(result.stderr_digest.take().as_ref());
        if script.ends_with(">&2") {
            assert!(stderr.drain(..1_000_000).all(|byte| byte == 0));
        } else {
            assert_eq!(stage.content(result.stdout_digest.as_ref()), vec![0; 1_000_000], "{script}");
        }
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(stderr.starts_with("\nlessor: ") && stderr.contains("1000000 bytes"), "{stderr}");
    }
    let result = stage.run(sh("head -c 1000000 /dev/zero"), Tree::default()).await.unwrap();
    assert_eq!(result.stdout_digest.unwrap().size_bytes, 1_000_000);
    stage.is_clean().await;
}

#[tokio::test]
async fn s3_44_a_cancelled_command_is_ended_with_all_it_started() {
    let stage = Stage::new().await;
    let pipe = Pipe::new(stage.dir.path());
    let action = stage.action(pipe.script("sleep 600 & echo $! > $PIPE; wait"), &Tree::default(), None);
    let cancel = CancellationToken::new();
    let cancelling = async {
        let pid = pipe.heard().await;
        assert!(runs(&pid));
        cancel.cancel();
        pid
    };
    let (ended, pid) = tokio::join!(stage.actions.run("", action, &cancel, || {}), cancelling);
    assert_eq!(ended.unwrap_err().code, Failure::CANCELLED);
    assert!(!runs(&pid));
    stage.is_clean().await;
}

#[tokio::test]
async fn an_attempt_that_is_dropped_leaves_neither_processes_nor_directories() {
    let stage = Stage::new().await;
    let pipe = Pipe::new(stage.dir.path());
    let action = stage.action(pipe.script("echo $$ > $PIPE; sleep 600"), &Tree::default(), None);
    let cancel = CancellationToken::new();
    let pid = tokio::select! {
        _ = stage.actions.run("", action, &cancel, || {}) => unreachable!("it sleeps"),
        pid = pipe.heard() => pid,
    };
    while runs(&pid) {
        tokio::task::yield_now().await;
    }
    stage.is_clean().await;
}

#[tokio::test]
async fn the_slot_is_free_when_the_command_ends_and_not_before() {
    let stage = Stage::new().await;
    let action = stage.action(sh("echo x"), &Tree::default(), None);
    stage.cas.take_calls();
    let mut calls = None;
    let freed = || calls = Some(stage.cas.take_calls());
    stage.actions.run("", action, &CancellationToken::new(), freed).await.unwrap();
    assert_eq!(calls.unwrap(), ["read_many"; 2]);
    assert_eq!(stage.cas.take_calls(), ["find_missing", "upload_many"]);
}

#[tokio::test]
async fn many_actions_at_a_time_do_not_get_into_each_others_way() {
    let stage = Stage::new().await;
    let mut running = tokio::task::JoinSet::new();
    for n in 0..40 {
        // Each brings a tool of its own, which is written while others are started.
        let tool = format!("#!/bin/sh\necho {n}; pwd");
        let action = stage.action(sh("./tool"), &Tree::default().tool(&stage.cas, "tool", &tool), None);
        let actions = stage.actions.clone();
        running.spawn(async move { (n, actions.run("", action, &CancellationToken::new(), || {}).await) });
    }
    let mut places = std::collections::HashSet::new();
    while let Some(done) = running.join_next().await {
        let (n, result) = done.unwrap();
        let result = result.unwrap();
        let said = stage.stdout(&result);
        assert_eq!((result.exit_code, said.lines().next()), (0, Some(n.to_string().as_str())));
        assert!(places.insert(said.lines().nth(1).unwrap().to_owned()));
    }
    stage.is_clean().await;
}
