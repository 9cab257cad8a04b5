//! The changes of a batch as columns of rows, ready to be sent.

use authority::TaskId;

use super::cell::Cell;
use super::columns::{ATTEMPTS, Column, Context, JOBS};
use crate::Changes;
use crate::changes::{ChangedTask, EndedAttempt};

/// One vector for each column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table(pub(super) Vec<Vec<Cell>>);

/// The rows that a batch writes, and those that it deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableRows {
    pub(super) jobs: Table,
    pub(super) attempts: Table,
    /// Tasks that were purged, and are to be deleted with their attempts.
    pub(super) purged: Vec<Cell>,
    /// Tasks that were created, and wait no longer in the inbox.
    pub(super) created: Vec<Cell>,
    /// Whether the tables are written with the batch.
    pub(super) is_whole: bool,
}

impl TableRows {
    /// The rows of a net change. What never changes is sent only for tasks that the change creates.
    pub(crate) fn of(changes: &Changes, context: Context) -> TableRows {
        let is_sent = |id: &TaskId| changes.created.contains(id);
        let tasks = || changes.tasks.iter();
        let jobs = JOBS.iter().map(|column| {
            let cell = |(id, task): (&TaskId, &ChangedTask)| {
                if column.is_fixed && !is_sent(id) { Cell::Null } else { (column.value)(task, &context) }
            };
            tasks().map(cell).collect()
        });
        // A task that was purged and then created again by a repeated call stays.
        let purged = changes.purged.iter().filter(|id| !changes.tasks.contains_key(id));
        TableRows {
            jobs: Table(jobs.collect()),
            attempts: Table::attempts(changes.attempts.values(), context),
            purged: purged.map(|id| Cell::from(*id)).collect(),
            created: changes.created.iter().map(|id| Cell::from(*id)).collect(),
            is_whole: true,
        }
    }

    /// Only which tasks were created, for a batch whose tables are not written with it.
    pub(crate) fn created_only(changes: &Changes, context: Context) -> TableRows {
        let created = changes.created.iter().map(|id| Cell::from(*id)).collect();
        TableRows { created, is_whole: false, ..TableRows::of(&Changes::default(), context) }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The same of rows that write the tables.
    pub(crate) fn without_tables(&self) -> Option<TableRows> {
        let nothing = || Table(Vec::new());
        self.is_whole.then(|| TableRows {
            jobs: nothing(),
            attempts: nothing(),
            purged: Vec::new(),
            created: self.created.clone(),
            is_whole: false,
        })
    }

    /// How much memory the rows take.
    pub(crate) fn bytes(&self) -> usize {
        let tables = self.jobs.0.iter().chain(&self.attempts.0);
        tables.chain([&self.purged, &self.created]).flatten().map(Cell::bytes).sum()
    }

    /// Leaves out all content in JSON, which the server refuses to take.
    pub(crate) fn without_json(&self) -> TableRows {
        let mut rows = self.clone();
        for cells in &mut rows.jobs.0 {
            for cell in cells.iter_mut().filter(|cell| matches!(cell, Cell::Json(_))) {
                *cell = Cell::Json("{}".into());
            }
        }
        rows
    }
}

impl Table {
    pub(super) fn attempts<'a>(
        attempts: impl Iterator<Item = &'a EndedAttempt> + Clone,
        context: Context,
    ) -> Table {
        Table::of(ATTEMPTS, attempts, context)
    }

    fn of<'a, T: 'a>(
        columns: &[Column<T>],
        items: impl Iterator<Item = &'a T> + Clone,
        context: Context,
    ) -> Table {
        let cells = |column: &Column<T>| items.clone().map(|item| (column.value)(item, &context)).collect();
        Table(columns.iter().map(cells).collect())
    }
}
