//! Parses and validates push targets, and converts them to their JSON shape without their secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::PushTarget;
use axum::http::{HeaderName, HeaderValue};
use url::Url;
use wire::{DEFAULT_PUSH_CONCURRENCY, HIDDEN};

use crate::convert::Problem;
use crate::edge::address_guard::Guard;

/// Headers that are not the user's to set: what a connection needs, what says how the body is to be read.
const RESERVED: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Ours alone.
const RESERVED_PREFIX: &str = "lessor-";

/// The target that is asked for. What is hidden in it stays as it is at present, if the target stays where it is: a
/// secret is not sent to an address that was chosen by somebody who does not know it.
pub(crate) fn parse(
    asked: &wire::PushTarget,
    present: Option<&PushTarget>,
    guard: Guard,
) -> Result<PushTarget, Problem> {
    let url = guard.url(&asked.url).map_err(|refused| Problem::field("push.url", refused.to_string()))?;
    let present = present.filter(|present| same_origin(&present.url, &url));
    let mut headers = BTreeMap::new();
    for (name, value) in &asked.headers {
        let field = format!("push.headers.{name}");
        let value = header(&field, name, value)?;
        let name: Arc<str> = name.to_ascii_lowercase().into();
        let kept = || {
            let headers = present.map_or(&[][..], |present| &present.headers);
            headers.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone())
        };
        let value = if &*value == HIDDEN { kept().ok_or_else(|| hidden(&field))? } else { value };
        if headers.insert(name, value).is_some() {
            return Err(Problem::field(&field, "is there twice: case does not count"));
        }
    }
    let secret = match asked.secret.as_deref() {
        Some(HIDDEN) => {
            let kept = present.and_then(|present| present.secret.clone());
            Some(kept.ok_or_else(|| hidden("push.secret"))?)
        }
        secret => secret.map(Arc::from),
    };
    Ok(PushTarget {
        url: url.as_str().into(),
        concurrency: asked.concurrency.unwrap_or(DEFAULT_PUSH_CONCURRENCY),
        headers: headers.into_iter().collect(),
        secret,
    })
}

/// Whether a configuration leaves something as it is.
pub(crate) fn keeps_something(asked: &wire::PushTarget) -> bool {
    asked.secret.as_deref() == Some(HIDDEN) || asked.headers.values().any(|value| value == HIDDEN)
}

/// The target without its secrets.
pub fn to_wire(target: &PushTarget) -> wire::PushTarget {
    let hide = |(name, _): &(Arc<str>, Arc<str>)| (name.to_string(), HIDDEN.to_owned());
    wire::PushTarget {
        url: target.url.to_string(),
        concurrency: Some(target.concurrency),
        headers: target.headers.iter().map(hide).collect(),
        secret: target.secret.as_ref().map(|_| HIDDEN.to_owned()),
    }
}

fn header(field: &str, name: &str, value: &str) -> Result<Arc<str>, Problem> {
    let Ok(parsed) = HeaderName::try_from(name) else {
        return Err(Problem::field(field, "is no name of a header"));
    };
    if RESERVED.contains(&parsed.as_str()) || parsed.as_str().starts_with(RESERVED_PREFIX) {
        return Err(Problem::field(field, "is set by the server itself"));
    }
    match HeaderValue::from_str(value) {
        Ok(_) if value.is_ascii() && value.trim() == value => Ok(value.into()),
        _ => Err(Problem::field(field, "must be printable ASCII without spaces at its ends")),
    }
}

fn hidden(field: &str) -> Problem {
    let what = format!("is {HIDDEN}, but there is no present value for this target; say it anew");
    Problem::field(field, what)
}

fn same_origin(present: &str, url: &Url) -> bool {
    Url::parse(present).is_ok_and(|present| present.origin() == url.origin())
}
