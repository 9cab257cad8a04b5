//! Someone wants a leased task to stop.

use authority::{Time, event};

use crate::record::error::{DecodeError, need};
use crate::record::value::{Id, cancel_cause};

#[derive(Clone, PartialEq, prost::Message)]
pub struct CancelRequested {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint32, tag = "2")]
    pub cause: u32,
    #[prost(string, tag = "3")]
    pub reason: String,
    #[prost(uint64, tag = "4")]
    pub grace_until: u64,
}

impl From<&event::CancelRequested> for CancelRequested {
    fn from(event: &event::CancelRequested) -> CancelRequested {
        CancelRequested {
            task: Some(event.task.into()),
            cause: cancel_cause::number(event.cause),
            reason: event.reason.to_string(),
            grace_until: event.grace_until.0,
        }
    }
}

impl TryFrom<CancelRequested> for event::CancelRequested {
    type Error = DecodeError;

    fn try_from(message: CancelRequested) -> Result<event::CancelRequested, DecodeError> {
        Ok(event::CancelRequested {
            task: need(message.task, "the task's id")?.into(),
            cause: cancel_cause::from_number(message.cause)?,
            reason: message.reason.into(),
            grace_until: Time(message.grace_until),
        })
    }
}
