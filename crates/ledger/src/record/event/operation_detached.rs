//! A waiter left an execution.

use authority::event;

use crate::record::error::{DecodeError, need};
use crate::record::value::Id;

#[derive(Clone, PartialEq, prost::Message)]
pub struct OperationDetached {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(string, tag = "2")]
    pub operation: String,
}

impl From<&event::OperationDetached> for OperationDetached {
    fn from(event: &event::OperationDetached) -> OperationDetached {
        OperationDetached { task: Some(event.task.into()), operation: event.operation.to_string() }
    }
}

impl TryFrom<OperationDetached> for event::OperationDetached {
    type Error = DecodeError;

    fn try_from(message: OperationDetached) -> Result<event::OperationDetached, DecodeError> {
        Ok(event::OperationDetached {
            task: need(message.task, "the task's id")?.into(),
            operation: message.operation.into(),
        })
    }
}
