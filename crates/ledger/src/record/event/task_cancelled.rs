//! A report came without authority and was discarded.

use authority::{Position, event};

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskCancelled {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(uint32, tag = "3")]
    pub attempt: u32,
    #[prost(message, optional, tag = "4")]
    pub digest: Option<Id>,
}

impl From<&event::TaskCancelled> for TaskCancelled {
    fn from(event: &event::TaskCancelled) -> TaskCancelled {
        TaskCancelled {
            task: Some(event.task.into()),
            fencing_token: event.fencing_token.0,
            attempt: event.attempt,
            digest: Some(event.digest.into()),
        }
    }
}

impl TryFrom<TaskCancelled> for event::TaskCancelled {
    type Error = DecodeError;

    fn try_from(message: TaskCancelled) -> Result<event::TaskCancelled, DecodeError> {
        Ok(event::TaskCancelled {
            task: need(message.task, "the task's id")?.into(),
            fencing_token: Position(message.fencing_token),
            attempt: message.attempt,
            digest: need(message.digest, "the report's digest")?.into(),
        })
    }
}
