//! Every requirement of the contracts, and every fault that remote execution is held to, has a row of its own in its
//! document, and every test that is named there exists in the file that is named with it.

use std::ops::RangeInclusive;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;
use super::repository::Repository;

/// What a number begins with, and how it goes on.
type Numbers = &'static [(&'static str, RangeInclusive<u32>)];

/// The numbers that each document answers for.
const DOCUMENTS: &[(&str, Numbers)] = &[
    ("docs/contracts.md", &[("S0-", 1..=27), ("S1-", 1..=57), ("S2-", 1..=30), ("S3-", 9..=70)]),
    ("docs/remote-execution.md", &[("I", 5..=17), ("A", 5..=8), ("N", 15..=16)]),
];

/// A row of the table: its number, its line, and the words in it that are set as code.
struct Row {
    number: String,
    line: usize,
    code: Vec<String>,
}

pub fn check(repository: &Repository) -> Vec<Finding> {
    DOCUMENTS.iter().flat_map(|(document, numbers)| check_one(repository, document, numbers)).collect()
}

fn check_one(repository: &Repository, path: &str, numbers: Numbers) -> Vec<Finding> {
    let Some(document) = repository.file(path) else { return Vec::new() };
    let rows = rows(&document.text, numbers);
    let mut findings = Vec::new();
    for (family, range) in numbers {
        for number in range.clone().map(|number| format!("{family}{number}")) {
            let count = rows.iter().filter(|row| row.number == number).count();
            if count != 1 {
                let why = format!("{number} has {count} rows in the table of requirements, not one");
                findings.push(Finding::new(path, 0, why));
            }
        }
    }
    for row in &rows {
        let mut finding = |why: String| {
            findings.push(Finding::new(path, row.line, format!("{}: {why}", row.number)));
        };
        let mut file = None;
        let mut tests = 0;
        for word in &row.code {
            if word.ends_with(".rs") || word.ends_with(".py") {
                file = repository.file(&format!("crates/{word}")).or_else(|| repository.file(word));
                if file.is_none() {
                    finding(format!("there is no file {word}"));
                }
            } else if let Some(file) = file {
                let is_there = [format!("fn {word}("), format!("def {word}(")];
                match is_there.iter().any(|start| file.text.contains(start)) {
                    true => tests += 1,
                    false => finding(format!("there is no test {word} in {}", file.path)),
                }
            }
        }
        if tests == 0 {
            finding("it names no test".to_owned());
        }
    }
    findings
}

/// The rows of the tables whose first cell is a number.
fn rows(text: &str, numbers: Numbers) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row: Option<Row> = None;
    let mut is_first = false;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::TableRow) => {
                let line = 1 + text[..range.start].matches('\n').count();
                row = Some(Row { number: String::new(), line, code: Vec::new() });
                is_first = true;
            }
            Event::End(TagEnd::TableCell) => is_first = false,
            Event::Text(words) if is_first => {
                if let Some(row) = &mut row {
                    row.number.push_str(&words);
                }
            }
            Event::Code(word) if !is_first => {
                if let Some(row) = &mut row {
                    row.code.push(word.to_string());
                }
            }
            Event::End(TagEnd::TableRow) => {
                rows.extend(row.take().filter(|row| is_number(&row.number, numbers)));
            }
            _ => {}
        }
    }
    rows
}

fn is_number(text: &str, numbers: Numbers) -> bool {
    numbers.iter().any(|(family, _)| {
        let rest = text.strip_prefix(family);
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::repository::File;
    use super::*;

    /// A document in which every number has a row that names one test, but for the given change.
    fn findings(change: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let mut files = vec![file("crates/a/tests/a.rs", "fn a_test() {}")];
        for (document, numbers) in DOCUMENTS {
            let mut text = "| number | test |\n|---|---|\n".to_owned();
            for (family, range) in *numbers {
                for number in range.clone().map(|number| format!("{family}{number}")) {
                    let row = format!("| {number} | `a/tests/a.rs`: `a_test` |\n");
                    text += &change(&number).unwrap_or(row);
                }
            }
            files.push(file(document, &text));
        }
        check(&Repository { files, ..Repository::default() })
    }

    fn found(number: &'static str, row: &'static str) -> usize {
        findings(|of| (of == number).then(|| row.to_owned())).len()
    }

    #[test]
    fn a_table_with_a_row_and_a_test_for_each_number_is_fine() {
        assert_eq!(findings(|_| None), []);
    }

    #[test]
    fn a_missing_number_is_found() {
        assert_eq!(found("S1-57", ""), 1);
        assert_eq!(found("I9", ""), 1);
        assert_eq!(
            found("S2-5", "| S2-5, S2-6 | `a/tests/a.rs`: `a_test` |\n"),
            1,
            "each has a row of its own"
        );
        assert_eq!(
            found("S0-3", "| S0-3 | `a/tests/a.rs`: `a_test` |\n| S0-3 | `a/tests/a.rs`: `a_test` |\n"),
            1
        );
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        assert_eq!(found("S0-1", "| S0-1 | `a/tests/a.rs`: `a_test`, `another` |\n"), 1);
        assert_eq!(found("S0-1", "| S0-1 | `a/tests/b.rs`: `a_test` |\n"), 2, "no file, and so no test");
        assert_eq!(found("S0-1", "| S0-1 | soon |\n"), 1);
    }
}
