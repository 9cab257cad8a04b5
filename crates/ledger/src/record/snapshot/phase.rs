//! The state a task is in, with what only that state has.

use std::sync::Arc;

use authority::{DeadReason, Position, Time};
use prost::bytes::Bytes;

use super::lease::Lease;
use crate::record::error::DecodeError;
use crate::record::value::{Enumeration, shared};

/// The tags are those of the task's message.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Phase {
    #[prost(message, tag = "10")]
    Waiting(Waiting),
    #[prost(message, boxed, tag = "11")]
    Leased(Box<Lease>),
    #[prost(message, tag = "12")]
    Completed(Completed),
    #[prost(message, tag = "13")]
    Failed(Failed),
    #[prost(message, tag = "14")]
    Dead(Dead),
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Waiting {
    #[prost(uint64, tag = "1")]
    pub since: u64,
    #[prost(uint64, optional, tag = "2")]
    pub not_before: Option<u64>,
    #[prost(bool, tag = "3")]
    pub exhausted: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Completed {
    #[prost(uint64, tag = "1")]
    pub at: u64,
    #[prost(uint64, tag = "2")]
    pub ended: u64,
    #[prost(bytes = "bytes", tag = "3")]
    pub result: Bytes,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Failed {
    #[prost(uint64, tag = "1")]
    pub at: u64,
    #[prost(uint64, tag = "2")]
    pub ended: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Dead {
    #[prost(uint64, tag = "1")]
    pub at: u64,
    #[prost(uint64, tag = "2")]
    pub ended: u64,
    #[prost(uint32, tag = "3")]
    pub reason: u32,
    #[prost(string, optional, tag = "4")]
    pub detail: Option<String>,
}

impl From<&authority::Phase> for Phase {
    fn from(phase: &authority::Phase) -> Phase {
        match phase {
            authority::Phase::Waiting { since, not_before, exhausted } => Phase::Waiting(Waiting {
                since: since.0,
                not_before: not_before.map(|time| time.0),
                exhausted: *exhausted,
            }),
            authority::Phase::Leased(lease) => Phase::Leased(Box::new(lease.as_ref().into())),
            authority::Phase::Completed { at, ended, result } => {
                Phase::Completed(Completed { at: at.0, ended: ended.0, result: shared(result) })
            }
            authority::Phase::Failed { at, ended } => Phase::Failed(Failed { at: at.0, ended: ended.0 }),
            authority::Phase::Dead { at, ended, reason, detail } => Phase::Dead(Dead {
                at: at.0,
                ended: ended.0,
                reason: reason.number(),
                detail: detail.as_deref().map(str::to_owned),
            }),
        }
    }
}

impl TryFrom<Phase> for authority::Phase {
    type Error = DecodeError;

    fn try_from(phase: Phase) -> Result<authority::Phase, DecodeError> {
        Ok(match phase {
            Phase::Waiting(Waiting { since, not_before, exhausted }) => authority::Phase::Waiting {
                since: Position(since),
                not_before: not_before.map(Time),
                exhausted,
            },
            Phase::Leased(lease) => authority::Phase::Leased(Box::new((*lease).into())),
            Phase::Completed(Completed { at, ended, result }) => authority::Phase::Completed {
                at: Time(at),
                ended: Position(ended),
                result: Arc::from(&result[..]),
            },
            Phase::Failed(Failed { at, ended }) => {
                authority::Phase::Failed { at: Time(at), ended: Position(ended) }
            }
            Phase::Dead(Dead { at, ended, reason, detail }) => authority::Phase::Dead {
                at: Time(at),
                ended: Position(ended),
                reason: DeadReason::from_number(reason)?,
                detail: detail.map(Arc::from),
            },
        })
    }
}
