//! Finds the cgroup hierarchies and this process's groups in them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use procfs::process::MountInfo;
use procfs::{FromRead, ProcessCGroup, ProcessCGroups};

use super::Version;

#[derive(Clone, Debug, Default)]
pub(crate) struct Mounts {
    mounts: Vec<MountInfo>,
    groups: Vec<ProcessCGroup>,
}

impl Mounts {
    pub(super) fn read() -> io::Result<Mounts> {
        let [mounts, groups] = ["/proc/self/mountinfo", "/proc/self/cgroup"].map(fs::read_to_string);
        Ok(Mounts::parse(&mounts?, &groups?))
    }

    /// Ignores lines that it cannot parse: they are not about cgroups.
    pub(crate) fn parse(mounts: &str, groups: &str) -> Mounts {
        let groups = ProcessCGroups::from_read(groups.as_bytes()).map_or(Vec::new(), |groups| groups.0);
        Mounts { mounts: mounts.lines().filter_map(|line| MountInfo::from_line(line).ok()).collect(), groups }
    }

    /// The directory of this process's group in the hierarchy that has the controller.
    pub(super) fn of(&self, controller: &str) -> Option<(Version, PathBuf)> {
        self.v1(controller).or_else(|| self.v2(controller))
    }

    fn v1(&self, controller: &str) -> Option<(Version, PathBuf)> {
        let (root, mount) = self.mount("cgroup", Some(controller))?;
        let own = self.groups.iter().find(|group| group.controllers.iter().any(|one| one == controller))?;
        Some((Version::V1, within(root, mount, &own.pathname)))
    }

    fn v2(&self, controller: &str) -> Option<(Version, PathBuf)> {
        let (root, mount) = self.mount("cgroup2", None)?;
        let own = self.groups.iter().find(|group| group.hierarchy == 0 && group.controllers.is_empty())?;
        let base = within(root, mount, &own.pathname);
        let there = fs::read_to_string(base.join("cgroup.controllers")).ok()?;
        there.split_whitespace().any(|one| one == controller).then_some((Version::V2, base))
    }

    /// The mounted part of a hierarchy, and its mount point.
    fn mount(&self, fs_type: &str, option: Option<&str>) -> Option<(&str, &Path)> {
        let has_option =
            |mount: &MountInfo| option.is_none_or(|option| mount.super_options.contains_key(option));
        let mount = self.mounts.iter().find(|mount| mount.fs_type == fs_type && has_option(mount))?;
        Some((&mount.root, &mount.mount_point))
    }
}

/// In a container the mount may show only a part of the hierarchy.
fn within(root: &str, mount: &Path, own: &str) -> PathBuf {
    let below = Path::new(own).strip_prefix(root).unwrap_or(Path::new(""));
    let group = mount.join(below.strip_prefix("/").unwrap_or(below));
    if group.is_dir() { group } else { mount.to_owned() }
}

/// Enables a controller for the children of a cgroup v2. A group with processes of its own cannot do so; if this process
/// is the only one, it moves into a child group.
pub(super) fn enable(group: &Path, controller: &str) -> io::Result<()> {
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
        Mounts::parse(&mounts, groups)
    }

    #[test]
    fn each_controller_is_found_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let below = |path: &str| dir.path().join(path);
        for path in ["memory/a/b", "cpu,cpuacct/c", "unified/d"] {
            fs::create_dir_all(below(path)).unwrap();
        }
        fs::write(below("unified/d/cgroup.controllers"), "cpuset pids\n").unwrap();
        let mounts = mounts(dir.path(), "4:memory:/a/b\n2:cpu,cpuacct:/part/c\n0::/d\n");
        assert_eq!(mounts.of("memory"), Some((Version::V1, below("memory/a/b"))));
        assert_eq!(mounts.of("cpu"), Some((Version::V1, below("cpu,cpuacct/c"))));
        assert_eq!(mounts.of("pids"), Some((Version::V2, below("unified/d"))));
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
