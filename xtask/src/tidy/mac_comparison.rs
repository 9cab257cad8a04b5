//! Checks that no MAC or signature is compared with `==`, which takes longer the more leading bytes are right. The libraries
//! compare in constant time: `verify_slice` of `hmac`, and `blake3::Hash`.

use super::Finding;
use super::repository::Repository;

/// What a file contains that computes MACs.
const KEYED: &[&str] = &["Hmac<", "Hmac::<", "new_keyed(", "keyed_hash("];
/// What MACs are called. A hash of the library has another name, and compares in constant time.
const NAMES: &[&str] = &["mac", "macs", "signature", "signatures", "tag"];
const COMPARISONS: &[&str] = &["==", "!=", ".eq(", ".ne(", ".cmp(", ".starts_with("];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust_files() {
        if !KEYED.iter().any(|keyed| file.text.contains(keyed)) {
            continue;
        }
        let tests = file.tests_start();
        for (number, line) in file.lines().take_while(|(number, _)| *number < tests) {
            if compares_mac(line) {
                findings.push(Finding::new(&file.path, number, "a MAC is compared byte by byte"));
            }
        }
    }
    findings
}

/// Whether a condition of the line compares something that is named like a MAC.
fn compares_mac(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.split("&&").flat_map(|part| part.split("||")).any(|condition| {
        let has_comparison = COMPARISONS.iter().any(|comparison| condition.contains(comparison));
        let mut words = condition.split(|c: char| !c.is_alphanumeric() && c != '_');
        has_comparison && words.any(|word| NAMES.contains(&word)) && !condition.contains(".len()")
    })
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    fn count(line: &str) -> usize {
        let text = format!("fn f() {{\n    let mac = Hmac::<Sha256>::new(key);\n    {line}\n}}\n");
        check(&with_file("crates/a/src/a.rs", &text)).len()
    }

    #[test]
    fn x2_a_mac_that_is_compared_byte_by_byte_is_found() {
        for line in
            ["ours == signature", "if mac != theirs {", "mac.starts_with(theirs)", "a && self.mac(x) == tag"]
        {
            assert_eq!(count(line), 1, "{line}");
        }
    }

    #[test]
    fn x2_libraries_and_lengths_may_compare() {
        for line in [
            "mac.verify_slice(&signature).is_ok()",
            "if signature.len() != 32 {",
            "!same(&self.mac(claim), mac) || claim[0] != VERSION",
            "padded(ours) == padded(theirs)",
            "// mac == other",
        ] {
            assert_eq!(count(line), 0, "{line}");
        }
        assert!(check(&with_file("crates/a/src/a.rs", "mac == other\n")).is_empty(), "it computes no MAC");
    }
}
