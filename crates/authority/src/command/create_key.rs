//! Create an API key. The caller makes its id and its secret; only a hash of the secret arrives here.

use std::sync::Arc;

use super::Decision;
use crate::event::{Event, KeyCreated, KeyRevoked};
use crate::limits::{MAX_KEY_PROPERTIES, MAX_KEY_QUEUES, MAX_KEY_TENANTS, MAX_KEYS, MAX_NAME_BYTES};
use crate::{Actor, ApiKey, Role, State, StoredKey, Time};

/// Who revoked a key that had expired and made way for another one.
pub const EXPIRED: &str = "expired";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateKey {
    pub key: Arc<ApiKey>,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateKeyAnswer {
    /// It lives, by this command or by an earlier one that was the same.
    Created,
    /// Another key that lives and has not expired has this name.
    NameTaken,
    /// As many keys live as may, and none of them has expired.
    TooMany,
    /// What is wrong, naming the field.
    Invalid(String),
}

impl CreateKey {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<CreateKeyAnswer> {
        let key = &self.key;
        if let Some(fault) = fault(key, now) {
            return Decision::only(CreateKeyAnswer::Invalid(fault.to_owned()));
        }
        match state.key(&key.id) {
            Some(stored) if *stored.key == **key => return Decision::only(CreateKeyAnswer::Created),
            Some(_) => return Decision::only(CreateKeyAnswer::Invalid("id: is another key's".to_owned())),
            None => {}
        }
        let is_over = |stored: &&StoredKey| stored.key.expires_at.is_some_and(|at| at <= now);
        let namesake = state.keys().find(|stored| stored.key.name == key.name);
        if namesake.is_some_and(|stored| !is_over(&stored)) {
            return Decision::only(CreateKeyAnswer::NameTaken);
        }
        // Keys that have expired give up their names and make room, the one that expired first before the others.
        let mut replaced = namesake;
        if replaced.is_none() && state.key_count() >= MAX_KEYS {
            let over = state.keys().filter(is_over);
            replaced = over.min_by_key(|stored| (stored.key.expires_at, &stored.key.id));
            if replaced.is_none() {
                return Decision::only(CreateKeyAnswer::TooMany);
            }
        }
        let revoked = replaced.map(|stored| {
            let (key_id, revoked_by) = (stored.key.id.clone(), Arc::from(EXPIRED));
            Event::KeyRevoked(KeyRevoked { key_id, revoked_by, by: None })
        });
        let created = Event::KeyCreated(KeyCreated { key: key.clone(), by: self.by.clone() });
        Decision { events: revoked.into_iter().chain([created]).collect(), answer: CreateKeyAnswer::Created }
    }
}

fn fault(key: &ApiKey, now: Time) -> Option<&'static str> {
    let is_name = |name: &Arc<str>| (1..=MAX_NAME_BYTES).contains(&name.len());
    let is_admin = key.roles.contains(&Role::Admin);
    if !is_name(&key.id) || !is_name(&key.name) {
        Some("name: must not be empty or too long")
    } else if key.roles.is_empty() {
        Some("roles: must name at least one role")
    } else if key.roles.iter().enumerate().any(|(at, role)| key.roles[..at].contains(role)) {
        Some("roles: must name each role once")
    } else if is_admin && !key.tenants.is_empty() {
        Some("tenants: must be empty for the role admin, which has all tenants")
    } else if !is_admin && key.tenants.is_empty() {
        Some("tenants: must name at least one tenant")
    } else if key.tenants.len() > MAX_KEY_TENANTS || !key.tenants.iter().all(is_name) {
        Some("tenants: must be at most 16 names")
    } else if key.queues.len() > MAX_KEY_QUEUES || !key.queues.iter().all(is_name) {
        Some("queues: must be at most 16 names")
    } else if key.worker_prefix.as_ref().is_some_and(|prefix| !is_name(prefix)) {
        Some("workerPrefix: must not be empty or too long")
    } else if key.properties.len() > MAX_KEY_PROPERTIES
        || !key.properties.iter().all(|text| is_property(text))
    {
        Some("properties: must be at most 64 names with values")
    } else if key.expires_at.is_some_and(|at| at <= now) {
        Some("expiresAt: must be later than now")
    } else {
        None
    }
}

/// A name and a value, as `name=value`.
fn is_property(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, value)| {
        (1..=MAX_NAME_BYTES).contains(&name.len()) && value.len() <= MAX_NAME_BYTES
    })
}
