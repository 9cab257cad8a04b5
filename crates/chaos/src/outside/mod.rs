//! What only an outsider can see: answers outside of the contract, what the server says when everything is asked
//! again, and the times of leases by our own clock. The auditor judges all else.
//!
//! The checks are pure functions of the evidence, so that each has a test in which it fails.

mod explain;
mod histories;
mod listing;
mod repeats;
#[cfg(test)]
mod tests;
mod timing;

pub use explain::explain;

use auditor::history::Recorded;
use authority::TaskId;

use crate::evidence::Evidence;

/// Something that the server said and that is not true, or did and must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Empty when no single task is concerned.
    pub task_id: String,
    pub message: String,
}

impl Violation {
    fn new(task_id: &str, message: impl Into<String>) -> Self {
        Self { task_id: task_id.into(), message: message.into() }
    }

    pub fn of(task: Option<TaskId>, message: impl Into<String>) -> Self {
        Self { task_id: task.map(|id| id.to_string()).unwrap_or_default(), message: message.into() }
    }
}

/// What a run went through. A run in which a count stayed zero has not tested what it claims.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reach {
    pub tasks: usize,
    pub completed: usize,
    pub failed: usize,
    pub dead: usize,
    pub committed_reports: usize,
    pub cancelled_reports: usize,
    pub rejected_reports: usize,
    pub expired_leases: usize,
    pub released_leases: usize,
    pub repeated_submits: usize,
    pub lost_answers: u64,
}

pub fn check(evidence: &Evidence, records: &[Recorded]) -> Vec<Violation> {
    let surprises = evidence.book.surprises.iter().map(|surprise| Violation::new("", surprise.as_str()));
    let mut violations: Vec<Violation> = surprises.collect();
    violations.extend(listing::check(evidence));
    violations.extend(repeats::check(evidence));
    violations.extend(histories::check(evidence, records));
    if evidence.has_fair_clock {
        violations.extend(timing::check(evidence));
    }
    violations
}

pub fn reach(evidence: &Evidence) -> Reach {
    let in_state = |state: &str| evidence.tasks.values().filter(|task| task["state"] == state).count();
    let with_verdict = |verdict: &str| {
        evidence.book.reports.iter().filter(|report| report.verdict() == Some(verdict)).count()
    };
    let events =
        |kind: &str| evidence.histories.values().flatten().filter(|event| event["type"] == kind).count();
    Reach {
        tasks: evidence.tasks.len(),
        completed: in_state("COMPLETED"),
        failed: in_state("FAILED"),
        dead: in_state("DEAD"),
        committed_reports: with_verdict("COMMITTED"),
        cancelled_reports: with_verdict("CANCELLED"),
        rejected_reports: with_verdict("REJECTED"),
        expired_leases: events("LeaseExpired"),
        released_leases: events("LeaseReleased"),
        repeated_submits: evidence.resubmits.len(),
        lost_answers: evidence.book.lost_answers,
    }
}
