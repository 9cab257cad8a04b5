//! The credential of a request: one `Authorization` header, with an API key as a bearer token or as the password of HTTP
//! basic, or with a JSON Web Token as a bearer token.

use authority::SecretHash;
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::secret;
use crate::edge::jwt::{Issuers, MAX_TOKEN_BYTES};

/// Longest value that is read: a token after its scheme.
const MAX_VALUE_BYTES: usize = MAX_TOKEN_BYTES + 16;
/// Longest value with a key: the key with its user name in base64, and some spare room.
const MAX_KEY_VALUE_BYTES: usize = 1_024;

pub(crate) enum Credential<'a> {
    /// The id of a key, and the hash of its secret.
    Key {
        id: String,
        hash: SecretHash,
    },
    Token(&'a str),
}

/// The header, if a request has any; none in place of one that cannot be right.
pub(crate) fn header(headers: &HeaderMap) -> Option<Option<&HeaderValue>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?;
    Some(Some(value).filter(|value| values.next().is_none() && value.len() <= MAX_VALUE_BYTES))
}

/// None for a header that has neither a key nor a token.
pub(crate) fn parse(value: &HeaderValue) -> Option<Credential<'_>> {
    from_value(value.to_str().ok()?)
}

fn from_value(value: &str) -> Option<Credential<'_>> {
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim_matches(' ');
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    if is_bearer && Issuers::is_token(rest) {
        return Some(Credential::Token(rest));
    }
    if value.len() > MAX_KEY_VALUE_BYTES {
        return None;
    }
    if is_bearer {
        return from_key(rest);
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    // The user name says nothing: some clients cannot send an empty one.
    let decoded = STANDARD.decode(rest).ok()?;
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    from_key(password)
}

fn from_key<'a>(text: &str) -> Option<Credential<'a>> {
    secret::parse(text).map(|(id, hash)| Credential::Key { id: id.to_owned(), hash })
}
