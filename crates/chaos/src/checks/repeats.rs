//! Every verdict has the status that the contract gives it and fits what its sender knew, and whatever was decided or
//! accepted is answered again when it is repeated in the end. What those answers say, the auditor judges.

use contract_clients::ReportKind;
use tonic::Code;
use wire::Verdict;

use super::Violation;
use crate::contract::Contract;
use crate::evidence::Evidence;
use crate::recorder::{Report, ReportResponse};
use crate::report_request::Intent;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let at_the_end = evidence.repeats.iter().map(|(_, again)| again);
    for report in evidence.observations.reports.iter().chain(at_the_end) {
        violations.extend(report.response.as_ref().and_then(|response| check_report(report, response)));
    }
    for (report, again) in &evidence.repeats {
        let task_id = &report.request.lease.task_id;
        if again.response.is_none() {
            let message = "a report that was decided was not decided when repeated";
            violations.push(Violation::new(task_id, message));
        } else if report.verdict() != again.verdict() {
            let (then, now) = (report.verdict(), again.verdict());
            let (one, other) = (report.contract.name(), again.contract.name());
            let message =
                format!("a report was answered {then:?} by {one}, and when repeated {now:?} by {other}");
            violations.push(Violation::new(task_id, message));
        }
    }
    for (submission, _) in evidence.resubmits.iter().filter(|(_, now)| now.is_none()) {
        let id = submission.task_id.as_deref().unwrap_or_default();
        violations.push(Violation::new(id, format!("{} was not found when repeated", submission.marker)));
    }
    violations
}

fn check_report(report: &Report, response: &ReportResponse) -> Option<Violation> {
    let task_id = &report.request.lease.task_id;
    let is_success = is_success(report.contract, response);
    if report.request.kind == ReportKind::Released {
        // A lease that is over, by this call or before it, is what a release asks for: no verdict is needed.
        let message = format!("a release was answered {response:?}");
        return (!is_success).then(|| Violation::new(task_id, message));
    }
    let fits_status = match response.verdict {
        Some(Verdict::Committed) => is_success,
        Some(Verdict::Cancelled) => {
            response.status == if over_http(report.contract) { 409 } else { Code::Ok as u16 }
        }
        Some(Verdict::Rejected) => !is_success,
        None => false,
    };
    let fits_intent = match report.request.intent {
        Intent::Own => matches!(response.verdict, Some(Verdict::Committed | Verdict::Cancelled)),
        Intent::Conflicting => response.verdict != Some(Verdict::Committed),
        Intent::Forged => response.verdict == Some(Verdict::Rejected),
    };
    let message = format!("a report of intent {:?} was answered {response:?}", report.request.intent);
    (!fits_status || !fits_intent).then(|| Violation::new(task_id, message))
}

fn is_success(contract: Contract, response: &ReportResponse) -> bool {
    response.status == if over_http(contract) { 200 } else { Code::Ok as u16 }
}

fn over_http(contract: Contract) -> bool {
    matches!(contract, Contract::Native | Contract::Claim | Contract::Callback)
}
