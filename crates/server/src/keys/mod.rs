//! The API keys: created, listed and revoked by an admin. One call to a file.

pub(crate) mod create;
pub(crate) mod list;
pub(crate) mod revoke;

use crate::edge::auth::Caller;

/// Who makes a change, for its record, where nobody is authenticated.
const UNAUTHENTICATED: &str = "unauthenticated";

fn name_of(caller: &Caller) -> std::sync::Arc<str> {
    caller.identity().map_or_else(|| UNAUTHENTICATED.into(), |identity| identity.name().clone())
}
