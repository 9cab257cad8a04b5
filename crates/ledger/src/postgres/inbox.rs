//! The inbox: tasks that users enqueued in transactions of their own, until the ledger holds them.
//!
//! A row leaves the inbox in the transaction of the batch that creates its task, so it is a row or a task, never both.

use std::sync::Arc;
use std::time::Duration;

use authority::{Position, TaskId};
use tokio::sync::Notify;

use super::connection::Session;
use super::schema::read_cluster;
use super::{Database, Error};

/// The inbox is read this often even if nobody notifies.
const PAUSE: Duration = Duration::from_secs(1);
/// A row of 1 MiB may be followed by another: so many are in memory at once.
const MAX_ROWS: i64 = 64;

/// The rows that no later read has to wait for. A database that lacks commits which the owner knows to be durable, as after
/// a failover, may also lack the end of a row.
const READ: &str = "SELECT uuid_send(id), tenant, workspace, queue, payload::text, options::text FROM lessor.inbox \
    WHERE shard = $1 AND retry_at <= now() AND (SELECT next FROM lessor.batch WHERE batch.shard = $1 \
    ORDER BY first DESC LIMIT 1) > $2 ORDER BY enqueued_at, id LIMIT $3";

/// A task that was enqueued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    pub id: TaskId,
    pub tenant: String,
    pub workspace: String,
    pub queue: String,
    /// JSON, as PostgreSQL writes it.
    pub payload: String,
    /// A JSON object with the options of a submit.
    pub options: String,
}

/// The inbox of one shard, with a connection of its own. For the owner of the shard alone.
pub struct Inbox {
    database: Database,
    session: Option<Session>,
    /// Something may have been enqueued since the last wait.
    notified: Arc<Notify>,
}

impl Inbox {
    pub fn new(database: Database) -> Inbox {
        Inbox { database, session: None, notified: Arc::default() }
    }

    /// Waits until something may have been enqueued.
    pub async fn wait(&mut self) {
        let notified = self.notified.notified();
        let _ = tokio::time::timeout(PAUSE, notified).await;
    }

    /// The oldest rows of a database that holds everything up to `durable`.
    pub async fn rows(&mut self, durable: Position) -> Result<Vec<InboxRow>, Error> {
        let (shard, durable) = (self.database.shard(), durable.0 as i64);
        let rows = self.session().await?.query(READ, &[&shard, &durable, &MAX_ROWS]).await?;
        let rows = rows.iter().map(|row| {
            let id: [u8; 16] = row.get::<_, &[u8]>(0).try_into().unwrap_or_default();
            InboxRow {
                id: TaskId(u128::from_be_bytes(id)),
                tenant: row.get(1),
                workspace: row.get(2),
                queue: row.get(3),
                payload: row.get(4),
                options: row.get(5),
            }
        });
        Ok(rows.collect())
    }

    /// Removes rows whose tasks exist.
    pub async fn remove(&mut self, ids: &[TaskId]) -> Result<(), Error> {
        let ids: Vec<String> = ids.iter().map(TaskId::to_string).collect();
        let sql = "DELETE FROM lessor.inbox WHERE id = ANY($1::text[]::uuid[])";
        self.session().await?.execute(sql, &[&ids]).await?;
        Ok(())
    }

    /// Leaves a row for later, with the reason.
    pub async fn refuse(&mut self, id: TaskId, why: &str) -> Result<(), Error> {
        let sql = "UPDATE lessor.inbox SET refused = $2, retry_at = now() + interval '5 seconds' WHERE id = $1::text::uuid";
        self.session().await?.execute(sql, &[&id.to_string(), &why]).await?;
        Ok(())
    }

    async fn session(&mut self) -> Result<&Session, Error> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            let notified = self.notified.clone();
            let session =
                Session::connect_and_listen(self.database.server(), move |_| notified.notify_one()).await?;
            if read_cluster(&session.client).await? != self.database.cluster() {
                return Err(Error::Refused("the database now belongs to another cluster".to_owned()));
            }
            session.client.batch_execute("LISTEN lessor_inbox").await?;
            self.session = Some(session);
        }
        self.session.as_ref().ok_or(Error::Closed)
    }
}
