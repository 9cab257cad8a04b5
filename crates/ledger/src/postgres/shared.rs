//! The parts that an open ledger shares: a connection for everything but appends, and what is known of the cluster.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Runtime;

use super::batch_row::Place;
use super::connection::{READER, Session};
use super::ready_session::ReadySession;
use super::schema::{Cluster, migrate, read_cluster, read_current_cluster};
use super::tables::Context;
use super::{Error, Options, Server};
use crate::Position;
use crate::hold::Holds;

/// Cheap to clone. Calls block, and may be made on any thread: the connection has a thread of its own.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

struct Inner {
    server: Server,
    options: Options,
    cluster: Cluster,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    session: tokio::sync::Mutex<Option<Arc<Session>>>,
    /// The last batch that the writer of this process knows to be durable. Without a writer, all that the database holds may be
    /// read.
    last_durable: Mutex<Option<Place>>,
    holds: Mutex<Holds>,
    /// For the writer that takes over next.
    ready: Mutex<Option<ReadySession>>,
    /// A snapshot was stored since the last trim.
    trim_is_due: AtomicBool,
}

impl Database {
    /// Connects, checks that the database belongs to this cluster, and migrates its schema.
    pub fn connect(server: Server, options: Options) -> Result<Database, Error> {
        let key_print = options.key_print;
        let database = Database::open(server, options, move |mut session| async move {
            let cluster = migrate(&mut session.client, key_print).await?;
            Ok((session, cluster))
        })?;
        database.check_shard()?;
        Ok(database)
    }

    /// Connects for reading: without the key of the cluster, and also where commits are not safe.
    pub(super) fn inspect(mut server: Server, shard: u32) -> Result<Database, Error> {
        server.config.application_name(READER);
        server.unsafe_no_sync = true;
        let options = Options { shard, ..Options::new("", [0; 16]) };
        let database = Database::open(server, options, known_cluster)?;
        database.check_shard()?;
        Ok(database)
    }

    /// Connects, with what the new session does first; it returns the cluster.
    pub(super) fn open<F>(
        server: Server,
        options: Options,
        begin: impl FnOnce(Session) -> F + Send + 'static,
    ) -> Result<Database, Error>
    where
        F: Future<Output = Result<(Session, Cluster), Error>> + Send,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("lessor-postgres")
            .enable_all()
            .build()?;
        let connect = {
            let server = server.clone();
            async move {
                let session = Session::connect(&server).await?;
                begin(session).await
            }
        };
        let connected = wait(&runtime, connect).and_then(|connected| connected);
        let (session, cluster) = match connected {
            Ok(connected) => connected,
            Err(error) => {
                runtime.shutdown_background();
                return Err(error);
            }
        };
        Ok(Database(Arc::new(Inner {
            server,
            options,
            cluster,
            runtime: Some(runtime),
            session: tokio::sync::Mutex::new(Some(Arc::new(session))),
            last_durable: Mutex::default(),
            holds: Mutex::default(),
            ready: Mutex::default(),
            trim_is_due: AtomicBool::new(false),
        })))
    }

    /// Connects to look after the tables of a shard, beside the nodes of the cluster and without its key.
    pub fn for_tables(mut server: Server, shard: u32, tables_payload_kib: u32) -> Result<Database, Error> {
        server.config.application_name(READER);
        let options = Options { shard, tables_payload_kib, ..Options::new("", [0; 16]) };
        let database = Database::open(server, options, known_cluster)?;
        database.check_shard()?;
        Ok(database)
    }

    fn check_shard(&self) -> Result<(), Error> {
        let (options, cluster) = (self.options(), self.cluster());
        if options.shard >= cluster.shards {
            return Err(Error::Refused(format!("the cluster has only {} shards", cluster.shards)));
        }
        Ok(())
    }

    pub fn cluster(&self) -> Cluster {
        self.0.cluster
    }

    pub(super) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(super) fn server(&self) -> &Server {
        &self.0.server
    }

    /// The shard, as the columns have it.
    pub(super) fn shard(&self) -> i32 {
        self.0.options.shard as i32
    }

    /// What the rows of the tables depend on.
    pub(super) fn table_context(&self) -> Context {
        let Options { shard, tables_payload_kib, .. } = self.0.options;
        Context { shard, max_json_bytes: (tables_payload_kib as usize) << 10 }
    }

    /// The last batch that the writer of this process knows to be durable; none when there is no writer.
    pub fn last_durable(&self) -> Option<Place> {
        *self.0.last_durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_last_durable(&self, last: Option<Place>) {
        *self.0.last_durable.lock().unwrap_or_else(PoisonError::into_inner) = last;
    }

    /// Records from this position on must not be read.
    pub(super) fn readable(&self) -> Position {
        self.last_durable().map_or(Position(u64::MAX), |last| last.next)
    }

    /// Opens a session for appends, which the writer that takes over next begins with.
    pub fn prepare_to_write(&self) -> Result<(), Error> {
        let session = ReadySession::open(self)?;
        self.ready().replace(session);
        Ok(())
    }

    /// Whether a session for the next writer was opened.
    pub fn is_prepared_to_write(&self) -> bool {
        self.ready().is_some()
    }

    /// The session that was opened for the next writer, which may be broken. Without a use, it is closed.
    pub(super) fn take_ready_session(&self) -> Option<ReadySession> {
        self.ready().take()
    }

    /// Closes the session for the next writer: the next one may need to be one with another server.
    pub fn end_preparation(&self) {
        drop(self.take_ready_session());
    }

    fn ready(&self) -> MutexGuard<'_, Option<ReadySession>> {
        self.0.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note_snapshot(&self) {
        self.0.trim_is_due.store(true, Ordering::Release);
    }

    pub(super) fn take_trim(&self) -> bool {
        self.0.trim_is_due.swap(false, Ordering::AcqRel)
    }

    pub(super) fn holds<T>(&self, use_holds: impl FnOnce(&Holds) -> T) -> T {
        use_holds(&self.0.holds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs a query on the connection's own thread and waits for its result.
    pub(super) fn run<T, F>(&self, query: impl FnOnce(Arc<Session>) -> F + Send + 'static) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.begin(query).finish()
    }

    /// Begins a query, whose result is awaited later.
    pub(super) fn begin<T, F>(&self, query: impl FnOnce(Arc<Session>) -> F + Send + 'static) -> Pending<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let (sender, pending) = std::sync::mpsc::sync_channel(1);
        let inner = self.0.clone();
        if let Some(runtime) = &self.0.runtime {
            runtime.spawn(async move {
                let result = match inner.session().await {
                    Ok(session) => query(session).await,
                    Err(error) => Err(error),
                };
                // The runtime must not be dropped on its own thread while something waits.
                drop(inner);
                let _ = sender.send(result);
            });
        }
        Pending(pending)
    }

    /// Runs a task on the connection's own thread and waits for its result.
    pub(super) fn block_on<T: Send + 'static>(
        &self,
        task: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        wait(self.0.runtime.as_ref().ok_or(Error::Closed)?, task)?
    }

    /// Opens a session beside that of the other queries.
    pub(super) async fn connect_another(&self) -> Result<Session, Error> {
        self.0.connect().await
    }
}

/// The result of a query that was begun.
pub(super) struct Pending<T>(std::sync::mpsc::Receiver<Result<T, Error>>);

impl<T> Pending<T> {
    pub(super) fn finish(self) -> Result<T, Error> {
        self.0.recv().unwrap_or(Err(Error::Closed))
    }

    /// The result, if it is there already.
    pub(super) fn take(&mut self) -> Option<Result<T, Error>> {
        match self.0.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(Error::Closed)),
        }
    }
}

impl Inner {
    /// The open session, or a new one when there is none or it broke.
    async fn session(&self) -> Result<Arc<Session>, Error> {
        let mut session = self.session.lock().await;
        if let Some(open) = session.as_ref().filter(|open| !open.client.is_closed()) {
            return Ok(open.clone());
        }
        let opened = Arc::new(self.connect().await?);
        *session = Some(opened.clone());
        Ok(opened)
    }

    async fn connect(&self) -> Result<Session, Error> {
        let session = Session::connect(&self.server).await?;
        if read_cluster(&session.client).await? != self.cluster {
            return Err(Error::Refused("the database now belongs to another cluster".to_owned()));
        }
        Ok(session)
    }
}

impl Drop for Inner {
    /// The last owner may be an asynchronous task, where a runtime must not be waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn known_cluster(session: Session) -> Result<(Session, Cluster), Error> {
    let cluster = read_current_cluster(&session.client).await?;
    Ok((session, cluster))
}

fn wait<T: Send + 'static>(
    runtime: &Runtime,
    task: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
    runtime.spawn(async move { drop(sender.send(task.await)) });
    receiver.recv().map_err(|_| Error::Closed)
}
