//! One thing, a field to a line.

use std::fmt;

use anstyle::Style;

use super::Cell;
use super::table::Table;

/// Fields without a value are left out: what is not shown is not set.
pub(crate) struct Record {
    table: Table,
}

impl Record {
    pub(crate) fn new(kind: &str, name: &str) -> Record {
        let mut record = Record { table: Table::bare() };
        record.cell(kind, Cell::styled(name, Style::new().bold()));
        record
    }

    pub(crate) fn field(&mut self, name: &str, value: impl AsRef<str>) {
        self.cell(name, Cell::text(value));
    }

    pub(crate) fn optional(&mut self, name: &str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    pub(crate) fn cell(&mut self, name: &str, value: Cell) {
        self.table.row([Cell::styled(name, Style::new().dimmed()), value]);
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_stands_on_a_line_of_its_own() {
        let mut record = Record::new("task", "t1");
        record.field("state", "DEAD");
        record.optional("reason", None::<&str>);
        let plain = anstream::adapter::strip_str(&record.to_string()).to_string();
        assert_eq!(plain, "task   t1\nstate  DEAD\n");
    }
}
