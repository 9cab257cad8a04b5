//! What an operator configured for a queue. A setting that is absent follows the defaults.

use std::sync::Arc;

use super::{PushTarget, category};
use crate::record::error::DecodeError;

#[derive(Clone, PartialEq, prost::Message)]
pub struct QueueConfig {
    #[prost(uint32, optional, tag = "1")]
    pub max_attempts: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub lease_ms: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub heartbeat_interval_ms: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub cancel_grace_ms: Option<u64>,
    #[prost(message, optional, tag = "5")]
    pub backoff: Option<Backoff>,
    #[prost(message, optional, tag = "6")]
    pub retry_on: Option<Categories>,
    #[prost(uint64, optional, tag = "7")]
    pub max_queue_size: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub retention_ms: Option<u64>,
    #[prost(message, optional, boxed, tag = "9")]
    pub push: Option<Box<PushTarget>>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Backoff {
    #[prost(uint64, tag = "1")]
    pub initial_ms: u64,
    #[prost(uint32, tag = "2")]
    pub factor_permille: u32,
    #[prost(uint64, tag = "3")]
    pub max_ms: u64,
    #[prost(uint32, tag = "4")]
    pub jitter_permille: u32,
}

/// A message of its own, because an empty list is not the same as none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Categories {
    #[prost(uint32, repeated, tag = "1")]
    pub numbers: Vec<u32>,
}

impl From<&authority::QueueConfig> for QueueConfig {
    fn from(config: &authority::QueueConfig) -> QueueConfig {
        QueueConfig {
            max_attempts: config.max_attempts,
            lease_ms: config.lease_ms,
            heartbeat_interval_ms: config.heartbeat_interval_ms,
            cancel_grace_ms: config.cancel_grace_ms,
            backoff: config.backoff.map(Backoff::from),
            retry_on: config.retry_on.as_ref().map(|categories| Categories {
                numbers: categories.iter().map(|category| category::number(*category)).collect(),
            }),
            max_queue_size: config.max_queue_size,
            retention_ms: config.retention_ms,
            push: config.push.as_deref().map(|target| Box::new(target.into())),
        }
    }
}

impl TryFrom<QueueConfig> for authority::QueueConfig {
    type Error = DecodeError;

    fn try_from(config: QueueConfig) -> Result<authority::QueueConfig, DecodeError> {
        let retry_on =
            config.retry_on.map(|list| list.numbers.into_iter().map(category::from_number).collect());
        Ok(authority::QueueConfig {
            max_attempts: config.max_attempts,
            lease_ms: config.lease_ms,
            heartbeat_interval_ms: config.heartbeat_interval_ms,
            cancel_grace_ms: config.cancel_grace_ms,
            backoff: config.backoff.map(authority::Backoff::from),
            retry_on: retry_on.transpose()?,
            max_queue_size: config.max_queue_size,
            retention_ms: config.retention_ms,
            push: config.push.map(|target| (*target).try_into().map(Arc::new)).transpose()?,
        })
    }
}

impl From<authority::Backoff> for Backoff {
    fn from(backoff: authority::Backoff) -> Backoff {
        Backoff {
            initial_ms: backoff.initial_ms,
            factor_permille: backoff.factor_permille,
            max_ms: backoff.max_ms,
            jitter_permille: backoff.jitter_permille,
        }
    }
}

impl From<Backoff> for authority::Backoff {
    fn from(backoff: Backoff) -> authority::Backoff {
        authority::Backoff {
            initial_ms: backoff.initial_ms,
            factor_permille: backoff.factor_permille,
            max_ms: backoff.max_ms,
            jitter_permille: backoff.jitter_permille,
        }
    }
}
