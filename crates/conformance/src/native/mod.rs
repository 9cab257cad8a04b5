//! The native contract: tasks, queues and leases under `/v1`, with a verdict on every report.

mod cycle;
mod hostile;
mod policy;
mod repeats;
mod states;
mod time;
mod verdicts;

use contract_clients::{Failure, HttpRequest, LeaseRef, native};
use reqwest::Method;
use serde_json::Value;
use wire::ErrorCategory;

use crate::answer::Answer;
use crate::{Check, Finding, Subject};

pub(crate) const THEMES: &[&[Check]] = &[
    cycle::CHECKS,
    verdicts::CHECKS,
    repeats::CHECKS,
    time::CHECKS,
    policy::CHECKS,
    hostile::CHECKS,
    states::CHECKS,
];

const WORKER: &str = "what a worker does with an answer is its own; see the tests of the SDKs";

pub(crate) const UNOBSERVABLE: &[(&str, &str)] = &[
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

/// How long a poll waits for an expected task.
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
        self.granted.get(&lease_field(field))
    }

    fn attempt(&self) -> Result<u64, Finding> {
        self.granted.whole(&lease_field("attempt"))
    }

    fn path(&self, call: &str) -> String {
        format!("/v1/leases/{}/{call}", self.id)
    }

    fn lease_ref(&self) -> LeaseRef {
        let (lease_id, task_id, worker_id) = (self.id.clone(), self.task.clone(), self.worker.clone());
        // This contract names a lease without its attempt.
        LeaseRef { lease_id, task_id, worker_id, attempt: 0 }
    }

    fn completion(&self, result: Value) -> HttpRequest {
        native::complete(&self.lease_ref(), &result)
    }

    fn failure(&self, reason: &str, retryable: bool) -> HttpRequest {
        let failure = Failure { category: ErrorCategory::UserCode, message: reason.to_owned(), retryable };
        native::fail(&self.lease_ref(), &failure)
    }

    async fn complete(&self, subject: &Subject, result: Value) -> Result<Answer, Finding> {
        subject.call(self.completion(result)).await
    }

    async fn fail(&self, subject: &Subject, reason: &str, retryable: bool) -> Result<Answer, Finding> {
        subject.call(self.failure(reason, retryable)).await
    }

    async fn beat(&self, subject: &Subject) -> Result<Answer, Finding> {
        subject.call(native::heartbeat(&self.lease_ref())).await
    }

    async fn release(&self, subject: &Subject) -> Result<Answer, Finding> {
        subject.call(native::release(&self.lease_ref())).await
    }
}

fn lease_field(field: &str) -> String {
    format!("/leases/0/{field}")
}

/// Asks for one task of a queue.
async fn ask(subject: &Subject, worker: &str, queue: &str, wait_ms: u64) -> Result<Answer, Finding> {
    let answer = subject.call(native::lease(worker, queue, 1, wait_ms)).await?;
    answer.is(200)?;
    Ok(answer)
}

/// Leases the next task of a queue; fails if there is none.
async fn lease(subject: &Subject, worker: &str, queue: &str) -> Result<Lease, Finding> {
    let granted = ask(subject, worker, queue, WAIT_MS).await?;
    let (id, task) = (granted.text(&lease_field("leaseId"))?, granted.text(&lease_field("taskId"))?);
    Ok(Lease { id, task, worker: worker.to_owned(), granted })
}

/// Submits a task and leases it to a new worker.
async fn leased(subject: &Subject, queue: &str) -> Result<Lease, Finding> {
    let task = subject.submit(queue).await?;
    let lease = lease(subject, &subject.worker(), queue).await?;
    if lease.task == task {
        Ok(lease)
    } else {
        Err(lease.granted.broken(format!("task {task} was expected")))
    }
}

/// Expects that no task of the queue can be leased now.
async fn nothing_to_lease(subject: &Subject, queue: &str) -> Result<(), Finding> {
    let answer = ask(subject, &subject.worker(), queue, 0).await?;
    if answer.get("leases").as_array().is_some_and(Vec::is_empty) {
        Ok(())
    } else {
        Err(answer.broken("`leases` should be an empty list"))
    }
}

fn committed(answer: &Answer, state: &str) -> Result<(), Finding> {
    answer.is(200)?.has("verdict", "COMMITTED")?.has("state", state)?;
    Ok(())
}

fn cancelled(answer: &Answer) -> Result<(), Finding> {
    answer.is(409)?.has("verdict", "CANCELLED")?;
    problem(answer)
}

fn rejected(answer: &Answer, statuses: &[u16]) -> Result<(), Finding> {
    answer.is_one_of(statuses)?.has("verdict", "REJECTED")?;
    problem(answer)
}

fn problem(answer: &Answer) -> Result<(), Finding> {
    answer.has_type(wire::PROBLEM_JSON)?.text("code")?;
    Ok(())
}

/// The lease id with its last character changed: a lease that was never granted.
fn forged(id: &str) -> String {
    let last = id.chars().next_back().unwrap_or('A');
    format!("{}{}", &id[..id.len() - last.len_utf8()], if last == 'A' { 'B' } else { 'A' })
}

/// A report in another tenant's name.
async fn as_tenant(subject: &Subject, tenant: &str, path: &str, body: &Value) -> Result<Answer, Finding> {
    let url = format!("{}{path}", subject.url());
    let request = subject.unscoped(Method::POST, &url).header(wire::TENANT_HEADER, tenant);
    subject.send(request.json(body)).await
}
