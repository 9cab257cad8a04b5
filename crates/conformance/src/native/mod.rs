//! The native contract: tasks, queues and leases under `/v1`, with a verdict on every report.

mod cycle;
mod hostile;
mod policy;
mod repeats;
mod states;
mod time;
mod verdicts;

use reqwest::Method;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::{Check, Finding, Subject};

pub const THEMES: &[&[Check]] = &[
    cycle::CHECKS,
    verdicts::CHECKS,
    repeats::CHECKS,
    time::CHECKS,
    policy::CHECKS,
    hostile::CHECKS,
    states::CHECKS,
];

const WORKER: &str = "what a worker does with an answer is its own; see the tests of the SDKs";

pub const UNOBSERVABLE: &[(&str, &str)] = &[
    ("S0-8", WORKER),
    ("S0-13", WORKER),
    ("S0-15", WORKER),
    ("S0-16", WORKER),
    ("S0-17", WORKER),
    ("S0-21", WORKER),
    ("S0-22", WORKER),
    ("S0-23", WORKER),
    ("S0-24", WORKER),
];

/// How long a poll waits for a task that must come.
const WAIT_MS: u64 = 10_000;

/// A lease as it was granted to a worker.
struct Lease {
    id: String,
    task: String,
    worker: String,
    granted: Answer,
}

impl Lease {
    fn get(&self, field: &str) -> &Value {
        self.granted.get(&place(field))
    }

    fn attempt(&self) -> Result<u64, Finding> {
        self.granted.whole(&place("attempt"))
    }

    fn path(&self, call: &str) -> String {
        format!("/v1/leases/{}/{call}", self.id)
    }

    fn completion(&self, result: Value) -> Value {
        json!({"workerId": self.worker, "taskId": self.task, "result": result})
    }

    fn failure(&self, reason: &str, retryable: bool) -> Value {
        json!({"workerId": self.worker, "taskId": self.task, "reason": reason, "category": "USER_CODE",
            "retryable": retryable})
    }

    async fn complete(&self, subject: &Subject, result: Value) -> Result<Answer, Finding> {
        subject.post(&self.path("complete"), &self.completion(result)).await
    }

    async fn fail(&self, subject: &Subject, reason: &str, retryable: bool) -> Result<Answer, Finding> {
        subject.post(&self.path("fail"), &self.failure(reason, retryable)).await
    }

    async fn beat(&self, subject: &Subject) -> Result<Answer, Finding> {
        subject.post(&self.path("heartbeat"), &json!({"workerId": self.worker})).await
    }

    async fn release(&self, subject: &Subject) -> Result<Answer, Finding> {
        let body = json!({"workerId": self.worker, "taskId": self.task});
        subject.post(&self.path("release"), &body).await
    }
}

fn place(field: &str) -> String {
    format!("/leases/0/{field}")
}

/// Asks for one task of a queue, waiting so long.
async fn ask(subject: &Subject, worker: &str, queue: &str, wait_ms: u64) -> Result<Answer, Finding> {
    let body = json!({"workerId": worker, "queues": [queue], "maxTasks": 1, "waitMs": wait_ms});
    let told = subject.post("/v1/leases", &body).await?;
    told.is(200)?;
    Ok(told)
}

/// Leases the next task of a queue, which must come.
async fn lease(subject: &Subject, worker: &str, queue: &str) -> Result<Lease, Finding> {
    let granted = ask(subject, worker, queue, WAIT_MS).await?;
    let (id, task) = (granted.text(&place("leaseId"))?, granted.text(&place("taskId"))?);
    Ok(Lease { id, task, worker: worker.to_owned(), granted })
}

/// A new task in a queue, leased to a worker of its own.
async fn leased(subject: &Subject, queue: &str) -> Result<Lease, Finding> {
    let task = subject.submit(queue).await?;
    let lease = lease(subject, &subject.worker(), queue).await?;
    match lease.task == task {
        true => Ok(lease),
        false => Err(lease.granted.broken(format!("task {task} was expected"))),
    }
}

/// No task of the queue can be leased now.
async fn nothing_to_lease(subject: &Subject, queue: &str) -> Result<(), Finding> {
    let told = ask(subject, &subject.worker(), queue, 0).await?;
    match told.get("leases").as_array().is_some_and(Vec::is_empty) {
        true => Ok(()),
        false => Err(told.broken("`leases` should be an empty list")),
    }
}

fn committed(told: &Answer, state: &str) -> Result<(), Finding> {
    told.is(200)?.has("verdict", "COMMITTED")?.has("state", state)?;
    Ok(())
}

fn cancelled(told: &Answer) -> Result<(), Finding> {
    told.is(409)?.has("verdict", "CANCELLED")?;
    problem(told)
}

fn rejected(told: &Answer, statuses: &[u16]) -> Result<(), Finding> {
    told.is_one_of(statuses)?.has("verdict", "REJECTED")?;
    problem(told)
}

fn problem(told: &Answer) -> Result<(), Finding> {
    told.has_type(wire::PROBLEM_JSON)?.text("code")?;
    Ok(())
}

/// The lease id with its last character changed, so that nobody ever granted it.
fn forged(id: &str) -> String {
    let last = id.chars().next_back().unwrap_or('A');
    format!("{}{}", &id[..id.len() - last.len_utf8()], if last == 'A' { 'B' } else { 'A' })
}

/// A report in another tenant's name.
async fn as_tenant(subject: &Subject, tenant: &str, path: &str, body: &Value) -> Result<Answer, Finding> {
    let url = format!("{}{path}", subject.options.url);
    let request = subject.plain(Method::POST, &url).header(wire::TENANT_HEADER, tenant);
    subject.send(request.json(body)).await
}
