//! A lease belongs to one attempt of one task, and later leases carry larger fencing tokens.

use std::collections::BTreeMap;

use super::Violation;
use crate::evidence::Evidence;
use crate::facts::Grant;

pub fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut by_lease: BTreeMap<&str, &Grant> = BTreeMap::new();
    for grant in &evidence.book.grants {
        let first = by_lease.entry(&grant.lease_id).or_insert(grant);
        let fields = |grant: &Grant| {
            (grant.task_id.clone(), grant.attempt, grant.worker_id.clone(), grant.fencing_token)
        };
        if fields(first) != fields(grant) {
            violations.push(Violation::new(
                &grant.task_id,
                format!("one lease was told as two: {first:?}, {grant:?}"),
            ));
        }
    }
    let mut by_task: BTreeMap<&str, Vec<&Grant>> = BTreeMap::new();
    let mut tokens: BTreeMap<u64, &str> = BTreeMap::new();
    for grant in by_lease.values() {
        by_task.entry(&grant.task_id).or_default().push(grant);
        if tokens.insert(grant.fencing_token, &grant.lease_id).is_some() {
            let message = format!("fencing token {} was given to two leases", grant.fencing_token);
            violations.push(Violation::new(&grant.task_id, message));
        }
    }
    for (id, mut grants) in by_task {
        grants.sort_by_key(|grant| grant.attempt);
        for pair in grants.windows(2) {
            if pair[0].attempt == pair[1].attempt {
                violations.push(Violation::new(id, format!("attempt {} has two leases", pair[0].attempt)));
            } else if pair[0].fencing_token >= pair[1].fencing_token {
                violations.push(Violation::new(id, "a later attempt has a smaller fencing token"));
            }
        }
        let told = grants.last().map(|grant| grant.attempt);
        let now = evidence.tasks.get(id).and_then(|task| task["attempt"].as_u64());
        if told > now {
            violations
                .push(Violation::new(id, format!("attempt {told:?} was granted, and now there are {now:?}")));
        }
    }
    violations
}
