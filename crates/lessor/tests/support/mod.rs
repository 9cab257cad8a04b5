//! A real server for tests, and the command line to talk to it: the binary itself, on a free port, in a directory of
//! its own. Nothing here sleeps: the server says when it is ready, and is gone when it is waited for.

// Each test binary has its own copy of this module and uses a part of it.
#![allow(dead_code)]

#[path = "../../../server/tests/http/support/certificates.rs"]
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod documented;
pub(crate) mod fake;
pub(crate) mod gates;
pub(crate) mod protected;
pub(crate) mod proxy;
pub(crate) mod worker;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Longest wait for what takes a moment.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `lessor up`, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    address: String,
    is_tls: bool,
    /// Kept open: a server that cannot write to its standard output would fail for a reason of our making.
    stdout: BufReader<ChildStdout>,
    dir: TempDir,
}

impl Server {
    /// Starts on a free port, with new data.
    pub(crate) fn start() -> Server {
        Server::start_with(&[])
    }

    /// The same, with more arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Server {
        Server::start_in(tempfile::tempdir().unwrap(), "127.0.0.1:0", arguments)
    }

    /// Kills the server as a crash would, and starts it again with the same data, at the same address.
    pub(crate) fn crash_and_restart(mut self) -> Server {
        self.kill();
        let dir = self.leave();
        Server::start_in(dir, &self.address, &[])
    }

    /// Starts a killed server again, by a command for its directory.
    pub(crate) fn start_again(mut self, command: impl FnOnce(&Path) -> Command) -> Server {
        let dir = self.leave();
        Server::start_by(command(dir.path()), dir)
    }

    fn leave(&mut self) -> TempDir {
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }

    /// Starts with the data that is in the directory, and more arguments.
    pub(crate) fn start_in(dir: TempDir, listen: &str, arguments: &[&str]) -> Server {
        let mut command =
            lessor(&["up", "--segment-mib", "32", "--preallocate-mib", "1", "--listen", listen, "--data"]);
        command.arg(dir.path().join("data")).args(arguments);
        Server::start_by(command, dir)
    }

    /// Starts by a command that keeps its data in `data` below the directory.
    pub(crate) fn start_by(mut command: Command, dir: TempDir) -> Server {
        let log = File::options().create(true).append(true).open(dir.path().join("log")).unwrap();
        command.env("XDG_CACHE_HOME", dir.path().join("cache"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(" serves http") {
            line.clear();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let status = child.wait().unwrap();
                let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
                panic!("the server ended with {status} before it served:\n{log}");
            }
        }
        let address = std::fs::read_to_string(dir.path().join("data/listen")).unwrap().trim().to_owned();
        Server { child, address, is_tls: line.contains(" serves https://"), stdout, dir }
    }

    /// The rest of the banner, up to the line with this text.
    #[track_caller]
    pub(crate) fn banner_line(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the banner has no {text:?}");
        }
        line
    }

    /// Reads JSON as any other client would, and expects that it is there.
    pub(crate) fn get(&self, path: &str) -> Value {
        request(&self.url(), path, None)
    }

    /// The answer to a GET that is not JSON.
    pub(crate) fn text(&self, path: &str) -> String {
        let (status, text) = send(|client| client.get(format!("{}{path}", self.url())));
        assert!(status.is_success(), "{path}: {status} {text}");
        text
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.address)
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Asks it to stop, and waits: its exit code, and what it logged.
    pub(crate) fn terminate(mut self) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, std::fs::read_to_string(self.dir.path().join("log")).unwrap())
    }

    /// Waits until it ends by itself, or because of a signal.
    pub(crate) fn ended(&mut self) -> std::process::ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end: {}", self.log());
            std::thread::yield_now();
        }
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Sends a signal. Returns after SIGSTOP once every thread stands still, which takes a moment.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        use rustix::process::{Signal, WaitOptions, kill_process, waitpid};
        kill_process(self.pid(), signal).unwrap();
        if signal == Signal::STOP {
            let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
            assert!(status.stopped(), "it has ended: {status:?}");
        }
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Returns once the log has this text.
    pub(crate) fn until_logged(&self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.log().contains(text) {
            assert!(Instant::now() < until, "it does not log {text:?}: {}", self.log());
            std::thread::yield_now();
        }
    }

    /// Sends a POST that may fail, and returns whatever is answered before the connection ends.
    pub(crate) fn try_post(&self, path: &str, body: &Value) -> String {
        let body = body.to_string();
        self.try_send(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// The same for a GET.
    pub(crate) fn try_get(&self, path: &str) -> String {
        self.try_send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
    }

    fn try_send(&self, request: &str) -> String {
        let mut answer = Vec::new();
        if let Ok(mut stream) = std::net::TcpStream::connect(&self.address)
            && stream.write_all(request.as_bytes()).is_ok()
        {
            // A reset is an answer as well.
            let _ = stream.read_to_end(&mut answer);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Runs a client command against this server.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::from(self.command(arguments).output().unwrap())
    }

    /// The same, with something on standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self.spawn(arguments);
        // A command that does not want its input is free to close it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        Ran::from(child.wait_with_output().unwrap())
    }

    /// Starts a client command and lets it run.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// A client command that talks to this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = lessor(arguments);
        command.env("LESSOR_URL", self.url());
        command
    }

    /// Posts JSON as any other client would, and expects that it is done.
    pub(crate) fn post(&self, path: &str, body: Value) -> Value {
        request(&self.url(), path, Some(&body))
    }

    /// The same, on a thread of its own, for calls that wait.
    pub(crate) fn spawn_post(&self, path: &str, body: &Value) -> JoinHandle<Value> {
        let (url, path, body) = (self.url(), path.to_owned(), body.clone());
        std::thread::spawn(move || request(&url, &path, Some(&body)))
    }

    /// Stores a blob over the HTTP cache, and returns its path there.
    pub(crate) fn put_blob(&self, content: Vec<u8>) -> String {
        let path = format!("/cas/{}", data_encoding::HEXLOWER.encode(&Sha256::digest(&content)));
        let url = format!("{}{path}", self.url());
        let (status, text) = send(|client| client.put(&url).body(content));
        assert!(status.is_success(), "{url}: {status} {text}");
        path
    }

    /// Whether the HTTP cache has what is at this path.
    pub(crate) fn has_blob(&self, path: &str) -> bool {
        let url = format!("{}{path}", self.url());
        send(|client| client.head(&url)).0.is_success()
    }

    /// Returns once a worker has asked for work, and so waits in a poll or was served.
    pub(crate) fn until_a_worker_asked(&self) {
        while self.get("/v1/workers")["workers"].as_array().unwrap().is_empty() {
            std::thread::yield_now();
        }
    }

    /// Leases the next task of a queue, waiting for it, as worker `w1`.
    pub(crate) fn lease(&self, queue: &str) -> Value {
        let body = serde_json::json!({"workerId": "w1", "queues": [queue], "waitMs": 30_000});
        self.post("/v1/leases", body)["leases"][0].clone()
    }

    pub(crate) fn complete(&self, lease: &Value, result: Value) {
        let body = serde_json::json!({"workerId": "w1", "result": result});
        self.post(&format!("/v1/leases/{}/complete", lease["leaseId"].as_str().unwrap()), body);
    }

    pub(crate) fn fail(&self, lease: &Value, reason: &str) {
        let body = serde_json::json!({"workerId": "w1", "reason": reason, "retryable": false});
        self.post(&format!("/v1/leases/{}/fail", lease["leaseId"].as_str().unwrap()), body);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn request(url: &str, path: &str, body: Option<&Value>) -> Value {
    let url = format!("{url}{path}");
    let (status, text) = send(|client| match body {
        Some(body) => client.post(&url).json(body),
        None => client.get(&url),
    });
    assert!(status.is_success(), "{url}: {status} {text}");
    serde_json::from_str(&text).unwrap()
}

/// Sends a request and returns the answer as text.
fn send(request: impl FnOnce(&reqwest::Client) -> reqwest::RequestBuilder) -> (reqwest::StatusCode, String) {
    let (status, _, text) = send_for_headers(request);
    (status, text)
}

/// The same, with the headers of the answer.
pub(crate) fn send_for_headers(
    request: impl FnOnce(&reqwest::Client) -> reqwest::RequestBuilder,
) -> (reqwest::StatusCode, reqwest::header::HeaderMap, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = request(&client).send().await.unwrap();
        (response.status(), response.headers().clone(), response.text().await.unwrap())
    })
}

/// The binary, with nothing of the caller's environment that could change what it does.
pub(crate) fn lessor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lessor"));
    command.args(arguments);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LESSOR_")) {
        command.env_remove(name);
    }
    command
}

/// The output and exit code of a command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().expect("a signal ended it"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// Expects success.
    #[track_caller]
    pub(crate) fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Expects a failure with this exit code, nothing on standard output, and these texts on standard error.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, expected: &[&str]) -> Ran {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{self:?}");
        for part in expected {
            assert!(self.stderr.contains(part), "{part:?} is missing: {self:?}");
        }
        self
    }

    /// Standard output as one JSON document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
