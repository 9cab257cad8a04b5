//! Every task is final, and no final word about it was ever taken back.

use super::{FINAL_STATES, Violation};
use crate::evidence::Evidence;

/// What of a task never changes once it is final.
const FINAL_FIELDS: [&str; 6] = ["state", "reason", "attempt", "result", "error", "finishedAt"];

pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (id, task) in &evidence.tasks {
        if !is_final(task) {
            violations.push(Violation::new(id, "is not final after everything was drained"));
        }
    }
    let listed_ids = evidence.listed.iter().filter_map(|task| task["taskId"].as_str());
    let mut listed: Vec<&str> = listed_ids.collect();
    listed.sort_unstable();
    for pair in listed.windows(2).filter(|pair| pair[0] == pair[1]) {
        violations.push(Violation::new(pair[0], "is listed twice"));
    }
    for id in evidence.tasks.keys().filter(|id| listed.binary_search(&id.as_str()).is_err()) {
        violations.push(Violation::new(id, "is missing in the list"));
    }
    for reading in evidence.book.readings.iter().chain(&evidence.listed) {
        let id = reading["taskId"].as_str().unwrap_or_default();
        let now = &evidence.tasks.get(id).cloned().unwrap_or_default();
        if reading["attempt"].as_u64() > now["attempt"].as_u64() {
            violations
                .push(Violation::new(id, format!("was shown attempt {}, later fewer", reading["attempt"])));
        }
        if !is_final(reading) {
            continue;
        }
        for field in FINAL_FIELDS.iter().filter(|field| reading.get(**field).is_some()) {
            if reading[field] != now[field] {
                let message = format!("was final with {field} {}, and is {} now", reading[field], now[field]);
                violations.push(Violation::new(id, message));
            }
        }
    }
    violations
}

fn is_final(task: &serde_json::Value) -> bool {
    task["state"].as_str().is_some_and(|state| FINAL_STATES.contains(&state))
}
