//! A task's state, with its colour and what is worth knowing about it.

use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use wire::{Task, TaskState};

use super::text::clean;
use super::time::relative;
use super::{Cell, text};

pub(crate) fn style(state: TaskState) -> Style {
    match state {
        TaskState::Waiting => Style::new(),
        TaskState::Leased => AnsiColor::Cyan.on_default(),
        TaskState::Completed => AnsiColor::Green.on_default(),
        TaskState::Failed | TaskState::Dead => AnsiColor::Red.on_default(),
    }
}

pub(crate) fn cell(state: TaskState) -> Cell {
    Cell::styled(state.name(), style(state))
}

/// Who works on the task, when it is tried again, or why it ended.
pub(crate) fn detail(task: &Task, now: Timestamp) -> String {
    match task.state {
        TaskState::Waiting => match task.not_before.filter(|time| *time > now) {
            Some(time) => format!("ready {}", relative(time, now)),
            None => String::new(),
        },
        TaskState::Leased => {
            let worker = task.lease.as_ref().map_or("?", |lease| lease.worker_id.as_str());
            let verb = if task.cancel_requested.is_some() { "asked to stop:" } else { "with" };
            format!("{verb} {}", clean(worker))
        }
        TaskState::Completed => String::new(),
        TaskState::Failed | TaskState::Dead => why(task),
    }
}

/// Why a task is FAILED or DEAD, in one line.
pub(crate) fn why(task: &Task) -> String {
    let reason = task.reason.as_deref().unwrap_or("no reason given");
    let words = match (&task.reason_detail, &task.error) {
        (Some(detail), _) => Some(detail.as_str()),
        (None, Some(error)) => Some(error.message.as_str()),
        (None, None) => None,
    };
    // A message is often what a command wrote last, with its line breaks.
    let words = words.map(|words| words.split_whitespace().collect::<Vec<_>>().join(" "));
    text::clean(&words.map_or_else(|| reason.to_owned(), |words| format!("{reason}: {words}")))
}
