//! The message that put a job on its stream. Embedded, the ledger is the stream: a message is the record that made the
//! task wait, so a job that waits again has another message, and no two have the same.

use authority::Event;
use authority::command::Grant;
use authority::event::NextStep;
use coordinator::HistoryRecord;

use crate::app::App;
use crate::convert::Problem;

/// The id in the form that streams use. None when a claim was repeated and history does not reach back far enough.
pub(super) async fn id(app: &App, grant: &Grant) -> Result<Option<String>, Problem> {
    let since = match grant.since {
        Some(since) => Some(since),
        // A lease that is told again no longer knows, but the ledger does.
        None => {
            let history = app.handle.history(grant.queue.scope.clone(), grant.task).await?;
            // The last record before the grant that made the task wait.
            let made_wait =
                |record: &&HistoryRecord| record.position < grant.fencing_token && makes_wait(&record.event);
            history.and_then(|history| {
                history.records.iter().rev().find(made_wait).map(|record| record.position)
            })
        }
    };
    Ok(since.map(|since| format!("{}-0", since.0)))
}

fn makes_wait(event: &Event) -> bool {
    match event {
        Event::TaskCreated(_) | Event::LeaseExpired(_) | Event::LeaseReleased(_) => true,
        Event::TaskFailed(failed) => matches!(failed.next, NextStep::RetryAt(_)),
        _ => false,
    }
}
