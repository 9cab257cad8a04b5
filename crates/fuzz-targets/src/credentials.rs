//! Credentials: headers, tokens of other issuers, key sets, certificates, signatures and sealed secrets.

use std::fs;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use lessor_sdk::fuzzing as sdk;
use ring::signature::{Ed25519KeyPair, KeyPair};
use server::{Algorithm, ClaimRule, Grants, IssuerOptions, Issuers, KeySource, fuzzing};
use tokio::runtime::Runtime;

use crate::seeds::{self, texts, with_text};

const NOW_MS: u64 = 1_700_000_000_000;
const ISSUER: &str = "https://ci.example";
const HEADER: &str = r#"{"alg":"EdDSA","typ":"JWT","kid":"k1"}"#;
const CLAIMS: &str = r#"{"iss":"https://ci.example","aud":"lessor","sub":"repo:acme/app","repository":"acme/app","nbf":1700000000,"exp":1700000300}"#;
const KEY: &str = "lsk_0123456789abcdef_00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const MAX_NAME_CHARS: usize = 256;

/// A trusted issuer, and the runtime that reads its keys.
static ISSUERS: LazyLock<Option<(Runtime, Issuers)>> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let directory = seeds::directory().ok()?;
    let path = directory.path().join("keys.json");
    fs::write(&path, key_set_json()).ok()?;
    let rule = ClaimRule {
        claims: [("repository".into(), "acme/*".into()), ("/sub".into(), "*".into())].into(),
        grants: Arc::new(Grants::default()),
    };
    let options = IssuerOptions {
        issuer: ISSUER.into(),
        audiences: vec!["lessor".into()],
        algorithms: vec![Algorithm::EdDSA],
        keys: KeySource::File(path),
        name_claim: "sub".into(),
        rules: vec![rule],
    };
    let issuers = runtime.block_on(async { Issuers::start(vec![options]) }).ok()?;
    Some((runtime, issuers))
});

fn signer() -> Option<Ed25519KeyPair> {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).ok()
}

fn key_set_json() -> String {
    let public = signer().map(|signer| URL_SAFE_NO_PAD.encode(signer.public_key())).unwrap_or_default();
    format!(
        r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"k1","alg":"EdDSA","use":"sig","x":"{public}"}}]}}"#
    )
}

fn token(header: &[u8], claims: &[u8]) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = signer().map(|signer| URL_SAFE_NO_PAD.encode(signer.sign(signed.as_bytes())));
    format!("{signed}.{}", signature.unwrap_or_default())
}

fn verify(token: &str) {
    let Some((runtime, issuers)) = &*ISSUERS else { panic!("the issuer is not there") };
    if let Some((name, issuer, end)) = runtime.block_on(fuzzing::verified_token(issuers, token, NOW_MS)) {
        assert!(issuer == ISSUER && end > NOW_MS, "{issuer} until {end}");
        assert!(name.chars().count() <= MAX_NAME_CHARS, "a name of {} bytes", name.len());
    }
}

/// A token as its bearer sends it. Nobody but the issuer can make a good one.
pub(crate) fn issuer_token(input: &[u8]) {
    with_text(input, verify);
}

pub(crate) fn issuer_tokens() -> Vec<Vec<u8>> {
    texts([token(HEADER.as_bytes(), CLAIMS.as_bytes())])
}

/// Claims that the issuer has signed, so that a fuzzer gets behind the signature.
pub(crate) fn issuer_claims(input: &[u8]) {
    verify(&token(HEADER.as_bytes(), input));
}

pub(crate) fn claims() -> Vec<Vec<u8>> {
    let list = CLAIMS.replace(r#""aud":"lessor""#, r#""aud":["x","lessor"]"#);
    texts([CLAIMS.to_owned(), list, CLAIMS.replace("1700000300", "1700000300.5")])
}

/// Headers that the issuer has signed.
pub(crate) fn issuer_header(input: &[u8]) {
    verify(&token(input, CLAIMS.as_bytes()));
}

pub(crate) fn headers() -> Vec<Vec<u8>> {
    texts([HEADER, r#"{"alg":"none"}"#, r#"{"alg":"EdDSA","crit":["x"]}"#])
}

pub(crate) fn key_set(input: &[u8]) {
    fuzzing::key_set(input);
}

pub(crate) fn key_sets() -> Vec<Vec<u8>> {
    const RSA: &str = r#"{"keys":[{"kty":"RSA","kid":"a","alg":"RS256","use":"sig","n":"AQAB","e":"AQAB"}]}"#;
    texts([key_set_json(), RSA.to_owned()])
}

pub(crate) fn authorization(input: &[u8]) {
    fuzzing::authorization(input);
}

pub(crate) fn authorizations() -> Vec<Vec<u8>> {
    let basic = format!("Basic {}", STANDARD.encode(format!("user:{KEY}")));
    texts([KEY.to_owned(), format!("Bearer {KEY}"), basic, "Bearer a.b.c".to_owned()])
}

pub(crate) fn tls_files(input: &[u8]) {
    fuzzing::tls_files(input);
}

pub(crate) fn pem_files() -> Vec<Vec<u8>> {
    vec![include_bytes!("../fixtures/server.pem").to_vec()]
}

pub(crate) fn client_certificate(input: &[u8]) {
    fuzzing::certificate_holder(input);
}

pub(crate) fn certificates() -> Vec<Vec<u8>> {
    let certificate = include_bytes!("../fixtures/certificate.der");
    assert!(fuzzing::certificate_holder(certificate), "the seed has a holder");
    vec![certificate.to_vec()]
}

/// A stored secret of a push target, and a secret to store.
pub(crate) fn push_secret(input: &[u8]) {
    with_text(input, |text| {
        let sealed = fuzzing::sealed_secret(text);
        assert!(sealed.is_some(), "a secret cannot be encrypted");
        assert_eq!(sealed.as_deref().and_then(fuzzing::opened_secret).as_deref(), Some(text));
        if let Some(opened) = fuzzing::opened_secret(text)
            && text.starts_with("sealed-")
            && opened != text
        {
            assert_eq!(
                fuzzing::sealed_secret(&opened).as_deref(),
                Some(text),
                "a secret is sealed in one way"
            );
        }
    });
}

pub(crate) fn push_secrets() -> Vec<Vec<u8>> {
    texts(
        fuzzing::sealed_secret("0123456789abcdef")
            .into_iter()
            .chain(["hush".to_owned(), "sealed-1:".to_owned()]),
    )
}

pub(crate) fn push_signature(input: &[u8]) {
    sdk::signature(input);
}

pub(crate) fn push_signatures() -> Vec<Vec<u8>> {
    texts([sdk::SIGNATURE])
}
