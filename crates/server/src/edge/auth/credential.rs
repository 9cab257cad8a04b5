//! The credential of a request: one `Authorization` header, with an API key as a bearer token or as the password of HTTP
//! basic.

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::secret::{KEY_CHARS, parse};
use authority::SecretHash;

/// Longest value that is read: a key with its user name in base64, and some spare room.
const MAX_VALUE_BYTES: usize = 1_024;

/// A key as it was sent: its id, and the hash of its secret.
pub(super) struct Credential {
    pub id: String,
    pub hash: SecretHash,
}

/// None without a header; an error for a header that has no key.
pub(super) fn of(headers: &HeaderMap) -> Option<Result<Credential, ()>> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?;
    if values.next().is_some() || value.len() > MAX_VALUE_BYTES {
        return Some(Err(()));
    }
    Some(value.to_str().ok().and_then(from_value).ok_or(()))
}

fn from_value(value: &str) -> Option<Credential> {
    let (scheme, rest) = value.split_once(' ')?;
    let rest = rest.trim_matches(' ');
    if scheme.eq_ignore_ascii_case("bearer") {
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

fn from_key(text: &str) -> Option<Credential> {
    debug_assert!(KEY_CHARS < MAX_VALUE_BYTES);
    parse(text).map(|(id, hash)| Credential { id: id.to_owned(), hash })
}
