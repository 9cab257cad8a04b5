//! A table with aligned columns.

use std::fmt;

use anstyle::Style;

/// A text and how it looks. It is made safe to show here, so that no command can forget it.
pub(crate) struct Cell {
    text: String,
    style: Style,
    is_number: bool,
}

pub(crate) struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Cell {
    pub(crate) fn text(text: impl AsRef<str>) -> Cell {
        Cell::styled(text, Style::new())
    }

    /// Aligned to the right.
    pub(crate) fn number(number: impl ToString) -> Cell {
        Cell { is_number: true, ..Cell::text(number.to_string()) }
    }

    pub(crate) fn styled(text: impl AsRef<str>, style: Style) -> Cell {
        Cell { text: super::text::clean(text.as_ref()), style, is_number: false }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

impl Table {
    /// The headings stand as the cells below them do.
    pub(crate) fn new(headings: &[&str]) -> Table {
        let bold = Style::new().bold();
        Table { rows: vec![headings.iter().map(|heading| Cell::styled(heading, bold)).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// A table without headings.
    pub(crate) fn bare() -> Table {
        Table { rows: Vec::new() }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let is_right =
            |column: usize| self.rows.last().and_then(|row| row.get(column)).is_some_and(|c| c.is_number);
        for row in &self.rows {
            // Blanks at the end of a line would wrap on a narrow terminal for nothing.
            let used = row.iter().rposition(|cell| !cell.text.is_empty()).map_or(0, |last| last + 1);
            for (column, cell) in row.iter().take(used).enumerate() {
                let gap = if column == 0 { "" } else { "  " };
                let pad = " ".repeat(widths[column] - cell.width());
                let (before, after) =
                    if is_right(column) { (pad, String::new()) } else { (String::new(), pad) };
                let after = if column + 1 == used { "" } else { after.as_str() };
                write!(f, "{gap}{before}{}{}{:#}{after}", cell.style, cell.text, cell.style)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_blanks_at_the_end() {
        let mut table = Table::new(&["NAME", "COUNT", "NOTE"]);
        table.row([Cell::text("a"), Cell::number(7), Cell::text("")]);
        table.row([Cell::text("longer"), Cell::number(1_234_567), Cell::text("x\ty")]);
        let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(plain, "NAME      COUNT  NOTE\na             7\nlonger  1234567  x\\ty\n");
    }
}
