//! Good and hostile tokens of an issuer with one key, and the key sets of issuers.

use std::sync::Arc;

use authority::{Role, Time};
use jsonwebtoken::Algorithm;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::hostile_tokens::{HostileToken, Signer, claims as claims_at, header, hostile_tokens, with};
use super::*;

const NOW_S: u64 = 1_700_000_000;
const NOW: Time = Time(NOW_S * 1_000);

fn claims() -> Value {
    claims_at(NOW_S)
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
    let signer = Signer::new();
    let (_directory, issuers) = start(&signer);
    for HostileToken { name, token, refusal } in hostile_tokens(&signer, NOW_S) {
        let refused = issuers.verify(&token, NOW).await.unwrap_err();
        assert_eq!(format!("{refused:?}"), refusal, "{name}");
    }
    assert!(issuers.verify(&signer.sign(&header(), &claims()), NOW).await.is_ok());
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
