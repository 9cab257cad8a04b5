//! The history of a task is one that the states allow, and the ledger's time never runs backwards.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;

use super::Violation;
use crate::evidence::Evidence;
use crate::facts::{Action, Intent};
use crate::worker::number;

pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (id, events) in &evidence.histories {
        let task = evidence.tasks.get(id).cloned().unwrap_or_default();
        if let Err(message) = walk(events, &task) {
            violations.push(Violation::new(id, message));
        }
    }
    violations.extend(check_failures(evidence));
    violations.extend(check_order(evidence));
    violations
}

/// Follows the events through the states and compares the end with the task.
fn walk(events: &[Value], task: &Value) -> Result<(), String> {
    let mut state = "";
    let mut attempt = 0;
    let mut is_cancelled = false;
    for event in events {
        let kind = event["type"].as_str().unwrap_or_default();
        state = match (state, kind) {
            ("", "TaskCreated") => "WAITING",
            ("WAITING" | "FAILED?", "LeaseGranted") if !is_cancelled => {
                attempt += 1;
                if event["attempt"].as_u64() != Some(attempt) {
                    return Err(format!("the grant of attempt {attempt} says {}", event["attempt"]));
                }
                "LEASED"
            }
            ("LEASED", "LeaseExtended" | "AttemptStarted") => "LEASED",
            ("LEASED", "CancelRequested") => {
                is_cancelled = true;
                "LEASED"
            }
            ("LEASED", "LeaseExpired" | "LeaseReleased") => "WAITING",
            ("LEASED", "TaskCompleted") => "COMPLETED",
            // Whether a failure was the last one shows in what follows.
            ("LEASED", "TaskFailed") => "FAILED?",
            ("WAITING" | "LEASED" | "FAILED?", "TaskDead") => "DEAD",
            // A report without authority was discarded: it changes nothing, at any time after a grant.
            (any, "TaskCancelled") if attempt > 0 => any,
            (state, kind) => return Err(format!("{kind} follows on {state:?}")),
        };
    }
    let end = if state == "FAILED?" { "FAILED" } else { state };
    if task["state"] != end {
        return Err(format!("the history ends in {end:?}, and the task is {}", task["state"]));
    }
    if task["attempt"].as_u64() != Some(attempt) {
        return Err(format!("the history has {attempt} grants, and the task says {}", task["attempt"]));
    }
    Ok(())
}

/// Every failure that was told COMMITTED is in the history.
fn check_failures(evidence: &Evidence) -> Vec<Violation> {
    let mut told: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for report in &evidence.book.reports {
        let is_own_failure = report.action == Action::Fail && report.intent == Intent::Own;
        if is_own_failure && report.verdict() == Some("COMMITTED") {
            told.entry(&report.task_id).or_default().insert(&report.lease_id);
        }
    }
    let missing = told.into_iter().filter(|(id, leases)| {
        let events = evidence.histories.get(*id).map(Vec::as_slice).unwrap_or_default();
        // A failure of a task that is being cancelled is recorded as its death.
        let recorded =
            events.iter().filter(|event| event["type"] == "TaskFailed" || event["type"] == "TaskDead");
        recorded.count() < leases.len()
    });
    missing.map(|(id, _)| Violation::new(id, "a committed failure is not in the history")).collect()
}

/// Positions are unique, and in their order the recorded time never falls.
fn check_order(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut log: BTreeMap<u64, (&str, Timestamp)> = BTreeMap::new();
    for (id, events) in &evidence.histories {
        let mut previous = None;
        for event in events {
            let position = number(&event["position"]);
            if previous.is_some_and(|previous| previous >= position) {
                violations.push(Violation::new(id, "the history is not in the order of its positions"));
            }
            previous = Some(position);
            let Ok(at) = event["at"].as_str().unwrap_or_default().parse::<Timestamp>() else {
                violations.push(Violation::new(id, format!("an event has no time: {event}")));
                continue;
            };
            if log.insert(position, (id, at)).is_some() {
                violations.push(Violation::new(id, format!("position {position} is used twice")));
            }
        }
    }
    let log: Vec<_> = log.into_iter().collect();
    for pair in log.windows(2) {
        let ((before, (_, earlier)), (after, (id, later))) = (&pair[0], &pair[1]);
        if earlier > later {
            let message = format!("time fell from {earlier} at position {before} to {later} at {after}");
            violations.push(Violation::new(id, message));
        }
    }
    violations
}
