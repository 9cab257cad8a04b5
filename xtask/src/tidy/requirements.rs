//! Checks the tables of requirements and of the faults of a cluster: every number has exactly one row, every test that a row
//! names exists in the file named before it, and a row without a test says why.

use std::ops::RangeInclusive;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;
use super::repository::Repository;

/// Families of requirement numbers: the prefix and the range of each family.
type Families = &'static [(&'static str, RangeInclusive<u32>)];

/// The numbers that each document must list.
const DOCUMENTS: &[(&str, Families)] = &[
    (
        "docs/requirements.md",
        &[("S4-", 1..=41), ("S0-", 1..=27), ("S1-", 1..=57), ("S2-", 1..=30), ("S3-", 1..=80)],
    ),
    ("docs/remote-execution.md", &[("I", 5..=17), ("A", 5..=8), ("N", 15..=16)]),
    // 19 is about buckets, which this version does not use.
    ("docs/clusters.md", &[("C", 1..=18), ("C", 20..=23)]),
];

/// How the last cell of a row without a test starts; the reason follows.
const NOT_COVERED: &str = "not covered: ";

/// What the first cell of a row has that is checked but has no number.
const NO_NUMBER: &str = "–";

/// A table row: the number in its first cell, its line, and the text and inline code of its last cell.
struct Row {
    number: String,
    line: usize,
    text: String,
    code: Vec<String>,
}

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    DOCUMENTS.iter().flat_map(|(document, families)| check_document(repository, document, families)).collect()
}

fn check_document(repository: &Repository, path: &str, families: Families) -> Vec<Finding> {
    let Some(document) = repository.file(path) else {
        return vec![Finding::new(path, 0, "is missing")];
    };
    let rows = parse_rows(&document.text);
    let mut findings = Vec::new();
    for (family, range) in families {
        for number in range.clone().map(|number| format!("{family}{number}")) {
            let count = rows.iter().filter(|row| row.number == number).count();
            if count != 1 {
                let message = format!("{number} has {count} rows in the table, not one");
                findings.push(Finding::new(path, 0, message));
            }
        }
    }
    for row in rows.iter().filter(|row| is_number(&row.number) || row.number == NO_NUMBER) {
        for message in check_row(repository, row) {
            findings.push(Finding::new(path, row.line, format!("{}: {message}", row.number)));
        }
    }
    findings
}

/// Checks that the files and tests of one row exist, and that the row names a test or a reason.
fn check_row(repository: &Repository, row: &Row) -> Vec<String> {
    if row.text.strip_prefix(NOT_COVERED).is_some_and(|reason| !reason.trim().is_empty()) {
        return Vec::new();
    }
    let mut messages = Vec::new();
    let mut file = None;
    let mut tests = 0;
    for word in &row.code {
        if word.ends_with(".rs") || word.ends_with(".py") {
            file = repository.file(&format!("crates/{word}")).or_else(|| repository.file(word));
            if file.is_none() {
                messages.push(format!("there is no file {word}"));
            }
        } else if let Some(file) = file {
            let definitions = [format!("fn {word}("), format!("def {word}(")];
            if definitions.iter().any(|definition| file.text.contains(definition)) {
                tests += 1;
            } else {
                messages.push(format!("there is no test {word} in {}", file.path));
            }
        }
    }
    if tests == 0 {
        messages.push("the row names no test".to_owned());
    }
    messages
}

/// Parses the rows of all tables in a Markdown document.
fn parse_rows(text: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row: Option<Row> = None;
    let mut column = 0;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::TableRow) => {
                let line = 1 + text[..range.start].matches('\n').count();
                row = Some(Row { number: String::new(), line, text: String::new(), code: Vec::new() });
                column = 0;
            }
            Event::Start(Tag::TableCell) => {
                if let Some(row) = &mut row {
                    row.text.clear();
                    row.code.clear();
                }
            }
            Event::End(TagEnd::TableCell) => column += 1,
            Event::Text(words) => {
                if let Some(row) = &mut row {
                    if column == 0 {
                        row.number.push_str(&words);
                    }
                    row.text.push_str(&words);
                }
            }
            Event::Code(word) => {
                if let Some(row) = &mut row {
                    row.code.push(word.to_string());
                }
            }
            Event::End(TagEnd::TableRow) => rows.extend(row.take()),
            _ => {}
        }
    }
    rows
}

/// Whether the text is a requirement number, like `S3-12`, `A12` or `X5`: rows of other tables are not checked.
fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let digits = digits.split_once('-').map_or(digits, |(_, digits)| digits);
    let has_prefix = text.starts_with(|c: char| c.is_ascii_uppercase());
    has_prefix && !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::super::repository::File;
    use super::*;

    /// Checks documents in which every number has a row with one test, except for the given change.
    fn findings(change: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let mut files = vec![file("crates/a/tests/a.rs", "fn a_test() {}")];
        for (document, families) in DOCUMENTS {
            let mut text = "| number | requirement | test |\n|---|---|---|\n".to_owned();
            for (family, range) in *families {
                for number in range.clone().map(|number| format!("{family}{number}")) {
                    let row = format!("| {number} | `words` | `a/tests/a.rs`: `a_test` |\n");
                    text += &change(&number).unwrap_or(row);
                }
            }
            files.push(file(document, &text));
        }
        check(&Repository { files, ..Repository::default() })
    }

    fn count_with(number: &'static str, row: &'static str) -> usize {
        findings(|of| (of == number).then(|| row.to_owned())).len()
    }

    #[test]
    fn a_table_with_a_row_and_a_test_for_each_number_is_fine() {
        assert_eq!(findings(|_| None), []);
    }

    #[test]
    fn a_missing_number_is_found() {
        assert_eq!(count_with("S1-57", ""), 1);
        assert_eq!(count_with("I9", ""), 1);
        assert_eq!(count_with("C23", ""), 1);
        assert_eq!(
            count_with("S2-5", "| S2-5, S2-6 | – | `a/tests/a.rs`: `a_test` |\n"),
            1,
            "each number has a row of its own"
        );
        let twice = "| S0-3 | – | `a/tests/a.rs`: `a_test` |\n| S0-3 | – | `a/tests/a.rs`: `a_test` |\n";
        assert_eq!(count_with("S0-3", twice), 1);
    }

    #[test]
    fn a_missing_test_is_found() {
        assert_eq!(count_with("S0-1", "| S0-1 | – | `a/tests/a.rs`: `a_test`, `another` |\n"), 1);
        assert_eq!(
            count_with("S0-1", "| S0-1 | – | `a/tests/b.rs`: `a_test` |\n"),
            2,
            "no file, and so no test"
        );
        assert_eq!(count_with("S0-1", "| S0-1 | – | soon |\n"), 1);
        assert_eq!(
            count_with("S0-1", "| S0-1 | `a/tests/a.rs`: `a_test` | |\n"),
            1,
            "only the last cell counts"
        );
        for number in ["X5", "–"] {
            let other =
                format!("| C5 | – | `a/tests/a.rs`: `a_test` |\n| {number} | – | `a/tests/a.rs`: `gone` |\n");
            let findings = findings(|of| (of == "C5").then(|| other.clone()));
            assert_eq!(findings.len(), 2, "rows outside the ranges are checked too: {number}");
        }
    }

    #[test]
    fn a_row_without_a_test_must_say_why() {
        assert_eq!(count_with("S3-80", "| S3-80 | – | not covered: not built |\n"), 0);
        assert_eq!(count_with("S3-80", "| S3-80 | – | not covered: |\n"), 1);
    }
}
