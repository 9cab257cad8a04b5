//! A real engine of its own for a test: dockerd or Podman in a directory and in namespaces of its own, so that nothing
//! of it, or of its containers, outlives the test.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The name of the one image that it has.
pub const IMAGE: &str = "localhost/lessor-test:1";
const PODMAN_GROUPS: &str = "libpod_parent";
const MAX_START: Duration = Duration::from_secs(60);
const MAX_STOP: Duration = Duration::from_secs(15);
const PROGRAMS: [&str; 19] = [
    "sh", "cat", "chmod", "dd", "echo", "env", "false", "grep", "head", "id", "ls", "rm", "setsid", "sleep",
    "true", "wc", "xargs", "touch", "tr",
];

pub struct TestEngine {
    pub socket: PathBuf,
    process: Child,
    groups: String,
    _dir: TempDir,
}

impl TestEngine {
    pub fn dockerd() -> TestEngine {
        let dir = tempfile::tempdir().unwrap();
        let groups = format!("lessor-test-{}", std::process::id());
        let at = |name: &str| dir.path().join(name).display().to_string();
        let arguments = [
            "dockerd",
            "--iptables=false",
            "--ip6tables=false",
            "--bridge=none",
            "--storage-driver=overlay2",
            "--cgroup-parent",
            &format!("/{groups}"),
            "--host",
            &format!("unix://{}", at("socket")),
            "--data-root",
            &at("data"),
            "--exec-root",
            &at("exec"),
            "--pidfile",
            &at("pid"),
        ]
        .map(str::to_owned);
        let engine = TestEngine::start(dir, &arguments, groups);
        let host = format!("unix://{}", engine.socket.display());
        engine.import(Command::new("docker").args(["--host", &host, "import"]));
        engine
    }

    /// With runc, because the other runtime does not know machines with both versions of control groups.
    pub fn podman() -> TestEngine {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let url = format!("unix://{}", at("socket"));
        let arguments = [
            "podman",
            "--root",
            &at("root"),
            "--runroot",
            &at("run"),
            "--tmpdir",
            &at("tmp"),
            "--runtime",
            "runc",
            "--cgroup-manager",
            "cgroupfs",
            "--storage-driver",
            "overlay",
            "--events-backend",
            "file",
            "system",
            "service",
            "--time=0",
            &url,
        ]
        .map(str::to_owned);
        let engine = TestEngine::start(dir, &arguments, PODMAN_GROUPS.to_owned());
        engine.import(Command::new("podman").args(["--remote", "--url", &url, "import"]));
        engine
    }

    pub fn is_podman(&self) -> bool {
        self.groups == PODMAN_GROUPS
    }

    /// It dies with the thread of the test, and everything that it started dies with it.
    fn start(dir: TempDir, arguments: &[String], groups: String) -> TestEngine {
        let (socket, log) = (dir.path().join("socket"), dir.path().join("log"));
        let output = fs::File::create(&log).unwrap();
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        // Podman's monitor leaves its marks where the engine was started.
        command.args(arguments).current_dir(dir.path());
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let mut process = command.spawn().unwrap();
        let give_up = Instant::now() + MAX_START;
        while !answers(&socket) {
            let is_over = process.try_wait().unwrap().is_some() || Instant::now() > give_up;
            assert!(!is_over, "{} does not answer: {}", arguments[0], fs::read_to_string(&log).unwrap());
            std::thread::yield_now();
        }
        TestEngine { socket, process, groups, _dir: dir }
    }

    /// One image with busybox in it.
    fn import(&self, command: &mut Command) {
        let root = tempfile::tempdir().unwrap();
        for directory in ["bin", "build", "dev", "etc", "proc", "sys", "tmp"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(root.path().join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::copy("/bin/busybox", root.path().join("bin/busybox")).unwrap();
        for program in PROGRAMS {
            symlink("busybox", root.path().join("bin").join(program)).unwrap();
        }
        let archive = root.path().join("archive.tar");
        let tar = Command::new("tar")
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(root.path())
            .arg("bin")
            .args(["build", "dev", "etc", "proc", "sys", "tmp"])
            .status();
        assert!(tar.unwrap().success());
        let imported = command.arg(&archive).arg(IMAGE).stdin(Stdio::null()).output().unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.process.id());
        let engine = fs::read_to_string(children).unwrap_or_default();
        let _ = Command::new("kill").arg("-TERM").args(engine.split_whitespace()).status();
        let give_up = Instant::now() + MAX_STOP;
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < give_up {
            std::thread::yield_now();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            remove_groups(&hierarchy.path().join(&self.groups));
        }
    }
}

/// Only empty ones can be removed.
fn remove_groups(group: &Path) {
    for below in fs::read_dir(group).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        remove_groups(&below.path());
    }
    let _ = fs::remove_dir(group);
}

fn answers(socket: &Path) -> bool {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::os::unix::net::UnixStream::connect(socket) else { return false };
    let asked = stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n");
    let mut answer = String::new();
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("200 OK")
}
