//! What most tasks do not have.

use std::sync::Arc;

use authority::Time;
use prost::bytes::Bytes;

use super::{Backoff, Id, shared};
use crate::record::error::{DecodeError, need};

#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskOptions {
    #[prost(message, optional, tag = "1")]
    pub dedup: Option<Dedup>,
    #[prost(uint64, optional, tag = "2")]
    pub deadline: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub timeout_ms: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub lease_ms: Option<u64>,
    #[prost(uint32, optional, tag = "5")]
    pub max_attempts: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub backoff: Option<Backoff>,
    #[prost(string, optional, tag = "7")]
    pub run_id: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub asset_id: Option<String>,
    #[prost(string, optional, tag = "9")]
    pub task_key: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "10")]
    pub resources: Option<Bytes>,
    #[prost(message, optional, tag = "11")]
    pub redrive_of: Option<Id>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Dedup {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub content: Option<Id>,
}

impl From<&authority::TaskOptions> for TaskOptions {
    fn from(options: &authority::TaskOptions) -> TaskOptions {
        TaskOptions {
            dedup: options.dedup.as_ref().map(Dedup::from),
            deadline: options.deadline.map(|time| time.0),
            timeout_ms: options.timeout_ms,
            lease_ms: options.lease_ms,
            max_attempts: options.max_attempts,
            backoff: options.backoff.map(Backoff::from),
            run_id: options.run_id.as_deref().map(str::to_owned),
            asset_id: options.asset_id.as_deref().map(str::to_owned),
            task_key: options.task_key.as_deref().map(str::to_owned),
            resources: options.resources.as_ref().map(shared),
            redrive_of: options.redrive_of.map(Id::from),
        }
    }
}

impl TryFrom<TaskOptions> for authority::TaskOptions {
    type Error = DecodeError;

    fn try_from(options: TaskOptions) -> Result<authority::TaskOptions, DecodeError> {
        Ok(authority::TaskOptions {
            dedup: options.dedup.map(authority::Dedup::try_from).transpose()?,
            deadline: options.deadline.map(Time),
            timeout_ms: options.timeout_ms,
            lease_ms: options.lease_ms,
            max_attempts: options.max_attempts,
            backoff: options.backoff.map(authority::Backoff::from),
            run_id: options.run_id.map(Arc::from),
            asset_id: options.asset_id.map(Arc::from),
            task_key: options.task_key.map(Arc::from),
            resources: options.resources.map(|json| Arc::from(&json[..])),
            redrive_of: options.redrive_of.map(Into::into),
        })
    }
}

impl From<&authority::Dedup> for Dedup {
    fn from(dedup: &authority::Dedup) -> Dedup {
        Dedup { key: dedup.key.to_string(), content: Some(dedup.content.into()) }
    }
}

impl TryFrom<Dedup> for authority::Dedup {
    type Error = DecodeError;

    fn try_from(dedup: Dedup) -> Result<authority::Dedup, DecodeError> {
        let content = need(dedup.content, "the digest of a dedup key's content")?.into();
        Ok(authority::Dedup { key: dedup.key.into(), content })
    }
}
