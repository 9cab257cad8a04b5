//! A page of the list of operations (R42). Many operations may wait for one task, and each is told with its whole result,
//! so that a page ends where it has enough bytes, also within a task.

use std::sync::Arc;

use authority::{Position, TaskView};
use prost::Message;

use super::execution::operation;
use super::execution::payload::{Payload, QUEUE};
use super::messages::longrunning::Operation;
use crate::convert::page_token::{List, PageTokens};

/// Bytes of operations on a page. Four megabytes are what clients take for a message.
const PAGE_BYTES: usize = 2 * 1_024 * 1_024;
/// Before the number of operations that were told of the first task.
const TOLD: char = '.';

/// Where a page begins.
#[derive(Default)]
pub struct Start {
    pub after: Option<(Arc<str>, Position)>,
    /// How many operations of the first task came before.
    told: usize,
}

impl Start {
    /// What a token says, if it was made for this list.
    pub fn read(token: &str, tokens: &PageTokens, list: List<'_>) -> Option<Start> {
        let (offset, told) = match token.split_once(TOLD) {
            Some((offset, told)) => (offset, told.parse().ok()?),
            None => (token, 0),
        };
        Some(Start { after: Some(tokens.verify(list, offset)?), told })
    }

    /// How many operations of this task came before.
    fn told_of(&self, task: &authority::Task) -> usize {
        let begins = self.after.as_ref().is_some_and(|(_, position)| *position == after(task.created));
        if begins { self.told } else { 0 }
    }
}

/// The operations of these tasks from the start on, and where the next page begins if not all of them fit.
pub fn operations(tasks: &[TaskView], start: &Start) -> (Vec<Operation>, Option<Start>) {
    let mut page = Vec::new();
    let mut bytes = 0;
    for TaskView { task, .. } in tasks {
        let Some(payload) = Payload::of(task) else { continue };
        let shown = match operation::outcome(task) {
            Some(outcome) => {
                operation::done("", payload.digest().as_ref(), &operation::response(outcome, false))
            }
            None => operation::running("", &payload, task),
        };
        for (told, name) in task.operations.iter().enumerate().skip(start.told_of(task)) {
            bytes += shown.encoded_len() + name.len();
            if bytes > PAGE_BYTES && !page.is_empty() {
                let after = Some((Arc::from(QUEUE), after(task.created)));
                return (page, Some(Start { after, told }));
            }
            page.push(Operation { name: name.to_string(), ..shown.clone() });
        }
    }
    (page, None)
}

/// The token of the page that begins there.
pub fn token(start: &Start, tokens: &PageTokens, list: List<'_>) -> String {
    match &start.after {
        None => String::new(),
        Some(after) if start.told == 0 => tokens.make(list, after),
        Some(after) => format!("{}{TOLD}{}", tokens.make(list, after), start.told),
    }
}

/// The place from which on this one is the first: newer tasks come before older ones.
fn after(created: Position) -> Position {
    Position(created.0.saturating_add(1))
}
