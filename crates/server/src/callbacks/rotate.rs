//! POST /v1/token-keys/rotate: task tokens are signed with another key from now on.

use axum::extract::State;
use wire::{RotateTokenKey, TokenKeyRotated};

use crate::app::App;
use crate::convert::Problem;
use crate::edge::auth::Caller;
use crate::edge::operator::Operator;
use crate::edge::{Fails, InOrDefault, Out};

/// Sign task tokens with a new key.
///
/// The keys are those of all tenants: only an admin may do this. On a server without authentication only the operator may,
/// from the machine of the server and without the headers of a tenant or a workspace.
#[utoipa::path(
    post,
    path = "/v1/token-keys/rotate",
    tag = "Callbacks",
    request_body(content = Option<RotateTokenKey>),
    responses((status = 200, body = TokenKeyRotated), Fails<400>, Fails<403>, Fails<503>)
)]
pub(crate) async fn rotate(
    State(app): State<App>,
    _: Operator,
    caller: Caller,
    InOrDefault(body): InOrDefault<RotateTokenKey>,
) -> Result<Out<TokenKeyRotated>, Problem> {
    let id = app.task_tokens.rotate(&app.handle, body.retire_old.unwrap_or(false), caller.actor()).await?;
    tracing::info!(key = %id, retire_old = body.retire_old, "task tokens are signed with another key");
    Ok(Out::ok(TokenKeyRotated { key_id: id.to_string() }))
}
