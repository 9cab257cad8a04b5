//! Renders the catalogue as Markdown tables, each entry with its tests by file.

use std::collections::{BTreeMap, BTreeSet};

use super::catalogue::{Catalogue, Entry, SECTIONS};
use super::test_names::TestNames;

pub(super) fn render(catalogue: &Catalogue, tests: &TestNames) -> String {
    let mut text = String::new();
    for section in SECTIONS {
        let [title, how] = section.columns;
        text.push_str(&format!(
            "## {}\n\n| # | {title} | {how} | tests |\n|---|---|---|---|\n",
            section.heading
        ));
        for (id, entry) in catalogue.section(section) {
            let tests = render_tests(&id, entry, tests);
            text.push_str(&format!("| {id} | {} | {} | {tests} |\n", entry.title, entry.how));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn render_tests(id: &str, entry: &Entry, tests: &TestNames) -> String {
    let mut by_file: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in tests.named_after(id).chain(entry.tests.iter().map(String::as_str)) {
        for file in tests.files(name) {
            by_file.entry(file).or_default().insert(name);
        }
    }
    let files = by_file.iter().map(|(file, names)| {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        format!("`{file}`: {}", names.join(", "))
    });
    let mut parts: Vec<_> = files.collect();
    if let Some((need, part)) = entry.not_yet.as_deref().and_then(|reason| reason.split_once(':')) {
        parts.push(format!("not yet (needs {need}): {}", part.trim()));
    }
    parts.join("; ")
}
