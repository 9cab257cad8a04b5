//! Checks that a live lease commits and a dead one does not, judged by our own clock with room on both sides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract_clients::ReportKind;
use wire::Verdict;

use super::Violation;
use crate::contract::Contract;
use crate::evidence::Evidence;
use crate::recorder::{At, Grant, HeartbeatOutcome};
use crate::report_request::Intent;
use crate::world::LEASE;

/// A lease may last a tenth longer than it says; the rest is the clocks' rounding.
const LONGEST_LEASE: Duration = Duration::from_millis(LEASE.as_millis() as u64 * 11 / 10 + 50);

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let observations = &evidence.observations;
    let mut lives: BTreeMap<&str, Life> = BTreeMap::new();
    for grant in &observations.grants {
        lives.entry(&grant.lease_id).or_insert_with(|| Life::of(grant)).seen_again(grant);
    }
    for beat in &observations.beats {
        if let Some(life) = lives.get_mut(beat.lease_id.as_str()) {
            // A heartbeat whose answer was lost may have counted.
            life.surely_dead_at = life.surely_dead_at.max(beat.ended_at + LONGEST_LEASE);
            if beat.heartbeat_outcome == HeartbeatOutcome::Alive {
                life.surely_alive_until = life.surely_alive_until.max(beat.sent_at + LEASE);
            }
        }
    }
    let cancelled: BTreeSet<&str> =
        observations.cancels.iter().map(|cancel| cancel.task_id.as_str()).collect();
    let releases = observations.reports.iter().filter(|report| report.request.kind == ReportKind::Released);
    let released: BTreeSet<&str> = releases.map(|report| report.request.lease.lease_id.as_str()).collect();
    let mut first_sent: BTreeMap<_, At> = BTreeMap::new();
    for report in &observations.reports {
        let sent_at = first_sent.entry(report.request.key()).or_insert(report.sent_at);
        *sent_at = (*sent_at).min(report.sent_at);
    }

    let mut violations = Vec::new();
    for report in observations.reports.iter().filter(|report| report.request.intent == Intent::Own) {
        let held = &report.request.lease;
        let Some(life) = lives.get(held.lease_id.as_str()) else { continue };
        let is_undisturbed =
            !cancelled.contains(held.task_id.as_str()) && !released.contains(held.lease_id.as_str());
        if report.verdict() == Some(Verdict::Cancelled)
            && is_undisturbed
            && report.ended_at < life.surely_alive_until
        {
            let message = format!(
                "a report within its lease was CANCELLED: {life:?}, answered at {:?}",
                report.ended_at
            );
            violations.push(Violation::new(&held.task_id, message));
        }
        let is_late = first_sent[&report.request.key()] > life.surely_dead_at;
        if report.verdict() == Some(Verdict::Committed) && is_late {
            let message =
                format!("a report after its lease was COMMITTED: {life:?}, sent at {:?}", report.sent_at);
            violations.push(Violation::new(&held.task_id, message));
        }
    }
    violations
}

/// The bounds of a lease's life as its worker can know them.
#[derive(Debug)]
struct Life {
    surely_alive_until: At,
    surely_dead_at: At,
}

impl Life {
    fn of(grant: &Grant) -> Self {
        match grant.contract {
            // A lease that is pushed begins unseen, and is kept alive until its worker begins.
            Contract::Callback => Self { surely_alive_until: At::ZERO, surely_dead_at: At::MAX },
            _ => Self {
                surely_alive_until: grant.asked_at + LEASE,
                surely_dead_at: grant.answered_at + LONGEST_LEASE,
            },
        }
    }

    /// A repeated request gets the same lease again: the first answer bounds its beginning.
    fn seen_again(&mut self, grant: &Grant) {
        if grant.contract != Contract::Callback {
            self.surely_dead_at = self.surely_dead_at.min(grant.answered_at + LONGEST_LEASE);
        }
    }
}
