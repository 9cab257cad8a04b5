//! Nodes as processes of their own on one PostgreSQL, and the content server that they share.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use test_servers::postgres::{execute, shared};

use super::{Ran, Server, lessor};

/// A directory with this configuration in it, in which `DIR` stands for the directory.
pub(crate) fn configured(text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let text = text.replace("DIR", dir.path().to_str().unwrap());
    fs::write(dir.path().join("lessor.toml"), text).unwrap();
    dir
}

pub(crate) fn serve(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = lessor(&["serve"]);
    command.args(arguments).arg("--config").arg(dir.join("lessor.toml"));
    command
}

/// The nodes of a cluster by name.
pub(crate) struct Cluster {
    pub url: String,
    pub nodes: Vec<(String, Server)>,
}

impl Cluster {
    pub(crate) fn start(names: &[&str]) -> Cluster {
        Cluster::start_with(names, "")
    }

    /// The same, with more keys of the table `cluster`, which is the last one of the file.
    pub(crate) fn start_with(names: &[&str], keys: &str) -> Cluster {
        Cluster::start_on(shared().create_database(), names, keys)
    }

    /// The same on this database.
    pub(crate) fn start_on(url: String, names: &[&str], keys: &str) -> Cluster {
        let directories: Vec<TempDir> = names.iter().map(|name| node_named(name, &url)).collect();
        for directory in &directories {
            let file = directory.path().join("lessor.toml");
            std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + keys).unwrap();
        }
        let directories = initialized(directories);
        let nodes = std::thread::scope(|scope| {
            let start = |(name, dir): (&&str, TempDir)| {
                let name = name.to_string();
                scope.spawn(move || (name, Server::start_by(serve(dir.path(), &[]), dir)))
            };
            let starting: Vec<_> = names.iter().zip(directories).map(start).collect();
            starting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        Cluster { url, nodes }
    }

    pub(crate) fn owner(&self) -> String {
        execute(&self.url, "SELECT node FROM lessor.shard_owner")[0][0].clone()
    }

    /// Takes the owner out.
    pub(crate) fn take_owner(&mut self) -> Server {
        let owner = self.owner();
        let at = self.nodes.iter().position(|(name, _)| *name == owner).unwrap();
        self.nodes.remove(at).1
    }
}

pub(crate) fn node_named(name: &str, url: &str) -> TempDir {
    configured(&format!(
        r#"
[server]
address = "127.0.0.1:0"
[data]
dir = "DIR/data"
[ledger]
backend = "postgres"
[postgres]
url = "{url}"
unsafe_no_sync = true
[cluster]
node = "{name}"
key_file = "DIR/cluster.key"
"#
    ))
}

/// Creates a cluster with the first of these configurations, and gives its key to all others.
pub(crate) fn initialized(directories: Vec<TempDir>) -> Vec<TempDir> {
    let first = directories[0].path();
    let init = lessor(&["cluster", "init", "--config"]).arg(first.join("lessor.toml")).output();
    Ran::from(init.unwrap()).ok();
    for other in &directories[1..] {
        fs::copy(first.join("cluster.key"), other.path().join("cluster.key")).unwrap();
    }
    directories
}

/// Starts the content server of a cluster on a free port.
pub(crate) fn content_server() -> Server {
    let dir = configured(&content_server_at("127.0.0.1:0"));
    Server::start_by(serve(dir.path(), &["--init"]), dir)
}

/// The configuration of a content server at an address, as the documentation has it.
pub(crate) fn content_server_at(address: &str) -> String {
    format!(
        r#"
[server]
address = "{address}"
[data]
dir = "DIR/data"
segment_mib = 32
preallocate_mib = 1
[capabilities]
exec_enabled = false
action_cache_update_enabled = true
"#
    )
}

/// The table of a node that uses a content server.
pub(crate) fn storage(content_server: &Server) -> String {
    format!("[storage]\nurl = \"grpc://{}\"\n", content_server.address())
}
