//! The retry policy: whether another attempt follows a failed one, and when.

use authority::{Backoff, Category, QueueConfig, Time};

use super::model::TaskModel;
use super::records::DEFAULT_MAX_ATTEMPTS;

/// The default of a queue that nobody configured, as documented.
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
    pub(crate) fn may_retry(&self, config: Option<&QueueConfig>) -> bool {
        let by_default = match self.category {
            Category::UserCode | Category::Infrastructure | Category::Timeout => true,
            Category::DataQuality | Category::Configuration | Category::Cancelled => false,
        };
        match config.and_then(|config| config.retry_on.as_ref()) {
            Some(categories) => categories.contains(&self.category),
            None => self.retryable.unwrap_or(by_default),
        }
    }
}

pub(crate) fn max_attempts(task: &TaskModel, config: Option<&QueueConfig>) -> u32 {
    task.max_attempts.or(config.and_then(|config| config.max_attempts)).unwrap_or(DEFAULT_MAX_ATTEMPTS)
}

/// How long a lease lives without a heartbeat: as its task says, or its queue, or what goes with its kind of queue.
pub(crate) fn lease_ms(task: &TaskModel, config: Option<&QueueConfig>) -> u64 {
    let default_ms = match (&*task.queue.name, config.and_then(|config| config.push.as_ref())) {
        ("exec", _) => 300_000,
        (_, Some(_)) => 90_000,
        (_, None) => 60_000,
    };
    task.lease_ms.or(config.and_then(|config| config.lease_ms)).unwrap_or(default_ms)
}

/// Whether a task that failed at `at` may be tried again at `retry`.
pub(crate) fn retry_fits(task: &TaskModel, config: Option<&QueueConfig>, at: Time, retry: Time) -> bool {
    let backoff = task.backoff.or(config.and_then(|config| config.backoff)).unwrap_or(DEFAULT_BACKOFF);
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
