//! `cargo xtask sbom`: prints a software bill of materials, CycloneDX as JSON.
//!
//! It has every crate of Cargo.lock with its checksum, and what `cargo metadata` knows of those that this platform builds:
//! licence, description and repository. The scope says which of them are in the binary. It has no time and no random
//! number, so that the same sources give the same document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::lock_file::{LockFile, LockedPackage};
use crate::steps::{cargo, host, output};

const PRODUCT: &str = "lessor";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn run(root: &Path) -> Result<()> {
    println!("{:#}", load(root)?);
    Ok(())
}

/// Checks that the bill can be made, and has everything.
pub(crate) fn check(root: &Path) -> Result<()> {
    let bill = load(root)?;
    let components = bill["components"].as_array().map_or(0, Vec::len);
    println!("the bill of materials has {components} components");
    Ok(())
}

fn load(root: &Path) -> Result<Value> {
    let lock = LockFile::load(root)?;
    let host = host()?;
    let json = output(cargo(root).args(["metadata", "--format-version", "1", "--filter-platform", &host]))?;
    let metadata = serde_json::from_str(&json).context("cannot read `cargo metadata`")?;
    let document = document(&lock, &metadata)?;
    let faults = faults(&document, &lock);
    ensure!(faults.is_empty(), "the bill of materials is wrong:\n{}", faults.join("\n"));
    Ok(document)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    repository: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// None for a normal dependency.
    kind: Option<String>,
}

fn document(lock: &LockFile, metadata: &Metadata) -> Result<Value> {
    let product = lock.packages.iter().find(|package| package.name == PRODUCT && package.source.is_none());
    let product = product.context("Cargo.lock does not have the product")?;
    let known: BTreeMap<(&str, &str), &Package> = metadata
        .packages
        .iter()
        .map(|package| ((package.name.as_str(), package.version.as_str()), package))
        .collect();
    let shipped = shipped(metadata);
    let of = |package: &LockedPackage| {
        let known = known.get(&(package.name.as_str(), package.version.as_str())).copied();
        let is_shipped = known.is_some_and(|known| shipped.contains(known.id.as_str()));
        component(package, known, is_shipped)
    };
    let others = lock.packages.iter().filter(|package| package.name != PRODUCT || package.source.is_some());
    let dependencies = lock.packages.iter().map(|package| {
        let mut on: Vec<String> = lock.dependencies_of(package).map(reference).collect();
        on.sort();
        json!({ "ref": reference(package), "dependsOn": on })
    });
    let mut root = of(product);
    root["type"] = "application".into();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": root,
            "tools": { "components": [{ "type": "application", "name": "cargo xtask sbom" }] },
        },
        "components": others.map(of).collect::<Vec<_>>(),
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

/// The ids of the packages that the product needs when it runs, and of those that were part of making their code.
fn shipped(metadata: &Metadata) -> BTreeSet<&str> {
    let product = metadata.packages.iter().find(|package| package.name == PRODUCT);
    let mut rest: Vec<&str> = product.map(|package| package.id.as_str()).into_iter().collect();
    let mut shipped = BTreeSet::new();
    while let Some(id) = rest.pop() {
        if !shipped.insert(id) {
            continue;
        }
        let node = metadata.resolve.nodes.iter().find(|node| node.id == id);
        let normal = node.into_iter().flat_map(|node| &node.deps).filter(|dependency| {
            dependency.dep_kinds.is_empty() || dependency.dep_kinds.iter().any(|kind| kind.kind.is_none())
        });
        rest.extend(normal.map(|dependency| dependency.pkg.as_str()));
    }
    shipped
}

fn component(package: &LockedPackage, known: Option<&Package>, is_shipped: bool) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version,
        "scope": if is_shipped { "required" } else { "excluded" },
    });
    if package.source.as_deref() == Some(CRATES_IO) {
        component["purl"] = reference(package).into();
    }
    if let Some(checksum) = &package.checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    let Some(known) = known else { return component };
    if let Some(licence) = &known.license {
        // The standard knows only the newer spelling.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(description) = &known.description {
        component["description"] = description.split_whitespace().collect::<Vec<_>>().join(" ").into();
    }
    if let Some(repository) = &known.repository {
        component["externalReferences"] = json!([{ "type": "vcs", "url": repository }]);
    }
    component
}

/// What the document lacks of the lock file, and references in it that lead nowhere.
fn faults(document: &Value, lock: &LockFile) -> Vec<String> {
    let list = |name: &str| document[name].as_array().map_or(&[][..], Vec::as_slice);
    let all: Vec<&Value> = list("components").iter().chain([&document["metadata"]["component"]]).collect();
    let references: BTreeSet<&str> = all.iter().filter_map(|it| it["bom-ref"].as_str()).collect();
    let mut faults = Vec::new();
    if references.len() != all.len() || all.len() != lock.packages.len() {
        faults.push(format!("{} components for {} packages", references.len(), lock.packages.len()));
    }
    for package in &lock.packages {
        let name = reference(package);
        let component = all.iter().find(|it| it["bom-ref"] == *name);
        let is_whole = component.is_some_and(|it| {
            it["name"] == *package.name
                && it["version"] == *package.version
                && it["hashes"][0]["content"].as_str() == package.checksum.as_deref()
                && package.checksum.is_some() == package.source.is_some()
        });
        if !is_whole {
            faults.push(format!("{name} is missing, or has no checksum"));
        }
        if !list("dependencies").iter().any(|it| it["ref"] == *name) {
            faults.push(format!("the dependencies of {name} are missing"));
        }
    }
    for dependency in list("dependencies") {
        let on = dependency["dependsOn"].as_array().into_iter().flatten();
        let unknown = on.filter_map(Value::as_str).filter(|name| !references.contains(name));
        faults.extend(unknown.map(|name| format!("{name} is no component")));
    }
    faults
}

fn reference(package: &LockedPackage) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product with a normal dependency and one for tests.
    fn metadata() -> Metadata {
        let package = |name: &str, version: &str| {
            let licence = "MIT/Apache-2.0";
            json!({ "id": name, "name": name, "version": version, "license": licence, "description": "a\\n b" })
        };
        let kind = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        serde_json::from_value(json!({
            "packages": [package(PRODUCT, "0.1.0"), package("serde", "1.0.0"), package("proptest", "1.0.0")],
            "resolve": { "nodes": [
                { "id": PRODUCT, "deps": [kind("serde", Value::Null), kind("proptest", "dev".into())] },
                { "id": "serde", "deps": [] },
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn the_bill_is_well_formed_and_has_every_crate_of_the_lock_file_with_its_checksum() {
        let lock = LockFile::parse(include_str!("../../Cargo.lock")).unwrap();
        let mut document = document(&lock, &metadata()).unwrap();
        assert_eq!((&document["bomFormat"], &document["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        assert_eq!(faults(&document, &lock), [""; 0]);
        let removed = document["components"].as_array_mut().unwrap().remove(7);
        assert!(faults(&document, &lock).len() >= 2, "{removed}");
    }

    #[test]
    fn the_scope_tells_what_is_in_the_binary_and_licences_have_the_standard_spelling() {
        let text = "[[package]]\nname = \"lessor\"\nversion = \"0.1.0\"\ndependencies = [\"serde\"]\n\
                    [[package]]\nname = \"proptest\"\nversion = \"1.0.0\"\nsource = \"s\"\n\
                    [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"s\"\n";
        let document = document(&LockFile::parse(text).unwrap(), &metadata()).unwrap();
        let scopes: Vec<_> =
            document["components"].as_array().unwrap().iter().map(|it| &it["scope"]).collect();
        assert_eq!(scopes, ["excluded", "required"]);
        assert_eq!(document["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(document["metadata"]["component"]["type"], "application");
    }
}
