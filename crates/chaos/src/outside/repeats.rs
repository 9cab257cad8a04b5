//! Every verdict has the status that the contract gives it and fits what its sender knew, and whatever was decided or
//! accepted is answered again when it is repeated in the end. What those answers say, the auditor judges.

use super::Violation;
use crate::evidence::Evidence;
use crate::facts::{Action, Intent, Report, Told};

pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let in_the_run = evidence.book.reports.iter().map(|report| (report, report.told.as_ref()));
    let at_the_end = evidence.repeats.iter().map(|(report, told)| (report, told.as_ref()));
    for (report, told) in in_the_run.chain(at_the_end) {
        violations.extend(told.and_then(|told| check_alone(report, told)));
    }
    for (report, _) in evidence.repeats.iter().filter(|(_, told)| told.is_none()) {
        let message = "a report that was decided was not decided when repeated";
        violations.push(Violation::new(&report.task_id, message));
    }
    for (submission, _) in evidence.resubmits.iter().filter(|(_, now)| now.is_none()) {
        let id = submission.task_id.as_deref().unwrap_or_default();
        violations.push(Violation::new(id, format!("{} was not found when repeated", submission.marker)));
    }
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
