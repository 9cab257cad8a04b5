//! X1 and X2: keys and headers that admit nobody, each by name. The answer is the same 401 for all, and nothing changes.

use bazel_remote_apis::build::bazel::remote::execution::v2::GetCapabilitiesRequest;
use bazel_remote_apis::build::bazel::remote::execution::v2::capabilities_client::CapabilitiesClient;
use jiff::SignedDuration;
use serde_json::json;

use crate::guarded::Guarded;
use crate::keyed::{channel, with_key};
use crate::refused_everywhere::{Refusals, basic};

/// The case that is no key at all.
const TOKEN: &str = "a JSON Web Token without a signature";

/// The values of the header `authorization`, with a name for each case.
fn hostile(key: &str, other: &str, revoked: &str, expired: &str) -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let (head, secret) = key.rsplit_once('_').unwrap();
    let id = head.strip_prefix("lsk_").unwrap();
    let other_secret = other.rsplit_once('_').unwrap().1;
    let bearer = |key: String| vec![format!("Bearer {key}").into_bytes()];
    let value = |value: String| vec![value.into_bytes()];
    let flipped = {
        let last = if secret.ends_with('0') { "1" } else { "0" };
        format!("{head}_{}{last}", &secret[..63])
    };
    vec![
        ("no header", vec![]),
        ("an empty header", value(String::new())),
        ("a space", value(" ".into())),
        ("the scheme alone", value("Bearer".into())),
        ("the scheme and a space", value("Bearer ".into())),
        ("the key without a scheme", value(key.into())),
        ("another scheme", value(format!("Digest {key}"))),
        ("the scheme of tokens", value(format!("Token {key}"))),
        ("a scheme that only begins like bearer", value(format!("Bearers {key}"))),
        ("a tab instead of a space", value(format!("Bearer\t{key}"))),
        ("a colon behind the scheme", value(format!("Bearer: {key}"))),
        ("two keys in one header", bearer(format!("{key} {key}"))),
        ("two keys with a comma", bearer(format!("{key},{key}"))),
        ("two headers with the same key", vec![bearer(key.into()).remove(0), bearer(key.into()).remove(0)]),
        (
            "two headers with different keys",
            vec![bearer(key.into()).remove(0), bearer(other.into()).remove(0)],
        ),
        ("one bit of the secret flipped", bearer(flipped)),
        ("the secret of another key", bearer(format!("{head}_{other_secret}"))),
        ("the id of no key", bearer(format!("lsk_{}_{secret}", "0".repeat(16)))),
        ("a revoked key", bearer(revoked.into())),
        ("an expired key", bearer(expired.into())),
        ("the key in upper case", bearer(key.to_uppercase())),
        ("the secret in upper case", bearer(format!("{head}_{}", secret.to_uppercase()))),
        ("the prefix in upper case", bearer(key.replacen("lsk", "LSK", 1))),
        ("another prefix", bearer(key.replacen("lsk", "lsj", 1))),
        ("no prefix", bearer(key["lsk_".len()..].to_owned())),
        ("the id alone", bearer(id.into())),
        ("the id without a secret", bearer(format!("{head}_"))),
        ("the secret alone", bearer(secret.into())),
        ("a character too few", bearer(key[..key.len() - 1].to_owned())),
        ("a character too many", bearer(format!("{key}0"))),
        ("half a key", bearer(key[..key.len() / 2].to_owned())),
        ("the key twice", bearer(format!("{key}{key}"))),
        ("a secret of zeros", bearer(format!("{head}_{}", "0".repeat(64)))),
        ("a secret that is no hexadecimal", bearer(format!("{head}_{}", "g".repeat(64)))),
        ("a secret of underscores", bearer(format!("{head}_{}", "_".repeat(64)))),
        ("hyphens for underscores", bearer(key.replace('_', "-"))),
        ("quotes around the key", bearer(format!("\"{key}\""))),
        ("percent-encoded underscores", bearer(key.replace('_', "%5F"))),
        ("a path", bearer("../../lease.key".into())),
        ("an injection", bearer(format!("{id}' OR '1'='1"))),
        ("full-width letters", bearer(format!("ｌｓｋ_{id}_{secret}"))),
        ("a letter of another alphabet", bearer(key.replacen('s', "ѕ", 1))),
        ("bytes that are no UTF-8", vec![[b"Bearer ".as_slice(), &[0xff; 85]].concat()]),
        (
            "a byte with the highest bit in the secret",
            vec![[b"Bearer ".as_slice(), &key.as_bytes()[..84], &[0xe9]].concat()],
        ),
        ("a huge key", bearer("a".repeat(20_000))),
        ("a huge key with the right beginning", bearer(format!("{key}{}", "0".repeat(20_000)))),
        ("basic without anything", value("Basic".into())),
        ("basic with nothing", value("Basic ".into())),
        ("basic that is no base64", value("Basic !!!!".into())),
        ("basic with base64 of another alphabet", value(format!("Basic {}", "-_".repeat(40)))),
        ("basic without a colon", value(basic(key.as_bytes()))),
        ("basic with an empty password", value(basic(b"user:"))),
        ("basic with the key as the user", value(basic(format!("{key}:").as_bytes()))),
        ("basic with a colon before the key", value(basic(format!("user::{key}").as_bytes()))),
        ("basic with a NUL behind the key", value(basic(format!("user:{key}\0").as_bytes()))),
        ("basic with a NUL before the key", value(basic(format!("user:\0{key}").as_bytes()))),
        ("basic with a line break", value(basic(format!("user:{key}\n").as_bytes()))),
        ("basic with the key in plain", value(format!("Basic user:{key}"))),
        ("basic with a revoked key", value(basic(format!("user:{revoked}").as_bytes()))),
        (TOKEN, bearer("eyJhbGciOiJub25lIn0.eyJyb2xlIjoiYWRtaW4ifQ.".into())),
    ]
}

/// A key that has expired. It does so by the coordinator's clock, which is waited for; a life that was over before the key was
/// made is tried again, twice as long.
async fn expired(guarded: &Guarded) -> String {
    let mut life = SignedDuration::from_millis(100);
    loop {
        let at = jiff::Timestamp::now() + life;
        let key = json!({"name": "soon", "tenants": ["default"], "roles": ["submitter"], "expiresAt": at.to_string()});
        let made = guarded.post(&guarded.admin, "/v1/keys", key).await;
        if made.status == 201 {
            while guarded.served.running.handle.now().0 < at.as_millisecond() as u64 {
                tokio::task::yield_now().await;
            }
            return made.text("key");
        }
        made.is_problem(400, "invalid_field");
        assert_eq!(made.body["field"], "expiresAt", "{made:?}");
        life *= 2;
    }
}

#[tokio::test]
async fn x1_hostile_keys_and_headers_admit_nobody_by_any_protocol_and_change_nothing() {
    let guarded = Guarded::start().await;
    let key = guarded.key("good", "default", &["submitter", "reader"]).await;
    let other = guarded.key("other", "default", &["submitter"]).await;
    let (revoked, id) =
        guarded.create(json!({"name": "revoked", "tenants": ["default"], "roles": ["submitter"]})).await;
    let ended = guarded.request(&guarded.admin, "DELETE", &format!("/v1/keys/{id}")).send().await.unwrap();
    assert_eq!(ended.status(), 200);
    let expired = expired(&guarded).await;
    let position = guarded.served.position().await;
    let cases = hostile(&key, &other, &revoked, &expired);
    assert!(cases.len() >= 40, "{} cases", cases.len());
    let mut bodies = std::collections::BTreeSet::new();
    let refusals = Refusals::of(&guarded).await;
    for (name, values) in &cases {
        let body = refusals.expect(name, values).await;
        // Who sends no key, or a token instead, is told so.
        if !values.is_empty() && *name != TOKEN {
            bodies.insert(body);
        }
    }
    assert_eq!(bodies.len(), 1, "nobody learns which part of a key was right: {bodies:?}");
    assert_eq!(guarded.served.position().await, position, "nothing was recorded");
    let told = guarded.post(&key, "/v1/tasks", json!({"queue": "q", "payload": 1})).await;
    assert_eq!(told.status, 201, "the key itself is good: {told:?}");
    let worker = guarded.key("worker", "default", &["worker"]).await;
    let capabilities = with_key(&worker, GetCapabilitiesRequest::default());
    let told = CapabilitiesClient::new(channel(&guarded).await).get_capabilities(capabilities).await;
    assert!(told.is_ok(), "a key is good over gRPC: {told:?}");
    for spelled in [format!("bearer {key}"), format!("BEARER  {key}"), basic(format!(":{key}").as_bytes())] {
        let request = guarded.served.request("GET", "/v1/tasks").header("authorization", &spelled);
        assert_eq!(request.send().await.unwrap().status(), 200, "the scheme has no case");
    }
}
