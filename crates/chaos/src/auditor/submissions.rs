//! Every accepted task exists, once, as it was handed in.

use std::collections::BTreeMap;

use super::Violation;
use crate::evidence::Evidence;

pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for task in evidence.tasks.values() {
        if let Some(marker) = task["payload"]["marker"].as_str() {
            *listed.entry(marker).or_default() += 1;
        }
    }
    let mut ids: BTreeMap<&str, &str> = BTreeMap::new();
    for submission in &evidence.book.submissions {
        let marker = submission.marker.as_str();
        let count = listed.get(marker).copied().unwrap_or_default();
        let Some(id) = submission.task_id.as_deref() else {
            // The answer was lost and may have been an acceptance, but never of two tasks.
            if count > 1 {
                violations.push(Violation::new(
                    "",
                    format!("{marker} was handed in once and exists {count} times"),
                ));
            }
            continue;
        };
        if count != 1 {
            violations.push(Violation::new(id, format!("{marker} was accepted and exists {count} times")));
        }
        if *ids.entry(marker).or_insert(id) != id {
            violations
                .push(Violation::new(id, format!("{marker} was told two ids, {} and {id}", ids[marker])));
        }
        let task = evidence.tasks.get(id).filter(|task| !task.is_null());
        match task {
            None => violations.push(Violation::new(id, format!("{marker} was accepted and is gone"))),
            Some(task) if task["payload"] != submission.body["payload"] => {
                violations
                    .push(Violation::new(id, format!("{marker} has another payload than was handed in")));
            }
            Some(_) => {}
        }
    }
    for (submission, now) in &evidence.resubmits {
        if *now != submission.task_id {
            let id = submission.task_id.as_deref().unwrap_or_default();
            violations.push(Violation::new(id, format!("{} repeated now gives {now:?}", submission.marker)));
        }
    }
    violations
}
