//! A task was accepted.

use std::sync::Arc;

use authority::{Time, event};
use prost::bytes::Bytes;

use crate::record::error::{DecodeError, need};
use crate::record::value::{Id, Property, QueueKey, TaskOptions, properties, shared};

#[derive(Clone, PartialEq, prost::Message)]
pub struct TaskCreated {
    #[prost(message, optional, tag = "1")]
    pub task: Option<Id>,
    #[prost(message, optional, tag = "2")]
    pub queue: Option<QueueKey>,
    #[prost(bytes = "bytes", tag = "3")]
    pub payload: Bytes,
    #[prost(sint32, tag = "4")]
    pub priority: i32,
    #[prost(uint64, optional, tag = "5")]
    pub not_before: Option<u64>,
    #[prost(message, repeated, tag = "6")]
    pub properties: Vec<Property>,
    #[prost(message, optional, boxed, tag = "7")]
    pub options: Option<Box<TaskOptions>>,
    #[prost(string, optional, tag = "8")]
    pub operation: Option<String>,
}

impl From<&event::TaskCreated> for TaskCreated {
    fn from(event: &event::TaskCreated) -> TaskCreated {
        TaskCreated {
            task: Some(event.task.into()),
            queue: Some(event.queue.as_ref().into()),
            payload: shared(&event.payload),
            priority: event.priority,
            not_before: event.not_before.map(|time| time.0),
            properties: properties::pairs(&event.properties),
            options: event.options.as_deref().map(|options| Box::new(options.into())),
            operation: event.operation.as_deref().map(str::to_owned),
        }
    }
}

impl TryFrom<TaskCreated> for event::TaskCreated {
    type Error = DecodeError;

    fn try_from(message: TaskCreated) -> Result<event::TaskCreated, DecodeError> {
        Ok(event::TaskCreated {
            task: need(message.task, "the task's id")?.into(),
            queue: Arc::new(need(message.queue, "the queue")?.into()),
            payload: Arc::from(&message.payload[..]),
            priority: message.priority,
            not_before: message.not_before.map(Time),
            properties: properties::from_pairs(message.properties)?,
            options: message.options.map(|options| (*options).try_into().map(Arc::new)).transpose()?,
            operation: message.operation.map(Arc::from),
        })
    }
}
