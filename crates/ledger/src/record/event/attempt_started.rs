//! A worker began an attempt.

use authority::{Position, event};

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct AttemptStarted {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(string, tag = "3")]
    pub worker: String,
}

impl From<&event::AttemptStarted> for AttemptStarted {
    fn from(event: &event::AttemptStarted) -> AttemptStarted {
        AttemptStarted {
            task: Some(event.task.into()),
            fencing_token: event.fencing_token.0,
            worker: event.worker.to_string(),
        }
    }
}

impl TryFrom<AttemptStarted> for event::AttemptStarted {
    type Error = DecodeError;

    fn try_from(message: AttemptStarted) -> Result<event::AttemptStarted, DecodeError> {
        Ok(event::AttemptStarted {
            task: need(message.task, "the task's id")?.into(),
            fencing_token: Position(message.fencing_token),
            worker: message.worker.into(),
        })
    }
}
