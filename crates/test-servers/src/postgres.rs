//! PostgreSQL from Debian's packages.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::network::Host;
use crate::spawn::spawn;

/// PostgreSQL refuses to run as root, and its package creates this user.
const USER: &str = "postgres";
const DATA: &str = "data";
/// The port of a server on a host of its own.
const PORT: u16 = 5432;
/// A server that starts says nothing to those who wait for it.
const PROBE_PAUSE: Duration = Duration::from_millis(20);

/// A server with a directory of its own. Dropping it kills the server.
pub struct Postgres {
    directory: TempDir,
    /// The host on which it runs, if that is not this one.
    host: Option<Host>,
    port: u16,
    settings: Vec<String>,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a new server with these settings, such as `fsync=off`, and waits until it takes connections.
    pub fn start(settings: &[&str]) -> Postgres {
        Postgres::initialize(None, settings)
    }

    /// The same on a host of a network, which lets in all hosts of networks.
    pub fn start_on(host: &Host, settings: &[&str]) -> Postgres {
        Postgres::initialize(Some(host.clone()), settings)
    }

    fn initialize(host: Option<Host>, settings: &[&str]) -> Postgres {
        let directory = directory();
        let data = directory.path().join(DATA);
        let mut initdb = Command::new(program("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--username", USER, "--pgdata"]);
        run(as_user(initdb.arg(&data)));
        if host.is_some() {
            let mut hba = std::fs::read_to_string(data.join("pg_hba.conf")).expect("initdb has written it");
            hba.push_str("host all all 198.18.0.0/15 trust\nhost replication all 198.18.0.0/15 trust\n");
            std::fs::write(data.join("pg_hba.conf"), hba).expect("the directory is ours");
        }
        Postgres::over(directory, host, settings)
    }

    /// Starts a replica of this server. It follows under the name `replica`.
    pub fn start_replica(&self, settings: &[&str]) -> Postgres {
        let directory = directory();
        self.copy_to(&directory);
        Postgres::over(directory, None, settings)
    }

    /// The same on a host of a network.
    pub fn start_replica_on(&self, host: &Host, settings: &[&str]) -> Postgres {
        let directory = directory();
        self.copy_to(&directory);
        Postgres::over(directory, Some(host.clone()), settings)
    }

    /// Makes this server, which was killed, a replica of another one at its old address. What it had is gone.
    pub fn restart_as_replica_of(&mut self, primary: &Postgres) {
        self.kill();
        let data = self.directory.path().join(DATA);
        // Processes of the killed server may still end and write their last files.
        while std::fs::remove_dir_all(&data).is_err_and(|error| error.kind() != ErrorKind::NotFound) {
            std::thread::sleep(PROBE_PAUSE);
        }
        primary.copy_to(&self.directory);
        self.restart();
    }

    fn copy_to(&self, directory: &TempDir) {
        let mut copy = Command::new(program("pg_basebackup"));
        copy.args([
            "--no-sync",
            "--checkpoint=fast",
            "--write-recovery-conf",
            "--wal-method=stream",
            "--pgdata",
        ]);
        copy.arg(directory.path().join(DATA));
        copy.args(["--dbname", &format!("{} application_name=replica", self.parameters("postgres"))]);
        run(as_user(&copy));
    }

    fn over(directory: TempDir, host: Option<Host>, settings: &[&str]) -> Postgres {
        let settings = settings.iter().map(|setting| setting.to_string()).collect();
        let mut postgres = Postgres { directory, host, port: PORT, settings, child: None };
        // Another program may take the port between the look and the start.
        for _ in 0..10 {
            if postgres.host.is_none() {
                postgres.port = free_port();
            }
            postgres.spawn();
            if postgres.is_ready() {
                return postgres;
            }
        }
        panic!("PostgreSQL does not start: {}", postgres.log());
    }

    /// Starts a server that was killed, and waits until it takes connections.
    pub fn restart(&mut self) {
        // A server refuses to start while processes of the last one still end.
        for _ in 0..500 {
            self.spawn();
            if self.is_ready() {
                return;
            }
        }
        panic!("PostgreSQL does not start again: {}", self.log());
    }

    fn spawn(&mut self) {
        self.kill();
        let mut command = Command::new(program("postgres"));
        command.arg("-D").arg(self.directory.path().join(DATA)).args(["-p", &self.port.to_string()]);
        let listen = format!("listen_addresses={}", self.address());
        command.arg("-k").arg(self.directory.path()).args(["-c", &listen]);
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.directory.path().join("log")).expect("the directory is ours");
        let mut command = with_parent(&command);
        if let Some(host) = &self.host {
            command = host.on(&command);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(spawn(command));
    }

    /// Kills the server at once, as a power failure does without the loss of what was synced.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let processes = children(&child);
            let _ = child.kill();
            let _ = child.wait();
            // Without their parent they would end by themselves, but finish what they do.
            for process in processes {
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }

    /// Makes a replica the primary, and waits until it takes writes.
    pub fn promote(&self) {
        self.execute("postgres", "SELECT pg_promote(true, 60)");
    }

    /// Stops or continues every process of the server.
    pub fn signal(&self, signal: Signal) {
        let Some(child) = &self.child else { return };
        for process in [Pid::from_child(child)].into_iter().chain(children(child)) {
            let _ = kill_process(process, signal);
        }
    }

    /// Lets commits wait for a replica, or no longer.
    pub fn wait_for_replica(&self, waits: bool) {
        let names = if waits { "replica" } else { "" };
        self.execute("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        self.execute("postgres", "SELECT pg_reload_conf()");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@{}/{database}", self.host_and_port())
    }

    /// The address of the server, as it stands in a URL.
    pub fn host_and_port(&self) -> String {
        format!("{}:{}", self.address(), self.port)
    }

    fn address(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address)
    }

    fn parameters(&self, database: &str) -> String {
        format!("host={} port={} user={USER} dbname={database}", self.address(), self.port)
    }

    /// Creates a database that no other test has, and returns its address.
    pub fn create_database(&self) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.execute("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Runs statements in a database.
    pub fn execute(&self, database: &str, statements: &str) {
        execute(&self.url(database), statements);
    }

    /// Waits until the server takes connections; `false` when it has ended.
    fn is_ready(&mut self) -> bool {
        let mut probe = Command::new(program("pg_isready"));
        probe.args(["-q", "-t", "60", "-h", &self.address().to_string(), "-p", &self.port.to_string()]);
        let Some(child) = &mut self.child else { return false };
        while child.try_wait().expect("the child is ours").is_none() {
            if probe.status().expect("pg_isready runs").success() {
                return true;
            }
            std::thread::sleep(PROBE_PAUSE);
        }
        false
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A server for all tests of this process that neither kill it nor rely on its disk. It does not sync.
pub fn shared() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(|| Postgres::start(&["fsync=off", "max_connections=400"]))
}

/// Runs statements in the database of an address, and returns the columns of the rows as text.
pub fn execute(url: &str, statements: &str) -> Vec<Vec<String>> {
    let run = async { try_execute(url, statements).await.expect("the server takes the statements") };
    // On a thread of its own: the caller may be asynchronous.
    std::thread::scope(|scope| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        scope.spawn(move || runtime.block_on(run)).join().expect("the statements run")
    })
}

/// The same for callers that expect failures.
pub async fn try_execute(url: &str, statements: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    let messages = client.simple_query(statements).await?;
    let rows = messages.into_iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(rows.map(|row| (0..row.len()).map(|at| row.get(at).unwrap_or("").to_owned()).collect()).collect())
}

/// The processes of a server beside the first.
fn children(child: &Child) -> Vec<Pid> {
    let parent = child.id();
    let listed = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let ids = listed.unwrap_or_default();
    ids.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    if is_root() {
        run(Command::new("chown").arg(USER).arg(directory.path()));
    }
    directory
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id runs");
    id.stdout.trim_ascii() == b"0"
}

/// The programs of the newest version that is installed; Debian keeps them out of the path.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.exists()).max();
    newest.unwrap_or_else(|| Path::new(name).to_owned())
}

/// The same command, as a user that PostgreSQL accepts.
fn as_user(command: &Command) -> Command {
    wrap(command, &[])
}

/// The same command, which ends with its parent.
fn with_parent(command: &Command) -> Command {
    wrap(command, &["--pdeathsig", "KILL"])
}

fn wrap(command: &Command, options: &[&str]) -> Command {
    let mut wrapped = Command::new("setpriv");
    if is_root() {
        wrapped.args(["--reuid", USER, "--regid", USER, "--clear-groups"]);
    }
    wrapped.args(options).arg("--").arg(command.get_program()).args(command.get_args());
    wrapped
}

fn run(command: impl std::borrow::BorrowMut<Command>) {
    let mut command = command;
    let command = command.borrow_mut();
    let output = command.stdin(Stdio::null()).output().expect("the program is installed");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}
