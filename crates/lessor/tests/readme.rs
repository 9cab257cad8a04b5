//! Runs the commands of README.md, in their order, against the real binary.
//!
//! A command that this test does not know fails the test, so README.md cannot gain a command that nothing runs. Bazel's flags
//! are compared with the flags in `clients/`, whose tests run Bazel.

mod support;

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use support::{Ran, Server};

/// The address in README.md. The test's server has another port.
const ADDRESS: &str = "127.0.0.1:8980";
const START: &str = "cargo run --release -- up";
const TEST: &str = "cargo xtask test";

#[test]
fn every_command_of_the_readme_does_what_the_readme_says() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    for command in [START, TEST] {
        assert!(readme.contains(&format!("\n    {command}\n")), "README.md lacks `{command}`");
    }
    let mut reader = Reader::new();
    let python = blocks(&readme, "python");
    fs::write(reader.dir.path().join("worker.py"), &python[0]).unwrap();
    for line in blocks(&readme, "sh").iter().flat_map(|block| block.lines()) {
        reader.follow(line);
    }
    assert!(reader.worker.is_some(), "README.md starts no worker");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The fenced blocks of one language.
fn blocks(readme: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let parts = readme.split(&opening).skip(1);
    parts.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Follows README.md in a temporary directory.
struct Reader {
    dir: tempfile::TempDir,
    /// None while the server is killed.
    server: Option<Server>,
    /// The killed server, with its data and address.
    killed: Option<Server>,
    /// The Python worker of README.md.
    worker: Option<Child>,
    /// The names in capitals in README.md, and their values in this run.
    placeholders: HashMap<&'static str, String>,
}

impl Reader {
    fn new() -> Reader {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(repository().join("sdk"), dir.path().join("sdk")).unwrap();
        fs::write(dir.path().join("hello.c"), "int main(void) { return 0; }\n").unwrap();
        let server = Some(Server::start());
        Reader { dir, server, killed: None, worker: None, placeholders: HashMap::new() }
    }

    /// Runs one command line.
    fn follow(&mut self, line: &str) {
        match line.split(' ').next().unwrap() {
            "bazel" => assert_bazel_flag_is_tested(line),
            "pkill" => {
                assert_eq!(line, "pkill -9 -x lessor");
                let mut server = self.server.take().unwrap();
                server.kill();
                self.killed = Some(server);
            }
            "cargo" => {
                assert_eq!(line, START);
                self.server = Some(self.killed.take().unwrap().crash_and_restart());
            }
            "curl" | "lessor" => self.run(line),
            _ if line.ends_with("python3 worker.py") => {
                let mut worker = self.shell(line);
                worker.process_group(0).stdout(Stdio::null());
                self.worker = Some(worker.spawn().unwrap());
            }
            _ => panic!("README.md has a command that no test runs: {line}"),
        }
    }

    fn run(&mut self, line: &str) {
        let ran = Ran::from(self.shell(line).output().unwrap()).ok();
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        if let Some(id) = answer["taskId"].as_str() {
            self.placeholders.insert("TASK_ID", id.to_owned());
        }
        if let Some(id) = answer["leases"][0]["leaseId"].as_str() {
            self.placeholders.insert("LEASE_ID", id.to_owned());
        }
        self.check(line, &ran, &answer);
    }

    /// Compares the output with what README.md says about the command.
    fn check(&self, line: &str, ran: &Ran, answer: &Value) {
        let has = |text: &str| assert!(ran.stdout.contains(text), "{text:?} is missing: {ran:?}");
        if line.contains("/v1/tasks -d") {
            has(r#""state":"WAITING""#);
        } else if line.contains("/v1/leases -d") {
            let lease = &answer["leases"][0];
            assert_eq!((&lease["attempt"], &lease["heartbeatIntervalMs"]), (&1.into(), &20_000.into()));
            has(r#""payload":{"to":"ada@example.com"}"#);
        } else if line.contains("/complete -d") {
            assert_eq!((&answer["verdict"], &answer["state"]), (&"COMMITTED".into(), &"COMPLETED".into()));
            let repeated = Ran::from(self.shell(line).output().unwrap()).ok();
            assert_eq!(repeated.stdout, ran.stdout, "the same report gets the same verdict");
            let changed = Ran::from(self.shell(&line.replace("sent", "lost")).output().unwrap());
            assert_eq!(changed.json()["verdict"], "REJECTED", "{changed:?}");
        } else if line.starts_with("lessor task list") {
            has(&self.placeholders["TASK_ID"]);
        } else if line.starts_with("lessor task history") || line.starts_with("lessor log explain") {
            has("w1");
        } else if line.starts_with("lessor submit") {
            has("sent to ada@example.com");
        } else if line.starts_with("lessor run") {
            assert!(Command::new(self.dir.path().join("hello")).status().unwrap().success());
            let again = Ran::from(self.shell(line).output().unwrap()).ok();
            assert!(again.stderr.contains("cached"), "the same command does not run twice: {again:?}");
        } else {
            panic!("no expectation for `{line}`");
        }
    }

    /// The line in a shell, in the reader's directory, with `lessor` on the path, and with this run's address and ids.
    fn shell(&self, line: &str) -> Command {
        let server = self.server.as_ref().expect("the server was not started again");
        let mut line = line.replace(ADDRESS, &server.address());
        for (placeholder, value) in &self.placeholders {
            line = line.replace(placeholder, value);
        }
        let binaries = Path::new(env!("CARGO_BIN_EXE_lessor")).parent().unwrap();
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LESSOR_")) {
            command.env_remove(name);
        }
        command.args(["-c", &line]).current_dir(self.dir.path()).stdin(Stdio::null()).env("PATH", path);
        command.env("LESSOR_URL", server.url()).env("LESSOR_DATA", server.data());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(worker) = &mut self.worker {
            let _ = kill_process_group(Pid::from_child(worker), Signal::KILL);
            let _ = worker.wait();
        }
    }
}

/// Bazel itself is run by the tests in `clients/`; README.md must name flags that these tests use.
fn assert_bazel_flag_is_tested(line: &str) {
    let (_, flag) = line.split_once(" --").unwrap();
    let (name, url) = flag.split_once('=').unwrap();
    assert_eq!(url, format!("grpc://{ADDRESS}"));
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let sources = ["executed.rs", "cached.rs"].map(|file| fs::read_to_string(clients.join(file)).unwrap());
    assert!(sources.concat().contains(&format!("\"--{name}=")), "no test in clients/ uses --{name}");
}
