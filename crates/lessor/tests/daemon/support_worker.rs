//! A worker's process, a server without one of its own, and a line between them that can be cut.

use std::fs::File;
use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Server, lessor};

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server that leaves all work to others.
pub(crate) fn server() -> Server {
    Server::start_in(tempfile::tempdir().unwrap(), "127.0.0.1:0", &["--no-worker"])
}

/// The same, and it loses workers that are silent for so many seconds.
pub(crate) fn server_with_heartbeat_timeout(seconds: u64) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let (config, data) = (dir.path().join("server.toml"), dir.path().join("data"));
    let file = format!(
        "[server]\naddress = \"127.0.0.1:0\"\n[data]\ndir = {data:?}\nsegment_mib = 32\npreallocate_mib = 1\n\
         [execution.scheduler]\nheartbeat_timeout_seconds = {seconds}\n"
    );
    std::fs::write(&config, file).unwrap();
    let mut command = lessor(&["serve", "--init", "--config"]);
    command.arg(&config);
    Server::start_by(command, dir)
}

/// Waits until something is so. Nothing sleeps: the looks themselves take their time.
#[track_caller]
pub(crate) fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it never happened");
        std::thread::yield_now();
    }
}

pub(crate) fn task(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/tasks/{id}"))
}

/// Submits a task and gives its id.
pub(crate) fn submit(server: &Server, body: Value) -> String {
    server.post("/v1/tasks", body)["taskId"].as_str().unwrap().to_owned()
}

#[track_caller]
pub(crate) fn until_state(server: &Server, id: &str, state: &str) -> Value {
    until(|| Some(task(server, id)).filter(|task| task["state"] == state))
}

/// What the server knows of a worker; null when there is none.
pub(crate) fn registration(server: &Server, worker: &str) -> Value {
    let list = server.get("/v1/workers");
    let mut workers = list["workers"].as_array().unwrap().iter();
    workers
        .find(|known| known["workerId"] == worker)
        .map(|known| known["registration"].clone())
        .unwrap_or_default()
}

/// A running `lessor worker daemon`, killed when it is dropped.
pub(crate) struct Worker {
    child: Child,
    log: PathBuf,
}

impl Worker {
    /// Starts one whose work is below the directory.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Worker {
        Worker::start_with_env(directory, arguments, &[])
    }

    /// The same with these variables in its environment.
    pub(crate) fn start_with_env(directory: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Worker {
        let log = directory.join("worker.log");
        let stderr = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = lessor(&["worker", "daemon"]);
        command.args(arguments).arg("--work-dir").arg(directory.join("worker")).envs(env.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        Worker { child, log }
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until the log contains this text so often.
    #[track_caller]
    pub(crate) fn wait_for_log(&self, text: &str, times: usize) {
        until(|| (self.log().matches(text).count() >= times).then_some(()));
    }

    /// Waits for a line about a task, and gives its level.
    #[track_caller]
    pub(crate) fn log_level(&self, task_id: &str, message: &str) -> String {
        until(|| {
            let log = self.log();
            let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let line = lines.find(|line| line["message"] == message && line["task"] == task_id)?;
            Some(line["level"].as_str()?.to_owned())
        })
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its exit code.
    pub(crate) fn ended(mut self) -> Option<i32> {
        until(|| self.child.try_wait().unwrap()).code()
    }

    /// Asks it to stop, and waits.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.signal(rustix::process::Signal::TERM);
        self.ended()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A way to a server that can be cut and mended.
pub(crate) struct Line {
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    streams: Vec<TcpStream>,
}

impl Line {
    pub(crate) fn to(server: &Server) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let (shared, address) = (state.clone(), server.address());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.unwrap();
                let mut state = shared.lock().unwrap();
                if state.is_cut {
                    continue;
                }
                let Ok(server) = TcpStream::connect(&address) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    state.streams.push(from.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Line { url, state }
    }

    pub(crate) fn cut(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_cut = true;
        for stream in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn reconnect(&self) {
        self.state.lock().unwrap().is_cut = false;
    }
}

/// A command that says where it is by its process id, and then runs until somebody ends it.
pub(crate) fn endless(pid_file: &Path) -> Value {
    let script = format!("echo $$ > {0}.tmp; mv {0}.tmp {0}; exec sleep 600", pid_file.display());
    serde_json::json!({"command": ["sh", "-c", script]})
}

/// Waits for an endless command, and says which process it is.
#[track_caller]
pub(crate) fn pid(pid_file: &Path) -> u32 {
    until(|| std::fs::read_to_string(pid_file).ok()?.trim().parse().ok())
}

/// Whether a process is there and not only waiting to be buried.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}
