//! POST /v1/tasks/batch: many submits in one go. Each is accepted or refused on its own, and the answers stand in
//! the order of the request.

use std::fmt;

use authority::Scope;
use authority::command::SubmitTask;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use wire::{BatchItem, MAX_BATCH_TASKS, SubmittedBatch};

use crate::app::App;
use crate::convert::submission::{command, submit_all};
use crate::convert::{Code, Problem, Scoped, task_json};
use crate::edge::auth::Caller;
use crate::edge::json::{MAX_BATCH_BODY_BYTES, parse_checked};
use crate::edge::{Fails, In, Out};

/// The batch with its tasks still unread, so that one bad task does not spoil the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    tasks: Tasks,
}

/// The first tasks of a batch, and how many it has. What is beyond the limit is counted and not kept.
struct Tasks {
    first: Vec<wire::Json>,
    count: usize,
}

impl<'de> Deserialize<'de> for Tasks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Tasks, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Tasks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tasks")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tasks, A::Error> {
                let mut first = Vec::new();
                while first.len() < MAX_BATCH_TASKS {
                    let Some(task) = list.next_element()? else { break };
                    first.push(task);
                }
                let mut count = first.len();
                while list.next_element::<IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(Tasks { first, count })
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// Submit many tasks.
#[utoipa::path(
    post,
    path = "/v1/tasks/batch",
    tag = "Tasks",
    request_body = wire::SubmitBatch,
    responses(
        (status = 200, description = "One answer for each task, in order", body = SubmittedBatch),
        Fails<400>, Fails<413>, Fails<503>
    )
)]
pub(crate) async fn submit_batch(
    Scoped { app, scope }: Scoped,
    caller: Caller,
    In(batch): In<Batch, MAX_BATCH_BODY_BYTES>,
) -> Result<Out<SubmittedBatch>, Problem> {
    let Tasks { first: tasks, count } = batch.tasks;
    if count > MAX_BATCH_TASKS {
        let detail = format!("tasks: must have at most {MAX_BATCH_TASKS} entries, but has {count}");
        let problem = Problem::new(Code::TooManyTasks, detail);
        return Err(Problem { field: Some("tasks".to_owned()), ..problem });
    }
    let bytes = tasks.iter().map(|task| task.as_text().len()).sum();
    let parser = app.clone();
    let parse = move || {
        let parsed = tasks.iter().enumerate().map(|(n, task)| parse_task(&parser, &scope, &caller, n, task));
        parsed.collect::<Vec<_>>()
    };
    let parsed = app.compute.parse(bytes, parse).await?;
    let tasks = submit_all(&app, parsed.into_iter()).await?.into_iter().map(|answer| match answer {
        Ok((task, state)) => {
            let (task_id, state) = (Some(task.to_string()), Some(task_json::state_to_wire(state)));
            BatchItem { task_id, state, error: None }
        }
        Err(problem) => BatchItem { task_id: None, state: None, error: Some(problem.into_wire()) },
    });
    Ok(Out::ok(SubmittedBatch { tasks: tasks.collect() }))
}

fn parse_task(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    n: usize,
    task: &wire::Json,
) -> Result<SubmitTask, Problem> {
    let place = format!("tasks[{n}]");
    let task: wire::SubmitTask = parse_checked(task.as_text().as_bytes(), &place)?;
    caller.check_queues([&*task.queue])?;
    command(app, scope, task).map_err(|problem| match problem.field {
        None => problem,
        Some(field) => Problem {
            field: Some(format!("{place}.{field}")),
            detail: format!("{place}.{}", problem.detail),
            ..problem
        },
    })
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;
    use crate::edge::json::parse;

    /// Eight million numbers in the place of tasks took half a gigabyte.
    #[test]
    fn a6_tasks_beyond_the_limit_are_counted_and_take_no_memory() {
        let count = 1 << 20;
        let body = format!("{{\"tasks\":[{}1]}}", "1,".repeat(count - 1));
        let mut batch = None;
        let measured = measure(|| batch = parse::<Batch>(body.as_bytes()).ok());
        let tasks = batch.unwrap().tasks;
        assert_eq!((tasks.first.len(), tasks.count), (MAX_BATCH_TASKS, count));
        assert!(measured.bytes_max < body.len() as u64, "{} bytes", measured.bytes_max);
    }
}
