//! A history recorded from the real binary, with a SIGKILL in it, passes the auditor, and a small lie anywhere in it is
//! refused. One short run serves all tests here, and one with workers of all contracts those beside it.

mod contracts;

use std::sync::LazyLock;
use std::time::Duration;

use authority::command::{ExtendAnswer, Grant, SubmitAnswer, SubmitTask, Verdict};
use authority::{Answer, Command, Event, Outcome, Position, TaskId};
use chaos::{Exchange, Plan, Recording};
use coordinator::{Reply, Request};

const HOUR_MS: u64 = 3_600_000;

static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let plan = Plan::from_env(env!("CARGO_BIN_EXE_lessor")).expect("the plan is readable");
    chaos::record(&plan).expect("the run goes well")
});

/// Changes a copy of the recording and gives what the auditor says of it.
fn refused(lie: impl FnOnce(&mut Recording)) -> String {
    let mut recording = RECORDING.clone();
    lie(&mut recording);
    match recording.judge() {
        Err(violation) => violation.message,
        Ok(_) => panic!("the lie passed"),
    }
}

fn assert_refused(lie: impl FnOnce(&mut Recording), why: &str) {
    let message = refused(lie);
    assert!(message.contains(why), "refused for another reason than {why:?}: {message}");
}

fn answer(exchange: &mut Exchange) -> Option<&mut Answer> {
    match exchange.reply.as_mut()? {
        Reply::Decided(answers) => answers.first_mut(),
        _ => None,
    }
}

fn grants(exchange: &mut Exchange) -> Option<&mut Vec<Grant>> {
    match exchange.reply.as_mut()? {
        Reply::Leased(grants) => Some(grants),
        _ => None,
    }
}

/// Changes the first answer for which there is another one.
fn change_answer(recording: &mut Recording, other: impl Fn(&Answer) -> Option<Answer>) {
    let mut answers = recording.exchanges.iter_mut().filter_map(answer);
    let (answer, other) = answers.find_map(|it| other(it).map(|other| (it, other))).expect("there is one");
    *answer = other;
}

fn created(exchange: &Exchange) -> Option<TaskId> {
    match exchange.reply.as_ref()?.answer()? {
        Answer::Submitted(SubmitAnswer::Created(id)) => Some(*id),
        _ => None,
    }
}

fn killed_at() -> (Duration, Position) {
    let cut = RECORDING.cuts.first().expect("the server was killed");
    (cut.at, cut.position())
}

#[test]
fn the_truth_passes() {
    if let Err(violation) = RECORDING.audit() {
        panic!("{violation:?}");
    }
    let (at, position) = killed_at();
    assert!(RECORDING.exchanges.iter().any(|exchange| exchange.ended_at < at));
    assert!(RECORDING.exchanges.iter().any(|exchange| exchange.sent_at > at));
    assert!(position > Position::ZERO && RECORDING.records.len() as u64 > position.0);
}

#[test]
fn a_record_that_is_missing_is_missed() {
    let message = refused(|it| drop(it.records.remove(it.records.len() / 2)));
    // An answer that rests on it may come before the record that follows it.
    assert!(message.contains("it does not follow") || message.starts_with("answer "), "{message}");
}

#[test]
fn a_record_that_changed_after_a_kill_is_seen() {
    let (_, position) = killed_at();
    let change = |it: &mut Recording| it.records[position.0 as usize - 1].at.0 += 1;
    assert_refused(change, "was there when the server was dead");
}

#[test]
fn a_verdict_told_must_be_the_verdict_recorded() {
    let reported = |from: fn(&Verdict) -> bool, to: Verdict| {
        move |it: &mut Recording| {
            change_answer(it, |answer| match answer {
                Answer::Reported(verdict) if from(verdict) => Some(Answer::Reported(to)),
                _ => None,
            })
        }
    };
    let committed = |verdict: &Verdict| matches!(verdict, Verdict::Committed(Outcome::Completed));
    let cancelled = |verdict: &Verdict| *verdict == Verdict::Cancelled;
    let retried = |verdict: &Verdict| matches!(verdict, Verdict::Committed(Outcome::RetryAt(_)));
    assert_refused(reported(committed, Verdict::Cancelled), "no record discards it");
    assert_refused(reported(cancelled, Verdict::Committed(Outcome::Completed)), "what is recorded is");
    assert_refused(reported(retried, Verdict::Committed(Outcome::Failed)), "what is recorded is");
}

#[test]
fn a_second_commit_of_a_task_is_refused() {
    let again = |it: &mut Recording| {
        let completed =
            |record: &&auditor::history::Recorded| matches!(record.event, Event::TaskCompleted(_));
        let mut twin = it.records.iter().find(completed).expect("a task was completed").clone();
        let task = twin.event.task();
        let last = it.records.iter().rev().find(|record| record.event.task() == task);
        twin.prev = last.map(|record| record.position);
        let end = it.records.last().expect("there are records");
        (twin.position, twin.at) = (end.position.next(), end.at);
        it.records.push(twin);
    };
    assert_refused(again, "the task has ended, and nothing reopens it");
}

#[test]
fn an_answer_without_a_record_is_refused() {
    let without_record = |it: &mut Recording| {
        let exchange = it.exchanges.iter_mut().find(|it| created(it).is_some()).expect("a task was created");
        let Some(Command::SubmitTask(task)) = exchange.request.command() else { unreachable!() };
        let task = SubmitTask { id: TaskId(7), ..(**task).clone() };
        exchange.reply = Some(Reply::decided(Answer::Submitted(SubmitAnswer::Created(task.id))));
        exchange.request = Request::decide(Command::SubmitTask(Box::new(task)));
    };
    // Its real record has lost its cause at the same time; either is refused.
    let message = refused(without_record);
    assert!(message.contains("no durable record creates it") || message.contains("nobody submitted it"));
}

#[test]
fn an_accepted_submit_that_is_lost_is_missed() {
    let lose = |it: &mut Recording| {
        let accepted = it.exchanges.iter().rev().find_map(created).expect("a task was created");
        let place = it.records.iter().position(|record| record.event.task() == Some(accepted));
        it.records.truncate(place.expect("it was recorded"));
    };
    let message = refused(lose);
    assert!(message.starts_with("answer "), "{message}");
}

#[test]
fn a_tail_that_is_cut_off_after_a_kill_takes_an_answer_with_it() {
    let (at, position) = killed_at();
    // What was known when the server was killed, and what it left.
    let mut left = RECORDING.clone();
    left.cuts.clear();
    left.records.truncate(position.0 as usize);
    left.exchanges.retain(|exchange| exchange.sent_at < at);
    for exchange in left.exchanges.iter_mut().filter(|exchange| exchange.ended_at > at) {
        exchange.reply = None;
    }
    assert!(left.judge().is_ok());
    // The last record that an answer confirmed, and all behind it.
    let answered = left.exchanges.iter().filter_map(created).collect::<Vec<_>>();
    let is_answered = |record: &auditor::history::Recorded| {
        matches!(record.event, Event::TaskCreated(_))
            && record.event.task().is_some_and(|id| answered.contains(&id))
    };
    let last = left.records.iter().rposition(is_answered).expect("a submit was answered before the kill");
    left.records.truncate(last);
    let violation = left.judge().err().expect("an answer has lost its record");
    assert!(violation.message.starts_with("answer "), "{violation:?}");
}

#[test]
fn no_answer_from_before_a_kill_rests_on_a_record_from_after_it() {
    let (at, _) = killed_at();
    let too_early = |it: &mut Recording| {
        let later = it.exchanges.iter_mut().find(|it| it.sent_at > at && created(it).is_some());
        let exchange = later.expect("a task was created after the kill");
        let lifetime = exchange.ended_at - exchange.sent_at;
        exchange.ended_at = at - Duration::from_millis(1);
        exchange.sent_at = exchange.ended_at.saturating_sub(lifetime);
    };
    assert_refused(too_early, "no durable record creates it");
}

#[test]
fn a_lease_that_was_told_to_last_longer_expired_too_early() {
    let longer = |it: &mut Recording| {
        // The changed record may be the very one that the kill left last.
        it.cuts.clear();
        let extended = |lease: Position| {
            it.records.iter().any(
                |record| matches!(&record.event, Event::LeaseExtended(event) if event.fencing_token == lease),
            )
        };
        let delivered: Vec<Position> = it
            .exchanges
            .iter_mut()
            .filter_map(grants)
            .flat_map(|grants| grants.iter().map(|grant| grant.fencing_token).collect::<Vec<_>>())
            .collect();
        let expired = it.records.iter().find_map(|record| match &record.event {
            Event::LeaseExpired(event)
                if delivered.contains(&event.fencing_token) && !extended(event.fencing_token) =>
            {
                Some(event.fencing_token)
            }
            _ => None,
        });
        let lease = expired.expect("a lease ran out");
        let Event::LeaseGranted(granted) = &mut it.records[lease.0 as usize - 1].event else {
            unreachable!()
        };
        granted.expires_at = granted.expires_at.plus_ms(HOUR_MS);
        for grants in it.exchanges.iter_mut().filter_map(grants) {
            for grant in grants.iter_mut().filter(|grant| grant.fencing_token == lease) {
                grant.expires_at = grant.expires_at.plus_ms(HOUR_MS);
            }
        }
    };
    assert_refused(longer, "the lease has time left");
}

#[test]
fn an_expiry_that_was_never_recorded_is_refused() {
    let promise = |it: &mut Recording| {
        change_answer(it, |answer| match answer {
            Answer::Extended(ExtendAnswer::Extended { expires_at, cancel }) => {
                let expires_at = expires_at.plus_ms(HOUR_MS);
                Some(Answer::Extended(ExtendAnswer::Extended { expires_at, cancel: cancel.clone() }))
            }
            _ => None,
        });
    };
    assert_refused(promise, "this expiry was never recorded");
}

#[test]
fn a_task_shown_as_it_never_was_is_refused() {
    let change = |it: &mut Recording| {
        let mut replies = it.exchanges.iter_mut().filter_map(|exchange| exchange.reply.as_mut());
        let detail = replies.find_map(|reply| match reply {
            Reply::Task(detail) => detail.as_mut(),
            _ => None,
        });
        detail.expect("a task was read").view.task.attempt += 1;
    };
    assert_refused(change, "it was never so since it was asked for");
}
