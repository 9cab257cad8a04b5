//! Parses `docs/guarantees.toml`: the guarantees and the faults, each with a number, a title and the behavior of Lessor.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A section of the catalogue: its key in the file, the prefix of its numbers and how many there are.
pub(super) struct Section {
    pub key: &'static str,
    pub prefix: char,
    pub count: u32,
    pub heading: &'static str,
    /// The headings of the columns for `title` and `how`.
    pub columns: [&'static str; 2],
}

const FAULT: [&str; 2] = ["fault", "behavior"];

pub(super) const SECTIONS: &[Section] = &[
    Section { key: "guarantees", prefix: 'G', count: 14, heading: "Promises", columns: ["promise", "how"] },
    Section { key: "disk", prefix: 'D', count: 28, heading: "Faults of the disk", columns: FAULT },
    Section { key: "process", prefix: 'P', count: 15, heading: "Faults of the process", columns: FAULT },
    Section { key: "network", prefix: 'N', count: 17, heading: "Faults of the network", columns: FAULT },
    Section { key: "clock", prefix: 'T', count: 11, heading: "Faults of clocks", columns: FAULT },
    Section { key: "workers", prefix: 'W', count: 19, heading: "Misbehaving workers", columns: FAULT },
    Section { key: "input", prefix: 'I', count: 20, heading: "Bad input of clients", columns: FAULT },
    Section { key: "abuse", prefix: 'A', count: 12, heading: "Abuse of the protocols", columns: FAULT },
    Section { key: "security", prefix: 'X', count: 24, heading: "Attacks", columns: FAULT },
];

/// What a fault without a test, or with a part that is missing, may wait for.
pub(super) const NEEDS: &[&str] = &["clusters", "authentication", "dashboard"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub title: String,
    pub how: String,
    /// Tests that are not named after the entry.
    #[serde(default)]
    pub tests: Vec<String>,
    /// What the entry waits for and the part that is missing: `NEED: missing part`.
    pub not_yet: Option<String>,
}

/// The entries of each section, by number.
pub(super) struct Catalogue(BTreeMap<char, BTreeMap<u32, Entry>>);

/// Parses the file. Numbers that are missing or unknown are returned as problems.
pub(super) fn parse(text: &str) -> Result<(Catalogue, Vec<String>), toml::de::Error> {
    let mut file: BTreeMap<String, BTreeMap<String, Entry>> = toml::from_str(text)?;
    let mut problems = Vec::new();
    let mut sections = BTreeMap::new();
    for section in SECTIONS {
        let mut given = file.remove(section.key).unwrap_or_default();
        let mut entries = BTreeMap::new();
        for number in 1..=section.count {
            let id = format!("{}{number}", section.prefix);
            match given.remove(&id) {
                Some(entry) => drop(entries.insert(number, entry)),
                None => problems.push(format!("{id} is missing")),
            }
        }
        problems.extend(given.keys().map(|id| format!("{id} is not a number of [{}]", section.key)));
        sections.insert(section.prefix, entries);
    }
    problems.extend(file.keys().map(|key| format!("[{key}] is not a section")));
    Ok((Catalogue(sections), problems))
}

/// Whether the text names a known need and the part that is missing.
pub(super) fn is_reason(text: &str) -> bool {
    text.split_once(':').is_some_and(|(need, part)| NEEDS.contains(&need) && !part.trim().is_empty())
}

impl Catalogue {
    pub(super) fn entries(&self) -> impl Iterator<Item = (String, &Entry)> {
        SECTIONS.iter().flat_map(|section| self.section(section))
    }

    pub(super) fn section(&self, section: &Section) -> impl Iterator<Item = (String, &Entry)> {
        let prefix = section.prefix;
        let entries = self.0.get(&prefix).into_iter().flatten();
        entries.map(move |(number, entry)| (format!("{prefix}{number}"), entry))
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.entries().any(|(known, _)| known == id)
    }

    /// Whether numbers with this prefix belong to the catalogue. Tests are also named after other numbers.
    pub(super) fn has_family(&self, id: &str) -> bool {
        id.starts_with(|prefix| self.0.contains_key(&prefix))
    }
}
