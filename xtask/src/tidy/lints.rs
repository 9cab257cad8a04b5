//! Checks that every crate inherits the workspace's lints; otherwise `unsafe` would be allowed there.

use super::Finding;
use super::repository::{File, Repository};

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let manifests = repository.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let missing = manifests.filter(|file| !takes_workspace_lints(file));
    missing.map(|file| Finding::new(&file.path, 0, "lacks `[lints] workspace = true`")).collect()
}

fn takes_workspace_lints(manifest: &File) -> bool {
    let table = manifest.text.parse::<toml::Table>().ok();
    let lints = table.as_ref().and_then(|table| table.get("lints")).and_then(|lints| lints.get("workspace"));
    lints.and_then(toml::Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    #[test]
    fn a_crate_with_lints_of_its_own_is_found() {
        let bare = "[package]\nname = \"a\"\n";
        assert_eq!(check(&with_file("crates/a/Cargo.toml", bare)).len(), 1);
        assert_eq!(check(&with_file("crates/a/Cargo.toml", "[lints]\nworkspace = true\n")), []);
    }
}
