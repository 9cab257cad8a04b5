//! JSON Web Tokens of a trusted issuer, against a server that needs a credential.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use authority::Role;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use server::{Algorithm, AuthMode, ClaimRule, Grants, IssuerOptions, Issuers, KeySource, Limits, Options};

use crate::guarded::Guarded;
use crate::support::{Served, Told, send};

fn sign(key: &EcdsaKeyPair, claims: &Value) -> String {
    let header = json!({ "alg": "ES256", "typ": "JWT", "kid": "k" });
    let signed = format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string())
    );
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

async fn get(served: &Served, token: &str, path: &str, tenant: Option<&str>) -> Told {
    let request = served.request("GET", path).bearer_auth(token);
    send(tenant.iter().fold(request, |request, tenant| request.header("lessor-tenant", *tenant))).await
}

/// An issuer whose key set is a file, and its key. Tokens of its repositories `acme/*` have these roles in the tenant acme.
fn issuer(directory: &Path, roles: Vec<Role>) -> (EcdsaKeyPair, Issuers) {
    let random = SystemRandom::new();
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
    let (x, y) = key.public_key().as_ref()[1..].split_at(32);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    let file = directory.join("jwks.json");
    let jwk = json!({ "kty": "EC", "crv": "P-256", "kid": "k", "x": x, "y": y });
    std::fs::write(&file, json!({ "keys": [jwk] }).to_string()).unwrap();
    let grants = Grants { tenants: vec!["acme".into()], roles, ..Grants::default() };
    let issuers = Issuers::start(vec![IssuerOptions {
        issuer: "https://ci.example".into(),
        audiences: vec!["lessor".into()],
        algorithms: vec![Algorithm::ES256],
        keys: KeySource::File(file),
        name_claim: "sub".into(),
        rules: vec![ClaimRule {
            claims: [("repository".into(), "acme/*".into())].into(),
            grants: Arc::new(grants),
        }],
    }]);
    (key, issuers.unwrap())
}

fn claims(repository: &str, audience: &str, expires_at: u64) -> Value {
    json!({
        "iss": "https://ci.example", "aud": audience, "sub": "job 7", "repository": repository, "exp": expires_at,
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[tokio::test]
async fn the_holder_of_a_token_has_the_roles_and_the_tenants_of_its_rule() {
    let directory = tempfile::tempdir().unwrap();
    let (key, issuers) = issuer(directory.path(), vec![Role::Reader]);
    let options = Options { auth: AuthMode::Keys, issuers, ..Options::default() };
    let served = Served::start_with_options(Limits::default(), options).await;
    let now = now();
    let token = sign(&key, &claims("acme/app", "lessor", now + 3_600));
    assert_eq!(get(&served, &token, "/v1/tasks", None).await.status, 200);
    assert_eq!(get(&served, &token, "/v1/tasks", Some("acme")).await.status, 200);
    let other = get(&served, &token, "/v1/tasks", Some("other")).await;
    assert_eq!(other.status, 403);
    assert!(other.text("detail").contains("the token of job 7 is not for the tenant other"), "{other:?}");
    let keys = get(&served, &token, "/v1/keys", None).await;
    assert_eq!(keys.status, 403);
    assert!(keys.text("detail").contains("the token of job 7 has reader"), "{keys:?}");
    for bad in [
        sign(&key, &claims("evil/app", "lessor", now + 3_600)),
        sign(&key, &claims("acme/app", "other", now + 3_600)),
        sign(&key, &claims("acme/app", "lessor", now - 3_600)),
        format!("{token}x"),
        "a.b.c".to_owned(),
    ] {
        let told = get(&served, &bad, "/v1/tasks", None).await;
        assert_eq!(told.status, 401, "{told:?}");
    }
}

/// A token chooses its name, and could otherwise act under the name of a key.
#[tokio::test]
async fn the_record_of_a_change_names_the_key_or_the_token_that_made_it() {
    let guarded = Guarded::start().await;
    let body = json!({"name": "job 7", "tenants": ["acme"], "roles": ["submitter", "operator"]});
    let (by_key, key_id) = guarded.create(body).await;
    let directory = tempfile::tempdir().unwrap();
    let (key, issuers) = issuer(directory.path(), vec![Role::Submitter, Role::Operator]);
    let by_token = sign(&key, &claims("acme/app", "lessor", now() + 3_600));
    let options = Options { auth: AuthMode::Keys, issuers, ..Options::default() };
    let guarded = guarded.restarted_with(options).await;
    for (credential, kind, id) in [(&by_key, "key", &*key_id), (&by_token, "token", "https://ci.example")] {
        let by = json!({"kind": kind, "id": id, "name": "job 7"});
        let made = guarded.post(credential, "/v1/tasks", json!({"queue": "q", "payload": 1})).await;
        let task = made.text("taskId");
        let told = guarded.post(credential, &format!("/v1/tasks/{task}/cancel"), json!({})).await;
        assert_eq!(told.status, 200, "{told:?}");
        let again = guarded.post(credential, &format!("/v1/tasks/{task}/redrive"), json!({})).await;
        assert_eq!(again.status, 201, "{again:?}");
        let events = |task: String| {
            let path = format!("/v1/tasks/{task}/history");
            async { guarded.get(credential, &{ path }).await.body["events"].clone() }
        };
        let cancelled = events(task).await;
        assert_eq!((&cancelled[0]["by"], &cancelled[1]["by"]), (&Value::Null, &by), "{cancelled}");
        assert_eq!(events(again.text("taskId")).await[0]["by"], by);
    }
}
