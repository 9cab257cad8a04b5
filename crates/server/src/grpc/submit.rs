//! SubmitTasks: many submits in one go, each accepted or refused on its own.

use std::collections::BTreeMap;

use authority::command::SubmitTask;
use authority::{Scope, TaskId, TaskState};
use axum::http::StatusCode;
use tonic::Status;
use wire::MAX_BATCH_TASKS;
use wire::grpc::{self, SubmitTasksRequest, SubmitTasksResponse, SubmittedTask};

use super::values::{nonzero, parse_timestamp, state};
use crate::app::App;
use crate::convert::submission::{command, submit_all};
use crate::convert::task_json::parse_json;
use crate::convert::{Code, Problem, grpc_status, task_context};
use crate::edge::auth::Caller;

pub(super) async fn submit(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    request: SubmitTasksRequest,
) -> Result<SubmitTasksResponse, Status> {
    if request.tasks.len() > MAX_BATCH_TASKS {
        let detail = format!("tasks: must be at most {MAX_BATCH_TASKS}, but are {}", request.tasks.len());
        return Err(Problem::new(Code::TooManyTasks, detail).into());
    }
    let bytes = request.tasks.iter().map(|task| task.payload.len() + task.resources_json.len()).sum();
    let (parser, scope, caller) = (app.clone(), scope.clone(), caller.clone());
    let parse_all = move || {
        let parsed = request.tasks.into_iter().map(|task| parse(&parser, &scope, &caller, task));
        parsed.collect::<Vec<_>>()
    };
    let parsed = app.compute.parse(bytes, parse_all).await?;
    let tasks = submit_all(app, parsed.into_iter()).await.map_err(Problem::from)?;
    // When nothing was accepted for lack of room, the call as a whole may be repeated later.
    let full = tasks
        .iter()
        .all(|task| task.as_ref().is_err_and(|why| why.code.status() == StatusCode::TOO_MANY_REQUESTS));
    if full && let Some(Err(problem)) = tasks.first() {
        return Err(problem.clone().into());
    }
    let item = |answer: Result<(TaskId, TaskState), Problem>| match answer {
        Ok((task, after)) => {
            SubmittedTask { task_id: task.to_string(), state: state(after).into(), problem: None }
        }
        Err(problem) => {
            SubmittedTask { problem: Some(grpc_status::item(problem)), ..SubmittedTask::default() }
        }
    };
    Ok(SubmitTasksResponse { tasks: tasks.into_iter().map(item).collect() })
}

fn parse(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    mut task: grpc::SubmitTask,
) -> Result<SubmitTask, Problem> {
    caller.check_queues([&*task.queue])?;
    let payload = parse_json("payload", &task.payload)?.unwrap_or_default();
    let context = task_context::from_proto(&mut task)?;
    let pairs: BTreeMap<_, _> = task.properties.into_iter().collect();
    let task = wire::in_task_context!(wire::SubmitTask {
        queue: task.queue,
        payload,
        priority: nonzero(task.priority),
        delay_ms: nonzero(task.delay_ms),
        dedup_key: nonzero(task.dedup_key),
        max_attempts: nonzero(task.max_attempts),
        backoff: task.backoff.map(|backoff| wire::Backoff {
            initial_ms: backoff.initial_ms,
            factor: backoff.factor,
            max_ms: backoff.max_ms,
            jitter: backoff.jitter,
        }),
        properties: Some(pairs).filter(|pairs| !pairs.is_empty()),
        deadline: task.deadline.map(|deadline| parse_timestamp("deadline", deadline)).transpose()?,
        timeout_ms: nonzero(task.timeout_ms),
        lease_ms: nonzero(task.lease_ms),
        ..context
    });
    command(app, scope, task)
}

#[cfg(test)]
mod tests {
    use ledger::memory::MemoryStorage;

    use super::*;
    use crate::edge::compute::Compute;

    /// Megabytes of JSON took the thread of a connection as long as they took to parse, and memory that nobody counted.
    #[tokio::test]
    async fn a6_large_payloads_are_not_parsed_where_connections_are_served() {
        let storage = MemoryStorage::default().open();
        let running = coordinator::start(storage, coordinator::Options::default()).unwrap();
        let scope = Scope { tenant: "t".into(), workspace: "w".into() };
        for close in [Compute::close, Compute::close_memory] {
            let app = App::new(running.handle.clone(), [7; 32]);
            close(&app.compute);
            for (count, is_handed_over) in [(1, false), (200_000, true)] {
                let payload = format!("[{}1]", "1,".repeat(count)).into();
                let task = grpc::SubmitTask { queue: "q".to_owned(), payload, ..grpc::SubmitTask::default() };
                let request = SubmitTasksRequest { tasks: vec![task] };
                let answer = submit(&app, &scope, &Caller::default(), request).await;
                assert_eq!(answer.is_err(), is_handed_over, "{answer:?}");
            }
        }
        running.stop().await.unwrap();
    }
}
