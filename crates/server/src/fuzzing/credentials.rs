//! Credentials: headers, tokens of other issuers, key sets, certificates and sealed secrets.

use std::sync::Arc;

use authority::{PushTarget, QueueKey, Time};
use axum::http::{HeaderMap, HeaderValue, header};
use jsonwebtoken::Header;

use crate::convert::push_secrets::PushSecrets;
use crate::edge::auth::certificate_rule::{CertificateAttribute, CertificateRule, CertificateRules};
use crate::edge::auth::credential::{self, Credential};
use crate::edge::auth::{Grants, NewKey};
use crate::edge::jwt::key_set::KeySet;
use crate::edge::jwt::{ALGORITHMS, Issuers, MAX_TOKEN_BYTES};
use crate::edge::tls::TlsFiles;
use crate::edge::tls::files::Contents;

use super::{SECRET, scope};

/// Longest name of a certificate's holder.
const MAX_HOLDER_BYTES: usize = 256;

/// Reads the header of a credential, as a header and as the text of an API key.
pub fn authorization(value: &[u8]) {
    if let Some(key) = std::str::from_utf8(value).ok().and_then(NewKey::parse) {
        assert!(key.text.expose().starts_with(&format!("lsk_{}_", key.id)), "the id is in the text");
    }
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
    let Some(header) = credential::header(&headers) else { panic!("the header is there") };
    match header.and_then(credential::parse) {
        Some(Credential::Key { id, .. }) => {
            assert!(id.len() == 16 && id.bytes().all(|c| c.is_ascii_hexdigit()), "{id:?} is an id");
        }
        Some(Credential::Token(token)) => {
            assert!(token.len() <= MAX_TOKEN_BYTES + 16 && Issuers::is_token(token));
        }
        None => {}
    }
}

/// Reads a JSON Web Key Set. A key is found only for its own family of algorithms.
pub fn key_set(json: &[u8]) {
    let Ok(keys) = KeySet::parse(json) else { return };
    for algorithm in ALGORITHMS {
        if let Some(key) = keys.find(&Header::new(algorithm)) {
            assert_eq!(key.family(), algorithm.family());
        }
    }
}

/// The name, the issuer and the end of a token that is good at this time.
pub async fn verified_token(issuers: &Issuers, token: &str, now: u64) -> Option<(String, String, u64)> {
    let identity = issuers.verify(token, Time(now)).await.ok()?;
    Some((identity.name.to_string(), identity.issuer.to_string(), identity.expires_at.0))
}

/// Loads the files of TLS, all three with the same content. The fingerprint names the content.
pub fn tls_files(pem: &[u8]) {
    let files = TlsFiles {
        certificate: "certificate".into(),
        key: "key".into(),
        client_ca: Some("ca".into()),
        require_client_certificate: true,
    };
    let contents =
        || Contents { certificate: pem.to_vec(), key: pem.to_vec(), client_ca: Some(pem.to_vec()) };
    if let Ok(loaded) = contents().load(&files) {
        assert!(loaded.client_verifier.is_some(), "a client CA asks for certificates");
        assert_eq!(loaded.fingerprint, contents().fingerprint());
    }
}

/// The name of a certificate's holder is printable and short, whatever the certificate says.
pub fn certificate_holder(der: &[u8]) -> bool {
    let rule = |attribute| CertificateRule {
        name: None,
        patterns: vec![(attribute, "*".into())],
        grants: Arc::new(Grants::default()),
    };
    let attributes = [
        CertificateAttribute::CommonName,
        CertificateAttribute::Dns,
        CertificateAttribute::Uri,
        CertificateAttribute::Email,
    ];
    let holders = attributes.map(|attribute| CertificateRules::from(vec![rule(attribute)]).holder(der));
    for holder in holders.iter().flatten() {
        let name = &holder.name;
        assert!(!name.is_empty() && name.len() <= MAX_HOLDER_BYTES && !name.chars().any(char::is_control));
    }
    holders.iter().any(Option::is_some)
}

fn queue() -> QueueKey {
    QueueKey { scope: scope(), name: "mail".into() }
}

fn target(secret: &str) -> PushTarget {
    PushTarget {
        url: "https://example.com/hook".into(),
        concurrency: 1,
        headers: Vec::new(),
        secret: Some(secret.into()),
    }
}

/// A text encrypted as the secret of a push target.
pub fn sealed_secret(text: &str) -> Option<String> {
    let sealed = PushSecrets::new(&SECRET).seal_target(&queue(), &target(text)).ok()?;
    sealed.secret.map(|secret| secret.to_string())
}

/// The text of an encrypted secret, or a text of an earlier version as it is.
pub fn opened_secret(stored: &str) -> Option<String> {
    let opened = PushSecrets::new(&SECRET).open_target(&queue(), &target(stored)).ok()?;
    opened.secret.map(|secret| secret.to_string())
}
