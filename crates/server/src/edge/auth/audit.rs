//! The audit log: one line for each denial and for each administrative action, on the target `audit`. Denials are limited, so
//! that nobody fills a disk with them; what was suppressed is counted in the next line.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use authority::Time;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};

use super::identity::Identity;
use crate::convert::names::beginning;
use crate::edge::operator::Ends;
use crate::edge::permissions::Call;

/// Most lines about denials in one second.
const MAX_DENIALS_PER_SECOND: u32 = 100;
/// Longest text of a line that the caller chose.
const MAX_TEXT_BYTES: usize = 128;
const REQUEST_ID_HEADER: &str = "x-request-id";

/// What a line says about a request.
pub(super) struct Entry {
    /// The name, and the id of the key if there is one.
    who: Option<(Arc<str>, Option<Arc<str>>)>,
    from: Option<IpAddr>,
    method: String,
    path: String,
    request_id: Option<String>,
}

impl Entry {
    pub(super) fn of(request: &Request, call: Option<&Call>, identity: Option<&Identity>) -> Entry {
        // The path, because it names the task or the worker; its parameters may have anything.
        let path = beginning(request.uri().path(), MAX_TEXT_BYTES).to_owned();
        Entry {
            who: identity.map(|identity| (identity.name().clone(), identity.key_id().cloned())),
            from: request.extensions().get::<Ends>().map(|ends| ends.peer.ip().to_canonical()),
            method: call.map_or(request.method().as_str(), |call| call.method).to_owned(),
            path,
            request_id: request_id(request.headers()),
        }
    }

    fn who(&self) -> (Option<&str>, Option<&str>) {
        self.who.as_ref().map_or((None, None), |(who, key_id)| (Some(who), key_id.as_deref()))
    }
}

/// The id by which a proxy or a client knows the request, if it is one that can be logged.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID_HEADER)?.to_str().ok()?;
    (id.len() <= MAX_TEXT_BYTES).then(|| id.to_owned())
}

#[derive(Debug, Default)]
pub(crate) struct AuditLog {
    denials: Mutex<Denials>,
}

#[derive(Debug, Default)]
struct Denials {
    second: u64,
    lines: u32,
    suppressed: u64,
}

impl AuditLog {
    /// An administrative action was done, or refused by the call itself.
    pub(super) fn allowed(&self, entry: &Entry, status: StatusCode) {
        let (who, key_id) = entry.who();
        let from = entry.from.map(tracing::field::display);
        let (method, path, request_id) = (&*entry.method, &*entry.path, entry.request_id.as_deref());
        let status = status.as_u16();
        tracing::info!(
            target: "audit", audit = "allowed", who, key_id, from, method, path, status, request_id,
            "an administrative call was made"
        );
    }

    pub(super) fn denied(&self, entry: &Entry, reason: &str, now: Time) {
        let Some(suppressed) = self.admit(now) else { return };
        let (who, key_id) = entry.who();
        let from = entry.from.map(tracing::field::display);
        let (method, path, request_id) = (&*entry.method, &*entry.path, entry.request_id.as_deref());
        let suppressed = (suppressed > 0).then_some(suppressed);
        tracing::info!(
            target: "audit", audit = "denied", reason, who, key_id, from, method, path, request_id, suppressed,
            "a call was denied"
        );
    }

    /// Whether a denial is logged, and how many before it were not.
    fn admit(&self, now: Time) -> Option<u64> {
        let mut denials = self.denials.lock().unwrap_or_else(PoisonError::into_inner);
        let second = now.0 / 1_000;
        if denials.second != second {
            (denials.second, denials.lines) = (second, 0);
        }
        if denials.lines >= MAX_DENIALS_PER_SECOND {
            denials.suppressed += 1;
            return None;
        }
        denials.lines += 1;
        Some(std::mem::take(&mut denials.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_beyond_the_limit_of_a_second_are_counted_in_the_next_line() {
        let log = AuditLog::default();
        let in_second = |ms: u64, count: u32| (0..count).filter_map(|_| log.admit(Time(ms))).count();
        assert_eq!(in_second(5_000, 1_000), MAX_DENIALS_PER_SECOND as usize);
        assert_eq!(log.admit(Time(6_000)), Some(1_000 - u64::from(MAX_DENIALS_PER_SECOND)));
        assert_eq!(log.admit(Time(6_001)), Some(0));
    }
}
