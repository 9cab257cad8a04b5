//! Rules that give the holder of a token its tenants and roles by the token's claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::edge::auth::Grants;

/// What the holder of a token may do whose claims have these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRule {
    /// Names of claims, or JSON pointers to nested ones, with the values that they must have. A value that ends with `*`
    /// stands for all values that begin like it.
    pub claims: BTreeMap<String, String>,
    pub grants: Arc<Grants>,
}

impl ClaimRule {
    pub(super) fn applies_to(&self, claims: &Map<String, Value>) -> bool {
        self.claims.iter().all(|(name, pattern)| find(claims, name).is_some_and(|claim| has(claim, pattern)))
    }
}

fn find<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let Some(pointer) = name.strip_prefix('/') else { return claims.get(name) };
    let mut parts = pointer.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
    let first = claims.get(&parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(&part))
}

/// Whether a claim has the value. Of a list, one element must have it.
fn has(claim: &Value, pattern: &str) -> bool {
    match claim {
        Value::String(text) => matches(text, pattern),
        Value::Bool(_) | Value::Number(_) => matches(&claim.to_string(), pattern),
        Value::Array(list) => list.iter().any(|element| !element.is_array() && has(element, pattern)),
        Value::Null | Value::Object(_) => false,
    }
}

/// Whether a text has the value of a rule.
pub(in crate::edge) fn matches(text: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => text.starts_with(prefix),
        None => text == pattern,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applies(rule: &[(&str, &str)], claims: Value) -> bool {
        let claims_of_rule = rule.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let rule = ClaimRule { claims: claims_of_rule.collect(), grants: Arc::default() };
        rule.applies_to(claims.as_object().unwrap())
    }

    #[test]
    fn every_claim_of_a_rule_must_have_its_value() {
        let github = json!({ "repository": "acme/app", "ref": "refs/heads/main", "run_attempt": 1 });
        assert!(applies(&[("repository", "acme/app"), ("ref", "refs/heads/main")], github.clone()));
        assert!(applies(&[("repository", "acme/*"), ("run_attempt", "1")], github.clone()));
        assert!(!applies(&[("repository", "acme/app"), ("ref", "refs/heads/dev")], github.clone()));
        assert!(!applies(&[("repository", "acme/ap")], github.clone()), "no part of a value will do");
        assert!(!applies(&[("actor", "*")], github), "the claim must be there");
    }

    #[test]
    fn lists_and_nested_claims_are_found() {
        let kubernetes = json!({ "aud": ["a", "b"], "kubernetes.io": { "namespace": "ci", "pod": null } });
        assert!(applies(&[("aud", "b"), ("/kubernetes.io/namespace", "ci")], kubernetes.clone()));
        assert!(!applies(&[("/kubernetes.io/namespace/x", "ci")], kubernetes.clone()));
        assert!(!applies(&[("/kubernetes.io/pod", "*")], kubernetes.clone()));
        assert!(!applies(&[("kubernetes.io", "*")], kubernetes));
        assert!(!applies(&[("aud", "b")], json!({ "aud": [["b"]] })));
    }
}
