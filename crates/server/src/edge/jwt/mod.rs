//! JSON Web Tokens of other issuers: CI systems, clusters and identity providers vouch for their jobs and people, and rules
//! say what these may do here.

mod claim_rule;
mod jwks_source;
pub(crate) mod key_set;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use authority::Time;
use data_encoding::HEXLOWER;
pub use jsonwebtoken::Algorithm;
use jsonwebtoken::dangerous::insecure_decode;
use jsonwebtoken::{Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::convert::jwt_crypto;
use crate::convert::lease_id::hash_parts;
use crate::edge::auth::Grants;
pub use claim_rule::ClaimRule;
pub(super) use claim_rule::matches;
use jwks_source::Keys;

/// Longest token that is read. Those of CI systems have about 2 KiB.
pub(crate) const MAX_TOKEN_BYTES: usize = 16 * 1_024;
/// How far the clock of an issuer may differ from ours.
const LEEWAY_MS: u64 = 60_000;
/// Tokens that were found good are remembered, so that a build does not pay for a signature with each call.
const MAX_REMEMBERED: usize = 4_096;
/// How long they are remembered: an issuer may withdraw a key before the tokens under it expire.
const REMEMBER_MS: u64 = 300_000;
/// Longest name of an identity.
const MAX_NAME_CHARS: usize = 256;

/// An issuer that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerOptions {
    /// As in the claim `iss`.
    pub issuer: String,
    /// One of these must be in the claim `aud`.
    pub audiences: Vec<String>,
    /// Asymmetric algorithms only.
    pub algorithms: Vec<Algorithm>,
    pub keys: KeySource,
    /// The claim that names the identity.
    pub name_claim: String,
    /// The first that applies counts. A token to which none applies is refused.
    pub rules: Vec<ClaimRule>,
}

/// The place of an issuer's key set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    File(PathBuf),
    Url {
        url: String,
        /// The CA of its server's certificate, in PEM; otherwise what the machine trusts.
        ca_file: Option<PathBuf>,
    },
}

/// The algorithms that an issuer may be configured with.
pub const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The issuers that are trusted. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct Issuers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    issuers: Vec<Issuer>,
    remembered: Mutex<Remembered>,
}

/// By the hash of the token, each with the time until which it is remembered.
type Remembered = HashMap<[u8; 32], (Arc<TokenIdentity>, Time)>;

#[derive(Debug)]
struct Issuer {
    options: IssuerOptions,
    keys: Keys,
}

/// The holder of a token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TokenIdentity {
    /// Of the issuer and the subject, which tokens of the same holder share.
    pub id: Arc<str>,
    pub name: Arc<str>,
    pub issuer: Arc<str>,
    pub grants: Arc<Grants>,
    pub expires_at: Time,
}

/// Why a token is refused, for the log. Callers hear only that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenRefusal {
    #[error("it is not a JSON Web Token of the compact form")]
    Malformed,
    #[error("its issuer is not configured")]
    UnknownIssuer,
    #[error("its algorithm is not allowed for its issuer")]
    Algorithm,
    #[error("its header asks for an extension that is not known here")]
    CriticalHeader,
    #[error("its key is not among those of its issuer")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is for another audience")]
    Audience,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("one of its claims has the wrong type")]
    Claims,
    #[error("no rule applies to its claims")]
    NoRule,
}

impl Issuers {
    /// Reads the key sets that are files, and begins to fetch those that are not. An error names the file.
    pub fn start(issuers: Vec<IssuerOptions>) -> Result<Issuers, String> {
        jwt_crypto::install();
        let start = |options: IssuerOptions| {
            let keys = Keys::start(&options.issuer, &options.keys)?;
            Ok(Issuer { options, keys })
        };
        let issuers = issuers.into_iter().map(start).collect::<Result<_, String>>()?;
        Ok(Issuers(Arc::new(Inner { issuers, remembered: Mutex::default() })))
    }

    /// Whether a bearer token has the form of a JSON Web Token.
    pub(crate) fn is_token(text: &str) -> bool {
        text.bytes().filter(|byte| *byte == b'.').count() == 2
    }

    pub(crate) async fn verify(&self, token: &str, now: Time) -> Result<Arc<TokenIdentity>, TokenRefusal> {
        if token.len() > MAX_TOKEN_BYTES || !Issuers::is_token(token) {
            return Err(TokenRefusal::Malformed);
        }
        let hash = *blake3::hash(token.as_bytes()).as_bytes();
        if let Some(identity) = self.remembered(&hash, now) {
            return Ok(identity);
        }
        let identity = Arc::new(self.verify_new(token, now).await?);
        self.remember(hash, identity.clone(), now);
        Ok(identity)
    }

    async fn verify_new(&self, token: &str, now: Time) -> Result<TokenIdentity, TokenRefusal> {
        let header = decode_header(token).map_err(|_| TokenRefusal::Malformed)?;
        let issuer = self.issuer_of(token)?;
        if !issuer.options.algorithms.contains(&header.alg) {
            return Err(TokenRefusal::Algorithm);
        }
        if header.crit.is_some() {
            return Err(TokenRefusal::CriticalHeader);
        }
        let claims = issuer.claims(token, &header).await?;
        let expires_at = check_times(&claims, now)?;
        check_audience(&claims, &issuer.options.audiences)?;
        let rule = issuer.options.rules.iter().find(|rule| rule.applies_to(&claims));
        let grants = rule.ok_or(TokenRefusal::NoRule)?.grants.clone();
        let name = issuer.options.name_of(&claims)?;
        let id = issuer.options.id_of(&claims, &name);
        let issuer = Arc::from(&*issuer.options.issuer);
        Ok(TokenIdentity { id, name, issuer, grants, expires_at })
    }

    /// The issuer that the token names. The signature then shows whether that is true.
    fn issuer_of(&self, token: &str) -> Result<&Issuer, TokenRefusal> {
        #[derive(Clone, Deserialize)]
        struct Unverified {
            iss: String,
        }
        let unverified = insecure_decode::<Unverified>(token).map_err(|_| TokenRefusal::Malformed)?;
        let is_named = |issuer: &&Issuer| issuer.options.issuer == unverified.claims.iss;
        self.0.issuers.iter().find(is_named).ok_or(TokenRefusal::UnknownIssuer)
    }

    fn remembered(&self, hash: &[u8; 32], now: Time) -> Option<Arc<TokenIdentity>> {
        let remembered = self.0.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(hash).filter(|(_, until)| now < *until).map(|(identity, _)| identity.clone())
    }

    fn remember(&self, hash: [u8; 32], identity: Arc<TokenIdentity>, now: Time) {
        let until = identity.expires_at.min(now.plus_ms(REMEMBER_MS));
        let mut remembered = self.0.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, (_, until)| now < *until);
        }
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(hash, (identity, until));
        }
    }
}

impl Issuer {
    async fn claims(&self, token: &str, header: &Header) -> Result<Map<String, Value>, TokenRefusal> {
        let keys = self.keys.with(|keys| keys.find(header).is_some()).await;
        let key = keys.as_ref().and_then(|keys| keys.find(header)).ok_or(TokenRefusal::UnknownKey)?;
        // Times and audience are checked here, by the coordinator's clock and with the types that the standard has.
        let mut validation = Validation::new(header.alg);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        let token = decode(token, key, &validation).map_err(|_| TokenRefusal::Signature)?;
        Ok(token.claims)
    }
}

impl IssuerOptions {
    fn name_of(&self, claims: &Map<String, Value>) -> Result<Arc<str>, TokenRefusal> {
        let name = claims.get(&self.name_claim).and_then(Value::as_str).ok_or(TokenRefusal::Claims)?;
        Ok(name.chars().take(MAX_NAME_CHARS).collect::<String>().into())
    }

    /// A hash, because a subject may be as long as a token.
    fn id_of(&self, claims: &Map<String, Value>, name: &str) -> Arc<str> {
        let subject = claims.get("sub").and_then(Value::as_str).unwrap_or(name);
        let hash = hash_parts(blake3::Hasher::new(), [self.issuer.as_bytes(), subject.as_bytes()]);
        format!("token {}", HEXLOWER.encode(&hash)).into()
    }
}

/// When the token ends, leeway included.
fn check_times(claims: &Map<String, Value>, now: Time) -> Result<Time, TokenRefusal> {
    let expires_at = time(claims, "exp")?.ok_or(TokenRefusal::Claims)?.plus_ms(LEEWAY_MS);
    if now >= expires_at {
        return Err(TokenRefusal::Expired);
    }
    match time(claims, "nbf")? {
        Some(not_before) if now.plus_ms(LEEWAY_MS) < not_before => Err(TokenRefusal::NotYetValid),
        _ => Ok(expires_at),
    }
}

/// A claim in seconds, perhaps with a fraction.
fn time(claims: &Map<String, Value>, name: &str) -> Result<Option<Time>, TokenRefusal> {
    let Some(claim) = claims.get(name) else { return Ok(None) };
    let seconds = claim.as_f64().filter(|seconds| *seconds >= 0.0).ok_or(TokenRefusal::Claims)?;
    Ok(Some(Time((seconds * 1_000.0) as u64)))
}

fn check_audience(claims: &Map<String, Value>, audiences: &[String]) -> Result<(), TokenRefusal> {
    let is_ours = |audience: &Value| audiences.iter().any(|ours| audience.as_str() == Some(ours));
    let found = match claims.get("aud") {
        Some(Value::Array(list)) => list.iter().any(is_ours),
        Some(audience) => is_ours(audience),
        None => false,
    };
    if found { Ok(()) } else { Err(TokenRefusal::Audience) }
}

#[cfg(test)]
mod hostile_tokens;
#[cfg(test)]
mod tests;
