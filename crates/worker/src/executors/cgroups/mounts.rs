//! Where the hierarchies of control groups are mounted, and where in them this process is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Version;

#[derive(Clone, Debug, Default)]
pub struct Mounts {
    /// `/proc/self/mountinfo`.
    mounts: String,
    /// `/proc/self/cgroup`.
    groups: String,
}

impl Mounts {
    pub fn read() -> io::Result<Mounts> {
        Ok(Mounts {
            mounts: fs::read_to_string("/proc/self/mountinfo")?,
            groups: fs::read_to_string("/proc/self/cgroup")?,
        })
    }

    /// The directory of this process's group in the hierarchy that has the controller.
    pub fn of(&self, controller: &str) -> Option<(Version, PathBuf)> {
        self.first(controller).or_else(|| self.second(controller))
    }

    fn first(&self, controller: &str) -> Option<(Version, PathBuf)> {
        let (root, mount) = self.mount("cgroup", Some(controller))?;
        let own = self.groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers.split(',').any(|one| one == controller).then_some(path)
        })?;
        Some((Version::V1, within(root, mount, own)))
    }

    fn second(&self, controller: &str) -> Option<(Version, PathBuf)> {
        let (root, mount) = self.mount("cgroup2", None)?;
        let own = self.groups.lines().find_map(|line| line.strip_prefix("0::"))?;
        let base = within(root, mount, own);
        let there = fs::read_to_string(base.join("cgroup.controllers")).ok()?;
        there.split_whitespace().any(|one| one == controller).then_some((Version::V2, base))
    }

    /// What of the hierarchy is mounted, and where. After the fields of the mount come a dash, the kind of the file
    /// system, its source and its options.
    fn mount(&self, kind: &str, option: Option<&str>) -> Option<(&str, &Path)> {
        self.mounts.lines().find_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let mut system = system.split(' ');
            let is_kind = system.next() == Some(kind);
            let options = system.nth(1).unwrap_or_default();
            if !is_kind || option.is_some_and(|option| !options.split(',').any(|one| one == option)) {
                return None;
            }
            let mut mount = mount.split(' ').skip(3);
            Some((mount.next()?, Path::new(mount.next()?)))
        })
    }
}

/// In a container the mount may show only a part of the hierarchy.
fn within(root: &str, mount: &Path, own: &str) -> PathBuf {
    let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
    let place = mount.join(below.strip_prefix("/").unwrap_or(below));
    if place.is_dir() { place } else { mount.to_owned() }
}

/// Lets the groups below a group of version 2 use a controller. A group that has processes itself cannot do so; where
/// that is this process alone, it goes into a group of its own.
pub fn enable(group: &Path, controller: &str) -> io::Result<()> {
    let control = group.join("cgroup.subtree_control");
    let enable = || fs::write(&control, format!("+{controller}"));
    let Err(error) = enable() else { return Ok(()) };
    let here = fs::read_to_string(group.join("cgroup.procs"))?;
    if here.trim() != std::process::id().to_string() {
        return Err(error);
    }
    let own = group.join("lessor-worker");
    super::make_directory(&own)?;
    fs::write(own.join("cgroup.procs"), "0")?;
    enable()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(dir: &Path, groups: &str) -> Mounts {
        let dir = dir.display();
        let mounts = format!(
            "25 30 0:23 / /proc rw - proc proc rw\n\
             33 24 0:28 / {dir}/memory rw shared:15 - cgroup cgroup rw,memory\n\
             34 24 0:29 /part {dir}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             35 24 0:30 / {dir}/unified rw - cgroup2 cgroup2 rw\n"
        );
        Mounts { mounts, groups: groups.to_owned() }
    }

    #[test]
    fn each_controller_is_found_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let place = |path: &str| dir.path().join(path);
        for path in ["memory/a/b", "cpu,cpuacct/c", "unified/d"] {
            fs::create_dir_all(place(path)).unwrap();
        }
        fs::write(place("unified/d/cgroup.controllers"), "cpuset pids\n").unwrap();
        let mounts = mounts(dir.path(), "4:memory:/a/b\n2:cpu,cpuacct:/part/c\n0::/d\n");
        assert_eq!(mounts.of("memory"), Some((Version::V1, place("memory/a/b"))));
        assert_eq!(mounts.of("cpu"), Some((Version::V1, place("cpu,cpuacct/c"))));
        assert_eq!(mounts.of("pids"), Some((Version::V2, place("unified/d"))));
        assert_eq!(mounts.of("io"), None);
        assert_eq!(Mounts::default().of("memory"), None);
    }

    #[test]
    fn a_group_that_cannot_be_seen_from_here_is_that_of_the_mount() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("memory")).unwrap();
        let mounts = mounts(dir.path(), "4:memory:/outside/of/here\n");
        assert_eq!(mounts.of("memory"), Some((Version::V1, dir.path().join("memory"))));
    }
}
