//! Checks that the list agrees with reads, has each task once, and that the other fields of a final task do not change.

use super::Violation;
use crate::evidence::Evidence;

/// What of a final task never changes, beside what the auditor compares with the records.
const FINAL_FIELDS: [&str; 3] = ["reason", "error", "finishedAt"];
const FINAL_STATES: [&str; 3] = ["COMPLETED", "FAILED", "DEAD"];

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let listed_ids = evidence.listed.iter().filter_map(|task| task["taskId"].as_str());
    let mut listed: Vec<&str> = listed_ids.collect();
    listed.sort_unstable();
    for pair in listed.windows(2).filter(|pair| pair[0] == pair[1]) {
        violations.push(Violation::new(pair[0], "is listed twice"));
    }
    for id in evidence.tasks.keys().filter(|id| listed.binary_search(&id.as_str()).is_err()) {
        violations.push(Violation::new(id, "is missing in the list"));
    }
    for reading in evidence.observations.readings.iter().chain(&evidence.listed) {
        if !reading["state"].as_str().is_some_and(|state| FINAL_STATES.contains(&state)) {
            continue;
        }
        let id = reading["taskId"].as_str().unwrap_or_default();
        let now = &evidence.tasks.get(id).cloned().unwrap_or_default();
        for field in FINAL_FIELDS.iter().filter(|field| reading.get(**field).is_some()) {
            if reading[field] != now[field] {
                let message = format!("was final with {field} {}, and is {} now", reading[field], now[field]);
                violations.push(Violation::new(id, message));
            }
        }
    }
    violations
}
