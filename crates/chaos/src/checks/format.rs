//! Formats violations: the expected and the found answer, and everything recorded about the task.

use std::fmt::Write;

use super::Violation;
use crate::evidence::Evidence;
use crate::recorder::{At, Report};

/// Of each kind: with a task and without.
const MAX_VIOLATIONS: usize = 5;

/// The first violations with all that is known about their tasks.
pub(crate) fn format_violations(evidence: &Evidence, violations: &[Violation]) -> String {
    let mut text = format!("{} violations\n", violations.len());
    let (of_tasks, others): (Vec<_>, Vec<_>) = violations.iter().partition(|it| !it.task_id.is_empty());
    for violation in others.into_iter().take(MAX_VIOLATIONS) {
        let _ = writeln!(text, "\n* {}", violation.message);
    }
    for violation in of_tasks.into_iter().take(MAX_VIOLATIONS) {
        let _ = writeln!(text, "\n* task {}: {}", violation.task_id, violation.message);
        for line in describe_task(evidence, &violation.task_id) {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// All answers about a task in the order of time, then its current state, then its history.
fn describe_task(evidence: &Evidence, id: &str) -> Vec<String> {
    let observations = &evidence.observations;
    let mut timeline: Vec<(At, String)> = Vec::new();
    for grant in observations.grants.iter().filter(|grant| grant.task_id == id) {
        let (worker, attempt, token) = (&grant.worker_id, grant.attempt, grant.fencing_token);
        let line = format!("lease {} to {worker}, attempt {attempt}, token {token}", short(&grant.lease_id));
        timeline.push((grant.answered_at, format!("{line}, asked at {:.3}", grant.asked_at.as_secs_f64())));
    }
    let mut undecided = 0;
    for report in observations.reports.iter().filter(|report| report.request.lease.task_id == id) {
        match &report.response {
            None => undecided += 1,
            Some(answer) => {
                let line = format!("{} -> {} {:?}", describe(report), answer.status, answer.verdict);
                timeline.push((
                    report.ended_at,
                    format!("{line} {}", answer.state.as_deref().unwrap_or_default()),
                ));
            }
        }
    }
    timeline.sort();
    let submitted = observations.submissions.iter().filter(|it| it.task_id.as_deref() == Some(id));
    let mut lines: Vec<String> = submitted.map(|it| format!("submitted as {}", it.marker)).collect();
    lines.dedup();
    lines.extend(timeline.into_iter().map(|(at, line)| format!("{:>8.3} {line}", at.as_secs_f64())));
    lines.push(format!("{undecided} reports without an answer, or with the request to retry"));
    for (report, again) in evidence.repeats.iter().filter(|(report, _)| report.request.lease.task_id == id) {
        let differs = report.verdict() != again.verdict();
        let differs = if differs { " (differs)" } else { "" };
        lines.push(format!("repeated at the end{differs}: {} -> {:?}", describe(again), again.response));
    }
    let mut task = evidence.tasks.get(id).cloned().unwrap_or_default();
    if let Some(payload) = task.get_mut("payload") {
        *payload = "…".into();
    }
    lines.push(format!("now {task}"));
    lines.extend(evidence.histories.get(id).into_iter().flatten().map(|event| format!("history {event}")));
    lines
}

fn describe(report: &Report) -> String {
    let (contract, request) = (report.contract.name(), &report.request);
    format!(
        "{:?} by {contract} of lease {}: {:?}",
        request.intent,
        short(&request.lease.lease_id),
        request.kind
    )
}

/// The end of an id distinguishes it from others: ids of one moment begin alike.
fn short(id: &str) -> &str {
    let start = id.char_indices().rev().nth(11).map_or(0, |(index, _)| index);
    &id[start..]
}
