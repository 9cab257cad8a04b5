//! A waiting task was given to a worker.

use std::sync::Arc;

use authority::{Time, event};

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseGranted {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
    #[prost(string, tag = "3")]
    pub worker: String,
    #[prost(string, optional, tag = "4")]
    pub session: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub request: Option<Id>,
    #[prost(uint64, tag = "6")]
    pub length_ms: u64,
    #[prost(uint64, tag = "7")]
    pub expires_at: u64,
}

impl From<&event::LeaseGranted> for LeaseGranted {
    fn from(event: &event::LeaseGranted) -> LeaseGranted {
        LeaseGranted {
            task: Some(event.task.into()),
            attempt: event.attempt,
            worker: event.worker.to_string(),
            session: event.session.as_deref().map(str::to_owned),
            request: event.request.map(Id::from),
            length_ms: event.length_ms,
            expires_at: event.expires_at.0,
        }
    }
}

impl TryFrom<LeaseGranted> for event::LeaseGranted {
    type Error = DecodeError;

    fn try_from(message: LeaseGranted) -> Result<event::LeaseGranted, DecodeError> {
        Ok(event::LeaseGranted {
            task: need(message.task, "the task's id")?.into(),
            attempt: message.attempt,
            worker: message.worker.into(),
            session: message.session.map(Arc::from),
            request: message.request.map(Into::into),
            length_ms: message.length_ms,
            expires_at: Time(message.expires_at),
        })
    }
}
