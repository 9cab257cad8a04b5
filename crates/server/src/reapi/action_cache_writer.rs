//! Turns commits into entries of the action cache, from the ledger alone: also those that nobody waited for, and those
//! that a crash came between.

use authority::event::TaskCompleted;
use authority::{Event, Scope, Time};
use coordinator::{HistoryReader, HistoryRecord, Projection};
use tokio::runtime::Handle;

use super::execution::payload::{Payload, QUEUE};
use super::results::{Commit, Results};

/// What every result of an action begins with, as the worker service keeps it.
const RESULT_BEGINS: &[u8] = b"{\"exitCode\":";

pub struct ActionCacheWriter {
    results: Results,
    /// Where the store's work is done; this effect has a thread of its own that only waits.
    runtime: Handle,
}

impl ActionCacheWriter {
    pub fn new(results: Results, runtime: Handle) -> ActionCacheWriter {
        ActionCacheWriter { results, runtime }
    }

    /// Whose execution it was that completed, if it was one. The task's first record says so.
    fn execution(
        completed: &TaskCompleted,
        record: &HistoryRecord,
        past: &dyn HistoryReader,
    ) -> Result<Option<(Scope, Payload, Time)>, String> {
        if !completed.result.starts_with(RESULT_BEGINS) {
            return Ok(None);
        }
        let history = past.history(record.position).map_err(|error| error.to_string())?;
        let Some(first) = history.records.first() else { return Ok(None) };
        let Event::TaskCreated(created) = &first.event else { return Ok(None) };
        let of_client = &*created.queue.name == QUEUE && created.operation.is_some();
        let payload = Payload::read(&created.payload).filter(|_| of_client);
        Ok(payload.map(|payload| (created.queue.scope.clone(), payload, first.at)))
    }
}

impl Projection for ActionCacheWriter {
    fn name(&self) -> &str {
        "action-cache"
    }

    fn apply(&mut self, record: &HistoryRecord, past: &dyn HistoryReader) -> Result<(), String> {
        let Event::TaskCompleted(completed) = &record.event else { return Ok(()) };
        let Some((scope, payload, queued_at)) = ActionCacheWriter::execution(completed, record, past)? else {
            return Ok(());
        };
        let (done, is_done) = std::sync::mpsc::channel();
        let (results, result, position) = (self.results.clone(), completed.result.clone(), record.position);
        self.runtime.spawn(async move {
            // Nobody waits any more only when this thread is gone.
            let committed = Commit { result: &result, queued_at, at: position };
            let _ = done.send(results.commit(&scope, &payload, committed).await);
        });
        match is_done.recv() {
            Ok(committed) => committed.map_err(|status| status.message().to_owned()),
            Err(_) => Err("the server is about to stop".to_owned()),
        }
    }
}
