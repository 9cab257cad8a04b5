//! Checks that every local link in a Markdown document resolves to a file, and its fragment to a heading of that file.

use std::collections::{BTreeSet, HashMap};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::Finding;
use super::repository::{File, Repository};

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (event, range) in Parser::new(&file.text).into_offset_iter() {
            let target = match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => dest_url,
                _ => continue,
            };
            if let Some(problem) = problem_of(repository, file, &target) {
                let line = 1 + file.text[..range.start].matches('\n').count();
                findings.push(Finding::new(&file.path, line, format!("link to {target}: {problem}")));
            }
        }
    }
    findings
}

/// Finds the problem with a link in this file. Links to other hosts are not followed.
fn problem_of(repository: &Repository, file: &File, target: &str) -> Option<&'static str> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = resolve(&file.path, path) else { return Some("it leaves the repository") };
    if !path.is_empty() && !repository.paths.contains(&path) {
        return Some("there is no such file");
    }
    let document = repository.file(&path)?;
    let is_missing =
        !fragment.is_empty() && path.ends_with(".md") && !anchors(&document.text).contains(fragment);
    is_missing.then_some("there is no such heading")
}

/// Resolves a relative link to a path from the root. An empty link is the document itself.
fn resolve(document: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(document.to_string());
    }
    let mut parts: Vec<&str> = if link.starts_with('/') { Vec::new() } else { document.split('/').collect() };
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The fragments that GitHub generates for the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut heading: Option<String> = None;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = seen.entry(slug.clone()).or_default();
                anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
                *count += 1;
            }
            _ => {}
        }
    }
    anchors
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_files;
    use super::*;

    fn messages(readme: &str) -> Vec<String> {
        let guide =
            ("docs/guide.md", "# A guide: `up` & down\n\n## Start\n\n## Start\n\n[home](../README.md)\n");
        let repository = with_files(&[("README.md", readme), guide]);
        check(&repository).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn links_that_resolve_are_fine() {
        let readme = "[a](docs/guide.md) [b](docs/guide.md#start-1) [c](https://example.org/x) [d](#here)\n\
                      [e](./docs/guide.md#a-guide-up--down) `[f](none.md)`\n\n# Here\n";
        assert_eq!(messages(readme), [""; 0]);
    }

    #[test]
    fn dead_links_are_found_with_their_line() {
        assert_eq!(messages("[a](docs/none.md)"), ["link to docs/none.md: there is no such file"]);
        assert_eq!(
            messages("[a](docs/guide.md#end)"),
            ["link to docs/guide.md#end: there is no such heading"]
        );
        assert_eq!(messages("[a](../other.md)"), ["link to ../other.md: it leaves the repository"]);
        assert_eq!(messages("[a]\n\n[a]: gone.md"), ["link to gone.md: there is no such file"]);
        let findings = check(&with_files(&[("README.md", "# Title\n\n[a](gone.md)\n")]));
        assert_eq!(findings[0].line, 3);
    }
}
