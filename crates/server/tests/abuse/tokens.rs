//! JSON Web Tokens of a trusted issuer, against a server that needs a credential.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use authority::Role;
use bazel_remote_apis::build::bazel::remote::execution::v2::GetCapabilitiesRequest;
use bazel_remote_apis::build::bazel::remote::execution::v2::capabilities_client::CapabilitiesClient;
use serde_json::{Value, json};
use server::{Algorithm, AuthMode, ClaimRule, Grants, IssuerOptions, Issuers, KeySource, Limits, Options};

use crate::guarded::Guarded;
use crate::hostile_tokens::{HostileToken, Signer, claims, header, hostile_tokens, with};
use crate::keyed::{channel, with_key};
use crate::refused_everywhere::Refusals;
use crate::support::{Served, Told, send};

async fn get(served: &Served, token: &str, path: &str, tenant: Option<&str>) -> Told {
    let request = served.request("GET", path).bearer_auth(token);
    send(tenant.iter().fold(request, |request, tenant| request.header("lessor-tenant", *tenant))).await
}

/// An issuer whose key set is a file, and its key. Tokens of its repositories `acme/*` have these roles in the tenant acme.
fn issuer(directory: &Path, roles: Vec<Role>) -> (Signer, Issuers) {
    let (signer, file) = (Signer::new(), directory.join("jwks.json"));
    std::fs::write(&file, json!({ "keys": [signer.jwk("k1")] }).to_string()).unwrap();
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
    (signer, issuers.unwrap())
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
    let token = key.sign(&header(), &with(claims(now()), "sub", json!("job 7")));
    assert_eq!(get(&served, &token, "/v1/tasks", None).await.status, 200);
    assert_eq!(get(&served, &token, "/v1/tasks", Some("acme")).await.status, 200);
    let other = get(&served, &token, "/v1/tasks", Some("other")).await;
    assert_eq!(other.status, 403);
    assert!(other.text("detail").contains("the token of job 7 is not for the tenant other"), "{other:?}");
    let keys = get(&served, &token, "/v1/keys", None).await;
    assert_eq!(keys.status, 403);
    assert!(keys.text("detail").contains("the token of job 7 has reader"), "{keys:?}");
}

#[tokio::test]
async fn x1_hostile_tokens_admit_nobody_by_any_protocol() {
    let guarded = Guarded::start().await;
    let directory = tempfile::tempdir().unwrap();
    let (signer, issuers) = issuer(directory.path(), vec![Role::Submitter, Role::CacheWriter]);
    let options = Options { issuers, ..guarded.served.options.clone() };
    let guarded = guarded.restarted_with(options).await;
    let position = guarded.served.position().await;
    let tokens = hostile_tokens(&signer, now());
    assert!(tokens.len() >= 40, "{} tokens", tokens.len());
    let refusals = Refusals::of(&guarded).await;
    let mut bodies = BTreeSet::new();
    for HostileToken { name, token, refusal } in tokens {
        let name = format!("{name} ({refusal})");
        bodies.insert(refusals.expect(&name, &[format!("Bearer {token}").into_bytes()]).await);
    }
    // What is no token at all is taken for a key.
    assert!(bodies.len() <= 2, "nobody learns which part of a token was right: {bodies:?}");
    assert_eq!(guarded.served.position().await, position, "nothing was recorded");
    let good = signer.sign(&header(), &claims(now()));
    let told = guarded.post(&good, "/v1/tasks", json!({"queue": "q", "payload": 1})).await;
    assert_eq!(told.status, 201, "{told:?}");
    let capabilities = with_key(&good, GetCapabilitiesRequest::default());
    let told = CapabilitiesClient::new(channel(&guarded).await).get_capabilities(capabilities).await;
    assert!(told.is_ok(), "{told:?}");
}

/// A token chooses its name, and could otherwise act under the name of a key.
#[tokio::test]
async fn the_record_of_a_change_names_the_key_or_the_token_that_made_it() {
    let guarded = Guarded::start().await;
    let body = json!({"name": "job 7", "tenants": ["acme"], "roles": ["submitter", "operator"]});
    let (by_key, key_id) = guarded.create(body).await;
    let directory = tempfile::tempdir().unwrap();
    let (key, issuers) = issuer(directory.path(), vec![Role::Submitter, Role::Operator]);
    let by_token = key.sign(&header(), &with(claims(now()), "sub", json!("job 7")));
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
