//! A node of the cluster: a process on a host of its own, with its configuration and its log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use test_servers::network::Host;

use crate::api::Api;
use crate::process::Process;

const PORT: u16 = 8980;
const START_DEADLINE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const LOG_TAIL_LINES: usize = 40;

pub(super) struct NodeProcess {
    pub name: String,
    pub host: Host,
    binary: PathBuf,
    directory: PathBuf,
    process: Process,
}

/// Worker streams stay on a node that leaves for so long.
const DRAIN_S: u64 = 5;

impl NodeProcess {
    /// Configures a node, which does not run yet.
    pub(super) fn new(
        binary: &Path,
        directory: &Path,
        name: &str,
        host: &Host,
        database_url: &str,
        takeover_after: Duration,
    ) -> Result<NodeProcess> {
        let own = directory.join(name);
        std::fs::create_dir(&own)?;
        let (address, dir, after_ms) = (host.address(), own.display(), takeover_after.as_millis());
        let key = directory.join("cluster.key");
        let config = format!(
            "[server]\naddress = \"{address}:{PORT}\"\n[data]\ndir = \"{dir}/data\"\n\
             [ledger]\nbackend = \"postgres\"\n[postgres]\nurl = \"{database_url}\"\n\
             [push]\nallow_private_targets = true\n\
             [cluster]\nnode = \"{name}\"\nkey_file = \"{}\"\ntakeover_after_ms = {after_ms}\ndrain_s = {DRAIN_S}\n",
            key.display()
        );
        std::fs::write(own.join("lessor.toml"), config)?;
        Ok(NodeProcess {
            name: name.to_owned(),
            host: host.clone(),
            binary: binary.into(),
            directory: own,
            process: Process::new(format!("node {name}")),
        })
    }

    /// The address for clients.
    pub(super) fn address(&self) -> String {
        format!("{}:{PORT}", self.host.address())
    }

    /// Creates the cluster in the database, and its key.
    pub(super) fn init_cluster(&self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command.args(["cluster", "init", "--config"]).arg(self.directory.join("lessor.toml"));
        let output = command.output().context("cannot run the binary")?;
        ensure!(output.status.success(), "cluster init: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    pub(super) fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.directory.join("log"))?;
        let mut command = Command::new(&self.binary);
        command.args(["serve", "--insecure", "--config"]).arg(self.directory.join("lessor.toml"));
        let mut command = self.host.on(&command);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.process.start(&mut command)
    }

    /// Waits until the node takes requests and knows an owner.
    pub(super) async fn wait_until_ready(&mut self) -> Result<()> {
        let api = Api::probe(&self.address())?;
        let deadline = Instant::now() + START_DEADLINE;
        while api.get("/readyz").await.status() != Some(200) {
            self.check_that_it_runs()?;
            if Instant::now() > deadline {
                bail!(
                    "node {} is not ready after {START_DEADLINE:?}; its log ends:\n{}",
                    self.name,
                    self.log_tail()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }

    pub(super) fn signal(&mut self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Asks the node to end, and waits until it has.
    pub(super) async fn terminate(&mut self) -> Result<()> {
        let stopped = self.process.stop().await;
        stopped.with_context(|| format!("the log of node {} ends:\n{}", self.name, self.log_tail()))
    }

    pub(super) fn check_that_it_runs(&mut self) -> Result<()> {
        if let Some(status) = self.process.exited() {
            bail!("node {} ended on its own with {status}; its log ends:\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }
}
