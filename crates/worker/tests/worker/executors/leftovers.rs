//! A worker that is killed with SIGKILL, and what the next one with its id finds and removes (W12).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use worker::Executor;
use worker::executors::{self, Backend, ExecutorOptions, Limits, Run};

use super::support::{WORKER_ID, marker, runs_with};
use crate::actions::support::{Stage, Tree, sh};

const DIRECTORY: &str = "LESSOR_TEST_LEFTOVERS";
const BACKEND: &str = "LESSOR_TEST_BACKEND";
const MARKER: &str = "LESSOR_TEST_MARKER";

fn options(backend: Backend, directory: &Path) -> ExecutorOptions {
    let limits = Limits { memory_bytes: Some(256 << 20), processes: Some(64), ..Limits::default() };
    ExecutorOptions { limits, ..ExecutorOptions::new(backend, WORKER_ID, directory.join("work")) }
}

/// Not a test: the worker that gets killed, in a process of its own. It runs one command that never ends, which says
/// so through a pipe by opening it.
#[tokio::test]
async fn a_worker_to_be_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = PathBuf::from(directory);
    let backend: Backend = std::env::var(BACKEND).unwrap().parse().unwrap();
    let marker = std::env::var(MARKER).unwrap();
    let executor = executors::open(&options(backend, &directory)).await.unwrap();
    let dir = tempfile::Builder::new().disable_cleanup(true).tempdir_in(&directory).unwrap();
    let stage = Stage::by(dir, executor, |options| options.work_dir = directory.join("work")).await;
    let script = format!(
        "setsid sh -c 'cd /; exec sleep {marker}' </dev/null >/dev/null 2>&1 & sleep {marker} & \
         while [ $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cx {marker}) -lt 2 ]; do :; done; \
         echo ready >&2; wait"
    );
    let inputs = Tree::default().file(&stage.cas, "d/in", "content");
    stage.run(sh(&script), inputs).await.unwrap();
}

/// Starts that worker and kills it once its command runs. Gives the control groups that the command was in.
fn killed_worker(backend: Backend, directory: &Path, marker: &str) -> Vec<PathBuf> {
    let test = "executors::leftovers::a_worker_to_be_killed";
    let mut worker = Command::new(std::env::current_exe().unwrap());
    worker.args([test, "--exact", "--nocapture"]).env(DIRECTORY, directory).env(MARKER, marker);
    let mut worker = worker.env(BACKEND, backend.name()).stdout(Stdio::null()).spawn().unwrap();
    // Both of its processes; where they cannot be seen, the test fails by its own time.
    until(|| sleeping(marker).len() >= 2, &mut worker);
    let groups = sleeping(marker).iter().flat_map(|process| groups_of(process)).collect();
    worker.kill().unwrap();
    worker.wait().unwrap();
    groups
}

fn until(mut is_so: impl FnMut() -> bool, worker: &mut Child) {
    while !is_so() {
        assert!(worker.try_wait().unwrap().is_none(), "the worker ended before its command ran");
        std::thread::yield_now();
    }
}

/// The processes that sleep for the marker's time.
fn sleeping(marker: &str) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
    let sleeps = |process: &PathBuf| {
        let arguments = std::fs::read(process.join("cmdline")).unwrap_or_default();
        arguments == format!("sleep\0{marker}\0").as_bytes()
    };
    processes.filter(sleeps).collect()
}

#[tokio::test]
async fn w12_the_next_worker_clears_what_a_killed_one_left_and_only_that() {
    for backend in [Backend::Host, Backend::Sandbox] {
        let directory = tempfile::tempdir().unwrap();
        let (own, other) = (marker(), marker());
        let others = directory.path().join("work/other");
        std::fs::create_dir_all(&others).unwrap();
        let mut bystander = Command::new("sleep").arg(&other).current_dir(&others).spawn().unwrap();
        let groups = killed_worker(backend, directory.path(), &own);
        let executor = executors::open(&options(backend, directory.path())).await.unwrap();
        let dir = TempDir::new_in(directory.path()).unwrap();
        let stage =
            Stage::by(dir, executor, |options| options.work_dir = directory.path().join("work")).await;
        // Without control groups, one that left for another directory with nothing open is not found on the host.
        let may_be_left = usize::from(backend == Backend::Host && groups.is_empty());
        assert!(sleeping(&own).len() <= may_be_left, "{backend}");
        assert!(runs_with(&other) && others.is_dir(), "{backend}");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
        let work = directory.path().join("work");
        let worker_dirs = || work.read_dir().unwrap().flatten().filter(|entry| entry.path().is_dir());
        for entry in worker_dirs().filter(|entry| entry.path() != others) {
            assert_eq!(entry.path().read_dir().unwrap().count(), 0, "{backend}: {}", entry.path().display());
        }
        assert_eq!(stage.run(sh("exit 4"), Tree::default()).await.unwrap().exit_code, 4);
        assert!(groups.iter().all(|group| !group.exists()), "{backend}: {groups:?}");
    }
}

/// The control groups of the worker's own making that a process is in.
fn groups_of(process: &Path) -> Vec<PathBuf> {
    let groups = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
    let group = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let hierarchy = if controllers.is_empty() { "unified" } else { controllers };
        let group = Path::new("/sys/fs/cgroup").join(hierarchy).join(path.trim_start_matches('/'));
        path.contains("/lessor-").then_some(group)
    };
    groups.lines().filter_map(group).collect()
}

/// A command that runs although nobody waits for it any more.
pub struct Abandoned {
    marker: String,
    _dir: TempDir,
}

impl Abandoned {
    pub fn runs(&self) -> bool {
        runs_with(&self.marker)
    }
}

/// Runs a command that never ends in a runtime that is then forgotten, as if its worker had died.
pub async fn abandoned(executor: Arc<dyn Executor>) -> Abandoned {
    let (dir, marker) = (tempfile::tempdir().unwrap(), marker());
    let root = dir.path().canonicalize().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let run = Run {
        arguments: ["sh", "-c", &format!("echo ready; sleep {marker}")].map(str::to_owned).to_vec(),
        environment: Vec::new(),
        input_root: root.clone(),
        working_directory: root,
        timeout: None,
        stdout: std::os::fd::OwnedFd::from(writer).into(),
        stderr: tempfile::tempfile().unwrap(),
        max_output_bytes: 1_000_000,
        platform: Vec::new(),
        cancel: CancellationToken::new(),
    };
    std::mem::forget(tokio::spawn(async move { executor.execute(run).await }));
    let ready = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        line
    });
    assert_eq!(ready.await.unwrap(), "ready\n");
    while !runs_with(&marker) {
        tokio::task::yield_now().await;
    }
    Abandoned { marker, _dir: dir }
}
