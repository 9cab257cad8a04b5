//! Writes the results of completed executions to the action cache. It follows the ledger, so that a result is cached also
//! when no client waits for it, and after a crash.

use authority::event::TaskCompleted;
use authority::{Event, Scope};
use coordinator::{HistoryReader, HistoryRecord, Projection};
use execution::{EXECUTION_QUEUE, ExecutionPayload, result};
use tokio::runtime::Handle;

use super::execution::operation::set_queued_at;
use super::messages::ActionResult;
use super::results::Results;

#[derive(Clone)]
pub struct ActionCacheWriter {
    results: Results,
    /// Runs the work of the store. The projection has a thread of its own, which waits for it.
    runtime: Handle,
}

impl ActionCacheWriter {
    pub fn new(results: Results, runtime: Handle) -> ActionCacheWriter {
        ActionCacheWriter { results, runtime }
    }

    /// The execution that completed, if the task was one. Its first record says so; the history of a task whose result is
    /// not the result of an action need not be read.
    fn execution(
        completed: &TaskCompleted,
        record: &HistoryRecord,
        past: &dyn HistoryReader,
    ) -> Result<Option<(Scope, ExecutionPayload, ActionResult)>, String> {
        let Ok(mut result) = result::decode(&completed.result) else { return Ok(None) };
        let history = past.history(record.position).map_err(|error| error.to_string())?;
        let Some(first) = history.records.first() else { return Ok(None) };
        let Event::TaskCreated(created) = &first.event else { return Ok(None) };
        let is_of_client = &*created.queue.name == EXECUTION_QUEUE && created.operation.is_some();
        let payload = ExecutionPayload::decode(&created.payload).ok().filter(|_| is_of_client);
        set_queued_at(&mut result, first.at);
        Ok(payload.map(|payload| (created.queue.scope.clone(), payload, result)))
    }
}

impl Projection for ActionCacheWriter {
    fn name(&self) -> &str {
        "action-cache"
    }

    fn apply(&mut self, record: &HistoryRecord, past: &dyn HistoryReader) -> Result<(), String> {
        let Event::TaskCompleted(completed) = &record.event else { return Ok(()) };
        let Some((scope, payload, result)) = ActionCacheWriter::execution(completed, record, past)? else {
            return Ok(());
        };
        let (done, is_done) = std::sync::mpsc::channel();
        let (results, at) = (self.results.clone(), record.position);
        self.runtime.spawn(async move {
            // The receiver is gone only if the thread of the projection is.
            let _ = done.send(results.commit(&scope, &payload, &result, at).await);
        });
        match is_done.recv() {
            Ok(committed) => committed.map_err(|status| status.message().to_owned()),
            Err(_) => Err("the server is about to stop".to_owned()),
        }
    }
}
