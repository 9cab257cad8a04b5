//! The tables `auth.certificates` of the file: rules for the holders of client certificates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use server::{CertificateAttribute, CertificateRule};

use super::rights::Rights;

const MAX_RULES: usize = 1_000;

/// What the holder of a certificate may do whose attributes have these values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Rule {
    /// How messages and the audit log name the holder; otherwise by the value that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The common name of the subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub common_name: Option<String>,
    /// Alternative names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    pub tenants: Vec<String>,
    pub roles: Vec<String>,
    pub queues: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_prefix: Option<String>,
    /// The only properties that its workers may announce, each with its values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub properties: BTreeMap<String, Vec<String>>,
}

impl Rule {
    /// A rule in which no key is left out.
    pub(super) fn with_every_key() -> Rule {
        let text = || Some(String::new());
        let (name, common_name, dns, uri, email) = (text(), text(), text(), text(), text());
        let properties = [(String::new(), Vec::new())].into();
        Rule { name, common_name, dns, uri, email, worker_prefix: text(), properties, ..Rule::default() }
    }

    fn options(&self) -> Result<CertificateRule, String> {
        let patterns = [
            ("common_name", CertificateAttribute::CommonName, &self.common_name),
            ("dns", CertificateAttribute::Dns, &self.dns),
            ("uri", CertificateAttribute::Uri, &self.uri),
            ("email", CertificateAttribute::Email, &self.email),
        ];
        let given = patterns.into_iter().filter_map(|(key, attribute, pattern)| {
            pattern.as_ref().map(|pattern| match pattern.find('*') {
                _ if pattern.is_empty() => Err(format!("{key} is empty")),
                Some(at) if at + 1 < pattern.len() => {
                    Err(format!("{key} = {pattern:?}: a `*` may stand at the end only"))
                }
                _ => Ok((attribute, pattern.clone())),
            })
        });
        let patterns = given.collect::<Result<Vec<_>, _>>()?;
        if patterns.is_empty() {
            let what = "a rule without common_name, dns, uri or email would apply to every certificate";
            return Err(what.to_owned());
        }
        if self.name.as_ref().is_some_and(String::is_empty) {
            return Err("name is empty".to_owned());
        }
        let rights = Rights {
            tenants: &self.tenants,
            roles: &self.roles,
            queues: &self.queues,
            worker_prefix: self.worker_prefix.as_deref(),
            properties: &self.properties,
        };
        let grants = rights.grants()?.into();
        Ok(CertificateRule { name: self.name.as_deref().map(Into::into), patterns, grants })
    }
}

/// The options of all rules, or one message for each that is wrong.
pub(super) fn options(rules: &[Rule]) -> Result<Vec<CertificateRule>, Vec<String>> {
    let mut faults = Vec::new();
    let mut options = Vec::new();
    for rule in rules.iter().take(MAX_RULES) {
        match rule.options() {
            Ok(rule) => options.push(rule),
            Err(what) => faults.push(format!("auth.certificates: {what}")),
        }
    }
    if rules.len() > MAX_RULES {
        faults.push(format!("auth.certificates: there may be {MAX_RULES} rules"));
    }
    if faults.is_empty() { Ok(options) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_attributes_and_rights() {
        let (tenants, roles) = (vec!["acme".to_owned()], vec!["worker".to_owned()]);
        let good = Rule { dns: Some("w*".to_owned()), tenants, roles, ..Rule::default() };
        assert_eq!(good.options().unwrap().patterns, [(CertificateAttribute::Dns, "w*".to_owned())]);
        let with = |change: fn(&mut Rule)| {
            let mut rule = good.clone();
            change(&mut rule);
            options(&[rule]).unwrap_err().join("\n")
        };
        for (fault, named) in [
            (with(|rule| rule.dns = None), "would apply to every certificate"),
            (with(|rule| rule.dns = Some(String::new())), "dns is empty"),
            (with(|rule| rule.common_name = Some("*.example".to_owned())), "at the end only"),
            (with(|rule| rule.name = Some(String::new())), "name is empty"),
            (with(|rule| rule.roles.clear()), "permits nothing"),
            (with(|rule| rule.tenants.clear()), "names its tenants"),
            (with(|rule| rule.properties = [("os".to_owned(), Vec::new())].into()), "at least one value"),
        ] {
            assert!(fault.starts_with("auth.certificates: ") && fault.contains(named), "{fault}");
        }
    }
}
