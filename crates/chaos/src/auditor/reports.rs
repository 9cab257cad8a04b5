//! Every verdict is one that the contract allows, stays what it was, and agrees with what became of the task.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{FINAL_STATES, Violation};
use crate::evidence::Evidence;
use crate::facts::{Action, Intent, Report, Told};

pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for report in &evidence.book.reports {
        if let Some(told) = &report.told {
            violations.extend(check_alone(report, told));
            violations.extend(check_outcome(evidence, report, told));
        }
    }
    violations.extend(check_repeats(evidence));
    violations.extend(check_completions(evidence));
    violations
}

fn check_alone(report: &Report, told: &Told) -> Option<Violation> {
    if report.action == Action::Release {
        // A lease that is over, by this call or before it, is what a release asks for: no verdict is needed.
        let message = format!("a release was answered {told:?}");
        return (told.status != 200).then(|| Violation::new(&report.task_id, message));
    }
    let fits_status = match told.status {
        200 => told.verdict == "COMMITTED",
        409 => matches!(told.verdict.as_str(), "CANCELLED" | "REJECTED"),
        _ => told.verdict == "REJECTED",
    };
    let fits_intent = match report.intent {
        Intent::Own => matches!(told.verdict.as_str(), "COMMITTED" | "CANCELLED"),
        Intent::Conflicting => told.verdict != "COMMITTED",
        Intent::Forged => told.verdict == "REJECTED",
    };
    let message = format!("a report of intent {:?} was answered {told:?}", report.intent);
    (!fits_status || !fits_intent).then(|| Violation::new(&report.task_id, message))
}

/// What the answer said about the task still holds.
fn check_outcome(evidence: &Evidence, report: &Report, told: &Told) -> Option<Violation> {
    if told.verdict != "COMMITTED" {
        return None;
    }
    let task = evidence.tasks.get(&report.task_id).cloned().unwrap_or_default();
    let state = told.state.as_deref().unwrap_or_default();
    let is_true = match report.action {
        Action::Complete => {
            state == "COMPLETED" && task["state"] == "COMPLETED" && task["result"] == report.body["result"]
        }
        Action::Fail => match state {
            // A repeat may show what became of the task meanwhile; only a final word binds.
            final_state if FINAL_STATES.contains(&final_state) => task["state"] == final_state,
            "WAITING" | "LEASED" => true,
            _ => false,
        },
        Action::Release => true,
    };
    (!is_true).then(|| Violation::new(&report.task_id, format!("was told {told:?}, which is not so")))
}

/// The same report gets the same verdict, whenever it is sent.
fn check_repeats(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut first: BTreeMap<_, &Told> = BTreeMap::new();
    let at_the_end = evidence.repeats.iter().map(|(report, told)| (report, told.as_ref()));
    let in_the_run = evidence.book.reports.iter().map(|report| (report, report.told.as_ref()));
    for (report, told) in in_the_run.filter(|(_, told)| told.is_some()).chain(at_the_end) {
        let Some(told) = told else {
            violations.push(Violation::new(
                &report.task_id,
                "a report that was decided was not decided when repeated",
            ));
            continue;
        };
        let before = first.entry(report.key()).or_insert(told);
        if (before.status, &before.verdict) != (told.status, &told.verdict) {
            let message = format!("the same report was told {before:?} and {told:?}");
            violations.push(Violation::new(&report.task_id, message));
        }
    }
    violations
}

/// At most one completion of a task was ever committed, and a completed task has a result that somebody sent.
fn check_completions(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut committed: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut sent: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let completions = evidence.book.reports.iter().filter(|report| report.action == Action::Complete);
    for report in completions {
        let id = report.task_id.as_str();
        if report.verdict() == Some("COMMITTED") {
            committed.entry(id).or_default().insert(format!("{} {}", report.lease_id, report.body["result"]));
        }
        if report.intent == Intent::Own {
            sent.entry(id).or_default().push(&report.body["result"]);
        }
    }
    for (id, stories) in committed.into_iter().filter(|(_, stories)| stories.len() > 1) {
        violations
            .push(Violation::new(id, format!("{} completions were committed: {stories:?}", stories.len())));
    }
    for (id, task) in evidence.tasks.iter().filter(|(_, task)| task["state"] == "COMPLETED") {
        let is_known = sent.get(id.as_str()).is_some_and(|results| results.contains(&&task["result"]));
        if !is_known {
            violations.push(Violation::new(id, format!("has a result that nobody sent: {}", task["result"])));
        }
    }
    violations
}
