//! The auditor can fail: correct histories, each with one thing changed as a bug of the authority would change it.

mod api_keys;
mod worker_service;

use auditor::Auditor;
use auditor::history::{Entry, Recorded};
use authority::command::Verdict;
use authority::command::{Refusal, SubmitAnswer};
use authority::event::{LeaseExtended, LeaseGranted, LeaseReleased, NextStep, ReleaseCause, TasksPurged};
use authority::{Answer, Event, Outcome, Position, Rejection, TaskId, Time};
use coordinator::Reply;

/// Histories that are searched for a place where the change fits.
const MAX_SEEDS: u64 = 1_000;

/// Changes a history and says where it now must be found wrong, or that the change does not fit anywhere.
type Change = fn(&mut Vec<Entry>) -> Option<usize>;

fn must_be_found(change: Change) {
    for seed in 0..MAX_SEEDS {
        let (rules, mut history) = simulator::record(seed).expect("a history without fault");
        if rules.edge_broken {
            continue;
        }
        let Some(place) = change(&mut history) else { continue };
        history.truncate(place + 1);
        assert!(Auditor::audit(rules.clone(), &history).is_err(), "seed {seed}: not found at entry {place}");
        history.truncate(place);
        assert!(Auditor::audit(rules, &history).is_ok(), "seed {seed}: wrong before entry {place}");
        return;
    }
    panic!("the change fits no history");
}

fn record(entry: &Entry) -> Option<&Recorded> {
    match entry {
        Entry::Recorded(recorded) => Some(recorded),
        _ => None,
    }
}

/// Changes the first record that `change` wants to change.
fn change_record(history: &mut [Entry], change: impl Fn(&mut Recorded) -> bool) -> Option<usize> {
    history.iter_mut().position(|entry| match entry {
        Entry::Recorded(recorded) => change(recorded),
        _ => false,
    })
}

/// Changes the first answer that `change` wants to change.
fn change_answer(history: &mut [Entry], change: impl Fn(&mut Answer) -> bool) -> Option<usize> {
    history.iter_mut().position(|entry| match entry {
        Entry::Answered { reply: Reply::Decided(answers), .. } if answers.len() == 1 => {
            change(&mut answers[0])
        }
        _ => false,
    })
}

/// The task that a reply says was created.
fn created(reply: &Reply) -> Option<TaskId> {
    match reply.answer() {
        Some(Answer::Submitted(SubmitAnswer::Created(id))) => Some(*id),
        _ => None,
    }
}

/// Puts a record right after the first one for which `make` makes one.
fn insert_after(
    history: &mut Vec<Entry>,
    make: impl Fn(&Recorded) -> Option<(Event, bool)>,
) -> Option<usize> {
    let (place, recorded) = history.iter().enumerate().find_map(|(place, entry)| {
        let before = record(entry)?;
        let (event, about_the_same) = make(before)?;
        let prev = about_the_same.then_some(before.position);
        let position = before.position.next();
        Some((place + 1, Recorded { position, at: before.at, prev, event }))
    })?;
    history.insert(place, Entry::Recorded(recorded));
    Some(place)
}

fn grant(task: TaskId, attempt: u32, at: Time) -> Event {
    let worker = "worker-0".into();
    let expires_at = at.plus_ms(1_000);
    Event::LeaseGranted(LeaseGranted {
        task,
        attempt,
        worker,
        session: None,
        request: None,
        length_ms: 900,
        expires_at,
        contract: Some(authority::Contract::Leases),
    })
}

#[test]
fn a_commit_without_a_look_at_the_expiry_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| {
            let late = matches!(recorded.event, Event::TaskCompleted(_));
            if late {
                recorded.at = recorded.at.plus_ms(48 * 60 * 60 * 1_000);
            }
            late
        })
    });
}

#[test]
fn an_expired_lease_that_is_revived_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| {
            let Event::LeaseExpired(expired) = &recorded.event else { return false };
            let (task, lease) = (expired.task, expired.fencing_token);
            let expires_at = recorded.at.plus_ms(1_000);
            recorded.event = Event::LeaseExtended(LeaseExtended { task, fencing_token: lease, expires_at });
            true
        })
    });
}

#[test]
fn a_lease_granted_twice_in_a_batch_is_found() {
    must_be_found(|history| {
        insert_after(history, |before| match &before.event {
            Event::LeaseGranted(event) => Some((grant(event.task, event.attempt + 1, before.at), true)),
            _ => None,
        })
    });
}

#[test]
fn a_final_task_that_is_leased_again_is_found() {
    must_be_found(|history| {
        insert_after(history, |before| match &before.event {
            Event::TaskCompleted(event) => Some((grant(event.task, 2, before.at), true)),
            _ => None,
        })
    });
}

#[test]
fn a_purge_of_a_task_that_still_waits_is_found() {
    must_be_found(|history| {
        insert_after(history, |before| match &before.event {
            Event::TaskCreated(event) => {
                Some((Event::TasksPurged(TasksPurged { tasks: vec![event.task] }), false))
            }
            _ => None,
        })
    });
}

#[test]
fn a_task_that_waits_again_after_a_cancel_is_found() {
    must_be_found(|history| {
        let current = history.iter().filter_map(record).find_map(|recorded| match &recorded.event {
            Event::CancelRequested(event) => Some(event.task),
            _ => None,
        })?;
        let mut lease = history.iter().filter_map(record).filter(
            |recorded| matches!(&recorded.event, Event::LeaseGranted(event) if event.task == current),
        );
        let lease = lease.next_back().map(|recorded| recorded.position)?;
        insert_after(history, |before| match &before.event {
            Event::CancelRequested(event) if event.task == current => {
                let released =
                    LeaseReleased { task: current, fencing_token: lease, cause: ReleaseCause::Undelivered };
                Some((Event::LeaseReleased(released), true))
            }
            _ => None,
        })
    });
}

#[test]
fn an_attempt_that_is_left_out_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| match &mut recorded.event {
            Event::LeaseGranted(event) => {
                event.attempt += 1;
                true
            }
            _ => false,
        })
    });
}

#[test]
fn a_retry_at_another_time_than_the_backoff_says_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| match &mut recorded.event {
            Event::TaskFailed(event) => match &mut event.next {
                NextStep::RetryAt(time) => {
                    *time = time.plus_ms(24 * 60 * 60 * 1_000);
                    true
                }
                NextStep::Final => false,
            },
            _ => false,
        })
    });
}

#[test]
fn a_failure_that_ends_a_task_with_attempts_left_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| match &mut recorded.event {
            Event::TaskFailed(event) => {
                std::mem::replace(&mut event.next, NextStep::Final) != NextStep::Final
            }
            _ => false,
        })
    });
}

#[test]
fn a_clock_behind_the_ledger_is_found() {
    must_be_found(|history| {
        let mut time = Time::ZERO;
        let mut started = Time::ZERO;
        history.iter_mut().position(|entry| match entry {
            Entry::Recorded(recorded) => {
                time = recorded.at;
                false
            }
            Entry::Started => {
                started = time;
                false
            }
            Entry::Received { at, .. } if started > Time::ZERO => {
                *at = Time(started.0 - 1);
                true
            }
            _ => false,
        })
    });
}

#[test]
fn time_that_falls_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| {
            let late = recorded.position > Position(5);
            if late {
                recorded.at = Time(recorded.at.0 - 3_600_000);
            }
            late
        })
    });
}

#[test]
fn a_record_that_names_the_wrong_one_before_it_is_found() {
    must_be_found(|history| change_record(history, |recorded| recorded.prev.take().is_some()));
}

#[test]
fn a_result_that_nobody_reported_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| match &mut recorded.event {
            Event::TaskCompleted(event) => {
                event.result = b"something else".as_slice().into();
                true
            }
            _ => false,
        })
    });
}

#[test]
fn other_content_that_is_accepted_as_a_repeat_is_found() {
    must_be_found(|history| {
        change_answer(history, |answer| {
            let other = *answer == Answer::Reported(Verdict::Rejected(Rejection::ConflictingReport));
            if other {
                *answer = Answer::Reported(Verdict::Committed(Outcome::Completed));
            }
            other
        })
    });
}

#[test]
fn a_commit_that_is_told_as_stale_is_found() {
    must_be_found(|history| {
        change_answer(history, |answer| {
            let committed = matches!(answer, Answer::Reported(Verdict::Committed(_)));
            if committed {
                *answer = Answer::Reported(Verdict::Cancelled);
            }
            committed
        })
    });
}

#[test]
fn a_verdict_other_than_the_recorded_one_is_found() {
    must_be_found(|history| {
        change_answer(history, |answer| {
            let completed = *answer == Answer::Reported(Verdict::Committed(Outcome::Completed));
            if completed {
                *answer = Answer::Reported(Verdict::Committed(Outcome::Failed));
            }
            completed
        })
    });
}

#[test]
fn an_answer_that_comes_before_its_record_is_found() {
    must_be_found(|history| {
        let answer = history
            .iter()
            .position(|entry| matches!(entry, Entry::Answered { reply, .. } if created(reply).is_some()))?;
        let Entry::Answered { reply, .. } = &history[answer] else { return None };
        let id = &created(reply)?;
        let recorded = history.iter().position(|entry| {
            record(entry).is_some_and(|r| matches!(&r.event, Event::TaskCreated(event) if event.task == *id))
        })?;
        let answer = history.remove(answer);
        history.insert(recorded, answer);
        Some(recorded)
    });
}

#[test]
fn a_reader_that_is_told_of_no_task_where_there_is_one_is_found() {
    must_be_found(|history| {
        let asked: std::collections::BTreeMap<u64, TaskId> = history
            .iter()
            .filter_map(|entry| match entry {
                Entry::Asked {
                    ask,
                    request: coordinator::Request::Read(coordinator::Read::Task { task, .. }),
                } => Some((*ask, *task)),
                _ => None,
            })
            .collect();
        history.iter_mut().position(|entry| match entry {
            Entry::Answered { ask, reply, .. } if asked.contains_key(ask) => {
                // A task that was there long before it was asked for, and was not about to be purged.
                let going_on = |task: &authority::Task| task.attempt > 1 && !task.is_final();
                let there = matches!(reply, Reply::Task(Some(detail)) if going_on(&detail.view.task));
                if there {
                    *reply = Reply::Task(None);
                }
                there
            }
            _ => false,
        })
    });
}

#[test]
fn an_effect_that_is_left_out_is_found() {
    must_be_found(|history| {
        let mut applied = history.iter().enumerate().filter_map(|(place, entry)| match entry {
            Entry::Applied { position, .. } => Some((place, *position)),
            _ => None,
        });
        let (first, _) = applied.next()?;
        let (next, _) = applied.next()?;
        history.remove(first);
        Some(next - 1)
    });
}

#[test]
fn an_effect_of_something_that_was_not_recorded_is_found() {
    must_be_found(|history| {
        history.iter_mut().position(|entry| match entry {
            Entry::Applied { at, .. } => {
                *at = at.plus_ms(1);
                true
            }
            _ => false,
        })
    });
}

#[test]
fn a_task_given_to_a_worker_that_does_not_offer_what_it_requires_is_found() {
    must_be_found(|history| {
        let demanding = |entry: &Entry| match &record(entry)?.event {
            Event::TaskCreated(event) if !event.properties.is_empty() => Some(event.task),
            _ => None,
        };
        let demanding: Vec<TaskId> = history.iter().filter_map(demanding).collect();
        for entry in history.iter_mut() {
            if let Entry::Asked { request: coordinator::Request::Poll { lease, .. }, .. } = entry {
                lease.properties = Default::default();
            }
        }
        let granted = |recorded: &Recorded| match &recorded.event {
            Event::LeaseGranted(event) => demanding.contains(&event.task),
            _ => false,
        };
        history.iter().position(|entry| record(entry).is_some_and(granted))
    });
}

#[test]
fn an_attempt_that_begins_twice_is_found() {
    must_be_found(|history| {
        insert_after(history, |before| match &before.event {
            Event::AttemptStarted(event) => Some((Event::AttemptStarted(event.clone()), true)),
            _ => None,
        })
    });
}

#[test]
fn a_waiter_that_joins_twice_is_found() {
    must_be_found(|history| {
        insert_after(history, |before| match &before.event {
            Event::OperationAttached(event) => Some((Event::OperationAttached(event.clone()), true)),
            _ => None,
        })
    });
}

#[test]
fn a_key_that_nobody_asked_for_is_found() {
    must_be_found(|history| {
        change_record(history, |recorded| match &mut recorded.event {
            Event::TokenKeyRotated(event) => {
                event.key_id = "stolen".into();
                true
            }
            _ => false,
        })
    });
}

#[test]
fn a_submit_refused_for_a_limit_that_nobody_set_is_found() {
    must_be_found(|history| {
        change_answer(history, |answer| {
            let created = matches!(answer, Answer::Submitted(SubmitAnswer::Created(_)));
            if created {
                *answer = Answer::Submitted(SubmitAnswer::Refused(Refusal::QueueFull { max: 1_000_000 }));
            }
            created
        })
    });
}
