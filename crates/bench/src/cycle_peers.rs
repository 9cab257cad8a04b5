//! Other queues that cycles are measured on, in turns with Lessor.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cycle::with_costs;
use super::peer_command;
use super::postgres::{PostgresServer, SkipLocked};
use super::redis_streams::RedisStreams;
use super::report::Line;

/// The name of a queue on the command line.
#[derive(Clone)]
pub(crate) enum PeerName {
    Redis(String),
    SkipLocked,
    Command(String),
}

impl FromStr for PeerName {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerName, String> {
        match text.split_once(':') {
            Some(("redis" | "rediss", _)) => Ok(PeerName::Redis(text.to_owned())),
            Some(("command", command)) => Ok(PeerName::Command(command.to_owned())),
            None if text == "skip-locked" => Ok(PeerName::SkipLocked),
            _ => Err("a queue is redis://HOST:PORT, skip-locked or command:PROGRAM".to_owned()),
        }
    }
}

pub(crate) enum Peer<'a> {
    Redis(RedisStreams),
    SkipLocked(&'a PostgresServer),
    Command(&'a PostgresServer, String),
}

impl Peer<'_> {
    pub(crate) async fn find<'a>(name: &PeerName, postgres: Option<&'a PostgresServer>) -> Result<Peer<'a>> {
        let postgres = || postgres.context("name the PostgreSQL of the queue with --ledger postgres:URL");
        Ok(match name {
            PeerName::Redis(url) => Peer::Redis(RedisStreams::connect(url).await?),
            PeerName::SkipLocked => Peer::SkipLocked(postgres()?),
            PeerName::Command(command) => Peer::Command(postgres()?, command.clone()),
        })
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Peer::Redis(_) => "redis-streams",
            Peer::SkipLocked(_) => "skip-locked",
            Peer::Command(_, command) => command,
        }
    }

    pub(crate) async fn measure(&self, clients: usize, payload: &str, time: Duration) -> Result<Line> {
        let line = |queue: &str| Line::new("cycle").with("transport", queue).with("clients", clients);
        match self {
            Peer::Redis(redis) => {
                let cycles = redis.cycles(clients, payload, time).await?;
                Ok(with_costs(line(self.name()).figure("cycles_per_s", cycles.per_s), &cycles))
            }
            Peer::SkipLocked(server) => {
                let database = server.create_database().await?;
                let queue = SkipLocked::create(&database).await?;
                let cycles = queue.cycles(clients, payload, time).await?;
                server.drop_database(database).await?;
                Ok(line(self.name()).figure("cycles_per_s", cycles.per_s))
            }
            Peer::Command(server, command) => {
                let database = server.create_database().await?;
                let rate =
                    peer_command::measure(command, database.url(), clients, payload.len(), time).await?;
                server.drop_database(database).await?;
                Ok(line(&rate.queue).figure("cycles_per_s", rate.cycles_per_second))
            }
        }
    }
}
