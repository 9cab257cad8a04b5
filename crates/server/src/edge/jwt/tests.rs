//! Good and hostile tokens of an issuer with one key.

use std::sync::Arc;

use authority::{Role, Time};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const NOW_S: u64 = 1_700_000_000;
const NOW: Time = Time(NOW_S * 1_000);

struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Signer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random);
        Signer(key.unwrap())
    }

    fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn jwk(&self, id: &str) -> Value {
        let (x, y) = self.public()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "use": "sig", "x": x, "y": y })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn header() -> Value {
    json!({ "alg": "ES256", "typ": "JWT", "kid": "k1" })
}

fn claims() -> Value {
    json!({
        "iss": "https://ci.example", "aud": "lessor", "sub": "repo:acme/app", "repository": "acme/app",
        "iat": NOW_S, "nbf": NOW_S, "exp": NOW_S + 300,
    })
}

/// A document with one member changed, or removed by null.
fn with(mut document: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(document.as_object_mut().unwrap().remove(name)),
        value => document[name] = value,
    }
    document
}

fn grants() -> Arc<Grants> {
    let (tenants, roles) = (vec!["acme".into()], vec![Role::Builder]);
    Arc::new(Grants { tenants, roles, ..Grants::default() })
}

fn options(path: &std::path::Path) -> IssuerOptions {
    let rule = ClaimRule { claims: [("repository".into(), "acme/*".into())].into(), grants: grants() };
    IssuerOptions {
        issuer: "https://ci.example".into(),
        audiences: vec!["lessor".into()],
        algorithms: vec![Algorithm::ES256, Algorithm::RS256],
        keys: KeySource::File(path.to_owned()),
        name_claim: "sub".into(),
        rules: vec![rule],
    }
}

fn write(path: &std::path::Path, keys: Value) {
    std::fs::write(path, json!({ "keys": keys }).to_string()).unwrap();
}

fn start(signer: &Signer) -> (tempfile::TempDir, Issuers) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    write(&path, json!([signer.jwk("k1")]));
    let issuers = Issuers::start(vec![options(&path)]).unwrap();
    (directory, issuers)
}

#[tokio::test]
async fn a_token_of_a_trusted_issuer_has_the_rights_of_its_rule() {
    let signer = Signer::new();
    let (_directory, issuers) = start(&signer);
    let token = signer.sign(&header(), &claims());
    for _ in 0..2 {
        let identity = issuers.verify(&token, NOW).await.unwrap();
        assert_eq!((&*identity.name, &identity.grants), ("repo:acme/app", &grants()));
    }
    // Remembered or not, it ends with its time.
    assert!(issuers.verify(&token, NOW.plus_ms(359_999)).await.is_ok());
    assert_eq!(issuers.verify(&token, NOW.plus_ms(360_000)).await, Err(TokenRefusal::Expired));
    let lists = with(claims(), "aud", json!(["other", "lessor"]));
    assert!(issuers.verify(&signer.sign(&header(), &lists), NOW).await.is_ok());
    let without_id = with(header(), "kid", Value::Null);
    assert!(issuers.verify(&signer.sign(&without_id, &claims()), NOW).await.is_ok(), "there is one key");
}

#[tokio::test]
async fn x1_hostile_tokens_of_issuers_are_refused() {
    let (signer, other) = (Signer::new(), Signer::new());
    let (_directory, issuers) = start(&signer);
    let good = signer.sign(&header(), &claims());
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let header_with = |name, value| signer.sign(&with(header(), name, value), &claims());
    let claims_with = |name, value| signer.sign(&header(), &with(claims(), name, value));
    let hmac_with = |algorithm: &str, key: &[u8]| {
        let signed = unsigned(&with(header(), "alg", json!(algorithm)), &claims());
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    let none =
        |algorithm: &str| format!("{}.", unsigned(&with(header(), "alg", json!(algorithm)), &claims()));
    use TokenRefusal::{
        Algorithm, Audience, Claims, CriticalHeader, Expired, Malformed, NoRule, NotYetValid, Signature,
        UnknownIssuer, UnknownKey,
    };
    let nested = "[".repeat(5_000) + &"]".repeat(5_000);
    let nested = format!(
        "{}.{}.{signature}",
        URL_SAFE_NO_PAD.encode(header().to_string()),
        URL_SAFE_NO_PAD.encode(nested)
    );
    for (name, token, refusal) in [
        ("algorithm none", none("none"), Malformed),
        ("algorithm None", none("None"), Malformed),
        ("no algorithm", header_with("alg", Value::Null), Malformed),
        ("an algorithm that is a number", header_with("alg", json!(5)), Malformed),
        ("a public key as the secret of HS256", hmac_with("HS256", signer.public()), Algorithm),
        ("an empty secret of HS256", hmac_with("HS256", b""), Algorithm),
        ("the key of ES256 with RS256", header_with("alg", json!("RS256")), UnknownKey),
        ("an algorithm that is not allowed", header_with("alg", json!("ES384")), Algorithm),
        ("an extension that must be understood", header_with("crit", json!(["b64"])), CriticalHeader),
        ("a key id that does not exist", header_with("kid", json!("k2")), UnknownKey),
        ("a key id that is a path", header_with("kid", json!("../../k1")), UnknownKey),
        (
            "a key of its own in the header",
            other.sign(&with(header(), "jwk", other.jwk("k1")), &claims()),
            Signature,
        ),
        (
            "a place of keys in the header",
            other.sign(&with(header(), "jku", json!("https://evil.example")), &claims()),
            Signature,
        ),
        ("another key with the same id", other.sign(&header(), &claims()), Signature),
        ("another signature", format!("{signed}.{}", URL_SAFE_NO_PAD.encode([7; 64])), Signature),
        ("no signature", format!("{signed}."), Signature),
        ("half a signature", format!("{signed}.{}", &signature[..40]), Signature),
        (
            "the signature of other claims",
            format!("{}.{signature}", unsigned(&header(), &with(claims(), "sub", json!("root")))),
            Signature,
        ),
        ("two parts", signed.to_owned(), Malformed),
        ("four parts", format!("{good}.x"), Malformed),
        ("an empty token", String::new(), Malformed),
        ("dots", "..".to_owned(), Malformed),
        ("no base64", "a b.c d.e f".to_owned(), Malformed),
        (
            "a header that is a list",
            format!("{}.{}.x", URL_SAFE_NO_PAD.encode("[]"), URL_SAFE_NO_PAD.encode("{}")),
            Malformed,
        ),
        ("claims nested 5,000 deep", nested, Malformed),
        ("a huge token", claims_with("pad", json!("x".repeat(20_000))), Malformed),
        ("another issuer", claims_with("iss", json!("https://evil.example")), UnknownIssuer),
        ("the issuer with a slash", claims_with("iss", json!("https://ci.example/")), UnknownIssuer),
        ("a list of issuers", claims_with("iss", json!(["https://ci.example"])), Malformed),
        ("no issuer", claims_with("iss", Value::Null), Malformed),
        ("another audience", claims_with("aud", json!("other")), Audience),
        ("no audience", claims_with("aud", Value::Null), Audience),
        ("an empty list of audiences", claims_with("aud", json!([])), Audience),
        ("an audience that is a number", claims_with("aud", json!(1)), Audience),
        ("expired", claims_with("exp", json!(NOW_S - 60)), Expired),
        ("expired long ago", claims_with("exp", json!(0)), Expired),
        ("no end", claims_with("exp", Value::Null), Claims),
        ("an end that is text", claims_with("exp", json!("9999999999")), Claims),
        ("a negative end", claims_with("exp", json!(-1)), Claims),
        ("not valid yet", claims_with("nbf", json!(NOW_S + 61)), NotYetValid),
        ("a beginning that is text", claims_with("nbf", json!("0")), Claims),
        ("claims without a rule", claims_with("repository", json!("evil/app")), NoRule),
        ("a claim that is missing", claims_with("repository", Value::Null), NoRule),
        ("no name", claims_with("sub", Value::Null), Claims),
        ("a name that is a number", claims_with("sub", json!(0)), Claims),
    ] {
        assert_eq!(issuers.verify(&token, NOW).await, Err(refusal), "{name}");
    }
    assert!(issuers.verify(&good, NOW).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rotated_key_is_read_when_a_token_names_it() {
    let (old, new) = (Signer::new(), Signer::new());
    let (directory, issuers) = start(&old);
    let token = new.sign(&with(header(), "kid", json!("k2")), &claims());
    assert_eq!(issuers.verify(&token, NOW).await, Err(TokenRefusal::UnknownKey));
    write(&directory.path().join("jwks.json"), json!([old.jwk("k1"), new.jwk("k2")]));
    assert_eq!(issuers.verify(&token, NOW).await, Err(TokenRefusal::UnknownKey), "it was just read");
    tokio::time::advance(jwks_source::MIN_REFRESH).await;
    assert!(issuers.verify(&token, NOW).await.is_ok());
    std::fs::write(directory.path().join("jwks.json"), "broken").unwrap();
    tokio::time::advance(jwks_source::REFRESH * 2).await;
    let other = new.sign(&with(header(), "kid", json!("k3")), &claims());
    assert_eq!(issuers.verify(&other, NOW).await, Err(TokenRefusal::UnknownKey));
    let again = new.sign(&with(header(), "kid", json!("k2")), &with(claims(), "sub", json!("again")));
    assert!(issuers.verify(&again, NOW).await.is_ok(), "the last keys stay in use");
}

#[tokio::test]
async fn a_file_of_keys_that_cannot_be_read_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("jwks.json");
    let error = |path: &std::path::Path| Issuers::start(vec![options(path)]).err().unwrap();
    assert!(error(&path).contains("jwks.json"), "{}", error(&path));
    std::fs::write(&path, "{}").unwrap();
    assert!(error(&path).contains("Key Set"), "{}", error(&path));
}

/// Answers every request over TLS with this text.
async fn serve_text(listener: TcpListener, config: ServerConfig, text: String) {
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // A client that does not trust the certificate goes away.
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { break };
            head.push(byte);
        }
        let answer =
            format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

#[tokio::test]
async fn a_key_set_is_fetched_from_a_server_whose_ca_only_the_issuer_names() {
    let signer = Signer::new();
    let directory = tempfile::tempdir().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], private)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/jwks", listener.local_addr().unwrap().port());
    let set = json!({ "keys": [signer.jwk("k1")] }).to_string();
    let serving = tokio::spawn(serve_text(listener, config, set));
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, ca.pem()).unwrap();
    let verify = async |ca_file: Option<PathBuf>| {
        let keys = KeySource::Url { url: url.clone(), ca_file };
        let issuers = Issuers::start(vec![IssuerOptions { keys, ..options(directory.path()) }]).unwrap();
        issuers.verify(&signer.sign(&header(), &claims()), NOW).await.map(|_| ())
    };
    assert_eq!(verify(Some(ca_file.clone())).await, Ok(()));
    assert_eq!(verify(None).await, Err(TokenRefusal::UnknownKey));
    std::fs::write(&ca_file, "nothing").unwrap();
    let keys = KeySource::Url { url, ca_file: Some(ca_file) };
    let error = Issuers::start(vec![IssuerOptions { keys, ..options(directory.path()) }]).unwrap_err();
    assert!(error.contains("ca.pem: has no certificate in PEM"), "{error}");
    serving.abort();
}
