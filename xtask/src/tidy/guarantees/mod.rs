//! Checks the catalogue of guarantees and faults (`docs/guarantees.toml`) against the tests of the repository, and
//! generates the tables of `docs/guarantees.md` from both.
//!
//! A test shows a fault when its name begins with the fault's number (`d3_…`, `w9_w15_…`) or when the catalogue names it.

mod catalogue;
mod tables;
mod test_names;

use anyhow::{Context, Result, bail};

use super::Finding;
use super::repository::Repository;
use catalogue::{Catalogue, Entry};
use test_names::TestNames;

const SOURCE: &str = "docs/guarantees.toml";
pub(super) const DOCUMENT: &str = "docs/guarantees.md";
const COMMAND: &str = "cargo xtask guarantees";
/// The lines around the generated part of the document.
const BEGIN: &str =
    "<!-- Generated from guarantees.toml and the names of the tests by `cargo xtask guarantees`. -->";
const END: &str = "<!-- The end of the generated part. -->";

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let Some(source) = repository.file(SOURCE) else {
        return vec![Finding::new(SOURCE, 0, "is missing")];
    };
    let (catalogue, problems) = match catalogue::parse(&source.text) {
        Ok(parsed) => parsed,
        Err(error) => return vec![Finding::new(SOURCE, 0, format!("cannot be read: {error}"))],
    };
    let tests = TestNames::find(repository);
    let mut findings: Vec<_> = problems.into_iter().map(|problem| Finding::new(SOURCE, 0, problem)).collect();
    for (id, entry) in catalogue.entries() {
        let line = source
            .lines()
            .find(|(_, line)| line.starts_with(&format!("{id} =")))
            .map_or(0, |(number, _)| number);
        let problems = check_entry(&id, entry, &tests);
        findings.extend(
            problems.into_iter().map(|problem| Finding::new(SOURCE, line, format!("{id}: {problem}"))),
        );
    }
    for (name, path, id) in tests.numbers() {
        if catalogue.has_family(&id) && !catalogue.has(&id) {
            findings.push(Finding::new(
                path,
                0,
                format!("{name} is named after {id}, which is not in {SOURCE}"),
            ));
        }
    }
    if findings.is_empty()
        && document(repository).ok().as_deref() != repository.file(DOCUMENT).map(|file| &*file.text)
    {
        findings.push(Finding::new(DOCUMENT, 0, format!("is out of date: run `{COMMAND}`")));
    }
    findings
}

/// Finds what is wrong with one entry: no test, a test that does not exist, an incomplete reason.
fn check_entry(id: &str, entry: &Entry, tests: &TestNames) -> Vec<String> {
    let mut problems = Vec::new();
    for name in &entry.tests {
        if !tests.has(name) {
            problems.push(format!("there is no test `{name}`"));
        } else if tests.named_after(id).any(|named| named == name) {
            problems.push(format!("`{name}` is named after it and need not be listed"));
        }
    }
    let reason = entry.not_yet.as_deref();
    if let Some(reason) = reason
        && !catalogue::is_reason(reason)
    {
        let needs = catalogue::NEEDS.join(", ");
        problems.push(format!(
            "`not_yet` must be `NEED: missing part`, where NEED is one of {needs}; it is `{reason}`"
        ));
    }
    if entry.tests.is_empty() && reason.is_none() && tests.named_after(id).next().is_none() {
        let name = id.to_lowercase();
        problems.push(format!("no test shows it: name one `{name}_…`, or list tests under `tests`"));
    }
    problems
}

/// The document with tables generated anew.
pub(super) fn document(repository: &Repository) -> Result<String> {
    let source = repository.file(SOURCE).with_context(|| format!("there is no {SOURCE}"))?;
    let (catalogue, _): (Catalogue, _) =
        catalogue::parse(&source.text).with_context(|| format!("cannot read {SOURCE}"))?;
    let old = &repository.file(DOCUMENT).with_context(|| format!("there is no {DOCUMENT}"))?.text;
    let (Some((before, _)), Some((_, after))) = (old.split_once(BEGIN), old.split_once(END)) else {
        bail!("{DOCUMENT} needs the lines\n{BEGIN}\n{END}");
    };
    let tables = tables::render(&catalogue, &TestNames::find(repository));
    Ok(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_files;
    use super::catalogue::SECTIONS;
    use super::*;

    /// A test in each of two files, one of them named after D1.
    const NAMED: &str = "#[test]\nfn d1_a_fault() {}\nfn helper() {}\n#[tokio::test]\nasync fn other() {}\n";

    /// A catalogue in which every entry lists the test `other`, except for the given lines.
    fn source(change: impl Fn(&str) -> Option<String>) -> String {
        let mut text = String::new();
        for section in SECTIONS {
            text.push_str(&format!("[{}]\n", section.key));
            for id in (1..=section.count).map(|number| format!("{}{number}", section.prefix)) {
                let line = format!("{id} = {{ title = \"t\", how = \"h\", tests = [\"other\"] }}");
                text.push_str(&change(&id).unwrap_or(line));
                text.push('\n');
            }
        }
        text
    }

    /// The messages for a repository with this catalogue and these tests, after its document was generated.
    fn messages(source: &str, tests: &str) -> Vec<String> {
        let blank = format!("# Guarantees\n\n{BEGIN}\n{END}\n");
        let files = |document: &str| {
            with_files(&[(SOURCE, source), (DOCUMENT, document), ("crates/a/tests/a.rs", tests)])
        };
        let fresh = document(&files(&blank)).unwrap_or(blank);
        check(&files(&fresh)).into_iter().map(|finding| finding.message).collect()
    }

    fn messages_with(id: &'static str, line: &'static str) -> Vec<String> {
        messages(&source(|of| (of == id).then(|| line.to_owned())), NAMED)
    }

    #[test]
    fn a_catalogue_with_tests_is_fine_and_a_test_may_be_found_by_its_name() {
        assert_eq!(messages(&source(|_| None), NAMED), [""; 0]);
        assert_eq!(messages_with("D1", "D1 = { title = \"t\", how = \"h\" }"), [""; 0]);
    }

    #[test]
    fn a_missing_fault_and_an_unknown_one_are_found() {
        assert_eq!(messages_with("X24", ""), ["X24 is missing"]);
        let unknown =
            "X24 = { title = \"t\", how = \"h\", tests = [\"other\"] }\nX25 = { title = \"t\", how = \"h\" }";
        assert_eq!(messages_with("X24", unknown), ["X25 is not a number of [security]"]);
        let named = format!("{NAMED}#[test]\nfn d99_what() {{}}\n");
        assert_eq!(messages(&source(|_| None), &named).len(), 1);
    }

    #[test]
    fn a_fault_without_a_test_is_found_unless_it_waits_for_something_named() {
        assert_eq!(messages_with("D2", "D2 = { title = \"t\", how = \"h\" }").len(), 1);
        let not_yet = "D2 = { title = \"t\", how = \"h\", not_yet = \"clusters: two owners\" }";
        assert_eq!(messages_with("D2", not_yet), [""; 0]);
        for reason in ["time: later", "clusters:", "clusters"] {
            let source = source(|id| {
                (id == "D2").then(|| format!("D2 = {{ title = \"t\", how = \"h\", not_yet = \"{reason}\" }}"))
            });
            assert_eq!(messages(&source, NAMED).len(), 1, "{reason}");
        }
    }

    #[test]
    fn a_listed_test_must_exist_and_be_a_test() {
        for name in ["gone", "helper"] {
            let source = source(|id| {
                (id == "D2").then(|| format!("D2 = {{ title = \"t\", how = \"h\", tests = [\"{name}\"] }}"))
            });
            assert_eq!(messages(&source, NAMED), [format!("D2: there is no test `{name}`")]);
        }
    }

    #[test]
    fn a_document_out_of_date_is_found_and_the_command_named() {
        let source = source(|_| None);
        let document = format!("{BEGIN}\n{END}\n");
        let files = [(SOURCE, &*source), (DOCUMENT, &*document), ("crates/a/tests/a.rs", NAMED)];
        let findings = check(&with_files(&files));
        assert_eq!(findings, [Finding::new(DOCUMENT, 0, "is out of date: run `cargo xtask guarantees`")]);
    }
}
