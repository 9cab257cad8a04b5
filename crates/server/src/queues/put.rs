//! PUT /v1/queues/{name}: replace a queue's settings. What is left out follows the defaults.

use std::sync::Arc;

use authority::command::{ConfigureAnswer, ConfigureQueue};
use authority::{PushTarget, QueueConfig, QueueKey};

use super::answer;
use crate::app::App;
use crate::convert::submission::backoff;
use crate::convert::task_json::category_from_wire;
use crate::convert::{Code, Problem, ScopedPath, names, push_target};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Configure a queue.
#[utoipa::path(
    put,
    path = "/v1/queues/{name}",
    tag = "Queues",
    params(("name" = String, Path)),
    request_body = wire::QueueConfig,
    responses((status = 200, body = wire::Queue), Fails<400>, Fails<429>, Fails<503>)
)]
pub(crate) async fn put(
    ScopedPath { app, scope, id: name }: ScopedPath,
    caller: Caller,
    In(config): In<wire::QueueConfig>,
) -> Result<Out<wire::Queue>, Problem> {
    let key = QueueKey { scope, name: names::name("name", &name)? };
    caller.check_queues([&*name])?;
    let push = match &config.push {
        Some(asked) => Some(parse_push_target(&app, &key, asked).await?),
        None => None,
    };
    let config = QueueConfig { push, ..parse(&config)? };
    let command = ConfigureQueue { queue: Arc::new(key.clone()), config, by: caller.actor() };
    let _woken = app.push.wake_on_drop();
    match app.handle.configure(command).await? {
        ConfigureAnswer::Configured => {
            let view = app.handle.queue(key).await?.ok_or_else(|| Problem::unknown_queue(&name))?;
            Ok(Out::ok(answer::queue(*view, app.handle.now())))
        }
        ConfigureAnswer::Invalid(what) => Err(invalid(what)),
        ConfigureAnswer::Refused(why) => Err(why.into()),
    }
}

/// The message begins with the name of the setting.
fn invalid(what: String) -> Problem {
    let field = what.split(' ').next().map(str::to_owned);
    Problem { field, ..Problem::new(Code::InvalidField, what) }
}

/// The target as the ledger keeps it, with its secrets encrypted.
async fn parse_push_target(
    app: &App,
    key: &QueueKey,
    asked: &wire::PushTarget,
) -> Result<Arc<PushTarget>, Problem> {
    let present = if push_target::keeps_something(asked) {
        app.handle.queue(key.clone()).await?.and_then(|view| view.config.push)
    } else {
        None
    };
    // What cannot be decrypted is not there, and has to be said anew.
    let present = present.and_then(|present| app.push_secrets.open_target(key, &present).ok());
    let target = push_target::parse(asked, present.as_ref(), app.push.guard)?;
    target.check().map_err(invalid)?;
    let sealed = app.push_secrets.seal_target(key, &target);
    Ok(Arc::new(sealed.map_err(|_| Problem::new(Code::Internal, "the secrets cannot be encrypted"))?))
}

/// All but the push target, which the server's own settings have a say in.
pub(crate) fn parse(config: &wire::QueueConfig) -> Result<QueueConfig, Problem> {
    let lease_ms = match (config.lease_ms, config.heartbeat_timeout_ms) {
        (Some(lease_ms), Some(timeout_ms)) if lease_ms != timeout_ms => {
            let what = format!("is another name of leaseMs, but {timeout_ms} is not {lease_ms}");
            return Err(Problem::field("heartbeatTimeoutMs", what));
        }
        (lease_ms, timeout_ms) => lease_ms.or(timeout_ms),
    };
    let retry_on = config.retry_on.as_ref().map(|categories| {
        let mut categories: Vec<_> = categories.iter().copied().map(category_from_wire).collect();
        categories.sort();
        categories.dedup();
        categories
    });
    Ok(QueueConfig {
        max_attempts: config.max_attempts,
        lease_ms,
        heartbeat_interval_ms: config.heartbeat_interval_ms,
        cancel_grace_ms: config.cancel_grace_period_ms,
        backoff: config.backoff.as_ref().map(backoff).transpose()?,
        retry_on,
        max_queue_size: config.max_queue_size,
        retention_ms: config.retention_ms,
        push: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_names_of_one_setting_must_agree() {
        let config = |lease_ms, heartbeat_timeout_ms| {
            parse(&wire::QueueConfig { lease_ms, heartbeat_timeout_ms, ..wire::QueueConfig::default() })
        };
        assert_eq!(config(Some(5_000), None).unwrap().lease_ms, Some(5_000));
        assert_eq!(config(None, Some(5_000)).unwrap().lease_ms, Some(5_000));
        assert_eq!(config(Some(5_000), Some(5_000)).unwrap().lease_ms, Some(5_000));
        assert_eq!(
            config(Some(5_000), Some(6_000)).unwrap_err().field.as_deref(),
            Some("heartbeatTimeoutMs")
        );
    }
}
