//! The settings of a queue and the retry policy: whether another attempt follows a failed one, and when.

use authority::{Backoff, Category, QueueConfig, QueueDefaults, QueueKey, Time};

use super::model::TaskModel;

/// The general defaults, as documented.
pub(crate) const DEFAULT_MAX_ATTEMPTS: u32 = 3;
pub(crate) const DEFAULT_RETENTION_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
const DEFAULT_BACKOFF: Backoff =
    Backoff { initial_ms: 1_000, factor_permille: 2_000, max_ms: 300_000, jitter_permille: 200 };

/// What a worker reported about a failure.
#[derive(Clone, Copy)]
pub(crate) struct Claim {
    pub category: Category,
    pub retryable: Option<bool>,
}

impl Claim {
    /// The queue's list wins over the worker's report, which wins over the category's default.
    pub(crate) fn may_retry(&self, config: &QueueConfig) -> bool {
        let by_default = match self.category {
            Category::UserCode | Category::Infrastructure | Category::Timeout => true,
            Category::DataQuality | Category::Configuration | Category::Cancelled => false,
        };
        match &config.retry_on {
            Some(categories) => categories.contains(&self.category),
            None => self.retryable.unwrap_or(by_default),
        }
    }
}

/// The configuration of a queue, with the queue's own defaults where a setting was not configured.
pub(crate) fn config(
    configured: Option<&QueueConfig>,
    defaults: &QueueDefaults,
    queue: &QueueKey,
) -> QueueConfig {
    let (configured, defaults) = (configured.cloned().unwrap_or_default(), defaults.of(&queue.name));
    QueueConfig {
        max_attempts: configured.max_attempts.or(defaults.max_attempts),
        lease_ms: configured.lease_ms.or(defaults.lease_ms),
        backoff: configured.backoff.or(defaults.backoff),
        retry_on: configured.retry_on.or(defaults.retry_on),
        max_queue_size: configured.max_queue_size.or(defaults.max_queue_size),
        retention_ms: configured.retention_ms.or(defaults.retention_ms),
        ..configured
    }
}

pub(crate) fn max_attempts(task: &TaskModel, config: &QueueConfig) -> u32 {
    task.max_attempts.or(config.max_attempts).unwrap_or(DEFAULT_MAX_ATTEMPTS)
}

/// How long a lease lives without a heartbeat: as its task says, or its queue, or the default of its kind of queue.
pub(crate) fn lease_ms(task: &TaskModel, config: &QueueConfig) -> u64 {
    let default_ms = if config.push.is_some() { 90_000 } else { 60_000 };
    task.lease_ms.or(config.lease_ms).unwrap_or(default_ms)
}

/// Whether a task that failed at `at` may be tried again at `retry`.
pub(crate) fn retry_fits(task: &TaskModel, config: &QueueConfig, at: Time, retry: Time) -> bool {
    let backoff = task.backoff.or(config.backoff).unwrap_or(DEFAULT_BACKOFF);
    let failures = task.used_attempts().max(1);
    let factor = (f64::from(backoff.factor_permille) / 1_000.0).max(1.0);
    let cap = backoff.max_ms as f64;
    let middle = (backoff.initial_ms as f64 * factor.powi(failures.min(1_000) as i32 - 1)).min(cap);
    let swing = middle * f64::from(backoff.jitter_permille.min(1_000)) / 1_000.0;
    // Every step may have been rounded down to a millisecond.
    let (least, most) = (middle - swing - f64::from(failures) - 1.0, (middle + swing).min(cap) + 1.0);
    let delay = retry.0 as f64 - at.0 as f64;
    (least..=most).contains(&delay)
}
