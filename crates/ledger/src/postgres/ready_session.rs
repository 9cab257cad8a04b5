//! A session for appends that a standby opens before it needs one, so that a takeover does not wait until it is open.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::Error;
use super::batch_table::BatchTable;
use super::shared::Database;
use super::sql_table::{Open, SqlTable};

/// A server that does not answer in this time may not be there any more. It has just answered on another connection, so this one alone
/// would be broken, and a session that is opened instead needs several answers: where the machine is slow, the wait is the shorter way.
const MAX_CHECK: Duration = Duration::from_secs(2);

/// Nothing reads its connection until it is used, so it may be broken.
pub(super) struct ReadySession {
    open: Option<Open>,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl ReadySession {
    pub(super) fn open(database: &Database) -> Result<ReadySession, Error> {
        let runtime = writer_runtime()?;
        let open = runtime.block_on(async {
            let open = SqlTable(database.clone()).connect().await?;
            // The server has parsed the question when it is asked again.
            open.is_usable().await;
            Ok::<Open, Error>(open)
        })?;
        Ok(ReadySession { open: Some(open), runtime: Some(runtime) })
    }

    /// The session, if it still works and is with this server, and the runtime that it belongs to.
    pub(super) fn check(mut self, server: i64) -> Option<(Open, Runtime)> {
        let open = self.open.take().filter(|open| open.server() == server)?;
        let is_usable = async { timeout(MAX_CHECK, open.is_usable()).await == Ok(true) };
        if !self.runtime.as_ref()?.block_on(is_usable) {
            return None;
        }
        Some((open, self.runtime.take()?))
    }
}

impl Drop for ReadySession {
    /// May happen in an asynchronous task, where a runtime must not be waited for.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A writer's session runs on the thread that appends.
pub(super) fn writer_runtime() -> Result<Runtime, Error> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
