//! Each check finds a small lie; the truth passes all of them.

use std::time::Duration;

use auditor::history::Recorded;
use authority::event::{LeaseExpired, LeaseGranted, TaskCancelled, TaskCompleted, TaskCreated};
use authority::{Digest, Event, Position, QueueKey, Scope, TaskId, Time};
use contract_clients::{LeaseRef, ReportKind};
use serde_json::{Value, json};
use wire::Verdict;

use super::{Violation, check};
use crate::contract::Contract;
use crate::evidence::Evidence;
use crate::recorder::{Beat, Grant, HeartbeatOutcome, Report, ReportResponse, Submission};
use crate::report_request::{Intent, ReportRequest};
use crate::world::LEASE;

const TASK: &str = "00000000-0000-0000-0000-000000000001";
const COMMITTED: Option<Verdict> = Some(Verdict::Committed);
const CANCELLED: Option<Verdict> = Some(Verdict::Cancelled);
const REJECTED: Option<Verdict> = Some(Verdict::Rejected);

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn grant(attempt: u32, answered_ms: u64) -> Grant {
    Grant {
        contract: Contract::Native,
        lease_id: format!("lease-{attempt}"),
        task_id: TASK.into(),
        worker_id: "worker".into(),
        attempt,
        fencing_token: u64::from(attempt) * 10,
        asked_at: at(answered_ms - 10),
        answered_at: at(answered_ms),
    }
}

fn response(status: u16, verdict: Option<Verdict>) -> Option<ReportResponse> {
    Some(ReportResponse { status, verdict, state: None })
}

fn report(attempt: u32, result: Value, sent_ms: u64, response: Option<ReportResponse>) -> Report {
    let lease = LeaseRef {
        lease_id: format!("lease-{attempt}"),
        task_id: TASK.into(),
        worker_id: "worker".into(),
        attempt,
    };
    Report {
        contract: Contract::Native,
        request: ReportRequest { lease, kind: ReportKind::Completed(result), intent: Intent::Own },
        sent_at: at(sent_ms),
        ended_at: at(sent_ms + 5),
        response,
    }
}

fn events() -> Vec<(u64, Event)> {
    let (task, digest) = (TaskId(1), Digest([1; 16]));
    let scope = Scope { tenant: "default".into(), workspace: "default".into() };
    let created = TaskCreated {
        task,
        queue: QueueKey { scope, name: "chaos".into() }.into(),
        payload: Vec::new().into(),
        priority: 0,
        not_before: None,
        properties: Default::default(),
        options: None,
        operation: None,
        by: None,
    };
    let granted = |attempt| {
        Event::LeaseGranted(LeaseGranted {
            task,
            attempt,
            worker: "worker".into(),
            session: None,
            request: None,
            length_ms: 500,
            expires_at: Time(1_000),
            contract: Some(authority::Contract::Leases),
        })
    };
    let lease = Position(10);
    let cause = authority::event::ExpiryCause::Silence;
    let completed = TaskCompleted {
        task,
        fencing_token: Position(20),
        digest,
        result: b"7".as_slice().into(),
        details: None,
    };
    vec![
        (1, Event::TaskCreated(Box::new(created))),
        (10, granted(1)),
        (
            11,
            Event::LeaseExpired(LeaseExpired {
                task,
                fencing_token: lease,
                cause,
                exhausted: false,
                since: None,
            }),
        ),
        (20, granted(2)),
        (21, Event::TaskCancelled(TaskCancelled { task, fencing_token: lease, attempt: 1, digest })),
        (22, Event::TaskCompleted(completed)),
    ]
}

fn records() -> Vec<Recorded> {
    let record =
        |(position, event)| Recorded { position: Position(position), at: Time::ZERO, prev: None, event };
    events().into_iter().map(record).collect()
}

/// One task: its first lease ran out and was reported too late, its second completed it.
fn truth() -> Evidence {
    let mut evidence = Evidence { has_fair_clock: true, ..Evidence::default() };
    let payload = json!({"marker": "client-0-1"});
    let task =
        json!({"taskId": TASK, "state": "COMPLETED", "finishedAt": "now", "attempt": 2, "payload": payload});
    let body = json!({"queue": "chaos", "payload": payload, "dedupKey": "client-0-1"});
    let submission = Submission { marker: "client-0-1".into(), body, task_id: Some(TASK.into()) };
    let late = report(1, json!(6), 900, response(409, CANCELLED));
    let good = report(2, json!(7), 1_000, response(200, COMMITTED));
    evidence.listed = vec![task.clone()];
    evidence.tasks.insert(TASK.into(), task.clone());
    let history =
        events().into_iter().map(|(position, event)| json!({"position": position, "type": event.name()}));
    evidence.histories.insert(TASK.into(), history.collect());
    evidence.repeats = vec![(late.clone(), late.clone()), (good.clone(), good.clone())];
    evidence.resubmits = vec![(submission.clone(), Some(TASK.into()))];
    evidence.observations.submissions = vec![submission];
    evidence.observations.grants = vec![grant(1, 100), grant(2, 800)];
    evidence.observations.reports = vec![late, good];
    evidence.observations.readings = vec![task];
    evidence
}

fn violations(evidence: &Evidence) -> Vec<Violation> {
    check(evidence, &records())
}

fn finds(lie: impl FnOnce(&mut Evidence), message: &str) {
    let mut evidence = truth();
    lie(&mut evidence);
    let found = violations(&evidence);
    assert!(found.iter().any(|violation| violation.message.contains(message)), "{message}: {found:#?}");
}

#[test]
fn the_truth_passes() {
    assert_eq!(violations(&truth()), []);
}

#[test]
fn a_list_that_differs_from_the_reads_is_found() {
    finds(|it| it.listed.clear(), "is missing in the list");
    finds(|it| it.listed.push(it.listed[0].clone()), "is listed twice");
}

#[test]
fn a_final_word_taken_back_is_found() {
    finds(|it| it.observations.readings[0]["finishedAt"] = json!("then"), "was final with finishedAt");
    finds(|it| it.listed[0]["reason"] = json!("KILLED"), "was final with reason");
}

#[test]
fn a_decided_report_or_an_accepted_submit_that_is_not_found_again_is_found() {
    finds(|it| it.repeats[0].1.response = None, "was not decided");
    finds(|it| it.resubmits[0].1 = None, "was not found when repeated");
}

#[test]
fn a_verdict_outside_the_contract_is_found() {
    finds(|it| it.observations.reports[1].response = response(200, CANCELLED), "of intent Own was answered");
    finds(|it| it.observations.reports[1].response = response(409, REJECTED), "of intent Own was answered");
    finds(|it| it.observations.reports[1].request.intent = Intent::Forged, "of intent Forged was answered");
    finds(
        |it| it.observations.reports[1].request.intent = Intent::Conflicting,
        "of intent Conflicting was answered",
    );
    finds(|it| it.repeats[1].1.response = response(403, REJECTED), "of intent Own was answered");
    // What is right in one contract is wrong in another.
    finds(|it| it.observations.reports[1].contract = Contract::Grpc, "of intent Own was answered");
    finds(|it| it.observations.reports[0].contract = Contract::Stream, "of intent Own was answered");
}

#[test]
fn a_report_that_another_contract_judges_in_another_way_is_found() {
    let other = |it: &mut Evidence| {
        it.repeats[1].1.contract = Contract::Grpc;
        it.repeats[1].1.response = response(0, CANCELLED);
    };
    finds(other, "and when repeated Some(Cancelled) by grpc");
}

#[test]
fn an_unfair_lease_is_found() {
    let early = |it: &mut Evidence| it.observations.reports[0].ended_at = at(200);
    finds(early, "a report within its lease was CANCELLED");
    let extended = |it: &mut Evidence| {
        let lease_id = "lease-1".to_string();
        it.observations.beats.push(Beat {
            lease_id,
            sent_at: at(600),
            ended_at: at(610),
            heartbeat_outcome: HeartbeatOutcome::Alive,
        });
    };
    finds(extended, "a report within its lease was CANCELLED");
    let late = |it: &mut Evidence| it.observations.reports[1].sent_at = at(810) + LEASE * 2;
    finds(late, "a report after its lease was COMMITTED");
}

#[test]
fn a_history_that_is_not_the_ledgers_is_found() {
    let history =
        |change: fn(&mut Vec<Value>)| move |it: &mut Evidence| change(it.histories.get_mut(TASK).unwrap());
    finds(history(|events| drop(events.remove(2))), "reports its history as");
    finds(history(|events| events.swap(4, 5)), "reports its history as");
    finds(history(|events| events[0]["type"] = json!("TaskDead")), "reports its history as");
}

#[test]
fn an_answer_outside_the_contract_is_found() {
    finds(|it| it.observations.unexpected_answers.push("a submit was answered 500".into()), "answered 500");
}
