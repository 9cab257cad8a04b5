//! Lists the outputs of a result, and compares two results.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use wire::grpc::ActionResult;

/// One output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Produced {
    pub kind: &'static str,
    pub path: String,
    /// The digest of a file or of a directory's tree; the target of a link.
    pub content: String,
}

/// The outputs of a result, in order of their paths.
pub(super) fn list(result: &ActionResult) -> Vec<Produced> {
    let produced = |kind, path: &str, content| Produced { kind, path: path.to_owned(), content };
    let unknown = || "?".to_owned();
    let mut list = Vec::new();
    for file in &result.output_files {
        let content = file.digest.as_ref().map_or_else(unknown, to_text);
        let kind = if file.is_executable { "executable" } else { "file" };
        list.push(produced(kind, &file.path, content));
    }
    for tree in &result.output_directories {
        let digest = tree.tree_digest.as_ref().or(tree.root_directory_digest.as_ref());
        let content = digest.map_or_else(unknown, to_text);
        list.push(produced("directory", &tree.path, content));
    }
    #[allow(deprecated, reason = "older clients are answered in these fields")]
    let links = [&result.output_symlinks, &result.output_file_symlinks, &result.output_directory_symlinks];
    for link in links.into_iter().flatten() {
        list.push(produced("link", &link.path, link.target.clone()));
    }
    list.sort_by(|one, other| (&one.path, one.kind).cmp(&(&other.path, other.kind)));
    // A link may be in an old and in the new field.
    list.dedup();
    list
}

fn to_text(digest: &wire::grpc::Digest) -> String {
    format!("{}/{}", digest.hash, digest.size_bytes)
}

/// The compared parts of a result, as text; times are not compared.
fn parts(result: &ActionResult) -> BTreeMap<(usize, String), String> {
    let written = |digest: &Option<_>| digest.as_ref().map_or_else(|| "nothing".to_owned(), to_text);
    let fixed = [
        ("exit code", result.exit_code.to_string()),
        ("stdout", written(&result.stdout_digest)),
        ("stderr", written(&result.stderr_digest)),
    ];
    let fixed = fixed.into_iter().enumerate().map(|(n, (name, value))| ((n, name.to_owned()), value));
    let outputs = list(result).into_iter();
    let outputs = outputs.map(|output| ((3, output.path), format!("{} {}", output.kind, output.content)));
    fixed.chain(outputs).collect()
}

/// A line for each difference between a result and the cached one.
pub(super) fn differences(ours: &ActionResult, cached: &ActionResult) -> Vec<String> {
    let (ours, cached) = (parts(ours), parts(cached));
    let names: BTreeSet<_> = ours.keys().chain(cached.keys()).collect();
    let value =
        |parts: &BTreeMap<_, String>, name| parts.get(name).map_or("nothing".to_owned(), String::clone);
    let differs = names.into_iter().filter(|name| ours.get(*name) != cached.get(*name));
    differs
        .map(|name| format!("{}: here {}, kept {}", name.1, value(&ours, name), value(&cached, name)))
        .collect()
}
