//! A whole coordinator on the memory backend: nothing in the coordinator knows where the ledger is stored.

#[path = "memory_backend/failover.rs"]
mod failover;
#[path = "memory_backend/lease_holders.rs"]
mod lease_holders;
#[path = "memory_backend/repeats.rs"]
mod repeats;
mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use authority::TaskState;
use authority::command::Verdict;
use authority::{Outcome, TaskId};
use coordinator::{HistoryReader, HistoryRecord, Options, Projection};
use ledger::memory::MemoryStorage;
use support::{completion, lease, scope, submit};

struct Positions(Arc<Mutex<Vec<u64>>>);

impl Projection for Positions {
    fn name(&self) -> &str {
        "positions"
    }

    fn apply(&mut self, record: &HistoryRecord, _: &dyn HistoryReader) -> Result<(), String> {
        self.0.lock().unwrap().push(record.position.0);
        Ok(())
    }
}

#[tokio::test]
async fn a_coordinator_runs_stops_and_continues_in_memory() {
    let storage = MemoryStorage::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let options = || Options {
        snapshot_after_bytes: 2_000,
        projections: vec![Box::new(Positions(seen.clone()))],
        ..Options::default()
    };
    let running = coordinator::start(storage.open(), options()).unwrap();
    for id in 1..=100 {
        running.handle.submit(submit(id, "q")).await.unwrap();
        let grant = running.handle.lease(lease("w", "q"), Duration::ZERO).await.unwrap().remove(0);
        let verdict = running.handle.complete(completion("w", &grant)).await.unwrap();
        assert_eq!(verdict, Verdict::Committed(Outcome::Completed));
    }
    running.handle.submit(submit(101, "q")).await.unwrap();
    running.stop().await.unwrap();

    let again = coordinator::start(storage.open(), options()).unwrap();
    assert!(again.report.snapshot.is_some(), "snapshots were taken");
    assert_eq!((again.report.tasks, again.report.epoch), (101, 2));
    let done = again.handle.task(scope(), TaskId(100)).await.unwrap().unwrap();
    assert_eq!(done.view.task.state(), TaskState::Completed);
    let grant = again.handle.lease(lease("w", "q"), Duration::ZERO).await.unwrap().remove(0);
    assert_eq!(grant.task, TaskId(101));
    let end = again.handle.status().await.unwrap().position.0;
    again.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), (1..=end).collect::<Vec<_>>(), "the projection got every record once");
}
