//! The history that the server tells of a task is what the ledger holds: the same records, whole and in order.

use std::collections::HashMap;

use auditor::history::Recorded;

use super::Violation;
use crate::evidence::Evidence;

pub fn check(evidence: &Evidence, records: &[Recorded]) -> Vec<Violation> {
    let mut recorded: HashMap<String, Vec<(u64, &str)>> = HashMap::new();
    for record in records {
        if let Some(task) = record.event.task() {
            recorded.entry(task.to_string()).or_default().push((record.position.0, record.event.name()));
        }
    }
    let mut violations = Vec::new();
    for (id, events) in &evidence.histories {
        let told = events.iter().map(|event| {
            (event["position"].as_u64().unwrap_or_default(), event["type"].as_str().unwrap_or_default())
        });
        let told: Vec<_> = told.collect();
        let held = recorded.get(id).map(Vec::as_slice).unwrap_or_default();
        if told != held {
            violations.push(Violation::new(id, format!("its history is told as {told:?} and is {held:?}")));
        }
    }
    violations
}
