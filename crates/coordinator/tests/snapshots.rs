//! Snapshots under load: a restart from one equals a replay of everything.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use authority::{State, TaskId};
use coordinator::Options;
use history::verify::verify;
use ledger::digest::state_digest;
use ledger::file::{FileLedger, Inspection};
use ledger::{Ledger, Recovery};
use support::{completion, lease, ledger_options, storage, submit};

fn ledger(directory: &std::path::Path) -> FileLedger {
    FileLedger::open_dir(&directory.join("ledger"), ledger_options()).unwrap().0
}

/// Replays a whole ledger without its snapshots.
fn full_replay(directory: &std::path::Path) -> State {
    let mut recovery = Recovery::new();
    let replayed = ledger(directory).replay(recovery.next(), &mut |at, bytes| {
        recovery.apply(at, bytes).unwrap();
        ControlFlow::Continue(())
    });
    replayed.unwrap();
    recovery.into_state()
}

fn count_snapshots(directory: &std::path::Path) -> usize {
    let files = std::fs::read_dir(directory.join("ledger")).unwrap();
    files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("snapshot-")).count()
}

#[tokio::test]
async fn a_restart_from_a_snapshot_taken_under_load_equals_a_full_replay() {
    let dir = tempfile::tempdir().unwrap();
    let small = Options { snapshot_after_bytes: 20_000, ..Options::default() };
    let running = coordinator::start(storage(dir.path()), small).unwrap();
    let payload: Arc<[u8]> = Arc::from(vec![b'1'; 500]);
    for id in 1..=400_u128 {
        let mut task = submit(id, "q");
        task.payload = payload.clone();
        running.handle.submit(task).await.unwrap();
        if id % 3 == 0 {
            let grant = running.handle.lease(lease("w", "q"), Duration::ZERO).await.unwrap().remove(0);
            if id % 2 == 0 {
                running.handle.complete(completion("w", &grant)).await.unwrap();
            }
        }
    }
    running.stop().await.unwrap();
    assert!(count_snapshots(dir.path()) > 0, "snapshots were taken");

    let again = support::start(dir.path());
    assert!(again.report.snapshot.is_some(), "the restart used a snapshot");
    assert!(again.report.replayed < 600, "and replayed only what came after it began");
    assert_eq!(again.report.tasks, 400);
    let task = again.handle.task(support::scope(), TaskId(400)).await.unwrap();
    assert!(task.is_some());
    again.stop().await.unwrap();

    let replayed = full_replay(dir.path());
    replayed.check_invariants().unwrap();
    let restored = Recovery::newest(&ledger(dir.path())).unwrap().into_state();
    restored.check_invariants().unwrap();
    assert_eq!(state_digest(&restored), state_digest(&replayed));

    let inspection = Inspection::open_dir(&dir.path().join("ledger")).unwrap();
    let report = verify(&inspection, &mut |_| {}).unwrap();
    assert_eq!(report.damages, []);
    assert!(report.snapshots.iter().all(|snapshot| snapshot.is_proven), "{:?}", report.snapshots);
    assert_eq!(report.digest, Some(state_digest(&replayed)));
}
