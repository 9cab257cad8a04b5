//! The window rule: a snapshot taken in slices while records go on, and the records after its begin, give the
//! state that never stopped (invariant 8).

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::event::{TaskCreated, TaskDead, TasksPurged};
use authority::{DeadReason, Event, Position, QueueKey, Scope, State, TaskId, Time};
use ledger::digest::state_digest;
use ledger::record::snapshot::{BlockDecoder, Loader, Slices};

use crate::history::History;

const SEEDS: u64 = 400;

struct Snapshot {
    blocks: Vec<Vec<u8>>,
    begin: Position,
    end: Position,
}

/// Takes a snapshot in small slices and lets the history go on between them.
fn snapshot_amid(history: &mut History) -> Snapshot {
    let mut blocks = vec![Vec::new()];
    let begin = history.state.position();
    let mut slices = Slices::begin(&history.state, &mut blocks[0]);
    while !slices.is_done() {
        let steps = history.draw(20);
        history.steps(steps);
        let mut block = Vec::new();
        let visits = 1 + history.draw(4) as u32;
        slices.next(&history.state, visits, 4_096, &mut block);
        blocks.push(block);
    }
    Snapshot { blocks, begin, end: history.state.position() }
}

fn load(snapshot: &Snapshot) -> State {
    let mut loader = Loader::new();
    for block in &snapshot.blocks {
        for entry in BlockDecoder::default().entries(block) {
            loader.entry(entry.expect("it was encoded here")).expect("it fits");
        }
    }
    loader.finish(snapshot.end).expect("nothing lies beyond the end")
}

#[test]
fn a_snapshot_taken_amid_records_and_its_tail_equal_the_live_state() {
    let mut within: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut history = History::new(seed);
        let before = history.draw(400);
        history.steps(before);
        let snapshot = snapshot_amid(&mut history);
        let digest_at_end = state_digest(&history.state);
        history.steps(100);

        let mut restored = load(&snapshot);
        assert_eq!(restored.position(), snapshot.begin);
        history.replay_into(&mut restored, snapshot.end);
        assert_eq!(state_digest(&restored), digest_at_end, "seed {seed} at the end of the snapshot");
        restored.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        history.replay_into(&mut restored, history.state.position());
        assert_eq!(state_digest(&restored), state_digest(&history.state), "seed {seed}");
        restored.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        for kind in history.kinds_between(snapshot.begin, snapshot.end) {
            *within.entry(kind).or_default() += 1;
        }
    }
    assert_eq!(within.len(), 19, "every kind of record fell into a window: {within:?}");
}

/// A task was stored, purged, and created again by a repeated call in a slot that the snapshot had not visited yet. It
/// stood in the snapshot twice, and no start could load it.
#[test]
fn a_task_that_is_created_again_while_its_snapshot_is_taken_is_stored_once() {
    let mut log = Vec::new();
    let mut state = State::new();
    let (first, second) = (TaskId(1), TaskId(2));
    let mut apply = |state: &mut State, event: Event| {
        state.apply(Time(1), &event).expect("it fits");
        log.push(event);
    };
    for task in [first, second] {
        apply(&mut state, created(task));
        let (reason, detail, report) = (DeadReason::Killed, None, None);
        apply(&mut state, Event::TaskDead(TaskDead { task, reason, detail, report, by: None }));
    }
    let mut blocks = vec![Vec::new(), Vec::new(), Vec::new()];
    let begin = state.position();
    let mut slices = Slices::begin(&state, &mut blocks[0]);
    slices.next(&state, 1, usize::MAX, &mut blocks[1]);
    apply(&mut state, Event::TasksPurged(TasksPurged { tasks: vec![first, second] }));
    apply(&mut state, created(first));
    slices.next(&state, u32::MAX, usize::MAX, &mut blocks[2]);
    assert!(slices.is_done());

    let mut restored = load(&Snapshot { blocks, begin, end: state.position() });
    for event in &log[begin.0 as usize..] {
        restored.apply(Time(1), event).expect("it fits again");
    }
    assert_eq!(state_digest(&restored), state_digest(&state));
}

fn created(task: TaskId) -> Event {
    let scope = Scope { tenant: "t".into(), workspace: "w".into() };
    Event::TaskCreated(Box::new(TaskCreated {
        task,
        queue: Arc::new(QueueKey { scope, name: "q".into() }),
        payload: Arc::from(*b"{}"),
        priority: 0,
        not_before: None,
        properties: Default::default(),
        options: None,
        operation: None,
        by: None,
    }))
}

#[test]
fn a_restored_state_carries_on_as_if_it_had_never_stopped() {
    for seed in 0..SEEDS / 4 {
        let mut history = History::new(seed);
        history.steps(200);
        let snapshot = snapshot_amid(&mut history);
        let mut restored = load(&snapshot);
        history.replay_into(&mut restored, history.state.position());
        history.state = restored;
        for _ in 0..100 {
            history.step();
            history.state.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
    }
}

#[test]
fn a_snapshot_of_a_restored_state_gives_the_same_state_again() {
    for seed in 0..SEEDS / 8 {
        let mut history = History::new(seed);
        history.steps(300);
        let snapshot = snapshot_amid(&mut history);
        let mut restored = load(&snapshot);
        history.replay_into(&mut restored, history.state.position());

        // Its tasks lie in other slots than those of the live state.
        let mut block = Vec::new();
        let mut slices = Slices::begin(&restored, &mut block);
        slices.next(&restored, u32::MAX, usize::MAX, &mut block);
        assert!(slices.is_done());
        let again =
            load(&Snapshot { blocks: vec![block], begin: restored.position(), end: restored.position() });
        assert_eq!(state_digest(&again), state_digest(&history.state), "seed {seed}");
        again.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn a_slice_is_bounded_however_much_there_is_to_store() {
    let mut history = History::new(3);
    history.steps(400);
    let mut block = Vec::new();
    let mut slices = Slices::begin(&history.state, &mut block);
    assert_eq!(BlockDecoder::default().entries(&block).count(), 3, "header, owner and token key");
    let mut entries = 0;
    while !slices.is_done() {
        let mut by_visits = Vec::new();
        slices.next(&history.state, 1, usize::MAX, &mut by_visits);
        let mut by_bytes = Vec::new();
        slices.next(&history.state, u32::MAX, 1, &mut by_bytes);
        for slice in [by_visits, by_bytes] {
            let stored = BlockDecoder::default().entries(&slice).count();
            assert!(stored <= 1);
            entries += stored;
        }
    }
    let settings = history.state.configured_queues().count() + history.state.key_count();
    assert!(history.state.key_count() > 0, "there are keys to store");
    assert_eq!(entries, settings + history.state.len());
}

#[test]
fn replay_of_the_whole_ledger_equals_the_live_state() {
    for seed in 0..SEEDS / 8 {
        let mut history = History::new(seed);
        history.steps(500);
        let mut replayed = State::new();
        history.replay_into(&mut replayed, history.state.position());
        assert_eq!(state_digest(&replayed), state_digest(&history.state), "seed {seed}");
        replayed.check_invariants().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn the_digest_changes_with_every_record() {
    let mut history = History::new(7);
    let mut seen = BTreeMap::new();
    for _ in 0..600 {
        history.step();
        let at = seen.entry(state_digest(&history.state).to_hex()).or_insert(history.state.position());
        assert_eq!(*at, history.state.position(), "two positions share a digest");
    }
}
