//! A further waiter joined an execution.

use authority::event;

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct OperationAttached {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(string, tag = "2")]
    pub operation: String,
}

impl From<&event::OperationAttached> for OperationAttached {
    fn from(event: &event::OperationAttached) -> OperationAttached {
        OperationAttached { task: Some(event.task.into()), operation: event.operation.to_string() }
    }
}

impl TryFrom<OperationAttached> for event::OperationAttached {
    type Error = DecodeError;

    fn try_from(message: OperationAttached) -> Result<event::OperationAttached, DecodeError> {
        Ok(event::OperationAttached {
            task: need(message.task, "the task's id")?.into(),
            operation: message.operation.into(),
        })
    }
}
