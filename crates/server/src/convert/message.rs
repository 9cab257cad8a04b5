//! The message that put a task on its stream: the record that made the task wait. A task that waits again has another message,
//! and no two have the same.

use authority::event::NextStep;
use authority::{Event, Position};
use coordinator::HistoryRecord;

/// The position of the last record before `before` that made the task wait.
pub(crate) fn last_wait(history: &[HistoryRecord], before: Position) -> Option<Position> {
    let made_wait = |record: &&HistoryRecord| record.position < before && makes_wait(&record.event);
    history.iter().rev().find(made_wait).map(|record| record.position)
}

/// The id of a message in the form that streams use.
pub(crate) fn message_id(position: u64) -> String {
    format!("{position}-0")
}

fn makes_wait(event: &Event) -> bool {
    match event {
        Event::TaskCreated(_) | Event::LeaseExpired(_) | Event::LeaseReleased(_) => true,
        Event::TaskFailed(failed) => matches!(failed.next, NextStep::RetryAt(_)),
        _ => false,
    }
}
