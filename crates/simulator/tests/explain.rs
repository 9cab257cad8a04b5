//! The check of what the ledger tells can fail: true stories, each with one thing changed as a bug of `explain` would
//! change it, and stories told by an `explain` that passes over a record.

use auditor::Auditor;
use auditor::history::Entry;
use authority::event::{ExpiryCause, ReleaseCause};
use authority::{Event, Position, TaskState};
use ledger::explain::{DiscardReason, FinalReason, Past, Story, What, explain};

/// Histories that are searched for a story that the change fits.
const MOST_SEEDS: u64 = 80;

/// Changes a story, unless the change does not fit it.
type Change = fn(&mut Story) -> bool;

/// The records of a history, and an auditor that has read it.
fn past(seed: u64) -> (Auditor, Vec<Past>) {
    let (rules, history) = simulator::record(seed).expect("a history without fault");
    let auditor = Auditor::audit(rules, &history).expect("a history without fault");
    let records = history.into_iter().filter_map(|entry| match entry {
        Entry::Recorded(record) => {
            Some(Past { position: record.position, at: record.at, event: record.event })
        }
        _ => None,
    });
    (auditor, records.collect())
}

fn must_be_found(change: Change) {
    for seed in 0..MOST_SEEDS {
        let (mut auditor, records) = past(seed);
        for task in auditor.tasks().collect::<Vec<_>>() {
            let mut story = explain(task, &records);
            assert_eq!(auditor.explained(&story, Position(1)), Ok(()), "seed {seed}: before the change");
            if change(&mut story) {
                assert!(auditor.explained(&story, Position(1)).is_err(), "seed {seed}: task {task}");
                return;
            }
        }
    }
    panic!("the change fits no story");
}

/// Changes the first step that `change` wants to change.
fn change_step(story: &mut Story, change: impl Fn(&mut What) -> bool) -> bool {
    story.steps.iter_mut().any(|step| change(&mut step.what))
}

fn leased_again(what: &What) -> bool {
    matches!(what, What::Leased { .. })
}

#[test]
fn an_attempt_that_is_left_out_is_found() {
    must_be_found(|story| {
        let again = story.steps.iter().rposition(|step| leased_again(&step.what));
        let Some(again) = again.filter(|_| story.attempts > 1) else { return false };
        story.steps.remove(again);
        true
    });
}

#[test]
fn an_attempt_that_never_was_is_found() {
    must_be_found(|story| {
        let Some(last) = story.steps.iter().rposition(|step| leased_again(&step.what)) else { return false };
        let mut again = story.steps[last].clone();
        again.attempt = again.attempt.map(|attempt| attempt + 1);
        story.steps.push(again);
        true
    });
}

#[test]
fn another_cause_for_the_repeat_is_found() {
    must_be_found(|story| {
        story.attempts > 1
            && change_step(story, |what| match what {
                What::Lost { .. } => {
                    *what = What::Released { cause: ReleaseCause::Worker };
                    true
                }
                _ => false,
            })
    });
}

#[test]
fn a_time_limit_told_as_silence_is_found() {
    must_be_found(|story| {
        change_step(story, |what| match what {
            What::Lost { cause, .. } if *cause == ExpiryCause::Timeout => {
                *cause = ExpiryCause::Silence;
                true
            }
            _ => false,
        })
    });
}

#[test]
fn another_worker_is_found() {
    must_be_found(|story| {
        let Some(step) = story.steps.iter_mut().find(|step| step.worker.is_some()) else { return false };
        step.worker = Some("somebody".into());
        true
    });
}

#[test]
fn another_lease_is_found() {
    must_be_found(|story| {
        let Some(step) = story.steps.iter_mut().find(|step| leased_again(&step.what)) else { return false };
        step.position = step.position.next();
        true
    });
}

#[test]
fn steps_out_of_order_are_found() {
    must_be_found(|story| {
        let swaps = story.steps.len() > 3;
        if swaps {
            story.steps.swap(1, 2);
        }
        swaps
    });
}

#[test]
fn a_last_attempt_told_as_not_worth_another_is_found() {
    must_be_found(|story| {
        change_step(story, |what| match what {
            What::FailedForGood { why, .. } if matches!(why, FinalReason::LastAttempt { .. }) => {
                *why = FinalReason::NotRetryable;
                true
            }
            _ => false,
        })
    });
}

#[test]
fn a_discarded_report_with_another_reason_is_found() {
    must_be_found(|story| {
        change_step(story, |what| match what {
            What::Discarded { why } if *why == DiscardReason::Lost => {
                *why = DiscardReason::Released;
                true
            }
            _ => false,
        })
    });
}

#[test]
fn another_end_is_found() {
    must_be_found(|story| {
        let completed = story.state == Some(TaskState::Completed);
        if completed {
            story.state = Some(TaskState::Failed);
        }
        completed
    });
}

#[test]
fn totals_that_do_not_add_up_are_found() {
    must_be_found(|story| {
        story.attempts += 1;
        true
    });
    must_be_found(|story| {
        story.waited_ms += 1;
        true
    });
    must_be_found(|story| {
        story.ran_ms += 1;
        true
    });
    must_be_found(|story| {
        story.is_purged = !story.is_purged;
        true
    });
}

/// An `explain` that passes over one kind of record tells a story that is found wrong wherever there is such a record.
#[test]
fn an_explain_that_passes_over_a_kind_of_record_is_found() {
    let kinds = [
        "TaskCreated",
        "LeaseGranted",
        "LeaseExtended",
        "LeaseExpired",
        "LeaseReleased",
        "AttemptStarted",
        "TaskCompleted",
        "TaskFailed",
        "TaskDead",
        "TaskCancelled",
        "CancelRequested",
        "OperationAttached",
        "OperationDetached",
        "TasksPurged",
    ];
    for kind in kinds {
        let found = (0..MOST_SEEDS).any(|seed| {
            let (mut auditor, records) = past(seed);
            let concerned = |record: &&Past| record.event.name() == kind;
            let Some(task) = records.iter().find(concerned).and_then(task_of) else { return false };
            let passed: Vec<_> = records.iter().filter(|record| !concerned(record)).cloned().collect();
            assert!(
                auditor.explained(&explain(task, &passed), Position(1)).is_err(),
                "{kind} in seed {seed}"
            );
            true
        });
        assert!(found, "no history has a {kind}");
    }
}

fn task_of(record: &Past) -> Option<authority::TaskId> {
    match &record.event {
        Event::TasksPurged(event) => event.tasks.first().copied(),
        event => event.task(),
    }
}
