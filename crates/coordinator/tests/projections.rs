//! Projections follow what is durable, in order, and go on where they left off.

mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use authority::State;
use coordinator::{HistoryReader, HistoryRecord, Options, Projection};
use support::{storage, submit};

/// Writes down the positions it was shown, and fails when it is told to.
struct Recorder {
    seen: Arc<Mutex<Vec<u64>>>,
    /// The position at which it fails, once.
    fail_once_at: Option<u64>,
}

impl Projection for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }

    fn apply(&mut self, record: &HistoryRecord, _: &dyn HistoryReader) -> Result<(), String> {
        if self.fail_once_at == Some(record.position.0) {
            self.fail_once_at = None;
            return Err("not now".into());
        }
        self.seen.lock().unwrap().push(record.position.0);
        Ok(())
    }
}

async fn run(
    directory: &std::path::Path,
    ids: std::ops::Range<u128>,
    fail_once_at: Option<u64>,
) -> (Vec<u64>, u64) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut options = Options::default();
    options.projections.push(Box::new(Recorder { seen: seen.clone(), fail_once_at }));
    let running = coordinator::start(storage(directory), options).unwrap();
    for id in ids {
        running.handle.submit(submit(id, "q")).await.unwrap();
    }
    let position = running.handle.status().await.unwrap().position.0;
    // Stopping does not wait for projections; they are caught up with here, as they would be in a longer life.
    while seen.lock().unwrap().last() != Some(&position) {
        tokio::task::yield_now().await;
    }
    running.stop().await.unwrap();
    let seen = seen.lock().unwrap().clone();
    (seen, position)
}

#[tokio::test]
async fn a_projection_is_shown_every_record_once_and_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (first, end) = run(dir.path(), 1..20, None).await;
    assert_eq!(first, (1..=end).collect::<Vec<_>>());
    let (second, last) = run(dir.path(), 20..30, None).await;
    assert_eq!(second, (end + 1..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_failed_projection_is_tried_again_and_nothing_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let (seen, end) = run(dir.path(), 1..10, Some(5)).await;
    assert_eq!(seen, (1..=end).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_projection_whose_offset_was_lost_is_shown_everything_again() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), 1..10, None).await;
    std::fs::remove_file(dir.path().join("effects").join("recorder")).unwrap();
    let (seen, end) = run(dir.path(), 10..12, None).await;
    assert_eq!(seen, (1..=end).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_start_can_wait_until_projections_have_what_an_earlier_process_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let running = coordinator::start(storage(dir.path()), Options::default()).unwrap();
    for id in 1..20 {
        running.handle.submit(submit(id, "q")).await.unwrap();
    }
    let recorded = running.handle.status().await.unwrap().position.0;
    running.stop().await.unwrap();

    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut options = Options::default();
    options.projections.push(Box::new(Recorder { seen: seen.clone(), fail_once_at: Some(5) }));
    let mut running = coordinator::start(storage(dir.path()), options).unwrap();
    running.projections_caught_up(std::time::Duration::from_secs(60)).await;
    let caught_up: Vec<u64> = seen.lock().unwrap().iter().copied().take_while(|at| *at <= recorded).collect();
    assert_eq!(caught_up, (1..=recorded).collect::<Vec<_>>());
    running.stop().await.unwrap();
}

/// Begins with the number of tasks in the state, and counts the tasks that are created.
struct Counter(Arc<Mutex<(usize, usize)>>);

impl Projection for Counter {
    fn name(&self) -> &str {
        "counter"
    }

    fn begin(&mut self, state: &State, _: &dyn HistoryReader) -> bool {
        *self.0.lock().unwrap() = (state.len(), 0);
        true
    }

    fn apply(&mut self, record: &HistoryRecord, _: &dyn HistoryReader) -> Result<(), String> {
        self.0.lock().unwrap().1 += usize::from(record.event.name() == "TaskCreated");
        Ok(())
    }
}

#[tokio::test]
async fn a_projection_that_begins_with_the_state_gets_every_later_record_and_has_no_offset() {
    let dir = tempfile::tempdir().unwrap();
    for expected in [(0, 3), (3, 3)] {
        let counts = Arc::new(Mutex::new((0, 0)));
        let mut options = Options::default();
        options.projections.push(Box::new(Counter(counts.clone())));
        let running = coordinator::start(storage(dir.path()), options).unwrap();
        for id in 1..=3 {
            running.handle.submit(submit(id + 10 * expected.0 as u128, "q")).await.unwrap();
        }
        // A stop lets projections apply every durable record.
        running.stop().await.unwrap();
        assert_eq!(*counts.lock().unwrap(), expected);
        assert!(!dir.path().join("effects").join("counter").exists());
    }
}

/// Writes down the positions it was shown, and waits with each until it may go on, as for a server that hangs.
struct Hanging {
    seen: Sender<u64>,
    may_go_on: Receiver<()>,
}

impl Projection for Hanging {
    fn name(&self) -> &str {
        "hanging"
    }

    fn apply(&mut self, record: &HistoryRecord, _: &dyn HistoryReader) -> Result<(), String> {
        self.seen.send(record.position.0).map_err(|error| error.to_string())?;
        self.may_go_on.recv().map_err(|error| error.to_string())
    }
}

/// A handover waited for a projection whose server hung, and there was no owner meanwhile.
#[tokio::test]
async fn a_handover_waits_for_no_projection_which_ends_with_its_record_and_continues_at_the_next_owner() {
    let dir = tempfile::tempdir().unwrap();
    let (sender, seen) = channel();
    let (go_on, may_go_on) = channel();
    let mut options = Options::default();
    options.projections.push(Box::new(Hanging { seen: sender, may_go_on }));
    let running = coordinator::start(storage(dir.path()), options).unwrap();
    for id in 1..5 {
        running.handle.submit(submit(id, "q")).await.unwrap();
    }
    assert_eq!(seen.recv(), Ok(1));
    let projections = running.hand_over(std::future::pending()).await.unwrap();
    go_on.send(()).unwrap();
    projections.wait().await;
    assert!(seen.try_recv().is_err(), "the next owner has the other records");

    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut options = Options::default();
    let recorder = Recorder { seen: seen.clone(), fail_once_at: None };
    options.projections.push(Box::new(Renamed(recorder, "hanging")));
    let running = coordinator::start(storage(dir.path()), options).unwrap();
    running.stop().await.unwrap();
    assert_eq!(seen.lock().unwrap().first(), Some(&2));
}

/// A projection under another name.
struct Renamed(Recorder, &'static str);

impl Projection for Renamed {
    fn name(&self) -> &str {
        self.1
    }

    fn apply(&mut self, record: &HistoryRecord, history: &dyn HistoryReader) -> Result<(), String> {
        self.0.apply(record, history)
    }
}
