//! Tests that a node leaves its cluster, or is replaced by another process on the same port, while its clients work: no request
//! fails, no lease is lost, no connection is refused or reset. The load is `lessor bench drain`, whose clients repeat nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use test_servers::postgres::execute;

use crate::serve;
use crate::support::cluster::{Cluster, node_named};
use crate::support::{Ran, Server, lessor};

const PATIENCE: Duration = Duration::from_secs(120);
const POLLS: u64 = 200;
/// Records that show that the load goes on.
const MORE_RECORDS: u64 = 300;
/// Lets a node serve on for as long as the test needs.
const STAY_LONG: &str = "drain_s = 60\n";

/// A load on some addresses, with the numbers of clients, polls and streams that are promised.
struct Load(Child);

impl Load {
    fn start(addresses: &[String]) -> Load {
        let mut command = lessor(&["bench", "--json", "drain"]);
        command.args(addresses).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("the load runs"), "{line}");
        Load(child)
    }

    /// Ends the load, which must have gone well.
    fn end(mut self) -> Value {
        drop(self.0.stdin.take());
        let ran = Ran::from(self.0.wait_with_output().unwrap()).ok().json();
        for none in ["failed", "polls_ended_early", "second_attempts"] {
            assert_eq!(ran[none], 0, "{ran}");
        }
        assert_eq!(ran["polls_answered"], POLLS, "{ran}");
        assert!(ran["streamed"].as_u64().unwrap() > 0, "{ran}");
        println!("{ran}");
        ran
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

fn position(server: &Server) -> u64 {
    server.get("/readyz")["position"].as_u64().unwrap()
}

fn until_load_goes_on(server: &Server) {
    let from = position(server);
    until("the load goes on", || position(server) > from + MORE_RECORDS);
}

#[test]
fn a_drained_owner_fails_no_request_and_keeps_its_polls_and_worker_streams() {
    let mut cluster = Cluster::start_with(&["a", "b"], STAY_LONG);
    let addresses: Vec<String> = cluster.nodes.iter().map(|(_, server)| server.address()).collect();
    let load = Load::start(&addresses);
    let name = cluster.owner();
    let mut owner = cluster.take_owner();
    let other = &cluster.nodes[0].1;
    until("all polls wait", || owner.get("/readyz")["polls"].as_u64().unwrap() >= POLLS);
    until_load_goes_on(&owner);

    let config = owner.data().with_file_name("lessor.toml");
    let drained = lessor(&["node", "drain", "--json", "--config"]).arg(&config).output().unwrap();
    let drained = Ran::from(drained).ok().json();
    assert_eq!(
        (&drained["node"], &drained["state"]),
        (&name.as_str().into(), &"draining".into()),
        "{drained}"
    );
    owner.until_logged("handed over");
    until_load_goes_on(other);
    assert_ne!(cluster.owner(), name);
    let readyz = owner.try_get("/readyz");
    assert!(readyz.starts_with("HTTP/1.1 503") && readyz.contains("connection: close"), "{readyz}");
    load.end();
    assert!(owner.ended().success(), "{}", owner.log());
    let shown =
        Ran::from(lessor(&["nodes", "--json", "--config"]).arg(&config).output().unwrap()).ok().json();
    assert_eq!(shown["nodes"].as_array().unwrap().len(), 1, "{shown}");
}

/// The fed standby was fed until it had ended, so that no answer left meanwhile.
#[test]
fn a_drained_standby_fails_no_request_although_answers_wait_for_a_standby() {
    let cluster = Cluster::start_with(&["a", "b", "c"], "drain_s = 60\nanswers_wait_for_standby = true\n");
    let is_fed = "SELECT node FROM lessor.node WHERE fed";
    until("a standby is fed", || execute(&cluster.url, is_fed).len() == 1);
    let fed = execute(&cluster.url, is_fed)[0][0].clone();
    let addresses: Vec<String> = cluster.nodes.iter().map(|(_, server)| server.address()).collect();
    let load = Load::start(&addresses);
    let server = |named: &str| &cluster.nodes.iter().find(|(name, _)| name == named).unwrap().1;
    let owner = server(&cluster.owner());
    until_load_goes_on(owner);

    let config = owner.data().with_file_name("lessor.toml");
    let drained = lessor(&["node", "drain", &fed, "--config"]).arg(&config).output().unwrap();
    Ran::from(drained).ok();
    let others = format!("{is_fed} AND node <> '{fed}'");
    until("another standby is fed", || execute(&cluster.url, &others).len() == 1);
    until_load_goes_on(owner);
    load.end();
}

#[test]
fn a_process_is_replaced_on_the_same_port_and_no_connection_is_refused_or_reset() {
    let cluster = Cluster::start_with(&["a"], STAY_LONG);
    let (_, mut old) = cluster.nodes.into_iter().next().unwrap();
    let (address, dir) = (old.address(), old.data().parent().unwrap().to_owned());
    // A second process is refused unless it is asked to replace the first.
    Ran::from(serve(&dir, &[]).output().unwrap()).fails(3, &["in use", "--replace"]);

    let load = Load::start(std::slice::from_ref(&address));
    until("all polls wait", || old.get("/readyz")["polls"].as_u64().unwrap() >= POLLS);
    let is_over = AtomicBool::new(false);
    let (connections, mut new) = std::thread::scope(|scope| {
        let knock = || {
            let mut connections = 0_u64;
            while !is_over.load(Ordering::Acquire) {
                connect_once(&address);
                connections += 1;
            }
            connections
        };
        let knocking: Vec<_> = (0..4).map(|_| scope.spawn(knock)).collect();
        let new = Replacing::start(&dir);
        old.until_logged("handed over");
        until("the new process works", || {
            let told = std::fs::read_to_string(dir.join("new.log")).unwrap();
            told.contains("this node owns the ledger")
        });
        is_over.store(true, Ordering::Release);
        (knocking.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), new)
    });
    assert!(connections > 0);
    println!("{connections} connections over the switch");
    load.end();
    assert!(old.ended().success(), "{}", old.log());
    // The new one serves alone, and can be replaced as well.
    connect_once(&address);
    rustix::process::kill_process(rustix::process::Pid::from_child(&new.0), rustix::process::Signal::TERM)
        .unwrap();
    assert!(new.0.wait().unwrap().success());
}

/// The process that replaces another one. `LESSOR_OTHER_BINARY` names another build of the program; otherwise it is a copy.
struct Replacing(Child);

impl Replacing {
    fn start(dir: &Path) -> Replacing {
        let other = std::env::var_os("LESSOR_OTHER_BINARY").map(PathBuf::from).unwrap_or_else(|| {
            let copy = dir.join("lessor-copy");
            std::fs::copy(env!("CARGO_BIN_EXE_lessor"), &copy).unwrap();
            copy
        });
        let log = std::fs::File::create(dir.join("new.log")).unwrap();
        let mut command = Command::new(other);
        command.args(["serve", "--replace", "--config"]).arg(dir.join("lessor.toml"));
        Replacing(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }
}

impl Drop for Replacing {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a connection, and expects an answer on it.
fn connect_once(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
}

#[test]
fn a_second_node_with_the_name_of_a_living_one_is_refused() {
    let cluster = Cluster::start(&["a"]);
    let first = &cluster.nodes[0].1;
    let dir = node_named("a", &cluster.url);
    std::fs::copy(first.data().with_file_name("cluster.key"), dir.path().join("cluster.key")).unwrap();
    let second = Ran::from(serve(dir.path(), &[]).output().unwrap());
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.stderr.contains("the name a belongs to a node at"), "{second:?}");
    assert_eq!(first.get("/readyz")["status"], "ready");
}

#[test]
fn a_server_without_a_cluster_can_be_neither_drained_nor_replaced() {
    let dir = crate::configured(crate::SMALL);
    let config = dir.path().join("lessor.toml");
    let drained = lessor(&["node", "drain", "--config"]).arg(&config).output().unwrap();
    Ran::from(drained).fails(1, &["no cluster", "SIGTERM"]);
    Ran::from(serve(dir.path(), &["--replace"]).output().unwrap()).fails(1, &["--replace", "postgres"]);
}
