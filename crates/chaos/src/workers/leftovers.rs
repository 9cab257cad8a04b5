//! Checks that a worker leaves no processes, mounts, control groups or directories of its attempts behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::api::Api;

/// Where attempts run, below the worker's directory.
const WORK: &str = "work";
const GROUPS: &str = "/sys/fs/cgroup";
/// What the groups of workers begin with.
const GROUP_PREFIX: &str = "lessor-";
/// What follows is of one worker alone.
const KEY_DIGITS: usize = 16;
/// A worker's groups are below its own, which may be some way down.
const MAX_GROUP_DEPTH: usize = 8;
const DEADLINE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The session by which a worker is registered, if it is.
pub(super) async fn session(api: &Api, worker: &str) -> Result<Option<String>> {
    let response = api.ask("/v1/workers").await;
    ensure!(response.status() == Some(200), "the workers were not listed: {response:?}");
    let workers = response.body()["workers"].as_array().context("there are no workers")?;
    let known = workers.iter().find(|known| known["workerId"] == worker);
    Ok(known.and_then(|known| known["registration"]["sessionId"].as_str()).map(str::to_owned))
}

/// Waits until a worker has begun again, which it says when its leftovers are gone.
pub(super) async fn until_registered(api: &Api, worker: &str, before: Option<String>) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let now = session(api, worker).await?;
        if now.is_some() && now != before {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "worker {worker} did not come back within {DEADLINE:?}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Nothing of the worker's attempts is left.
pub(super) fn check(directory: &Path) -> Result<()> {
    let processes = processes_in(directory)?;
    ensure!(processes.is_empty(), "processes are left in {}: {processes:?}", directory.display());
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("the mounts cannot be read")?;
    let path = directory.display().to_string();
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&path)).collect();
    ensure!(left.is_empty(), "mounts are left: {left:?}");
    for entry in fs::read_dir(directory.join(WORK)).context("the worker has no directory for attempts")? {
        let path = entry?.path();
        if path.is_dir() {
            let left: Vec<PathBuf> = fs::read_dir(&path)?.flatten().map(|entry| entry.path()).collect();
            ensure!(left.is_empty(), "directories are left: {left:?}");
        }
    }
    Ok(())
}

/// The control groups of all workers of this machine.
pub(super) fn groups() -> BTreeSet<PathBuf> {
    let mut groups = BTreeSet::new();
    let mut rest = vec![(PathBuf::from(GROUPS), 0)];
    while let Some((directory, depth)) = rest.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if is_of_a_worker(&entry.file_name().to_string_lossy()) {
                groups.insert(entry.path());
            } else if depth < MAX_GROUP_DEPTH {
                rest.push((entry.path(), depth + 1));
            }
        }
    }
    groups
}

fn is_of_a_worker(name: &str) -> bool {
    let key = name.strip_prefix(GROUP_PREFIX);
    key.is_some_and(|key| key.len() == KEY_DIGITS && key.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// None is there that was not before.
pub(super) fn check_groups(before: &BTreeSet<PathBuf>) -> Result<()> {
    let left: Vec<PathBuf> = groups().difference(before).cloned().collect();
    ensure!(left.is_empty(), "control groups are left: {left:?}");
    Ok(())
}

/// The processes that work below a directory, by id and name.
fn processes_in(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").context("the processes cannot be listed")?.flatten() {
        let works_here =
            fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(directory));
        if works_here {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} {}", process.file_name().to_string_lossy(), name.trim()));
        }
    }
    Ok(found)
}
