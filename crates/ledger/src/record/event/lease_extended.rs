//! A lease that was still alive was given more time.

use authority::{Position, Time, event};

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseExtended {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(uint64, tag = "3")]
    pub expires_at: u64,
}

impl From<&event::LeaseExtended> for LeaseExtended {
    fn from(event: &event::LeaseExtended) -> LeaseExtended {
        LeaseExtended {
            task: Some(event.task.into()),
            fencing_token: event.fencing_token.0,
            expires_at: event.expires_at.0,
        }
    }
}

impl TryFrom<LeaseExtended> for event::LeaseExtended {
    type Error = DecodeError;

    fn try_from(message: LeaseExtended) -> Result<event::LeaseExtended, DecodeError> {
        Ok(event::LeaseExtended {
            task: need(message.task, "the task's id")?.into(),
            fencing_token: Position(message.fencing_token),
            expires_at: Time(message.expires_at),
        })
    }
}
