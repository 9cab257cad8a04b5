//! Stages over each backend, and a way to see whether a process is still there.

use std::sync::atomic::{AtomicU64, Ordering};

use bazel_remote_apis::build::bazel::remote::execution::v2::platform::Property;
use bazel_remote_apis::build::bazel::remote::execution::v2::{Command, Platform};
use worker::executors::{self, Backend, ExecutorOptions};

use crate::actions::support::Stage;

pub(super) const WORKER_ID: &str = "w";
pub(super) const MAX_OUTPUT_BYTES: u64 = 1_000_000;

pub(super) async fn stage(backend: Backend) -> Stage {
    stage_with(backend, |_| {}).await
}

pub(super) async fn stage_with(backend: Backend, change: impl FnOnce(&mut ExecutorOptions)) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let mut options = ExecutorOptions::new(backend, WORKER_ID, dir.path().join("work"));
    change(&mut options);
    let executor = executors::open(&options).await.unwrap();
    Stage::by(dir, executor, |options| {
        options.max_output_bytes = MAX_OUTPUT_BYTES;
        options.allow_absolute_symlinks = true;
    })
    .await
}

/// The same command with a platform property.
#[allow(deprecated, reason = "the field that needs no action to be built by hand")]
pub(super) fn on(command: Command, name: &str, value: &str) -> Command {
    let property = Property { name: name.to_owned(), value: value.to_owned() };
    Command { platform: Some(Platform { properties: vec![property] }), ..command }
}

/// A number of seconds that nobody else sleeps for, by which a process can be found again.
pub(super) fn marker() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("1{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether a process with this argument runs.
pub(super) fn runs_with(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let arguments = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == marker.as_bytes())
    })
}
