//! Rules that give the holder of a client certificate its name, tenants and roles by what the certificate says.
//!
//! Attributes are compared as the certificate has them, one by one; the text of a distinguished name is never searched, because
//! one attribute can look like another in it.

use std::sync::Arc;

use authority::Time;
use data_encoding::HEXLOWER;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use super::identity::{Grants, Identity};
use crate::convert::lease_id::hash_parts;
use crate::edge::jwt::matches;
use crate::edge::tls::PeerChain;

/// Longest value of an attribute that is compared.
const MAX_VALUE_BYTES: usize = 256;

/// What the holder of a certificate may do whose attributes have these values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRule {
    /// How the holder is named; otherwise by the value that the first pattern matched.
    pub name: Option<Arc<str>>,
    /// All of them must match. A pattern that ends with `*` stands for all values that begin like it.
    pub patterns: Vec<(CertificateAttribute, String)>,
    pub grants: Arc<Grants>,
}

/// The attributes that rules go by. Of alternative names, which a certificate may have several of, one must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateAttribute {
    /// The common name of the subject. A certificate with several has none that counts.
    CommonName,
    /// Alternative names.
    Dns,
    Uri,
    Email,
}

/// The rules, of which the first that applies counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateRules(Arc<[CertificateRule]>);

/// The holder of a client certificate, for the requests of its connection that have no other credential.
#[derive(Clone)]
pub(crate) struct ByCertificate(pub(super) Arc<Identity>);

/// What a rule makes of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CertificateHolder {
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub grants: Arc<Grants>,
    pub expires_at: Time,
}

impl From<Vec<CertificateRule>> for CertificateRules {
    fn from(rules: Vec<CertificateRule>) -> CertificateRules {
        CertificateRules(rules.into())
    }
}

impl CertificateRules {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The identity of a client, if a rule applies to its certificate.
    pub(crate) fn identify(&self, chain: Arc<PeerChain>) -> Option<ByCertificate> {
        if self.is_empty() {
            return None;
        }
        let holder = self.holder(chain.leaf()?)?;
        Some(ByCertificate(Arc::new(Identity::of_certificate(holder, chain))))
    }

    pub(crate) fn holder(&self, certificate: &[u8]) -> Option<CertificateHolder> {
        let (_, certificate) = parse_x509_certificate(certificate).ok()?;
        let applied = self.0.iter().find_map(|rule| Some((rule, rule.values(&certificate)?)));
        let (rule, values) = applied?;
        let name = rule.name.clone().or_else(|| values.first().map(|value| Arc::from(&**value)))?;
        // Of the values that matched, so that a renewed certificate is the same holder's, and another machine's is not.
        let parts = rule
            .patterns
            .iter()
            .zip(&values)
            .flat_map(|((attribute, _), value)| [attribute.name().as_bytes(), value.as_bytes()]);
        let id = HEXLOWER.encode(&hash_parts(blake3::Hasher::new(), parts));
        // The last second counts.
        let end = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0).saturating_add(1);
        let expires_at = Time(end.saturating_mul(1_000));
        Some(CertificateHolder {
            id: format!("certificate {id}").into(),
            name,
            grants: rule.grants.clone(),
            expires_at,
        })
    }
}

impl CertificateRule {
    /// The value that each pattern matched; none if one of them matched nothing.
    fn values(&self, certificate: &X509Certificate<'_>) -> Option<Vec<String>> {
        let value = |(attribute, pattern): &(CertificateAttribute, String)| {
            let values = attribute.values(certificate);
            values.into_iter().find(|value| is_plain(value) && attribute.matches(value, pattern))
        };
        self.patterns.iter().map(value).collect()
    }
}

impl CertificateAttribute {
    fn name(self) -> &'static str {
        match self {
            CertificateAttribute::CommonName => "common name",
            CertificateAttribute::Dns => "dns",
            CertificateAttribute::Uri => "uri",
            CertificateAttribute::Email => "email",
        }
    }

    fn matches(self, value: &str, pattern: &str) -> bool {
        match self {
            // The names of hosts are the same in any case.
            CertificateAttribute::Dns => matches(&value.to_ascii_lowercase(), &pattern.to_ascii_lowercase()),
            _ => matches(value, pattern),
        }
    }

    fn values(self, certificate: &X509Certificate<'_>) -> Vec<String> {
        if self == CertificateAttribute::CommonName {
            let mut names = certificate.subject().iter_common_name();
            let only = names.next().filter(|_| names.next().is_none());
            return only.and_then(|name| name.as_str().ok()).map(str::to_owned).into_iter().collect();
        }
        let Ok(Some(extension)) = certificate.subject_alternative_name() else { return Vec::new() };
        let names = extension.value.general_names.iter().filter_map(|name| match (self, name) {
            (CertificateAttribute::Dns, GeneralName::DNSName(name))
            | (CertificateAttribute::Uri, GeneralName::URI(name))
            | (CertificateAttribute::Email, GeneralName::RFC822Name(name)) => Some((*name).to_owned()),
            _ => None,
        });
        names.collect()
    }
}

/// Names are logged and recorded.
fn is_plain(value: &str) -> bool {
    !value.is_empty() && value.len() <= MAX_VALUE_BYTES && !value.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::CertificateAttribute::{CommonName, Dns, Email, Uri};
    use super::*;

    /// A certificate with this common name and these alternative names.
    fn certificate(common_name: Option<&str>, names: &[SanType]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "CN=admin");
        if let Some(name) = common_name {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.subject_alt_names = names.to_vec();
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn text(text: &str) -> Ia5String {
        Ia5String::try_from(text).unwrap()
    }

    /// The name that rules of these patterns give to a certificate.
    fn name(patterns: &[(CertificateAttribute, &str)], certificate: &[u8]) -> Option<String> {
        let patterns = patterns.iter().map(|(attribute, pattern)| (*attribute, (*pattern).to_owned()));
        let rule = CertificateRule { name: None, patterns: patterns.collect(), grants: Arc::default() };
        CertificateRules::from(vec![rule]).holder(certificate).map(|holder| holder.name.to_string())
    }

    #[test]
    fn every_pattern_of_a_rule_must_match_an_attribute_of_its_kind() {
        let names = [
            SanType::DnsName(text("W1.example.com")),
            SanType::DnsName(text("alias.example.com")),
            SanType::URI(text("spiffe://example.com/worker")),
            SanType::Rfc822Name(text("ada@example.com")),
        ];
        let holder = certificate(Some("worker 1"), &names);
        let is_known = |patterns: &[(CertificateAttribute, &str)]| name(patterns, &holder).is_some();
        assert_eq!(name(&[(CommonName, "worker *")], &holder).as_deref(), Some("worker 1"));
        assert_eq!(name(&[(Dns, "w1.example.com")], &holder).as_deref(), Some("W1.example.com"));
        assert!(is_known(&[(Dns, "alias.example.com"), (Uri, "spiffe://example.com/*")]));
        assert!(is_known(&[(Email, "ada@example.com"), (CommonName, "worker 1")]));
        assert!(!is_known(&[(Email, "ada@example.com"), (CommonName, "worker 2")]), "all must match");
        assert!(!is_known(&[(CommonName, "worker")]), "no part of a value will do");
        assert!(!is_known(&[(CommonName, "admin")]), "text of another attribute is not a common name");
        assert!(!is_known(&[(Uri, "ada@example.com")]), "the kind counts");
    }

    #[test]
    fn a_certificate_without_the_attribute_or_with_control_characters_is_nobodys() {
        assert_eq!(name(&[(CommonName, "*")], &certificate(None, &[])), None);
        assert_eq!(name(&[(CommonName, "a\u{7}*")], &certificate(Some("a\u{7}b"), &[])), None);
        assert_eq!(name(&[(Dns, "*")], &certificate(Some("a"), &[])), None);
        assert_eq!(name(&[(CommonName, "*")], b"no certificate"), None);
    }

    #[test]
    fn a_renewed_certificate_is_of_the_same_holder_and_another_name_is_not() {
        let rules = CertificateRules::from(vec![CertificateRule {
            name: Some("workers".into()),
            patterns: vec![(Dns, "w*".to_owned())],
            grants: Arc::default(),
        }]);
        let holder =
            |dns: &str| rules.holder(&certificate(Some("x"), &[SanType::DnsName(text(dns))])).unwrap();
        assert_eq!(holder("w1"), holder("w1"));
        assert_ne!(holder("w1").id, holder("w2").id);
        assert_eq!(&*holder("w2").name, "workers");
    }
}
