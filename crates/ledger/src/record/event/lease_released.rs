//! A lease was given back before its time.

use authority::{Position, event, event::ReleaseCause};

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseReleased {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(uint32, tag = "3")]
    pub cause: u32,
}

impl From<&event::LeaseReleased> for LeaseReleased {
    fn from(event: &event::LeaseReleased) -> LeaseReleased {
        LeaseReleased {
            task: Some(event.task.into()),
            fencing_token: event.fencing_token.0,
            cause: cause_number(event.cause),
        }
    }
}

impl TryFrom<LeaseReleased> for event::LeaseReleased {
    type Error = DecodeError;

    fn try_from(message: LeaseReleased) -> Result<event::LeaseReleased, DecodeError> {
        Ok(event::LeaseReleased {
            task: need(message.task, "the task's id")?.into(),
            fencing_token: Position(message.fencing_token),
            cause: cause_from_number(message.cause)?,
        })
    }
}

fn cause_number(cause: ReleaseCause) -> u32 {
    match cause {
        ReleaseCause::Worker => 1,
        ReleaseCause::Undelivered => 2,
        ReleaseCause::Session => 3,
    }
}

fn cause_from_number(number: u32) -> Result<ReleaseCause, DecodeError> {
    match number {
        0 => Err(DecodeError::Missing("the cause of a release")),
        1 => Ok(ReleaseCause::Worker),
        2 => Ok(ReleaseCause::Undelivered),
        3 => Ok(ReleaseCause::Session),
        _ => Err(DecodeError::Newer("a cause of a release")),
    }
}
