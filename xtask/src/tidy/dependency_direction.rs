//! Checks which of our crates may depend on which, from the inside out.

use super::Finding;
use super::repository::{Package, Repository};

/// Each crate and our own crates that it may use. A crate that is not listed is an error, so a new crate must be
/// added here.
const MAY_USE: &[(&str, &[&str])] = &[
    ("authority", &[]),
    ("files", &[]),
    ("disk", &["files"]),
    ("ledger", &["authority", "disk", "files"]),
    ("history", &["authority", "ledger"]),
    ("coordinator", &["authority", "ledger"]),
    ("relay", &["authority", "coordinator", "ledger"]),
    ("cluster", &["authority", "coordinator", "ledger"]),
    ("blobs", &["files"]),
    ("wire", &[]),
    ("credentials", &[]),
    ("execution", &["blobs", "wire"]),
    ("server", &["authority", "coordinator", "history", "blobs", "execution", "wire"]),
    ("reapi-client", &["blobs", "credentials", "execution", "wire"]),
    ("worker", &["blobs", "credentials", "execution", "files", "wire", "lessor-sdk", "reapi-client"]),
    ("lessor-sdk", &["credentials", "wire"]),
    ("contract-clients", &["wire"]),
    ("conformance", &["contract-clients", "wire"]),
    (
        "bench",
        &[
            "authority",
            "ledger",
            "coordinator",
            "blobs",
            "credentials",
            "execution",
            "reapi-client",
            "contract-clients",
            "wire",
            "worker",
        ],
    ),
    (
        "lessor",
        &[
            "authority",
            "ledger",
            "history",
            "coordinator",
            "relay",
            "cluster",
            "blobs",
            "credentials",
            "execution",
            "reapi-client",
            "wire",
            "server",
            "worker",
            "lessor-sdk",
            "conformance",
            "bench",
            "files",
        ],
    ),
    ("auditor", &["authority", "ledger", "history", "coordinator"]),
    ("fake-disk", &["disk"]),
    (
        "simulator",
        &["authority", "disk", "ledger", "history", "coordinator", "cluster", "auditor", "fake-disk"],
    ),
    (
        "chaos",
        &[
            "authority",
            "ledger",
            "history",
            "coordinator",
            "contract-clients",
            "wire",
            "auditor",
            "test-servers",
        ],
    ),
    (
        "fuzz-targets",
        &[
            "authority",
            "ledger",
            "coordinator",
            "blobs",
            "execution",
            "files",
            "server",
            "wire",
            "worker",
            "lessor",
            "lessor-sdk",
            "fake-disk",
        ],
    ),
    ("test-servers", &[]),
    ("xtask", &[]),
];

/// Crates for tests only, never part of the product.
const TEST_ONLY: &[&str] = &["auditor", "simulator", "chaos", "fake-disk", "fuzz-targets", "test-servers"];

/// Outer crates that a crate's own tests may use, because one end of a contract cannot be tested without the other.
const MAY_TEST_WITH: &[(&str, &[&str])] = &[
    ("coordinator", &["disk", "history"]),
    ("history", &["disk"]),
    ("server", &["credentials", "ledger", "reapi-client", "relay"]),
    ("worker", &["coordinator", "ledger", "server"]),
];

/// The only external crates that the authority may use: data structures and derives, nothing that does I/O, reads a
/// clock or draws random numbers.
const AUTHORITY_MAY_USE: &[&str] =
    &["arrayvec", "bitflags", "foldhash", "hashbrown", "indexmap", "slab", "smallvec", "thiserror"];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    repository.own_packages().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    // The package `lessor-sdk` is in `crates/sdk`.
    let directory = package.name.trim_start_matches("lessor-");
    let manifest = if directory == "xtask" { "xtask".into() } else { format!("crates/{directory}") };
    let finding = |message: String| Finding::new(format!("{manifest}/Cargo.toml"), 0, message);
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == package.name) else {
        return vec![finding(format!("`{}` is not listed in dependency_direction.rs", package.name))];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        let is_dev = dependency.kind.as_deref() == Some("dev");
        let is_allowed = match &dependency.path {
            Some(_) => {
                let tests_with =
                    MAY_TEST_WITH.iter().any(|(own, others)| *own == package.name && others.contains(&name));
                allowed.contains(&name) || (is_dev && (TEST_ONLY.contains(&name) || tests_with))
            }
            None => is_dev || package.name != "authority" || AUTHORITY_MAY_USE.contains(&name),
        };
        if !is_allowed {
            findings.push(finding(format!("`{}` may not use `{name}`", package.name)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::own_package;
    use super::*;

    fn messages(package: Package) -> Vec<String> {
        check_package(&package).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_dependency_on_an_outer_crate_is_found() {
        assert_eq!(messages(own_package("ledger", &["./server"])), ["`ledger` may not use `server`"]);
        assert_eq!(messages(own_package("authority", &["./wire"])), ["`authority` may not use `wire`"]);
        assert_eq!(messages(own_package("server", &["./coordinator", "./wire", "axum"])), [""; 0]);
    }

    #[test]
    fn the_authority_uses_no_runtime_and_no_randomness() {
        for name in ["tokio", "rand", "getrandom", "rustix"] {
            assert_eq!(messages(own_package("authority", &[name])).len(), 1, "{name}");
        }
        assert_eq!(messages(own_package("authority", &["hashbrown"])), [""; 0]);
    }

    #[test]
    fn a_test_only_crate_stays_out_of_the_product() {
        let mut package = own_package("lessor", &["./chaos"]);
        assert_eq!(check_package(&package).len(), 1);
        package.dependencies[0].kind = Some("dev".into());
        assert_eq!(check_package(&package), []);
    }

    #[test]
    fn what_a_crate_is_tested_with_stays_out_of_it() {
        let mut package = own_package("worker", &["./server"]);
        assert_eq!(check_package(&package).len(), 1);
        package.dependencies[0].kind = Some("dev".into());
        assert_eq!(check_package(&package), []);
    }

    #[test]
    fn a_crate_that_is_not_listed_is_found() {
        assert_eq!(messages(own_package("gadgets", &[])).len(), 1);
    }
}
