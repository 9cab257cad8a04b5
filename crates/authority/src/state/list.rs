//! Pages of tasks: a queue at a time by name, the newest task first.

use std::sync::Arc;

use super::State;
use crate::limits::{MAX_PAGE, MAX_PAGE_SCAN};
use crate::{Phase, Position, QueueKey, Scope, TaskState, TaskView};

/// One page, and where the next one begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    pub tasks: Vec<TaskView>,
    /// The queue and the creation of the last task that was scanned.
    pub next: Option<(Arc<str>, Position)>,
}

impl ListPage {
    /// Cuts a page whose tasks are large; the next one begins where it ends.
    pub fn cut_to(&mut self, max_bytes: usize) {
        let mut bytes = 0;
        let last = self.tasks.iter().position(|view| {
            let result = match &view.task.phase {
                Phase::Completed { result, .. } => result.len(),
                _ => 0,
            };
            bytes += view.task.payload.len() + result;
            bytes >= max_bytes
        });
        if let Some(last) = last.filter(|last| last + 1 < self.tasks.len()) {
            self.tasks.truncate(last + 1);
            self.next = self.tasks.last().map(|view| (view.queue.name.clone(), view.task.created));
        }
    }
}

impl State {
    /// Tasks of a scope, or of one queue in it, after the end of the last page. A page may be short
    /// although more follow.
    pub fn list(
        &self,
        scope: &Scope,
        queue: Option<&Arc<str>>,
        state: Option<TaskState>,
        after: Option<(Arc<str>, Position)>,
        limit: usize,
    ) -> ListPage {
        let limit = limit.clamp(1, MAX_PAGE);
        let start = after.as_ref().map(|(name, _)| name).or(queue);
        let from = QueueKey { scope: scope.clone(), name: start.cloned().unwrap_or_else(|| Arc::from("")) };
        let mut page = ListPage { tasks: Vec::new(), next: None };
        let mut scanned = 0;
        for (key, id) in self.queue_ids.range::<QueueKey, _>(&from..) {
            if key.scope != *scope || queue.is_some_and(|queue| *queue != key.name) {
                break;
            }
            let end = match &after {
                Some((name, position)) if *name == key.name => *position,
                _ => Position(u64::MAX),
            };
            let older = self.queues[id].created.range(..(end, super::Slot(0)));
            for (position, slot) in older.rev() {
                scanned += 1;
                if state.is_none_or(|state| state == self.tasks.at(*slot).state()) {
                    page.tasks.push(self.view_at(*slot));
                }
                if page.tasks.len() == limit || scanned == MAX_PAGE_SCAN {
                    page.next = Some((key.name.clone(), *position));
                    return page;
                }
            }
        }
        page
    }
}
