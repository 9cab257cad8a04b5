//! A real container engine: dockerd or Podman in a directory and in namespaces of its own, so that nothing of it, or of
//! its containers, outlives a test.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

/// The name of the one image that it has.
pub const IMAGE: &str = "localhost/lessor-test:1";
const PODMAN_GROUPS: &str = "libpod_parent";
const MAX_START: Duration = Duration::from_secs(60);
const MAX_STOP: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// All of them busybox.
const PROGRAMS: [&str; 19] = [
    "sh", "cat", "chmod", "dd", "echo", "env", "false", "grep", "head", "id", "ls", "rm", "setsid", "sleep",
    "true", "wc", "xargs", "touch", "tr",
];
const IMAGE_DIRECTORIES: [&str; 7] = ["bin", "build", "dev", "etc", "proc", "sys", "tmp"];

pub struct Engine {
    pub socket: PathBuf,
    process: Child,
    groups: String,
    _dir: TempDir,
}

impl Engine {
    pub fn dockerd() -> Result<Engine> {
        let dir = tempfile::tempdir()?;
        let groups = format!("test-engine-{}", std::process::id());
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
        let engine = Engine::start(dir, &arguments, groups)?;
        engine.import()?;
        Ok(engine)
    }

    /// With runc, because the other runtime does not know machines with both versions of control groups.
    pub fn podman() -> Result<Engine> {
        let dir = tempfile::tempdir()?;
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
        let engine = Engine::start(dir, &arguments, PODMAN_GROUPS.to_owned())?;
        engine.import()?;
        Ok(engine)
    }

    pub fn is_podman(&self) -> bool {
        self.groups == PODMAN_GROUPS
    }

    /// The engine's own command line.
    fn client(&self) -> Command {
        let url = format!("unix://{}", self.socket.display());
        let (program, address): (&str, &[&str]) = if self.is_podman() {
            ("podman", &["--remote", "--url", &url])
        } else {
            ("docker", &["--host", &url])
        };
        let mut command = Command::new(program);
        command.args(address);
        command
    }

    /// The containers that it has, whatever they do.
    pub fn containers(&self) -> Result<Vec<String>> {
        let listed = output_of(self.client().args(["ps", "--all", "--format", "{{.ID}} {{.Status}}"]))?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// It dies with the thread that starts it, and everything that it started dies with it.
    fn start(dir: TempDir, arguments: &[String], groups: String) -> Result<Engine> {
        let (socket, log) = (dir.path().join("socket"), dir.path().join("log"));
        let output = fs::File::create(&log)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--mount", "--fork", "--kill-child"]);
        // Podman's monitor leaves its marks where the engine was started.
        command.arg("--mount-proc").args(arguments).current_dir(dir.path());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let process = command.spawn().context("setpriv cannot be started")?;
        let mut engine = Engine { socket, process, groups, _dir: dir };
        let give_up = Instant::now() + MAX_START;
        while !answers(&engine.socket) {
            let is_over = engine.process.try_wait()?.is_some() || Instant::now() > give_up;
            ensure!(!is_over, "{} does not answer: {}", arguments[0], fs::read_to_string(&log)?);
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(engine)
    }

    /// One image with busybox in it.
    fn import(&self) -> Result<()> {
        let root = tempfile::tempdir()?;
        for directory in IMAGE_DIRECTORIES {
            fs::create_dir(root.path().join(directory))?;
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))?;
        fs::set_permissions(root.path().join("tmp"), fs::Permissions::from_mode(0o1777))?;
        fs::copy("/bin/busybox", root.path().join("bin/busybox")).context("busybox is not installed")?;
        for program in PROGRAMS {
            symlink("busybox", root.path().join("bin").join(program))?;
        }
        let archive = root.path().join("archive.tar");
        let mut tar = Command::new("tar");
        output_of(tar.arg("-cf").arg(&archive).arg("-C").arg(root.path()).args(IMAGE_DIRECTORIES))?;
        output_of(self.client().arg("import").arg(&archive).arg(IMAGE))?;
        Ok(())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.process.id());
        let engine = fs::read_to_string(children).unwrap_or_default();
        let _ = Command::new("kill").arg("-TERM").args(engine.split_whitespace()).status();
        let give_up = Instant::now() + MAX_STOP;
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < give_up {
            std::thread::sleep(POLL_INTERVAL);
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
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    let asked = stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n");
    let mut answer = String::new();
    asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("200 OK")
}

fn output_of(command: &mut Command) -> Result<String> {
    let ended = command.stdin(Stdio::null()).output();
    let ended = ended.with_context(|| format!("{command:?} cannot be started"))?;
    ensure!(ended.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    Ok(String::from_utf8(ended.stdout)?)
}
