//! The control group of one command.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::{Controller, Version};
use crate::executors::Limits;
use crate::proc;

/// The span that processor time is measured in; the kernel's own default.
const CPU_PERIOD_US: u64 = 100_000;
/// The least share of it that the kernel takes.
const MIN_CPU_QUOTA_US: u64 = 1_000;
/// How long killed processes may take to leave the group.
const MAX_LEAVE: Duration = Duration::from_secs(2);
const LEAVE_PAUSE: Duration = Duration::from_millis(1);

/// Its processes are killed and the group is removed when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Cgroup {
    /// One for each hierarchy.
    directories: Vec<PathBuf>,
    /// The file that counts processes which were killed for want of memory.
    oom_counter: Option<PathBuf>,
}

impl Cgroup {
    pub(crate) fn add(
        &mut self,
        controller: Controller,
        version: Version,
        directory: &Path,
        limits: &Limits,
    ) -> io::Result<()> {
        if !self.directories.iter().any(|one| one == directory) {
            fs::create_dir(directory)?;
            self.directories.push(directory.to_owned());
        }
        let set = |file: &str, value: String| fs::write(directory.join(file), value);
        let quota_us = |cores: f64| ((cores * CPU_PERIOD_US as f64) as u64).max(MIN_CPU_QUOTA_US);
        match (controller, version) {
            (Controller::Memory, Version::V1) => {
                let Some(bytes) = limits.memory_bytes else { return Ok(()) };
                self.oom_counter = Some(directory.join("memory.oom_control"));
                set("memory.limit_in_bytes", bytes.to_string())?;
                // Where the kernel does not count swap, the file is not there.
                let _ = set("memory.memsw.limit_in_bytes", bytes.to_string());
            }
            (Controller::Memory, Version::V2) => {
                let Some(bytes) = limits.memory_bytes else { return Ok(()) };
                self.oom_counter = Some(directory.join("memory.events"));
                set("memory.max", bytes.to_string())?;
                let _ = set("memory.swap.max", "0".to_owned());
                let _ = set("memory.oom.group", "1".to_owned());
            }
            (Controller::Cpu, Version::V1) => {
                let Some(cores) = limits.cpu_cores else { return Ok(()) };
                set("cpu.cfs_period_us", CPU_PERIOD_US.to_string())?;
                set("cpu.cfs_quota_us", quota_us(cores).to_string())?;
            }
            (Controller::Cpu, Version::V2) => {
                let Some(cores) = limits.cpu_cores else { return Ok(()) };
                set("cpu.max", format!("{} {CPU_PERIOD_US}", quota_us(cores)))?;
            }
            (Controller::Pids, _) => {
                let Some(processes) = limits.processes else { return Ok(()) };
                set("pids.max", processes.to_string())?;
            }
        }
        Ok(())
    }

    /// A process that writes 0 to these is in the group.
    pub(crate) fn join_files(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.join("cgroup.procs")).collect()
    }

    /// Whether a process of the group was killed for want of memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let counter = self.oom_counter.as_ref().and_then(|file| fs::read_to_string(file).ok());
        counter.is_some_and(|counter| oom_kills(&counter) > 0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let is_left = |directory: &PathBuf| {
            fs::remove_dir(directory).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        };
        // The group of a command that has ended is usually empty, and removed at once.
        let mut left = std::mem::take(&mut self.directories);
        left.retain(is_left);
        if !left.is_empty() {
            std::thread::spawn(move || left.iter().for_each(|directory| end(directory)));
        }
    }
}

/// Kills everything in a group and removes it. Blocking.
pub(super) fn end(directory: &Path) {
    let give_up = Instant::now() + MAX_LEAVE;
    while let Err(error) = fs::remove_dir(directory) {
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        if Instant::now() > give_up {
            tracing::warn!(group = %directory.display(), %error, "a control group is left behind");
            return;
        }
        kill_all(directory);
        std::thread::sleep(LEAVE_PAUSE);
    }
}

fn kill_all(directory: &Path) {
    // Version 2 ends a whole group at once, also one that forks faster than it can be read.
    let kill = fs::OpenOptions::new().write(true).open(directory.join("cgroup.kill"));
    if kill.is_ok_and(|mut file| file.write_all(b"1").is_ok()) {
        return;
    }
    let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for id in processes.lines().filter_map(proc::parse_pid) {
        let _ = kill_process(id, Signal::KILL);
    }
}

/// Both versions have a line `oom_kill N`.
fn oom_kills(counters: &str) -> u64 {
    let count = counters.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain directories take the same writes, so that the words for each version can be read back.
    #[test]
    fn each_version_is_told_the_limits_in_its_own_words() {
        let limits = Limits { cpu_cores: Some(0.5), memory_bytes: Some(1 << 20), processes: Some(7) };
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("v1"), dir.path().join("v2"));
        let mut group = Cgroup::default();
        for controller in Controller::ALL {
            group.add(controller, Version::V1, &first, &limits).unwrap();
            group.add(controller, Version::V2, &second, &limits).unwrap();
        }
        let read = |path: &Path, file: &str| fs::read_to_string(path.join(file)).unwrap();
        assert_eq!(read(&first, "memory.limit_in_bytes"), "1048576");
        assert_eq!(read(&first, "cpu.cfs_quota_us"), "50000");
        assert_eq!(read(&first, "pids.max"), "7");
        assert_eq!(read(&second, "memory.max"), "1048576");
        assert_eq!(read(&second, "cpu.max"), "50000 100000");
        assert_eq!(read(&second, "pids.max"), "7");
        assert_eq!(group.join_files().len(), 2);
        assert!(!group.ran_out_of_memory());
        // What was written are plain files here, which no control group has.
        fs::remove_dir_all(&first).unwrap();
        fs::remove_dir_all(&second).unwrap();
    }

    #[test]
    fn kills_for_want_of_memory_are_counted_in_both_versions() {
        assert_eq!(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(oom_kills("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 1\n"), 1);
        assert_eq!(oom_kills(""), 0);
    }
}
