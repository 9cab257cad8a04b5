//! Each check of the auditor finds a small lie; the truth passes all of them.

use std::time::Duration;

use serde_json::{Value, json};

use super::audit;
use crate::evidence::Evidence;
use crate::facts::{Action, Beat, Grant, Intent, Report, Submission, Told};
use crate::world::LEASE;

const TASK: &str = "task-1";

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn grant(attempt: u64, told_ms: u64) -> Grant {
    Grant {
        lease_id: format!("lease-{attempt}"),
        task_id: TASK.into(),
        worker_id: "worker".into(),
        attempt,
        fencing_token: attempt * 10,
        asked_at: at(told_ms - 10),
        told_at: at(told_ms),
    }
}

fn told(status: u16, verdict: &str, state: &str) -> Option<Told> {
    Some(Told { status, verdict: verdict.into(), state: Some(state.into()) })
}

fn report(attempt: u64, action: Action, result: Value, sent_ms: u64, told: Option<Told>) -> Report {
    Report {
        lease_id: format!("lease-{attempt}"),
        task_id: TASK.into(),
        action,
        body: json!({"workerId": "worker", "taskId": TASK, "result": result}),
        intent: Intent::Own,
        sent_at: at(sent_ms),
        ended_at: at(sent_ms + 5),
        told,
    }
}

fn event(position: u64, kind: &str, attempt: Option<u64>) -> Value {
    json!({"position": position, "at": format!("2026-01-01T00:00:{:02}.5Z", position), "type": kind, "attempt": attempt})
}

/// One task: its first lease ran out and was reported too late, its second completed it.
fn truth() -> Evidence {
    let mut evidence = Evidence { has_fair_clock: true, ..Evidence::default() };
    let payload = json!({"marker": "client-0-1"});
    let task = json!({"taskId": TASK, "state": "COMPLETED", "attempt": 2, "result": 7, "payload": payload});
    let body = json!({"queue": "chaos", "payload": payload, "dedupKey": "client-0-1"});
    let submission = Submission { marker: "client-0-1".into(), body, task_id: Some(TASK.into()) };
    let late = report(1, Action::Complete, json!(6), 900, told(409, "CANCELLED", "LEASED"));
    let good = report(2, Action::Complete, json!(7), 1_000, told(200, "COMMITTED", "COMPLETED"));
    evidence.listed = vec![task.clone()];
    evidence.tasks.insert(TASK.into(), task.clone());
    evidence.histories.insert(
        TASK.into(),
        vec![
            event(1, "TaskCreated", None),
            event(10, "LeaseGranted", Some(1)),
            event(11, "LeaseExpired", Some(1)),
            event(20, "LeaseGranted", Some(2)),
            event(21, "TaskCancelled", Some(1)),
            event(22, "TaskCompleted", Some(2)),
        ],
    );
    evidence.repeats = vec![(late.clone(), late.told.clone()), (good.clone(), good.told.clone())];
    evidence.resubmits = vec![(submission.clone(), Some(TASK.into()))];
    evidence.book.submissions = vec![submission];
    evidence.book.grants = vec![grant(1, 100), grant(2, 800)];
    evidence.book.reports = vec![late, good];
    evidence.book.readings = vec![task];
    evidence
}

fn finds(lie: impl FnOnce(&mut Evidence), message: &str) {
    let mut evidence = truth();
    lie(&mut evidence);
    let found = audit(&evidence);
    assert!(found.iter().any(|violation| violation.message.contains(message)), "{message}: {found:#?}");
}

#[test]
fn the_truth_passes() {
    assert_eq!(audit(&truth()), []);
}

#[test]
fn a_lost_task_is_found() {
    finds(|it| drop(it.tasks.insert(TASK.into(), Value::Null)), "was accepted and is gone");
    finds(|it| it.listed.clear(), "is missing in the list");
}

#[test]
fn a_task_made_twice_is_found() {
    let twin = |it: &mut Evidence| {
        let mut twin = it.tasks[TASK].clone();
        twin["taskId"] = json!("task-2");
        it.listed.push(twin.clone());
        it.tasks.insert("task-2".into(), twin);
    };
    finds(twin, "was accepted and exists 2 times");
    let unknown = |it: &mut Evidence| {
        twin(it);
        it.book.submissions[0].task_id = None;
    };
    finds(unknown, "was handed in once and exists 2 times");
    finds(|it| it.resubmits[0].1 = Some("task-2".into()), "repeated now gives");
}

#[test]
fn a_changed_payload_is_found() {
    finds(|it| it.tasks.get_mut(TASK).unwrap()["payload"]["pad"] = json!("x"), "another payload");
}

#[test]
fn a_task_that_never_ends_is_found() {
    finds(|it| it.tasks.get_mut(TASK).unwrap()["state"] = json!("LEASED"), "is not final");
}

#[test]
fn a_final_word_taken_back_is_found() {
    finds(|it| it.book.readings[0]["state"] = json!("DEAD"), "was final with state");
    finds(|it| it.book.readings[0]["result"] = json!(8), "was final with result");
    let future = json!({"taskId": TASK, "state": "LEASED", "attempt": 3});
    finds(|it| it.book.readings.push(future), "was shown attempt 3, later fewer");
}

#[test]
fn two_leases_for_one_attempt_are_found() {
    let twin = |it: &mut Evidence| {
        let lease_id = "lease-2b".to_string();
        it.book.grants.push(Grant { lease_id, fencing_token: 25, ..grant(2, 800) });
    };
    finds(twin, "attempt 2 has two leases");
    finds(|it| it.book.grants[1].fencing_token = 10, "was given to two leases");
    finds(|it| it.book.grants[1].fencing_token = 5, "smaller fencing token");
    finds(|it| it.book.grants.push(grant(3, 900)), "was granted, and now there are");
}

#[test]
fn a_verdict_that_changes_is_found() {
    finds(|it| it.repeats[1].1 = told(409, "REJECTED", ""), "the same report was told");
    finds(|it| it.repeats[0].1 = None, "was not decided");
    finds(|it| it.book.reports[1].told = told(409, "COMMITTED", "COMPLETED"), "a report of intent");
    finds(|it| it.book.reports[1].intent = Intent::Forged, "a report of intent Forged");
    finds(|it| it.book.reports[1].intent = Intent::Conflicting, "a report of intent Conflicting");
}

#[test]
fn a_refused_release_is_found() {
    let release = |status: u16| report(1, Action::Release, json!(null), 2_000, told(status, "", "WAITING"));
    finds(|it| it.book.reports.push(release(409)), "a release was answered");
    let mut evidence = truth();
    evidence.book.reports.push(release(200));
    assert_eq!(audit(&evidence), []);
}

#[test]
fn a_second_commit_and_an_invented_result_are_found() {
    finds(|it| it.book.reports[0].told = told(200, "COMMITTED", "COMPLETED"), "2 completions were committed");
    finds(|it| it.tasks.get_mut(TASK).unwrap()["result"] = json!(9), "a result that nobody sent");
    finds(|it| it.book.reports[1].told = told(200, "COMMITTED", "WAITING"), "which is not so");
}

#[test]
fn an_unfair_lease_is_found() {
    let early = |it: &mut Evidence| it.book.reports[0].ended_at = at(200);
    finds(early, "a report within its lease was CANCELLED");
    let kept = |it: &mut Evidence| {
        let lease_id = "lease-1".to_string();
        it.book.beats.push(Beat { lease_id, sent_at: at(600), ended_at: at(610), status: Some(200) });
    };
    finds(kept, "a report within its lease was CANCELLED");
    let late = |it: &mut Evidence| it.book.reports[1].sent_at = at(810) + LEASE * 2;
    finds(late, "a report after its lease was COMMITTED");
}

#[test]
fn an_impossible_history_is_found() {
    let history =
        |change: fn(&mut Vec<Value>)| move |it: &mut Evidence| change(it.histories.get_mut(TASK).unwrap());
    finds(history(|events| drop(events.remove(0))), "LeaseGranted follows on");
    finds(history(|events| drop(events.remove(2))), "LeaseGranted follows on");
    finds(history(|events| events.push(event(23, "TaskDead", None))), "TaskDead follows on");
    finds(history(|events| drop(events.pop())), "the history ends in");
    finds(history(|events| events[3]["attempt"] = json!(3)), "the grant of attempt 2 says 3");
    finds(history(|events| events.swap(4, 5)), "not in the order of its positions");
    finds(history(|events| events[1]["position"] = json!(1)), "is used twice");
    finds(history(|events| events[4]["at"] = json!("2026-01-01T00:00:01Z")), "time fell from");
}

#[test]
fn a_committed_failure_without_a_record_is_found() {
    let failure = report(1, Action::Fail, json!(null), 300, told(200, "COMMITTED", "WAITING"));
    finds(|it| it.book.reports.push(failure), "a committed failure is not in the history");
}

#[test]
fn an_answer_outside_the_contract_is_found() {
    finds(|it| it.book.surprises.push("a submit was answered 500".into()), "answered 500");
}
