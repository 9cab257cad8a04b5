//! GET /v1/tasks: a page of tasks.

use coordinator::TaskDetail;
use wire::{DEFAULT_PAGE_TASKS, ListTasks, MAX_PAGE_TASKS, TaskList};

use crate::convert::names::{optional_name, within};
use crate::convert::page_token::List;
use crate::convert::{Code, Problem, Scoped, task_json};
use crate::edge::{InQuery, Out, Reads};

/// How much payload and result a page carries before it ends early. One task more than that may be on it.
const MAX_PAGE_BYTES: usize = 8 * 1_024 * 1_024;

/// List tasks, a queue at a time by name, the newest first.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    tag = "Tasks",
    params(ListTasks),
    responses((status = 200, body = TaskList), (status = 400, body = wire::Problem), (status = 503, body = wire::Problem))
)]
pub(crate) async fn list(
    Scoped { app, scope }: Scoped,
    Reads(reads): Reads,
    InQuery(query): InQuery<ListTasks>,
) -> Result<Out<TaskList>, Problem> {
    let queue = optional_name("queue", query.queue.as_deref())?;
    let state = query.state.map(task_json::state_from_wire);
    let limit = within("limit", query.limit.unwrap_or(DEFAULT_PAGE_TASKS), 1..=MAX_PAGE_TASKS)?;
    let list = List { scope: &scope, queue: queue.as_deref(), state };
    let after = match &query.page_token {
        None => None,
        Some(token) => Some(app.page_tokens.verify(list, token).ok_or_else(|| {
            let detail = "pageToken: was not made for this list; begin again without it";
            Problem { field: Some("pageToken".to_owned()), ..Problem::new(Code::InvalidPageToken, detail) }
        })?),
    };
    let mut page = reads.list(scope.clone(), queue.clone(), state, after, limit).await?;
    page.cut_to(MAX_PAGE_BYTES);
    let to_wire = |view| task_json::to_wire(TaskDetail { view, progress: None });
    let tasks = page.tasks.into_iter().map(to_wire).collect();
    let next_page_token = page.next.as_ref().map(|next| app.page_tokens.make(list, next));
    Ok(Out::ok(TaskList { tasks, next_page_token }))
}
