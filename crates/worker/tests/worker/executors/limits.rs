//! Memory, processes, processor time and disk: a command that takes more than it may is ended or refused, and the next
//! one runs (W14, W16).

use std::process::Command as Process;

use worker::executors::{self, Backend, ExecutorOptions, Limits};

use super::support::{marker, runs_with, stage_with};
use crate::actions::support::{Stage, Tree, host, sh};

const LIMITS: Limits = Limits { cpu_cores: Some(0.5), memory_bytes: Some(64 << 20), processes: Some(24) };

async fn limited(backend: Backend) -> Stage {
    stage_with(backend, |options| options.limits = LIMITS).await
}

/// Without rights to control groups, a limit holds in another way and is told in another way.
async fn has_control_groups() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let options = ExecutorOptions { limits: LIMITS, ..ExecutorOptions::new(Backend::Host, "w", dir.path()) };
    executors::check(&options)
        .await
        .iter()
        .any(|check| check.result == Ok("held by control groups".to_owned()))
}

#[tokio::test]
async fn w14_a_command_without_enough_memory_is_told_apart_from_one_that_fails() {
    let has_control_groups = has_control_groups().await;
    for backend in [Backend::Host, Backend::Sandbox] {
        let stage = limited(backend).await;
        let ended = stage.run(sh("dd if=/dev/zero of=/dev/null bs=300M count=1"), Tree::default()).await;
        let result = ended.unwrap();
        let is_told =
            stage.stderr(&result).contains("lessor: the command was killed because it needed more memory");
        assert_eq!(
            (result.exit_code == 128 + 9, is_told),
            (has_control_groups, has_control_groups),
            "{backend}"
        );
        assert_ne!(result.exit_code, 0, "{backend}");
        let fine = stage.run(sh("echo fine; exit 3"), Tree::default()).await.unwrap();
        assert_eq!((fine.exit_code, stage.stdout(&fine)), (3, "fine\n".to_owned()), "{backend}");
        stage.is_clean().await;
    }
}

#[tokio::test]
async fn w14_a_command_that_forks_without_end_is_held_and_cleaned_up() {
    if !has_control_groups().await {
        // Nothing holds the super-user's number of processes there.
        return;
    }
    for backend in [Backend::Host, Backend::Sandbox] {
        let stage = limited(backend).await;
        let marker = marker();
        let script = format!("n=0; while [ $n -lt 100 ]; do sleep {marker} & n=$((n+1)); done; echo all");
        let result = stage.run(sh(&script), Tree::default()).await.unwrap();
        assert_ne!((result.exit_code, stage.stdout(&result)), (0, "all\n".to_owned()), "{backend}");
        assert!(!runs_with(&marker), "{backend}");
        assert_eq!(stage.run(sh(":"), Tree::default()).await.unwrap().exit_code, 0);
        stage.is_clean().await;
    }
}

#[tokio::test]
async fn a_sandbox_cannot_fill_more_of_tmp_than_it_may() {
    let stage = limited(Backend::Sandbox).await;
    let filled = stage.run(sh("cd /tmp; dd if=/dev/zero of=x bs=1M count=100"), Tree::default()).await;
    assert_ne!(filled.unwrap().exit_code, 0);
    assert_eq!(stage.run(sh("cd /tmp; : > x"), Tree::default()).await.unwrap().exit_code, 0);
}

/// A file system of its own, unmounted when it is dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Small {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Process::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "none"]).arg(dir.path());
        assert!(mount.status().unwrap().success());
        Small(dir)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Process::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn w16_a_command_that_fills_the_disk_fails_and_the_next_one_runs() {
    let small = Small::new();
    let dir = tempfile::tempdir_in(small.0.path()).unwrap();
    let host = host(&dir);
    let stage = Stage::by(dir, host, |options| options.disk_reserve_bytes = 1 << 20);
    let stage = stage.await;
    let filled = stage.run(sh("dd if=/dev/zero of=big bs=1M count=64"), Tree::default()).await;
    assert_eq!(filled.unwrap_err().code, "disk_full", "which is not the command's fault");
    stage.is_clean().await;
    let inputs = Tree::default().file(&stage.cas, "in", "content");
    let next = stage.run(sh("cat in"), inputs).await.unwrap();
    assert_eq!(stage.stdout(&next), "content");
    stage.is_clean().await;
}
