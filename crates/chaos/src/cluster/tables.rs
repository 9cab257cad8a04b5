//! Compares the tables of tasks in SQL with what the API returns: every task, every field, every attempt.
//!
//! Nothing of the product is used here: rows come by `SELECT` and tasks over HTTP, both as JSON, and this file alone says which
//! column belongs to which field. A field or a column that it does not know is a difference too.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::databases::Databases;
use crate::evidence::Evidence;
use crate::world::MAX_ATTEMPTS;

/// How many differences are printed.
const MAX_SHOWN: usize = 10;

/// The columns of `lessor.jobs`, each with its field of a task.
const FIELDS: [(&str, &str); 37] = [
    ("id", "/taskId"),
    ("queue", "/queue"),
    ("state", "/state"),
    ("reason", "/reason"),
    ("reason_detail", "/reasonDetail"),
    ("attempt", "/attempt"),
    ("used_attempts", "/usedAttempts"),
    ("max_attempts", "/maxAttempts"),
    ("priority", "/priority"),
    ("payload", "/payload"),
    ("result", "/result"),
    ("error_category", "/error/category"),
    ("error_code", "/error/code"),
    ("error_message", "/error/message"),
    ("stack_trace", "/error/stackTrace"),
    ("metrics", "/metrics"),
    ("partial_progress", "/partialProgress"),
    ("cancelled_during_phase", "/cancelledDuringPhase"),
    ("properties", "/properties"),
    ("dedup_key", "/dedupKey"),
    ("run_id", "/runId"),
    ("asset_id", "/assetId"),
    ("task_key", "/taskKey"),
    ("resources", "/resources"),
    ("created_at", "/createdAt"),
    ("not_before", "/notBefore"),
    ("deadline", "/deadline"),
    ("timeout_ms", "/timeoutMs"),
    ("finished_at", "/finishedAt"),
    ("worker", "/lease/workerId"),
    ("granted_at", "/lease/grantedAt"),
    ("expires_at", "/lease/expiresAt"),
    ("started_by", "/lease/startedBy"),
    ("cancel_reason", "/cancelRequested/reason"),
    ("cancel_requested_at", "/cancelRequested/at"),
    ("cancel_grace_until", "/cancelRequested/graceUntil"),
    ("redrive_of", "/redriveOf"),
];
/// What a worker said last is in no table.
const NOT_IN_TABLES: &str = "progress";
/// The columns that no task shows. The position of its newest record is in its history.
const OTHERS: [&str; 6] = ["shard", "tenant", "workspace", "contract", "fencing_token", "position"];
/// The columns of `lessor.job_attempts` that a history does not show.
const NOT_IN_HISTORY: [&str; 5] = ["job_id", "tenant", "workspace", "queue", "started_by"];

/// The rows of the tables, as JSON.
pub(super) struct Tables {
    pub jobs: Vec<Value>,
    pub attempts: Vec<Value>,
}

/// How much was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compared {
    pub tasks: usize,
    pub attempts: usize,
}

impl Tables {
    pub(super) async fn read(databases: &Databases) -> Result<Tables> {
        Ok(Tables {
            jobs: databases.select("to_jsonb(jobs)", "lessor.jobs").await?,
            attempts: databases.select("to_jsonb(job_attempts)", "lessor.job_attempts").await?,
        })
    }

    /// Compares them with the tasks that the API has listed, with those that it has returned one by one, and with their
    /// histories.
    pub(super) fn compare(&self, evidence: &Evidence) -> Result<Compared> {
        let id = |task: &Value| task["taskId"].as_str().unwrap_or_default().to_owned();
        let listed = evidence.listed.iter().map(|task| (id(task), task)).collect();
        let read = evidence.tasks.iter().map(|(id, task)| (id.clone(), task)).collect();
        let mut differences = self.differences(&listed);
        differences.extend(self.differences(&read));
        differences.extend(self.differences_of_histories(&evidence.histories));
        let shown = &differences[..differences.len().min(MAX_SHOWN)];
        ensure!(
            differences.is_empty(),
            "the tables differ from the API in {} places, among them:\n{}",
            differences.len(),
            shown.join("\n")
        );
        Ok(Compared { tasks: self.jobs.len(), attempts: self.attempts.len() })
    }

    fn differences(&self, tasks: &BTreeMap<String, &Value>) -> Vec<String> {
        let rows: BTreeMap<&str, &Value> = by(&self.jobs, "id").collect();
        let missing = tasks.keys().filter(|id| !rows.contains_key(id.as_str()));
        let mut differences: Vec<String> = missing.map(|id| format!("the task {id} has no row")).collect();
        for (id, row) in rows {
            match tasks.get(id) {
                Some(task) => differences.extend(
                    differences_of_task(row, task).map(|difference| format!("the task {id}: {difference}")),
                ),
                None => differences.push(format!("the row {id} is of no task")),
            }
        }
        differences
    }

    fn differences_of_histories(&self, histories: &BTreeMap<String, Vec<Value>>) -> Vec<String> {
        let mut differences = Vec::new();
        for (id, row) in by(&self.jobs, "id") {
            let last = histories.get(id).and_then(|history| history.last());
            if last.is_none_or(|last| last["position"] != row["position"]) {
                differences.push(format!(
                    "the task {id}: the row is of {}, and its last event {last:?}",
                    row["position"]
                ));
            }
        }
        let mut rows: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        by(&self.attempts, "job_id").for_each(|(id, row)| rows.entry(id).or_default().push(row));
        rows.values_mut().for_each(|rows| rows.sort_by_key(|row| row["attempt"].as_u64()));
        for (id, history) in histories {
            let (ended, rows) = (ended_attempts(history), rows.remove(id.as_str()).unwrap_or_default());
            if ended.len() != rows.len()
                || ended.iter().zip(&rows).any(|(ended, row)| !is_attempt(ended, row))
            {
                differences.push(format!("the task {id}: its attempts are {ended:?}, and in SQL {rows:?}"));
            }
        }
        differences.extend(rows.keys().map(|id| format!("the attempts of {id} are of no task")));
        differences
    }
}

/// The rows with the text of one of their columns.
fn by<'a>(rows: &'a [Value], column: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    rows.iter().map(move |row| (row[column].as_str().unwrap_or_default(), row))
}

fn differences_of_task<'a>(row: &'a Value, task: &'a Value) -> impl Iterator<Item = String> + 'a {
    let unequal = FIELDS.iter().filter_map(move |(column, field)| {
        let shown = task.pointer(field).unwrap_or(&Value::Null);
        // Where the task has no number of its own, its queue decides.
        let in_row = match (*column, &row[column]) {
            ("max_attempts", Value::Null) => &json!(MAX_ATTEMPTS),
            (_, value) => value,
        };
        (!is_same(in_row, shown)).then(|| format!("{column} is {in_row} in SQL, and {shown} in the API"))
    });
    let columns: BTreeSet<&str> = FIELDS.iter().map(|(column, _)| *column).chain(OTHERS).collect();
    let shown: BTreeSet<&str> = FIELDS.iter().filter_map(|(_, field)| field.split('/').nth(1)).collect();
    let unknown_columns = names(row).filter(move |name| !columns.contains(name));
    let unknown_fields = names(task).filter(move |name| !shown.contains(name) && *name != NOT_IN_TABLES);
    let unknown = unknown_columns.chain(unknown_fields);
    unequal.chain(unknown.map(|name| format!("nobody knows what {name} is to be compared with")))
}

fn names(object: &Value) -> impl Iterator<Item = &str> {
    object.as_object().into_iter().flat_map(|object| object.keys()).map(String::as_str)
}

/// Whether two values are equal, or the same moment in two notations.
fn is_same(one: &Value, other: &Value) -> bool {
    let moment = |value: &Value| value.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    one == other || moment(one).is_some_and(|at| Some(at) == moment(other))
}

/// The attempts of a history that are over, with what it says about each, under the names of the columns.
fn ended_attempts(history: &[Value]) -> Vec<Value> {
    let (mut ended, mut held) = (Vec::new(), None);
    for event in history {
        let (outcome, reason) = match event["type"].as_str().unwrap_or_default() {
            "LeaseGranted" => {
                held = Some(event);
                continue;
            }
            "TaskCompleted" => ("COMPLETED", &Value::Null),
            "TaskFailed" => ("FAILED", &Value::Null),
            "LeaseExpired" => ("EXPIRED", &event["cause"]),
            "LeaseReleased" => ("RELEASED", &event["cause"]),
            "TaskDead" => ("DEAD", &event["reason"]),
            _ => continue,
        };
        // A task may also end while nobody works on it.
        let Some(granted) = held.take() else { continue };
        ended.push(json!({
            "attempt": granted["attempt"],
            "worker": granted["workerId"],
            "contract": granted["contract"],
            "fencing_token": granted["position"],
            "granted_at": granted["at"],
            "ended_at": event["at"],
            "outcome": outcome,
            "reason": reason,
            "error_category": event["error"]["category"],
            "error_code": event["error"]["code"],
            "error_message": event["error"]["message"],
            "position": event["position"],
        }));
    }
    ended
}

/// Whether a row is that of an attempt.
fn is_attempt(ended: &Value, row: &Value) -> bool {
    let known = |name: &str| NOT_IN_HISTORY.contains(&name) || ended.get(name).is_some();
    names(row).all(known) && names(ended).all(|name| is_same(&row[name], &ended[name]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes the tables differ from the API.
    type Change = fn(&mut Tables, &mut Value);

    const ID: &str = "00000000-0000-7000-8000-000000000001";

    fn task() -> Value {
        json!({
            "taskId": ID, "queue": "chaos", "state": "FAILED", "attempt": 1, "maxAttempts": MAX_ATTEMPTS,
            "payload": {"marker": "client-0-1"}, "error": {"category": "TIMEOUT", "message": "slow"},
            "createdAt": "2026-01-01T00:00:00.5Z", "lease": null, "progress": {"progressPct": 50},
        })
    }

    fn history() -> Vec<Value> {
        vec![
            json!({"type": "TaskCreated", "position": 3, "at": "2026-01-01T00:00:00.5Z"}),
            json!({"type": "LeaseGranted", "position": 4, "at": "2026-01-01T00:00:01Z", "attempt": 1,
                "workerId": "w", "contract": "CLAIMS"}),
            json!({"type": "TaskFailed", "position": 5, "at": "2026-01-01T00:00:02Z",
                "error": {"category": "TIMEOUT", "message": "slow"}}),
        ]
    }

    fn tables() -> Tables {
        Tables {
            jobs: vec![json!({
                "id": ID, "shard": 0, "queue": "chaos", "state": "FAILED", "attempt": 1, "max_attempts": null,
                "payload": {"marker": "client-0-1"}, "error_category": "TIMEOUT", "error_message": "slow",
                "created_at": "2026-01-01T00:00:00.500+00:00", "worker": null, "position": 5,
            })],
            attempts: vec![json!({
                "job_id": ID, "attempt": 1, "worker": "w", "contract": "CLAIMS", "fencing_token": 4,
                "granted_at": "2026-01-01T00:00:01+00:00", "ended_at": "2026-01-01T00:00:02+00:00",
                "outcome": "FAILED", "reason": null, "error_category": "TIMEOUT", "error_message": "slow",
                "position": 5,
            })],
        }
    }

    fn compare(tables: &Tables, task: Value) -> Result<Compared> {
        let evidence = Evidence {
            listed: vec![task.clone()],
            tasks: [(ID.to_owned(), task)].into(),
            histories: [(ID.to_owned(), history())].into(),
            ..Evidence::default()
        };
        tables.compare(&evidence)
    }

    #[test]
    fn tables_that_hold_what_the_api_shows_are_equal() {
        assert_eq!(compare(&tables(), task()).unwrap(), Compared { tasks: 1, attempts: 1 });
    }

    #[test]
    fn every_difference_is_found() {
        let changed = |change: Change| {
            let (mut tables, mut task) = (tables(), task());
            change(&mut tables, &mut task);
            compare(&tables, task).unwrap_err().to_string()
        };
        let changes: [(&str, Change); 9] = [
            ("state is \"DEAD\"", |tables, _| tables.jobs[0]["state"] = json!("DEAD")),
            ("max_attempts is 3", |tables, _| tables.jobs[0]["max_attempts"] = json!(3)),
            ("created_at", |_, task| task["createdAt"] = json!("2026-01-01T00:00:00.501Z")),
            ("payload", |_, task| task["payload"]["marker"] = json!("another")),
            ("what novelty is", |_, task| task["novelty"] = json!(null)),
            ("what news is", |tables, _| tables.jobs[0]["news"] = json!(null)),
            ("has no row", |tables, _| tables.jobs.clear()),
            ("its attempts are", |tables, _| tables.attempts[0]["worker"] = json!("v")),
            ("the row is of 6", |tables, _| tables.jobs[0]["position"] = json!(6)),
        ];
        for (message, change) in changes {
            let found = changed(change);
            assert!(found.contains(message), "{message}: {found}");
        }
    }
}
