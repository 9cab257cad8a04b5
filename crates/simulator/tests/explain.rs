//! Tests that the check of timelines can fail: on correct timelines with one change, as a bug of `explain` would make
//! it, and on timelines of an `explain` that skips a record.

use auditor::Auditor;
use auditor::history::Entry;
use authority::event::{ExpiryCause, ReleaseCause};
use authority::{Event, Position, TaskState};
use history::explain::{DiscardReason, FinalReason, StepKind, Timeline, explain};
use ledger::HistoryRecord;

/// Histories that are searched for a timeline that the change fits.
const MAX_SEEDS: u64 = 80;

/// Changes a timeline, unless the change does not fit it.
type Change = fn(&mut Timeline) -> bool;

/// The records of a history, and an auditor that has read it.
fn recorded_history(seed: u64) -> (Auditor, Vec<HistoryRecord>) {
    let (rules, history) = simulator::record(seed).expect("a history without fault");
    let auditor = Auditor::audit(rules, &history).expect("a history without fault");
    let records = history.into_iter().filter_map(|entry| match entry {
        Entry::Recorded(record) => {
            Some(HistoryRecord { position: record.position, at: record.at, event: record.event })
        }
        _ => None,
    });
    (auditor, records.collect())
}

fn must_be_found(change: Change) {
    for seed in 0..MAX_SEEDS {
        let (mut auditor, records) = recorded_history(seed);
        for task in auditor.tasks().collect::<Vec<_>>() {
            let mut timeline = explain(task, &records, &simulator::queue_defaults());
            assert_eq!(
                auditor.check_timeline(&timeline, Position(1)),
                Ok(()),
                "seed {seed}: before the change"
            );
            if change(&mut timeline) {
                assert!(auditor.check_timeline(&timeline, Position(1)).is_err(), "seed {seed}: task {task}");
                return;
            }
        }
    }
    panic!("the change fits no timeline");
}

/// Changes the first step that `change` wants to change.
fn change_step(timeline: &mut Timeline, change: impl Fn(&mut StepKind) -> bool) -> bool {
    timeline.steps.iter_mut().any(|step| change(&mut step.kind))
}

fn leased_again(what: &StepKind) -> bool {
    matches!(what, StepKind::Leased { .. })
}

#[test]
fn an_attempt_that_is_left_out_is_found() {
    must_be_found(|timeline| {
        let again = timeline.steps.iter().rposition(|step| leased_again(&step.kind));
        let Some(again) = again.filter(|_| timeline.attempts > 1) else { return false };
        timeline.steps.remove(again);
        true
    });
}

#[test]
fn an_attempt_that_never_was_is_found() {
    must_be_found(|timeline| {
        let Some(last) = timeline.steps.iter().rposition(|step| leased_again(&step.kind)) else {
            return false;
        };
        let mut again = timeline.steps[last].clone();
        again.attempt = again.attempt.map(|attempt| attempt + 1);
        timeline.steps.push(again);
        true
    });
}

#[test]
fn another_cause_for_the_repeat_is_found() {
    must_be_found(|timeline| {
        timeline.attempts > 1
            && change_step(timeline, |what| match what {
                StepKind::Lost { .. } => {
                    *what = StepKind::Released { cause: ReleaseCause::Worker };
                    true
                }
                _ => false,
            })
    });
}

#[test]
fn a_time_limit_told_as_silence_is_found() {
    must_be_found(|timeline| {
        change_step(timeline, |what| match what {
            StepKind::Lost { cause, .. } if *cause == ExpiryCause::Timeout => {
                *cause = ExpiryCause::Silence;
                true
            }
            _ => false,
        })
    });
}

#[test]
fn another_worker_is_found() {
    must_be_found(|timeline| {
        let Some(step) = timeline.steps.iter_mut().find(|step| step.worker.is_some()) else { return false };
        step.worker = Some("somebody".into());
        true
    });
}

#[test]
fn another_lease_is_found() {
    must_be_found(|timeline| {
        let Some(step) = timeline.steps.iter_mut().find(|step| leased_again(&step.kind)) else {
            return false;
        };
        step.position = step.position.next();
        true
    });
}

#[test]
fn steps_out_of_order_are_found() {
    must_be_found(|timeline| {
        let swaps = timeline.steps.len() > 3;
        if swaps {
            timeline.steps.swap(1, 2);
        }
        swaps
    });
}

#[test]
fn a_last_attempt_told_as_not_worth_another_is_found() {
    must_be_found(|timeline| {
        change_step(timeline, |what| match what {
            StepKind::FailedForGood { why, .. } if matches!(why, FinalReason::LastAttempt { .. }) => {
                *why = FinalReason::NotRetryable;
                true
            }
            _ => false,
        })
    });
}

#[test]
fn a_discarded_report_with_another_reason_is_found() {
    must_be_found(|timeline| {
        change_step(timeline, |what| match what {
            StepKind::Discarded { why } if *why == DiscardReason::Lost => {
                *why = DiscardReason::Released;
                true
            }
            _ => false,
        })
    });
}

#[test]
fn another_end_is_found() {
    must_be_found(|timeline| {
        let completed = timeline.state == Some(TaskState::Completed);
        if completed {
            timeline.state = Some(TaskState::Failed);
        }
        completed
    });
}

#[test]
fn totals_that_do_not_add_up_are_found() {
    must_be_found(|timeline| {
        timeline.attempts += 1;
        true
    });
    must_be_found(|timeline| {
        timeline.waited_ms += 1;
        true
    });
    must_be_found(|timeline| {
        timeline.ran_ms += 1;
        true
    });
    must_be_found(|timeline| {
        timeline.is_purged = !timeline.is_purged;
        true
    });
}

/// An `explain` that passes over one kind of record gives a timeline that is found wrong wherever there is such a record.
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
        let found = (0..MAX_SEEDS).any(|seed| {
            let (mut auditor, records) = recorded_history(seed);
            let concerned = |record: &&HistoryRecord| record.event.name() == kind;
            let Some(task) = records.iter().find(concerned).and_then(task_of) else { return false };
            let passed: Vec<_> = records.iter().filter(|record| !concerned(record)).cloned().collect();
            assert!(
                auditor
                    .check_timeline(&explain(task, &passed, &simulator::queue_defaults()), Position(1))
                    .is_err(),
                "{kind} in seed {seed}"
            );
            true
        });
        assert!(found, "no history has a {kind}");
    }
}

fn task_of(record: &HistoryRecord) -> Option<authority::TaskId> {
    match &record.event {
        Event::TasksPurged(event) => event.tasks.first().copied(),
        event => event.task(),
    }
}
