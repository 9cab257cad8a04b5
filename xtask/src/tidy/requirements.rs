//! Every requirement of the contracts has a row of its own in docs/contracts.md, and every test that is named there
//! exists in the file that is named with it.

use std::ops::RangeInclusive;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Finding;
use super::repository::Repository;

const DOCUMENT: &str = "docs/contracts.md";

/// The numbers of the source documents that the contracts answer for.
const NUMBERS: &[(&str, RangeInclusive<u32>)] =
    &[("S0", 1..=27), ("S1", 1..=57), ("S2", 1..=30), ("S3", 9..=70)];

/// Numbers whose row says why there is no test yet. A reason that has become untrue goes with its exception.
const WITHOUT_TEST: &[&str] = &["S3-39", "S3-52", "S3-57", "S3-58", "S3-60"];

/// A row of the table: its number, its line, and the words in it that are set as code.
struct Row {
    number: String,
    line: usize,
    code: Vec<String>,
}

pub fn check(repository: &Repository) -> Vec<Finding> {
    let Some(document) = repository.file(DOCUMENT) else { return Vec::new() };
    let rows = rows(&document.text);
    let mut findings = Vec::new();
    for (family, range) in NUMBERS {
        for number in range.clone().map(|number| format!("{family}-{number}")) {
            let count = rows.iter().filter(|row| row.number == number).count();
            if count != 1 {
                let why = format!("{number} has {count} rows in the table of requirements, not one");
                findings.push(Finding::new(DOCUMENT, 0, why));
            }
        }
    }
    for row in &rows {
        let mut finding = |why: String| {
            findings.push(Finding::new(DOCUMENT, row.line, format!("{}: {why}", row.number)));
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
        if tests == 0 && !WITHOUT_TEST.contains(&row.number.as_str()) {
            finding("it names no test".to_owned());
        }
    }
    findings
}

/// The rows of the tables whose first cell is a number.
fn rows(text: &str) -> Vec<Row> {
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
            Event::End(TagEnd::TableRow) => rows.extend(row.take().filter(|row| is_number(&row.number))),
            _ => {}
        }
    }
    rows
}

fn is_number(text: &str) -> bool {
    NUMBERS.iter().any(|(family, _)| {
        let rest = text.strip_prefix(family).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|digit| digit.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::super::repository::File;
    use super::*;

    /// A document in which every number has a row that names one test, but for the given change.
    fn findings(change: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
        let mut text = "| number | test |\n|---|---|\n".to_owned();
        for (family, range) in NUMBERS {
            for number in range.clone().map(|number| format!("{family}-{number}")) {
                let row = format!("| {number} | `a/tests/a.rs`: `a_test` |\n");
                text += &change(&number).unwrap_or(row);
            }
        }
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let test = file("crates/a/tests/a.rs", "fn a_test() {}");
        check(&Repository { files: vec![file(DOCUMENT, &text), test], ..Repository::default() })
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
        assert_eq!(found("S3-39", "| S3-39 | soon |\n"), 0, "its reason is known");
    }
}
