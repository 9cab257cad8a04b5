//! A worker with authority reported that its attempt failed.

use authority::{Position, Time, event, event::NextStep};

use crate::record::error::{DecodeError, need};
use crate::record::value::{Id, TaskError};

#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskFailed {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(uint64, tag = "2")]
    pub fencing_token: u64,
    #[prost(message, optional, tag = "3")]
    pub digest: Option<Id>,
    #[prost(message, optional, tag = "4")]
    pub error: Option<TaskError>,
    /// Without it the failure is final.
    #[prost(uint64, optional, tag = "5")]
    pub retry_at: Option<u64>,
}

impl From<&event::TaskFailed> for TaskFailed {
    fn from(event: &event::TaskFailed) -> TaskFailed {
        TaskFailed {
            task: Some(event.task.into()),
            fencing_token: event.fencing_token.0,
            digest: Some(event.digest.into()),
            error: Some((&event.error).into()),
            retry_at: match event.next {
                NextStep::RetryAt(time) => Some(time.0),
                NextStep::Final => None,
            },
        }
    }
}

impl TryFrom<TaskFailed> for event::TaskFailed {
    type Error = DecodeError;

    fn try_from(message: TaskFailed) -> Result<event::TaskFailed, DecodeError> {
        Ok(event::TaskFailed {
            task: need(message.task, "the task's id")?.into(),
            fencing_token: Position(message.fencing_token),
            digest: need(message.digest, "the report's digest")?.into(),
            error: need(message.error, "the error")?.try_into()?,
            next: message.retry_at.map_or(NextStep::Final, |time| NextStep::RetryAt(Time(time))),
        })
    }
}
