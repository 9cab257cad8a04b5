//! Every verdict has the status that the contract gives it and fits what its sender knew, and whatever was decided or
//! accepted is answered again when it is repeated in the end. What those answers say, the auditor judges.

use contract_clients::ReportKind;
use tonic::Code;
use wire::Verdict;

use super::Violation;
use crate::contract::Contract;
use crate::evidence::Evidence;
use crate::facts::{Report, Told};
use crate::story::Intent;

pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let at_the_end = evidence.repeats.iter().map(|(_, again)| again);
    for report in evidence.book.reports.iter().chain(at_the_end) {
        violations.extend(report.told.as_ref().and_then(|told| check_alone(report, told)));
    }
    for (report, again) in &evidence.repeats {
        let task_id = &report.story.lease.task_id;
        if again.told.is_none() {
            let message = "a report that was decided was not decided when repeated";
            violations.push(Violation::new(task_id, message));
        } else if report.verdict() != again.verdict() {
            let (then, now) = (report.verdict(), again.verdict());
            let (one, other) = (report.contract.name(), again.contract.name());
            let message =
                format!("a report was told {then:?} by {one}, and when repeated {now:?} by {other}");
            violations.push(Violation::new(task_id, message));
        }
    }
    for (submission, _) in evidence.resubmits.iter().filter(|(_, now)| now.is_none()) {
        let id = submission.task_id.as_deref().unwrap_or_default();
        violations.push(Violation::new(id, format!("{} was not found when repeated", submission.marker)));
    }
    violations
}

fn check_alone(report: &Report, told: &Told) -> Option<Violation> {
    let task_id = &report.story.lease.task_id;
    let is_fine = is_fine(report.contract, told);
    if report.story.kind == ReportKind::Released {
        // A lease that is over, by this call or before it, is what a release asks for: no verdict is needed.
        let message = format!("a release was answered {told:?}");
        return (!is_fine).then(|| Violation::new(task_id, message));
    }
    let fits_status = match told.verdict {
        Some(Verdict::Committed) => is_fine,
        Some(Verdict::Cancelled) => {
            told.status == if over_http(report.contract) { 409 } else { Code::Ok as u16 }
        }
        Some(Verdict::Rejected) => !is_fine,
        None => false,
    };
    let fits_intent = match report.story.intent {
        Intent::Own => matches!(told.verdict, Some(Verdict::Committed | Verdict::Cancelled)),
        Intent::Conflicting => told.verdict != Some(Verdict::Committed),
        Intent::Forged => told.verdict == Some(Verdict::Rejected),
    };
    let message = format!("a report of intent {:?} was answered {told:?}", report.story.intent);
    (!fits_status || !fits_intent).then(|| Violation::new(task_id, message))
}

fn is_fine(contract: Contract, told: &Told) -> bool {
    told.status == if over_http(contract) { 200 } else { Code::Ok as u16 }
}

fn over_http(contract: Contract) -> bool {
    matches!(contract, Contract::Native | Contract::Claim | Contract::Callback)
}
