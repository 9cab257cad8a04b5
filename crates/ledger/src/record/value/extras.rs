//! What most tasks do not have.

use std::sync::Arc;

use authority::Time;
use prost::bytes::Bytes;

use super::{Backoff, Id, shared};
use crate::record::error::{DecodeError, need};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Extras {
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

impl From<&authority::Extras> for Extras {
    fn from(extras: &authority::Extras) -> Extras {
        Extras {
            dedup: extras.dedup.as_ref().map(Dedup::from),
            deadline: extras.deadline.map(|time| time.0),
            timeout_ms: extras.timeout_ms,
            lease_ms: extras.lease_ms,
            max_attempts: extras.max_attempts,
            backoff: extras.backoff.map(Backoff::from),
            run_id: extras.run_id.as_deref().map(str::to_owned),
            asset_id: extras.asset_id.as_deref().map(str::to_owned),
            task_key: extras.task_key.as_deref().map(str::to_owned),
            resources: extras.resources.as_ref().map(shared),
            redrive_of: extras.redrive_of.map(Id::from),
        }
    }
}

impl TryFrom<Extras> for authority::Extras {
    type Error = DecodeError;

    fn try_from(extras: Extras) -> Result<authority::Extras, DecodeError> {
        Ok(authority::Extras {
            dedup: extras.dedup.map(authority::Dedup::try_from).transpose()?,
            deadline: extras.deadline.map(Time),
            timeout_ms: extras.timeout_ms,
            lease_ms: extras.lease_ms,
            max_attempts: extras.max_attempts,
            backoff: extras.backoff.map(authority::Backoff::from),
            run_id: extras.run_id.map(Arc::from),
            asset_id: extras.asset_id.map(Arc::from),
            task_key: extras.task_key.map(Arc::from),
            resources: extras.resources.map(|json| Arc::from(&json[..])),
            redrive_of: extras.redrive_of.map(Into::into),
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
