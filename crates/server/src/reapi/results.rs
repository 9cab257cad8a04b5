//! The results of actions. Those that the coordinator committed are written here alone, from what the ledger says; what
//! clients uploaded is kept apart from them.

use std::sync::Arc;

use authority::{Phase, Position, Scope, Task, Time};
use blobs::{ActionCache, ActionKey, Digest, Origin, Serve};
use bytes::Bytes;
use prost::Message;
use tokio::sync::Mutex;
use tonic::Status;

use super::execution::operation;
use super::execution::outputs;
use super::execution::payload::Payload;
use super::messages::ActionResult;
use super::store::{self, Store};
use crate::metrics::Metrics;

/// An entry begins with the position of the commit that it comes from; one that was uploaded with zero.
const POSITION_BYTES: usize = 8;

/// Cheap to clone.
#[derive(Clone)]
pub struct Results {
    cache: Arc<dyn ActionCache>,
    /// Held while a commit's entry is compared and written, so that an older one never replaces a newer one.
    writing: Arc<Mutex<()>>,
    metrics: Metrics,
}

/// A result as the ledger holds it.
pub struct Commit<'a> {
    pub result: &'a [u8],
    pub queued_at: Time,
    pub at: Position,
}

impl Results {
    pub fn new(cache: Arc<dyn ActionCache>) -> Results {
        Results::counted(cache, Metrics::default())
    }

    /// As [`Results::new`], with lookups counted.
    pub fn counted(cache: Arc<dyn ActionCache>, metrics: Metrics) -> Results {
        Results { cache, writing: Arc::default(), metrics }
    }

    /// What Execute may serve: a committed result, all of which is here.
    pub async fn committed(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
    ) -> Result<Option<ActionResult>, Status> {
        self.served(store, scope, action, Serve::Committed).await
    }

    /// What anybody said, all of which is here.
    pub async fn any(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
    ) -> Result<Option<ActionResult>, Status> {
        self.served(store, scope, action, Serve::Any).await
    }

    async fn served(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
        serve: Serve,
    ) -> Result<Option<ActionResult>, Status> {
        let found = self.whole(store, scope, action, serve).await;
        if let Ok(found) = &found {
            self.metrics.action_looked(found.is_some());
        }
        found
    }

    async fn whole(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
        serve: Serve,
    ) -> Result<Option<ActionResult>, Status> {
        let entry = self.cache.get_result(&store.tenant, &key(scope, action), serve).await;
        let entry = entry.map_err(|error| store::status(&error))?;
        let Some((_, result)) = entry.and_then(|entry| read(&entry.bytes)) else { return Ok(None) };
        match outputs::is_any_missing(store, &result, action.function).await {
            Ok(false) => Ok(Some(result)),
            // An entry that cannot be followed to its outputs is of no use to anybody.
            Ok(true) | Err(_) => Ok(None),
        }
    }

    /// Keeps what a client says is an action's result.
    pub async fn upload(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<(), Status> {
        let entry = entry(Position::ZERO, result);
        self.cache
            .put_result(&store.tenant, &key(scope, action), Origin::Uploaded, entry)
            .await
            .map_err(|error| store::status(&error))
    }

    /// Makes the entry of a completed execution true, if it is to be cached (R28, R35). Doing it again changes nothing.
    pub async fn keep(&self, scope: &Scope, task: &Task) -> Result<(), Status> {
        let Phase::Completed { result, ended, .. } = &task.phase else { return Ok(()) };
        let payload = Payload::of(task).filter(|_| !task.operations.is_empty());
        match payload {
            Some(payload) => {
                let committed = Commit { result, queued_at: task.created_at, at: *ended };
                self.commit(scope, &payload, committed).await
            }
            None => Ok(()),
        }
    }

    /// Makes the entry of a commit true, unless that of a later one is.
    pub async fn commit(
        &self,
        scope: &Scope,
        payload: &Payload,
        committed: Commit<'_>,
    ) -> Result<(), Status> {
        let result = operation::result_of(committed.result, committed.queued_at);
        let (Ok(result), Some(action)) = (result, payload.digest()) else { return Ok(()) };
        if payload.do_not_cache || result.exit_code != 0 {
            return Ok(());
        }
        let tenant = super::tenant(scope)?;
        let key = key(scope, &action);
        let _writing = self.writing.lock().await;
        let before = self.cache.get_result(&tenant, &key, Serve::Committed).await;
        let before = before.map_err(|error| store::status(&error))?.and_then(|entry| read(&entry.bytes));
        if before.is_some_and(|(position, _)| position >= committed.at) {
            return Ok(());
        }
        let entry = entry(committed.at, &result);
        self.cache
            .put_result(&tenant, &key, Origin::Committed, entry)
            .await
            .map_err(|error| store::status(&error))
    }
}

fn key(scope: &Scope, action: &Digest) -> ActionKey {
    ActionKey { instance: scope.workspace.clone(), action: *action }
}

fn entry(position: Position, result: &ActionResult) -> Bytes {
    let mut bytes = Vec::with_capacity(POSITION_BYTES + result.encoded_len());
    bytes.extend_from_slice(&position.0.to_le_bytes());
    // A vector has always room.
    let _ = result.encode(&mut bytes);
    bytes.into()
}

fn read(entry: &[u8]) -> Option<(Position, ActionResult)> {
    let (position, result) = entry.split_first_chunk::<POSITION_BYTES>()?;
    Some((Position(u64::from_le_bytes(*position)), ActionResult::decode(result).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_and_garbage_is_none() {
        let result = ActionResult { exit_code: 3, ..ActionResult::default() };
        assert_eq!(read(&entry(Position(7), &result)), Some((Position(7), result)));
        assert_eq!(read(&[1, 2, 3]), None);
        assert_eq!(read(&[0xff; 40]), None);
    }
}
