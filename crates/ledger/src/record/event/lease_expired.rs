//! Time revoked a lease.

use authority::{Position, event, event::ExpiryCause};

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseExpired {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(uint32, tag = "3")]
    pub cause: u32,
    #[prost(bool, tag = "4")]
    pub exhausted: bool,
}

impl From<&event::LeaseExpired> for LeaseExpired {
    fn from(event: &event::LeaseExpired) -> LeaseExpired {
        LeaseExpired {
            task: Some(event.task.into()),
            fencing_token: event.fencing_token.0,
            cause: cause_number(event.cause),
            exhausted: event.exhausted,
        }
    }
}

impl TryFrom<LeaseExpired> for event::LeaseExpired {
    type Error = DecodeError;

    fn try_from(message: LeaseExpired) -> Result<event::LeaseExpired, DecodeError> {
        Ok(event::LeaseExpired {
            task: need(message.task, "the task's id")?.into(),
            fencing_token: Position(message.fencing_token),
            cause: cause_from_number(message.cause)?,
            exhausted: message.exhausted,
        })
    }
}

fn cause_number(cause: ExpiryCause) -> u32 {
    match cause {
        ExpiryCause::Silence => 1,
        ExpiryCause::Timeout => 2,
    }
}

fn cause_from_number(number: u32) -> Result<ExpiryCause, DecodeError> {
    match number {
        0 => Err(DecodeError::Missing("the cause of an expiry")),
        1 => Ok(ExpiryCause::Silence),
        2 => Ok(ExpiryCause::Timeout),
        _ => Err(DecodeError::Newer("a cause of an expiry")),
    }
}
