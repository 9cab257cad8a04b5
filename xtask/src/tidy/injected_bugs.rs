//! Bugs can be injected in the simulator and nowhere else: no other crate switches on the feature that lets them in,
//! not even for its tests, so that every other build of the product is without them.

use super::Finding;
use super::repository::{Package, Repository};

/// The feature that lets bugs in.
const FEATURE: &str = "injected-bugs";
/// The one crate that may enable it.
const MAY_INJECT: &str = "simulator";

pub fn check(repository: &Repository) -> Vec<Finding> {
    repository.own_packages().flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Finding> {
    let finding = |message: String| Finding::new(format!("crates/{}/Cargo.toml", package.name), 0, message);
    let enabled = package.dependencies.iter().filter(|dependency| is_ours(&dependency.features));
    let asked = enabled
        .filter(|_| package.name != MAY_INJECT)
        .map(|dependency| format!("`{}` enables `{FEATURE}` of `{}`", package.name, dependency.name));
    // A feature that brings it along, the default one before all, would enable it behind the manifests' back.
    let passed_on = package
        .features
        .iter()
        .filter(|(_, brings)| is_ours(brings))
        .map(|(name, _)| format!("the feature `{name}` of `{}` brings `{FEATURE}` along", package.name));
    asked.chain(passed_on).map(finding).collect()
}

/// Whether the feature is among these, by itself or as another crate's.
fn is_ours(features: &[String]) -> bool {
    features.iter().any(|feature| feature.rsplit(['/', ':']).next() == Some(FEATURE))
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::own_package;
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
    fn no_feature_brings_bugs_along() {
        for brings in ["authority/injected-bugs", "injected-bugs", "authority?/injected-bugs"] {
            let mut package = own_package("ledger", &["./authority"]);
            package.features.insert("default".into(), vec![brings.into()]);
            assert_eq!(check_package(&package).len(), 1, "{brings}");
        }
        let mut package = own_package("authority", &[]);
        package.features.insert(FEATURE.into(), vec![]);
        assert_eq!(check_package(&package), []);
    }
}
