//! A queue's name and its settings: what an operator may configure, the defaults, and the rules they obey.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::limits::{
    DEFAULT_RETENTION_MS, MAX_ATTEMPTS, MAX_LEASE_MS, MAX_PUSH_INTERVAL_MS, MAX_SPAN_MS, MIN_LEASE_MS,
};
use crate::{Backoff, Category, QueueConfig, Time};

/// Who a queue and its tasks belong to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    pub tenant: Arc<str>,
    pub workspace: Arc<str>,
}

/// A queue's full name. Ordered by tenant, workspace, name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    pub scope: Scope,
    pub name: Arc<str>,
}

/// A queue's configuration with every default filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    pub max_attempts: u32,
    pub lease_ms: u64,
    pub heartbeat_interval_ms: u64,
    pub cancel_grace_ms: u64,
    pub backoff: Backoff,
    pub retry_on: Option<Vec<Category>>,
    /// The most waiting and leased tasks, or no limit.
    pub max_queue_size: Option<u64>,
    pub retention_ms: u64,
}

/// Defaults of single queues, by name, in place of the general ones. They are given at startup and not recorded: decisions
/// depend on them, events and replay do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDefaults(BTreeMap<Arc<str>, QueueConfig>);

/// Which queues a submit may create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueCreation {
    #[default]
    Any,
    /// None: tasks are accepted for queues that were configured, and for those with defaults of their own.
    Configured,
}

/// A queue as it is shown: settings, what was configured, counts by state, the oldest ready task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    pub key: Arc<QueueKey>,
    pub config: QueueConfig,
    pub settings: QueueSettings,
    pub waiting: u64,
    /// How many of the waiting tasks may not be leased yet.
    pub delayed: u64,
    pub leased: u64,
    pub completed: u64,
    pub failed: u64,
    pub dead: u64,
    /// When the longest waiting ready task was created.
    pub oldest_waiting: Option<Time>,
}

impl QueueDefaults {
    /// Sets the defaults of the queues with this name, in every scope.
    pub fn with(mut self, name: &str, defaults: QueueConfig) -> QueueDefaults {
        self.0.insert(name.into(), defaults);
        self
    }

    /// Whether the queues with this name have defaults of their own.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The defaults of a queue; empty where the general ones apply.
    pub fn of(&self, name: &str) -> QueueConfig {
        self.0.get(name).cloned().unwrap_or_default()
    }
}

impl QueueConfig {
    /// Fills in what is not configured: from the queue's own defaults, then from the general ones.
    pub fn settings(&self, defaults: &QueueConfig) -> QueueSettings {
        let (lease_ms, interval_ms) = if self.push.is_some() { (90_000, 30_000) } else { (60_000, 20_000) };
        let lease_ms = self.lease_ms.or(defaults.lease_ms).unwrap_or(lease_ms);
        let interval_ms = defaults.heartbeat_interval_ms.unwrap_or(interval_ms);
        QueueSettings {
            max_attempts: self.max_attempts.or(defaults.max_attempts).unwrap_or(3),
            lease_ms,
            // A lease shorter than usual brings the interval down with it; see `heartbeat_interval_for`.
            heartbeat_interval_ms: self
                .heartbeat_interval_ms
                .unwrap_or(interval_ms.min((lease_ms / 3).max(1))),
            cancel_grace_ms: self.cancel_grace_ms.or(defaults.cancel_grace_ms).unwrap_or(30_000),
            backoff: self.backoff.or(defaults.backoff).unwrap_or_default(),
            retry_on: self.retry_on.clone().or_else(|| defaults.retry_on.clone()),
            max_queue_size: self.max_queue_size.or(defaults.max_queue_size),
            retention_ms: self.retention_ms.or(defaults.retention_ms).unwrap_or(DEFAULT_RETENTION_MS),
        }
    }

    /// Says what is wrong with the configuration, naming the setting, or nothing.
    pub fn check(&self, defaults: &QueueConfig) -> Result<(), String> {
        let settings = self.settings(defaults);
        check_range("maxAttempts", u64::from(settings.max_attempts), 1, u64::from(MAX_ATTEMPTS))?;
        check_range("leaseMs", settings.lease_ms, MIN_LEASE_MS, MAX_LEASE_MS)?;
        check_range("heartbeatIntervalMs", settings.heartbeat_interval_ms, 1, MAX_LEASE_MS)?;
        if settings.lease_ms < 2 * settings.heartbeat_interval_ms {
            return Err(format!(
                "leaseMs (heartbeatTimeoutMs) must be at least twice heartbeatIntervalMs, but {} is less than 2 × {}",
                settings.lease_ms, settings.heartbeat_interval_ms
            ));
        }
        if self.push.is_some() && settings.heartbeat_interval_ms > MAX_PUSH_INTERVAL_MS {
            return Err(format!(
                "heartbeatIntervalMs must be at most {MAX_PUSH_INTERVAL_MS} for a queue with a push target, but is {}: \
                 heartbeats renew the task's token, which lives for an hour",
                settings.heartbeat_interval_ms
            ));
        }
        check_range("cancelGracePeriodMs", settings.cancel_grace_ms, 0, MAX_SPAN_MS)?;
        check_range("maxQueueSize", settings.max_queue_size.unwrap_or(1), 1, u64::MAX)?;
        check_range("retentionMs", settings.retention_ms, 0, MAX_SPAN_MS)?;
        check_backoff(&settings.backoff)?;
        self.push.as_ref().map_or(Ok(()), |target| target.check_sealed())
    }
}

impl QueueSettings {
    /// The heartbeat interval for a worker: never more than a third of its lease.
    pub fn heartbeat_interval_for(&self, lease_ms: u64) -> u64 {
        self.heartbeat_interval_ms.min((lease_ms / 3).max(1))
    }
}

pub(crate) fn check_backoff(backoff: &Backoff) -> Result<(), String> {
    check_range("backoff.initialMs", backoff.initial_ms, 0, MAX_SPAN_MS)?;
    check_range("backoff.maxMs", backoff.max_ms, 0, MAX_SPAN_MS)?;
    check_range("backoff.factor (in thousandths)", u64::from(backoff.factor_permille), 1_000, 100_000)?;
    check_range("backoff.jitter (in thousandths)", u64::from(backoff.jitter_permille), 0, 1_000)
}

pub(crate) fn check_range(name: &str, value: u64, low: u64, high: u64) -> Result<(), String> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(format!("{name} must be between {low} and {high}, but is {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_without_defaults_of_its_own_has_the_general_ones() {
        let defaults = QueueDefaults::default().with(
            "exec",
            QueueConfig {
                lease_ms: Some(300_000),
                heartbeat_interval_ms: Some(30_000),
                max_queue_size: Some(10_000),
                ..QueueConfig::default()
            },
        );
        let plain = QueueConfig::default().settings(&defaults.of("mail"));
        assert_eq!(
            (plain.lease_ms, plain.heartbeat_interval_ms, plain.max_queue_size),
            (60_000, 20_000, None)
        );
        let exec = QueueConfig::default().settings(&defaults.of("exec"));
        assert_eq!(
            (exec.lease_ms, exec.heartbeat_interval_ms, exec.max_queue_size),
            (300_000, 30_000, Some(10_000))
        );
        let short = QueueConfig { lease_ms: Some(6_000), ..QueueConfig::default() };
        let settings = short.settings(&defaults.of("exec"));
        assert_eq!((settings.lease_ms, settings.heartbeat_interval_ms), (6_000, 2_000));
    }

    #[test]
    fn a_timeout_below_twice_the_interval_is_refused() {
        let config = QueueConfig {
            lease_ms: Some(30_000),
            heartbeat_interval_ms: Some(20_000),
            ..QueueConfig::default()
        };
        assert!(config.check(&QueueConfig::default()).unwrap_err().contains("twice"));
    }

    #[test]
    fn an_interval_that_outlasts_the_tokens_of_pushed_tasks_is_refused() {
        let push = crate::PushTarget {
            url: "https://mail.example/tasks".into(),
            concurrency: 1,
            headers: Default::default(),
            secret: None,
        };
        let config = |heartbeat_interval_ms, push| QueueConfig {
            lease_ms: Some(MAX_LEASE_MS),
            heartbeat_interval_ms,
            push,
            ..QueueConfig::default()
        };
        let beyond = Some(MAX_PUSH_INTERVAL_MS + 1);
        let what = config(beyond, Some(Arc::new(push.clone()))).check(&QueueConfig::default()).unwrap_err();
        assert!(what.starts_with("heartbeatIntervalMs") && what.contains("push target"), "{what}");
        assert_eq!(
            config(beyond, None).check(&QueueConfig::default()),
            Ok(()),
            "workers that lease have no tokens"
        );
        for longest in [None, Some(MAX_PUSH_INTERVAL_MS)] {
            assert_eq!(config(longest, Some(Arc::new(push.clone()))).check(&QueueConfig::default()), Ok(()));
        }
    }

    #[test]
    fn a_short_lease_alone_brings_its_interval_down() {
        let config = QueueConfig { lease_ms: Some(600), ..QueueConfig::default() };
        assert_eq!(config.check(&QueueConfig::default()), Ok(()));
        assert_eq!(config.settings(&QueueConfig::default()).heartbeat_interval_ms, 200);
    }

    #[test]
    fn zero_and_absurd_values_are_refused_by_name() {
        for (config, name) in [
            (QueueConfig { lease_ms: Some(0), ..QueueConfig::default() }, "leaseMs"),
            (QueueConfig { lease_ms: Some(u64::MAX), ..QueueConfig::default() }, "leaseMs"),
            (QueueConfig { max_attempts: Some(0), ..QueueConfig::default() }, "maxAttempts"),
            (QueueConfig { max_queue_size: Some(0), ..QueueConfig::default() }, "maxQueueSize"),
            (QueueConfig { retention_ms: Some(u64::MAX), ..QueueConfig::default() }, "retentionMs"),
        ] {
            assert!(config.check(&QueueConfig::default()).unwrap_err().starts_with(name));
        }
    }
}
