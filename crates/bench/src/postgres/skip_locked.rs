//! The same cycle on a plain table with `FOR UPDATE SKIP LOCKED`, to compare with: an insert, an update of the oldest
//! waiting row, and a delete, each a transaction of one statement. Every client has a connection of its own.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, Statement};

use super::BenchDatabase;
use crate::load::{LoadGenerator, Rate};

const SCHEMA: &str = "
CREATE TABLE job (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL, worker text,
  leased_until timestamptz);
CREATE INDEX waiting ON job (id) WHERE worker IS NULL;";
const SUBMIT: &str = "INSERT INTO job (payload) VALUES ($1)";
const LEASE: &str = "UPDATE job SET worker = $1, leased_until = now() + interval '30 s' WHERE id =
  (SELECT id FROM job WHERE worker IS NULL ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, payload";
const COMPLETE: &str = "DELETE FROM job WHERE id = $1 AND worker = $2";
/// A worker that finds nothing looks again after this time.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub(crate) struct SkipLocked<'a> {
    database: &'a BenchDatabase,
}

impl SkipLocked<'_> {
    pub(crate) async fn create(database: &BenchDatabase) -> Result<SkipLocked<'_>> {
        let client = database.client().await?;
        for setting in ["synchronous_commit", "fsync"] {
            let shown: String = client.query_one(&format!("SHOW {setting}"), &[]).await?.get(0);
            ensure!(shown == "on", "PostgreSQL has {setting} {shown}, so it does not sync every commit");
        }
        client.batch_execute(SCHEMA).await?;
        Ok(SkipLocked { database })
    }

    pub(crate) async fn cycles(&self, clients: usize, payload: &str, time: Duration) -> Result<Rate> {
        let mut load = LoadGenerator::new(clients);
        for n in 0..clients {
            let (session, open_tasks) = (Session::open(self.database).await?, load.open_tasks.clone());
            let payload = payload.to_owned();
            load.clients.spawn(async move {
                loop {
                    open_tasks.acquire().await?.forget();
                    session.client.execute(&session.submit, &[&payload]).await?;
                }
            });
            let (session, open_tasks, done) =
                (Session::open(self.database).await?, load.open_tasks.clone(), load.done.clone());
            load.clients.spawn(async move {
                let worker = format!("w{n}");
                loop {
                    let Some(job) = session.client.query_opt(&session.lease, &[&worker]).await? else {
                        tokio::time::sleep(LOOK_AGAIN).await;
                        continue;
                    };
                    let id: i64 = job.get(0);
                    let deleted = session.client.execute(&session.complete, &[&id, &worker]).await?;
                    ensure!(deleted == 1, "job {id} was not this worker's any more");
                    open_tasks.add_permits(1);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        load.measure(None, time).await
    }
}

struct Session {
    client: Client,
    submit: Statement,
    lease: Statement,
    complete: Statement,
}

impl Session {
    async fn open(database: &BenchDatabase) -> Result<Session> {
        let client = database.client().await.context("is max_connections of the server large enough?")?;
        let submit = client.prepare(SUBMIT).await?;
        let lease = client.prepare(LEASE).await?;
        let complete = client.prepare(COMPLETE).await?;
        Ok(Session { client, submit, lease, complete })
    }
}
