//! GET /v1/keys: the keys that live, without their secrets.

use std::collections::BTreeMap;

use authority::StoredKey;
use axum::extract::State;
use wire::{ApiKey, ApiKeyList, Role};

use crate::app::App;
use crate::convert::{Problem, to_timestamp};
use crate::edge::operator::Operator;
use crate::edge::{Fails, Out};

/// List the API keys, also those that have expired.
#[utoipa::path(
    get,
    path = "/v1/keys",
    tag = "Keys",
    responses((status = 200, body = ApiKeyList), Fails<401>, Fails<403>, Fails<503>)
)]
pub(crate) async fn list(State(app): State<App>, _: Operator) -> Result<Out<ApiKeyList>, Problem> {
    let mut keys: Vec<ApiKey> = app.handle.keys().await?.iter().map(to_wire).collect();
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Out::ok(ApiKeyList { keys }))
}

fn to_wire(stored: &StoredKey) -> ApiKey {
    let key = &stored.key;
    let texts = |texts: &[std::sync::Arc<str>]| texts.iter().map(|text| text.to_string()).collect();
    let role = |role: &authority::Role| Role::ALL.into_iter().find(|known| known.name() == role.name());
    ApiKey {
        key_id: key.id.to_string(),
        name: key.name.to_string(),
        roles: key.roles.iter().filter_map(role).collect(),
        tenants: texts(&key.tenants),
        queues: texts(&key.queues),
        worker_prefix: key.worker_prefix.as_ref().map(|prefix| prefix.to_string()),
        properties: properties(key),
        expires_at: key.expires_at.map(to_timestamp),
        created_at: to_timestamp(stored.created_at),
        created_by: key.created_by.to_string(),
    }
}

fn properties(key: &authority::ApiKey) -> BTreeMap<String, Vec<String>> {
    let mut properties: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in key.properties.iter().filter_map(|entry| entry.split_once('=')) {
        properties.entry(name.to_owned()).or_default().push(value.to_owned());
    }
    properties
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_of_the_wire_are_those_of_the_authority() {
        let names = |roles: &[Role]| roles.iter().map(|role| role.name()).collect::<Vec<_>>();
        let ours = authority::Role::ALL.map(|role| role.name());
        assert_eq!(names(&Role::ALL), ours);
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).unwrap(), role.name());
        }
    }
}
