//! A queue as text: its counts, and each setting with its origin.

use wire::Queue;

use crate::client::show::time::{exact, rough};
use crate::client::show::{Record, category};

pub(super) fn full(queue: Queue) -> Record {
    let (now, given, counts) = (&queue.config, &queue.configured, &queue.counts);
    let mut record = Record::new("queue", &queue.name);
    record.field("waiting", format!("{}, of which {} not yet ready", counts.waiting, counts.delayed));
    record.optional("oldest waiting", queue.oldest_waiting_age_ms.map(rough));
    record.field("leased", counts.leased.to_string());
    record.field("completed", counts.completed.to_string());
    record.field("failed", counts.failed.to_string());
    record.field("dead", counts.dead.to_string());

    let mut setting = |name: &str, value: String, is_given: bool| {
        record.field(name, if is_given { value } else { format!("{value} (default)") });
    };
    setting("max attempts", now.max_attempts.to_string(), given.max_attempts.is_some());
    let lease_is_given = given.lease_ms.is_some() || given.heartbeat_timeout_ms.is_some();
    setting("lease", exact(now.lease_ms), lease_is_given);
    setting("heartbeat interval", exact(now.heartbeat_interval_ms), given.heartbeat_interval_ms.is_some());
    setting("cancel grace", exact(now.cancel_grace_period_ms), given.cancel_grace_period_ms.is_some());
    let (backoff, given_backoff) = (now.backoff, given.backoff.unwrap_or_default());
    if let Some(ms) = backoff.initial_ms {
        setting("backoff initial", exact(ms), given_backoff.initial_ms.is_some());
    }
    if let Some(factor) = backoff.factor {
        setting("backoff factor", factor.to_string(), given_backoff.factor.is_some());
    }
    if let Some(ms) = backoff.max_ms {
        setting("backoff max", exact(ms), given_backoff.max_ms.is_some());
    }
    if let Some(jitter) = backoff.jitter {
        setting("backoff jitter", jitter.to_string(), given_backoff.jitter.is_some());
    }
    let retry_on = now.retry_on.as_ref().map_or_else(
        || "what the worker or the category says".to_owned(),
        |list| list.iter().copied().map(category::name).collect::<Vec<_>>().join(", "),
    );
    setting("retry on", retry_on, given.retry_on.is_some());
    let size = now.max_queue_size.map_or_else(|| "no limit".to_owned(), |size| size.to_string());
    setting("max queue size", size, given.max_queue_size.is_some());
    setting("retention", exact(now.retention_ms), given.retention_ms.is_some());
    if let Some(push) = &given.push {
        record.field("pushed to", &push.url);
        record.optional("push concurrency", push.concurrency.map(|most| most.to_string()));
        let headers = push.headers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        record.optional("push headers", (!headers.is_empty()).then_some(headers));
        record.field("push signed", if push.secret.is_some() { "yes" } else { "no" });
    }
    record
}
