//! Tokens that admit nobody, each with a name and the reason of the refusal. The tests of the verifier and of the server share
//! the table.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

pub(crate) struct HostileToken {
    pub name: &'static str,
    pub token: String,
    /// The variant of `TokenRefusal`.
    pub refusal: &'static str,
}

/// An issuer with one key.
pub(crate) struct Signer(EcdsaKeyPair);

impl Signer {
    pub(crate) fn new() -> Signer {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random);
        Signer(key.unwrap())
    }

    fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    pub(crate) fn jwk(&self, id: &str) -> Value {
        let (x, y) = self.public()[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        json!({ "kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "use": "sig", "x": x, "y": y })
    }

    pub(crate) fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()))
}

pub(crate) fn header() -> Value {
    json!({ "alg": "ES256", "typ": "JWT", "kid": "k1" })
}

/// The claims of a good token.
pub(crate) fn claims(now_s: u64) -> Value {
    json!({
        "iss": "https://ci.example", "aud": "lessor", "sub": "repo:acme/app", "repository": "acme/app",
        "iat": now_s, "nbf": now_s, "exp": now_s + 300,
    })
}

/// A document with one member changed, or removed by null.
pub(crate) fn with(mut document: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(document.as_object_mut().unwrap().remove(name)),
        value => document[name] = value,
    }
    document
}

/// Hostile tokens for an issuer whose only key is `k1` of the signer.
pub(crate) fn hostile_tokens(signer: &Signer, now_s: u64) -> Vec<HostileToken> {
    let other = Signer::new();
    let claims = || claims(now_s);
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
    let nested = "[".repeat(5_000) + &"]".repeat(5_000);
    let nested = format!(
        "{}.{}.{signature}",
        URL_SAFE_NO_PAD.encode(header().to_string()),
        URL_SAFE_NO_PAD.encode(nested)
    );
    let cases = [
        ("algorithm none", none("none"), "Malformed"),
        ("algorithm None", none("None"), "Malformed"),
        ("no algorithm", header_with("alg", Value::Null), "Malformed"),
        ("an algorithm that is a number", header_with("alg", json!(5)), "Malformed"),
        ("a public key as the secret of HS256", hmac_with("HS256", signer.public()), "Algorithm"),
        ("an empty secret of HS256", hmac_with("HS256", b""), "Algorithm"),
        ("the key of ES256 with RS256", header_with("alg", json!("RS256")), "UnknownKey"),
        ("an algorithm that is not allowed", header_with("alg", json!("ES384")), "Algorithm"),
        ("an extension that must be understood", header_with("crit", json!(["b64"])), "CriticalHeader"),
        ("a key id that does not exist", header_with("kid", json!("k2")), "UnknownKey"),
        ("a key id that is a path", header_with("kid", json!("../../k1")), "UnknownKey"),
        (
            "a key of its own in the header",
            other.sign(&with(header(), "jwk", other.jwk("k1")), &claims()),
            "Signature",
        ),
        (
            "a place of keys in the header",
            other.sign(&with(header(), "jku", json!("https://evil.example")), &claims()),
            "Signature",
        ),
        ("another key with the same id", other.sign(&header(), &claims()), "Signature"),
        ("another signature", format!("{signed}.{}", URL_SAFE_NO_PAD.encode([7; 64])), "Signature"),
        ("no signature", format!("{signed}."), "Signature"),
        ("half a signature", format!("{signed}.{}", &signature[..40]), "Signature"),
        (
            "the signature of other claims",
            format!("{}.{signature}", unsigned(&header(), &with(claims(), "sub", json!("root")))),
            "Signature",
        ),
        ("two parts", signed.to_owned(), "Malformed"),
        ("four parts", format!("{good}.x"), "Malformed"),
        ("an empty token", String::new(), "Malformed"),
        ("dots", "..".to_owned(), "Malformed"),
        ("no base64", "a b.c d.e f".to_owned(), "Malformed"),
        (
            "a header that is a list",
            format!("{}.{}.x", URL_SAFE_NO_PAD.encode("[]"), URL_SAFE_NO_PAD.encode("{}")),
            "Malformed",
        ),
        ("claims nested 5,000 deep", nested, "Malformed"),
        ("a huge token", claims_with("pad", json!("x".repeat(20_000))), "Malformed"),
        ("another issuer", claims_with("iss", json!("https://evil.example")), "UnknownIssuer"),
        ("the issuer with a slash", claims_with("iss", json!("https://ci.example/")), "UnknownIssuer"),
        ("a list of issuers", claims_with("iss", json!(["https://ci.example"])), "Malformed"),
        ("no issuer", claims_with("iss", Value::Null), "Malformed"),
        ("another audience", claims_with("aud", json!("other")), "Audience"),
        ("no audience", claims_with("aud", Value::Null), "Audience"),
        ("an empty list of audiences", claims_with("aud", json!([])), "Audience"),
        ("an audience that is a number", claims_with("aud", json!(1)), "Audience"),
        ("expired", claims_with("exp", json!(now_s - 60)), "Expired"),
        ("expired long ago", claims_with("exp", json!(0)), "Expired"),
        ("no end", claims_with("exp", Value::Null), "Claims"),
        ("an end that is text", claims_with("exp", json!("9999999999")), "Claims"),
        ("a negative end", claims_with("exp", json!(-1)), "Claims"),
        ("not valid yet", claims_with("nbf", json!(now_s + 61)), "NotYetValid"),
        ("a beginning that is text", claims_with("nbf", json!("0")), "Claims"),
        ("claims without a rule", claims_with("repository", json!("evil/app")), "NoRule"),
        ("a claim that is missing", claims_with("repository", Value::Null), "NoRule"),
        ("no name", claims_with("sub", Value::Null), "Claims"),
        ("a name that is a number", claims_with("sub", json!(0)), "Claims"),
    ];
    cases.into_iter().map(|(name, token, refusal)| HostileToken { name, token, refusal }).collect()
}
