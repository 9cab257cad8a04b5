//! Follows docs/security.md and the refusal of an open address to the letter: the lines run as they are written, in a network
//! namespace where `build.example.com` is this machine and port 8980 is free.
//!
//! A block that this test does not know fails the test, so "Five minutes" cannot gain a line that nothing runs. Bazel and ccache are
//! run by the tests in `clients/`, with the same flags.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use support::Ran;
use support::documented::{CCACHE_LAYOUT, bazel_flags, ccache_storage};

const ADDRESS: &str = "build.example.com:8980";
/// Set for the Rust client on the machine of the server.
const RUST_CLIENT: &str = "SECURITY_DOCUMENT_CLIENT";
/// Longest wait for a worker to register.
const PATIENCE: Duration = Duration::from_secs(120);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The fenced blocks of "Five minutes", each with its language.
fn blocks() -> Vec<(String, String)> {
    let document = fs::read_to_string(repository().join("docs/security.md")).unwrap();
    let section = document.split("\n## Five minutes\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let fenced = section.split("```").skip(1).step_by(2);
    let block = |text: &str| {
        let (language, lines) = text.split_once('\n').unwrap();
        (language.to_owned(), lines.to_owned())
    };
    fenced.map(block).collect()
}

/// A directory on a machine of its own, in which nobody else listens. Removed when it is dropped.
struct Machine {
    name: String,
    dir: tempfile::TempDir,
}

impl Machine {
    fn new(name: &str) -> Machine {
        let name = format!("lessor-{}-{name}", std::process::id());
        let machine = Machine { name, dir: tempfile::tempdir().unwrap() };
        // The namespace sees these files in place of those in /etc.
        fs::create_dir_all(machine.files()).unwrap();
        fs::write(machine.files().join("hosts"), "127.0.0.1 localhost build.example.com\n").unwrap();
        for arguments in
            [["netns", "add", &*machine.name].to_vec(), vec!["-n", &machine.name, "link", "set", "lo", "up"]]
        {
            assert!(Command::new("ip").args(&arguments).status().unwrap().success(), "{arguments:?}");
        }
        machine
    }

    fn files(&self) -> PathBuf {
        Path::new("/etc/netns").join(&self.name)
    }

    /// A command on this machine, in its directory, with `lessor` on the path and nothing of the caller's settings.
    fn command(&self, program: &str) -> Command {
        let binaries = Path::new(env!("CARGO_BIN_EXE_lessor")).parent().unwrap();
        let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("ip");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LESSOR_")) {
            command.env_remove(name);
        }
        command.args(["netns", "exec", &self.name, program]).current_dir(self.dir.path());
        command.env("PATH", path).env("XDG_CACHE_HOME", self.dir.path().join("cache"));
        command.env("PYTHONPATH", repository().join("sdk/python/src")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.stdin(Stdio::null());
        command
    }

    fn shell(&self, lines: &str) -> Command {
        let mut command = self.command("bash");
        command.args(["-euo", "pipefail", "-c", lines]);
        command
    }

    /// Runs lines to their end, successfully.
    #[track_caller]
    fn run(&self, lines: &str) -> Ran {
        Ran::from(self.shell(lines).output().unwrap()).ok()
    }

    /// Starts lines that do not end.
    fn start(&self, lines: &str) -> Started {
        let log = fs::File::create(self.dir.path().join("log")).unwrap();
        let mut command = self.shell(lines);
        command.process_group(0).stdout(Stdio::piped()).stderr(log);
        Started(command.spawn().unwrap())
    }

    /// Starts a server, and waits until it serves.
    fn serve(&self, lines: &str) -> Started {
        let mut started = self.start(lines);
        let mut stdout = BufReader::new(started.0.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(" serves https://") {
            line.clear();
            if stdout.read_line(&mut line).unwrap() == 0 {
                panic!("{lines}\n{}", fs::read_to_string(self.dir.path().join("log")).unwrap());
            }
        }
        // It must be able to write on.
        std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
        started
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap().trim().to_owned()
    }

    /// Waits until this many workers are registered.
    fn until_workers(&self, count: usize) {
        let until = Instant::now() + PATIENCE;
        let list = format!(
            "lessor worker list --json --url https://{ADDRESS} --ca-file ca.pem --api-key-file jobs.key"
        );
        while self.run(&list).json()["workers"].as_array().unwrap().len() < count {
            assert!(Instant::now() < until, "{}", fs::read_to_string(self.dir.path().join("log")).unwrap());
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
        let _ = fs::remove_dir_all(self.files());
    }
}

/// A process and its children, killed when it is dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

#[test]
fn every_line_of_five_minutes_does_what_the_document_says() {
    let machine = Machine::new("document");
    let (mut server, mut worker, mut followed) = (None, None, Vec::new());
    for (language, lines) in blocks() {
        let step = match (&*language, &*lines) {
            ("sh", lines) if lines.starts_with("openssl ") => {
                machine.run(lines);
                "certificates"
            }
            ("sh", lines) if lines.contains("lessor init") => {
                server = Some(machine.serve(lines));
                "server"
            }
            ("sh", lines) if lines.contains("lessor key create") => {
                machine.run(lines);
                assert!(
                    ["jobs", "ci", "farm"]
                        .iter()
                        .all(|name| machine.read(&format!("{name}.key")).starts_with("lsk_"))
                );
                "keys"
            }
            ("sh", lines) if lines.contains("\ncurl ") => {
                assert_eq!(machine.run(lines).json()["state"], "WAITING");
                "curl"
            }
            ("sh", lines) if lines.contains("\nbazel ") => {
                let ran = machine.run(&format!("bazel() {{ printf '%s\\n' \"$@\"; }}\n{lines}"));
                let flags = bazel_flags(ADDRESS, "ca.pem", &machine.read("ci.key"));
                let expected = [&["build".to_owned(), "//...".to_owned()][..], &flags].concat();
                assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), expected);
                "Bazel"
            }
            ("sh", lines) if lines.contains("CCACHE_") => {
                let ran = machine.run(&format!("{lines}printf %s \"$CCACHE_REMOTE_STORAGE\""));
                let storage = ccache_storage(&machine.read("ci.key"), 8981);
                assert_eq!(ran.stdout, format!("{storage}{CCACHE_LAYOUT}"));
                "ccache"
            }
            ("sh", lines) if lines.starts_with("lessor worker daemon") => {
                worker = Some(machine.start(lines));
                // Besides the one of the server.
                machine.until_workers(2);
                "worker"
            }
            ("sh", lines) if lines.starts_with("lessor submit") => {
                let ran = machine.run(lines);
                assert_eq!(
                    ran.stdout.matches("WAITING").count(),
                    2,
                    "curl and the command line submitted: {ran:?}"
                );
                "command line"
            }
            ("python", lines) => {
                let ran = Ran::from(machine.command("python3").args(["-c", lines]).output().unwrap()).ok();
                assert_eq!((tasks(&machine), &*ran.stderr), (3, ""));
                "Python"
            }
            ("rust", lines) => {
                let source = fs::read_to_string(
                    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/security_document.rs"),
                );
                let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(
                    words(&source.unwrap()).contains(&words(lines)),
                    "this test must have these lines:\n{lines}"
                );
                let this = std::env::current_exe().unwrap();
                let mut client = machine.command(this.to_str().unwrap());
                client.args(["--exact", "the_rust_client_of_the_document"]).env(RUST_CLIENT, "1");
                Ran::from(client.output().unwrap()).ok();
                assert_eq!(tasks(&machine), 4);
                "Rust"
            }
            // The document says that Gradle is not served.
            ("groovy", _) => "Gradle",
            _ => panic!("docs/security.md has lines that no test runs:\n{lines}"),
        };
        followed.push(step);
    }
    assert!(server.is_some() && worker.is_some());
    let clients = ["curl", "Bazel", "ccache", "Gradle", "worker", "command line", "Python", "Rust"];
    assert_eq!(followed, [&["certificates", "server", "keys"][..], &clients].concat());
}

/// The number of tasks of the tenant.
fn tasks(machine: &Machine) -> usize {
    let list =
        format!("lessor task list --json --url https://{ADDRESS} --ca-file ca.pem --api-key-file jobs.key");
    machine.run(&list).json()["tasks"].as_array().unwrap().len()
}

/// A part of the test above, which runs it on the machine of its server. Elsewhere there is nothing to connect to.
#[tokio::test]
async fn the_rust_client_of_the_document() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::var_os(RUST_CLIENT).is_none() {
        return Ok(());
    }
    use lessor_sdk::{Address, Client, Credentials};

    let credentials = Credentials {
        ca_file: Some("ca.pem".into()),
        api_key_file: Some("jobs.key".into()),
        ..Credentials::default()
    };
    let url = Some("https://build.example.com:8980".to_owned());
    let client = Client::with(&Address { url, credentials, ..Address::default() })?;

    client.submit(lessor_sdk::Submit::new("mail", &serde_json::json!({"to": "ada@example.com"}))?).await?;
    Ok(())
}

/// The lines of the refusal that are set apart below a heading.
fn instructions(refusal: &str, heading: &str) -> String {
    let rest = refusal.split(heading).nth(1).unwrap_or_else(|| panic!("{heading:?} is missing: {refusal}"));
    let lines = rest.lines().skip(1).take_while(|line| line.starts_with("  "));
    lines.map(|line| format!("{}\n", line.trim_start())).collect()
}

#[test]
fn an_open_address_is_refused_and_the_instructions_of_the_refusal_lead_to_a_server() {
    let machine = Machine::new("refusal");
    let refused = Ran::from(machine.shell("lessor up --listen 0.0.0.0:8980").output().unwrap());
    let refusal = refused.fails(1, &["refusing to listen on 0.0.0.0:8980", "docs/security.md"]).stderr;
    // Where the refusal sends its reader for certificates.
    let (_, certificates) = blocks().remove(0);
    machine.run(&certificates);
    let _server = machine.serve(&instructions(&refusal, "API keys, best with TLS:"));
    let then = instructions(&refusal, "and from another terminal:");
    let key = machine.run(&then).stdout.trim().to_owned();
    assert!(key.starts_with("lsk_"), "{key}");
    let submit = "lessor submit mail 1 --url https://localhost:8980 --ca-file ca.pem";
    machine.run(&format!("export LESSOR_API_KEY={key}\n{submit}"));
    let denied = Ran::from(machine.shell(submit).output().unwrap());
    denied.fails(1, &["needs an API key"]);
}
