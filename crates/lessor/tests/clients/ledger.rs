//! The executions of a server in its ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::support::{Ran, lessor};

/// The records of a data directory, in their order.
pub(crate) struct History(Vec<Value>);

impl History {
    pub(crate) fn of(data: &Path) -> History {
        let ran = Ran::from(lessor(&["log", "dump", "--data"]).arg(data).output().unwrap()).ok();
        History(ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    /// The digests of all actions that were committed. Each was committed once, and no worker got it again after that.
    #[track_caller]
    pub(crate) fn committed_once(&self) -> BTreeSet<String> {
        let mut actions = BTreeMap::new();
        let mut committed = BTreeSet::new();
        for record in &self.0 {
            let task = record["taskId"].as_str().unwrap_or_default();
            match record["type"].as_str().unwrap() {
                "TaskCreated" => {
                    let action = record["payload"]["actionDigest"].as_str().expect("a task is an action");
                    actions.insert(task, action);
                }
                "LeaseGranted" => {
                    let action = actions[task];
                    assert!(!committed.contains(action), "{action} ran again at {}", record["position"]);
                }
                "TaskCompleted" => {
                    assert!(
                        committed.insert(actions[task].to_owned()),
                        "{} was committed twice",
                        actions[task]
                    );
                }
                _ => {}
            }
        }
        committed
    }

    pub(crate) fn count(&self, kind: &str) -> usize {
        self.0.iter().filter(|record| record["type"] == kind).count()
    }
}

fn history(records: &[(&str, &str)]) -> History {
    let record = |(n, (kind, task)): (usize, &(&str, &str))| {
        let payload = serde_json::json!({"actionDigest": "a"});
        serde_json::json!({"position": n, "type": kind, "taskId": task, "payload": payload})
    };
    History(records.iter().enumerate().map(record).collect())
}

#[test]
fn an_action_may_be_leased_again_until_it_is_committed() {
    let records =
        [("TaskCreated", "1"), ("LeaseGranted", "1"), ("LeaseGranted", "1"), ("TaskCompleted", "1")];
    assert_eq!(history(&records).committed_once().len(), 1);
}

#[test]
#[should_panic(expected = "ran again")]
fn an_action_that_runs_again_as_another_task_is_found() {
    let first = [("TaskCreated", "1"), ("LeaseGranted", "1"), ("TaskCompleted", "1")];
    history(&[&first[..], &[("TaskCreated", "2"), ("LeaseGranted", "2")]].concat()).committed_once();
}

#[test]
#[should_panic(expected = "committed twice")]
fn an_action_that_is_committed_twice_is_found() {
    let both = [("TaskCreated", "1"), ("TaskCreated", "2"), ("LeaseGranted", "1"), ("LeaseGranted", "2")];
    history(&[&both[..], &[("TaskCompleted", "1"), ("TaskCompleted", "2")]].concat()).committed_once();
}
