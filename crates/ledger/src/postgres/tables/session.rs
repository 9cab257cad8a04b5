//! The session of the thread that writes tables that follow: no other query waits for its statements.

use std::future::Future;
use std::sync::Arc;

use crate::postgres::connection::Session;
use crate::postgres::{Database, Error};

/// A statement that waits longer for a lock, such as that of `CREATE INDEX`, fails and is tried again later: a node that stops waits
/// for it.
const SETTINGS: &str = "SET lock_timeout = 500";

pub(super) struct TablesSession {
    database: Database,
    open: Option<Arc<Session>>,
}

impl TablesSession {
    /// Nothing is opened before it is used.
    pub(super) fn new(database: Database) -> TablesSession {
        TablesSession { database, open: None }
    }

    /// Runs a query and waits for its result.
    pub(super) fn run<T, F>(
        &mut self,
        query: impl FnOnce(Arc<Session>) -> F + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let open = self.open.take().filter(|open| !open.client.is_closed());
        let database = self.database.clone();
        let (session, result) = self.database.block_on(async move {
            let session = match open {
                Some(open) => open,
                None => {
                    let session = database.connect_another().await?;
                    session.client.batch_execute(SETTINGS).await?;
                    Arc::new(session)
                }
            };
            let result = query(session.clone()).await;
            Ok((session, result))
        })?;
        self.open = Some(session);
        result
    }
}
