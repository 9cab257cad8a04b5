//! The same cycle on Redis Streams, to compare with: XADD, XREADGROUP of one entry, and XACK, with a connection for each
//! client. Entries stay in the stream, which is the cheapest for Redis.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use procfs::process::Process;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::streams::StreamReadReply;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, InfoDict, cmd};

use super::load::{LoadGenerator, Rate};

const STREAM: &str = "lessor-bench";
const GROUP: &str = "workers";
/// As long as a worker of Lessor waits for a task.
const BLOCK_MS: u64 = 30_000;

/// A Redis server on this machine that syncs every write.
pub(crate) struct RedisStreams {
    client: Client,
    process: i32,
}

impl RedisStreams {
    pub(crate) async fn connect(url: &str) -> Result<RedisStreams> {
        let client = Client::open(url).with_context(|| format!("{url} is no address of Redis"))?;
        let mut connection = client
            .get_multiplexed_async_connection()
            .await
            .with_context(|| format!("cannot connect to Redis at {url}"))?;
        for (setting, needed) in [("appendonly", "yes"), ("appendfsync", "always")] {
            let found: (String, String) = ask(&mut connection, &["CONFIG", "GET", setting]).await?;
            ensure!(
                found.1 == needed,
                "Redis has {setting} {}, so it does not sync every write; start it with --appendonly yes --appendfsync always",
                found.1
            );
        }
        let info: InfoDict = ask(&mut connection, &["INFO", "server"]).await?;
        let process = info.get("process_id").context("Redis does not tell its process")?;
        let is_here = Process::new(process).and_then(|process| process.stat());
        ensure!(
            is_here.is_ok_and(|stat| stat.comm.contains("redis") || stat.comm.contains("valkey")),
            "Redis at {url} does not run on this machine, so its processor time cannot be measured"
        );
        Ok(RedisStreams { client, process })
    }

    pub(crate) async fn cycles(&self, clients: usize, payload: &str, time: Duration) -> Result<Rate> {
        let mut connection = self.connection().await?;
        let _: i64 = ask(&mut connection, &["DEL", STREAM]).await?;
        let _: String = ask(&mut connection, &["XGROUP", "CREATE", STREAM, GROUP, "$", "MKSTREAM"]).await?;
        let mut load = LoadGenerator::new(clients);
        for n in 0..clients {
            let (mut client, open_tasks) = (self.connection().await?, load.open_tasks.clone());
            let payload = payload.to_owned();
            load.clients.spawn(async move {
                loop {
                    open_tasks.acquire().await?.forget();
                    let _: String = ask(&mut client, &["XADD", STREAM, "*", "payload", &payload]).await?;
                }
            });
            let (mut worker, open_tasks, done) =
                (self.connection().await?, load.open_tasks.clone(), load.done.clone());
            load.clients.spawn(async move {
                let mut read = cmd("XREADGROUP");
                read.arg("GROUP").arg(GROUP).arg(format!("w{n}")).arg("COUNT").arg(1);
                read.arg("BLOCK").arg(BLOCK_MS).arg("STREAMS").arg(STREAM).arg(">");
                loop {
                    let entries: StreamReadReply = read.query_async(&mut worker).await?;
                    let entry = entries.keys.first().and_then(|key| key.ids.first());
                    let id = &entry.context("no entry came in time")?.id;
                    let acknowledged: i64 = ask(&mut worker, &["XACK", STREAM, GROUP, id]).await?;
                    ensure!(acknowledged == 1, "Redis did not acknowledge {id}");
                    open_tasks.add_permits(1);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let rate = load.measure(Some(Process::new(self.process)?), time).await?;
        let _: i64 = ask(&mut connection, &["DEL", STREAM]).await?;
        Ok(rate)
    }

    async fn connection(&self) -> Result<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(self.client.get_multiplexed_async_connection_with_config(&config).await?)
    }
}

/// A database to which a measured server publishes. Nobody else may use it: it is cleared after each measurement, because the next
/// server has another ledger.
pub(crate) struct Database(MultiplexedConnection);

impl Database {
    pub(crate) async fn open(url: &str) -> Result<Database> {
        let client = Client::open(url).with_context(|| format!("{url} is no address of Redis"))?;
        let connection = client.get_multiplexed_async_connection().await;
        Ok(Database(connection.with_context(|| format!("cannot connect to Redis at {url}"))?))
    }

    pub(crate) async fn ensure_empty(&mut self) -> Result<()> {
        let keys: u64 = ask(&mut self.0, &["DBSIZE"]).await?;
        ensure!(
            keys == 0,
            "Redis has {keys} keys, which --publish would delete; name another database, such as /9"
        );
        Ok(())
    }

    pub(crate) async fn clear(&mut self) -> Result<()> {
        ask(&mut self.0, &["FLUSHDB"]).await
    }
}

async fn ask<T: FromRedisValue>(connection: &mut impl ConnectionLike, words: &[&str]) -> Result<T> {
    let (name, arguments) = words.split_first().context("a command has a name")?;
    Ok(cmd(name).arg(arguments).query_async(connection).await?)
}
