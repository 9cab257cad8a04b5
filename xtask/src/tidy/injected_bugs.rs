//! Checks injected bugs. Only the simulator enables the feature: no other crate may enable it, not even for its tests, so
//! that no other build contains them. Only the `rules.rs` of a crate asks for a bug, so that all other code reads without
//! them.

use super::Finding;
use super::repository::{Package, Repository};

/// The feature that compiles injected bugs in.
const FEATURE: &str = "injected-bugs";
/// The only crate that may enable the feature.
const MAY_ENABLE: &str = "simulator";

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let enabled = repository.own_packages().flat_map(check_package);
    enabled.chain(inline_bugs(repository)).collect()
}

fn inline_bugs(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust_files().filter(|file| !may_ask(&file.path)) {
        for (number, _) in file.lines().filter(|(_, line)| line.contains("InjectedBug::")) {
            findings.push(Finding::new(&file.path, number, "an injected bug outside of `rules.rs`"));
        }
    }
    findings
}

fn may_ask(path: &str) -> bool {
    let is_product = path.starts_with("crates/") && !path.starts_with("crates/simulator/");
    !is_product || path.ends_with("/rules.rs") || path.ends_with("/injected_bug.rs")
}

fn check_package(package: &Package) -> Vec<Finding> {
    let finding = |message: String| Finding::new(format!("crates/{}/Cargo.toml", package.name), 0, message);
    let enabled = package.dependencies.iter().filter(|dependency| contains_feature(&dependency.features));
    let direct = enabled
        .filter(|_| package.name != MAY_ENABLE)
        .map(|dependency| format!("`{}` enables `{FEATURE}` of `{}`", package.name, dependency.name));
    // A feature that enables it in turn, such as `default`, would hide this from the manifests.
    let indirect = package
        .features
        .iter()
        .filter(|(_, enables)| contains_feature(enables))
        .map(|(name, _)| format!("the feature `{name}` of `{}` enables `{FEATURE}`", package.name));
    direct.chain(indirect).map(finding).collect()
}

/// Whether the list contains the feature, of this crate or of another.
fn contains_feature(features: &[String]) -> bool {
    features.iter().any(|feature| feature.rsplit(['/', ':']).next() == Some(FEATURE))
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::{own_package, with_file};
    use super::*;

    fn with_feature(package: &str, kind: Option<&str>) -> Package {
        let mut package = own_package(package, &["./authority"]);
        package.dependencies[0].features = vec![FEATURE.into()];
        package.dependencies[0].kind = kind.map(Into::into);
        package
    }

    #[test]
    fn only_the_simulator_may_inject_bugs() {
        assert_eq!(check_package(&with_feature("simulator", None)), []);
        for name in ["ledger", "coordinator", "server", "lessor", "chaos"] {
            assert_eq!(check_package(&with_feature(name, None)).len(), 1, "{name}");
            assert_eq!(check_package(&with_feature(name, Some("dev"))).len(), 1, "{name}, for its tests");
        }
    }

    #[test]
    fn only_rules_ask_for_injected_bugs() {
        let asks = "fn a() -> bool {\n    is(InjectedBug::LateReportCommits)\n}\n";
        assert_eq!(inline_bugs(&with_file("crates/ledger/src/file/scan.rs", asks)).len(), 1);
        for path in ["crates/ledger/src/file/rules.rs", "crates/simulator/src/bug.rs"] {
            assert_eq!(inline_bugs(&with_file(path, asks)), []);
        }
    }

    #[test]
    fn no_feature_enables_injected_bugs() {
        for enabled in ["authority/injected-bugs", "injected-bugs", "authority?/injected-bugs"] {
            let mut package = own_package("ledger", &["./authority"]);
            package.features.insert("default".into(), vec![enabled.into()]);
            assert_eq!(check_package(&package).len(), 1, "{enabled}");
        }
        let mut package = own_package("authority", &[]);
        package.features.insert(FEATURE.into(), vec![]);
        assert_eq!(check_package(&package), []);
    }
}
