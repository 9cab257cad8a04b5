//! Converts calls of clients to requests to the coordinator.

use std::sync::Arc;

use authority::command::{CancelTask, ConfigureQueue, SubmitTask};
use authority::{Backoff, Command, Dedup, PushTarget, QueueConfig, TaskId, TaskOptions};
use coordinator::{BatchItem, Read, Request};

use super::super::names::{Names, task_id, text};
use super::client_request::ClientRequest;
use crate::api::{Answer, Call};

/// The requests of one call, in order: a cancel also reads the task that it shows.
pub(super) fn requests(names: &mut Names, call: &Call, client_request: &ClientRequest) -> Vec<Request> {
    let is_undecided = call.answer.status().is_none_or(|status| status >= 500);
    match client_request {
        ClientRequest::Submit(task) => {
            let confirmed =
                call.answer.body()["taskId"].as_str().filter(|_| call.answer.status() == Some(201));
            let task = submit(names, task, confirmed.and_then(task_id), is_undecided);
            vec![Request::decide(Command::SubmitTask(Box::new(task)))]
        }
        ClientRequest::Batch(tasks) => {
            let submit = |task| BatchItem::Command(Command::SubmitTask(Box::new(task)));
            let tasks = batch(names, tasks, &call.answer, is_undecided);
            vec![Request::Decide(tasks.into_iter().map(submit).collect())]
        }
        ClientRequest::Read(task) => vec![read(names, *task)],
        ClientRequest::List => {
            let scope = names.scope.clone();
            vec![Request::Read(Read::List { scope, queue: None, state: None, after: None, limit: 0 })]
        }
        ClientRequest::Cancel(task, cancel) => {
            let (scope, reason) = (names.scope.clone(), text(&cancel.reason).unwrap_or_default());
            let cancel = Command::CancelTask(CancelTask { scope, task: *task, reason, by: None });
            vec![Request::decide(cancel), read(names, *task)]
        }
        ClientRequest::Configure(name, config) => {
            let configure =
                ConfigureQueue { queue: names.queue(name), config: configuration(config), by: None };
            vec![Request::decide(Command::ConfigureQueue(configure))]
        }
    }
}

fn batch(
    names: &mut Names,
    tasks: &[wire::SubmitTask],
    answer: &Answer,
    is_undecided: bool,
) -> Vec<SubmitTask> {
    let confirmed = answer.body()["tasks"].as_array().cloned().unwrap_or_default();
    let tasks = tasks.iter().enumerate().map(|(n, task)| {
        // A batch does not say whether a task was made now or found; its tasks are new where these are made.
        let id = confirmed.get(n).and_then(|item| item["taskId"].as_str()).and_then(task_id);
        submit(names, task, id, is_undecided)
    });
    tasks.collect()
}

/// Only what the clients of this crate send is looked at: with more, something else was submitted, and refused.
fn submit(
    names: &mut Names,
    task: &wire::SubmitTask,
    confirmed: Option<TaskId>,
    is_undecided: bool,
) -> SubmitTask {
    let queue = names.queue(&task.queue);
    let payload = names.ledger.payload(task.payload.as_text().as_bytes());
    let dedup = text(&task.dedup_key).map(|key| {
        let content = names.ledger.dedup(&queue, &key, &payload);
        Dedup { key, content }
    });
    let options = TaskOptions { dedup, max_attempts: task.max_attempts, ..TaskOptions::default() };
    let id = match confirmed {
        Some(id) => id,
        None if is_undecided => names.ledger.claim_unconfirmed(&queue, &payload),
        None => names.ledger.id_of_no_task(),
    };
    SubmitTask {
        id,
        queue,
        payload,
        priority: task.priority.unwrap_or(0),
        delay_ms: task.delay_ms.unwrap_or(0),
        properties: Arc::default(),
        options: (options != TaskOptions::default()).then(|| Arc::new(options)),
        operation: None,
    }
}

fn read(names: &Names, task: TaskId) -> Request {
    Request::Read(Read::Task { scope: names.scope.clone(), task })
}

fn configuration(config: &wire::QueueConfig) -> QueueConfig {
    let permille = |value: f64| (value * 1_000.0).round() as u32;
    let default = Backoff::default();
    QueueConfig {
        max_attempts: config.max_attempts,
        lease_ms: config.lease_ms.or(config.heartbeat_timeout_ms),
        heartbeat_interval_ms: config.heartbeat_interval_ms,
        cancel_grace_ms: config.cancel_grace_period_ms,
        backoff: config.backoff.map(|backoff| Backoff {
            initial_ms: backoff.initial_ms.unwrap_or(default.initial_ms),
            factor_permille: backoff.factor.map_or(default.factor_permille, permille),
            max_ms: backoff.max_ms.unwrap_or(default.max_ms),
            jitter_permille: backoff.jitter.map_or(default.jitter_permille, permille),
        }),
        retry_on: None,
        max_queue_size: config.max_queue_size,
        retention_ms: config.retention_ms,
        push: config.push.as_ref().map(|target| Arc::new(push_target(target))),
    }
}

fn push_target(target: &wire::PushTarget) -> PushTarget {
    let headers = target.headers.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into()));
    PushTarget {
        url: target.url.as_str().into(),
        concurrency: target.concurrency.unwrap_or(wire::DEFAULT_PUSH_CONCURRENCY),
        headers: headers.collect(),
        secret: text(&target.secret),
    }
}
