//! DELETE /v1/keys/{keyId}: end a key.

use std::sync::Arc;

use authority::command::{RevokeKey, RevokeKeyAnswer};
use axum::extract::State;
use wire::ApiKeyRevoked;

use super::name_of;
use crate::app::App;
use crate::convert::problem::shortened;
use crate::convert::{Code, Problem};
use crate::edge::auth::Caller;
use crate::edge::operator::Operator;
use crate::edge::{Fails, InPath, Out};

/// Revoke an API key. When this is answered, the key is refused.
#[utoipa::path(
    delete,
    path = "/v1/keys/{keyId}",
    tag = "Keys",
    params(("keyId" = String, Path)),
    responses((status = 200, body = ApiKeyRevoked), Fails<401>, Fails<403>, Fails<404>, Fails<503>)
)]
pub(crate) async fn revoke(
    State(app): State<App>,
    _: Operator,
    caller: Caller,
    InPath(key_id): InPath<String>,
) -> Result<Out<ApiKeyRevoked>, Problem> {
    let command = RevokeKey { key_id: Arc::from(&*key_id), revoked_by: name_of(&caller), by: caller.actor() };
    match app.keys.revoke(&app.handle, command).await? {
        RevokeKeyAnswer::Revoked => Ok(Out::ok(ApiKeyRevoked { key_id })),
        RevokeKeyAnswer::Unknown => {
            let detail = format!("there is no key {}; see `lessor key list`", shortened(&key_id));
            Err(Problem::new(Code::UnknownKey, detail))
        }
    }
}
