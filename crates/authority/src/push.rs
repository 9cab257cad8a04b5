//! The push target of a queue. Pure data: nothing here knows a network.

use std::fmt;
use std::sync::Arc;

use crate::limits::{
    MAX_PUSH_CONCURRENCY, MAX_PUSH_HEADER_BYTES, MAX_PUSH_HEADERS, MAX_PUSH_SECRET_BYTES, MAX_PUSH_URL_BYTES,
    MAX_SEALED_HEADER_BYTES, MAX_SEALED_SECRET_BYTES, MIN_PUSH_SECRET_BYTES,
};
use crate::queue::check_range;

#[derive(Clone, PartialEq, Eq)]
pub struct PushTarget {
    pub url: Arc<str>,
    /// The most tasks that the target may have at one time.
    pub concurrency: u32,
    /// Sent with every task; names in lower case, strictly rising.
    pub headers: Vec<(Arc<str>, Arc<str>)>,
    /// Signs what is sent.
    pub secret: Option<Arc<str>>,
}

impl PushTarget {
    /// Says what is wrong with the target, naming the setting, or nothing. Whether its address may be called is for
    /// whoever calls it to say.
    pub fn check(&self) -> Result<(), String> {
        self.check_within(MAX_PUSH_HEADER_BYTES, MAX_PUSH_SECRET_BYTES)
    }

    /// The same of a target whose header values and secret are encrypted, which makes them longer.
    pub fn check_sealed(&self) -> Result<(), String> {
        self.check_within(MAX_SEALED_HEADER_BYTES, MAX_SEALED_SECRET_BYTES)
    }

    fn check_within(&self, max_header_bytes: usize, max_secret_bytes: usize) -> Result<(), String> {
        check_range("push.url (its length)", self.url.len() as u64, 1, MAX_PUSH_URL_BYTES as u64)?;
        check_range("push.concurrency", u64::from(self.concurrency), 1, u64::from(MAX_PUSH_CONCURRENCY))?;
        check_range("push.headers (how many)", self.headers.len() as u64, 0, MAX_PUSH_HEADERS as u64)?;
        let bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        check_range("push.headers (in bytes)", bytes as u64, 0, max_header_bytes as u64)?;
        if self.headers.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            return Err("push.headers must have each name once, in order".to_owned());
        }
        let secret_bytes = self.secret.as_ref().map_or(MIN_PUSH_SECRET_BYTES, |secret| secret.len());
        let (least, most) = (MIN_PUSH_SECRET_BYTES as u64, max_secret_bytes as u64);
        check_range("push.secret (in bytes)", secret_bytes as u64, least, most)
    }
}

/// Header values and the secret are the target's own: they reach no log.
impl fmt::Debug for PushTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("PushTarget")
            .field("url", &self.url)
            .field("concurrency", &self.concurrency)
            .field("headers", &names)
            .field("signed", &self.secret.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QueueConfig;

    fn target() -> PushTarget {
        PushTarget {
            url: "https://example.com/hook".into(),
            concurrency: 10,
            headers: vec![("a-key".into(), "hush-hush".into()), ("b-key".into(), "".into())],
            secret: Some("0123456789abcdef".into()),
        }
    }

    #[test]
    fn s1_33_s1_34_a_queue_with_a_push_target_has_its_own_defaults() {
        let config = QueueConfig { push: Some(Arc::new(target())), ..QueueConfig::default() };
        let pushed = config.settings(&QueueConfig::default());
        assert_eq!((pushed.lease_ms, pushed.heartbeat_interval_ms), (90_000, 30_000));
        let defaults = QueueConfig { lease_ms: Some(300_000), ..QueueConfig::default() };
        let named = config.settings(&defaults);
        assert_eq!((named.lease_ms, named.heartbeat_interval_ms), (300_000, 30_000));
        let own = QueueConfig { lease_ms: Some(6_000), ..config }.settings(&QueueConfig::default());
        assert_eq!((own.lease_ms, own.heartbeat_interval_ms), (6_000, 2_000));
    }

    #[test]
    fn every_setting_of_a_target_has_its_limits() {
        assert_eq!(target().check(), Ok(()));
        let many = (0..40).map(|n| (Arc::from(format!("h{n:02}")), Arc::from("v"))).collect();
        let long = vec![(Arc::from("h"), Arc::from("v".repeat(MAX_PUSH_HEADER_BYTES)))];
        let twice = vec![(Arc::from("h"), Arc::from("1")), (Arc::from("h"), Arc::from("2"))];
        for (bad, field) in [
            (PushTarget { url: "".into(), ..target() }, "push.url"),
            (PushTarget { url: "x".repeat(MAX_PUSH_URL_BYTES + 1).into(), ..target() }, "push.url"),
            (PushTarget { concurrency: 0, ..target() }, "push.concurrency"),
            (PushTarget { concurrency: MAX_PUSH_CONCURRENCY + 1, ..target() }, "push.concurrency"),
            (PushTarget { headers: many, ..target() }, "push.headers"),
            (PushTarget { headers: long, ..target() }, "push.headers"),
            (PushTarget { headers: twice, ..target() }, "push.headers"),
            (PushTarget { secret: Some("too short".into()), ..target() }, "push.secret"),
            (PushTarget { secret: Some("x".repeat(257).into()), ..target() }, "push.secret"),
        ] {
            let what = bad.check().unwrap_err();
            assert!(what.starts_with(field) && !what.contains("too short"), "{what}");
        }
        let sealed =
            PushTarget { secret: Some("x".repeat(2 * MAX_PUSH_SECRET_BYTES + 1).into()), ..target() };
        let config = QueueConfig { push: Some(Arc::new(sealed)), ..QueueConfig::default() };
        let what = config.check(&QueueConfig::default()).unwrap_err();
        assert!(what.starts_with("push.secret"), "{what}");
    }

    #[test]
    fn values_and_secrets_are_not_printed() {
        let shown = format!("{:?}", target());
        assert!(
            shown.contains("a-key") && !shown.contains("hush") && !shown.contains("0123456789"),
            "{shown}"
        );
    }
}
