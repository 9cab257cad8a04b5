//! Create an API key. The caller makes its id and its secret; only a hash of the secret arrives here.

use std::sync::Arc;

use super::Decision;
use crate::event::{Event, KeyCreated};
use crate::limits::{MAX_KEY_QUEUES, MAX_KEY_TENANTS, MAX_KEYS, MAX_NAME_BYTES};
use crate::{ApiKey, Role, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateKey {
    pub key: Arc<ApiKey>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateKeyAnswer {
    /// It lives, by this command or by an earlier one that was the same.
    Created,
    /// Another key that lives has this name.
    NameTaken,
    /// As many keys live as may.
    TooMany,
    /// What is wrong, naming the field.
    Invalid(&'static str),
}

impl CreateKey {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<CreateKeyAnswer> {
        let key = &self.key;
        if let Some(fault) = fault(key, now) {
            return Decision::only(CreateKeyAnswer::Invalid(fault));
        }
        match state.key(&key.id) {
            Some(stored) if *stored.key == **key => return Decision::only(CreateKeyAnswer::Created),
            Some(_) => return Decision::only(CreateKeyAnswer::Invalid("id: is another key's")),
            None => {}
        }
        if state.keys().any(|stored| stored.key.name == key.name) {
            return Decision::only(CreateKeyAnswer::NameTaken);
        }
        if state.key_count() >= MAX_KEYS {
            return Decision::only(CreateKeyAnswer::TooMany);
        }
        Decision::with(Event::KeyCreated(KeyCreated { key: key.clone() }), CreateKeyAnswer::Created)
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
    } else if key.expires_at.is_some_and(|at| at <= now) {
        Some("expiresAt: must be later than now")
    } else {
        None
    }
}
