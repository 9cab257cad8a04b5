//! What was sent, as requests to the coordinator.

use std::sync::Arc;

use authority::command::{
    CancelTask, ConfigureQueue, ExtendLease, LeaseTasks, ReleaseLease, ReportCompletion, ReportFailure,
    SubmitTask,
};
use authority::event::ReleaseCause;
use authority::{
    Backoff, Category, Command, Dedup, Extras, LeaseRef, PushTarget, QueueConfig, QueueKey, TaskError,
    TaskId, Time,
};
use coordinator::{Read, Request};

use super::super::learnt::Story;
use super::said::Said;
use super::{Names, task_id, text};
use crate::api::{Answer, Call};

/// The requests of one call, in order: a cancel also reads the task that it shows.
pub fn requests(names: &mut Names, call: &Call, said: &Said) -> Vec<Request> {
    let is_undecided = call.answer.status().is_none_or(|status| status >= 500);
    match said {
        Said::Submit(task) => {
            let told = call.answer.body()["taskId"].as_str().filter(|_| call.answer.status() == Some(201));
            let task = submit(names, task, told.and_then(task_id), is_undecided);
            vec![Request::Decide(Command::SubmitTask(Box::new(task)))]
        }
        Said::Batch(tasks) => vec![Request::SubmitBatch(batch(names, tasks, &call.answer, is_undecided))],
        Said::Read(task) => vec![read(names, *task)],
        Said::List => {
            let scope = names.scope.clone();
            vec![Request::Read(Read::List { scope, queue: None, state: None, after: None, limit: 0 })]
        }
        Said::Cancel(task, cancel) => {
            let (scope, reason) = (names.scope.clone(), text(&cancel.reason).unwrap_or_default());
            let cancel = Command::CancelTask(CancelTask { scope, task: *task, reason });
            vec![Request::Decide(cancel), read(names, *task)]
        }
        Said::Configure(name, config) => {
            let configure = ConfigureQueue { queue: queue(names, name), config: configuration(config) };
            vec![Request::Decide(Command::ConfigureQueue(configure))]
        }
        Said::Poll(poll) => vec![Request::Poll { lease: lease_tasks(names, poll), until: Time::ZERO }],
        Said::Heartbeat(id, beat) => {
            let lease = names.lease(id, &beat.worker_id, beat.task_id.as_deref());
            vec![Request::Heartbeat { extend: ExtendLease { lease }, progress: None }]
        }
        Said::Complete(..) | Said::Fail(..) => report(names, said, is_undecided).into_iter().collect(),
        Said::Release(id, release) => {
            let lease = names.lease(id, &release.worker_id, release.task_id.as_deref());
            let release = ReleaseLease { lease, cause: ReleaseCause::Worker };
            vec![Request::Decide(Command::ReleaseLease(release))]
        }
    }
}

/// What a report says, and about which lease.
pub fn story(names: &Names, said: &Said) -> Option<(LeaseRef, Story)> {
    match said {
        Said::Complete(id, report) => {
            let result = report.result.as_ref().map_or("null", |result| result.as_text());
            let lease = names.lease(id, &report.worker_id, report.task_id.as_deref());
            Some((lease, Story::Completed(result.as_bytes().into())))
        }
        Said::Fail(id, report) => {
            let lease = names.lease(id, &report.worker_id, report.task_id.as_deref());
            Some((lease, Story::failed(&error(report))))
        }
        _ => None,
    }
}

fn report(names: &mut Names, said: &Said, is_undecided: bool) -> Option<Request> {
    let (lease, story) = story(names, said)?;
    if is_undecided && !names.contradicted.contains(&(lease.lease, story.clone())) {
        names.learnt.claim_discarded(lease.lease, &story);
    }
    let digest = names.learnt.story(lease.lease, story.clone());
    let command = match (said, story) {
        (Said::Fail(_, report), _) => {
            let (error, retryable) = (error(report), report.retryable);
            Command::ReportFailure(ReportFailure { lease, digest, error, retryable, draw: 0 })
        }
        (_, Story::Completed(result)) => {
            Command::ReportCompletion(ReportCompletion { lease, digest, result })
        }
        _ => return None,
    };
    Some(Request::Decide(command))
}

fn batch(
    names: &mut Names,
    tasks: &[wire::SubmitTask],
    answer: &Answer,
    is_undecided: bool,
) -> Vec<SubmitTask> {
    let told = answer.body()["tasks"].as_array().cloned().unwrap_or_default();
    let tasks = tasks.iter().enumerate().map(|(n, task)| {
        // A batch does not say whether a task was made now or found; its tasks are new where these are made.
        let id = told.get(n).and_then(|item| item["taskId"].as_str()).and_then(task_id);
        submit(names, task, id, is_undecided)
    });
    tasks.collect()
}

/// Only what the clients of this crate send is looked at: with more, something else was submitted, and refused.
fn submit(
    names: &mut Names,
    task: &wire::SubmitTask,
    told: Option<TaskId>,
    is_undecided: bool,
) -> SubmitTask {
    let queue = queue(names, &task.queue);
    let payload = names.learnt.payload(task.payload.as_text().as_bytes());
    let dedup = text(&task.dedup_key).map(|key| {
        let content = names.learnt.dedup(&queue, &key, &payload);
        Dedup { key, content }
    });
    let extras = Extras { dedup, max_attempts: task.max_attempts, ..Extras::default() };
    let id = match told {
        Some(id) => id,
        None if is_undecided => names.learnt.claim_untold(&queue, &payload),
        None => names.learnt.id_of_no_task(),
    };
    SubmitTask {
        id,
        queue,
        payload,
        priority: task.priority.unwrap_or(0),
        delay_ms: task.delay_ms.unwrap_or(0),
        properties: Arc::default(),
        extras: (extras != Extras::default()).then(|| Arc::new(extras)),
        operation: None,
    }
}

fn lease_tasks(names: &mut Names, poll: &wire::LeaseTasks) -> LeaseTasks {
    let request = poll.request_id.clone().map(|id| {
        let digest = names.requests.get(&(poll.worker_id.clone(), id)).copied();
        digest.unwrap_or_else(|| names.learnt.digest_of_no_record())
    });
    LeaseTasks {
        scope: names.scope.clone(),
        worker: poll.worker_id.as_str().into(),
        session: None,
        queues: poll.queues.iter().map(|queue| queue.as_str().into()).collect(),
        properties: Arc::default(),
        max_tasks: poll.max_tasks.unwrap_or(1) as usize,
        request,
    }
}

fn read(names: &Names, task: TaskId) -> Request {
    Request::Read(Read::Task { scope: names.scope.clone(), task })
}

fn queue(names: &Names, name: &str) -> Arc<QueueKey> {
    Arc::new(QueueKey { scope: names.scope.clone(), name: name.into() })
}

fn error(report: &wire::ReportFailure) -> TaskError {
    let category = report.category.map_or(Category::UserCode, |category| match category {
        wire::ErrorCategory::UserCode => Category::UserCode,
        wire::ErrorCategory::DataQuality => Category::DataQuality,
        wire::ErrorCategory::Infrastructure => Category::Infrastructure,
        wire::ErrorCategory::Configuration => Category::Configuration,
        wire::ErrorCategory::Timeout => Category::Timeout,
        wire::ErrorCategory::Cancelled => Category::Cancelled,
    });
    TaskError { category, code: text(&report.code), message: report.reason.as_str().into() }
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
