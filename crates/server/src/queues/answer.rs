//! Converts a queue of the authority to its JSON shape.

use authority::{Backoff, Category, QueueConfig, QueueSettings, QueueView, Time};

use crate::convert::push_target;
use crate::convert::task_json::category_to_wire;

pub(crate) fn queue(view: QueueView, now: Time) -> wire::Queue {
    wire::Queue {
        name: view.key.name.to_string(),
        config: settings(&view.settings),
        configured: configured(&view.config),
        counts: wire::QueueCounts {
            waiting: view.waiting,
            delayed: view.delayed,
            leased: view.leased,
            completed: view.completed,
            failed: view.failed,
            dead: view.dead,
        },
        oldest_waiting_age_ms: view.oldest_waiting.map(|created| now.since_ms(created)),
    }
}

fn settings(settings: &QueueSettings) -> wire::QueueSettings {
    wire::QueueSettings {
        max_attempts: settings.max_attempts,
        lease_ms: settings.lease_ms,
        heartbeat_interval_ms: settings.heartbeat_interval_ms,
        heartbeat_timeout_ms: settings.lease_ms,
        cancel_grace_period_ms: settings.cancel_grace_ms,
        backoff: backoff(settings.backoff),
        retry_on: settings.retry_on.as_deref().map(categories),
        max_queue_size: settings.max_queue_size,
        retention_ms: settings.retention_ms,
    }
}

fn configured(config: &QueueConfig) -> wire::QueueConfig {
    wire::QueueConfig {
        max_attempts: config.max_attempts,
        lease_ms: config.lease_ms,
        heartbeat_interval_ms: config.heartbeat_interval_ms,
        heartbeat_timeout_ms: None,
        cancel_grace_period_ms: config.cancel_grace_ms,
        backoff: config.backoff.map(backoff),
        retry_on: config.retry_on.as_deref().map(categories),
        max_queue_size: config.max_queue_size,
        retention_ms: config.retention_ms,
        push: config.push.as_deref().map(push_target::to_wire),
    }
}

fn backoff(backoff: Backoff) -> wire::Backoff {
    wire::Backoff {
        initial_ms: Some(backoff.initial_ms),
        factor: Some(f64::from(backoff.factor_permille) / 1_000.0),
        max_ms: Some(backoff.max_ms),
        jitter: Some(f64::from(backoff.jitter_permille) / 1_000.0),
    }
}

fn categories(categories: &[Category]) -> Vec<wire::ErrorCategory> {
    categories.iter().copied().map(category_to_wire).collect()
}
