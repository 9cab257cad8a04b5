//! Checks that every external crate comes from crates.io under a licence that an Apache-2.0 product may ship, and that no
//! crate is banned.
//!
//! `cargo deny` makes the same checks. This rule reads `cargo metadata` instead, so that a fresh machine need not build
//! another tool before it can run the tests.

use super::Finding;
use super::repository::{Package, Repository};

const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that are not allowed, not even as an indirect dependency, with the reason.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "the build must not need a system library: use rustls"),
    ("native-tls", "the build must not need a system library: use rustls"),
    ("protobuf-src", "the build must not need a C++ compiler"),
    ("chrono", "use jiff for times: one library for one purpose"),
];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let foreign = repository.packages.iter().filter(|package| package.source.is_some());
    let messages = foreign.flat_map(check_package);
    messages.map(|message| Finding::new("Cargo.lock", 0, message)).collect()
}

fn check_package(package: &Package) -> Vec<String> {
    let mut messages = Vec::new();
    let name = format!("{} {}", package.name, package.version);
    if package.source.as_deref() != Some(SOURCE) {
        messages.push(format!("{name} does not come from crates.io"));
    }
    match &package.license {
        Some(licence) if is_allowed(licence) => {}
        Some(licence) => messages.push(format!("{name} has the licence {licence}, which is not allowed")),
        None => messages.push(format!("{name} names no licence")),
    }
    if let Some((_, reason)) = BANNED.iter().find(|(banned, _)| *banned == package.name) {
        messages.push(format!("{name} is banned: {reason}"));
    }
    messages
}

/// Parses the expression leniently (`MIT/Apache-2.0` is an old spelling of OR). An invalid expression is not allowed.
fn is_allowed(licence: &str) -> bool {
    spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX).is_ok_and(|expression| {
        expression
            .evaluate(|requirement| requirement.license.id().is_some_and(|id| ALLOWED.contains(&id.name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: Option<&str>, source: &str) -> Package {
        Package {
            name: name.into(),
            version: "1.0.0".into(),
            license: licence.map(Into::into),
            source: Some(source.into()),
            dependencies: Vec::new(),
            features: Default::default(),
        }
    }

    #[test]
    fn usual_licences_are_allowed() {
        for licence in [
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "Apache-2.0 / MIT",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0-only",
            "(MIT OR GPL-2.0) AND Unicode-3.0",
        ] {
            assert_eq!(check_package(&package("a", Some(licence), SOURCE)), [""; 0], "{licence}");
        }
    }

    #[test]
    fn a_licence_that_asks_for_more_is_found() {
        for licence in ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "LicenseRef-mine", "no licence at all"] {
            assert_eq!(check_package(&package("a", Some(licence), SOURCE)).len(), 1, "{licence}");
        }
        assert_eq!(check_package(&package("a", None, SOURCE)), ["a 1.0.0 names no licence"]);
    }

    #[test]
    fn a_foreign_source_and_a_banned_crate_are_found() {
        let git = package("a", Some("MIT"), "git+https://example.org/a");
        assert_eq!(check_package(&git), ["a 1.0.0 does not come from crates.io"]);
        assert_eq!(check_package(&package("chrono", Some("MIT"), SOURCE)).len(), 1);
    }
}
