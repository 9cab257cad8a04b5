//! A worker that is killed with SIGKILL, and what the next one with its id finds and removes (W12).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use chaos::engine::Engine;
use tempfile::TempDir;
use worker::executors::{self, Backend, ExecutorOptions, Limits};

use super::engines::use_socket;
use super::support::{WORKER_ID, marker};
use crate::actions::support::{Stage, Tree, sh};

const DIRECTORY: &str = "LESSOR_TEST_LEFTOVERS";
const BACKEND: &str = "LESSOR_TEST_BACKEND";
const MARKER: &str = "LESSOR_TEST_MARKER";
const SOCKET: &str = "LESSOR_TEST_SOCKET";
const ISOLATED: &str = "LESSOR_TEST_ISOLATED";

fn options(backend: Backend, directory: &Path, socket: Option<&Path>) -> ExecutorOptions {
    let limits = Limits { memory_bytes: Some(256 << 20), processes: Some(64), ..Limits::default() };
    let mut options =
        ExecutorOptions { limits, ..ExecutorOptions::new(backend, WORKER_ID, directory.join("work")) };
    if let Some(socket) = socket {
        use_socket(&mut options, socket);
    }
    options
}

/// Not a test: the worker that gets killed, in a process of its own. It runs one command that never ends, which says
/// so through a pipe by opening it.
#[tokio::test]
async fn a_worker_to_be_killed() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = PathBuf::from(directory);
    let backend: Backend = std::env::var(BACKEND).unwrap().parse().unwrap();
    let marker = std::env::var(MARKER).unwrap();
    let socket = std::env::var_os(SOCKET).map(PathBuf::from);
    let executor = executors::open(&options(backend, &directory, socket.as_deref())).await.unwrap();
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
fn killed_worker(backend: Backend, directory: &Path, marker: &str, engine: Option<&Engine>) -> Vec<PathBuf> {
    let test = "executors::leftovers::a_worker_to_be_killed";
    let mut worker = Command::new(std::env::current_exe().unwrap());
    worker.args([test, "--exact", "--nocapture"]).env(DIRECTORY, directory).env(MARKER, marker);
    worker.envs(engine.map(|engine| (SOCKET, engine.socket.as_path())));
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

/// In a process that has orphans of its own fall to somebody else: this one takes them, and would kill them as strays.
#[test]
fn w12_what_a_killed_worker_left_is_cleared_by_the_next_one_and_nothing_else_is() {
    for backend in [Backend::Host, Backend::Sandbox] {
        let test = "executors::leftovers::a_test_in_a_process_of_its_own";
        let mut isolated = Command::new("unshare");
        isolated.args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            "\"$0\" \"$@\"; exit $?",
        ]);
        isolated.arg(std::env::current_exe().unwrap()).args([test, "--exact", "--nocapture"]);
        let output = isolated.env(ISOLATED, backend.name()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{backend}: {}{said}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Not a test by itself: what the one above runs.
#[tokio::test]
async fn a_test_in_a_process_of_its_own() {
    let Ok(backend) = std::env::var(ISOLATED) else { return };
    w12_are_cleared_by_the_next_worker_and_nothing_else_is(backend.parse().unwrap(), None).await;
}

pub(super) async fn w12_are_cleared_by_the_next_worker_and_nothing_else_is(
    backend: Backend,
    engine: Option<&Engine>,
) {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (own, other) = (marker(), marker());
    // Another worker with the same id, elsewhere: killed too, and not followed by anybody yet.
    killed_worker(backend, second.path(), &other, engine);
    let groups = killed_worker(backend, first.path(), &own, engine);
    let others_left = sleeping(&other).len();
    next_worker(backend, first.path(), engine).await;
    // Without control groups, one that left for another directory with nothing open is not found on the host.
    let may_be_left = usize::from(backend == Backend::Host && groups.is_empty());
    assert!(sleeping(&own).len() <= may_be_left, "{backend}");
    assert!(groups.iter().all(|group| !group.exists()), "{backend}: {groups:?}");
    assert_eq!(sleeping(&other).len(), others_left, "{backend}: what is of others stays");
    next_worker(backend, second.path(), engine).await;
    assert!(sleeping(&other).len() <= may_be_left, "{backend}");
}

/// Starts with the id and the directory of the dead one, works, and leaves nothing.
async fn next_worker(backend: Backend, directory: &Path, engine: Option<&Engine>) {
    let socket = engine.map(|engine| engine.socket.as_path());
    let executor = executors::open(&options(backend, directory, socket)).await.unwrap();
    let dir = TempDir::new_in(directory).unwrap();
    let stage = Stage::by(dir, executor, |options| options.work_dir = directory.join("work")).await;
    assert_eq!(stage.run(sh("exit 4"), Tree::default()).await.unwrap().exit_code, 4);
    worker::Performer::settle(&*stage.actions).await;
    let dirs = directory.join("work").read_dir().unwrap().flatten().map(|entry| entry.path());
    let dirs = dirs.filter(|path| path.is_dir());
    let is_scratch = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("scratch-");
    let (scratch, own): (Vec<_>, Vec<_>) = dirs.partition(is_scratch);
    assert_eq!((scratch.len(), own.len()), (usize::from(backend == Backend::Sandbox), 1), "{backend}");
    assert_eq!(own[0].read_dir().unwrap().count(), 0, "{backend}");
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
