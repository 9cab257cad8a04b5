//! Checks what only a client can see: answers outside of the contract, answers to repeated requests, and the times of
//! leases by our own clock. The auditor checks all else.
//!
//! The checks are pure functions of the evidence, so that each has a test in which it fails.

mod format;
mod histories;
mod listing;
mod repeats;
#[cfg(test)]
mod tests;
mod timing;

pub(crate) use format::format_violations;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use auditor::history::Recorded;
use authority::TaskId;
use wire::Verdict;

use crate::contract::Contract;
use crate::evidence::Evidence;

/// A wrong answer or a forbidden action of the server.
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
pub(crate) struct Reach {
    /// SIGKILLs of the server.
    pub kills: usize,
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
    /// The answers to workers of each contract.
    pub contracts: BTreeMap<Contract, Counts>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub leases: usize,
    pub committed: usize,
    pub cancelled: usize,
    pub rejected: usize,
    pub lost_answers: u64,
}

impl Counts {
    pub(crate) fn has_everything(&self) -> bool {
        let Counts { leases, committed, cancelled, rejected, lost_answers } = *self;
        leases > 0 && committed > 0 && cancelled > 0 && rejected > 0 && lost_answers > 0
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { leases, committed, cancelled, rejected, lost_answers } = self;
        write!(
            out,
            "{leases} leases, {committed} COMMITTED, {cancelled} CANCELLED, {rejected} REJECTED, \
             {lost_answers} lost answers"
        )
    }
}

pub(crate) fn check(evidence: &Evidence, records: &[Recorded]) -> Vec<Violation> {
    let unexpected_answers = evidence
        .observations
        .unexpected_answers
        .iter()
        .map(|unexpected| Violation::new("", unexpected.as_str()));
    let mut violations: Vec<Violation> = unexpected_answers.collect();
    violations.extend(listing::check(evidence));
    violations.extend(repeats::check(evidence));
    violations.extend(histories::check(evidence, records));
    if evidence.has_fair_clock {
        violations.extend(timing::check(evidence));
    }
    violations
}

pub(crate) fn reach(evidence: &Evidence) -> Reach {
    let in_state = |state: &str| evidence.tasks.values().filter(|task| task["state"] == state).count();
    let contracts = counts(evidence);
    let all = |count: fn(&Counts) -> usize| contracts.values().map(count).sum();
    let events =
        |kind: &str| evidence.histories.values().flatten().filter(|event| event["type"] == kind).count();
    Reach {
        kills: 0,
        tasks: evidence.tasks.len(),
        completed: in_state("COMPLETED"),
        failed: in_state("FAILED"),
        dead: in_state("DEAD"),
        committed_reports: all(|counts| counts.committed),
        cancelled_reports: all(|counts| counts.cancelled),
        rejected_reports: all(|counts| counts.rejected),
        expired_leases: events("LeaseExpired"),
        released_leases: events("LeaseReleased"),
        repeated_submits: evidence.resubmits.len(),
        lost_answers: evidence.observations.lost_answers.values().sum(),
        contracts,
    }
}

fn counts(evidence: &Evidence) -> BTreeMap<Contract, Counts> {
    let observations = &evidence.observations;
    let mut contracts: BTreeMap<Contract, Counts> = BTreeMap::new();
    let leases: BTreeSet<_> =
        observations.grants.iter().map(|grant| (grant.contract, grant.fencing_token)).collect();
    for (contract, _) in leases {
        contracts.entry(contract).or_default().leases += 1;
    }
    for report in &observations.reports {
        let counts = contracts.entry(report.contract).or_default();
        match report.verdict() {
            Some(Verdict::Committed) => counts.committed += 1,
            Some(Verdict::Cancelled) => counts.cancelled += 1,
            Some(Verdict::Rejected) => counts.rejected += 1,
            None => {}
        }
    }
    for (contract, lost) in &observations.lost_answers {
        contracts.entry(*contract).or_default().lost_answers += lost;
    }
    contracts
}
