//! The layers of the server: no protocol adapter imports another one, and what adapters share (`edge/`, `convert/`,
//! `metrics/`) imports none. Only the files at the root of the crate, which put the server together, and the folder of the fuzz
//! targets see all of them.

use std::collections::BTreeSet;

use super::Finding;
use super::repository::{File, Repository};

const SOURCES: &str = "crates/server/src/";
/// Folders that every adapter may import. Each other folder is an adapter.
const SHARED: &[&str] = &["convert", "edge", "metrics"];
/// Names the decoders of all adapters for the fuzz targets.
const FUZZING: &str = "fuzzing";

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let files: Vec<_> = repository.rust_files().filter_map(|file| Some((folder(file)?, file))).collect();
    let adapters: BTreeSet<_> =
        files.iter().map(|(folder, _)| *folder).filter(|folder| !SHARED.contains(folder)).collect();
    let mut findings = Vec::new();
    for (folder, file) in files {
        for (line, module) in imports(&file.text) {
            if module != folder && folder != FUZZING && adapters.contains(module) {
                let message = format!("`{folder}` imports the adapter `{module}`");
                findings.push(Finding::new(&file.path, line, message));
            }
        }
    }
    findings
}

/// The folder of the server that a file belongs to, unless it lies at the root of the crate.
fn folder(file: &File) -> Option<&str> {
    let (folder, _) = file.path.strip_prefix(SOURCES)?.split_once('/')?;
    Some(folder)
}

/// The modules of the crate that a file names, each with its line.
fn imports(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (start, path) in text.match_indices("crate::") {
        let line = text[..start].lines().count().max(1);
        let rest = &text[start + path.len()..];
        match rest.strip_prefix('{') {
            None => found.push((line, identifier(rest))),
            Some(list) => found.extend(first_segments(list).map(|module| (line, module))),
        }
    }
    found
}

/// The first segment of each path in an import list, up to the brace that closes the list.
fn first_segments(list: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let mut starts = vec![0];
    for (index, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts.push(index + 1),
            _ => {}
        }
    }
    starts.into_iter().map(|start| identifier(list[start..].trim_start()))
}

fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        let mut repository = with_file(path, text);
        for adapter in ["claims", "grpc", "tasks"] {
            let path = format!("{SOURCES}{adapter}/mod.rs");
            repository.files.push(File { path, text: String::new() });
        }
        check(&repository).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_adapter_that_imports_another_is_found() {
        let path = "crates/server/src/claims/claim.rs";
        let finding = "`claims` imports the adapter `tasks`";
        for text in [
            "use crate::tasks::submit;\n",
            "use crate::{app::App, tasks};\n",
            "use crate::{\n    edge::{json, bodies},\n    tasks::{get, list},\n};\n",
            "fn a() {\n    crate::tasks::list();\n}\n",
        ] {
            assert_eq!(messages(path, text), [finding], "{text}");
        }
    }

    #[test]
    fn what_adapters_share_imports_none_of_them() {
        for folder in SHARED {
            let path = format!("{SOURCES}{folder}/x.rs");
            assert_eq!(messages(&path, "use crate::grpc;\n").len(), 1, "{folder}");
        }
    }

    #[test]
    fn an_adapter_may_import_itself_and_what_is_shared() {
        let text = "use crate::app::App;\nuse crate::{edge::json, convert::{ids, tasks}};\nuse crate::claims::token;\n";
        assert_eq!(messages("crates/server/src/claims/claim.rs", text), [""; 0]);
    }

    #[test]
    fn the_root_of_the_crate_puts_adapters_together() {
        let text = "use crate::{claims, grpc, tasks};\n";
        assert_eq!(messages("crates/server/src/router.rs", text), [""; 0]);
        assert_eq!(messages("crates/worker/src/agent/a.rs", text), [""; 0]);
    }
}
