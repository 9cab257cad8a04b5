//! A migration of a trimmed ledger. Between two directories, which the command does not offer, no database is needed.

use std::path::Path;
use std::sync::Arc;

use authority::command::SubmitTask;
use authority::{Properties, QueueKey, Scope, TaskId};
use ledger::Position;
use ledger::file::{Inspection, MIN_SEGMENT_BYTES, Options};

use super::*;
use crate::cluster_key::ClusterKey;
use crate::data_dir::DataDir;

fn options() -> Options {
    Options {
        create: Some(ClusterId([3; 16])),
        segment_bytes: 16 * MIN_SEGMENT_BYTES,
        history_max_bytes: 0,
        ..Options::default()
    }
}

/// Fills a directory until its oldest history is trimmed.
async fn fill(data: &Path) {
    let queue =
        Arc::new(QueueKey { scope: Scope { tenant: "t".into(), workspace: "w".into() }, name: "q".into() });
    let mut id = 0;
    while Inspection::open_dir(&data.join("ledger")).map_or(Position(1), |found| found.first().unwrap())
        == Position(1)
    {
        let (storage, _) = ledger::file::open_data_dir(data, options()).unwrap();
        let small = coordinator::Options { snapshot_after_bytes: 4_000, ..coordinator::Options::default() };
        let running = coordinator::start(storage, small).unwrap();
        for _ in 0..100 {
            id += 1;
            let task = SubmitTask {
                id: TaskId(id),
                queue: queue.clone(),
                payload: Arc::from(&[b'1'; 500][..]),
                priority: 0,
                delay_ms: 0,
                properties: Arc::new(Properties::default()),
                options: None,
                operation: None,
            };
            running.handle.submit(task).await.unwrap();
        }
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_trimmed_history_keeps_its_positions_and_its_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fill(&from).await;
    DataDir::open(&from, false).unwrap().lease_key().unwrap();
    let source = Source::open(&Place::File(from.clone()), false).unwrap();
    assert!(Source::open(&Place::File(from), false).is_err(), "the source is locked");
    let first = source.reader.first().unwrap();
    assert!(first > Position(1));

    let key = ClusterKey::generate().unwrap();
    let begin = || Target::begin(&Place::File(to.clone()), source.cluster, first, &key, false).unwrap();
    drop(begin());
    assert!(DataDir::open(&to, true).is_err(), "half a migration is no directory for a server");
    let mut target = begin();
    target.save_offset("results", Position(7)).unwrap();
    let facts = copy(&source, &mut target).unwrap();
    target.finish(&key).unwrap();

    let copied = Source::open(&Place::File(to.clone()), false).unwrap();
    assert_eq!(copied.reader.first().unwrap(), first);
    assert_eq!(copied.reader.snapshots().unwrap().len(), source.reader.snapshots().unwrap().len());
    assert!(copied.offsets.contains(&("results".to_owned(), Position(7))), "{:?}", copied.offsets);
    assert!(copied.key(None, &to).unwrap() == key);
    assert!(facts.chain.records > 0 && facts.position > first);
}
