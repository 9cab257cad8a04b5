//! Lists the outputs of a result, and compares two results.

use std::collections::BTreeMap;

use serde::Serialize;
use wire::grpc::ActionResult;

/// One output, as far as its path and content go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Produced {
    pub kind: &'static str,
    pub path: String,
    /// The digest of a file or of a directory's tree; where a link points.
    pub content: String,
}

/// Everything that a result names, in order of its paths.
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
    // A link may be told in an old and in the new field.
    list.dedup();
    list
}

fn to_text(digest: &wire::grpc::Digest) -> String {
    format!("{}/{}", digest.hash, digest.size_bytes)
}

/// A line for each thing in which a result differs from another that was kept before. Times are no difference.
pub(super) fn differences(ours: &ActionResult, kept: &ActionResult) -> Vec<String> {
    let mut lines = Vec::new();
    if ours.exit_code != kept.exit_code {
        lines.push(format!("exit code: here {}, kept {}", ours.exit_code, kept.exit_code));
    }
    let written = |result: &ActionResult| {
        [&result.stdout_digest, &result.stderr_digest]
            .map(|digest| digest.as_ref().map_or_else(|| "nothing".to_owned(), to_text))
    };
    for (what, (ours, kept)) in
        ["stdout", "stderr"].into_iter().zip(written(ours).into_iter().zip(written(kept)))
    {
        if ours != kept {
            lines.push(format!("{what}: here {ours}, kept {kept}"));
        }
    }
    let by_path = |result| -> BTreeMap<String, Produced> {
        list(result).into_iter().map(|produced| (produced.path.clone(), produced)).collect()
    };
    let (ours, kept) = (by_path(ours), by_path(kept));
    let describe = |produced: &Produced| format!("{} {}", produced.kind, produced.content);
    for (path, one) in &ours {
        match kept.get(path) {
            None => lines.push(format!("{path}: here {}, kept nothing", describe(one))),
            Some(other) if other != one => {
                lines.push(format!("{path}: here {}, kept {}", describe(one), describe(other)));
            }
            Some(_) => {}
        }
    }
    let gone = kept.iter().filter(|(path, _)| !ours.contains_key(*path));
    lines.extend(gone.map(|(path, other)| format!("{path}: here nothing, kept {}", describe(other))));
    lines
}
