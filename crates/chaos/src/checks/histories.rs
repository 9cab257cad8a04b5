//! Checks that the history that the server reports for a task is that of the ledger: the same records, in order.

use std::collections::HashMap;

use auditor::history::Recorded;

use super::Violation;
use crate::evidence::Evidence;

pub(super) fn check(evidence: &Evidence, records: &[Recorded]) -> Vec<Violation> {
    let mut recorded: HashMap<String, Vec<(u64, &str)>> = HashMap::new();
    for record in records {
        if let Some(task) = record.event.task() {
            recorded.entry(task.to_string()).or_default().push((record.position.0, record.event.name()));
        }
    }
    let mut violations = Vec::new();
    for (id, events) in &evidence.histories {
        let reported = events.iter().map(|event| {
            (event["position"].as_u64().unwrap_or_default(), event["type"].as_str().unwrap_or_default())
        });
        let reported: Vec<_> = reported.collect();
        let recorded_events = recorded.get(id).map(Vec::as_slice).unwrap_or_default();
        if reported != recorded_events {
            violations.push(Violation::new(
                id,
                format!("the server reports its history as {reported:?}, but it is {recorded_events:?}"),
            ));
        }
    }
    violations
}
