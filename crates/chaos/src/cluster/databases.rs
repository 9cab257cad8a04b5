//! The two servers of PostgreSQL: a primary, and a replica for which every commit waits. They change places.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use test_servers::network::Host;
use test_servers::postgres::{Postgres, try_execute};

/// The database of the cluster.
const DATABASE: &str = "lessor";
/// A replica tries again soon to reach a primary that was away.
const SETTINGS: [&str; 2] = ["max_connections=200", "wal_retrieve_retry_interval=100ms"];
const PATIENCE: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Sessions of nodes that wait for the replica.
const CANCEL_WAITS: &str = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
    WHERE wait_event = 'SyncRep' AND application_name = 'lessor'";
const CUT_SESSIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = 'lessor' AND pid <> pg_backend_pid()";
const REPLICAS: &str = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'";
/// A write of its own, which does not wait for the replica.
const WRITE: &str = "SET synchronous_commit = local; CREATE TEMP TABLE written (x int); DROP TABLE written; \
    SELECT pg_current_xact_id()";

pub(super) struct Databases {
    primary: Postgres,
    replica: Postgres,
    url: String,
}

impl Databases {
    pub(super) fn start(primary: &Host, replica: &Host) -> Databases {
        let primary = Postgres::start_on(primary, &SETTINGS);
        primary.execute("postgres", &format!("CREATE DATABASE {DATABASE}"));
        let replica = primary.start_replica_on(replica, &SETTINGS);
        primary.wait_for_replica(true);
        let hosts = format!("{},{}", primary.host_and_port(), replica.host_and_port());
        Databases { primary, replica, url: format!("postgres://postgres@{hosts}/{DATABASE}") }
    }

    /// The address that names both servers.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The address of the primary.
    pub(super) fn primary_url(&self) -> String {
        self.primary.url(DATABASE)
    }

    /// The node that has announced itself as the owner, and its epoch. None while the database does not answer.
    pub(super) async fn owner(&self) -> Option<(String, u64)> {
        let owner = "SELECT node, epoch FROM lessor.shard_owner WHERE shard = 0";
        let rows = try_execute(&self.primary_url(), owner).await.ok()?;
        let row = rows.first()?;
        Some((row[0].clone(), row[1].parse().ok()?))
    }

    /// The JSON that an expression yields for each row of a relation.
    pub(super) async fn select(&self, expression: &str, relation: &str) -> Result<Vec<Value>> {
        let rows = try_execute(&self.primary_url(), &format!("SELECT {expression} FROM {relation}")).await?;
        rows.iter().map(|row| serde_json::from_str(&row[0]).context("not JSON")).collect()
    }

    /// Kills the primary and starts it again; returns once the replica follows.
    pub(super) async fn restart(&mut self) -> Result<()> {
        self.primary.kill();
        self.primary.restart();
        self.wait_until_synchronous().await
    }

    /// Kills the primary and promotes the replica; returns once that takes writes.
    pub(super) async fn fail_over(&mut self) -> Result<()> {
        self.primary.kill();
        self.replica.signal(Signal::CONT);
        self.replica.promote();
        std::mem::swap(&mut self.primary, &mut self.replica);
        self.wait_until_writable().await
    }

    /// Makes the server that was killed the replica of the new primary.
    pub(super) async fn rebuild_replica(&mut self) -> Result<()> {
        self.replica.restart_as_replica_of(&self.primary);
        self.wait_for_replica_that_is(|_| true).await?;
        self.primary.wait_for_replica(true);
        self.wait_until_synchronous().await
    }

    pub(super) fn stop_replica(&self) {
        self.replica.signal(Signal::STOP);
    }

    pub(super) fn continue_replica(&self) {
        self.replica.signal(Signal::CONT);
    }

    pub(super) fn kill_replica(&mut self) {
        self.replica.kill();
    }

    pub(super) fn restart_replica(&mut self) {
        self.replica.restart();
    }

    /// Cancels the waits of nodes for the replica; says how many there were.
    pub(super) async fn cancel_waits(&self) -> usize {
        try_execute(&self.primary_url(), CANCEL_WAITS).await.map_or(0, |canceled| canceled.len())
    }

    pub(super) async fn cut_sessions(&self) -> Result<usize> {
        Ok(try_execute(&self.primary_url(), CUT_SESSIONS).await?.len())
    }

    pub(super) async fn wait_until_synchronous(&self) -> Result<()> {
        self.wait_for_replica_that_is(|state| state == "sync").await
    }

    async fn wait_for_replica_that_is(&self, is_right: impl Fn(&str) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let replicas = try_execute(&self.primary_url(), REPLICAS).await.unwrap_or_default();
            if replicas.iter().any(|row| is_right(&row[0])) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the replica does not follow: {replicas:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn wait_until_writable(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = try_execute(&self.primary_url(), WRITE).await {
            ensure!(Instant::now() < deadline, "the primary takes no writes: {error}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Waits until another owner has announced itself.
    pub(super) async fn wait_for_owner_after(&self, epoch: u64) -> Result<(String, u64)> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(owner) = self.owner().await.filter(|(_, known)| *known > epoch) {
                return Ok(owner);
            }
            ensure!(Instant::now() < deadline, "no node took over after epoch {epoch}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(super) async fn known_owner(&self) -> Result<(String, u64)> {
        self.owner().await.context("no owner has announced itself")
    }
}
