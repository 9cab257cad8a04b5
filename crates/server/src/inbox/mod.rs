//! The adapter of tasks that users enqueue in SQL, in transactions of their own.
//!
//! A row becomes a task whose id is the row's, exactly once: the batch that creates the task removes the row. A row that
//! is not a valid task becomes a dead letter with the reason. A row that is not accepted now stays and is tried again.

use std::sync::Arc;
use std::time::Duration;

use authority::command::{KillTask, SubmitAnswer, SubmitTask};
use authority::limits::MAX_MESSAGE_BYTES;
use authority::{Answer, Command, QueueKey, Scope};
use coordinator::{BatchItem, Handle, Inbox, InboxRow, Unavailable};
use tokio::time::sleep;

use crate::convert::Problem;
use crate::convert::names::beginning;
use crate::convert::submission;

/// The pause after a failure of the database or the coordinator.
const PAUSE: Duration = Duration::from_secs(1);

/// Submits what is enqueued, while this process owns the ledger. Ends when the coordinator does.
pub async fn run(mut inbox: Inbox, handle: Handle) {
    loop {
        handle.owned().await;
        if !handle.is_serving() {
            return;
        }
        tokio::select! {
            () = serve(&mut inbox, &handle) => return,
            () = handle.disowned() => {}
        }
    }
}

async fn serve(inbox: &mut Inbox, handle: &Handle) {
    while handle.is_serving() {
        match submit_all(inbox, handle).await {
            Ok(0) => inbox.wait().await,
            Ok(_) => {}
            Err(why) => {
                tracing::warn!(why, "enqueued tasks cannot be submitted now");
                sleep(PAUSE).await;
            }
        }
    }
}

/// What became of a row.
enum Became {
    /// The batch that created its task has removed it.
    Task,
    /// There is a task for it already.
    Existing,
    /// It can never be the task that it asks for.
    Invalid(String),
    Refused(String),
}

/// Submits the oldest rows, and returns how many there were.
async fn submit_all(inbox: &mut Inbox, handle: &Handle) -> Result<usize, String> {
    let rows = inbox.rows(handle.durable()).await.map_err(|error| error.to_string())?;
    let unavailable = |why: Unavailable| Problem::from(why).detail;
    let commands = rows.iter().map(|row| command(row).unwrap_or_else(|why| dead(row, why)));
    let commands: Vec<Vec<BatchItem>> = commands.collect();
    let lengths: Vec<usize> = commands.iter().map(Vec::len).collect();
    let mut answers = Vec::new();
    if !rows.is_empty() {
        let decided = handle.decide(commands.into_iter().flatten().collect()).await;
        answers = decided.map_err(unavailable)?.into_iter().collect();
    }
    let mut answers = answers.into_iter();
    let mut existing = Vec::new();
    for (row, length) in rows.iter().zip(lengths) {
        let answer = answers.next();
        answers.by_ref().take(length - 1).for_each(drop);
        match became(answer)? {
            Became::Task => {}
            Became::Existing => existing.push(row.id),
            Became::Invalid(why) => {
                handle.decide(dead(row, why).into_iter().collect()).await.map_err(unavailable)?;
            }
            Became::Refused(why) => inbox.refuse(row.id, &why).await.map_err(|error| error.to_string())?,
        }
    }
    if !existing.is_empty() {
        inbox.remove(&existing).await.map_err(|error| error.to_string())?;
    }
    Ok(rows.len())
}

fn became(answer: Option<Answer>) -> Result<Became, String> {
    match answer {
        Some(Answer::Submitted(SubmitAnswer::Created(_))) => Ok(Became::Task),
        Some(Answer::Submitted(SubmitAnswer::Existing(_))) => Ok(Became::Existing),
        Some(Answer::Submitted(SubmitAnswer::DedupConflict(task))) => {
            Ok(Became::Invalid(submission::conflict(task).detail))
        }
        Some(Answer::Submitted(SubmitAnswer::Refused(why))) => Ok(Became::Refused(Problem::from(why).detail)),
        _ => Err("the coordinator gave no answer for a row".to_owned()),
    }
}

/// The submit that a row asks for.
fn command(row: &InboxRow) -> Result<Vec<BatchItem>, String> {
    let mut task = options(&row.options)?;
    task.queue = row.queue.clone();
    task.payload = wire::Json::from_text(&*row.payload).map_err(|error| format!("payload: {error}"))?;
    let command = submission::command_with_id(row.id, &scope(row), task).map_err(|problem| problem.detail)?;
    Ok(vec![submit(command)])
}

/// The options are the fields of a submit, without those that the function has as arguments.
fn options(text: &str) -> Result<wire::SubmitTask, String> {
    let invalid = |error: serde_json::Error| format!("options: {error}");
    let mut fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(text).map_err(invalid)?;
    for own in ["queue", "payload"] {
        if fields.insert(own.to_owned(), "".into()).is_some() {
            return Err(format!("options: {own} is an argument, not an option"));
        }
    }
    let text = serde_json::Value::Object(fields).to_string();
    serde_json::from_str(&text).map_err(invalid)
}

/// Creates the task of an invalid row, and ends it before anybody can lease it.
fn dead(row: &InboxRow, why: String) -> Vec<BatchItem> {
    let command = SubmitTask {
        id: row.id,
        queue: Arc::new(QueueKey { scope: scope(row), name: row.queue.as_str().into() }),
        payload: row.payload.as_bytes().into(),
        priority: 0,
        delay_ms: 0,
        properties: Arc::default(),
        options: None,
        operation: None,
    };
    let detail = Some(Arc::from(beginning(&why, MAX_MESSAGE_BYTES)));
    let kill = KillTask { scope: scope(row), task: row.id, detail, by: None };
    vec![submit(command), BatchItem::Command(Command::KillTask(kill))]
}

fn submit(command: SubmitTask) -> BatchItem {
    BatchItem::Command(Command::SubmitTask(Box::new(command)))
}

fn scope(row: &InboxRow) -> Scope {
    Scope { tenant: row.tenant.as_str().into(), workspace: row.workspace.as_str().into() }
}

#[cfg(test)]
mod tests {
    use authority::TaskId;

    use super::*;

    #[test]
    fn options_are_the_fields_of_a_submit() {
        let task = options(r#"{"priority": 3, "dedupKey": "k", "runId": "r"}"#).unwrap();
        assert_eq!((task.priority, task.dedup_key.as_deref()), (Some(3), Some("k")));
        for bad in [r#"{"prioritty": 3}"#, r#"{"queue": "x"}"#, r#"{"delayMs": -1}"#, "[]", "{"] {
            assert!(options(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_invalid_row_is_a_task_that_ends_at_once() {
        let row = InboxRow {
            id: TaskId(7),
            tenant: "t".into(),
            workspace: "w".into(),
            queue: "q".into(),
            payload: "{}".into(),
            options: r#"{"maxAttempts": 0}"#.into(),
        };
        let why = command(&row).unwrap_err();
        assert!(why.starts_with("maxAttempts"), "{why}");
        assert_eq!(dead(&row, why).len(), 2);
    }
}
