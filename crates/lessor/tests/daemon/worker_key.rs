//! A worker in its own process with a key that has the role `worker` and no other: it reads the inputs of what it holds, and
//! its outputs reach whoever asked for them.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Ran, Server, lessor};
use crate::support_worker::{Worker, until};

const SMALL: [&str; 4] = ["--segment-mib", "32", "--preallocate-mib", "1"];

/// A server that admits holders of keys only, and its keys.
struct Keyed {
    server: Server,
    admin: String,
}

fn up(dir: &Path, listen: &str) -> Command {
    let mut command = lessor(&["up", "--no-worker", "--auth", "keys", "--listen", listen, "--data"]);
    command.arg(dir.join("data")).args(SMALL);
    command
}

impl Keyed {
    fn start() -> Keyed {
        let dir = tempfile::tempdir().unwrap();
        let init = lessor(&["init", "--data"]).arg(dir.path().join("data")).args(SMALL).output().unwrap();
        let admin = Ran::from(init).ok().stdout.trim().to_owned();
        let server = Server::start_by(up(dir.path(), "127.0.0.1:0"), dir);
        Keyed { server, admin }
    }

    fn key(&self, role: &str) -> String {
        let create = ["key", "create", "--tenant", "default", "--name", role, "--role", role];
        let mut command = self.server.command(&create);
        let created = command.env("LESSOR_API_KEY", &self.admin).output().unwrap();
        Ran::from(created).ok().stdout.trim().to_owned()
    }

    fn worker(&self, dir: &Path, key: &str) -> Worker {
        let arguments = ["--server-url", &self.server.url(), "--queue", "exec", "--queue", "jobs"];
        Worker::start_with_env(dir, &arguments, &[("LESSOR_API_KEY", key)])
    }

    /// Runs a script with the inputs of a directory.
    fn run(&self, key: &str, dir: &Path, outputs: &[&str], script: &str) -> Command {
        let mut command = self.server.command(&["run", "--input", "in"]);
        command.args(outputs.iter().flat_map(|output| ["--output", output]));
        command.args(["--", "sh", "-c", script]).current_dir(dir).env("LESSOR_API_KEY", key);
        command
    }
}

fn inputs(dir: &Path) -> Vec<u8> {
    fs::create_dir_all(dir.join("in/a/b/c")).unwrap();
    for n in 0..50 {
        fs::write(dir.join(format!("in/a/b/f{n}")), format!("content of {n}")).unwrap();
    }
    fs::write(dir.join("in/a/b/c/empty"), "").unwrap();
    let large: Vec<u8> = (0..6_000_000_u32).map(|n| (n % 251) as u8).collect();
    fs::write(dir.join("in/large"), &large).unwrap();
    large
}

#[test]
fn a_worker_with_the_role_worker_alone_builds_with_nested_inputs_and_output_directories() {
    let (keyed, dir, work) = (Keyed::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let builder = keyed.key("builder");
    let worker = keyed.worker(work.path(), &keyed.key("worker"));
    let large = inputs(dir.path());
    let script = "mkdir -p out/deep/er; cp -r a out/; cat large large > out/deep/twice; echo new > out/deep/er/new; cp large copy; \
                  seq 100000; seq 50000 >&2";
    let ran = keyed.run(&builder, dir.path(), &["out", "copy"], script).output().unwrap();
    let ran = Ran::from(ran);
    assert_eq!(ran.code, 0, "{ran:?}\n{}", worker.log());
    assert_eq!(ran.stdout.lines().count(), 100_000);
    let out = dir.path().join("out");
    assert_eq!(fs::read(dir.path().join("copy")).unwrap(), large);
    assert_eq!(fs::read(out.join("deep/twice")).unwrap(), [large.clone(), large].concat());
    assert_eq!(fs::read_to_string(out.join("a/b/f7")).unwrap(), "content of 7");
    assert_eq!(fs::read_to_string(out.join("deep/er/new")).unwrap(), "new\n");
    // The inputs are in the cache of the worker, and most of the outputs were uploaded before.
    fs::remove_dir_all(&out).unwrap();
    let ran = keyed.run(&builder, dir.path(), &["out"], &format!("{script}; true")).output().unwrap();
    assert_eq!(Ran::from(ran).ok().stdout.lines().count(), 100_000, "{}", worker.log());
    assert_eq!(fs::read_to_string(out.join("a/b/f49")).unwrap(), "content of 49");
    assert_eq!(worker.terminate(), Some(0));
}

/// The worker uploads after the restart what it made before it.
#[test]
fn a_worker_with_the_role_worker_alone_works_on_while_the_server_restarts() {
    let (mut keyed, dir, work) = (Keyed::start(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let builder = keyed.key("builder");
    let worker = keyed.worker(work.path(), &keyed.key("worker"));
    inputs(dir.path());
    let (started, go) = (dir.path().join("started"), dir.path().join("go"));
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let script =
        format!("touch {started:?}; read line < {go:?}; mkdir out; cp large out/; echo done > out/done");
    let mut command = keyed.run(&builder, dir.path(), &["out"], &script);
    let running = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until(|| started.exists().then_some(()));
    let address = keyed.server.address();
    keyed.server.kill();
    // The command ends while nobody serves.
    drop(File::options().write(true).open(&go).unwrap());
    keyed.server = keyed.server.start_again(|dir| up(dir, &address));
    let ran = Ran::from(running.wait_with_output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}\n{}", worker.log());
    assert_eq!(fs::read_to_string(dir.path().join("out/done")).unwrap(), "done\n");
    assert_eq!(fs::metadata(dir.path().join("out/large")).unwrap().len(), 6_000_000);
    assert_eq!(worker.terminate(), Some(0));
}
