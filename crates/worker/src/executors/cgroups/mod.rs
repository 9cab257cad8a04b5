//! Control groups, which enforce a command's limits and show whether it ran out of memory: version 1, version 2, or a
//! mixture, found for each controller.
//!
//! The groups of a worker are in one directory that is named after it, so that those of a dead worker can be found.

mod group;
pub(crate) mod mounts;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Limits;
pub(super) use group::Cgroup;
use mounts::Mounts;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    const ALL: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

    pub(super) fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Pids => "pids",
        }
    }

    fn is_wanted(self, limits: &Limits) -> bool {
        match self {
            Controller::Memory => limits.memory_bytes.is_some(),
            Controller::Cpu => limits.cpu_cores.is_some(),
            Controller::Pids => limits.processes.is_some(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ControllerDir {
    controller: Controller,
    version: Version,
    /// The worker's own directory in the controller's hierarchy.
    parent: PathBuf,
}

impl ControllerDir {
    /// The directory may exist already.
    fn make(&self) -> io::Result<()> {
        make_directory(&self.parent)?;
        match self.version {
            Version::V1 => Ok(()),
            Version::V2 => mounts::enable(&self.parent, self.controller.name()),
        }
    }
}

#[derive(Debug)]
pub(super) struct Cgroups {
    controllers: Vec<ControllerDir>,
    next: AtomicU64,
}

impl Cgroups {
    /// The usable controllers for these limits; there may be none. `key` is unique to this worker.
    pub(super) fn open(key: &str, limits: &Limits) -> Cgroups {
        let mounts = Mounts::read().unwrap_or_default();
        let directory = |controller| Cgroups::controller_dir(&mounts, controller, key, limits);
        Cgroups {
            controllers: Controller::ALL.into_iter().filter_map(directory).collect(),
            next: AtomicU64::new(1),
        }
    }

    fn controller_dir(
        mounts: &Mounts,
        controller: Controller,
        key: &str,
        limits: &Limits,
    ) -> Option<ControllerDir> {
        let name = controller.name();
        let (version, base) = mounts.of(name)?;
        let parent = base.join(format!("lessor-{key}"));
        if !controller.is_wanted(limits) {
            // There may be groups to remove from when it was wanted.
            return parent.is_dir().then_some(ControllerDir { controller, version, parent });
        }
        if version == Version::V2 {
            mounts::enable(&base, name).ok()?;
        }
        let directory = ControllerDir { controller, version, parent };
        directory.make().ok()?;
        Some(directory)
    }

    pub(super) fn lacks(&self, limits: &Limits) -> Vec<Controller> {
        let has = |controller| self.controllers.iter().any(|directory| directory.controller == controller);
        Controller::ALL.into_iter().filter(|one| one.is_wanted(limits) && !has(*one)).collect()
    }

    /// A group for one command, with the controllers that are usable. Names that exist are skipped: they are of a dead
    /// process, or of a running worker while this process is `lessor worker check`.
    pub(super) fn make(&self, limits: &Limits) -> io::Result<Cgroup> {
        let mut is_restored = false;
        loop {
            match self.make_next(limits) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // A `lessor worker check` has removed the directory when it ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !is_restored => {
                    self.controllers.iter().try_for_each(ControllerDir::make)?;
                    is_restored = true;
                }
                made => return made,
            }
        }
    }

    fn make_next(&self, limits: &Limits) -> io::Result<Cgroup> {
        let name = self.next.fetch_add(1, Ordering::Relaxed).to_string();
        let mut group = Cgroup::default();
        for directory in self.controllers.iter().filter(|directory| directory.controller.is_wanted(limits)) {
            group.add(directory.controller, directory.version, &directory.parent.join(&name), limits)?;
        }
        Ok(group)
    }

    /// Ends and removes the groups that a dead process of this worker left.
    pub(super) fn clear(&self) {
        for directory in &self.controllers {
            let Ok(entries) = fs::read_dir(&directory.parent) else { continue };
            for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
                group::end(&entry.path());
            }
        }
    }
}

impl Drop for Cgroups {
    /// A group that still has groups in it stays, and is cleared at the next start.
    fn drop(&mut self) {
        for directory in &self.controllers {
            let _ = fs::remove_dir(&directory.parent);
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_without_its_controller_is_named() {
        let directory =
            ControllerDir { controller: Controller::Cpu, version: Version::V1, parent: PathBuf::new() };
        let groups = Cgroups { controllers: vec![directory], next: AtomicU64::new(1) };
        let limits = Limits { cpu_cores: Some(1.0), memory_bytes: Some(1), processes: None };
        assert_eq!(groups.lacks(&limits), [Controller::Memory]);
        assert_eq!(groups.lacks(&Limits::default()), []);
    }

    /// Plain directories stand for groups.
    #[test]
    fn w12_what_a_dead_worker_left_does_not_keep_the_next_one_from_starting() {
        let dir = tempfile::tempdir().unwrap();
        let [cpu, memory] = ["cpu", "memory"].map(|name| dir.path().join(name));
        fs::create_dir_all(cpu.join("2")).unwrap();
        fs::create_dir_all(memory.join("1")).unwrap();
        let directory = |controller, parent: &PathBuf| ControllerDir {
            controller,
            version: Version::V1,
            parent: parent.clone(),
        };
        let controllers = vec![directory(Controller::Cpu, &cpu), directory(Controller::Memory, &memory)];
        let groups = Cgroups { controllers, next: AtomicU64::new(1) };
        let limits = Limits { cpu_cores: Some(1.0), memory_bytes: Some(1), processes: None };
        let group = groups.make(&limits).unwrap();
        let files = |n: u32| [&cpu, &memory].map(|parent| parent.join(format!("{n}/cgroup.procs")));
        assert_eq!(group.join_files(), files(3));
        fs::remove_dir_all(&cpu).unwrap();
        fs::remove_dir_all(&memory).unwrap();
        let group = groups.make(&limits).unwrap();
        assert_eq!(group.join_files(), files(5), "the fourth was not to be had");
    }
}
