//! Reads and writes the action cache. Results that the coordinator committed come from the ledger alone; results that
//! clients uploaded are kept apart from them.

use std::sync::Arc;

use authority::{Phase, Position, Scope, Task};
use blobs::{ActionCache, ActionKey, Digest, Origin, Serve};
use tokio::sync::Mutex;
use tonic::Status;

use super::execution::operation;
use super::execution::outputs;
use super::messages::ActionResult;
use super::store::{self, Store};
use crate::metrics::Metrics;
use execution::{ExecutionPayload, cached_result};

#[derive(Clone)]
pub struct Results {
    cache: Arc<dyn ActionCache>,
    /// Held while an entry is compared and written, so that an older entry never replaces a newer one.
    writing: Arc<Mutex<()>>,
    metrics: Metrics,
}

impl Results {
    pub fn new(cache: Arc<dyn ActionCache>) -> Results {
        Results::counted(cache, Metrics::default())
    }

    /// As [`Results::new`], with metrics of the lookups.
    pub fn counted(cache: Arc<dyn ActionCache>, metrics: Metrics) -> Results {
        Results { cache, writing: Arc::default(), metrics }
    }

    /// A result whose outputs are all present.
    pub async fn get(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
        serve: Serve,
    ) -> Result<Option<ActionResult>, Status> {
        let result = self.look_again(store, scope, action, serve).await?;
        self.metrics.action_looked(result.is_some());
        Ok(result)
    }

    /// As [`Results::get`], for a lookup that was counted before.
    pub(super) async fn look_again(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
        serve: Serve,
    ) -> Result<Option<ActionResult>, Status> {
        let entry = self.cache.get_result(&store.tenant, &key(scope, action), serve).await;
        let mut result = entry.map_err(store::status)?.and_then(|entry| cached_result::decode(&entry.bytes));
        if let Some((_, found)) = &result
            // An entry whose outputs cannot be checked is useless.
            && outputs::is_any_missing(store, found, action.function).await.unwrap_or(true)
        {
            result = None;
        }
        Ok(result.map(|(_, result)| result))
    }

    pub async fn upload(
        &self,
        store: &Store,
        scope: &Scope,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<(), Status> {
        let entry = cached_result::encode(Position::ZERO.0, result).into();
        self.cache
            .put_result(&store.tenant, &key(scope, action), Origin::Uploaded, entry)
            .await
            .map_err(store::status)
    }

    /// Writes the result of a completed execution, if it may be cached (R28, R35). Idempotent.
    pub async fn keep(&self, scope: &Scope, task: &Task) -> Result<(), Status> {
        let Phase::Completed { result, ended, .. } = &task.phase else { return Ok(()) };
        let payload = ExecutionPayload::decode(&task.payload).ok().filter(|_| !task.operations.is_empty());
        match (payload, operation::result_of(result, task.created_at)) {
            (Some(payload), Ok(result)) => self.commit(scope, &payload, &result, *ended).await,
            _ => Ok(()),
        }
    }

    /// Writes the result of the completion that was recorded at a position, unless the entry is of a later one.
    pub async fn commit(
        &self,
        scope: &Scope,
        payload: &ExecutionPayload,
        result: &ActionResult,
        at: Position,
    ) -> Result<(), Status> {
        let Ok(action) = payload.action() else { return Ok(()) };
        if payload.do_not_cache || result.exit_code != 0 {
            return Ok(());
        }
        let tenant = super::tenant(scope)?;
        let key = key(scope, &action);
        let _writing = self.writing.lock().await;
        let before = self.cache.get_result(&tenant, &key, Serve::Committed).await;
        let before = before.map_err(store::status)?.and_then(|entry| cached_result::decode(&entry.bytes));
        if before.is_some_and(|(position, _)| position >= at.0) {
            return Ok(());
        }
        let entry = cached_result::encode(at.0, result).into();
        self.cache.put_result(&tenant, &key, Origin::Committed, entry).await.map_err(store::status)
    }
}

fn key(scope: &Scope, action: &Digest) -> ActionKey {
    ActionKey { instance: scope.workspace.clone(), action: *action }
}
