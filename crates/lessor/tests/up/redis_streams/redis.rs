//! A real redis-server, in a directory of its own, killed when it is dropped.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest wait for what takes a moment.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Listens on a socket in its directory, so that it can be started again at the same address.
pub(super) struct Redis {
    child: Child,
    dir: TempDir,
    password: Option<&'static str>,
}

impl Redis {
    pub(super) fn start() -> Redis {
        Redis::start_in(tempfile::tempdir().unwrap(), None)
    }

    /// Starts with the dump that is in the directory, if there is one.
    pub(super) fn start_in(dir: TempDir, password: Option<&'static str>) -> Redis {
        let child = spawn(dir.path(), password);
        let redis = Redis { child, dir, password };
        redis.until_it_answers();
        redis
    }

    pub(super) fn url(&self) -> String {
        url(self.dir.path())
    }

    /// Ends it as a crash would. `Redis::resume` starts it again.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(super) fn resume(&mut self) {
        self.child = spawn(self.dir.path(), self.password);
        self.until_it_answers();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(super) fn dump(&self) -> std::path::PathBuf {
        self.dir.path().join("dump.rdb")
    }

    pub(super) fn connect(&self) -> Connection {
        let mut connection = redis::Client::open(self.url()).unwrap().get_connection().unwrap();
        if let Some(password) = self.password {
            let () = redis::cmd("AUTH").arg(password).query(&mut connection).unwrap();
        }
        connection
    }

    /// Sends one command.
    #[track_caller]
    pub(super) fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connect()).unwrap()
    }

    /// The entries of a stream: id and job.
    #[track_caller]
    pub(super) fn entries(&self, stream: &str) -> Vec<(String, String)> {
        let entries: Vec<(String, Vec<String>)> = self.ask(&["XRANGE", stream, "-", "+"]);
        let job = |fields: &[String]| fields.get(1).cloned().unwrap_or_default();
        entries.into_iter().map(|(id, fields)| (id, job(&fields))).collect()
    }

    fn until_it_answers(&self) {
        let until = Instant::now() + PATIENCE;
        let client = redis::Client::open(self.url()).unwrap();
        // A Redis that loads a dump refuses connections or commands at first.
        let answers = || client.get_connection().and_then(|mut redis| redis::cmd("PING").exec(&mut redis));
        while answers().is_err_and(|error| error.code() != Some("NOAUTH")) {
            assert!(Instant::now() < until, "Redis does not start");
            std::thread::yield_now();
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn url(dir: &Path) -> String {
    format!("redis+unix://{}/socket", dir.display())
}

fn spawn(dir: &Path, password: Option<&str>) -> Child {
    // A socket that a killed server left behind must not look like one that is ready.
    let _ = std::fs::remove_file(dir.join("socket"));
    let mut command = Command::new("redis-server");
    command.args(["--port", "0", "--unixsocket", "socket", "--save", "", "--dir"]).arg(dir).current_dir(dir);
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    child.expect("redis-server is there: `cargo xtask test` installs it")
}
