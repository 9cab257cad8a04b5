//! A build with default flags through one node of a cluster, while the owner of the ledger is killed, or while the node itself
//! is drained. Blobs are on the node that Bazel and the worker use.

use rustix::process::Signal;
use tempfile::TempDir;
use test_servers::postgres::{execute, shared};

use super::workspace;
use crate::bazel::{Bazel, Processes};
use crate::succeeded;
use crate::support::gates::Gates;
use crate::support::worker::Worker;
use crate::support::{Ran, Server, lessor};

const ACTIONS: usize = 30;

/// Two nodes, the owner first, and the address of their database.
fn nodes() -> (Server, Server, String) {
    let url = shared().create_database();
    let key = tempfile::tempdir().unwrap();
    let key_file = key.path().join("cluster.key");
    let configured = |name: &str| -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let text = format!(
            "[server]\naddress = \"127.0.0.1:0\"\n[data]\ndir = {data:?}\n[ledger]\nbackend = \"postgres\"\n[postgres]\n\
             url = \"{url}\"\nunsafe_no_sync = true\n[cluster]\nnode = \"{name}\"\nkey_file = {key_file:?}\ndrain_s = 60\n"
        );
        std::fs::write(dir.path().join("lessor.toml"), text).unwrap();
        dir
    };
    let start = |dir: TempDir| {
        let mut command = lessor(&["serve", "--config"]);
        command.arg(dir.path().join("lessor.toml"));
        Server::start_by(command, dir)
    };
    let first = configured("a");
    let init = lessor(&["cluster", "init", "--config"]).arg(first.path().join("lessor.toml")).output();
    Ran::from(init.unwrap()).ok();
    let (a, b) = (start(first), start(configured("b")));
    assert_eq!(execute(&url, "SELECT node FROM lessor.shard_owner"), [["a"]]);
    (a, b, url)
}

/// Builds through `node`; something happens when the build is in its middle.
fn builds(node: &Server, url: &str, happens: impl FnOnce()) {
    let gates = Gates::open();
    let bazel = Bazel::new(&workspace(ACTIONS, 1, &gates));
    let _worker = Worker::start(node);
    let executor = format!("--remote_executor=grpc://{}", node.address());
    let mut build = bazel.spawn_build(&[&executor, "--spawn_strategy=remote", "--jobs=8"]);
    let arrival = gates.next(&mut build).expect("the build ended early");
    happens();
    arrival.let_through();
    let text = succeeded(&build.wait_with_output().unwrap());
    assert_eq!(Processes::of(&text).all("remote"), ACTIONS, "{text}");
    assert!(gates.is_quiet(), "an action ran a second time although its lease lived");
    let attempts = "SELECT count(*), count(DISTINCT job_id) FROM lessor.job_attempts";
    let all = ACTIONS.to_string();
    assert_eq!(execute(url, attempts), [[all.clone(), all]], "each action ran once");
}

#[test]
fn a_build_with_default_flags_goes_on_when_the_owner_is_killed() {
    let (mut owner, edge, url) = nodes();
    builds(&edge, &url, || owner.kill());
}

#[test]
fn a_build_with_default_flags_goes_on_when_its_node_is_drained() {
    let (owner, _other, url) = nodes();
    builds(&owner, &url, || {
        owner.signal(Signal::TERM);
        owner.until_logged("handed over");
    });
}
