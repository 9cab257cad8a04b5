//! Sessions with PostgreSQL: one connection each, with settings that are verified before anything relies on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Row, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Error, Server};

/// The oldest server that has everything the schema uses.
const MIN_SERVER_VERSION: i32 = 150_000;
/// The name under which PostgreSQL shows the sessions of nodes, and those of tools that only read.
pub(super) const NODE: &str = "lessor";
pub(super) const READER: &str = "lessor-reader";
/// A server that does not answer the first byte in this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that does not open a session in this time does not answer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection whose peer is gone is noticed within about this time, on both sides.
const SILENCE: Duration = Duration::from_secs(5);

/// What an append relies on. A statement is never canceled: a canceled wait for a replica still commits.
const SETTINGS: &str = "SET synchronous_commit = on; SET statement_timeout = 0; SET lock_timeout = 0; \
    SET idle_in_transaction_session_timeout = 0; SET idle_session_timeout = 0; SET default_transaction_isolation = 'read committed'; \
    SET tcp_user_timeout = 5000; SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 1; \
    SET tcp_keepalives_count = 3";

/// Plans that were made on small tables stay with the session, so a scan must not be chosen even there.
const PLANS: &str =
    "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

const VERIFY: &str = "SELECT current_setting('server_version_num')::int4, \
    current_setting('synchronous_commit') = 'on' AND current_setting('statement_timeout') = '0', \
    current_setting('fsync') = 'on' AND current_setting('full_page_writes') = 'on', \
    pg_is_in_recovery(), pg_backend_pid(), (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8";

/// What comes over a connection without being asked for.
pub(super) enum Heard {
    Notification,
    End,
}

pub(super) struct Session {
    pub client: Client,
    /// When the server was started. A replica that was promoted has another time than its primary.
    pub server: i64,
    /// By their text. Each is a constant of this crate.
    statements: Mutex<HashMap<String, Statement>>,
    warned: Arc<AtomicBool>,
    drive: AbortHandle,
}

type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

impl Session {
    /// Connects to the first host that takes writes.
    pub(super) async fn connect(server: &Server) -> Result<Session, Error> {
        Session::connect_and_listen(server, |_| {}).await
    }

    /// The same, and calls `heard` for every notification and at the end of the connection.
    pub(super) async fn connect_and_listen(
        server: &Server,
        heard: impl Fn(Heard) + Send + 'static,
    ) -> Result<Session, Error> {
        match tokio::time::timeout(OPEN_TIMEOUT, Session::open(server, heard)).await {
            Ok(opened) => opened,
            Err(_) => Err(Error::Silent),
        }
    }

    async fn open(server: &Server, heard: impl Fn(Heard) + Send + 'static) -> Result<Session, Error> {
        let mut config: Config = server.config.clone();
        if config.get_application_name().is_none() {
            config.application_name(NODE);
        }
        config
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(SILENCE)
            .keepalives_idle(Duration::from_secs(2))
            .keepalives_interval(Duration::from_secs(1))
            .keepalives_retries(3);
        let warned = Arc::new(AtomicBool::new(false));
        let (client, drive) = match &server.tls {
            Some(tls) => {
                let (client, connection) = config.connect(MakeRustlsConnect::new(tls.clone())).await?;
                (client, tokio::spawn(drive(connection, warned.clone(), heard)).abort_handle())
            }
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                (client, tokio::spawn(drive(connection, warned.clone(), heard)).abort_handle())
            }
        };
        client.batch_execute(SETTINGS).await?;
        client.batch_execute(PLANS).await?;
        let server = verify(&client, server.unsafe_no_sync).await?;
        Ok(Session { client, server, statements: Mutex::default(), warned, drive })
    }

    /// A statement that the server has parsed once for this session, so that it is executed in one round trip.
    pub(super) async fn statement(&self, sql: &str) -> Result<Statement, Error> {
        let known = self.statements().get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    pub(super) async fn query(&self, sql: &str, parameters: Parameters<'_>) -> Result<Vec<Row>, Error> {
        Ok(self.client.query(&self.statement(sql).await?, parameters).await?)
    }

    pub(super) async fn query_one(&self, sql: &str, parameters: Parameters<'_>) -> Result<Row, Error> {
        Ok(self.client.query_one(&self.statement(sql).await?, parameters).await?)
    }

    pub(super) async fn query_opt(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
    ) -> Result<Option<Row>, Error> {
        Ok(self.client.query_opt(&self.statement(sql).await?, parameters).await?)
    }

    pub(super) async fn execute(&self, sql: &str, parameters: Parameters<'_>) -> Result<u64, Error> {
        Ok(self.client.execute(&self.statement(sql).await?, parameters).await?)
    }

    fn statements(&self) -> std::sync::MutexGuard<'_, HashMap<String, Statement>> {
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection although statements are not answered. Without this, a dropped session stays open until they are.
    pub(super) fn hang_up(self) {
        self.drive.abort();
    }

    /// Whether the server has warned since the last call. A commit that comes with a warning may not be replicated.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::AcqRel)
    }
}

/// Reads what the server sends, until the connection ends. Warnings come before the answer that they belong to.
async fn drive<S, T>(mut connection: Connection<S, T>, warned: Arc<AtomicBool>, heard: impl Fn(Heard))
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = poll_fn(move |context| connection.poll_message(context));
    while let Some(Ok(message)) = messages.next().await {
        match message {
            AsyncMessage::Notice(notice) if notice.parsed_severity() == Some(Severity::Warning) => {
                tracing::warn!(warning = notice.message(), "PostgreSQL warns");
                warned.store(true, Ordering::Release);
            }
            AsyncMessage::Notification(_) => heard(Heard::Notification),
            _ => {}
        }
    }
    heard(Heard::End);
}

/// Returns when the server was started.
async fn verify(client: &Client, unsafe_no_sync: bool) -> Result<i64, Error> {
    let row = client.query_one(VERIFY, &[]).await?;
    let (version, is_set, is_synced): (i32, bool, bool) = (row.get(0), row.get(1), row.get(2));
    let (is_replica, pid): (bool, i32) = (row.get(3), row.get(4));
    let refused = |why: &str| Err(Error::Refused(why.to_owned()));
    if version < MIN_SERVER_VERSION {
        return refused("the server is older than PostgreSQL 15; upgrade it");
    }
    if is_replica {
        return refused("the server is a replica that takes no writes; name the primary in the URL");
    }
    let again: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    if !is_set || pid != again {
        return refused(
            "the connection does not keep its session, as behind a transaction pooler; connect to PostgreSQL itself",
        );
    }
    if !is_synced && !unsafe_no_sync {
        return refused(
            "fsync or full_page_writes is off, so a power failure would undo acknowledged work; turn both on",
        );
    }
    Ok(row.get(5))
}
