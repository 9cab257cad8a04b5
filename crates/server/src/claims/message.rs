//! The id of the message that put a job on its stream.

use authority::command::Grant;

use crate::app::App;
use crate::convert::{Problem, last_wait, message_id};

/// None when a claim was repeated and history does not reach back far enough.
pub(super) async fn id(app: &App, grant: &Grant) -> Result<Option<String>, Problem> {
    let since = match grant.since {
        Some(since) => Some(since),
        // A lease that is told again no longer knows, but the ledger does.
        None => {
            let history = app.handle.history(grant.queue.scope.clone(), grant.task).await?;
            history.and_then(|history| last_wait(&history.records, grant.fencing_token))
        }
    };
    Ok(since.map(|since| message_id(since.0)))
}
