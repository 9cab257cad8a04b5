//! Debian's Bazel, offline, in directories of its own. Its server is shut down when it is dropped.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::fake_repositories;
use crate::workspace::Workspace;
use crate::{client, succeeded};

/// Where Debian keeps the repositories that Bazel would otherwise download.
const DEBIAN_REPOSITORIES: [(&str, &str); 2] =
    [("platforms", "/usr/share/bazel/tools/platforms"), ("bazel_skylib", "/usr/share/bazel/tools/skylib")];

pub(crate) struct Bazel {
    dir: TempDir,
    startup_options: Vec<String>,
}

impl Bazel {
    pub(crate) fn new(workspace: &Workspace) -> Bazel {
        let dir = tempfile::tempdir().unwrap();
        workspace.write(&dir.path().join("workspace"));
        fake_repositories::write(&dir.path().join("fake_repositories"));
        Bazel { dir, startup_options: Vec::new() }
    }

    pub(crate) fn with_startup_options(mut self, options: impl IntoIterator<Item = String>) -> Bazel {
        self.startup_options = options.into_iter().collect();
        self
    }

    /// Builds and tests everything, successfully.
    #[track_caller]
    pub(crate) fn test(&self, flags: &[&str]) -> Processes {
        let output = self.build_command("test", flags).output().unwrap();
        Processes::of(&succeeded(&output))
    }

    /// The exit code and the output of a test of everything that does not succeed.
    pub(crate) fn failing_test(&self, flags: &[&str]) -> (Option<i32>, String) {
        let output = self.build_command("test", flags).output().unwrap();
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Starts to build everything.
    pub(crate) fn spawn_build(&self, flags: &[&str]) -> Child {
        let mut command = self.build_command("build", flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Forgets everything that was built here.
    #[track_caller]
    pub(crate) fn clean(&self) {
        succeeded(&self.command("clean").output().unwrap());
    }

    fn build_command(&self, verb: &str, flags: &[&str]) -> Command {
        let mut command = self.command(verb);
        command.args(["--color=no", "--curses=no", "--noshow_progress", "--symlink_prefix=/"]);
        // Else the keys of actions depend on who runs the tests.
        command.arg("--incompatible_strict_action_env");
        let fake_repositories = fake_repositories::REPOSITORIES
            .map(|name| (name, self.dir.path().join("fake_repositories").join(name)));
        let debian = DEBIAN_REPOSITORIES.map(|(name, path)| (name, PathBuf::from(path)));
        for (name, path) in fake_repositories.into_iter().chain(debian) {
            command.arg(format!("--override_repository={name}={}", path.display()));
        }
        command.args(flags).arg("//...");
        command
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = client("bazel", self.dir.path());
        // The system's settings are read: Debian says there where Bazel itself is.
        command.args(["--nohome_rc", "--noworkspace_rc", "--max_idle_secs=300"]);
        command.args(&self.startup_options);
        for (option, place) in [("output_user_root", "user"), ("output_base", "base")] {
            command.arg(format!("--{option}={}", self.dir.path().join(place).display()));
        }
        command.arg(verb).current_dir(self.dir.path().join("workspace"));
        command
    }
}

impl Drop for Bazel {
    fn drop(&mut self) {
        let _ = self.command("shutdown").output();
    }
}

/// How many processes of a build ran in which way, as Bazel's closing line says.
#[derive(Debug, PartialEq)]
pub(crate) struct Processes(BTreeMap<String, usize>);

impl Processes {
    /// Reads a line like `INFO: 64 processes: 52 remote cache hit, 12 internal.`
    #[track_caller]
    pub(crate) fn of(text: &str) -> Processes {
        let counts = text.lines().rev().find_map(|line| {
            let (_, counts) = line.split_once(" processes: ").or_else(|| line.split_once(" process: "))?;
            counts.trim_end_matches('.').split(", ").map(counted).collect::<Option<_>>()
        });
        Processes(counts.unwrap_or_else(|| panic!("Bazel did not say what it ran:\n{text}")))
    }

    pub(crate) fn count(&self, way: &str) -> usize {
        self.0.get(way).copied().unwrap_or(0)
    }

    /// All but those that Bazel does within itself, which no server ever sees.
    pub(crate) fn actions(&self) -> usize {
        self.0.iter().filter(|(way, _)| *way != "internal").map(|(_, count)| count).sum()
    }

    /// Expects that every action was done in one way, and gives their number.
    #[track_caller]
    pub(crate) fn all(&self, way: &str) -> usize {
        assert_eq!(self.count(way), self.actions(), "not all are `{way}`: {self:?}");
        self.actions()
    }
}

fn counted(part: &str) -> Option<(String, usize)> {
    let (count, way) = part.split_once(' ')?;
    Some((way.to_owned(), count.parse().ok()?))
}

#[test]
fn the_closing_line_is_read_by_numbers() {
    let processes =
        Processes::of("INFO: x\nINFO: 64 processes: 12 internal, 52 remote cache hit.\nINFO: done");
    assert_eq!((processes.all("remote cache hit"), processes.count("remote")), (52, 0));
    assert_eq!(Processes::of("INFO: 1 process: 1 internal.").actions(), 0);
}
