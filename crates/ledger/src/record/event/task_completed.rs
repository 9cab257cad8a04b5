//! A worker with authority finished the task.

use std::sync::Arc;

use authority::{Position, event};
use prost::bytes::Bytes;

use crate::record::error::{DecodeError, need};
use crate::record::value::{Id, shared};

#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskCompleted {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(message, optional, tag = "3")]
    pub digest: Option<Id>,
    #[prost(bytes = "bytes", tag = "4")]
    pub result: Bytes,
}

impl From<&event::TaskCompleted> for TaskCompleted {
    fn from(event: &event::TaskCompleted) -> TaskCompleted {
        TaskCompleted {
            task: Some(event.task.into()),
            fencing_token: event.fencing_token.0,
            digest: Some(event.digest.into()),
            result: shared(&event.result),
        }
    }
}

impl TryFrom<TaskCompleted> for event::TaskCompleted {
    type Error = DecodeError;

    fn try_from(message: TaskCompleted) -> Result<event::TaskCompleted, DecodeError> {
        Ok(event::TaskCompleted {
            task: need(message.task, "the task's id")?.into(),
            fencing_token: Position(message.fencing_token),
            digest: need(message.digest, "the report's digest")?.into(),
            result: Arc::from(&message.result[..]),
        })
    }
}
