//! The API key of the last request on a connection. Most connections are of one caller, whose key need not be parsed, hashed
//! and looked up again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderValue;
use constant_time_eq::constant_time_eq;

use super::identity::Identity;
use super::secret::Secret;

#[derive(Default)]
pub(crate) struct ConnectionKey(Mutex<Option<Known>>);

struct Known {
    /// The value of the header.
    value: Secret,
    /// The version of the table of keys in which it was found.
    version: u64,
    identity: Arc<Identity>,
}

impl ConnectionKey {
    /// The holder of the key, if the last request had the same and the keys have not changed since.
    pub(super) fn find(&self, value: &HeaderValue, version: u64) -> Option<Arc<Identity>> {
        let known = self.lock();
        let known = known.as_ref().filter(|known| known.version == version)?;
        let is_same = constant_time_eq(known.value.expose().as_bytes(), value.as_bytes());
        is_same.then(|| known.identity.clone())
    }

    pub(super) fn remember(&self, value: &HeaderValue, version: u64, identity: &Arc<Identity>) {
        let Ok(value) = value.to_str() else { return };
        let (value, identity) = (Secret::new(value.to_owned()), identity.clone());
        *self.lock() = Some(Known { value, version, identity });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
