//! POST /v1/keys: make a key. Its secret is in the answer and nowhere else.

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::command::{CreateKey, CreateKeyAnswer};
use authority::limits::{MAX_KEY_PROPERTIES, MAX_KEY_QUEUES, MAX_KEY_TENANTS, MAX_KEYS, MAX_NAME_BYTES};
use authority::{ApiKey, Role};
use axum::extract::State;
use axum::http::StatusCode;
use wire::{CreateApiKey, CreatedApiKey};

use super::name_of;
use crate::app::App;
use crate::convert::names::{fault_of_name, name, optional_name};
use crate::convert::scope::fault_of_scope_name;
use crate::convert::{Code, Problem, time};
use crate::edge::auth::{Caller, NewKey};
use crate::edge::operator::Operator;
use crate::edge::{Fails, In, Out};

/// Create an API key.
///
/// Only an admin may do this. A server without authentication creates no keys: whoever reaches it could make himself an admin of the
/// time after it. `lessor init` creates the first key.
#[utoipa::path(
    post,
    path = "/v1/keys",
    tag = "Keys",
    request_body = CreateApiKey,
    responses(
        (status = 201, description = "The key, shown this once", body = CreatedApiKey),
        (status = 409, description = "Another key has this name", body = wire::Problem),
        Fails<400>, Fails<401>, Fails<403>, Fails<429>, Fails<503>
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    _: Operator,
    caller: Caller,
    In(request): In<CreateApiKey>,
) -> Result<Out<CreatedApiKey>, Problem> {
    if caller.identity().is_none() {
        let detail = "a server without authentication creates no keys, because everyone could; `lessor init` creates the first \
                      one while the server does not run";
        return Err(Problem::new(Code::OperatorOnly, detail));
    }
    let made = NewKey::generate().map_err(|error| {
        tracing::error!(%error, "the system has no random numbers");
        Problem::new(Code::Internal, "the system has no random numbers")
    })?;
    let key = ApiKey {
        id: Arc::from(&*made.id),
        name: name("name", &request.name)?,
        tenants: names("tenants", &request.tenants, MAX_KEY_TENANTS, fault_of_scope_name)?,
        roles: request.roles.iter().filter_map(|role| Role::from_name(role.name())).collect(),
        queues: names("queues", &request.queues, MAX_KEY_QUEUES, |queue| {
            fault_of_name(queue, MAX_NAME_BYTES)
        })?,
        worker_prefix: optional_name("workerPrefix", request.worker_prefix.as_deref())?,
        properties: properties(&request.properties)?,
        expires_at: request.expires_at.map(|at| time::from_timestamp("expiresAt", at)).transpose()?,
        secret_hash: made.hash,
        created_by: name_of(&caller),
    };
    match app.keys.create(&app.handle, CreateKey { key: Arc::new(key), by: caller.actor() }).await? {
        CreateKeyAnswer::Created => {
            let key = made.text.expose().to_owned();
            Ok(Out(StatusCode::CREATED, CreatedApiKey { key_id: made.id, name: request.name, key }))
        }
        CreateKeyAnswer::NameTaken => {
            let detail =
                format!("name: another key is named {}; revoke it first, or choose a name", request.name);
            Err(Problem { field: Some("name".to_owned()), ..Problem::new(Code::KeyNameTaken, detail) })
        }
        CreateKeyAnswer::TooMany => {
            let detail = format!("there are {MAX_KEYS} keys, which is as many as there may be; revoke some");
            Err(Problem::new(Code::TooManyKeys, detail))
        }
        CreateKeyAnswer::Invalid(what) => {
            // The message begins with the name of the field.
            let field = what.split(':').next().map(str::to_owned);
            Err(Problem { field, ..Problem::new(Code::InvalidField, what) })
        }
    }
}

/// The properties as a key has them, each as `name=value`.
fn properties(allowed: &BTreeMap<String, Vec<String>>) -> Result<Vec<Arc<str>>, Problem> {
    let mut entries = Vec::new();
    for (property, values) in allowed {
        name("properties (a name)", property)?;
        if property.contains('=') || values.is_empty() {
            let what = "must be a name without `=`, with at least one value";
            return Err(Problem::field(format!("properties.{property}"), what));
        }
        for value in values {
            if !value.is_empty() {
                name(&format!("properties.{property}"), value)?;
            }
            entries.push(Arc::from(format!("{property}={value}")));
        }
        if entries.len() > MAX_KEY_PROPERTIES {
            let what = format!("must have at most {MAX_KEY_PROPERTIES} values");
            return Err(Problem::field("properties", what));
        }
    }
    Ok(entries)
}

fn names(
    field: &str,
    names: &[String],
    max: usize,
    fault: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Arc<str>>, Problem> {
    if names.len() > max {
        return Err(Problem::field(
            field,
            format!("must have at most {max} entries, but has {}", names.len()),
        ));
    }
    let checked = names.iter().enumerate().map(|(n, name)| match fault(name) {
        None => Ok(Arc::from(&**name)),
        Some(what) => Err(Problem::field(format!("{field}[{n}]"), what)),
    });
    checked.collect()
}
