//! Redis from Debian's packages.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::spawn::spawn;

/// The longest wait for a server that starts.
const MAX_START: Duration = Duration::from_secs(120);

/// A server that listens on a socket in its directory, so that it can be started again at the same address. Nothing is saved
/// unless a test asks for it. Dropping it kills the server.
pub struct Redis {
    child: Child,
    dir: TempDir,
    password: Option<&'static str>,
}

impl Redis {
    pub fn start() -> Redis {
        Redis::start_in(tempfile::tempdir().expect("a directory"), None)
    }

    /// Starts in this directory, with the dump that is in it.
    pub fn start_in(dir: TempDir, password: Option<&'static str>) -> Redis {
        let child = start(dir.path(), password);
        let redis = Redis { child, dir, password };
        redis.until_it_answers();
        redis
    }

    pub fn url(&self) -> String {
        url(self.dir.path())
    }

    /// Kills the server at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts a server that was killed, with the dump that is in the directory.
    pub fn restart(&mut self) {
        self.child = start(self.dir.path(), self.password);
        self.until_it_answers();
    }

    /// Stops or continues the server.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the child is ours");
    }

    /// The file of the commands SAVE and BGSAVE.
    pub fn dump(&self) -> PathBuf {
        self.dir.path().join("dump.rdb")
    }

    pub fn connect(&self) -> Connection {
        let mut connection = client(&self.url()).get_connection().expect("Redis answers");
        if let Some(password) = self.password {
            let () = redis::cmd("AUTH").arg(password).query(&mut connection).expect("Redis answers");
        }
        connection
    }

    /// Sends one command.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        redis::cmd(words[0]).arg(&words[1..]).query(&mut self.connect()).expect("Redis answers")
    }

    /// The entries of a stream: id and job.
    #[track_caller]
    pub fn entries(&self, stream: &str) -> Vec<(String, String)> {
        let entries: Vec<(String, Vec<String>)> = self.ask(&["XRANGE", stream, "-", "+"]);
        let job = |fields: &[String]| fields.get(1).cloned().unwrap_or_default();
        entries.into_iter().map(|(id, fields)| (id, job(&fields))).collect()
    }

    fn until_it_answers(&self) {
        let until = Instant::now() + MAX_START;
        let client = client(&self.url());
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

/// The address of the server in a directory.
pub fn url(dir: &Path) -> String {
    format!("redis+unix://{}/socket", dir.display())
}

fn start(dir: &Path, password: Option<&str>) -> Child {
    // A socket that a killed server left behind must not look like one that is ready.
    let _ = std::fs::remove_file(dir.join("socket"));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "redis-server"]);
    command.args(["--port", "0", "--unixsocket", "socket", "--save", "", "--dir"]).arg(dir).current_dir(dir);
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    spawn(command)
}

fn client(url: &str) -> redis::Client {
    redis::Client::open(url).expect("the address is right")
}
