//! Builds a page of the list of operations (R42). Many operations may wait for one task, and each carries the whole
//! result, so a page ends when it has enough bytes, even in the middle of a task.

use std::sync::Arc;

use authority::{Position, TaskView};
use prost::Message;

use super::execution::operation;
use super::messages::longrunning::Operation;
use crate::convert::page_token::{List, PageTokens};
use execution::{EXECUTION_QUEUE, ExecutionPayload};

/// Bytes of operations on a page. Clients accept messages of four megabytes.
const PAGE_BYTES: usize = 2 * 1_024 * 1_024;
/// Separates the offset from the number of operations of the first task that earlier pages listed.
const SKIP_SEPARATOR: char = '.';

#[derive(Default)]
pub(crate) struct Start {
    pub after: Option<(Arc<str>, Position)>,
    /// How many operations of the first task earlier pages listed.
    skipped: usize,
}

impl Start {
    /// None for a token of another list.
    pub(crate) fn parse(token: &str, tokens: &PageTokens, list: List<'_>) -> Option<Start> {
        let (offset, skipped) = match token.split_once(SKIP_SEPARATOR) {
            Some((offset, skipped)) => (offset, skipped.parse().ok()?),
            None => (token, 0),
        };
        Some(Start { after: Some(tokens.verify(list, offset)?), skipped })
    }

    /// How many operations of this task earlier pages listed.
    fn skip_in(&self, task: &authority::Task) -> usize {
        let begins = self.after.as_ref().is_some_and(|(_, position)| *position == after(task.created));
        if begins { self.skipped } else { 0 }
    }
}

/// The operations of these tasks from the start on, and the start of the next page if not all of them fit.
pub(super) fn operations(tasks: &[TaskView], start: &Start) -> (Vec<Operation>, Option<Start>) {
    let mut page = Vec::new();
    let mut bytes = 0;
    for TaskView { task, .. } in tasks {
        let Some(payload) = ExecutionPayload::decode(&task.payload).ok() else { continue };
        let view = match operation::outcome(task) {
            Some(outcome) => {
                operation::done("", payload.action().ok().as_ref(), &operation::response(outcome, false))
            }
            None => operation::running("", &payload, task),
        };
        for (skipped, name) in task.operations.iter().enumerate().skip(start.skip_in(task)) {
            bytes += view.encoded_len() + name.len();
            if bytes > PAGE_BYTES && !page.is_empty() {
                let after = Some((Arc::from(EXECUTION_QUEUE), after(task.created)));
                return (page, Some(Start { after, skipped }));
            }
            page.push(Operation { name: name.to_string(), ..view.clone() });
        }
    }
    (page, None)
}

pub(crate) fn token(start: &Start, tokens: &PageTokens, list: List<'_>) -> String {
    match &start.after {
        None => String::new(),
        Some(after) if start.skipped == 0 => tokens.make(list, after),
        Some(after) => format!("{}{SKIP_SEPARATOR}{}", tokens.make(list, after), start.skipped),
    }
}

/// The offset of a page that begins with this task: newer tasks come before older ones.
fn after(created: Position) -> Position {
    Position(created.0.saturating_add(1))
}
