//! The names of all tests, from the text of the source files: functions with a test attribute, and `test_…` in Python.

use std::collections::{BTreeMap, BTreeSet};

use super::super::repository::{File, Repository};

/// The files of each test name. Two files may have a test of the same name.
pub(super) struct TestNames(BTreeMap<String, BTreeSet<String>>);

impl TestNames {
    pub(super) fn find(repository: &Repository) -> TestNames {
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in &repository.files {
            let path = file.path.strip_prefix("crates/").unwrap_or(&file.path);
            for name in tests_of(file) {
                names.entry(name.to_owned()).or_default().insert(path.to_owned());
            }
        }
        TestNames(names)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn files(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str)
    }

    /// The tests whose names begin with this number.
    pub(super) fn named_after(&self, id: &str) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str).filter(move |name| numbers_of(name).any(|number| number == id))
    }

    /// Every number at the beginning of a test name: the name, one of its files, the number.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (&str, &str, String)> {
        self.0.iter().flat_map(|(name, files)| {
            let file = files.first().map_or("", String::as_str);
            numbers_of(name).map(move |number| (name.as_str(), file, number))
        })
    }
}

fn tests_of(file: &File) -> Vec<&str> {
    let is_python = file.path.ends_with(".py");
    if !is_python && !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut has_attribute = false;
    for (_, line) in file.lines() {
        let line = line.trim_start();
        if is_python {
            names.extend(line.strip_prefix("def test_").and_then(|_| name_after(line, "def ")));
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            has_attribute = true;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            let signature = line.strip_prefix("async ").unwrap_or(line);
            names.extend(name_after(signature, "fn ").filter(|_| has_attribute));
            has_attribute = false;
        }
    }
    names
}

fn name_after<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    line.strip_prefix(keyword)?.split_once('(').map(|(name, _)| name)
}

/// The numbers at the beginning of a name: `w9_w15_content` has W9 and W15.
fn numbers_of(name: &str) -> impl Iterator<Item = String> {
    name.split('_').map_while(|part| {
        let digits = part.strip_prefix(|prefix: char| prefix.is_ascii_lowercase())?;
        (!digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()))
            .then(|| part.to_uppercase())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_their_attribute() {
        let text = "#[test]\nfn one() {}\n\n#[tokio::test(flavor = \"multi_thread\")]\n// Why.\n#[cfg(unix)]\nasync fn two() {}\n\
                    fn three() {}\nmod m {\n    #[test]\n    fn four() {}\n}\n";
        let file = File { path: "crates/a/src/a.rs".into(), text: text.into() };
        assert_eq!(tests_of(&file), ["one", "two", "four"]);
        let python = File { path: "sdk/t.py".into(), text: "    def test_a(self):\ndef helper():\n".into() };
        assert_eq!(tests_of(&python), ["test_a"]);
    }

    #[test]
    fn numbers_stand_at_the_beginning_of_a_name() {
        let numbers = |name| numbers_of(name).collect::<Vec<_>>();
        assert_eq!(numbers("w9_w15_content_d3"), ["W9", "W15"]);
        assert_eq!(numbers("a_d3"), [""; 0]);
        assert_eq!(numbers("http_2_is_served"), [""; 0]);
    }
}
